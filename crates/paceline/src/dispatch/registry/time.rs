//! Tasks, and what happens to registrations when their time has come.

use std::{os::fd::RawFd, time::Duration};

use super::{
    super::{
        entry::Entry,
        handle::{Handle, Key},
        handler::Interest,
        owner::Signal,
        provenance::Accepted,
        readiness::{Stale, State},
        return_list::Pushed,
        slot::{Owned, Slot},
        task::{judged, Every, Once, TaskContext, TickContext},
        Rejected,
    },
    Registry,
};
use crate::{
    handle_set::Batch,
    sync::Timestamp,
    timer::{Cleared, Due, Purpose, Set},
};

/// Who is not idle is asked again after its time-out, but not more often than this.
const SHORTEST: Duration = Duration::from_millis(10);

/// A timer that comes later than this, in milliseconds, is late. The system's waits count in milliseconds too.
const ON_TIME: u64 = 1;

impl Registry {
    /// Has `work` done by some thread, as soon as one is free.
    pub(crate) fn post<F>(&self, work: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce(&mut TaskContext<'_>) + Send + 'static,
    {
        let admitted = self.posts.admit().and_then(|ticket| {
            let owned = self.admit(|| self.occupy(Interest::NONE, || "post".to_owned()))?;
            Ok((ticket, owned))
        });
        match admitted {
            Err(error) => Err(Rejected::new(work, error)),
            Ok((ticket, owned)) => {
                owned.readiness().notify_self();
                let task = Once::posted(work, ticket, self.kinds.of::<F>());
                self.put_in_place(owned, Box::new(task));
                self.counters.posted.one_more();
                Ok(())
            }
        }
    }

    /// Has `work` done after `span`.
    pub(crate) fn after<F>(&self, span: Duration, work: F) -> Result<Handle, Rejected<F>>
    where
        F: FnOnce(&mut TaskContext<'_>) + Send + 'static,
    {
        match self.admit(|| self.occupy(Interest::NONE, || "after".to_owned())) {
            Err(error) => Err(Rejected::new(work, error)),
            Ok(owned) => {
                let at = self.now().after(span);
                let task = Once::timer(work, self.kinds.of::<F>());
                Ok(self.put_in_place_until(owned, Box::new(task), Purpose::Call, at))
            }
        }
    }

    /// Has `work` done every `period`, for the first time after one.
    pub(crate) fn every<F>(&self, period: Duration, work: F) -> Result<Handle, Rejected<F>>
    where
        F: FnMut(&mut TickContext<'_>) + Send + 'static,
    {
        let begin = || self.occupy(Interest::NONE, || "every".to_owned());
        let admitted = judged(period).and_then(|period| Ok((period, self.admit(begin)?)));
        match admitted {
            Err(error) => Err(Rejected::new(work, error)),
            Ok((period, owned)) => {
                let at = self.now().after(period);
                let task = Every::new(work, period, at, self.kinds.of::<F>());
                Ok(self.put_in_place_until(owned, Box::new(task), Purpose::Call, at))
            }
        }
    }

    /// Sets the idle time-out of a registration, or takes it back.
    pub(in crate::dispatch) fn set_timeout(
        &self,
        key: Key,
        idle: Option<Duration>,
    ) -> Result<(), Stale> {
        let slot = self.slot_of(key)?;
        let now = self.now();
        match idle {
            None => self.clear_time(key, slot, |_| true),
            Some(span) => {
                slot.note_use(now);
                let set = self.set_time(key, Purpose::Idle(span), now.after(span));
                // After the new time, as in `clear_time`.
                slot.readiness.withdraw_question(key.generation);
                set
            }
        }
    }

    /// When a connection that is accepted now will have been idle for too long, if nothing happens there. `None`: never.
    pub(in crate::dispatch) fn time_of(&self, accepted: &Accepted) -> Option<(Purpose, Timestamp)> {
        let idle = accepted.idle_timeout.unwrap_or(self.limits.idle_timeout)?;
        Some((Purpose::Idle(idle), self.now().after(idle)))
    }

    /// A registration is to live on after its deadline. Another time that it was given meanwhile holds.
    pub(in crate::dispatch) fn clear_deadline(&self, key: Key) -> Result<(), Stale> {
        let slot = self.slot_of(key)?;
        self.clear_time(key, slot, |purpose| purpose == Purpose::Deadline)
    }

    /// Takes the point in time of a registration back, if it is for one of these purposes.
    fn clear_time(&self, key: Key, slot: &Slot, of: impl Fn(Purpose) -> bool) -> Result<(), Stale> {
        let cleared = self.timers.clear(&slot.pin, of, || is_of(slot, key));
        // After that: the wheel questions under its lock, so nobody does any more for the time that it had.
        slot.readiness.withdraw_question(key.generation);
        match cleared {
            Cleared::Done => Ok(()),
            // It may go on elsewhere, with its time.
            Cleared::Over => Err(Stale),
        }
    }

    /// As `put_in_place`, with a point in time. It is set while this thread owns the slot: what comes of it waits until
    /// the entry is in place.
    pub(super) fn put_in_place_until(
        &self,
        owned: Owned<'_>,
        entry: Box<dyn Entry>,
        purpose: Purpose,
        at: Timestamp,
    ) -> Handle {
        let set = self.set_time(owned.key(), purpose, at);
        debug_assert!(set.is_ok(), "who owns a slot has its key");
        self.put_in_place(owned, entry)
    }

    /// Sets the point in time of a registration; a leader that would sleep over it is woken.
    pub(in crate::dispatch) fn set_time(
        &self,
        key: Key,
        purpose: Purpose,
        at: Timestamp,
    ) -> Result<(), Stale> {
        let slot = self.slot_of(key)?;
        let due = Due {
            key: key.to_bits(),
            purpose,
        };
        match self.timers.set(&slot.pin, due, at, || is_of(slot, key)) {
            Set::Over => Err(Stale),
            Set::Later => Ok(()),
            Set::Earliest => {
                if self.is_open() {
                    self.set_alarm();
                } else if let Pushed::WakeLeader = self.returned.nudge() {
                    self.set.wake();
                }
                Ok(())
            }
        }
    }

    /// Something happens at a registration that may have a point in time. (If it is over, its slot's next one is put
    /// off a little.)
    pub(in crate::dispatch) fn note_use(&self, key: Key) {
        if let Some(slot) = self.slots.get(key.index) {
            slot.note_use(self.now());
            slot.readiness.withdraw_question(key.generation);
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.timers.now()
    }

    /// A periodic timer could not be called so often.
    pub(in crate::dispatch) fn note_missed(&self, ticks: u64) {
        self.counters.missed_ticks.add(ticks);
    }

    /// Lines up everything whose time has come. This thread holds the lead, and has just asked the set: what that has
    /// told comes first, and if it has not told everything (`batch`), nobody is taken for idle yet. Or nobody leads.
    pub(in crate::dispatch) fn expire(&self, batch: Batch, mut enlist: impl FnMut(u32)) {
        let line = &mut enlist;
        self.timers.expire(|due, now, late| {
            let key = Key::from_bits(due.key);
            match due.purpose {
                Purpose::Call => self.call(key, late, line),
                _ if batch == Batch::Full => Some(now),
                Purpose::Deadline => self.time_out(key, now, line, |slot| deadline_of(slot, now)),
                Purpose::Idle(span) => {
                    self.time_out(key, now, line, |slot| idle_end_of(slot, span, now))
                }
            }
        });
    }

    /// The time of a task has come.
    fn call(&self, key: Key, late: u64, line: &mut impl FnMut(u32)) -> Option<Timestamp> {
        let slot = self.slots.get(key.index)?;
        let state = slot.readiness.notify(key.generation).ok()?;
        self.note_timer(late);
        self.line_up(key, slot, state, line);
        None
    }

    /// The time of a handle has come; or it is too early, then tells another.
    fn time_out(
        &self,
        key: Key,
        now: Timestamp,
        line: &mut impl FnMut(u32),
        end: impl Fn(&Slot) -> End,
    ) -> Option<Timestamp> {
        let slot = self.slots.get(key.index)?;
        match end(slot) {
            End::AskAgain(later) => return Some(later),
            End::At(end) if end > now => return Some(end),
            End::At(_) if self.is_open() => return self.time_out_unheard(key, now, line),
            End::At(_) => {}
        }
        let state = slot.readiness.time_out(key.generation).ok()?;
        self.line_up(key, slot, state, line);
        None
    }

    /// The same where nobody leads: somebody may have been told of an event and not have noted it yet, so the
    /// descriptor is asked; a group's member is questioned, and its group, which has the descriptor, asks. It is visited
    /// either way.
    fn time_out_unheard(
        &self,
        key: Key,
        now: Timestamp,
        line: &mut impl FnMut(u32),
    ) -> Option<Timestamp> {
        let Some(mut owned) = self.slots.try_own(key.index) else {
            return Some(now.after(SHORTEST));
        };
        let readiness = owned.readiness();
        if owned.slot().group().is_some() {
            // Its descriptor is with its group. (Or it is over, and this slot another's.)
            let _ = readiness.question(key.generation);
            line(owned.requeue());
            return Some(now.after(SHORTEST));
        }
        let has_news = owned.with_entry(|entry| {
            let descriptor = entry.as_deref().and_then(Entry::descriptor);
            self.finds_news(descriptor, readiness)
        });
        let again = match has_news {
            true => Some(now.after(SHORTEST)),
            // Or it is over, and this slot another's.
            false => {
                let _ = readiness.time_out(key.generation);
                None
            }
        };
        line(owned.requeue());
        again
    }

    /// A member is visited whose time may be over: it is, if nothing is ready there. This thread owns it. (Who was used
    /// since it was questioned, or given another time, is questioned no more.)
    pub(in crate::dispatch) fn answer_question(&self, member: &Owned<'_>, descriptor: RawFd) {
        let readiness = member.readiness();
        if !self.is_open() || !readiness.look().is_questioned() {
            return;
        }
        let state = readiness.take_question();
        if !state.is_due() && !self.finds_news(Some(descriptor), readiness) {
            // This thread owns the slot, so its registration is not over.
            let _ = readiness.time_out(member.key().generation);
        }
    }

    /// Puts a handle in the line if it must be visited, and is in no list.
    pub(super) fn line_up(&self, key: Key, slot: &Slot, state: State, line: impl FnOnce(u32)) {
        if state.needs_visit() && slot.signal() == Signal::Enlist {
            line(key.index);
        }
    }

    fn note_timer(&self, late: u64) {
        self.counters.timers.one_more();
        if late > ON_TIME {
            self.counters.late_timers.one_more();
        }
    }

    pub(super) fn slot_of(&self, key: Key) -> Result<&Slot, Stale> {
        let slot = self.slots.get(key.index).ok_or(Stale)?;
        is_of(slot, key).then_some(slot).ok_or(Stale)
    }
}

/// When the time of a handle is over.
enum End {
    At(Timestamp),
    /// It is with a thread, or waits for one: what it is to be ended for may not be true any more.
    AskAgain(Timestamp),
}

/// A deadline that has come ends the handle now.
fn deadline_of(slot: &Slot, now: Timestamp) -> End {
    match slot.is_idle() {
        true => End::At(now),
        false => End::AskAgain(now.after(SHORTEST)),
    }
}

/// An idle handle ends so long after it was last used.
fn idle_end_of(slot: &Slot, span: Duration, now: Timestamp) -> End {
    match slot.idle_since() {
        Some(since) => End::At(since.after(span)),
        None => End::AskAgain(now.after(span.max(SHORTEST))),
    }
}

/// Whether the slot still belongs to this registration.
fn is_of(slot: &Slot, key: Key) -> bool {
    slot.readiness.look().generation() == key.generation
}
