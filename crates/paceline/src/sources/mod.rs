#![doc = include_str!("README.md")]

mod cells;
mod queue;
mod semaphore;
mod signals;

pub(crate) use self::{
    queue::Queue,
    semaphore::Count,
    signals::{Herald, SignalSource},
};
pub use self::{queue::Sender, semaphore::Semaphore, signals::Signal};
