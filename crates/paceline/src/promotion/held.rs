//! The lead as a value: held by the leader, given away for an event, taken back after it.

use std::{cell::Cell, mem::ManuallyDrop};

use super::{
    followers::Seat,
    lead::Lead,
    outcome::Promotion,
    policy::{Judgement, Taker},
    watcher::LATE,
    word::{Marks, Snapshot, Standby},
};
use crate::{
    observe::Role,
    sync::{atomic::Ordering, Clock, Timestamp},
};

/// What belongs to the holder of the lead.
pub(super) struct Inside<T> {
    data: T,
    /// The epoch at which it was last seen that no event waits, or that every core has its thread.
    since: Epoch,
    /// How the lead was last opened for an event, until it was noted how long it was open.
    vacancy: Vacancy,
}

/// Whether the time that the lead is open is to be noted, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vacancy {
    /// No follower was asleep.
    Alone,
    BesideSleepers,
    /// The same, and its length is to be recorded.
    Recorded,
    /// It was not opened for an event, or all is noted.
    Noted,
}

impl Vacancy {
    fn beside(word: Snapshot) -> Self {
        if word.has_nobody() {
            Self::Alone
        } else {
            Self::BesideSleepers
        }
    }
}

impl<T> Inside<T> {
    pub(super) fn new(data: T) -> Self {
        Self {
            data,
            since: Epoch(0),
            vacancy: Vacancy::Noted,
        }
    }
}

/// How often a standby had looked, at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl<T> Lead<T> {
    /// The epoch now. Relaxed: only the load after an opening matters, whose pair is in
    /// `look_after`; the others may be late, and cost a look.
    fn epoch_now(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }
}

/// What the lead looks like to its holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight(Snapshot);

impl Sight {
    /// The wake is eager, or the pool is observed: the short way is not enough.
    pub(crate) fn is_special(self) -> bool {
        self.0.is_special()
    }

    /// An observer wants this thread's changes of role.
    pub(crate) fn is_observed(self) -> bool {
        self.0.is_observed()
    }
}

/// Where a thread stands after it processed an event.
#[must_use]
pub(crate) enum Rejoined<'a, T> {
    /// It took the lead.
    Leads(HeldLead<'a, T>),
    /// Another thread leads or will.
    Follows,
    /// Likewise, and this thread had called none: its handler has blocked by surprise.
    Surprised,
}

/// The lead, held: the right to wait. At most one exists per [`Lead`] (L1).
///
/// Dropping it gives the lead away to the best follower, whatever the policy (I3), so that no path
/// out of the pool can lose it (E1, E2, E17).
#[must_use]
pub(crate) struct HeldLead<'a, T> {
    lead: &'a Lead<T>,
    /// The time, if it was read and nothing was asked of the handle set since.
    now: Option<Timestamp>,
}

impl<'a, T> HeldLead<'a, T> {
    /// This thread has just made the step OPEN to HELD.
    pub(super) fn taken(lead: &'a Lead<T>, now: Timestamp) -> Self {
        let now = Some(now);
        let mut held = Self { lead, now };
        held.note_vacancy();
        held
    }

    /// The time. A clock is read only if the last reading is old.
    pub(crate) fn now(&self, clock: &Clock) -> Timestamp {
        self.now.unwrap_or_else(|| clock.now())
    }

    /// The same, and it is the time until the handle set is asked.
    pub(crate) fn keep_now(&mut self, clock: &Clock) -> Timestamp {
        *self.now.get_or_insert_with(|| clock.now())
    }

    /// Whether the last reading of a clock is not old.
    pub(crate) fn knows_time(&self) -> bool {
        self.now.is_some()
    }

    /// The handle set was asked: that takes time.
    pub(crate) fn note_poll(&mut self) {
        self.now = None;
    }

    /// Uses the data that belongs to the leader.
    pub(crate) fn with_owned<R>(&mut self, using: impl FnOnce(&mut T) -> R) -> R {
        self.with_inside(|inside| using(&mut inside.data))
    }

    /// The epoch, if the standby has looked since it was last seen that nothing waits: then it is
    /// time to see for oneself, without sleeping (W1). At most one such look that finds nothing for
    /// each of the standby's.
    pub(crate) fn overdue(&mut self) -> Option<Epoch> {
        let epoch = self.lead.epoch_now();
        let since = self.with_inside(|inside| inside.since);
        (epoch != since).then_some(epoch)
    }

