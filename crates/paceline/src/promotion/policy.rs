//! Which thread may take an open lead: the wake policy and the order, as one judgement over the
//! word.

use std::time::Duration;

use super::word::Snapshot;

/// How the followers are ordered: which is elected next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// The one that came last: its caches are warm. Those that came first may sleep for as long as
    /// the others suffice.
    #[default]
    Newest,
    /// The one that has waited longest: everyone gets its turn.
    Oldest,
    /// The one with the highest priority (see `Builder::thread_priority`), among equals the newest.
    Priority,
    /// Whomever the operating system picks: all sleep in one place.
    System,
}

/// Whether giving the lead away wakes someone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// The textbook: the elected follower is woken on every event.
    Eager,
    /// A follower is woken only where it pays: the handler usually sleeps or has said that it will;
    /// or a core is idle for work that waits, or will wait behind a long computation. (Behind a
    /// long computation with more work one thread more may run than there are cores, if these are
    /// several.) One follower, the standby, watches over surprises: an open lead that no thread
    /// takes is taken within a few ticks.
    #[default]
    Adaptive,
}

/// The rules of one pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) wake: Wake,
    pub(crate) order: Order,
    /// So many threads can run at once.
    pub(crate) cores: usize,
    /// The shortest time between two of the standby's looks.
    pub(crate) tick: Duration,
}

/// Which kind of thread asks to take the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// A thread that comes from outside, or slept.
    Anyone,
    /// The same, but it is bound: it waits for something of its own.
    Bound,
    /// The thread that made the opening with this sequence, back from its event.
    Opener(u64),
}

/// What the word allows.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Closed,
    /// Take it.
    Take,
    /// It is open, no wake is on its way, and the order prefers a sleeping thread: elect first.
    Elect,
    /// Another thread leads, or is about to, or the standby will find one: follow.
    Follow,
}

impl Policy {
    pub(crate) fn is_adaptive(&self) -> bool {
        self.wake == Wake::Adaptive
    }

    /// Whether an elected thread can rely on finding the lead open: no thread barges in on an
    /// offer.
    pub(super) fn is_strict(&self) -> bool {
        !self.is_adaptive() || self.order != Order::Newest
    }

    /// Whether one more thread than run by this word is of use behind what its opener does.
    pub(super) fn has_room(&self, word: Snapshot) -> bool {
        word.running() < room(self.cores, word.piles_up())
    }

    /// May the opener take this word, as it was when it opened, back? As [`judge`](Self::judge)
    /// says of it, in fewer questions.
    pub(super) fn may_retake(&self, opening: Snapshot) -> bool {
        let nobody_is_preferred = opening.is_vacant() && opening.has_nobody();
        opening.is_open() && !opening.is_closed() && (!self.is_strict() || nobody_is_preferred)
    }

    /// May `taker`, which counts neither as running nor as waiting, take the lead? (The elected
    /// thread need not ask.)
    pub(super) fn judge(&self, word: Snapshot, taker: Taker) -> Judgement {
        if word.is_closed() {
            return Judgement::Closed;
        }
        if !word.is_open() {
            return Judgement::Follow;
        }
        match (word.is_elected(), self.is_strict()) {
            // The last-thread rule: no other could.
            (false, _) if word.has_nobody() => Judgement::Take,
            (false, true) => Judgement::Elect,
            (true, true) => Judgement::Follow,
            (_, false) => self.judge_barging(word, taker),
        }
    }

    /// Adaptive, newest first: a thread that is awake is the newest, and takes the lead where that
    /// helps. (But for a bound one: it does not overtake a thread that was woken to lead.)
    fn judge_barging(&self, word: Snapshot, taker: Taker) -> Judgement {
        if taker == Taker::Bound && word.is_elected() {
            return Judgement::Follow;
        }
        let own = taker == Taker::Opener(word.sequence());
        let helps = word.wants_more() && self.has_room(word);
        if own || word.blocks() || helps {
            Judgement::Take
        } else {
            Judgement::Follow
        }
    }
}

