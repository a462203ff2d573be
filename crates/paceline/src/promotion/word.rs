//! The lead word: everything that decides which thread leads, in 64 bits.
//!
//! | bits | field | meaning |
//! | --- | --- | --- |
//! | 32..64 | sequence | opening and taking both add one; odd: the lead is OPEN, even: it is HELD |
//! | 24 | computes | the opener's handler is of a kind that computes; a mark, like *backlog* |
//! | 23 | eager | under `Eager` the elected follower is woken on every event; never changed |
//! | 22 | observed | the pool is observed; orders nothing; free beside *eager* and *closed* |
//! | 20..22 | standby | none (0), a watch's mark (1), ticking (2), deep (3); none under `Eager` |
//! | 19 | backlog | more was ready when the lead was opened; a mark of the opener, for speed only |
//! | 18 | blocks | the opener's handler is of a kind that sleeps; likewise |
//! | 17 | closed | no thread takes the lead any more; never cleared |
//! | 16 | elect | a wake is on its way to one elected follower |
//! | 15 | parked | the list of followers is not empty |
//! | 0..15 | running | threads that process an event and are not away (in a handler that sleeps) |
//!
//! Where the order is strict (see `policy.rs`), OPEN together with *elect* is an **offer**: only
//! the elected thread may take it. The word changes by read-modify-write only, so every change has
//! one place in one order; that is what the arguments in `docs/protocol.md` and the models in
//! `models/` rest on.

use std::fmt;

use crate::sync::atomic::{AtomicU64, Ordering};

const ONE_RUNNING: u64 = 1;
const RUNNING: u64 = PARKED - 1;
const PARKED: u64 = 1 << 15;
const ELECT: u64 = 1 << 16;
const CLOSED: u64 = 1 << 17;
const BLOCKS: u64 = 1 << 18;
const BACKLOG: u64 = 1 << 19;
const STANDBY_SHIFT: u32 = 20;
const STANDBY: u64 = 3 << STANDBY_SHIFT;
/// Of the standby's: that there is one.
const STANDS_BY: u64 = 2 << STANDBY_SHIFT;
/// A build from which observation is left out can't be observed: `cargo xtask instructions`
/// compares with it.
const OBSERVED: u64 = if cfg!(paceline_unobserved) {
    0
} else {
    1 << 22
};
const EAGER: u64 = 1 << 23;
const COMPUTES: u64 = 1 << 24;
/// What an opener has published, until a thread takes the lead.
const MARKS: u64 = BLOCKS | BACKLOG | COMPUTES;
/// Adding it flips OPEN and HELD and counts; the overflow falls off the top.
const ONE_STEP: u64 = 1 << 32;
/// The sequence's lowest bit.
const OPEN: u64 = 1 << 32;

/// More threads than this can't be counted as running.
pub(crate) const MOST_THREADS: usize = RUNNING as usize;

/// The word itself.
#[derive(Debug)]
pub(super) struct LeadWord(AtomicU64);

impl LeadWord {
    /// Vacant: the first thread that arrives takes the lead.
    pub(super) fn vacant() -> Self {
        Self(AtomicU64::new(OPEN))
    }

    /// The same, under `Eager`.
    pub(super) fn vacant_and_eager() -> Self {
        Self(AtomicU64::new(OPEN | EAGER))
    }

