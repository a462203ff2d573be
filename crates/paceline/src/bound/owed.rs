//! Which ids of a slot may not be used, because their replies may still come.
//!
//! A slot can be taken from a call that was forgotten and whose reply is owed ([`Owed::reclaim`]).
//! The generation of that call stays here until its reply comes ([`Owed::settle`]) or the
//! connection is replaced ([`Owed::begin_anew`]). A new call in the slot gets a generation that is
//! not here. If there is none the slot is **parked**: it is in no list, and the next reply that is
//! settled gives it back.
//!
//! Few slots ever have such a reply, so the usual question is one load of `any`.

use super::word::{CallWord, Snapshot};
use crate::sync::{
    atomic::{AtomicBool, Ordering},
    lock, Mutex,
};

/// A slot notes at most so many spans of generations, which is exact for up to eight bits. Beyond
/// that the two spans with the smallest gap between them become one, and the generations of the gap
/// count as owed too.
const MOST_SPANS: usize = 128;

/// The generations of one slot whose replies may still come.
#[derive(Default)]
pub(super) struct Owed {
    /// Whether `set` may have a generation. It changes under the lock of `set`.
    any: AtomicBool,
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    /// Sorted, and between any two there is a gap.
    spans: Vec<Span>,
    is_parked: bool,
}

/// From the first generation to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    last: u32,
}

/// What a reply was that no current call waits for.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It was owed to a forgotten call, whose id may be used again.
    Late,
    /// The same, and the slot was parked: the caller must give the slot back.
    LateInParked,
    /// It was not owed.
    NotOwed,
}

impl Owed {
    /// The generation for the call after `last` in a vacant slot. `None`: all others are owed, and
    /// the slot is parked.
    pub(super) fn next_or_park(&self, last: u32, mask: u32) -> Option<u32> {
        if self.is_empty() {
            return Some(last.wrapping_add(1) & mask);
        }
        let mut set = lock(&self.set);
        let next = set.next(last, mask);
        set.is_parked = next.is_none();
        next
    }

    /// Takes the slot of `word` from a forgotten call: the generation of the new one. `answered`:
    /// only if nothing is owed to the forgotten call.
    pub(super) fn reclaim(&self, word: &CallWord, answered: bool, mask: u32) -> Option<u32> {
        if !word.look().is_forgotten(answered) {
            return None;
        }
        let mut set = lock(&self.set);
        // Before the word changes: a leader that finds the new generation in the word asks here,
        // and waits for the lock.
        self.any.swap(true, Ordering::AcqRel);
        let next = |seen: Snapshot| {
            let may_go = seen.is_forgotten(answered);
            may_go.then(|| set.next(seen.generation(), mask)).flatten()
        };
        let reclaimed = word.reclaim(next);
        if let Some((before, _)) = reclaimed {
            if before.is_owed() {
                set.insert(before.generation());
            }
        }
        self.note(&set);
        reclaimed.map(|(_, generation)| generation)
    }

    /// The reply of a call before the current one begins, if it was owed.
    pub(super) fn settle(&self, generation: u32) -> Settled {
        if self.is_empty() {
            return Settled::NotOwed;
        }
        let mut set = lock(&self.set);
        if !set.remove(generation) {
            return Settled::NotOwed;
        }
        self.note(&set);
        if std::mem::take(&mut set.is_parked) {
            Settled::LateInParked
        } else {
            Settled::Late
        }
    }

    /// Nothing is owed on a new connection. Whether the slot was parked: the caller must give it
    /// back.
    #[must_use]
    pub(super) fn begin_anew(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut set = lock(&self.set);
        set.spans.clear();
        self.note(&set);
        std::mem::take(&mut set.is_parked)
    }

    /// Whether the slot waits for a late reply.
    pub(super) fn is_parked(&self) -> bool {
        !self.is_empty() && lock(&self.set).is_parked
    }

    /// Acquire, with the Release of `reclaim` or `note`.
    fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    fn note(&self, set: &Set) {
        self.any.swap(!set.spans.is_empty(), Ordering::AcqRel);
    }
}

impl Set {
    /// The first generation after `last`, within `mask`, that is not owed and is not `last`.
    fn next(&self, last: u32, mask: u32) -> Option<u32> {
        let after = last.checked_add(1).filter(|next| *next <= mask);
        let next = after.and_then(|next| self.free_from(next, mask));
        let next = next.or_else(|| self.free_from(0, mask));
        next.filter(|next| *next != last)
    }

