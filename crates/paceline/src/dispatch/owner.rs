//! The owner word: which thread may touch a handle's handler and source. One thread at a time (H1).
//!
//! ```text
//!  IDLE   --> QUEUED   [Owner::signal]     there is a reason to visit; the caller enlists the slot
//!  QUEUED --> BUSY     [Owner::claim]      taken off a list: one thread owns it
//!  BUSY   --> AGAIN    [Owner::signal]     a reason came while busy: the owner visits again
//!  BUSY   --> IDLE     [Owner::rest]       nothing to do
//!  AGAIN  --> BUSY     [Owner::rest]       refused: visit again first
//!  BUSY, AGAIN --> QUEUED  [Owner::requeue]  more to do after the others; the owner enlists it
//!  IDLE   --> BUSY     [Owner::try_own]    taken directly, to be closed (BUSY: AGAIN)
//!  IDLE, QUEUED --> BUSY   [Owner::sweep]  the end of the pool: taken from wherever it is
//! ```
//!
//! A slot is in a list if and only if its owner word says QUEUED, so it is never in two. (But for a
//! sweep: what it takes stays in its list, is passed over there, and is never used again.) A vacant
//! slot is BUSY: it belongs to the free list, and a late signal does no harm.

use crate::sync::atomic::{AtomicU32, Ordering};

const IDLE: u32 = 0;
const QUEUED: u32 = 1;
const BUSY: u32 = 2;
const AGAIN: u32 = 3;

#[derive(Debug)]
pub(super) struct Owner(AtomicU32);

/// What a signal led to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// It was idle: the caller must put the slot into a list, once.
    Enlist,
    /// Another visit follows: by its owner, or by the thread that takes it off its list.
    Noted,
}

/// Whether an owner may let go.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The handle is idle.
    Idle,
    /// A signal came: still owned, look again.
    LookAgain,
}

/// What an attempt to own a handle out of turn found.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// This thread owns it.
    Owned,
    /// Another thread has it or will have it, and will visit it again.
    Noted,
}

impl Owner {
    /// Owned, as every slot is at first: by the free list.
    pub(super) fn busy() -> Self {
        Self(AtomicU32::new(BUSY))
    }

    /// Whether no thread has it, and none is to have it. The answer may be stale at once.
    pub(super) fn is_idle(&self) -> bool {
        // Acquire: a thread that sees that it rests sees when it was last used.
        self.0.load(Ordering::Acquire) == IDLE
    }

    /// Signals that there is a reason to visit the handle. The reason is written down before, in
    /// the readiness word: Release here, and Acquire in `rest` and `claim`, make the owner see it.
    pub(super) fn signal(&self) -> Signal {
        match self.replace(|seen| match seen {
            IDLE => QUEUED,
            BUSY => AGAIN,
            other => other,
        }) {
            IDLE => Signal::Enlist,
            _ => Signal::Noted,
        }
    }

    /// Owns a slot that was taken off a list. `false`: a sweep owned it meanwhile.
    pub(super) fn claim(&self) -> bool {
        self.0
            .compare_exchange(QUEUED, BUSY, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Owns an idle handle directly; leaves a signal with a busy one.
    pub(super) fn try_own(&self) -> Attempt {
        match self.replace(|seen| match seen {
            IDLE => BUSY,
            BUSY => AGAIN,
            other => other,
        }) {
            IDLE => Attempt::Owned,
            _ => Attempt::Noted,
        }
    }

    /// Owns an idle or a listed handle; leaves a signal with a busy one. Only while nothing can be
    /// registered any more: the slot stays in its list and must never be used again.
    pub(super) fn sweep(&self) -> Attempt {
        match self.replace(|seen| match seen {
            IDLE | QUEUED => BUSY,
            _ => AGAIN,
        }) {
            IDLE | QUEUED => Attempt::Owned,
            _ => Attempt::Noted,
        }
    }

    /// Lets go, unless a signal came since the owner last looked.
    pub(super) fn rest(&self) -> Rest {
        match self.replace(|seen| if seen == BUSY { IDLE } else { BUSY }) {
            BUSY => Rest::Idle,
            _ => Rest::LookAgain,
        }
    }

    /// Lets go and asks for another visit; the caller enlists the slot.
    pub(super) fn requeue(&self) {
        self.0.swap(QUEUED, Ordering::AcqRel);
    }

    /// Changes the word as one step, also where it stays the same: the place in its order is what
    /// makes the other side see what was written before. Returns what it was.
    fn replace(&self, step: impl Fn(u32) -> u32) -> u32 {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            match self.0.compare_exchange_weak(
                seen,
                step(seen),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(was) => return was,
                Err(newer) => seen = newer,
            }
        }
    }
}
