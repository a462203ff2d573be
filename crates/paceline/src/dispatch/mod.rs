#![doc = include_str!("README.md")]

mod channel;
mod claim;
mod concurrent;
mod context;
mod endings;
mod entry;
mod errand;
mod frames;
mod group;
mod handle;
mod handler;
mod hooks;
mod kind;
mod line;
#[cfg(all(test, loom))]
mod models;
mod open_line;
mod owner;
mod readiness;
mod registry;
mod rejected;
mod return_list;
mod scratch;
mod slot;
mod task;
mod unwind;

pub(crate) use claim::{Claim, Dispatched, Duty, Subject};
pub use concurrent::{ConcurrentContext, ConcurrentHandler};
pub(crate) use context::Afterwards;
pub use context::{Context, OutputLimit};
pub(crate) use errand::nobody_returns;
pub use errand::{Errand, InHandler, Recall, Returned, Serve};
pub(crate) use group::Outcome;
pub use group::{Adoption, Group, GroupHandler, Members};
pub use handle::{Handle, HandleId};
pub use handler::{Closed, EventHandler, Interest, Next, Panics};
pub(crate) use hooks::Hooks;
pub(crate) use kind::Pace;
pub(crate) use line::{Line, Look};
pub(crate) use registry::{Found, Limits, Registry};
pub use rejected::Rejected;
pub use scratch::{scratch, Scratch};
pub use task::{TaskContext, TickContext};
pub(crate) use unwind::{abort_on_unwind, caught};