    /// The first generation from `from` on that is not owed.
    fn free_from(&self, from: u32, mask: u32) -> Option<u32> {
        match self.spans.get(self.position(from)) {
            Some(span) if span.first <= from => {
                span.last.checked_add(1).filter(|next| *next <= mask)
            }
            _ => Some(from),
        }
    }

    /// The first span that ends at `generation` or after it.
    fn position(&self, generation: u32) -> usize {
        self.spans.partition_point(|span| span.last < generation)
    }

    fn insert(&mut self, generation: u32) {
        let at = self.position(generation);
        if self.spans.get(at).is_some_and(|it| it.first <= generation) {
            return;
        }
        let (first, last) = (generation, generation);
        self.spans.insert(at, Span { first, last });
        self.merge_if_adjacent(at);
        if at > 0 {
            self.merge_if_adjacent(at - 1);
        }
        self.bound();
    }

    /// Whether it was there.
    fn remove(&mut self, generation: u32) -> bool {
        let at = self.position(generation);
        let Some(&Span { first, last }) = self.spans.get(at) else {
            return false;
        };
        if first > generation {
            return false;
        }
        let before = (first < generation).then(|| Span {
            first,
            last: generation - 1,
        });
        let behind = (generation < last).then(|| Span {
            first: generation + 1,
            last,
        });
        self.spans.splice(at..=at, before.into_iter().chain(behind));
        self.bound();
        true
    }

    /// How many generations are between this span and the next one.
    fn gap_behind(&self, at: usize) -> Option<u32> {
        let next = self.spans.get(at + 1)?;
        Some(next.first - self.spans[at].last - 1)
    }

    fn merge_if_adjacent(&mut self, at: usize) {
        if self.gap_behind(at) == Some(0) {
            self.merge(at);
        }
    }

    /// Makes one span of this one and the next.
    fn merge(&mut self, at: usize) {
        self.spans[at].last = self.spans.remove(at + 1).last;
    }

    /// Gives up the smallest gap, if there are too many.
    fn bound(&mut self) {
        if self.spans.len() > MOST_SPANS {
            let gaps = (0..self.spans.len()).filter_map(|at| Some((self.gap_behind(at)?, at)));
            if let Some((_, at)) = gaps.min() {
                self.merge(at);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Any generations are noted and settled, in any order, and the set knows exactly which are
    /// left; the next one is the first that is free, around the end.
    #[test]
    fn what_is_owed_is_known_exactly() {
        let (mut set, mut expected, mask) = (Set::default(), BTreeSet::new(), 63);
        let mut random = 1_u32;
        for step in 0..10_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let generation = (random >> 16) & mask;
            if (random >> 24) % 7 < 3 + step / 2_000 % 2 {
                set.insert(generation);
                expected.insert(generation);
            } else {
                assert_eq!(set.remove(generation), expected.remove(&generation));
            }
            let last = (random >> 8) & mask;
            let mut others = (1..=mask).map(|steps| last.wrapping_add(steps) & mask);
            let next = others.find(|it| !expected.contains(it));
            assert_eq!(set.next(last, mask), next);
        }
        assert!(!expected.is_empty());
    }

    /// A peer that leaves out every second reply for ever takes no more memory than the bound, and
    /// what is owed is never free.
    #[test]
    fn what_is_noted_is_bounded() {
        let (mut set, mask) = (Set::default(), 0xFFFF);
        let mut last = 0;
        let mut owed = BTreeSet::new();
        for turn in 0..20_000 {
            let Some(next) = set.next(last, mask) else {
                break;
            };
            assert!(!owed.contains(&next), "it is owed");
            if turn % 2 == 0 {
                set.insert(next);
                owed.insert(next);
            }
            last = next;
            assert!(set.spans.len() <= MOST_SPANS);
        }
        assert!(owed.len() > 5_000);
        for generation in owed {
            assert!(set.remove(generation));
        }
    }

    /// A slot of 32 bits has no end that adds one too many.
    #[test]
    fn the_last_generation_is_followed_by_the_first() {
        let mut set = Set::default();
        assert_eq!(set.next(u32::MAX, u32::MAX), Some(0));
        set.insert(u32::MAX);
        assert_eq!(set.next(u32::MAX - 1, u32::MAX), Some(0));
        set.insert(0);
        assert_eq!(set.next(u32::MAX - 1, u32::MAX), Some(1));
    }
}
