//! The standby: the one follower that watches an open lead under the adaptive wake.
//!
//! It sleeps one tick at a time. A lead that has been open for a quarter of a tick when it checks,
//! or is as open as at its last check, is a blind pool: newest first it takes the lead itself, in
//! the other orders it elects. A lead that it sees held and unchanged twice is an idle pool: it
//! goes to **deep sleep**, without a timer, until the next promotion rouses it, so an idle pool
//! wakes no thread, ever. And a lead that moves on from check to check is a calm pool: as each
//! check costs a thread its core for a while, it checks only every fourth tick then. An opener that
//! only lacks the core on which the standby checks has it first, for a quarter of a tick
//! (`opener.rs`).
//!
//! ```text
//!  none    --> ticking   [Lead::enlist]            a thread arrives and finds none (or a mark)
//!  none    --> ticking   [Lead::appoint_standby]   a promotion finds none, and a parked thread
//!  ticking --> deep      [Lead::look_after]        held, and unchanged for two checks
//!  deep    --> ticking   [Lead::rouse_standby]     a promotion finds it in deep sleep
//!  any     --> none      [Lead::look_after]        it takes the lead
//!                        [Lead::elect_locked]      it is elected
//!                        [Lead::leave_standby]     its time is over
//!                        [Lead::close]             the pool is closed
//! ```

use std::{sync::Arc, time::Duration};

use super::{
    followers::{Called, Message, Seat, Withdrawal},
    lead::Lead,
    outcome::{Attempt, Promotion},
    policy::Wake,
    recall::{doze, Until},
    watcher::Watcher,
    word::{Snapshot, Standby},
};
use crate::sync::{atomic::Ordering, lock, Clock, Timestamp};

/// So many looks at the same held lead make an idle pool: a look costs about as much as rousing the
/// standby does.
pub(super) const LOOKS_UNTIL_DEEP: u32 = 2;
/// So many looks at a lead that had moved on make a calm pool.
pub(super) const LOOKS_UNTIL_CALM: u32 = 32;
/// A calm pool is looked at once in so many ticks.
pub(super) const CALM: u32 = 4;
/// A lead that was open for this part of a tick is open for long; an excused opener is looked at
/// again after as much.
pub(super) const LONG_OPEN: u32 = 4;

/// What the standby remembers from one look to the next.
struct Memory {
    /// The lead as it was at the last look.
    sequence: u64,
    /// How often it was held and the same.
    unchanged: u32,
    /// How often it had moved on.
    moved: u32,
    /// Its opener was left alone at the last look: it lacked only the core on which that was made.
    excused: bool,
    deep: bool,
}

impl Memory {
    fn of(word: Snapshot) -> Self {
        Self::at(word.sequence())
    }

    fn at(sequence: u64) -> Self {
        Self {
            sequence,
            unchanged: 0,
            moved: 0,
            excused: false,
            deep: false,
        }
    }

    /// The lead has moved on.
    fn note_moved(&mut self, word: Snapshot) {
        let moved = self.moved.saturating_add(1);
        *self = Self {
            moved,
            ..Self::of(word)
        };
    }

    /// The opener of this lead shall have its core first.
    fn note_excuse(&mut self, word: Snapshot) {
        *self = Self {
            moved: self.moved,
            excused: true,
            ..Self::of(word)
        };
    }

    fn is_calm(&self) -> bool {
        self.moved >= LOOKS_UNTIL_CALM
    }
}

/// What ended a standby's sleep before its time.
enum Roused {
    Message(Message),
    /// The watcher has seen the lead with this sequence open and unchanged.
    Hint(u64),
}

/// What a look led to.
enum Look {
    Took,
    /// Someone was elected, perhaps this thread.
    Elected,
    /// Its opener lacks only this core.
    Excused,
    Deep,
    Unchanged,
    Changed,
}

