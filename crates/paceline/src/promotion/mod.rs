#![doc = include_str!("README.md")]

mod absent;
mod elastic;
mod followers;
mod held;
mod lead;
#[cfg(all(test, loom))]
mod models;
mod opener;
mod outcome;
mod policy;
mod recall;
mod roaming_idle;
mod shared_parker;
mod standby;
mod watcher;
mod word;

pub(crate) use elastic::ElasticPolicy;
pub(crate) use followers::Seat;
pub(crate) use held::{Behind, HeldLead, Rejoined, Running};
pub(crate) use lead::Lead;
pub(crate) use outcome::{Arrival, Promotion};
pub(crate) use policy::Policy;
pub use policy::{Order, Wake};
pub(crate) use recall::{Keeping, Recalled, Until, Wanted};
pub(crate) use roaming_idle::{Others, RoamingIdle};
pub(crate) use watcher::Surprise;
pub(crate) use word::{Marks, MOST_THREADS};
