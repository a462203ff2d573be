//! Prepared statements in transaction mode: each client has its names, each server connection its
//! own, and a shared table joins those with the same text.
//!
//! ```text
//!   client: name --> Statement { number, definition } <-- number: server
//! ```
//!
//! A name of a client is provisional until its reply: [`Names`] undoes what the server skips.

mod names;
mod server;
mod table;

pub(crate) use names::Names;
pub(crate) use server::OnServer;
pub(crate) use table::Held;
pub use table::Statements;