impl<T> Lead<T> {
    /// The longest time that the lead is open although a follower sleeps, by design: the longest
    /// pause between two checks of the standby, and half a tick.
    pub(crate) fn blind_bound(&self) -> Option<Duration> {
        let tick = self.policy.tick;
        let bound = tick.saturating_mul(CALM).saturating_add(tick / 2);
        (self.policy.wake == Wake::Adaptive).then_some(bound)
    }

    /// The life of a standby, until it leads, leaves, or is sent home.
    pub(super) fn stand_by(&self, seat: &Arc<Seat>, clock: &Clock, until: Until<'_>) -> Attempt {
        let mut memory = Memory::of(self.word.look());
        // A hint does not put the next look off.
        let mut due = None;
        loop {
            if let Some(watcher) = &self.watcher {
                watcher.rings_at(seat.parker());
            }
            let look = *due.get_or_insert_with(|| self.next_look(&memory, clock.now()));
            let sleep = until.or_at((!memory.deep).then_some(look));
            let looked = match self.sleep_until(seat, clock, sleep) {
                None | Some(Roused::Hint(_)) if until.is_over(clock) => {
                    match self.leave_standby(seat) {
                        None => return Attempt::TimedOut,
                        Some(too_late) => Err(too_late),
                    }
                }
                None => {
                    due = None;
                    self.look_after(seat, clock, &mut memory)
                }
                Some(Roused::Hint(sequence)) => self.look_for_watcher(seat, clock, sequence),
                Some(Roused::Message(message)) => Err(message),
            };
            let message = match looked {
                Ok(Look::Took) => return Attempt::Took,
                Ok(_) => None,
                Err(message) => {
                    due = None;
                    Some(message)
                }
            };
            match message {
                Some(Message::Lead) => return self.take_or_pass_on(clock, until),
                Some(Message::Close) => return Attempt::Closed,
                Some(Message::Tick | Message::StandBy) => memory = Memory::of(self.word.look()),
                None => {}
            }
        }
    }

    /// Where the watcher watches, the standby is there only for what that one may miss.
    fn next_look(&self, memory: &Memory, now: Timestamp) -> Timestamp {
        let watched = |watcher: &Watcher| watcher.is_watching(now);
        let seldom = memory.is_calm() || self.watcher.as_ref().is_some_and(watched);
        now.after(if memory.excused {
            self.policy.tick / LONG_OPEN
        } else if seldom {
            self.policy.tick.saturating_mul(CALM)
        } else {
            self.policy.tick
        })
    }

    /// Sleeps until a message comes, or a hint, or until `until`.
    fn sleep_until(&self, seat: &Arc<Seat>, clock: &Clock, until: Until<'_>) -> Option<Roused> {
        let hint = || self.watcher.as_ref().and_then(Watcher::take_hint);
        let roused = || {
            let message = seat.take_message().map(Roused::Message);
            message.or_else(|| hint().map(Roused::Hint))
        };
        doze(clock, seat.parker(), roused, until)
    }

    /// One look, a section, unless the opener is excused. `Err`: a message came first.
    fn look_after(
        &self,
        seat: &Arc<Seat>,
        clock: &Clock,
        memory: &mut Memory,
    ) -> Result<Look, Message> {
        // First the epoch: a promotion that this look does not see sees the new epoch (W1). Its
        // pair is the load in `HeldLead::promote`, after the opening; both stand beside a change of
        // the word.
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.counters.ticks.one_more();
        let now = clock.now();
        // A step, though it changes nothing: of it and an opening the second sees the first.
        let word = self.word.update(|word| (word, word));
        let would_act = self.is_blind(word, now, memory) && !word.is_elected();
        if would_act && self.opener.is_excused(word) {
            memory.note_excuse(word);
            return Ok(Look::Excused);
        }
        self.look(seat, now, memory)
    }

    /// The look that the watcher rang for: the lead was seen open with this sequence. It counts as
    /// no tick, and the next look compares with the last one.
    fn look_for_watcher(
        &self,
        seat: &Arc<Seat>,
        clock: &Clock,
        sequence: u64,
    ) -> Result<Look, Message> {
        let look = self.look(seat, clock.now(), &mut Memory::at(sequence))?;
        match look {
            Look::Took | Look::Elected => self.counters.rings.one_more(),
            Look::Deep | Look::Unchanged | Look::Changed | Look::Excused => {
                self.counters.wasted_wakes.one_more();
            }
        }
        Ok(look)
    }