    /// Nothing waited at some time after `epoch` was read.
    pub(crate) fn nothing_waited(&mut self, epoch: Epoch) {
        self.with_inside(|inside| inside.since = epoch);
    }

    /// The leader slept: what it has found has come just now.
    pub(crate) fn note_sleep(&mut self) {
        self.note_poll();
        let epoch = self.lead.epoch_now();
        self.nothing_waited(epoch);
    }

    /// What the lead looks like before it is given away.
    #[inline]
    pub(crate) fn sight(&self) -> Sight {
        Sight(self.lead.word.look())
    }

    /// Gives the lead away before processing: leader -> processing. (Inlined into both ways of a
    /// turn: the short one has no question more for the other.)
    #[inline(always)]
    pub(crate) fn promote(
        mut self,
        sight: Sight,
        marks: Marks,
        now: Timestamp,
    ) -> (Running<'a, T>, Promotion) {
        let (lead, word) = (self.lead, sight.0);
        self.with_inside(|inside| inside.vacancy = Vacancy::beside(word));
        lead.opened.set(now);
        lead.counters.promotions.one_more();
        // One question for both, which the caller has asked already.
        if sight.is_special() {
            if sight.is_observed() {
                self.record_vacancy();
            }
            if !lead.policy.is_adaptive() {
                std::mem::forget(self);
                let (opening, promotion) = lead.open_eagerly(Snapshot::one_more_running);
                let running = Running {
                    lead,
                    opening,
                    since: now,
                    expected: Cell::new(true),
                    counted: Cell::new(true),
                };
                return (running, promotion);
            }
        }
        let since = self.idle_core_since(word);
        std::mem::forget(self);
        let (was, opening) = lead.word.open_running(marks);
        // After the opening: this pairs with the standby, which raises the epoch before it looks at
        // the word. If its look does not see this opening, the new epoch is seen here.
        let starved = marks.backlog && lead.epoch_now() != since;
        let helps = (marks.computes || starved) && lead.policy.has_room(opening);
        let needed = marks.blocks || helps;
        let promotion = lead.help(was, opening, needed);
        let elected = matches!(promotion, Promotion::Elected(_));
        let running = Running {
            lead,
            opening,
            since: now,
            expected: Cell::new(marks.blocks || elected),
            counted: Cell::new(marks.runs()),
        };
        (running, promotion)
    }

    /// W1: the epoch since which there may have been an idle core and an event for it. If there is
    /// no idle core now, the next one counts from here: that is asked once for each look. (Should a
    /// thread be done just before the opening, this promotion still judges by the old epoch.)
    #[inline(always)]
    fn idle_core_since(&mut self, word: Snapshot) -> Epoch {
        let since = self.with_inside(|inside| inside.since);
        if let Some(epoch) = self.overdue().filter(|_| !self.lead.has_idle_core(word)) {
            self.nothing_waited(epoch);
        }
        since
    }

    /// Counts the time that the lead was open.
    fn note_vacancy(&mut self) {
        let noted = |inside: &mut Inside<T>| std::mem::replace(&mut inside.vacancy, Vacancy::Noted);
        let (vacancy, Some(now)) = (self.with_inside(noted), self.now) else {
            return;
        };
        match vacancy {
            Vacancy::Alone | Vacancy::BesideSleepers => {
                let (counters, span) = (&self.lead.counters, self.lead.opened.nanos_before(now));
                counters.vacancy.note(span);
                if vacancy == Vacancy::BesideSleepers {
                    counters.blindness.note(span);
                }
            }
            Vacancy::Recorded => self.note_recorded(now),
            Vacancy::Noted => {}
        }
    }

    /// The same, where the lengths of blind times are recorded.
    #[cold]
    fn note_recorded(&self, now: Timestamp) {
        let (counters, span) = (&self.lead.counters, self.lead.opened.nanos_before(now));
        counters.vacancy.note(span);
        counters.blindness.note(span);
        self.lead
            .board
            .iter()
            .for_each(|board| board.note_blind(span));
    }

    /// If this vacancy is a blind time, and these are recorded, it is.
    fn record_vacancy(&mut self) {
        let recorded = self.lead.board.is_some();
        self.with_inside(|inside| {
            if recorded && inside.vacancy == Vacancy::BesideSleepers {
                inside.vacancy = Vacancy::Recorded;
            }
        });
    }

