//! What can be seen of a pool from outside: what each thread does, how often what happened, and how
//! long it took.
//!
//! | what | how | cost |
//! | --- | --- | --- |
//! | counters | [`snapshot`], as text by [`open_metrics()`] | plain additions, always on |
//! | changes of role, and what goes wrong | [`observer`], or for a while [`observe`] | its own |
//! | what each thread does, since when | [`board`], then [`threads`] and [`stuck`] | some stores |
//! | how long turns, calls and blind times are | likewise, [`histograms`] | an addition per turn |
//! | stuck handlers | [`stuck_after`] | the board's, and a thread that sleeps |
//!
//! [`snapshot`]: crate::Pool::snapshot
//! [`observer`]: crate::Builder::observer
//! [`observe`]: crate::Pool::observe
//! [`board`]: crate::Builder::board
//! [`threads`]: crate::Inspect::threads
//! [`stuck`]: crate::Inspect::stuck
//! [`histograms`]: crate::Inspect::histograms
//! [`stuck_after`]: crate::Builder::stuck_after
//!
//! The counters order nothing, so they are std's atomics in all forms.
//!
//! One seam: whether the pool is observed is a bit of the lead word (`promotion/word.rs`), tested
//! together with others that a turn tests anyway. So an unobserved turn has not one instruction
//! more than one from which all this was left out; `cargo xtask instructions` counts them.

mod board;
mod histogram;
mod names;
mod observers;
mod open_metrics;
#[cfg(feature = "tracing")]
mod traces;

#[cfg(feature = "tracing")]
pub use self::traces::Traces;
pub(crate) use self::{
    board::{Board, Row, Subject},
    histogram::{Recorder, Times},
    names::number_of,
    observers::Observers,
};
pub use self::{
    board::{Call, Stuck, ThreadReport, Unread},
    histogram::{Bucket, Histogram, Histograms},
    open_metrics::{open_metrics, Metrics},
};

use std::{
    fmt, io,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use crate::key::HandleId;

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
    /// It has left the pool. (One of those that serve several [`Sets`](crate::Sets) comes back: it
    /// is gone while it is in another one, or in none.)
    Gone,
    /// It is the follower that watches over surprises, under
    /// [`Wake::Adaptive`](crate::Wake::Adaptive). Only
    /// [`Inspect::threads`](crate::Inspect::threads) reports it: observers get `Follower`.
    Standby,
    /// Its handler blocks, and the pool knows it: the thread is inside
    /// [`Context::blocking`](crate::Context::blocking).
    /// [`Inspect::threads`](crate::Inspect::threads) reports it. For an observer the role stays
    /// `Processing`, and [`Observer::away_changed`] says when the thread blocks.
    Away,
}

impl Role {
    const ALL: [Self; 6] = [
        Self::Follower,
        Self::Leader,
        Self::Processing,
        Self::Gone,
        Self::Standby,
        Self::Away,
    ];

    /// The role that was written as this number.
    fn of_number(number: u8) -> Self {
        Self::ALL[usize::from(number) % Self::ALL.len()]
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Follower => "follower",
            Self::Leader => "leader",
            Self::Processing => "processing",
            Self::Gone => "gone",
            Self::Standby => "standby",
            Self::Away => "away",
        })
    }
}

