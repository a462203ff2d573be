//! What a thread without work does before it sleeps: it yields and polls again, where that has
//! paid.
//!
//! A sleep and its wake-up cost several microseconds of processor time, and the answer is some
//! thirty microseconds late; a yield and a poll cost less than one. Where the awaited event is
//! near, because other threads have only to run for it, the poll finds it. So a thread may
//!
//! - **yield**, some few times, with a poll after each;
//! - **spin**: yield and poll for about as long as a wake-up takes. Where one request follows the
//!   other that is most of what a request takes.
//!
//! ```text
//!  [IdlePolicy::begin] --> Polls --- [note_nothing] yields ---> Yields --- [note_nothing] over
//!          |                 |                                 |  |  ^              |
//!          |                 '--------- [note_found] ----------'  '--' yields       v
//!          '------------------ it has not paid lately -------------------------> Sleeps
//! ```
//!
//! Attempts that find nothing are processor time for nothing. So both are left out where they have
//! not paid lately (`stats.rs`); a span that the builder sets is spun every time.

mod stats;
mod yielding;

use std::time::Duration;

use self::stats::{SpinStats, Turn, YieldStats};
pub(crate) use self::yielding::{Yielded, Yielding};
use crate::sync::{Clock, Timestamp};

/// How often the leader of a pool yields: the sender of the next request may only need its core.
pub(crate) const LEADER_YIELDS: u32 = 1;
/// How often a caller of a shared connection yields: with fewer than four, most replies arrive a
/// little too late; more than eight bring nothing. (In models a poll is as good as a sleep.)
pub(crate) const CALLER_YIELDS: u32 = if cfg!(loom) { 0 } else { 8 };
/// How often the leader of a shared connection yields while many replies arrive at once.
pub(crate) const READER_YIELDS: u32 = if cfg!(loom) { 0 } else { 2 };
/// How long a spin is by the policy's own decision: about as long as a wake-up takes, so it costs
/// at most twice what is best.
const SPIN: Duration = Duration::from_micros(30);

/// Decides for threads that wait one after the other for the same thing.
#[derive(Debug)]
pub(crate) struct IdlePolicy {
    spinning: Spinning,
    /// How often an attempt without a spin yields.
    yields: u32,
    yield_stats: YieldStats,
    spin_stats: SpinStats,
}

/// Whether the policy spins.
#[derive(Clone, Copy, Debug)]
enum Spinning {
    /// Where that pays.
    Learns,
    Never,
    /// For this long, every time.
    Set(Duration),
}

/// What a thread does next in one wait. A turn asks that twice: so its tag is a byte of its own,
/// and not hidden in what it holds.
#[must_use]
#[repr(u8)]
pub(crate) enum Idle<'c> {
    /// It may sleep.
    Sleeps,
    /// It polls without sleep. If that finds nothing the attempt begins.
    Polls(Means),
    /// It polls without sleep after a yield.
    Yields(Attempt<'c>),
}

/// The means of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Yields,
    Spin,
    /// A spin that the builder has set.
    SetSpin(Duration),
}

/// A thread that yields between its polls.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'c> {
    means: Means,
    yielding: Yielding<'c>,
    /// What the last yield was like.
    last: Yielded,
    end: End,
}

/// When an attempt is over.
#[derive(Clone, Copy)]
enum End {
    /// After this many further yields.
    After(u32),
    At(Timestamp),
}

/// What has ended, for counters.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No attempt: it goes on, or there was none.
    Nothing,
    Yields,
    Spin,
}

impl IdlePolicy {
    /// A policy of so many yields. `spin`: how long it spins every time; zero: never; `None`: where
    /// that pays.
    pub(crate) fn new(yields: u32, spin: Option<Duration>) -> Self {
        Self {
            spinning: match spin {
                None => Spinning::Learns,
                Some(Duration::ZERO) => Spinning::Never,
                Some(span) => Spinning::Set(span),
            },
            yields,
            yield_stats: YieldStats::default(),
            spin_stats: SpinStats::default(),
        }
    }