    /// Opens the lead without an event, and sends for no thread: this one, or another that roams
    /// and is awake, checks it soon. If a thread sleeps in this set, that one is elected.
    /// `attended`: now, if it was served or polled just before.
    pub(crate) fn set_aside(self, attended: Option<Timestamp>) {
        let lead = self.lead;
        lead.opener.forget();
        // The watch counts from then: its thread has a tick for another set. Otherwise it counts
        // from the opening before.
        attended
            .iter()
            .for_each(|now| lead.opened.set(now.after(lead.policy.tick)));
        let opened = lead.word.update(|word| {
            if word.is_parked() || word.is_closed() {
                (word, None)
            } else {
                (word.opened(), Some(word.standby()))
            }
        });
        let Some(standby) = opened else {
            // Dropping it elects, or does nothing in a pool that has ended.
            return;
        };
        std::mem::forget(self);
        if let Standby::Deep | Standby::Marked = standby {
            let _ = lead.rouse_standby();
        }
    }

    fn with_inside<R>(&mut self, using: impl FnOnce(&mut Inside<T>) -> R) -> R {
        self.lead.owned.with_mut(|owned| {
            // SAFETY: this is the one `HeldLead`, borrowed exclusively, so no other reference to
            // the data exists; the pointer is valid as long as the `Lead` lives, which `'a`
            // ensures.
            using(unsafe { &mut *owned })
        })
    }
}

impl<T> Drop for HeldLead<'_, T> {
    fn drop(&mut self) {
        let _ = if self.lead.policy.is_adaptive() {
            self.lead.elect(|_| true, Snapshot::opened)
        } else {
            self.lead.open_eagerly(|word| word).1
        };
    }
}

/// A thread that processes an event, as the lead word counts it.
#[must_use]
pub(crate) struct Running<'a, T> {
    lead: &'a Lead<T>,
    /// The word after this thread opened the lead: a good guess for the way back.
    opening: Snapshot,
    /// When that was.
    since: Timestamp,
    /// That it takes long is no surprise: its kind sleeps, it has said so, a thread was elected, or
    /// the wake is eager.
    expected: Cell<bool>,
    /// Whether the word counts it as running.
    counted: Cell<bool>,
}

/// What became of an attempt to take one's own opening back.
#[must_use]
enum Retake {
    /// It is taken.
    Done,
    /// Nothing was done: the word has changed, or another thread may be preferred. The cold side
    /// judges that.
    Changed,
}

/// What a thread leaves behind that was on the list, and goes to run a handler without having
/// opened anything. Its leaving and the opening of another thread are changes of one word: the
/// second of the two sees the first. So either that one's promotion finds no thread asleep, or this
/// thread gets `Nobody` here.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A thread leads, or sleeps, or was elected; or the pool is closed.
    Somebody,
    /// The lead is open and no thread sleeps: an elastic pool can call one more.
    Nobody,
}

impl Behind {
    fn of(word: Snapshot) -> Self {
        if word.is_vacant() && word.has_nobody() && !word.is_closed() {
            Self::Nobody
        } else {
            Self::Somebody
        }
    }
}

impl<T> Lead<T> {
    /// The opener has it again.
    fn taken_back(&self, now: Timestamp) -> Rejoined<'_, T> {
        self.counters.leads_taken_back.one_more();
        Rejoined::Leads(HeldLead::taken(self, now))
    }

    /// A thread begins to process what was handed to it: it runs, and has opened nothing.
    pub(crate) fn run_handed(&self, now: Timestamp) -> (Running<'_, T>, Behind) {
        let word = self.word.update(|word| {
            let word = word.one_more_running();
            (word, word)
        });
        // Of a lead that is held: so no opening is taken for its own.
        let opening = if word.is_open() { word.taken() } else { word };
        let running = Running {
            lead: self,
            opening,
            since: now,
            expected: Cell::new(true),
            counted: Cell::new(true),
        };
        (running, Behind::of(word))
    }
}

impl<'a, T> Running<'a, T> {
    /// The word without this thread.
    fn left(&self, word: Snapshot) -> Snapshot {
        if self.counted.get() {
            word.one_less_running()
        } else {
            word
        }
    }

