//! The return list: slots that need a visit, put back by threads that do not hold the lead.
//!
//! A stack without a lock, linked through the slots themselves. The head also says whether the
//! leader sleeps, so the question "must I wake it?" and the push are one step:
//!
//! ```text
//!  EMPTY  --> SLEEPS      [announce_sleep]   the leader is about to wait; refused with a slot
//!  EMPTY  --> slot        [push]             the leader takes it before it sleeps
//!  SLEEPS --> slot        [push]             the leader must be woken, by this one pusher
//!  SLEEPS --> EMPTY       [nudge]            the leader must be woken, for another reason
//!  any    --> EMPTY       [take_all]         the leader is awake and takes everything
//! ```
//!
//! Slots are only ever taken all at once, so the head cannot come back to an old value between a
//! look and a swap with the links changed underneath.

use crate::sync::atomic::{AtomicU64, Ordering};

const EMPTY: u64 = u64::MAX;
const SLEEPS: u64 = u64::MAX - 1;
const END: u32 = u32::MAX;

/// The place in a slot that links it to the next one in the list.
#[derive(Debug)]
pub(super) struct Link(crate::sync::atomic::AtomicU32);

impl Link {
    pub(super) fn new() -> Self {
        Self(crate::sync::atomic::AtomicU32::new(END))
    }
}

/// What the pusher must do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The leader sleeps: wake it.
    WakeLeader,
    /// The leader is awake, or another push has woken it, or there is none: it will look.
    Quiet,
}

/// Whether the leader may sleep.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Nothing is here; the next push will wake.
    Announced,
    /// Something is here: look first.
    NotYet,
}

#[derive(Debug)]
pub(super) struct ReturnList {
    /// [`EMPTY`], [`SLEEPS`], or the slot that came last.
    head: AtomicU64,
}

impl ReturnList {
    pub(super) fn new() -> Self {
        Self {
            head: AtomicU64::new(EMPTY),
        }
    }

    /// Puts slot `index` on the list; `link` is that slot's own. The caller made it QUEUED, so it
    /// is in no list.
    pub(super) fn push(&self, index: u32, link: &Link) -> Pushed {
        let mut seen = self.head.load(Ordering::Relaxed);
        loop {
            let next = if seen >= SLEEPS { END } else { seen as u32 };
            link.0.store(next, Ordering::Relaxed);
            // Release: the thread that takes the list sees the link. It pairs with the swap in
            // `take_all`.
            match self.head.compare_exchange_weak(
                seen,
                u64::from(index),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(SLEEPS) => return Pushed::WakeLeader,
                Ok(_) => return Pushed::Quiet,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Ends an announced sleep without a slot. Where there is none the word is written as it was:
    /// an announcement that comes later sees what was done before this.
    pub(super) fn nudge(&self) -> Pushed {
        let mut seen = self.head.load(Ordering::Relaxed);
        loop {
            let next = if seen == SLEEPS { EMPTY } else { seen };
            match self
                .head
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(SLEEPS) => return Pushed::WakeLeader,
                Ok(_) => return Pushed::Quiet,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Says that the leader is about to sleep, unless something was pushed.
    pub(super) fn announce_sleep(&self) -> Sleep {
        match self
            .head
            .compare_exchange(EMPTY, SLEEPS, Ordering::AcqRel, Ordering::Relaxed)
        {
            Ok(_) => Sleep::Announced,
            Err(_) => Sleep::NotYet,
        }
    }

    /// Takes everything, oldest first; also ends an announced sleep. `link` finds a slot's link.
    pub(super) fn take_all<'s>(&self, link: impl Fn(u32) -> &'s Link, mut give: impl FnMut(u32)) {
        if self.head.load(Ordering::Relaxed) == EMPTY {
            return;
        }
        let head = self.head.swap(EMPTY, Ordering::AcqRel);
        if head >= SLEEPS {
            return;
        }
        let mut at = reversed(head as u32, &link);
        while at != END {
            let next = link(at).0.load(Ordering::Relaxed);
            give(at);
            at = next;
        }
    }
}

/// Turns a chain around, so that it begins with the slot that came first.
fn reversed<'s>(head: u32, link: impl Fn(u32) -> &'s Link) -> u32 {
    let (mut turned, mut at) = (END, head);
    while at != END {
        let next = link(at).0.load(Ordering::Relaxed);
        link(at).0.store(turned, Ordering::Relaxed);
        (turned, at) = (at, next);
    }
    turned
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A wake is a system call. The first push to a leader that sleeps makes one; no other does.
    /// And what was pushed first comes first.
    #[test]
    fn one_push_wakes() {
        let (list, links) = (ReturnList::new(), [(); 3].map(|()| Link::new()));
        let push = |index: u32| list.push(index, &links[index as usize]);
        let taken = || {
            let mut taken = Vec::new();
            list.take_all(|index| &links[index as usize], |index| taken.push(index));
            taken
        };
        assert_eq!(push(0), Pushed::Quiet);
        assert_eq!(list.announce_sleep(), Sleep::NotYet);
        assert_eq!(taken(), [0]);
        assert_eq!(list.announce_sleep(), Sleep::Announced);
        assert_eq!(push(2), Pushed::WakeLeader);
        assert_eq!(push(1), Pushed::Quiet);
        assert_eq!(taken(), [2, 1]);
        assert_eq!(push(0), Pushed::Quiet);
        assert_eq!(list.nudge(), Pushed::Quiet);
        assert_eq!(taken(), [0]);
        assert_eq!(list.announce_sleep(), Sleep::Announced);
        assert_eq!(list.nudge(), Pushed::WakeLeader);
        assert_eq!(push(0), Pushed::Quiet);
    }
}
