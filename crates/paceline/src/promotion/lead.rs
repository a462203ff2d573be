//! How a thread becomes the leader, and how it stops being it.
//!
//! ```text
//!  arriving ----> leader        [Lead::arrive]         the lead is open, and the order lets it
//!  arriving ----> standby       [Lead::enlist]         adaptive, and there is none
//!  arriving ----> follower      [Lead::enlist]         otherwise
//!  follower ----> leader        [Lead::take_offer]     it was elected and woken
//!  follower ----> standby       [Lead::stand_by]       it was appointed and woken
//!  follower ----> out           [Lead::leave]          its deadline passed
//!  standby  ----> leader        [Lead::look_after]     the lead was open for two looks
//!  leader   ----> processing    [HeldLead::promote]    it claimed an event
//!  leader   ----> arriving      [HeldLead::drop]       nothing to process: time-out, error, close
//!  processing --> leader        [Running::rejoin]      the lead is open, and it may take it
//!  processing --> arriving      [Running::rejoin]      otherwise
//! ```
//!
//! A *section* is: take the lock, change the word and the list, then leave the message, release the
//! lock, and only then wake. The message is left inside, so that messages to one thread have the
//! order of the word; and after the word, because its thread may be awake and acts on it at once. The
//! short path (promote, rejoin) takes no lock: one addition, one compare-and-swap.

use std::{fmt, sync::Arc};

use super::{
    bench::Bench,
    followers::{Called, Followers, Message, Seat, Withdrawal},
    policy::{Judgement, Policy, Taker},
    word::{LeadWord, Marks, Snapshot, Standby},
};
use crate::{
    observe::Counters,
    sync::{
        atomic::{AtomicU64, Ordering},
        lock, Clock, Mutex, Parker, Timestamp, UnsafeCell,
    },
};

/// The right to wait in one handle set, and the data `T` that belongs to whoever has it.
pub(crate) struct Lead<T> {
    pub(super) word: LeadWord,
    pub(super) policy: Policy,
    pub(super) followers: Mutex<Followers>,
    /// Where parked followers sleep if the operating system picks.
    bench: Option<Arc<Bench>>,
    /// How often a standby has looked: a clock for W1 that nobody needs to read.
    pub(super) epoch: AtomicU64,
    pub(super) counters: Arc<Counters>,
    /// Only the holder of the lead touches it; the word publishes it from one to the next.
    owned: UnsafeCell<Inside<T>>,
}

/// What belongs to the holder of the lead.
struct Inside<T> {
    data: T,
    /// The epoch since which more work was waiting than threads were running.
    since: u64,
    /// When the lead was last opened.
    opened: Option<Timestamp>,
}

// SAFETY: `owned` is reached only through `HeldLead`, of which at most one exists at a time (L1), and
// the word's read-modify-writes order one holder's accesses before the next one's. So sharing a
// `Lead` moves `T` between threads (`T: Send`) and never shares it.
unsafe impl<T: Send> Sync for Lead<T> {}

/// How an attempt to lead ended.
#[must_use]
pub(crate) enum Arrival<'a, T> {
    /// This thread leads.
    Leads(HeldLead<'a, T>),
    /// The deadline passed first; the thread is on no list and was elected by nobody.
    TimedOut,
    /// The pool is closed.
    Closed,
}

/// What a promotion did.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promotion {
    /// A follower was elected and woken; its index, unless the system picks.
    Elected(Option<usize>),
    /// The lead was left open. A standby watches it, or no follower is asleep.
    LeftOpen,
    /// The same, and a standby was woken to watch it.
    Watched,
    /// The pool is closed: the lead is open, and no one will take it.
    Closing,
}

/// Where a thread stands after it processed an event.
#[must_use]
pub(crate) enum Rejoined<'a, T> {
    /// It took the lead.
    Leads(HeldLead<'a, T>),
    /// Somebody else leads or will.
    Follows,
}

/// What ended a follower's sleep.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// It is elected.
    Elected,
    /// As standby it took the lead.
    Took,
    TimedOut,
    Closed,
}

