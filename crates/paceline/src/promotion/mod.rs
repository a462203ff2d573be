#![doc = include_str!("README.md")]

mod absent;
mod bench;
mod followers;
mod held;
mod lead;
mod lounge;
#[cfg(all(test, loom))]
mod models;
mod opener;
mod policy;
mod recall;
mod staff;
mod standby;
mod watcher;
mod word;

pub(crate) use followers::Seat;
pub(crate) use held::{Behind, HeldLead, Rejoined, Running};
pub(crate) use lead::{Arrival, Lead, Promotion};
pub(crate) use lounge::{Lounge, Others};
pub(crate) use policy::Policy;
pub use policy::{Order, Wake};
pub(crate) use recall::{Keeping, Recalled, Until, Wanted};
pub(crate) use staff::Staff;
pub(crate) use watcher::Surprise;
pub(crate) use word::{Marks, MOST_THREADS};
