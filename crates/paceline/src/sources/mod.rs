#![doc = include_str!("README.md")]

mod cells;
#[cfg(all(test, loom))]
mod models;
mod per_source;
mod queue;
mod ring;
mod semaphore;
mod signals;
mod succession;

pub use self::{
    per_source::{
        Arrived, BlockingSource, Interrupter, SourcePool, SourcePoolBuilder, SourceReport,
        SourceSnapshot,
    },
    queue::Sender,
    ring::{RingConsumer, RingProducer},
    semaphore::Semaphore,
    signals::Signal,
};
pub(crate) use self::{
    queue::Queue,
    semaphore::Count,
    signals::{Herald, SignalSource},
};