/// What came of one attempt to take the lead.
enum Attempt {
    Took,
    Parked,
    StandsBy,
    /// Somebody else must be elected first.
    Elect,
    /// Elected, but another thread leads: arrive again.
    Overtaken,
    Closed,
}

impl<T> Lead<T> {
    /// A lead that nobody has yet.
    pub(crate) fn vacant(data: T, policy: Policy, counters: Arc<Counters>) -> Self {
        let followers = Followers::new(policy.order);
        Self {
            word: LeadWord::vacant(),
            policy,
            bench: followers.bench(),
            followers: Mutex::new(followers),
            epoch: AtomicU64::new(0),
            counters,
            owned: UnsafeCell::new(Inside {
                data,
                since: 0,
                opened: None,
            }),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.look().is_closed()
    }

    /// Becomes the leader, or follows until it does; gives up at `deadline`.
    ///
    /// The deadline is looked at before every attempt: a thread past it neither takes an open lead nor
    /// keeps one that was offered to it (I4).
    pub(crate) fn arrive(
        &self,
        seat: &Arc<Seat>,
        clock: &Clock,
        deadline: Option<Timestamp>,
    ) -> Arrival<'_, T> {
        while !clock.has_passed(deadline) {
            let attempt = match self.take_or_enlist(seat) {
                Attempt::Parked => self.obey(self.follow(seat, clock, deadline)),
                Attempt::StandsBy => self.obey(self.stand_by(seat, clock, deadline)),
                at_once => Ok(at_once),
            };
            match attempt {
                Err(ended) => return ended,
                Ok(Attempt::Took) => return self.leads(clock),
                Ok(Attempt::Closed) => return Arrival::Closed,
                Ok(Attempt::Elect) if self.elect_or_take(seat) => return self.leads(clock),
                Ok(_) => {}
            }
        }
        Arrival::TimedOut
    }

