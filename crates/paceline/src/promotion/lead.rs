//! How a thread becomes the leader, and how it stops being it.
//!
//! ```text
//!  arriving ----> leader        [Lead::arrive]         the lead is open, and the order lets it
//!  arriving ----> standby       [Lead::enlist]         adaptive, and there is none
//!  arriving ----> follower      [Lead::enlist]         otherwise
//!  elected  ----> leader        [Lead::take_offer]     it was elected and woken
//!  arriving ----> leader        [Lead::elect_or_take]  by priority: none that waits is higher
//!  follower ----> standby       [Lead::appoint_standby] it was appointed and woken
//!  follower ----> out           [Lead::leave]          its time is over
//!  follower ----> out           [Lead::lets_go]        it was idle for long, and is not needed
//!  elected  ----> out           [Lead::take_or_pass_on] likewise; the next one is elected
//!  standby  ----> out           [Lead::leave_standby]  likewise
//!  standby  ----> leader        [Lead::look_after]     the lead was open for a while
//!  leader   ----> processing    [HeldLead::promote]    it claimed an event
//!  leader   ----> arriving      [HeldLead::drop]       nothing to process: time-out, error, close
//!  processing --> leader        [Running::rejoin]      the lead is open, and it may take it
//!  processing --> arriving      [Running::rejoin]      otherwise
//! ```
//!
//! A *section* is: take the lock, change the word and the list, then leave the message, release the
//! lock, and only then wake. The message is left inside, so that messages to one thread have the
//! order of the word; and after the word, because its thread may be awake and acts on it at once.
//! The short path (promote, rejoin) takes no lock: one addition, one compare-and-swap.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use super::{
    absent::Absent,
    elastic::ElasticPolicy,
    followers::{Called, Followers, Message, Seat, Withdrawal},
    held::{HeldLead, Inside},
    opener::Opener,
    outcome::{Arrival, Attempt, Promotion},
    policy::{Judgement, Policy, Taker},
    recall::{doze, Until},
    roaming_idle::Link,
    shared_parker::SharedParker,
    watcher::Watcher,
    word::{LeadWord, Snapshot, Standby},
};
use crate::{
    observe::{Board, Counters, Role},
    sync::{atomic::AtomicU64, lock, Clock, Moment, Mutex, Timestamp, UnsafeCell},
};

/// The right to wait in one handle set, and the data `T` that belongs to its holder.
pub(crate) struct Lead<T> {
    pub(super) word: LeadWord,
    pub(super) policy: Policy,
    pub(super) followers: Mutex<Followers>,
    /// Where parked followers sleep if the operating system picks.
    shared_parker: Option<Arc<SharedParker>>,
    /// How often a standby has checked: a clock for W1 that needs no reading.
    pub(super) epoch: AtomicU64,
    /// When the lead was last opened for an event; or set aside, which counts from a tick later.
    pub(super) opened: Moment,
    /// The thread that opened it.
    pub(super) opener: Opener,
    pub(super) counters: Arc<Counters>,
    /// What is shared with the watcher, if there may be one.
    pub(super) watcher: Option<Watcher>,
    /// The threads that are called and let go, if the pool is elastic.
    pub(super) elastic: Option<ElasticPolicy>,
    /// Whether its threads serve other sets too.
    pub(super) roams: bool,
    /// Whether a thread can be called that is not in the set: it is elastic, or roams.
    pub(super) calls: bool,
    /// The idle list of those, and which set this is there.
    pub(super) idle_list: OnceLock<Link<T>>,
    /// Where threads show what they do, if there is one.
    pub(super) board: Option<Arc<Board>>,
    /// Threads that are reached otherwise when it is closed.
    pub(super) absent: Absent,
    /// Only the holder of the lead touches it; the word publishes it from one to the next.
    pub(super) owned: UnsafeCell<Inside<T>>,
}

// SAFETY: `owned` is reached only through `HeldLead`, of which at most one exists at a time (L1),
// and the word's read-modify-writes order one holder's accesses before the next one's. So sharing a
// `Lead` moves `T` between threads (`T: Send`) and never shares it.
unsafe impl<T: Send> Sync for Lead<T> {}

impl<T> Lead<T> {
    /// A lead that no thread has yet.
    pub(crate) fn vacant(data: T, policy: Policy, counters: Arc<Counters>) -> Self {
        let followers = Followers::new(policy.order);
        Self {
            word: if policy.is_adaptive() {
                LeadWord::vacant()
            } else {
                LeadWord::vacant_and_eager()
            },
            policy,
            shared_parker: followers.shared_parker(),
            followers: Mutex::new(followers),
            epoch: AtomicU64::new(0),
            opened: Moment::default(),
            opener: Opener::default(),
            counters,
            watcher: None,
            elastic: None,
            roams: false,
            calls: false,
            idle_list: OnceLock::new(),
            board: None,
            absent: Absent::default(),
            owned: UnsafeCell::new(Inside::new(data)),
        }
    }

