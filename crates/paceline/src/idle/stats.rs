//! Whether it has paid lately to yield and poll once more, before a sleep; or to spin.
//!
//! **Yields** that find nothing are left out more and more: after the first once, then three times,
//! seven times, and so on. One that finds something makes up for all.
//!
//! ```text
//!   found    found    none   -    none   -  -  -    none   -  -  -  -  -  -  -    found    found
//! ```
//!
//! **Spins** have to pay nearly always, because where requests arrive at random, some arrive within
//! one and most do not: 28 of the last 32 must have found something. Until they have, 63 are left
//! out after each one that found nothing.
//!
//! A **lost core**: a thread that yields to one that computes loses its core for milliseconds, and
//! of course finds something then. That is no success: a sleeping thread would have been woken, on
//! another core if one was idle. It costs as much as a thousand good polls save; so after a long
//! yield both are left out a thousand times.
//!
//! All of it is an estimate, and orders nothing: threads that share it may overwrite each other's
//! results.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::Yielded;

/// Yields that find nothing are left out so often in a row at most.
const MOST_LEFT_OUT: u32 = 255;
/// So many of the last 32 spins must have found something.
const ENOUGH: u32 = 28;
/// So many spins are left out after one that found nothing, until they have.
const SPINS_LEFT_OUT: u32 = 63;
/// So many attempts are left out after one that has lost its core.
const AFTER_LOST_CORE: u32 = 1023;

/// What a thread that is about to sleep shall do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Make an attempt, and note the outcome.
    Try,
    /// Leave that out this time.
    LeaveOut,
}

/// How often something is still left out.
#[derive(Debug, Default)]
struct Pause(AtomicU32);

impl Pause {
    /// One is about to sleep.
    fn take_turn(&self) -> Turn {
        if self.0.load(Relaxed) == 0 {
            return Turn::Try;
        }
        let one_less = |left: u32| left.checked_sub(1);
        match self.0.fetch_update(Relaxed, Relaxed, one_less) {
            Ok(_) => Turn::LeaveOut,
            Err(_) => Turn::Try,
        }
    }

    /// At least so often.
    fn leave_out(&self, times: u32) {
        self.0.fetch_max(times, Relaxed);
    }
}

/// What has become of the yields so far.
#[derive(Debug, Default)]
pub(super) struct YieldStats {
    left_out: Pause,
    /// How often they were left out after the last one that found nothing.
    pause: AtomicU32,
}

impl YieldStats {
    /// A thread is about to sleep.
    pub(super) fn take_turn(&self) -> Turn {
        self.left_out.take_turn()
    }

    /// An attempt is over, whose last yield was like that.
    pub(super) fn note(&self, found: bool, last: Yielded) {
        if last == Yielded::ForLong {
            self.note_lost_core();
        }
        if !found {
            let pause = (2 * self.pause.load(Relaxed) + 1).min(MOST_LEFT_OUT);
            self.pause.store(pause, Relaxed);
            self.left_out.leave_out(pause);
        } else if last == Yielded::Shortly && self.pause.load(Relaxed) != 0 {
            self.pause.store(0, Relaxed);
        }
    }

    /// Another thread computes here.
    pub(super) fn note_lost_core(&self) {
        self.left_out.leave_out(AFTER_LOST_CORE);
    }
}

/// What has become of the spins so far.
#[derive(Debug, Default)]
pub(super) struct SpinStats {
    left_out: Pause,
    /// The last 32, the last in the lowest bit: whether they have found something.
    last: AtomicU32,
}

impl SpinStats {
    /// A thread is about to sleep.
    pub(super) fn take_turn(&self) -> Turn {
        self.left_out.take_turn()
    }

    /// A spin is over.
    pub(super) fn note(&self, found: bool) {
        let last = self.last.load(Relaxed) << 1 | u32::from(found);
        self.last.store(last, Relaxed);
        if !found && last.count_ones() < ENOUGH {
            self.left_out.leave_out(SPINS_LEFT_OUT);
        }
    }