/// Gets every change of role, and what goes wrong.
///
/// [`role_changed`](Self::role_changed) is called on the thread that changes, in the middle of the
/// protocol: it must be quick, must not call the pool, and must not panic (that aborts the
/// process). A thread is reported as `Leader` after it took the lead (at the latest when it begins
/// to wait), and as something else before it gives the lead away, so at no time are two threads of
/// one pool reported as leaders. (In a concurrent set there is no leader.)
///
/// The others are called where neither the lead nor a lock is held. A panic of theirs is dropped,
/// and so is a panic of the observer's destructor, which any thread of the pool may run.
pub trait Observer: Send + Sync + 'static {
    /// Thread `thread` (counted from zero in the order of entering) is now in `role`.
    fn role_changed(&self, thread: usize, role: Role) {
        let _ = (thread, role);
    }

    /// The handler that thread `thread` runs begins to block in
    /// [`Context::blocking`](crate::Context::blocking) (`is_away`), or has come back from that. The
    /// role of the thread is [`Role::Processing`] throughout.
    fn away_changed(&self, thread: usize, is_away: bool) {
        let _ = (thread, is_away);
    }

    /// User code has panicked on behalf of this handle: see
    /// [`Builder::on_panic`](crate::Builder::on_panic).
    fn panicked(&self, handle: HandleId, message: &str) {
        let _ = (handle, message);
    }

    /// This handle is closed because of an error.
    fn failed(&self, handle: HandleId, error: &io::Error) {
        let _ = (handle, error);
    }

    /// A handler takes too long, or one that did has returned: see
    /// [`Builder::stuck_after`](crate::Builder::stuck_after), without which this is never called.
    fn stuck(&self, stuck: &Stuck) {
        let _ = stuck;
    }

    /// So many calls of a handler in a row left input unread and read nothing
    /// ([`Builder::unread_limit`](crate::Builder::unread_limit)): it keeps a thread busy. Each
    /// handle is reported once.
    fn unread(&self, unread: &Unread) {
        let _ = unread;
    }

    /// An elastic pool has called this thread; or it was let go, and stays because it is wanted.
    fn grown(&self, thread: usize) {
        let _ = thread;
    }

    /// An elastic pool lets this thread go: it was idle for long. If one more is wanted before it
    /// has left, it stays.
    fn retired(&self, thread: usize) {
        let _ = thread;
    }
}

/// Counters since the pool was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Times a leader gave the lead away with an event in its hands.
    pub promotions: u64,
    /// Followers woken: to lead, or to watch an open lead; in a concurrent set, for what no
    /// descriptor reports.
    pub wakes: u64,
    /// Of these, how many found nothing to do: another thread led, or their time was over.
    pub wasted_wakes: u64,
    /// Polls of the standby.
    pub ticks: u64,
    /// Times the standby took over because the watcher rang: behind a handler that blocked by
    /// surprise.
    pub rings: u64,
    /// Times a leader that found nothing kept looking for a while before it slept: see
    /// [`Builder::leader_spin`](crate::Builder::leader_spin).
    pub spins: u64,
    /// Of these, how many found nothing: their time was burnt.
    pub spins_in_vain: u64,
    /// Events that a thread which waits for a reply left to others: see
    /// [`Serve::Chain`](crate::Serve::Chain).
    pub passed_on: u64,
    /// Events that were handed to another thread than the one that found them, because their
    /// handles belong to it: see [`Handle::pin_to`](crate::Handle::pin_to).
    pub handed: u64,
    /// Events of handles whose threads have all left the pool, and that anyone had.
    pub strayed: u64,
    /// Times a thread took the lead right after an event, without sleeping.
    pub leads_taken_back: u64,
    /// How long the lead was open, in all: given away and not yet taken.
    pub without_leader: Duration,
    /// The longest such time.
    pub longest_without_leader: Duration,
    /// The longest time that the lead was open although a follower was asleep: bounded by four and
    /// a half ticks, a wake, and what the system's scheduler adds.
    pub longest_blind: Duration,
    /// Events for registrations that were over.
    pub stale_events: u64,
    /// Panics of user code, caught.
    pub panics: u64,
    /// Handles that were closed because of an error.
    pub failed: u64,
    /// Calls of handlers that left input unread and read nothing, from so many in a row on: see
    /// [`Builder::unread_limit`](crate::Builder::unread_limit). Each took a turn of a thread for
    /// nothing.
    pub unread_calls: u64,
    /// Connections accepted by listeners.
    pub accepted: u64,
    /// Connections accepted and closed at once: the descriptor table was full, or the handler's
    /// maker or the pool refused.
    pub refused: u64,
    /// Connections that were gone before they could be accepted.
    pub aborted: u64,
    /// Connections of listeners that are open now and belong to this pool: from the moment in which
    /// a listener accepts one until its source is dropped. One that moves to another pool counts
    /// there.
    pub connections: usize,
    /// Posts accepted.
    pub posted: u64,
    /// Times that a timer's time had come, periodic ones included.
    pub timers: u64,
    /// Of these, how many were found more than a millisecond late: no thread was free, or no core.
    pub late_timers: u64,
    /// Ticks of periodic timers that passed without a call.
    pub missed_ticks: u64,
    /// Handles that were closed because their time was over.
    pub timed_out: u64,
    /// Handles that have gone on in another pool: a move to another level.
    pub moved: u64,
    /// Events that had waited too long in the line
    /// ([`Builder::age_limit`](crate::Builder::age_limit)).
    pub expired: u64,
    /// Threads in the pool now: its own, also one that was called and does not run yet, and those
    /// that joined. Of those that serve several [`Sets`](crate::Sets): the threads that serve this
    /// one now, or sleep in it.
    pub threads: usize,
    /// Threads that an elastic pool has called since it was built.
    pub grown: u64,
    /// Threads that an elastic pool has let go because they were idle.
    pub retired: u64,
    /// Threads that were called from the idle list of several [`Sets`](crate::Sets) because this
    /// one had no leader.
    pub roamed: u64,
    /// Times an elastic pool called a thread and the system had none.
    pub spawns_failed: u64,
}