    fn leads(&self, clock: &Clock) -> Arrival<'_, T> {
        let mut held = HeldLead { lead: self };
        held.note_vacancy(clock.now());
        Arrival::Leads(held)
    }

    /// Elects whoever is best, if the lead is open and nobody is elected: for a thread that is about to
    /// block without having an opening of its own.
    pub(crate) fn call_someone(&self) {
        let _ = self.elect(|_| true, |word| word);
    }

    /// Closes for ever: nobody takes the lead any more, and every follower is told to go. The holder
    /// of the lead finds out when it looks; whoever closes must make it look.
    pub(crate) fn close(&self) {
        let mut followers = lock(&self.followers);
        self.word.update(|word| {
            let empty = word.with_parked(false).with_standby(Standby::None);
            (empty.with_closed(), ())
        });
        let dismissed = followers.dismiss();
        dismissed
            .iter()
            .for_each(|called| called.post(Message::Close));
        drop(followers);
        dismissed.iter().for_each(Called::wake_all);
    }

    /// Takes an open lead at once if it may, else becomes standby or a parked follower.
    fn take_or_enlist(&self, seat: &Arc<Seat>) -> Attempt {
        let at_once = self
            .word
            .update(|word| match self.policy.judge(word, Taker::Anyone) {
                Judgement::Take => (word.taken(), Some(Attempt::Took)),
                Judgement::Closed => (word, Some(Attempt::Closed)),
                Judgement::Elect | Judgement::Follow => (word, None),
            });
        at_once.unwrap_or_else(|| self.enlist(seat))
    }

    /// The section of a thread that could not take the lead: looks once more, and enlists.
    #[cold]
    fn enlist(&self, seat: &Arc<Seat>) -> Attempt {
        let mut followers = lock(&self.followers);
        let may_stand_by =
            |word: Snapshot| self.policy.is_adaptive() && word.standby() == Standby::None;
        let attempt = self
            .word
            .update(|word| match self.policy.judge(word, Taker::Anyone) {
                Judgement::Closed => (word, Attempt::Closed),
                Judgement::Take => (word.taken(), Attempt::Took),
                Judgement::Elect => (word, Attempt::Elect),
                Judgement::Follow if may_stand_by(word) => {
                    (word.with_standby(Standby::Ticking), Attempt::StandsBy)
                }
                Judgement::Follow => (word.with_parked(true), Attempt::Parked),
            });
        match attempt {
            Attempt::Parked => followers.push(seat),
            Attempt::StandsBy => followers.set_standby(seat),
            _ => {}
        }
        attempt
    }

    /// What a woken follower does. `Err`: that was all.
    fn obey(&self, woken: Woken) -> Result<Attempt, Arrival<'_, T>> {
        match woken {
            Woken::Elected => Ok(self.take_offer()),
            Woken::Took => Ok(Attempt::Took),
            Woken::TimedOut => Err(Arrival::TimedOut),
            Woken::Closed => Err(Arrival::Closed),
        }
    }

    /// Sleeps in the list until there is a message, or until `deadline`.
    fn follow(&self, seat: &Arc<Seat>, clock: &Clock, deadline: Option<Timestamp>) -> Woken {
        let message = match &self.bench {
            Some(bench) => doze(clock, bench.parker(), || bench.take(), deadline),
            None => doze(clock, seat.parker(), || seat.take_message(), deadline),
        };
        match message.or_else(|| self.leave(seat)) {
            None => Woken::TimedOut,
            Some(Message::Close) => Woken::Closed,
            Some(Message::Lead) => self.elected(clock, deadline),
            Some(Message::StandBy | Message::Tick) => match self.adopt_standby(seat) {
                Ok(()) => self.stand_by(seat, clock, deadline),
                Err(closed) => closed,
            },
        }
    }

    /// An elected thread whose time is over passes the offer on (I4).
    pub(super) fn elected(&self, clock: &Clock, deadline: Option<Timestamp>) -> Woken {
        if clock.has_passed(deadline) {
            self.counters.wasted_wakes.one_more();
            // OPEN: the next one is elected in the same step. HELD: there is no need.
            let _ = self.elect(|_| true, |word| word.with_elect(false));
            return Woken::TimedOut;
        }
        Woken::Elected
    }

    /// The section of a parked follower whose deadline passed. A message that came first must be
    /// obeyed.
    fn leave(&self, seat: &Arc<Seat>) -> Option<Message> {
        let mut followers = lock(&self.followers);
        match followers.withdraw(seat) {
            Withdrawal::TooLate(message) => Some(message),
            Withdrawal::Done => {
                let parked = !followers.is_empty();
                self.word.update(|word| (word.with_parked(parked), ()));
                None
            }
        }
    }

    /// The elected thread takes what was offered to it.
    fn take_offer(&self) -> Attempt {
        let attempt = self.word.update(|word| {
            debug_assert!(
                word.is_elected(),
                "who is told to lead is elected: {word:?}"
            );
            let word = word.with_elect(false);
            match word {
                _ if word.is_closed() => (word, Attempt::Closed),
                _ if word.is_open() => (word.taken(), Attempt::Took),
                // Somebody led meanwhile (TAO's bug 173): arrive again like everyone else.
                _ => (word, Attempt::Overtaken),
            }
        });
        if let Attempt::Overtaken = attempt {
            self.counters.wasted_wakes.one_more();
        }
        attempt
    }

    /// The section that elects: changes the word by `and`, and in the same step elects the best
    /// follower if the lead is then open, no wake is on its way, and `guard` holds. Wakes it.
    #[cold]
    fn elect(
        &self,
        guard: impl Fn(Snapshot) -> bool,
        and: impl Fn(Snapshot) -> Snapshot,
    ) -> Promotion {
        let mut followers = lock(&self.followers);
        let elected = self.elect_locked(&mut followers, guard, and);
        drop(followers);
        self.wake(elected)
    }

    /// The section of a thread that finds the lead open in a strict order, and no wake on its way:
    /// elects the best follower, or takes the lead if the order puts this thread first. Tells whether
    /// it took it.
    #[cold]
    fn elect_or_take(&self, seat: &Seat) -> bool {
        let mut followers = lock(&self.followers);
        let took = followers.yield_to(seat)
            && self
                .word
                .update(|word| match word.is_vacant() && !word.is_closed() {
                    true => (word.taken(), true),
                    false => (word, false),
                });
        let elected = match took {
            true => None,
            false => self.elect_locked(&mut followers, |_| true, |word| word),
        };
        drop(followers);
        let _ = self.wake(elected);
        took
    }

    pub(super) fn elect_locked(
        &self,
        followers: &mut Followers,
        guard: impl Fn(Snapshot) -> bool,
        and: impl Fn(Snapshot) -> Snapshot,
    ) -> Option<Called> {
        let best = followers.best();
        let elected = self.word.update(|word| {
            let word = and(word);
            let open = word.is_open() && !word.is_elected() && !word.is_closed();
            match best.filter(|_| open && guard(word)) {
                Some(best) => (
                    followers.word_without(best, word).with_elect(true),
                    Some(best),
                ),
                None => (word, None),
            }
        });
        let called = followers.take(elected?);
        called.post(Message::Lead);
        Some(called)
    }

    pub(super) fn wake(&self, elected: Option<Called>) -> Promotion {
        match elected {
            Some(called) => {
                self.counters.wakes.one_more();
                called.wake();
                Promotion::Elected(called.index())
            }
            None => Promotion::LeftOpen,
        }
    }

    /// The eager promotion: the best follower is woken on every event.
    fn open_eagerly(&self, and: impl Fn(Snapshot) -> Snapshot) -> Promotion {
        let vacated = self.word.update(|word| match word {
            _ if word.is_parked() => (word, None),
            _ if word.is_closed() => (and(word.opened()), Some(Promotion::Closing)),
            _ => (and(word.opened()), Some(Promotion::LeftOpen)),
        });
        vacated.unwrap_or_else(|| self.elect(|_| true, |word| and(word.opened())))
    }

    /// After an adaptive promotion that changed `was` to `is`: wakes at most one thread, where it pays.
    fn help(&self, was: Snapshot, is: Snapshot, needed: bool) -> Promotion {
        match was.standby() {
            _ if was.is_closed() => Promotion::Closing,
            _ if was.is_elected() => Promotion::LeftOpen,
            _ if needed => self.elect(|word| word.sequence() == is.sequence(), |word| word),
            Standby::Deep => self.rouse_standby(),
            Standby::None if was.is_parked() => self.appoint_standby(),
            _ => Promotion::LeftOpen,
        }
    }
}

