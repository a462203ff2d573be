//! What can be seen of a pool from outside: who has which role, and how often what happened.
//!
//! One seam: the pool tells an [`Observer`] about every change of role, if there is one. Counters are
//! always on; they are plain additions that order nothing, so they use std's atomics in all forms.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a thread is to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// It belongs to the pool and does not lead.
    Follower,
    /// It holds the lead: it waits for events, or takes one.
    Leader,
    /// It has given the lead away and handles an event.
    Processing,
    /// It has left the pool.
    Gone,
}

/// Is told about every change of role.
///
/// It is called on the thread that changes, in the middle of the protocol: it must be quick, must not
/// call the pool, and must not panic (that aborts the process). A thread is told to be `Leader` after
/// it took the lead, and to be something else before it gives the lead away, so at no time are two
/// threads of one pool told to be leaders.
pub trait Observer: Send + Sync + 'static {
    /// Thread `thread` (counted from zero in the order of entering) is now in `role`.
    fn role_changed(&self, thread: usize, role: Role);
}

/// How often what happened since the pool was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Times a leader gave the lead away with an event in its hands.
    pub promotions: u64,
    /// Of these, how many woke a follower. (The others found none asleep.)
    pub wakes: u64,
    /// Times a thread took the vacant lead back right after an event, without sleeping.
    pub leads_taken_back: u64,
    /// Events for registrations that were over.
    pub stale_events: u64,
    /// Panics of handlers, caught.
    pub panics: u64,
    /// Connections accepted by listeners.
    pub accepted: u64,
    /// Connections accepted and closed at once: the descriptor table was full, or the handler's maker
    /// or the pool refused.
    pub refused: u64,
    /// Connections that were gone before they could be accepted.
    pub aborted: u64,
}

/// The counters behind a [`Snapshot`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) promotions: Count,
    pub(crate) wakes: Count,
    pub(crate) leads_taken_back: Count,
    pub(crate) stale_events: Count,
    pub(crate) panics: Count,
    pub(crate) accepted: Count,
    pub(crate) refused: Count,
    pub(crate) aborted: Count,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            promotions: self.promotions.get(),
            wakes: self.wakes.get(),
            leads_taken_back: self.leads_taken_back.get(),
            stale_events: self.stale_events.get(),
            panics: self.panics.get(),
            accepted: self.accepted.get(),
            refused: self.refused.get(),
            aborted: self.aborted.get(),
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
