//! The front-end communication server: a pooler and router that speaks PostgreSQL's protocol.
//!
//! ```text
//!   clients --> front --> login --> pools: which server, or a place in the queue
//!                 |
//!                 +--> protocol: bytes of the client to the server and back, until a boundary
//! ```
//!
//! Only `front` knows sockets, threads and the clock. Everything else takes bytes and times as
//! arguments, and returns what is to be done.
#![forbid(unsafe_code)]

pub mod config;
pub mod console;
pub mod hosts;
pub mod log;
pub mod login;
pub mod pools;
pub mod protocol;

use paceline_pg_wire as pg_wire;

pub mod front;
pub mod stats;