    /// Done processing: takes the lead if it may, without a lock and without a system call. If the
    /// order prefers a sleeping thread, that one is elected.
    #[inline]
    pub(crate) fn rejoin(self, seat: &Seat, now: Timestamp) -> Rejoined<'a, T> {
        let running = ManuallyDrop::new(self);
        match running.retake() {
            Retake::Done => running.lead.taken_back(now),
            Retake::Changed => running.step_back(seat, now),
        }
    }

    /// The handler waits for something, and its thread rejoins meanwhile, as if the handler had
    /// returned. What was its own opening may be taken back. When it is back from there it [comes
    /// back](Self::come_back).
    #[cold]
    pub(crate) fn pause(&self, seat: &Seat, now: Timestamp) -> Rejoined<'a, T> {
        self.expected.set(true);
        self.step_back(seat, now)
    }

    /// Takes its own opening back, if nothing has changed since and the policy lets it: the short
    /// way of a turn.
    #[inline(always)]
    fn retake(&self) -> Retake {
        let (lead, opening) = (self.lead, self.opening);
        // A thread that was away may be counted where it was not when it opened: then its word
        // can't be as it was.
        let is_as_counted = !self.counted.get() || opening.running() > 0;
        let may_retake = is_as_counted && lead.policy.may_retake(opening);
        if may_retake && lead.word.replace(opening, self.left(opening).taken()) {
            Retake::Done
        } else {
            Retake::Changed
        }
    }

    /// Takes the lead, or does not, whatever has happened since it was opened.
    #[inline(never)]
    fn step_back(&self, seat: &Seat, now: Timestamp) -> Rejoined<'a, T> {
        let (lead, running) = (self.lead, self);
        let surprised = lead.watcher.is_some() && self.is_late(now);
        let opener = Taker::Opener(self.opening.sequence());
        let judgement = lead.word.update(|word| {
            let word = running.left(word);
            match lead.policy.judge(word, opener) {
                Judgement::Take => (word.taken(), Judgement::Take),
                other => (word, other),
            }
        });
        match judgement {
            Judgement::Take => {}
            Judgement::Elect if lead.elect_or_take(seat) => {}
            Judgement::Follow if surprised => return Rejoined::Surprised,
            _ => return Rejoined::Follows,
        }
        lead.opener.note();
        lead.taken_back(now)
    }

    /// The handler says that it is going to block: this thread does not count as running, and no
    /// thread sleeps while its opening stays open.
    pub(crate) fn go_away(&self) {
        self.lead.show(Role::Away);
        self.expected.set(true);
        let _ = self
            .lead
            .elect(|word| self.is_own(word), |word| self.left(word));
        self.counted.set(false);
    }

    /// The handler is back.
    pub(crate) fn come_back(&self) -> Behind {
        let word = self.lead.word.update(|word| {
            let word = word.one_more_running();
            (word, word)
        });
        self.counted.set(true);
        self.lead.show(Role::Processing);
        Behind::of(word)
    }

    /// The handler says that the rest will take long.
    pub(crate) fn call_for_help(&self) {
        self.expected.set(true);
        let word = self.lead.word.look();
        if self.is_own(word) && !word.is_elected() && (!word.has_nobody() || self.lead.roams) {
            let _ = self.lead.elect(|word| self.is_own(word), |word| word);
        }
    }

    /// The rest of the handler usually sleeps, which it does not announce: the thread does not
    /// count as running until it rejoins, or [runs on](Self::run_on).
    #[cold]
    pub(crate) fn expect_sleep(&self) {
        self.call_for_help();
        if self.counted.replace(false) {
            self.lead.word.update(|word| (word.one_less_running(), ()));
        }
    }

    /// The rest of the handler keeps its core.
    #[cold]
    pub(crate) fn run_on(&self) {
        if !self.counted.replace(true) {
            self.lead.word.update(|word| (word.one_more_running(), ()));
        }
    }

    /// The rest of the handler computes for long: another thread is of use only where there is a
    /// core for it.
    #[cold]
    pub(crate) fn call_for_help_if_room(&self) {
        self.expected.set(true);
        if self.lead.policy.has_room(self.lead.word.look()) {
            self.call_for_help();
        }
    }

    /// Whether the handler took long, and it was not expected.
    fn is_late(&self, now: Timestamp) -> bool {
        !self.expected.get() && now.since(self.since) > LATE
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
            .elect(|word| self.is_own(word), |word| self.left(word));
    }
}

/// Gives a lead away in a test.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(super) fn promoted<T>(
    held: HeldLead<'_, T>,
    marks: Marks,
    now: Timestamp,
) -> (Running<'_, T>, Promotion) {
    let sight = held.sight();
    held.promote(sight, marks, now)
}
