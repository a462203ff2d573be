//! Yielding, with a check of the clock: a thread that yields to one that computes has lost its
//! core.

use std::time::Duration;

use crate::sync::{thread, Clock, Timestamp};

/// A yield longer than this means that a CPU-bound thread displaced this one. (Threads for which it
/// pays to yield run for some hundred microseconds before they sleep themselves; a CPU-bound one
/// has the core for three milliseconds or four.)
const LOST_AFTER: Duration = Duration::from_millis(1);

/// What a yield was like.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yielded {
    /// Others ran, if they wanted to.
    Shortly,
    /// Another thread had the core for long.
    ForLong,
}

/// A thread that lets others run, once or more, and has an eye on the clock.
#[derive(Clone, Copy)]
pub(crate) struct Yielding<'c> {
    clock: &'c Clock,
    now: Timestamp,
}

impl<'c> Yielding<'c> {
    pub(crate) fn begin(clock: &'c Clock) -> Self {
        let now = clock.now();
        Self { clock, now }
    }

    /// When it began, or when others had last run.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Lets others run.
    pub(crate) fn let_others_run(&mut self) -> Yielded {
        let lost = self.now.after(LOST_AFTER);
        thread::yield_now();
        self.now = self.clock.now();
        if self.now < lost {
            Yielded::Shortly
        } else {
            Yielded::ForLong
        }
    }
}