/// How many threads are of use at once on so many cores: as many. If they compute and more work
/// piles up, one more: a woken thread may have to wait for the core on which it ran last, behind a
/// client's, while another core is idle, and the one more uses that. On a single core it would only
/// share it.
pub(super) fn room(cores: usize, piles_up: bool) -> usize {
    cores.saturating_add(usize::from(piles_up && cores > 1))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{
        super::word::{LeadWord, Marks, Standby},
        *,
    };

    fn policy(cores: usize) -> Policy {
        Policy {
            wake: Wake::Adaptive,
            order: Order::Newest,
            cores,
            tick: Duration::ZERO,
        }
    }

    /// The lead was opened for an event, on one core of two; a standby sleeps, and a thread is
    /// elected and on its way. A thread that is awake need not wait for that one if the handler
    /// sleeps, or if something waits for the idle core or will before it has computed; otherwise
    /// the opener will be back.
    #[test]
    fn newest_first_who_is_awake_helps() {
        let policy = policy(2);
        let judge = |[blocks, computes, backlog]: [bool; 3], taker: fn(Snapshot) -> Taker| {
            let lead = LeadWord::vacant();
            lead.update(|word| (word.taken().with_standby(Standby::Ticking), ()));
            let (_, opened) = lead.open_running(Marks {
                blocks,
                computes,
                backlog,
            });
            let word = opened.with_elect(true);
            policy.judge(word, taker(word))
        };
        let anyone = |_| Taker::Anyone;
        for marks in [
            [true, false, true],
            [true, false, false],
            [false, false, true],
            [false, true, false],
        ] {
            assert_eq!(judge(marks, anyone), Judgement::Take, "{marks:?}");
        }
        assert_eq!(judge([false; 3], anyone), Judgement::Follow);
        let opener = |word: Snapshot| Taker::Opener(word.sequence());
        assert_eq!(judge([false; 3], opener), Judgement::Take);
    }

    /// What an opener may take back without a judgement is what it would be given by one, whatever
    /// the word says.
    #[test]
    fn what_an_opener_may_take_back_is_its_own() {
        let [yes, no] = [true, false];
        let words = [yes, no].into_iter().flat_map(|elected| {
            let of = move |parked, standby, closed, open| {
                let lead = LeadWord::vacant();
                let held = |word: Snapshot| (word.taken(), ());
                lead.update(held);
                let (_, opened) = lead.open_running(Marks::default());
                let word = if open { opened } else { opened.taken() };
                let word = word.with_elect(elected).with_parked(parked);
                let word = word.with_standby(standby);
                if closed {
                    word.with_closed()
                } else {
                    word
                }
            };
            let each = [yes, no].map(|parked| {
                [Standby::None, Standby::Marked, Standby::Ticking].map(|standby| {
                    [yes, no].map(|closed| [yes, no].map(|open| of(parked, standby, closed, open)))
                })
            });
            each.into_iter().flatten().flatten().flatten()
        });
        for word in words {
            for (wake, order) in [
                (Wake::Adaptive, Order::Newest),
                (Wake::Adaptive, Order::Oldest),
                (Wake::Eager, Order::Newest),
            ] {
                let policy = Policy {
                    wake,
                    order,
                    ..policy(2)
                };
                let judged = policy.judge(word, Taker::Opener(word.sequence()));
                let takes = judged == Judgement::Take;
                assert_eq!(policy.may_retake(word), takes, "{policy:?} {word:?}");
            }
        }
    }

    /// A thread that is awake helps while there is room: as many threads as there are cores, and
    /// one more behind a computation if more waits. On a single core that one would only share it.
    #[test]
    fn one_more_than_there_are_cores_may_compute() {
        let most_who_run = |cores, computes, backlog| {
            let policy = policy(cores);
            let helps = |others: &usize| {
                let lead = LeadWord::vacant();
                lead.update(|word| (word.taken(), ()));
                lead.run_more(*others);
                let (_, opened) = lead.open_running(Marks {
                    computes,
                    backlog,
                    ..Marks::default()
                });
                // Others sleep, so that it is not the last one.
                let word = opened.with_standby(Standby::Ticking);
                policy.judge(word, Taker::Anyone) == Judgement::Take
            };
            // The opener runs, and the helping threads will.
            (0..9).take_while(helps).count() + 1
        };
        let on_each = |computes, backlog| [1, 2, 3].map(|it| most_who_run(it, computes, backlog));
        assert_eq!(on_each(false, true), [1, 2, 3]);
        assert_eq!(on_each(true, false), [1, 2, 3]);
        assert_eq!(on_each(true, true), [1, 3, 4]);
        assert_eq!(
            most_who_run(usize::MAX, true, true),
            10,
            "as many as were tried"
        );
    }
}
