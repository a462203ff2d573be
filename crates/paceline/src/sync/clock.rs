//! Time as the pool sees it: the operating system's, or a test's.
//!
//! All deadlines are points on one monotonic clock. A virtual clock stands still until a test moves
//! it, and then makes every sleeper look again, so that time-outs become steps of a schedule.

use std::{
    num::NonZeroU64,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{
    atomic::{AtomicU64, Ordering},
    lock,
    system::monotonic_nanos,
    Mutex, Parker,
};

/// A point in time: nanoseconds since the clock was made, and one. So it is never zero, and an
/// `Option` of it, which every role of a thread has, is one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(NonZeroU64);

impl Timestamp {
    /// A point that has always passed: as a deadline, "do not sleep".
    pub(crate) const PAST: Self = Self(NonZeroU64::MIN);

    /// Nanoseconds since the clock was made, for structures that keep it in a word.
    pub(crate) fn to_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// The point so many nanoseconds after the clock was made.
    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// The point `span` later; the far future if that is beyond the clock.
    pub(crate) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// The span from `earlier` until this point; zero if it has passed.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The same in nanoseconds, for callers that note one at every event.
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }
}

/// A point in time that others may read, perhaps an older one or the next: it orders nothing.
#[derive(Debug, Default)]
pub(crate) struct Moment(std::sync::atomic::AtomicU64);

impl Moment {
    pub(crate) fn set(&self, now: Timestamp) {
        self.0
            .store(now.to_nanos(), std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets it, unless it is later already.
    pub(crate) fn raise(&self, now: Timestamp) {
        self.0
            .fetch_max(now.to_nanos(), std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// How long before `now` it was; zero if it was later.
    pub(crate) fn nanos_before(&self, now: Timestamp) -> u64 {
        now.nanos_since(self.get())
    }
}

/// The pool's source of time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The operating system's monotonic clock, counted from this origin, in nanoseconds.
    Monotonic(u64),
    /// A test's clock.
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    /// All have one origin: a thread that waits in several pools compares their times.
    pub(crate) fn monotonic() -> Self {
        static ORIGIN: OnceLock<u64> = OnceLock::new();
        Self::Monotonic(*ORIGIN.get_or_init(monotonic_nanos))
    }

    /// Whether it moves by itself.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self, Self::Monotonic(_))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(origin) => {
                Timestamp::from_nanos(monotonic_nanos().saturating_sub(*origin))
            }
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
            (Self::Monotonic(_), None) => parker.sleep(None),
            (Self::Monotonic(_), Some(deadline)) => {
                parker.sleep(Some(deadline.since(self.now())));
            }
            // loom has enough to explore without a list of the threads that wait for no point in
            // time.
            (Self::Virtual(_), None) if cfg!(loom) => parker.sleep(None),
            (Self::Virtual(clock), deadline) => clock.sleep(parker, deadline),
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
    sleepers: Mutex<Sleepers>,
}

/// The threads that sleep on a virtual clock.
#[derive(Debug, Default)]
struct Sleepers {
    list: Vec<Sleeper>,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug)]
struct Sleeper {
    number: u64,
    parker: Arc<Parker>,
    /// It must be woken when time moves.
    has_deadline: bool,
}

impl VirtualClock {
    pub(crate) fn new() -> Self {
        Self {
            now: AtomicU64::new(0),
            sleepers: Mutex::new(Sleepers::default()),
        }
    }

    /// The time that has passed on this clock.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Acquire))
    }

    /// How many threads are asleep on this clock: followers, the leader, and a caller that waits in
    /// a shutdown. A thread that was woken and has not got up yet does not count. When all threads
    /// of a pool sleep that are not inside a handler, nothing more happens by itself.
    pub fn asleep(&self) -> usize {
        let sleepers = lock(&self.sleepers);
        let without_message = |sleeper: &&Sleeper| !sleeper.parker.has_message();
        sleepers.list.iter().filter(without_message).count()
    }

    /// Moves the time, and makes every thread that sleeps until some deadline check it.
    pub fn advance(&self, span: Duration) {
        // First the time, then the sleepers: `sleep` enlists before it looks at the time, so one of
        // the two sees the other.
        self.now.fetch_add(nanos(span), Ordering::AcqRel);
        lock(&self.sleepers).list.retain(|sleeper| {
            if sleeper.has_deadline {
                sleeper.parker.nudge();
            }
            !sleeper.has_deadline
        });
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now.load(Ordering::Acquire))
    }

    fn sleep(&self, parker: &Arc<Parker>, deadline: Option<Timestamp>) {
        let seen = parker.look();
        let number = lock(&self.sleepers).enlist(parker, deadline.is_some());
        if deadline.is_none_or(|deadline| self.now() < deadline) {
            parker.sleep_since(seen, None);
        }
        let mut sleepers = lock(&self.sleepers);
        sleepers.list.retain(|sleeper| sleeper.number != number);
    }
}

impl Sleepers {
    fn enlist(&mut self, parker: &Arc<Parker>, has_deadline: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.list.push(Sleeper {
            number,
            parker: Arc::clone(parker),
            has_deadline,
        });
        number
    }
}

/// The far future if it is beyond 584 years. (By hand: `as_nanos` counts in 128 bits.)
fn nanos(span: Duration) -> u64 {
    let seconds = span.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(span.subsec_nanos()))
}