/// Sleeps on `parker` until `take` finds a message, or until `until`; a sleep that ends early changes
/// nothing.
pub(super) fn doze(
    clock: &Clock,
    parker: &Arc<Parker>,
    take: impl Fn() -> Option<Message>,
    until: Option<Timestamp>,
) -> Option<Message> {
    loop {
        let message = take();
        if message.is_some() || clock.has_passed(until) {
            return message;
        }
        clock.sleep(parker, until);
    }
}

impl<T> fmt::Debug for Lead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead")
            .field("word", &self.word.look())
            .field("followers", &lock(&self.followers).asleep())
            .finish_non_exhaustive()
    }
}

/// The lead, held: the right to wait. At most one exists per [`Lead`] (L1).
///
/// Dropping it gives the lead away to the best follower, whatever the policy (I3), so that no path out
/// of the pool can lose it (E1, E2, E17).
#[must_use]
pub(crate) struct HeldLead<'a, T> {
    lead: &'a Lead<T>,
}

impl<'a, T> HeldLead<'a, T> {
    /// Uses the data that belongs to the leader.
    pub(crate) fn with_owned<R>(&mut self, using: impl FnOnce(&mut T) -> R) -> R {
        self.with_inside(|inside| using(&mut inside.data))
    }

    /// The leader found nothing to do and slept: whatever comes now has not waited yet (W1).
    pub(crate) fn was_idle(&mut self) {
        let epoch = self.lead.epoch.load(Ordering::Relaxed);
        self.with_inside(|inside| inside.since = epoch);
    }

    /// Gives the lead away before processing: leader -> processing.
    pub(crate) fn promote(mut self, marks: Marks, now: Timestamp) -> (Running<'a, T>, Promotion) {
        let lead = self.lead;
        self.with_inside(|inside| inside.opened = Some(now));
        if !lead.policy.is_adaptive() {
            std::mem::forget(self);
            let promotion = lead.open_eagerly(Snapshot::one_more_running);
            let opening = lead.word.look();
            return (Running { lead, opening }, promotion);
        }
        let needed = marks.long || self.is_short_of_hands(marks);
        std::mem::forget(self);
        let (was, is) = lead.word.open_running(marks);
        let promotion = lead.help(was, is, needed);
        (Running { lead, opening: is }, promotion)
    }