    /// Likewise, with a watcher if `on`: see [`Lead::watch`].
    pub(crate) fn watched(mut self, on: bool) -> Self {
        self.watcher = on.then(Watcher::new);
        self
    }

    /// Likewise, with a board, if there is one.
    pub(crate) fn shown_on(mut self, board: Option<Arc<Board>>) -> Self {
        self.board = board;
        self
    }

    /// The calling thread, which processes an event, is away or is back: only the board knows.
    pub(super) fn show(&self, role: Role) {
        self.board.iter().for_each(|board| board.show(role));
    }

    /// Whether the pool is observed.
    pub(crate) fn is_observed(&self) -> bool {
        self.word.look().is_observed()
    }

    pub(crate) fn set_observed(&self, observed: bool) {
        self.word.update(|word| (word.with_observed(observed), ()));
    }

    /// Whether it is closed or observed, as one question.
    pub(crate) fn wants_attention(&self) -> bool {
        self.word.look().wants_attention()
    }

    /// The index of the standby, if there is one.
    pub(crate) fn standby_index(&self) -> Option<usize> {
        lock(&self.followers).standby_index()
    }

    /// Whether a follower sleeps that waits for nothing but the lead.
    pub(crate) fn has_free_follower(&self) -> bool {
        lock(&self.followers).has_free()
    }

    /// Whether a thread can be recalled here. Not from a shared parker, where no thread can be
    /// named.
    pub(crate) fn can_recall(&self) -> bool {
        self.shared_parker.is_none()
    }

