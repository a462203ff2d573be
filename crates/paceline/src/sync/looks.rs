//! Whether it pays to let others run and look once more, before a sleep.
//!
//! A sleep and its wake cost several microseconds of processor time, a yield and a poll less than
//! one. Where the awaited event is near, because other threads have only to run for it, the poll
//! finds it. Where it is not, polls are a waste, and are left out: after the first that found
//! nothing once, then three times, seven times, and so on.
//!
//! ```text
//!   found    found    vain   -    vain   -  -  -    vain   -  -  -  -  -  -  -    found    found
//! ```
//!
//! A thread that yields to one that computes loses its core for milliseconds, and of course finds
//! something then. That is no success: a sleeping thread would have been woken, on another core if
//! one was idle. It costs as much as a thousand good polls save; so after a long yield they are
//! left out a thousand times.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::Yielded;

/// So often in a row looks are left out at most, if they find nothing.
const MOST: u32 = 255;
/// So often they are left out after one that has lost its core.
pub(crate) const AFTER_LOST_CORE: u32 = 1023;

/// What a thread that is about to sleep shall do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Let others run, poll, and report the outcome.
    Look,
    /// Leave that out this time.
    LeaveOut,
}

/// How often something is still left out.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU32);

impl Pause {
    /// One is about to sleep.
    pub(crate) fn take_turn(&self) -> Turn {
        if self.0.load(Relaxed) == 0 {
            return Turn::Look;
        }
        let one_less = |left: u32| left.checked_sub(1);
        match self.0.fetch_update(Relaxed, Relaxed, one_less) {
            Ok(_) => Turn::LeaveOut,
            Err(_) => Turn::Look,
        }
    }

    /// At least so often.
    pub(crate) fn leave_out(&self, times: u32) {
        self.0.fetch_max(times, Relaxed);
    }
}

/// What has become of the looks so far. It is an estimate, and orders nothing: threads that share
/// it may overwrite each other's news.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    left_out: Pause,
    /// How often they were left out after the last one that found nothing.
    pause: AtomicU32,
}

impl Looks {
    /// One is about to sleep.
    pub(crate) fn take_turn(&self) -> Turn {
        self.left_out.take_turn()
    }

    /// The look has found something.
    pub(crate) fn note_found(&self, yielded: Yielded) {
        match yielded {
            Yielded::ForLong => self.note_lost_core(),
            Yielded::Shortly if self.pause.load(Relaxed) == 0 => {}
            Yielded::Shortly => self.pause.store(0, Relaxed),
        }
    }

    /// It has not.
    pub(crate) fn note_vain(&self, yielded: Yielded) {
        let pause = (2 * self.pause.load(Relaxed) + 1).min(MOST);
        self.pause.store(pause, Relaxed);
        match yielded {
            Yielded::Shortly => self.left_out.leave_out(pause),
            Yielded::ForLong => self.note_lost_core(),
        }
    }

    /// Another thread computes here.
    pub(crate) fn note_lost_core(&self) {
        self.left_out.leave_out(AFTER_LOST_CORE);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{
        Yielded::{ForLong, Shortly},
        *,
    };

    /// How many are left out until the next one looks.
    fn left_out(looks: &Looks) -> u32 {
        let mut count = 0;
        while looks.take_turn() == Turn::LeaveOut {
            count += 1;
        }
        count
    }

    #[test]
    fn looks_in_vain_are_left_out_more_and_more() {
        let looks = Looks::default();
        let pauses = [(); 10].map(|()| {
            let pause = left_out(&looks);
            looks.note_vain(Shortly);
            pause
        });
        assert_eq!(pauses, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
    }

    #[test]
    fn one_that_finds_something_makes_up_for_all() {
        let looks = Looks::default();
        (0..5).for_each(|_| looks.note_vain(Shortly));
        assert_eq!(left_out(&looks), 31);
        looks.note_found(Shortly);
        assert_eq!(left_out(&looks), 0);
        looks.note_vain(Shortly);
        assert_eq!(left_out(&looks), 1);
    }

    /// Whatever was found; and no other thread's small pause makes up for it.
    #[test]
    fn a_lost_core_is_remembered() {
        for note in [Looks::note_found, Looks::note_vain] {
            let looks = Looks::default();
            note(&looks, ForLong);
            looks.note_vain(Shortly);
            looks.note_found(Shortly);
            assert_eq!(left_out(&looks), AFTER_LOST_CORE);
        }
    }
}
