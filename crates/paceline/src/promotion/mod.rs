#![doc = include_str!("README.md")]

mod bench;
mod followers;
mod lead;
#[cfg(all(test, loom))]
mod models;
mod policy;
mod standby;
mod word;

pub(crate) use followers::Seat;
pub(crate) use lead::{Arrival, HeldLead, Lead, Rejoined, Running};
pub(crate) use policy::Policy;
pub use policy::{Order, Wake};
pub(crate) use word::{Marks, MOST_THREADS};