    /// Why no thread can be handed anything here, if that is so.
    pub(crate) fn hands_nothing(&self) -> Option<&'static str> {
        match self {
            _ if !self.can_recall() => Some("the system's order names no thread"),
            _ if self.roams => Some("its threads come and go between several sets"),
            _ => None,
        }
    }

    /// Does `act` if this thread sleeps, in the list or as standby, and is not bound, or may be. It
    /// asks whether something was handed to it before it does anything else then.
    pub(crate) fn if_asleep(&self, seat: &Seat, may_be_bound: bool, act: impl FnOnce()) -> bool {
        let followers = lock(&self.followers);
        let is_asleep = followers.has(seat) && (may_be_bound || !seat.is_bound());
        if is_asleep {
            act();
        }
        is_asleep
    }

    /// Whether fewer threads run than there are cores, once the leader runs too; roaming threads
    /// count in all sets together.
    pub(super) fn has_idle_core(&self, word: Snapshot) -> bool {
        word.running() + 1 < self.policy.cores && (!self.roams || self.has_room_in_all_sets(false))
    }

    /// Becomes the leader, or follows until it does; gives up when its time is over.
    ///
    /// That is looked at before every attempt: a thread past it neither takes an open lead nor
    /// keeps one that was offered to it (I4).
    pub(crate) fn arrive(
        &self,
        seat: &Arc<Seat>,
        clock: &Clock,
        until: Until<'_>,
    ) -> Arrival<'_, T> {
        let until = until.or_handed(seat);
        while !until.is_over(clock) {
            let attempt = self.take_or_enlist(seat);
            // After the attempt: a thread that was called is on its way until it leads or is on the
            // list. (A thread that will be recalled has something to do here, and is not let go
            // before.)
            let elastic = self.elastic.as_ref().filter(|_| !until.wants_something());
            let idle = elastic.and_then(|elastic| elastic.arrived(seat, clock));
            let attempt = match attempt {
                Attempt::Parked => self.follow(seat, clock, until, idle),
                Attempt::StandsBy => self.stand_by(seat, clock, until),
                at_once => at_once,
            };
            match attempt {
                Attempt::Took => return self.leads(clock),
                Attempt::Closed => return Arrival::Closed,
                Attempt::TimedOut => break,
                Attempt::Idle if self.lets_go(seat) => return Arrival::TimedOut,
                Attempt::Elect if self.elect_or_take(seat) => return self.leads(clock),
                // Another thread was elected, or was faster: again. Or this one must stay.
                _ => {}
            }
        }
        if !until.is_handed_in_time(clock) {
            return Arrival::TimedOut;
        }
        // Then no thread begins with anything.
        if self.is_closed() {
            return Arrival::Closed;
        }
        // It may have been called, and handed this before its first attempt: then it is here.
        let _ = self
            .elastic
            .as_ref()
            .map(|elastic| elastic.arrived(seat, clock));
        Arrival::Handed
    }

    fn leads(&self, clock: &Clock) -> Arrival<'_, T> {
        self.opener.note();
        Arrival::Leads(HeldLead::taken(self, clock.now()))
    }

    /// Elects the best follower, if the lead is open and none is elected: for a thread that is
    /// about to block without having an opening of its own.
    pub(crate) fn elect_anyone(&self) {
        let _ = self.elect(|_| true, |word| word);
    }

    /// Closes for ever: no thread takes the lead any more, and every follower goes. The caller must
    /// make the holder look.
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
        self.watcher.iter().for_each(Watcher::get_up);
        self.absent.wake_all();
    }

    /// Takes an open lead at once if it may, else becomes standby or a parked follower.
    fn take_or_enlist(&self, seat: &Arc<Seat>) -> Attempt {
        let taker = taker(seat);
        let at_once = self
            .word
            .update(|word| match self.policy.judge(word, taker) {
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
        // Where an idle list has left its mark no thread stands by, and its watch may have gone
        // since.
        let may_stand_by = |word: Snapshot| {
            self.policy.is_adaptive() && matches!(word.standby(), Standby::None | Standby::Marked)
        };
        let (taker, mut before) = (taker(seat), Standby::None);
        let attempt = self
            .word
            .update(|word| match self.policy.judge(word, taker) {
                Judgement::Closed => (word, Attempt::Closed),
                Judgement::Take => (word.taken(), Attempt::Took),
                Judgement::Elect => (word, Attempt::Elect),
                Judgement::Follow if may_stand_by(word) => {
                    before = word.standby();
                    (word.with_standby(Standby::Ticking), Attempt::StandsBy)
                }
                Judgement::Follow => (word.with_parked(true), Attempt::Parked),
            });
        match attempt {
            Attempt::Parked => followers.push(seat),
            Attempt::StandsBy => followers.set_standby(seat),
            _ => {}
        }
        drop(followers);
        if let (Attempt::StandsBy, Standby::Marked) = (&attempt, before) {
            // An opening would not rouse the watch any more: it must look by itself again.
            self.rouse_idle_list();
        }
        attempt
    }

    /// Sleeps in the list until there is a message, or its time is over, or until it was `idle` for
    /// long.
    fn follow(
        &self,
        seat: &Arc<Seat>,
        clock: &Clock,
        until: Until<'_>,
        idle: Option<Timestamp>,
    ) -> Attempt {
        let sleep = until.or_at(idle);
        let message = match &self.shared_parker {
            Some(shared_parker) => doze(
                clock,
                shared_parker.parker(),
                || shared_parker.take(),
                sleep,
            ),
            None => doze(clock, seat.parker(), || seat.take_message(), sleep),
        };
        match message.map_or_else(|| self.leave(seat), Err) {
            Ok(_) if until.is_over(clock) => Attempt::TimedOut,
            Ok(word) if word.has_nobody() => Attempt::Needed,
            Ok(_) => Attempt::Idle,
            Err(Message::Close) => Attempt::Closed,
            Err(Message::Lead) => self.take_or_pass_on(clock, until),
            Err(Message::StandBy | Message::Tick) => self.stand_by(seat, clock, until),
        }
    }

    /// What an elected thread does: it takes the offer, or, if its time is over, passes it on (I4).
    pub(super) fn take_or_pass_on(&self, clock: &Clock, until: Until<'_>) -> Attempt {
        if !until.is_over(clock) {
            return self.take_offer();
        }
        self.counters.wasted_wakes.one_more();
        // OPEN: the next one is elected in the same step. HELD: there is no need.
        let _ = self.elect(|_| true, |word| word.with_elect(false));
        Attempt::TimedOut
    }

    /// The section of a parked follower whose time is over, or that was idle for long. Returns the
    /// word without it. `Err`: a message came first, and must be obeyed.
    fn leave(&self, seat: &Arc<Seat>) -> Result<Snapshot, Message> {
        let mut followers = lock(&self.followers);
        if let Withdrawal::TooLate(message) = followers.withdraw(seat) {
            return Err(message);
        }
        let parked = !followers.is_empty();
        let without = |word: Snapshot| word.with_parked(parked);
        Ok(self.word.update(|word| (without(word), without(word))))
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
                // Another thread led meanwhile (TAO's bug 173): arrive again like any other.
                _ => (word, Attempt::Overtaken),
            }
        });
        if let Attempt::Overtaken = attempt {
            self.counters.wasted_wakes.one_more();
        }
        attempt
    }

    /// The section that elects: makes `change` to the word, and in the same step elects the best
    /// follower if the lead is then open, no wake is on its way, and `guard` holds. Wakes it.
    #[cold]
    pub(super) fn elect(
        &self,
        guard: impl Fn(Snapshot) -> bool,
        change: impl Fn(Snapshot) -> Snapshot,
    ) -> Promotion {
        let mut followers = lock(&self.followers);
        let elected = self.elect_locked(&mut followers, &guard, change);
        drop(followers);
        if elected.is_none() && self.roams {
            let word = self.word.look();
            let wanted = word.is_vacant() && !word.is_closed() && guard(word);
            return self.send_for_somebody(wanted && !word.is_parked());
        }
        self.wake(elected)
    }

    /// The section of a thread that finds the lead open in a strict order, and no wake on its way:
    /// elects the best follower, or takes the lead if the order puts this thread first. Returns
    /// whether it took it.
    #[cold]
    pub(super) fn elect_or_take(&self, seat: &Seat) -> bool {
        let mut followers = lock(&self.followers);
        let took = followers.is_outranked_by(seat)
            && self.word.update(|word| {
                if word.is_vacant() && !word.is_closed() {
                    (word.taken(), true)
                } else {
                    (word, false)
                }
            });
        let elected = if took {
            None
        } else {
            self.elect_locked(&mut followers, |_| true, |word| word)
        };
        drop(followers);
        let _ = self.wake(elected);
        took
    }

    pub(super) fn elect_locked(
        &self,
        followers: &mut Followers,
        guard: impl Fn(Snapshot) -> bool,
        change: impl Fn(Snapshot) -> Snapshot,
    ) -> Option<Called> {
        let best = followers.best();
        let elected = self.word.update(|word| {
            let word = change(word);
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

    /// The eager way to open: makes `change` too, and wakes the best follower. Returns the opening.
    pub(super) fn open_eagerly(
        &self,
        change: impl Fn(Snapshot) -> Snapshot,
    ) -> (Snapshot, Promotion) {
        let opened = self.word.update(|word| {
            let next = change(word.opened());
            if word.is_parked() {
                (word, (next, None))
            } else if word.is_closed() {
                (next, (next, Some(Promotion::Closing)))
            } else {
                (next, (next, Some(Promotion::Alone)))
            }
        });
        match opened {
            (opening, Some(Promotion::Alone)) => (opening, self.left_alone(opening, true)),
            (opening, Some(promotion)) => (opening, promotion),
            (opening, None) => match self.elect(|_| true, |word| change(word.opened())) {
                // The sleeping thread left between the two steps, and found the lead held. (In
                // several sets one was sent for.)
                Promotion::LeftOpen if !self.roams => (opening, self.left_alone(opening, true)),
                promotion => (opening, promotion),
            },
        }
    }

    /// The outcome of a promotion with this opening that found no thread asleep; whether a thread
    /// is `needed`.
    fn left_alone(&self, opening: Snapshot, needed: bool) -> Promotion {
        if self.calls {
            self.call_for_somebody(opening, needed)
        } else {
            Promotion::LeftOpen
        }
    }

    /// After an adaptive promotion that changed `was` to `is`: wakes at most one thread, where it
    /// pays.
    #[inline(always)]
    pub(super) fn help(&self, was: Snapshot, is: Snapshot, needed: bool) -> Promotion {
        let is_quiet = if was.has_nobody() {
            !self.calls || (!needed && self.is_watched_from_a_idle_list(is))
        } else {
            !needed && was.standby() == Standby::Ticking
        };
        if is_quiet && !was.is_closed() {
            Promotion::LeftOpen
        } else {
            self.help_somebody(was, is, needed)
        }
    }

    /// Whether threads roam here, and the watch of their idle list looks at this opening by itself.
    /// (One that sleeps without a timer has set the mark before, in a step that found the lead
    /// held: so the opening would carry it.)
    fn is_watched_from_a_idle_list(&self, opening: Snapshot) -> bool {
        self.roams && opening.standby() != Standby::Marked
    }

    /// The same, where there may be something to do. (Apart: most turns have nothing.)
    #[inline(never)]
    fn help_somebody(&self, was: Snapshot, is: Snapshot, needed: bool) -> Promotion {
        let unwatched = was.standby() == Standby::None && was.is_parked();
        // No thread can be named on a shared parker: the one that wakes leads, and the one that
        // comes back stands by.
        let needed = needed || (unwatched && self.shared_parker.is_some());
        match was.standby() {
            _ if was.is_closed() => Promotion::Closing,
            // A wake is on its way.
            _ if was.is_elected() => Promotion::LeftOpen,
            _ if was.has_nobody() => self.left_alone(is, needed),
            _ if needed => self.elect(|word| word.sequence() == is.sequence(), |word| word),
            Standby::Deep => self.rouse_standby(),
            Standby::None if unwatched => self.appoint_standby(),
            _ => Promotion::LeftOpen,
        }
    }
}

/// As what a thread asks that arrives.
fn taker(seat: &Seat) -> Taker {
    if seat.is_bound() {
        Taker::Bound
    } else {
        Taker::Anyone
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
