//! The thread that opens the lead, and whether it only lacks a core.
//!
//! A lead that stays open is a sign that its opener sleeps in a handler. But it may as well be
//! ready to run, and wait for the core on which the checking thread runs just now: another program
//! had that core for a while, or the host of a virtual machine did, and then both were due. To take
//! the lead from it then is of little use, and often makes the pool believe that handlers block. So
//! the system is asked before that is done, once for each opening, and never on the way of an
//! event.

// Hints, which order nothing.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{lead::Lead, word::Snapshot};
use crate::sync::{this_thread, waits_for_this_core, Number};

/// No thread is known.
const NOBODY: Number = 0;

/// The thread that last took the lead, other than by taking its own opening back: the holder of the
/// lead opens it.
#[derive(Debug, Default)]
pub(super) struct Opener {
    thread: AtomicU32,
    /// The opening about which the system was asked last.
    asked_about: AtomicU64,
    /// The system is asked. Not beside a clock that stands still: there the next look comes when a
    /// test wants it.
    is_asked: bool,
}

impl<T> Lead<T> {
    /// The system is asked what an opener is up to that is late, if `on`.
    pub(crate) fn asking(mut self, on: bool) -> Self {
        self.opener.is_asked = on;
        self
    }
}

impl Opener {
    /// The calling thread has taken the lead.
    pub(super) fn note(&self) {
        self.note_thread(this_thread());
    }

    /// The thread that opens it now does not come back to it.
    pub(super) fn forget(&self) {
        self.note_thread(NOBODY);
    }

    pub(super) fn note_thread(&self, thread: Number) {
        if self.is_asked {
            self.thread.store(thread, Relaxed);
        }
    }

    /// Whether an opener that is late shall have the core of the calling thread first. The same
    /// opening is not excused again, by any thread: a handler that computes on the only core gives
    /// the lead away at the next check.
    #[cold]
    pub(super) fn is_excused(&self, opening: Snapshot) -> bool {
        let opening = opening.sequence();
        self.is_asked
            && self.asked_about.swap(opening, Relaxed) != opening
            && waits_for_this_core(self.thread.load(Relaxed))
    }
}
