//! The admin console: the database `pgbouncer`.
//!
//! ```text
//!   text of a query --> Command::parse --> front carries it out --> done / refuse
//!                                      \-> show: rows of a Source as wire messages
//! ```
//!
//! This module knows no pool and no socket. Commands are values; the tables of `SHOW` are made from
//! the plain rows that a [`Source`] returns.

mod command;
mod refusal;
mod reply;
mod rows;
mod show;
mod table;
mod words;

pub use command::{Access, Command, Show, Shutdown};
pub use refusal::Refusal;
pub use reply::{done, help, parameter, refuse, refuse_fatal, set_done, set_ignored, welcome};
pub use rows::{
    Counters, DatabaseRow, DnsHostRow, HostRow, Lists, MemoryRow, PoolRow, SocketDetail, SocketRow,
    State, StatsRow, UserRow,
};
pub use show::{show, Source};
pub use table::{Big, Numeric};

#[cfg(test)]
mod tests;