/// The counters behind a [`Snapshot`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) promotions: OwnCount,
    pub(crate) wakes: Count,
    pub(crate) wasted_wakes: Count,
    pub(crate) ticks: Count,
    pub(crate) rings: Count,
    pub(crate) spins: OwnCount,
    pub(crate) spins_in_vain: OwnCount,
    pub(crate) passed_on: Count,
    pub(crate) handed: Count,
    pub(crate) strayed: Count,
    pub(crate) vacancy: Spans,
    pub(crate) blindness: Spans,
    pub(crate) leads_taken_back: OwnCount,
    pub(crate) stale_events: Count,
    pub(crate) panics: Count,
    pub(crate) failed: Count,
    pub(crate) unread_calls: Count,
    pub(crate) accepted: Count,
    pub(crate) refused: Count,
    pub(crate) aborted: Count,
    pub(crate) connections: Gauge,
    pub(crate) posted: Count,
    pub(crate) timers: Count,
    pub(crate) late_timers: Count,
    pub(crate) missed_ticks: Count,
    pub(crate) timed_out: Count,
    pub(crate) moved: Count,
    pub(crate) expired: Count,
    pub(crate) grown: Count,
    pub(crate) retired: Count,
    pub(crate) roamed: Count,
    pub(crate) spawns_failed: Count,
}

impl Counters {
    /// The membership knows how many threads there are.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let spins = self.spins.get();
        Snapshot {
            promotions: self.promotions.get(),
            wakes: self.wakes.get(),
            wasted_wakes: self.wasted_wakes.get(),
            ticks: self.ticks.get(),
            rings: self.rings.get(),
            spins,
            // They are not read at once: there may have been one more in between.
            spins_in_vain: self.spins_in_vain.get().min(spins),
            passed_on: self.passed_on.get(),
            handed: self.handed.get(),
            strayed: self.strayed.get(),
            without_leader: self.vacancy.total(),
            longest_without_leader: self.vacancy.longest(),
            longest_blind: self.blindness.longest(),
            leads_taken_back: self.leads_taken_back.get(),
            stale_events: self.stale_events.get(),
            panics: self.panics.get(),
            failed: self.failed.get(),
            unread_calls: self.unread_calls.get(),
            accepted: self.accepted.get(),
            refused: self.refused.get(),
            aborted: self.aborted.get(),
            connections: self.connections.get(),
            posted: self.posted.get(),
            timers: self.timers.get(),
            late_timers: self.late_timers.get(),
            missed_ticks: self.missed_ticks.get(),
            timed_out: self.timed_out.get(),
            moved: self.moved.get(),
            expired: self.expired.get(),
            threads: 0,
            grown: self.grown.get(),
            retired: self.retired.get(),
            roamed: self.roamed.get(),
            spawns_failed: self.spawns_failed.get(),
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn one_more(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down. It orders nothing.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lower(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that one thread at a time raises, the holder of the lead: no read-modify-write is
/// needed.
#[derive(Debug, Default)]
pub(crate) struct OwnCount(AtomicU64);

impl OwnCount {
    pub(crate) fn one_more(&self) {
        let count = self.get();
        self.0.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Spans of time that the holder of the lead notes, likewise.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    total: AtomicU64,
    longest: AtomicU64,
}

impl Spans {
    /// `span` in nanoseconds.
    pub(crate) fn note(&self, span: u64) {
        let total = self.total.load(Ordering::Relaxed);
        self.total
            .store(total.wrapping_add(span), Ordering::Relaxed);
        if span > self.longest.load(Ordering::Relaxed) {
            self.longest.store(span, Ordering::Relaxed);
        }
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }

    fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }
}
