//! Faults in each state of a session, and a table of what they have broken.
//!
//! ```text
//!   command --> row --> strike    kill, stop, reset, refuse, client: on the back-end, the link
//!                |  |             between it and the front-end, or clients
//!                |  +-> victim    clients that the fault meets in a state, and what they know
//!                |        |
//!                |        +-> state, client
//!                +----> tally     the counts of the row
//! ```
//!
//! While a row lasts, the bank and the lists of `paceline check` are at work through the same
//! front-end. At its end everything is read once more.

pub(crate) mod client;
mod command;
mod row;
mod state;
mod strike;
mod tally;
mod victim;

use std::time::Duration;

pub use command::{broken_rows, main};
pub(crate) use victim::play as play_victim;

/// How long a row is.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Transactions that are acknowledged at least.
    transactions: u64,
    /// How often the fault strikes at least.
    strikes: u64,
    /// Clients that are at work meanwhile.
    clients: u32,
    /// How many times as long as a strike the pause behind it is.
    pause: u32,
    /// The longest time.
    limit: Duration,
}
