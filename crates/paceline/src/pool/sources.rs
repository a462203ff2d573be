//! Events that no socket reports: queues, semaphores and signals.

use std::sync::Arc;

use super::Pool;
use crate::{
    dispatch::{ConcurrentItemHandler, Handle, Interest, ItemHandler, Rejected},
    sources::{Count, Herald, Queue, Semaphore, Sender, Signal, SignalSource},
};

impl Pool {
    /// Event sources without a descriptor of their own: queues, semaphores, signals.
    #[must_use]
    pub fn sources(&self) -> Sources<'_> {
        Sources { pool: self }
    }
}

/// Begins event sources that have no descriptor of their own: see [`Pool::sources`].
#[derive(Clone, Copy, Debug)]
pub struct Sources<'p> {
    pool: &'p Pool,
}

impl Sources<'_> {
    /// Begins a queue of at most `capacity` items, each of which is an event of this pool:
    /// `handler` is called for one after the other, in the order in which they were sent, by
    /// whichever thread leads then.
    ///
    /// A queue that is never empty does not hold a thread: after some items the others have their
    /// turn. No item costs an allocation, and one that is sent while the leader is awake costs no
    /// system call.
    ///
    /// It ends when the last [`Sender`] is dropped or one [closes](Sender::close) it, and
    /// everything that was sent is handled. A shutdown drains it, too; what is left at its deadline
    /// is dropped and counted ([`unhandled_items`](super::ShutdownReport::unhandled_items)). A
    /// panic takes its item along, and ends the queue or not:
    /// [`Builder::panics`](super::Builder::panics).
    ///
    /// # Errors
    /// Gives `handler` back: `InvalidInput` if `capacity` is zero, `OutOfMemory` if there is not so
    /// much; otherwise as [`Pool::after`].
    ///
    /// ```
    /// # use paceline::{Pool, TaskContext};
    /// let pool = Pool::builder().threads(2).build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let orders = pool.sources().queue(64, move |order: u32, _cx: &mut TaskContext<'_>| {
    ///     sender.send(order * 2).unwrap();
    /// })?;
    /// if let Err(rejected) = orders.send(21) {
    ///     drop(rejected.value); // the queue is full: the order is ours again
    /// }
    /// assert_eq!(receiver.recv().unwrap(), 42);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn queue<T, H>(&self, capacity: usize, handler: H) -> Result<Sender<T>, Rejected<H>>
    where
        T: Send + 'static,
        H: ItemHandler<T>,
    {
        let queue = match Queue::new(capacity) {
            Ok(queue) => queue,
            Err(error) => return Err(Rejected::new(handler, error)),
        };
        let registry = &self.pool.hub().registry;
        let handle = registry.register_store("queue", queue.store(), handler)?;
        Ok(queue.sender(handle))
    }

    /// As [`queue`](Self::queue); several threads handle items at once, in no order.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn queue_concurrent<T, H>(
        &self,
        capacity: usize,
        handler: H,
    ) -> Result<Sender<T>, Rejected<H>>
    where
        T: Send + 'static,
        H: ConcurrentItemHandler<T>,
    {
        let queue = match Queue::new(capacity) {
            Ok(queue) => queue,
            Err(error) => return Err(Rejected::new(handler, error)),
        };
        let registry = &self.pool.hub().registry;
        let handle = registry.register_concurrent_store("queue", queue.store(), handler)?;
        Ok(queue.sender(handle))
    }

    /// Begins a semaphore: each [released](Semaphore::release) unit makes an event of this pool,
    /// and so do `initial` units at once. `handler` is called once for each, by one thread at a
    /// time. Counts are exact. It ends as a [queue](Self::queue) does.
    ///
    /// # Errors
    /// Gives `handler` back, as [`Pool::after`].
    ///
    /// ```
    /// # use paceline::{Pool, TaskContext};
    /// let pool = Pool::builder().threads(2).build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let use_unit = move |(), _cx: &mut TaskContext<'_>| sender.send(()).unwrap();
    /// let permits = pool.sources().semaphore(2, use_unit)?;
    /// permits.release()?;
    /// drop(permits); // all three are handled, and then it ends
    /// assert_eq!(receiver.iter().count(), 3);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn semaphore<H>(&self, initial: u32, handler: H) -> Result<Semaphore, Rejected<H>>
    where
        H: ItemHandler<()>,
    {
        let count = Arc::new(Count::new(initial));
        let registry = &self.pool.hub().registry;
        let handle = registry.register_store("semaphore", &count, handler)?;
        Ok(Semaphore::new(count, handle))
    }

    /// As [`semaphore`](Self::semaphore); several threads handle units at once.
    ///
    /// # Errors
    /// As [`semaphore`](Self::semaphore).
    pub fn semaphore_concurrent<H>(
        &self,
        initial: u32,
        handler: H,
    ) -> Result<Semaphore, Rejected<H>>
    where
        H: ConcurrentItemHandler<()>,
    {
        let count = Arc::new(Count::new(initial));
        let registry = &self.pool.hub().registry;
        let handle = registry.register_concurrent_store("semaphore", &count, handler)?;
        Ok(Semaphore::new(count, handle))
    }

    /// Makes events of signals: `handler` is called for each, by one thread at a time, as for any
    /// other event. No code of yours runs where the system interrupts. (A closure needs the types
    /// of its arguments written out, as below.)
    ///
    /// Several signals of one kind that arrive before the call are one, as they are for the system
    /// itself. Several pools may have the same signal, and each gets it. What the system did with
    /// it before is done again when the last of them lets go: when the handle is closed, or a
    /// shutdown begins (so that a second Ctrl-C ends the process at once). A foreign handler is not
    /// called meanwhile. Signals that are blocked in every thread do not arrive.
    ///
    /// # Errors
    /// Gives `handler` back: `InvalidInput` if no signal is named, if it can't be caught (SIGKILL),
    /// or if it reports a fault of the program (SIGSEGV); `Other` if this process had it already
    /// and another handler has taken its place since; the system's error if it does not have it;
    /// `QuotaExceeded` if 64 registrations of this process have some already; otherwise as
    /// [`Pool::register`].
    ///
    /// ```
    /// # use paceline::{Pool, Signal, TaskContext};
    /// let pool = Pool::builder().threads(2).build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let wanted = [Signal::TERM, Signal::USR1];
    /// pool.sources().signals(wanted, move |signal: Signal, _cx: &mut TaskContext<'_>| {
    ///     sender.send(signal).unwrap();
    /// })?;
    /// signal_hook::low_level::raise(Signal::USR1.number())?;
    /// assert_eq!(receiver.recv().unwrap(), Signal::USR1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn signals<H>(
        &self,
        signals: impl IntoIterator<Item = Signal>,
        handler: H,
    ) -> Result<Handle, Rejected<H>>
    where
        H: ItemHandler<Signal>,
    {
        let source = match SignalSource::new(signals) {
            Ok(source) => source,
            Err(error) => return Err(Rejected::new(handler, error)),
        };
        let registered = self.pool.register(source, Interest::READ, Herald(handler));
        registered.map_err(|rejected| {
            let Herald(handler) = rejected.value.1;
            Rejected::new(handler, rejected.error)
        })
    }
}
