#![doc = include_str!("README.md")]
//!
//! [B3]: crate::glossary#b3

mod mux;

mod call;

mod protocol;

mod deadline;

mod link;

mod driver;

mod leading;

mod connect;

mod pooled;

mod lead;

mod sleepers;

mod line;

mod calls;

mod slot;

mod owed;

mod word;

mod inbound;

mod outbound;

mod wire_order;

mod counters;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use call::{Body, Prepared, Reply, Sent};
pub use counters::{Callers, Snapshot};
pub use deadline::Deadline;
pub use line::Stream;
pub use mux::{Builder, Mux};
pub use protocol::{Header, Protocol, Whose};
pub use sleepers::Elect;
