//! Connections that sessions keep for a transaction, given out in the order of arrival.
//!
//! A lane of one connection is the lane of writers. A session that finds no connection is parked:
//! it blocks no thread.
//!
//! ```text
//!   asks --[Lane::take]--> Granted            a connection is free, and no session waits
//!                      --> Parked             at the end of the queue
//!   Parked --[Lane::give_back]--> notified    the connection is in its waiter's slot
//!   Parked --[Waiter::leave]--> gone          a connection in its slot passes on to the next
//! ```
//!
//! Invariant: while a session waits, no connection is free.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use paceline::Handle;

use super::link::Link;
use crate::failure::Failure;

/// A bounded set of connections, and the sessions that wait for one.
pub(crate) struct Lane {
    state: Mutex<State>,
    most: usize,
    open: Box<dyn Fn() -> Result<Link, Failure> + Send + Sync>,
}

#[derive(Default)]
struct State {
    free: Vec<Link>,
    /// Connections that exist: free, or with a session.
    made: usize,
    queue: VecDeque<Arc<Slot>>,
}

/// The place of a waiting session: `give_back` puts the connection here.
#[derive(Debug)]
struct Slot {
    handle: Handle,
    link: Mutex<Option<Link>>,
}

/// The outcome of [`Lane::take`].
#[must_use]
#[derive(Debug)]
pub(crate) enum Take {
    Granted(Grant),
    Parked(Waiter),
}

/// A connection that a session holds. Dropping it rolls back, and passes the connection on.
pub(crate) struct Grant {
    lane: Arc<Lane>,
    link: Option<Link>,
}

/// A place in the queue. Dropping it leaves the queue.
pub(crate) struct Waiter {
    lane: Arc<Lane>,
    slot: Arc<Slot>,
}

impl Lane {
    /// A lane of at most `most` connections. `take` opens them on demand.
    pub(crate) fn new(
        most: usize,
        open: impl Fn() -> Result<Link, Failure> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            most,
            open: Box::new(open),
        })
    }

    /// Takes a connection, or a place in the queue. The lane notifies the handle at its turn.
    pub(crate) fn take(self: &Arc<Self>, handle: impl FnOnce() -> Handle) -> Result<Take, Failure> {
        let mut state = self.lock();
        if let Some(link) = state.free.pop() {
            return Ok(Take::Granted(self.grant(link)));
        }
        if state.made < self.most {
            state.made += 1;
            drop(state);
            let opened = (self.open)();
            if opened.is_err() {
                self.forget();
            }
            return opened.map(|link| Take::Granted(self.grant(link)));
        }
        let slot = Arc::new(Slot {
            handle: handle(),
            link: Mutex::default(),
        });
        state.queue.push_back(Arc::clone(&slot));
        Ok(Take::Parked(Waiter {
            lane: Arc::clone(self),
            slot,
        }))
    }

    /// How many sessions wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// How many connections sessions hold.
    pub(crate) fn in_use(&self) -> usize {
        let state = self.lock();
        state.made - state.free.len()
    }

    fn grant(self: &Arc<Self>, link: Link) -> Grant {
        Grant {
            lane: Arc::clone(self),
            link: Some(link),
        }
    }

    /// Passes a connection to the session that has waited longest.
    fn give_back(&self, link: Link) {
        let mut state = self.lock();
        let Some(next) = state.queue.pop_front() else {
            state.free.push(link);
            return;
        };
        // Under the lock, so that a waiter that leaves finds the connection in its slot.
        *lock(&next.link) = Some(link);
        drop(state);
        // If its session is closed, dropping its waiter passes the connection on.
        let _ = next.handle.notify();
    }

    /// Uncounts a lost connection, so that the next `take` opens another one.
    fn forget(&self) {
        let mut state = self.lock();
        state.made -= 1;
        let next = state.queue.pop_front();
        drop(state);
        // The slot is empty: the session polls `Turn::Lost` and asks again.
        if let Some(next) = next {
            let _ = next.handle.notify();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outcome of [`Waiter::poll`].
#[must_use]
#[derive(Debug)]
pub(crate) enum Turn {
    /// The session holds a connection.
    Granted(Grant),
    /// The session is still in the queue.
    Waits,
    /// The connection was lost: the session must ask again.
    Lost,
}

impl Waiter {
    /// Whether the turn of the session has come.
    pub(crate) fn poll(&self) -> Turn {
        let state = self.lane.lock();
        if let Some(link) = lock(&self.slot.link).take() {
            return Turn::Granted(self.lane.grant(link));
        }
        if state.queue.iter().any(|slot| Arc::ptr_eq(slot, &self.slot)) {
            Turn::Waits
        } else {
            Turn::Lost
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        state.queue.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        let link = lock(&self.slot.link).take();
        drop(state);
        if let Some(link) = link {
            self.lane.give_back(link);
        }
    }
}

impl Grant {
    /// The connection.
    pub(crate) fn link(&self) -> &Link {
        self.link.as_ref().expect("only drop takes it")
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else {
            return;
        };
        link.begin(None);
        match link.roll_back() {
            Ok(()) => self.lane.give_back(link),
            Err(_) => {
                drop(link);
                self.lane.forget();
            }
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grant")
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}