    fn look(&self, seat: &Arc<Seat>, now: Timestamp, memory: &mut Memory) -> Result<Look, Message> {
        let mut followers = lock(&self.followers);
        if let Some(message) = seat.take_message() {
            return Err(message);
        }
        let look = self.word.update(|word| self.judge_look(word, now, memory));
        match look {
            Look::Took => followers.forget_standby(),
            Look::Elected => {
                memory.moved = 0;
                let elected = self.elect_locked(&mut followers, |_| true, |word| word);
                drop(followers);
                let _ = self.wake(elected);
            }
            Look::Deep => memory.deep = true,
            Look::Unchanged => memory.unchanged += 1,
            Look::Changed => memory.note_moved(self.word.look()),
            Look::Excused => {}
        }
        Ok(look)
    }

    /// What the standby does about `word`, as one step with it.
    fn judge_look(&self, word: Snapshot, now: Timestamp, memory: &Memory) -> (Snapshot, Look) {
        let same = word.sequence() == memory.sequence;
        let blind = self.is_blind(word, now, memory);
        match (same, blind) {
            (_, true) if !self.policy.is_strict() => {
                (word.taken().with_standby(Standby::None), Look::Took)
            }
            (_, true) if !word.is_elected() => (word, Look::Elected),
            (true, false) if memory.unchanged + 1 >= LOOKS_UNTIL_DEEP => {
                (word.with_standby(Standby::Deep), Look::Deep)
            }
            (true, _) => (word, Look::Unchanged),
            (false, _) => (word, Look::Changed),
        }
    }

    /// Whether the lead is open, and stays so.
    fn is_blind(&self, word: Snapshot, now: Timestamp, memory: &Memory) -> bool {
        let same = word.sequence() == memory.sequence;
        word.is_open() && (same || self.is_open_for_long(word, now))
    }

    /// Whether the lead has been open for a while. (The time may be that of an older opening, or of
    /// the next one: a check that errs takes a lead too early, or leaves it to the next check.)
    ///
    /// The checkers do without it: the bound of two looks must hold by itself.
    pub(super) fn is_open_for_long(&self, word: Snapshot, now: Timestamp) -> bool {
        if cfg!(any(loom, shuttle)) {
            return false;
        }
        let open = Duration::from_nanos(self.opened.nanos_before(now));
        word.is_vacant() && open >= self.policy.tick / LONG_OPEN
    }

    /// The section of a standby whose time is over: if the lead is open, a successor is elected
    /// (I3).
    fn leave_standby(&self, seat: &Arc<Seat>) -> Option<Message> {
        let mut followers = lock(&self.followers);
        if let Withdrawal::TooLate(message) = followers.withdraw(seat) {
            return Some(message);
        }
        let without = |word: Snapshot| word.with_standby(Standby::None);
        let elected = self.elect_locked(&mut followers, |_| true, without);
        drop(followers);
        let _ = self.wake(elected);
        None
    }

    /// An opening found the standby in deep sleep: it shall tick again. Or it found the mark of a
    /// idle list: its watch shall look.
    #[cold]
    pub(super) fn rouse_standby(&self) -> Promotion {
        let followers = lock(&self.followers);
        let before = self.word.update(|word| match word.standby() {
            Standby::Deep => (word.with_standby(Standby::Ticking), Standby::Deep),
            Standby::Marked => (word.with_standby(Standby::None), Standby::Marked),
            other => (word, other),
        });
        let standby = followers
            .standby()
            .filter(|_| before == Standby::Deep)
            .inspect(|standby| standby.post(Message::Tick));
        drop(followers);
        if before == Standby::Marked {
            self.rouse_idle_list();
            return Promotion::Watched;
        }
        self.watched_by(standby)
    }