    /// For one wait until `until`. `may_pay`: nothing is there yet, and a poll is cheap.
    #[inline]
    pub(crate) fn begin(
        &self,
        may_pay: bool,
        clock: &Clock,
        until: Option<Timestamp>,
    ) -> Idle<'static> {
        match self.spinning {
            // On a clock that does not move there would be no end to it.
            Spinning::Set(span) if clock.is_real() => Idle::Polls(Means::SetSpin(span)),
            _ if may_pay && may_yield(clock, until) => self.where_it_paid(clock, until),
            _ => Idle::Sleeps,
        }
    }

    fn where_it_paid(&self, clock: &Clock, until: Option<Timestamp>) -> Idle<'static> {
        if self.may_spin(clock, until) && self.spin_stats.take_turn() == Turn::Try {
            return Idle::Polls(Means::Spin);
        }
        if self.yields > 0 && self.yield_stats.take_turn() == Turn::Try {
            return Idle::Polls(Means::Yields);
        }
        Idle::Sleeps
    }

    /// Whether it may find out if a spin pays: not without time for it.
    fn may_spin(&self, clock: &Clock, until: Option<Timestamp>) -> bool {
        let has_time = |until| clock.now().after(SPIN) <= until;
        matches!(self.spinning, Spinning::Learns) && clock.is_real() && until.is_none_or(has_time)
    }

    fn attempt<'c>(&self, means: Means, clock: &'c Clock) -> Attempt<'c> {
        let mut yielding = Yielding::begin(clock);
        let end = match means {
            Means::Yields => End::After(self.yields - 1),
            Means::Spin => End::At(yielding.now().after(SPIN)),
            Means::SetSpin(span) => End::At(yielding.now().after(span)),
        };
        Attempt {
            means,
            last: yielding.let_others_run(),
            yielding,
            end,
        }
    }

    /// An attempt is over. A thread that has lost its core by one means would lose it by the other.
    fn note(&self, attempt: &Attempt<'_>, found: bool) -> Ended {
        let ended = match attempt.means {
            Means::Yields => {
                self.yield_stats.note(found, attempt.last);
                Ended::Yields
            }
            Means::Spin => {
                // If its time was over by then, a sleep would have found it too.
                self.spin_stats.note(found && !attempt.is_out_of_time());
                Ended::Spin
            }
            Means::SetSpin(_) => return Ended::Spin,
        };
        if attempt.last == Yielded::ForLong {
            self.yield_stats.note_lost_core();
            self.spin_stats.note_lost_core();
        }
        ended
    }
}

/// Whether it makes sense to poll twice in a wait until then. On a clock that does not move no
/// other thread runs meanwhile, but in a checker.
fn may_yield(clock: &Clock, until: Option<Timestamp>) -> bool {
    let others_run = clock.is_real() || cfg!(shuttle);
    others_run && !clock.has_passed(until)
}

impl<'c> Idle<'c> {
    /// Whether the next poll may sleep.
    #[inline]
    pub(crate) fn may_sleep(&self) -> bool {
        matches!(self, Self::Sleeps)
    }

    /// Until when the next poll may sleep, in a wait until `until`.
    #[inline]
    pub(crate) fn deadline(&self, until: Option<Timestamp>) -> Option<Timestamp> {
        if self.may_sleep() {
            until
        } else {
            Some(Timestamp::PAST)
        }
    }

    /// A poll found something.
    #[inline]
    pub(crate) fn note_found(&self, policy: &IdlePolicy) -> Ended {
        match self {
            Self::Yields(attempt) => policy.note(attempt, true),
            Self::Sleeps | Self::Polls(_) => Ended::Nothing,
        }
    }

    /// A poll found nothing: yields before the next one, or it may sleep.
    pub(crate) fn note_nothing(&mut self, policy: &IdlePolicy, clock: &'c Clock) -> Ended {
        match self {
            Self::Sleeps => Ended::Nothing,
            Self::Polls(means) => {
                *self = Self::Yields(policy.attempt(*means, clock));
                Ended::Nothing
            }
            Self::Yields(attempt) => {
                if attempt.goes_on() {
                    return Ended::Nothing;
                }
                let ended = policy.note(attempt, false);
                *self = Self::Sleeps;
                ended
            }
        }
    }
}

impl Attempt<'_> {
    /// Yields again, unless it is over.
    fn goes_on(&mut self) -> bool {
        self.end = match self.end {
            End::After(0) => return false,
            End::After(_) if self.last == Yielded::ForLong => return false,
            End::After(left) => End::After(left - 1),
            End::At(_) if self.is_out_of_time() => return false,
            End::At(end) => End::At(end),
        };
        self.last = self.yielding.let_others_run();
        true
    }

    /// Whether its time was over after the last yield.
    fn is_out_of_time(&self) -> bool {
        matches!(self.end, End::At(end) if self.yielding.now() >= end)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
