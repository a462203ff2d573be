//! A word that one thread sleeps on while it is zero.
//!
//! The word outlives the sleep: a message that is posted before the thread sleeps is found by the
//! sleep, so no wake can be lost. `std::thread::park` is not used on purpose: its token belongs to
//! the whole thread, so a late wake of ours would leak into the next handler's own `park`.
//!
//! What the sleeper lies on is a [`Bed`]: the kernel's futex on Linux; elsewhere, and under loom and
//! shuttle, a monitor that does the same job.

use std::time::Duration;

use super::{
    atomic::{AtomicU32, Ordering},
    bed::Bed,
};

/// Set by a clock to make its sleeper look at the time; no message.
const NUDGE: u32 = 1 << 31;

/// One sleeper, its message, and the way to wake it.
#[derive(Debug)]
pub(crate) struct Parker {
    /// Zero: nothing to say. Otherwise a message, perhaps with [`NUDGE`]. Changed by
    /// read-modify-write only: loom does not order a plain store among those.
    word: AtomicU32,
    /// Where its thread sleeps.
    bed: Bed,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            bed: Bed::new(),
        }
    }

    /// The message, or zero. Pairs with [`post`](Self::post): what the poster did before is visible.
    pub(crate) fn message(&self) -> u32 {
        self.word.load(Ordering::Acquire) & !NUDGE
    }

    /// Forgets message and nudge. Only the sleeper calls this, while nobody can be posting.
    pub(crate) fn clear(&self) {
        self.word.swap(0, Ordering::Relaxed);
    }

    /// Leaves a message (not zero). The sleeper is woken by [`wake`](Self::wake), which may come
    /// later and from outside of a lock.
    pub(crate) fn post(&self, message: u32) {
        debug_assert!(message != 0 && message & NUDGE == 0);
        self.word.swap(message, Ordering::Release);
    }

    /// Wakes the sleeper, if it sleeps.
    pub(crate) fn wake(&self) {
        self.bed.wake(&self.word);
    }

    /// Makes the sleeper return without a message, so that it looks at its clock.
    pub(crate) fn nudge(&self) {
        self.word.fetch_or(NUDGE, Ordering::Release);
        self.wake();
    }

    /// Sleeps until there is a message, a nudge, or `timeout` passed. May return early.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.bed.sleep_while_zero(&self.word, timeout);
        // A nudge is used up by the sleep that it ended; a message stays.
        self.word.fetch_and(!NUDGE, Ordering::Acquire);
    }
}
