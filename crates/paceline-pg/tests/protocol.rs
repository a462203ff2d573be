//! The relay between a client and a real server: what a client receives is what the server would
//! have sent it directly, and the server is released at its boundaries alone.

mod support;

#[path = "protocol/boundaries.rs"]
mod boundaries;
#[path = "protocol/differential.rs"]
mod differential;
#[path = "protocol/hazards.rs"]
mod hazards;
#[path = "protocol/lost.rs"]
mod lost;
#[path = "protocol/own.rs"]
mod own;
#[path = "protocol/pieces.rs"]
mod pieces;
#[path = "protocol/truth.rs"]
mod truth;
