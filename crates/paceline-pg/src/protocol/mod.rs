//! One client and one server connection, without I/O and without a clock.
//!
//! ```text
//!   client --> from_client --> messages to the server, and a queue entry for each reply
//!                                     |
//!   client <-- from_server <-- replies consume the entries; at a boundary the server is free
//! ```
//!
//! - [`Relay`] joins a [`ClientHalf`] and a [`ServerHalf`] for one call.
//! - `server`: the model of what the server does, and queries of the front-end's own.
//! - `prepared`: the names of statements, which differ on each side.
//! - [`Tracked`], [`Values`]: parameters that follow a client.
//!
//! A server connection is released only at a proven boundary. Where the protocol does not let the
//! model determine the server's state, the server stays with its client and is closed afterwards.

mod client;
mod faults;
mod keyword;
mod output;
mod parameters;
mod prepared;
mod relay;
mod server;
mod settings;

pub use client::{ClientHalf, Idle, Unassigned};
pub use faults::{Broken, Violation};
pub use output::Output;
pub use parameters::{canonical_encoding, Tracked, Values};
pub use prepared::Statements;
pub use relay::{batch, AfterLoss, Batch, Counts, FromClient, FromServer, Next, Relay};
pub use server::{Alone, Loss, OwnOutcome, Purpose, Release, ServerHalf};
pub use settings::{Mode, RelaySettings};
