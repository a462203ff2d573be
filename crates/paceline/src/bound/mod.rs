#![doc = include_str!("README.md")]
#![allow(dead_code, unreachable_pub, reason = "its driver is not here yet")]

mod calls;
mod counters;
mod inbound;
mod outbound;
mod protocol;
mod slot;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod wire_order;
mod word;

pub use protocol::{Header, Protocol, Whose};
