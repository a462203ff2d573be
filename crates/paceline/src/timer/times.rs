//! The times of one registration, kept in its slot: its deadline, its idle time-out, and when it
//! was last used.
//!
//! The wheel has at most one node for both. It **looks** at them at a tick that is published here.
//! To move a time to a later point is a change of its field; the wheel finds that out at its look,
//! and looks again when it is due. So a deadline that is set and cleared with every request costs
//! two atomic operations and no lock.
//!
//! ```text
//!   the owner sets a deadline              the wheel looks, under its lock
//!   1. swaps the deadline                  1. swaps the tick of its look to "never"
//!   2. reads the tick of the next look     2. reads the deadline
//!      (by a read-modify-write)            3. publishes the tick of its next look
//!   3. if that is too late or never:
//!      takes the lock and sets the wheel
//! ```
//!
//! Steps 2 and 1 change the same word. If the owner's comes first, the wheel sees the new deadline;
//! if the wheel's comes first, the owner sees "never" or the next look, and sets the wheel itself.
//! So no deadline is slept over.

use std::time::Duration;

use super::{ticks_up_to, TimerNode, NEVER};
use crate::sync::{
    atomic::{AtomicU64, Ordering},
    Moment, Timestamp,
};

/// The times of a registration.
#[derive(Debug)]
pub(crate) struct Times {
    /// Its node in the wheel. While it is loose, there is no time.
    pub(super) pin: TimerNode,
    /// The tick of the wheel's next look, or [`NEVER`].
    next_look: AtomicU64,
    /// The deadline in nanoseconds, or [`NEVER`].
    deadline: AtomicU64,
    /// The idle time-out in nanoseconds, or [`NEVER`].
    idle: AtomicU64,
    /// The end of its last use; noted while it has an idle time-out.
    used: Moment,
}

/// How long a registration may live, and how long it may be idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeLimits {
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) idle: Option<Duration>,
}

impl TimeLimits {
    pub(crate) fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether the wheel looks early enough for a new deadline.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    InTime,
    /// The wheel must be set.
    TooLate,
}

impl Times {
    pub(crate) fn new() -> Self {
        Self {
            pin: TimerNode::new(),
            next_look: AtomicU64::new(NEVER),
            deadline: AtomicU64::new(NEVER),
            idle: AtomicU64::new(NEVER),
            used: Moment::default(),
        }
    }

    /// Whether the end of each use must be noted.
    #[inline]
    pub(crate) fn counts_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed) != NEVER
    }

    pub(crate) fn note_use(&self, now: Timestamp) {
        self.used.raise(now);
    }

    pub(crate) fn used(&self) -> Timestamp {
        self.used.get()
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        // A read-modify-write: see the schedule above.
        point(self.deadline.fetch_or(0, Ordering::AcqRel))
    }

    pub(crate) fn idle(&self) -> Option<Duration> {
        match self.idle.load(Ordering::Acquire) {
            NEVER => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// Clears the deadline if it has passed and no other one was set meanwhile. `true` for one
    /// caller only.
    pub(crate) fn take_passed_deadline(&self, now: Timestamp) -> bool {
        let passed = self.deadline.load(Ordering::Acquire);
        passed <= now.to_nanos() && self.replace_deadline(passed)
    }

    /// Clears the deadline if it is this one.
    pub(super) fn clear_deadline(&self, at: Timestamp) -> bool {
        self.replace_deadline(at.to_nanos())
    }

    fn replace_deadline(&self, seen: u64) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let replaced = self
            .deadline
            .compare_exchange(seen, NEVER, success, failure);
        replaced.is_ok()
    }

    /// Sets the deadline. The caller owns the registration, or the wheel's lock.
    pub(super) fn set_deadline(&self, at: Option<Timestamp>) -> Look {
        let nanos = at.map_or(NEVER, Timestamp::to_nanos);
        self.deadline.swap(nanos, Ordering::AcqRel);
        let Some(at) = at else {
            return Look::InTime;
        };
        // Pairs with the swap in `begin_look`.
        if ticks_up_to(at) >= self.next_look.fetch_or(0, Ordering::AcqRel) {
            Look::InTime
        } else {
            Look::TooLate
        }
    }

    /// Sets the idle time-out. The caller has the wheel's lock.
    pub(super) fn set_idle(&self, span: Option<Duration>) {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(NEVER);
        self.idle.swap(span.map_or(NEVER, nanos), Ordering::AcqRel);
    }

    /// The wheel, under its lock, is about to look at the times.
    pub(crate) fn begin_look(&self) {
        self.next_look.swap(NEVER, Ordering::AcqRel);
    }

    /// The wheel, under its lock, looks again at this point.
    pub(crate) fn end_look(&self, next: Option<Timestamp>) {
        let tick = next.map_or(NEVER, ticks_up_to);
        self.next_look.swap(tick, Ordering::AcqRel);
    }

    /// The point of the next look that these times need, if it is before the one that is set. The
    /// caller has the wheel's lock.
    pub(super) fn earlier_look(&self) -> Option<Timestamp> {
        let idle = self.idle().map(|span| self.used().after(span));
        let needed = earliest(self.deadline(), idle)?;
        let is_earlier = ticks_up_to(needed) < self.next_look.load(Ordering::Relaxed);
        is_earlier.then_some(needed)
    }

    /// Clears all times, and returns what they were. The caller has the wheel's lock.
    pub(super) fn take(&self) -> TimeLimits {
        self.begin_look();
        let idle = self.idle();
        self.set_idle(None);
        TimeLimits {
            deadline: point(self.deadline.swap(NEVER, Ordering::AcqRel)),
            idle,
        }
    }
}

fn point(nanos: u64) -> Option<Timestamp> {
    (nanos != NEVER).then(|| Timestamp::from_nanos(nanos))
}

/// The earlier one of two points, either of which may be missing.
pub(crate) fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