    pub(super) fn look(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// HELD -> OPEN by one unconditional addition: the short path of a promotion. Returns the word
    /// as it was, and as it is now.
    pub(super) fn open_running(&self, marks: Marks) -> (Snapshot, Snapshot) {
        let step = ONE_STEP + marks.bits();
        let was = self.0.fetch_add(step, Ordering::AcqRel);
        debug_assert!(!Snapshot(was).is_open() && was & MARKS == 0);
        (Snapshot(was), Snapshot(was.wrapping_add(step)))
    }

    /// Replaces the word by what `step` makes of it, as one step, and returns what `step` returned.
    /// `step` may be called again with a newer word.
    ///
    /// Acquire: a taker sees what the last holder left in the lead's own data. Release: an opener
    /// shows it. Both are needed on every change, because a change by a third thread (a follower
    /// parks) may stand between the two in the word's order.
    pub(super) fn update<R>(&self, mut step: impl FnMut(Snapshot) -> (Snapshot, R)) -> R {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (next, told) = step(Snapshot(seen));
            match self
                .0
                .compare_exchange_weak(seen, next.0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return told,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Replaces this very word by the next one, if it still is that; returns whether. Orderings as
    /// in [`update`](Self::update), to which the caller turns if it has failed. (Inlined: every
    /// turn has one.)
    #[must_use]
    #[inline(always)]
    pub(super) fn replace(&self, word: Snapshot, next: Snapshot) -> bool {
        self.0
            .compare_exchange(word.0, next.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl LeadWord {
    /// So many more threads run.
    pub(super) fn run_more(&self, count: usize) {
        (0..count).for_each(|_| self.update(|word| (word.one_more_running(), ())));
    }
}

/// What an opener says about its event, so that others can judge whether to help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Its handler is of a kind that usually takes long and sleeps.
    pub(crate) blocks: bool,
    /// Its handler is of a kind that usually takes long and keeps its core.
    pub(crate) computes: bool,
    /// More handles wait in the line.
    pub(crate) backlog: bool,
}

impl Marks {
    /// Whether its thread counts as running: a sleeping thread uses no core.
    pub(super) fn runs(self) -> bool {
        !self.blocks
    }

    /// What an opening adds to the word.
    fn bits(self) -> u64 {
        u64::from(self.blocks) * BLOCKS
            + u64::from(self.backlog) * BACKLOG
            + u64::from(self.computes) * COMPUTES
            + u64::from(self.runs()) * ONE_RUNNING
    }
}

/// The one follower that watches an OPEN lead, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standby {
    None,
    /// There is none. The watch of an idle list sleeps without a timer, until the thread that opens
    /// this lead rouses it.
    Marked,
    /// It wakes up every tick, or every few.
    Ticking,
    /// It sleeps without a timer until the next promotion.
    Deep,
}

/// What the word said at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Snapshot(u64);

impl Snapshot {
    pub(super) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// OPEN, and anyone may take it.
    pub(super) fn is_vacant(self) -> bool {
        self.is_open() && !self.is_elected()
    }

    pub(super) fn is_elected(self) -> bool {
        self.0 & ELECT != 0
    }

    pub(super) fn is_parked(self) -> bool {
        self.0 & PARKED != 0
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub(super) fn is_observed(self) -> bool {
        self.0 & OBSERVED != 0
    }

    /// Eager, or observed: an event does not go the short way.
    pub(super) fn is_special(self) -> bool {
        self.0 & (EAGER | OBSERVED) != 0
    }

    /// Closed, or observed: the leader has something else to do than to wait.
    pub(super) fn wants_attention(self) -> bool {
        self.0 & (CLOSED | OBSERVED) != 0
    }

    pub(super) fn blocks(self) -> bool {
        self.0 & BLOCKS != 0
    }

    /// More was ready, or will be before the opener's handler is done.
    pub(super) fn wants_more(self) -> bool {
        self.0 & (BACKLOG | COMPUTES) != 0
    }

    /// More was ready, and the opener's handler computes for long.
    pub(super) fn piles_up(self) -> bool {
        const BOTH: u64 = BACKLOG | COMPUTES;
        self.0 & BOTH == BOTH
    }

    pub(super) fn standby(self) -> Standby {
        match (self.0 & STANDBY) >> STANDBY_SHIFT {
            0 => Standby::None,
            1 => Standby::Marked,
            2 => Standby::Ticking,
            _ => Standby::Deep,
        }
    }

    /// No follower is asleep: none parked, and no standby.
    pub(super) fn has_nobody(self) -> bool {
        self.0 & (PARKED | STANDS_BY) == 0
    }

    /// Which opening or taking this is, for comparison.
    pub(super) fn sequence(self) -> u64 {
        self.0 / ONE_STEP
    }

    pub(super) fn running(self) -> usize {
        (self.0 & RUNNING) as usize
    }

    /// HELD -> OPEN.
    pub(super) fn opened(self) -> Self {
        debug_assert!(!self.is_open(), "only the holder opens: {self:?}");
        Self(self.0.wrapping_add(ONE_STEP))
    }

    /// OPEN -> HELD. The opener's marks are over.
    pub(super) fn taken(self) -> Self {
        debug_assert!(self.is_open(), "only an open lead is taken: {self:?}");
        Self(self.0.wrapping_add(ONE_STEP) & !MARKS)
    }

    pub(super) fn with_elect(self, elect: bool) -> Self {
        self.with(ELECT, elect)
    }

    pub(super) fn with_parked(self, parked: bool) -> Self {
        self.with(PARKED, parked)
    }

    pub(super) fn with_standby(self, standby: Standby) -> Self {
        let bits = match standby {
            Standby::None => 0,
            Standby::Marked => 1,
            Standby::Ticking => 2,
            Standby::Deep => 3,
        };
        Self(self.0 & !STANDBY | bits << STANDBY_SHIFT)
    }

    pub(super) fn with_observed(self, observed: bool) -> Self {
        self.with(OBSERVED, observed)
    }

    pub(super) fn with_closed(self) -> Self {
        self.with(CLOSED, true)
    }

    pub(super) fn one_more_running(self) -> Self {
        debug_assert!(self.running() < MOST_THREADS, "too many run: {self:?}");
        Self(self.0 + ONE_RUNNING)
    }

    pub(super) fn one_less_running(self) -> Self {
        debug_assert!(self.running() > 0, "nobody runs: {self:?}");
        Self(self.0 - ONE_RUNNING)
    }

    fn with(self, bit: u64, set: bool) -> Self {
        Self(if set { self.0 | bit } else { self.0 & !bit })
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead")
            .field("sequence", &self.sequence())
            .field("open", &self.is_open())
            .field("elect", &self.is_elected())
            .field("parked", &self.is_parked())
            .field("standby", &self.standby())
            .field("blocks", &self.blocks())
            .field("backlog", &(self.0 & BACKLOG != 0))
            .field("computes", &(self.0 & COMPUTES != 0))
            .field("closed", &self.is_closed())
            .field("observed", &self.is_observed())
            .field("running", &self.running())
            .finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// E22: the paper's pool leaves the leader's id uninitialised. Ours is built vacant.
    #[test]
    fn built_vacant() {
        let word = LeadWord::vacant().look();
        assert!(word.is_vacant() && !word.is_parked() && !word.is_closed());
        assert_eq!(word.running(), 0);
    }

    /// Neither a lead that is held nor one that is offered to a thread is for anyone to take.
    #[test]
    fn held_or_offered_is_not_vacant() {
        let word = LeadWord::vacant().look();
        assert!(!word.with_elect(true).is_vacant());
        assert!(!word.taken().is_vacant());
    }

    /// What an opener says is over when the lead is taken, however often that happens.
    #[test]
    fn marks_end_with_the_opening() {
        let lead = LeadWord::vacant();
        for opening in 0..1000 {
            let before = lead.update(|word| (word.taken(), word.taken()));
            assert!(!before.is_open() && before.0 & MARKS == 0, "{before:?}");
            let (blocks, computes) = (opening % 3 == 0, opening % 3 == 1);
            let (_, opened) = lead.open_running(Marks {
                blocks,
                computes,
                backlog: true,
            });
            assert!(opened.is_open() && opened.blocks() == blocks && opened.piles_up() == computes);
            assert!(!opened.is_observed() && !opened.is_special() && opened.wants_more());
            if !blocks {
                lead.update(|word| (word.one_less_running(), ()));
            }
        }
    }

    /// 2^32 openings later the sequence starts anew and nothing else has changed.
    #[test]
    fn sequence_falls_off_the_top() {
        let last = Snapshot(u64::MAX << 32)
            .with_parked(true)
            .one_more_running();
        let next = last.taken();
        assert!(!next.is_open() && next.is_parked());
        assert_eq!(next.running(), 1);
        assert!(next.opened().is_open());
    }
}
