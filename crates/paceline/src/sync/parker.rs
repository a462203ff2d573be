//! A word that threads sleep on until there is a message.
//!
//! The word outlives the sleep: a message that is posted before a thread sleeps is found by the
//! sleep, so no wake can be lost. `std::thread::park` is not used on purpose: its token belongs to
//! the whole thread, so a late wake of ours would leak into the next handler's own `park`.
//!
//! What the sleeper lies on is a [`Futex`]: the kernel's futex on Linux; elsewhere, and under loom
//! and shuttle, a monitor that does the same job.

use std::time::Duration;

use super::{
    atomic::{AtomicU32, Ordering},
    futex::Futex,
};

/// The lowest bits of the word are the message; zero is none.
const MESSAGE: u32 = ONE_NUDGE - 1;

/// The others count nudges by a clock, which make every sleeper look at the time.
const ONE_NUDGE: u32 = 1 << 24;

/// A message, and the way to wake the thread that sleeps until there is one.
#[derive(Debug)]
pub(crate) struct Parker {
    /// Message and nudges. Changed by read-modify-write only: loom does not order a plain store
    /// among those.
    word: AtomicU32,
    /// Where threads sleep.
    futex: Futex,
}

/// What a parker's word was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u32);

impl Parker {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            futex: Futex::new(),
        }
    }

    /// Leaves a message (not zero) in place of the one before. The sleeper is woken by
    /// [`wake`](Self::wake), which may come later and from outside of a lock.
    pub(crate) fn post(&self, message: u32) {
        debug_assert!(message != 0);
        self.change(|_| message);
    }

    /// Takes the message; zero if there is none. What its poster did before is visible.
    pub(crate) fn take(&self) -> u32 {
        self.change(|_| 0)
    }

    /// Whether there is a message.
    pub(super) fn has_message(&self) -> bool {
        self.word.load(Ordering::Acquire) & MESSAGE != 0
    }

    /// Makes another message of the one that is there, as one step. Returns what it was.
    pub(crate) fn change(&self, step: impl Fn(u32) -> u32) -> u32 {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let message = step(seen & MESSAGE);
            debug_assert!(message <= MESSAGE);
            let next = seen & !MESSAGE | message;
            match self
                .word
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return seen & MESSAGE,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Wakes a sleeper, if there is one.
    pub(crate) fn wake(&self) {
        self.futex.wake_one(&self.word);
    }

    /// Wakes every thread that sleeps here.
    pub(crate) fn wake_all(&self) {
        self.futex.wake_all(&self.word);
    }

    /// Sleeps until there is a message or `timeout` passed. May return early.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.sleep_since(self.look(), timeout);
    }

    /// What a sleep must begin with if something else is looked at before it.
    pub(super) fn look(&self) -> Seen {
        Seen(self.word.load(Ordering::Acquire))
    }

    /// As [`sleep`](Self::sleep); also ended by anything that happened since `seen`.
    pub(super) fn sleep_since(&self, seen: Seen, timeout: Option<Duration>) {
        if seen.0 & MESSAGE == 0 {
            self.futex.sleep_while(&self.word, seen.0, timeout);
        }
    }

    /// Makes every sleeper return without a message, so that it looks at its clock.
    pub(crate) fn nudge(&self) {
        self.word.fetch_add(ONE_NUDGE, Ordering::AcqRel);
        self.wake_all();
    }
}
