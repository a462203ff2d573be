//! How long handlers take, by their type: a probability, not a mean.
//!
//! A mean is spoiled by rare sleepers. What counts is whether a call of this kind is *usually* long
//! enough to be worth a wake: `p` moves by 1/32 of the way to one after a long call, to zero after a
//! short one.

use std::{
    any::TypeId,
    collections::HashMap,
    // Estimates order nothing; a lost update is a slightly worse estimate.
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc,
    },
};

use crate::sync::{lock, Mutex};

/// A call longer than this, in nanoseconds, is worth waking somebody for: about what a wake costs.
const LONG: u64 = 15_000;

/// One, as a fixed-point number.
const ONE: u32 = 1 << 16;

/// By which part of the way the estimate moves.
const WEIGHT: u32 = 32;

/// What is known of one type of handler.
#[derive(Debug, Default)]
pub(super) struct Kind {
    /// The probability that a call is long.
    p: AtomicU32,
}

impl Kind {
    /// Whether more than half of the last calls were long.
    pub(super) fn is_long(&self) -> bool {
        self.p.load(Ordering::Relaxed) > ONE / 2
    }

    /// `took` in nanoseconds.
    pub(super) fn note(&self, took: u64) {
        let p = self.p.load(Ordering::Relaxed);
        let next = match took > LONG {
            true => p + (ONE - p) / WEIGHT,
            false => p - p / WEIGHT,
        };
        if next != p {
            self.p.store(next, Ordering::Relaxed);
        }
    }
}

/// The kinds of one registry.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<HashMap<TypeId, Arc<Kind>>>);

impl Kinds {
    /// The kind of handlers of type `H`.
    pub(super) fn of<H: 'static>(&self) -> Arc<Kind> {
        Arc::clone(lock(&self.0).entry(TypeId::of::<H>()).or_default())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A mean of costs would call this kind long: one call in a hundred sleeps for a second.
    #[test]
    fn rare_sleepers_do_not_make_a_kind_long() {
        let kind = Kind::default();
        for call in 0..1000 {
            let seconds = u64::from(call % 100 == 0);
            kind.note(seconds * 1_000_000_000);
            assert!(!kind.is_long());
        }
    }

    /// What was learned from one handle holds for the next one with the same type of handler, and for no other.
    #[test]
    fn types_are_told_apart() {
        let kinds = Kinds::default();
        (0..32).for_each(|_| kinds.of::<u8>().note(LONG * 2));
        assert!(kinds.of::<u8>().is_long());
        assert!(!kinds.of::<u16>().is_long());
    }

    /// As often long as not is not usually long: nobody is woken in doubt.
    #[test]
    fn in_doubt_a_kind_is_short() {
        let p = AtomicU32::new(ONE / 2);
        assert!(!Kind { p }.is_long());
    }

    /// A kind whose calls are all long is known after some thirty of them, and forgotten as fast.
    #[test]
    fn the_usual_case_decides() {
        let kind = Kind::default();
        (0..32).for_each(|_| kind.note(LONG * 2));
        assert!(kind.is_long());
        (0..32).for_each(|_| kind.note(LONG));
        assert!(!kind.is_long());
    }
}