    /// A promotion found no standby, but someone parked: that one shall watch.
    #[cold]
    pub(super) fn appoint_standby(&self) -> Promotion {
        let mut followers = lock(&self.followers);
        let best = followers.best_parked();
        let place = self.word.update(|word| {
            let may = word.standby() == Standby::None && !word.is_closed();
            match best.filter(|_| may) {
                Some(place) => {
                    let word = word.with_parked(followers.len() > 1);
                    (word.with_standby(Standby::Ticking), Some(place))
                }
                None => (word, None),
            }
        });
        let standby = place.map(|place| followers.appoint(place));
        let standby = standby.inspect(|standby| standby.post(Message::StandBy));
        drop(followers);
        self.watched_by(standby)
    }

    fn watched_by(&self, standby: Option<Called>) -> Promotion {
        match standby {
            Some(standby) => {
                self.counters.wakes.one_more();
                standby.wake();
                Promotion::Watched
            }
            None => Promotion::LeftOpen,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> Lead<T> {
    /// How long a new standby sleeps.
    pub(super) fn time_until_look(&self, clock: &Clock) -> Duration {
        let now = clock.now();
        self.next_look(&Memory::of(self.word.look()), now)
            .since(now)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::promotion::{Order, Policy, Wake};
    #[cfg(target_os = "linux")]
    use crate::sync::{beside, Number};

    fn lead(order: Order, tick: Duration) -> Lead<()> {
        let policy = Policy {
            wake: Wake::Adaptive,
            order,
            cores: 1,
            tick,
        };
        Lead::vacant((), policy, Arc::default())
    }

    /// A lead that stays open in a strict order is for the best follower; if a wake is on its way
    /// to one, there is nothing to do but to look again.
    #[test]
    fn an_offer_is_left_to_its_taker() {
        let lead = lead(Order::Oldest, Duration::from_secs(1));
        let (word, now) = (lead.word.look(), Clock::monotonic().now());
        let looks = |word| lead.judge_look(word, now, &Memory::of(word)).1;
        assert!(matches!(looks(word), Look::Elected));
        assert!(matches!(looks(word.with_elect(true)), Look::Unchanged));
    }

    /// The first two looks at a lead that is open for long, whose opener is this thread.
    #[cfg(target_os = "linux")]
    fn two_looks(opener: Number) -> [Look; 2] {
        let lead = lead(Order::Newest, Duration::ZERO).asking(true);
        lead.opener.note_thread(opener);
        let (seat, clock) = (Seat::new(0, 0), Clock::monotonic());
        let mut memory = Memory::of(lead.word.look());
        [(); 2].map(|()| {
            let look = lead.look_after(&seat, &clock, &mut memory);
            look.unwrap_or_else(|_| unreachable!("nobody has left a message"))
        })
    }

    /// An opener that only lacks this core has it first; once, so that a handler which computes for
    /// ever keeps no thread from the lead.
    #[cfg(target_os = "linux")]
    #[test]
    fn who_lacks_this_core_is_excused_once() {
        let looks = beside::computing(two_looks);
        assert!(matches!(looks, [Look::Excused, Look::Took]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn who_sleeps_is_not_excused() {
        let looks = beside::asleep(two_looks);
        assert!(matches!(looks, [Look::Took, _]));
    }

    /// The look behind an excuse comes soon, also in a calm pool; and the pool is as calm as
    /// before.
    #[test]
    fn an_excuse_is_short() {
        let lead = lead(Order::Newest, Duration::from_millis(4));
        let (word, now) = (lead.word.look(), Clock::monotonic().now());
        let mut memory = Memory::of(word);
        (0..LOOKS_UNTIL_CALM).for_each(|_| memory.note_moved(word));
        let waits = |memory: &Memory| lead.next_look(memory, now).since(now);
        assert_eq!(waits(&memory), Duration::from_millis(16));
        memory.note_excuse(word);
        assert_eq!(waits(&memory), Duration::from_millis(1));
        memory.note_moved(word);
        assert_eq!(waits(&memory), Duration::from_millis(16));
    }
}