    /// W1: more work waits than threads run, and has for at least one look of the standby.
    fn is_short_of_hands(&mut self, marks: Marks) -> bool {
        let lead = self.lead;
        let epoch = lead.epoch.load(Ordering::Relaxed);
        // This thread is about to run.
        let idle_core = marks.backlog && lead.word.look().running() + 1 < lead.policy.cores;
        self.with_inside(|inside| match idle_core {
            true => inside.since != epoch,
            false => {
                inside.since = epoch;
                false
            }
        })
    }

    /// Counts the time that nobody led.
    fn note_vacancy(&mut self, now: Timestamp) {
        let opened = self.with_inside(|inside| inside.opened.take());
        if let Some(opened) = opened {
            self.lead.counters.vacancy.note(now.since(opened));
        }
    }

    fn with_inside<R>(&mut self, using: impl FnOnce(&mut Inside<T>) -> R) -> R {
        self.lead.owned.with_mut(|owned| {
            // SAFETY: this is the one `HeldLead`, borrowed exclusively, so no other reference to the
            // data exists; the pointer is valid as long as the `Lead` lives, which `'a` ensures.
            using(unsafe { &mut *owned })
        })
    }
}

impl<T> Drop for HeldLead<'_, T> {
    fn drop(&mut self) {
        let _ = match self.lead.policy.is_adaptive() {
            true => self.lead.elect(|_| true, Snapshot::opened),
            false => self.lead.open_eagerly(|word| word),
        };
    }
}

/// A thread that processes an event, as the lead word counts it.
#[must_use]
pub(crate) struct Running<'a, T> {
    lead: &'a Lead<T>,
    /// The word after this thread opened the lead: a good guess for the way back.
    opening: Snapshot,
}

impl<'a, T> Running<'a, T> {
    /// Done processing: takes the lead if it may, without a lock and without a system call. If the
    /// order prefers someone who sleeps, that one is elected.
    pub(crate) fn rejoin(self, seat: &Seat, now: Timestamp) -> Rejoined<'a, T> {
        let (lead, opening) = (self.lead, self.opening);
        std::mem::forget(self);
        let opener = Taker::Opener(opening.sequence());
        let judgement = lead.word.update_from(opening, |word| {
            let word = word.one_less_running();
            match lead.policy.judge(word, opener) {
                Judgement::Take => (word.taken(), Judgement::Take),
                other => (word, other),
            }
        });
        match judgement {
            Judgement::Take => {}
            Judgement::Elect if lead.elect_or_take(seat) => {}
            _ => return Rejoined::Follows,
        }
        let mut held = HeldLead { lead };
        held.note_vacancy(now);
        Rejoined::Leads(held)
    }

    /// The handler says that it is going to block: this thread does not count as running, and nobody
    /// sleeps while its opening stays open.
    pub(crate) fn go_away(&self) {
        let _ = self
            .lead
            .elect(|word| self.is_own(word), Snapshot::one_less_running);
    }

    /// The handler is back.
    pub(crate) fn come_back(&self) {
        self.lead.word.update(|word| (word.one_more_running(), ()));
    }

    /// The handler says that the rest will take long.
    pub(crate) fn call_for_help(&self) {
        let word = self.lead.word.look();
        if self.is_own(word) && !word.is_elected() && !word.has_nobody() {
            let _ = self.lead.elect(|word| self.is_own(word), |word| word);
        }
    }

    fn is_own(&self, word: Snapshot) -> bool {
        word.sequence() == self.opening.sequence()
    }
}

impl<T> Drop for Running<'_, T> {
    /// Leaves the pool while processing. If its opening is unchanged, it elects a successor (I3).
    fn drop(&mut self) {
        let _ = self
            .lead
            .elect(|word| self.is_own(word), Snapshot::one_less_running);
    }
}