    /// Another thread computes here: whatever was found, a sleep would have been better.
    pub(super) fn note_lost_core(&self) {
        self.last.store(0, Relaxed);
        self.left_out.leave_out(AFTER_LOST_CORE);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{
        Yielded::{ForLong, Shortly},
        *,
    };

    /// How many are left out until the next attempt.
    fn left_out(take_turn: impl Fn() -> Turn) -> u32 {
        let mut count = 0;
        while take_turn() == Turn::LeaveOut {
            count += 1;
        }
        count
    }

    fn yields_left_out(stats: &YieldStats) -> u32 {
        left_out(|| stats.take_turn())
    }

    fn spins_left_out(stats: &SpinStats) -> u32 {
        left_out(|| stats.take_turn())
    }

    /// After so many that found something.
    fn found(times: u32) -> SpinStats {
        let stats = SpinStats::default();
        (0..times).for_each(|_| stats.note(true));
        stats
    }

    #[test]
    fn yields_without_a_find_are_left_out_more_and_more() {
        let stats = YieldStats::default();
        let pauses = [(); 10].map(|()| {
            let pause = yields_left_out(&stats);
            stats.note(false, Shortly);
            pause
        });
        assert_eq!(pauses, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
    }

    #[test]
    fn one_that_finds_something_makes_up_for_all() {
        let stats = YieldStats::default();
        (0..5).for_each(|_| stats.note(false, Shortly));
        assert_eq!(yields_left_out(&stats), 31);
        stats.note(true, Shortly);
        assert_eq!(yields_left_out(&stats), 0);
        stats.note(false, Shortly);
        assert_eq!(yields_left_out(&stats), 1);
    }

    /// Whatever was found; and no other thread's small pause makes up for it.
    #[test]
    fn a_lost_core_is_remembered() {
        for has_found in [true, false] {
            let stats = YieldStats::default();
            stats.note(has_found, ForLong);
            stats.note(false, Shortly);
            stats.note(true, Shortly);
            assert_eq!(yields_left_out(&stats), AFTER_LOST_CORE);
        }
    }

    #[test]
    fn after_a_spin_without_a_find_many_are_left_out() {
        let stats = SpinStats::default();
        assert_eq!(spins_left_out(&stats), 0);
        for _ in 0..3 {
            stats.note(false);
            assert_eq!(spins_left_out(&stats), SPINS_LEFT_OUT);
        }
    }

    /// A spin that found something is followed by another, but that alone forgives nothing.
    #[test]
    fn as_often_as_not_is_not_enough() {
        let stats = SpinStats::default();
        for _ in 0..100 {
            stats.note(true);
            assert_eq!(spins_left_out(&stats), 0);
            stats.note(false);
            assert_eq!(spins_left_out(&stats), SPINS_LEFT_OUT);
        }
    }

    #[test]
    fn one_without_a_find_is_forgiven_among_many() {
        let pauses = [27, 28, 100].map(|times| {
            let stats = found(times);
            stats.note(false);
            spins_left_out(&stats)
        });
        assert_eq!(pauses, [SPINS_LEFT_OUT, 0, 0]);
    }

    /// Five in a row are too many, however long it went well.
    #[test]
    fn it_soon_notices_that_it_pays_no_more() {
        let stats = found(1000);
        let pauses = [(); 6].map(|()| {
            stats.note(false);
            spins_left_out(&stats)
        });
        assert_eq!(pauses, [0, 0, 0, 0, SPINS_LEFT_OUT, SPINS_LEFT_OUT]);
    }

    /// However often something was found before.
    #[test]
    fn a_lost_core_is_remembered_by_spins() {
        let stats = found(1000);
        stats.note_lost_core();
        stats.note(false);
        assert_eq!(spins_left_out(&stats), AFTER_LOST_CORE);
        stats.note(false);
        assert_eq!(spins_left_out(&stats), SPINS_LEFT_OUT);
    }
}
