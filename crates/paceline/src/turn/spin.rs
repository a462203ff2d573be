//! A leader that looks again and again for a while before it sleeps, and whether that pays.
//!
//! A woken leader has its answer some thirty microseconds later than one that polls all the time:
//! where one request follows the other, that is most of what a request takes. But a spin that finds
//! nothing is processor time for nothing; and where requests arrive at random, some arrive within
//! it, and most do not. So it has to pay nearly always: 28 of the last 32 spins must have found
//! something. Until they have, after each one that found nothing 63 are left out.
//!
//! ```text
//!   vain   - - - 63 times - - -   found  found  found  vain   - - - 63 times - - -   found  found ... found  vain  found
//!                                                                                    28 of the last 32: forgiven ^
//! ```

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use crate::sync::{Clock, Pause, Timestamp, Turn, Yielded, Yielding, AFTER_LOST_CORE};

/// How long a spin is by the pool's own decision: about as long as a wake-up takes, so it costs at
/// most twice what is best.
pub(super) const UNTOLD: Duration = Duration::from_micros(30);

/// So many of the last 32 must have found something.
const ENOUGH: u32 = 28;
/// This many are left out after one that found nothing, until they have.
const PAUSE: u32 = 63;

/// Whether a leader that finds nothing looks again and again before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaderSpin {
    /// Where that pays.
    FindsOut,
    Never,
    /// For so long, each time.
    Told(Duration),
}

impl LeaderSpin {
    /// As the builder says.
    pub(crate) fn told(span: Option<Duration>) -> Self {
        match span {
            None => Self::FindsOut,
            Some(Duration::ZERO) => Self::Never,
            Some(span) => Self::Told(span),
        }
    }
}

/// A spin by the pool's own decision: other threads run before each poll.
#[derive(Clone, Copy)]
pub(super) struct Spin<'c> {
    yielding: Yielding<'c>,
    /// What the last yield was like.
    yielded: Yielded,
    end: Timestamp,
}

impl<'c> Spin<'c> {
    pub(super) fn begin(clock: &'c Clock) -> Self {
        let mut yielding = Yielding::begin(clock);
        let end = yielding.now().after(UNTOLD);
        Self {
            yielded: yielding.let_others_run(),
            yielding,
            end,
        }
    }

    /// Whether its time was over when others had run: then the look after that is the last.
    pub(super) fn is_over(&self) -> bool {
        self.yielding.now() >= self.end
    }

    /// Lets others run again.
    pub(super) fn go_on(mut self) -> Self {
        self.yielded = self.yielding.let_others_run();
        self
    }

    pub(super) fn yielded(&self) -> Yielded {
        self.yielded
    }
}

/// What has become of the spins so far. Only the leader has to do with it, one after the other: the
/// lead hands it on.
#[derive(Debug, Default)]
pub(crate) struct Spins {
    left_out: Pause,
    /// The last 32, the last in the lowest bit: whether they have found something.
    last: AtomicU32,
}

impl Spins {
    /// One is about to sleep.
    pub(super) fn take_turn(&self) -> Turn {
        self.left_out.take_turn()
    }

    /// This one has found something. (If its time was over by then, a sleep would have found it
    /// too.)
    pub(super) fn note_found(&self, spin: &Spin<'_>) {
        self.note(!spin.is_over());
    }

    /// This one has not.
    pub(super) fn note_vain(&self) {
        self.note(false);
    }

    fn note(&self, found: bool) {
        let last = self.last.load(Relaxed) << 1 | u32::from(found);
        self.last.store(last, Relaxed);
        if !found && last.count_ones() < ENOUGH {
            self.left_out.leave_out(PAUSE);
        }
    }

    /// Another thread computes here: whatever was found, a sleep would have been better.
    pub(super) fn note_lost_core(&self) {
        self.last.store(0, Relaxed);
        self.left_out.leave_out(AFTER_LOST_CORE);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<'c> Spin<'c> {
    /// One that ends so much later than its last yield, which was like that.
    pub(super) fn with(clock: &'c Clock, yielded: Yielded, left: Duration) -> Self {
        let mut spin = Self::begin(clock);
        spin.yielded = yielded;
        spin.end = spin.yielding.now().after(left);
        spin
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// How many are left out until the next one.
    fn left_out(spins: &Spins) -> u32 {
        let mut count = 0;
        while spins.take_turn() == Turn::LeaveOut {
            count += 1;
        }
        count
    }

    /// After so many that found something.
    fn found(times: u32) -> Spins {
        let spins = Spins::default();
        (0..times).for_each(|_| spins.note(true));
        spins
    }

    #[test]
    fn after_one_in_vain_many_are_left_out() {
        let spins = Spins::default();
        assert_eq!(left_out(&spins), 0);
        for _ in 0..3 {
            spins.note(false);
            assert_eq!(left_out(&spins), PAUSE);
        }
    }

    /// A spin that found something is followed by another, but that alone forgives nothing.
    #[test]
    fn as_often_as_not_is_not_enough() {
        let spins = Spins::default();
        for _ in 0..100 {
            spins.note(true);
            assert_eq!(left_out(&spins), 0);
            spins.note(false);
            assert_eq!(left_out(&spins), PAUSE);
        }
    }

    #[test]
    fn one_in_vain_is_forgiven_among_many() {
        let pauses = [27, 28, 100].map(|times| {
            let spins = found(times);
            spins.note(false);
            left_out(&spins)
        });
        assert_eq!(pauses, [PAUSE, 0, 0]);
    }

    /// Five in a row are too many, however long it went well.
    #[test]
    fn it_soon_notices_that_it_pays_no_more() {
        let spins = found(1000);
        let pauses = [(); 6].map(|()| {
            spins.note(false);
            left_out(&spins)
        });
        assert_eq!(pauses, [0, 0, 0, 0, PAUSE, PAUSE]);
    }

    /// However often something was found before.
    #[test]
    fn a_lost_core_is_remembered() {
        let spins = found(1000);
        spins.note_lost_core();
        spins.note(false);
        assert_eq!(left_out(&spins), AFTER_LOST_CORE);
        spins.note(false);
        assert_eq!(left_out(&spins), PAUSE);
    }

    /// What is found later, because others ran for longer, shows nothing.
    #[test]
    fn what_is_found_when_time_is_over_does_not_count() {
        let clock = Clock::monotonic();
        for (left, pause) in [(UNTOLD, 0), (Duration::ZERO, PAUSE)] {
            let spins = found(27);
            spins.note_found(&Spin::with(&clock, Yielded::Shortly, left));
            spins.note_vain();
            assert_eq!(left_out(&spins), pause);
        }
    }

    /// So long it lasts, and not longer; others run again and again.
    #[test]
    fn a_spin_ends_when_its_time_is_over() {
        let clock = Clock::monotonic();
        let before = clock.now();
        let mut spin = Spin::begin(&clock);
        assert!(spin.end >= before.after(UNTOLD));
        while !spin.is_over() {
            spin = spin.go_on();
        }
        assert!(clock.now() >= before.after(UNTOLD));
    }
}
