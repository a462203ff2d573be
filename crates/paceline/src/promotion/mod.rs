#![doc = include_str!("README.md")]

mod followers;
mod lead;
#[cfg(all(test, loom))]
mod models;
mod word;

pub(crate) use followers::Seat;
pub(crate) use lead::{Arrival, HeldLead, Lead, Promotion, Rejoined, Running};
pub(crate) use word::MOST_THREADS;
