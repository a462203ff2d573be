//! Time as the pool sees it: the operating system's, or a test's.
//!
//! All deadlines are points on one monotonic clock. A virtual clock stands still until a test moves
//! it, and then makes every sleeper look again, so that time-outs become steps of a schedule.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    atomic::{AtomicU64, Ordering},
    lock, Mutex, Parker,
};

/// A point in time: nanoseconds since the clock was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(u64);

impl Timestamp {
    /// A point that has always passed: as a deadline, "do not sleep".
    pub(crate) const PAST: Self = Self(0);

    /// The point `span` later; the far future if that is beyond the clock.
    pub(crate) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// The span from `earlier` until this point; zero if it has passed.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The pool's source of time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The operating system's monotonic clock, counted from an origin.
    Monotonic(Instant),
    /// A test's clock.
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    pub(crate) fn monotonic() -> Self {
        Self::Monotonic(Instant::now())
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(origin) => Timestamp(nanos(origin.elapsed())),
            Self::Virtual(clock) => clock.now(),
        }
    }

    /// Whether `deadline` exists and has passed. Reads no clock where there is no deadline.
    pub(crate) fn has_passed(&self, deadline: Option<Timestamp>) -> bool {
        deadline.is_some_and(|deadline| self.now() >= deadline)
    }

    /// Sleeps on `parker` until it has a message or `deadline` passed. May return early.
    pub(crate) fn sleep(&self, parker: &Arc<Parker>, deadline: Option<Timestamp>) {
        match (self, deadline) {
            (_, None) => parker.sleep(None),
            (Self::Monotonic(_), Some(deadline)) => {
                parker.sleep(Some(deadline.since(self.now())));
            }
            (Self::Virtual(clock), Some(deadline)) => clock.sleep(parker, deadline),
        }
    }
}

/// A clock that moves only when a test moves it.
///
/// It belongs to a [`Simulation`](crate::simulated::Simulation); every deadline of a pool on that
/// simulation is measured on it.
#[derive(Debug)]
pub struct VirtualClock {
    now: AtomicU64,
    /// Who must be told when time moves.
    sleepers: Mutex<Vec<Arc<Parker>>>,
}

impl VirtualClock {
    pub(crate) fn new() -> Self {
        Self {
            now: AtomicU64::new(0),
            sleepers: Mutex::new(Vec::new()),
        }
    }

    /// The time that has passed on this clock.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now().0)
    }

    /// Moves the time, and makes everyone who sleeps until some deadline look at it.
    pub fn advance(&self, span: Duration) {
        // First the time, then the sleepers: `sleep` enlists before it looks at the time, so one of
        // the two sees the other.
        self.now.fetch_add(nanos(span), Ordering::AcqRel);
        for sleeper in lock(&self.sleepers).iter() {
            sleeper.nudge();
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::Acquire))
    }

    fn sleep(&self, parker: &Arc<Parker>, deadline: Timestamp) {
        let seen = parker.look();
        lock(&self.sleepers).push(Arc::clone(parker));
        if self.now() < deadline {
            parker.sleep_since(seen, None);
        }
        let mut sleepers = lock(&self.sleepers);
        if let Some(place) = sleepers.iter().position(|other| Arc::ptr_eq(other, parker)) {
            sleepers.swap_remove(place);
        }
    }
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos().try_into().unwrap_or(u64::MAX)
}
