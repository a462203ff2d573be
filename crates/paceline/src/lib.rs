//! lib
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod turn;
mod pool;
mod promotion;
mod handle_set;
mod dispatch;
pub mod observe;
mod sync;

pub use dispatch::{Closed, Context, EventHandler, Handle, HandleId, Interest, Next, OutputLimit, Rejected};
pub use handle_set::simulated;
pub use pool::*;
