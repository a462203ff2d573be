//! Tasks, and what happens to registrations when their time has come.

use std::time::Duration;

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
    timer::{earliest, Purpose, Set, TimeLimits, Times},
};

/// The wheel looks again at a handle that is in use after its idle time-out, but not more often
/// than this.
const SHORTEST: Duration = Duration::from_millis(10);

/// A timer that comes later than this, in milliseconds, is late. The system's waits count in
/// milliseconds too.
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
                Ok(self.put_in_place_until(owned, Box::new(task), at))
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
                Ok(self.put_in_place_until(owned, Box::new(task), at))
            }
        }
    }

    /// Sets the idle time-out of a registration, or clears it.
    pub(in crate::dispatch) fn set_timeout(
        &self,
        key: Key,
        idle: Option<Duration>,
    ) -> Result<(), Stale> {
        let slot = self.slot_of(key)?;
        if idle.is_some() {
            slot.times.note_use(self.now());
        }
        let (exists, fixed) = (|| is_of(slot, key), || is_fixed(slot));
        let (times, key) = (&slot.times, key.to_bits());
        self.heed(self.timers.set_idle(times, key, idle, exists, fixed))
    }

    /// Sets the deadline of a registration, or clears it.
    pub(in crate::dispatch) fn set_deadline(
        &self,
        key: Key,
        within: Option<Duration>,
    ) -> Result<(), Stale> {
        let slot = self.slot_of(key)?;
        let at = within.map(|within| self.now().after(within));
        let (exists, fixed) = (|| is_of(slot, key), || is_fixed(slot));
        let (times, key) = (&slot.times, key.to_bits());
        self.heed(self.timers.set_deadline(times, key, at, exists, fixed))
    }

    /// The same for the handler of the registration, which owns it.
    pub(in crate::dispatch) fn set_own_deadline(&self, key: Key, within: Option<Duration>) {
        let slot = self.slots.get(key.index);
        if let Some(slot) = slot.filter(|slot| !is_fixed(slot)) {
            let at = within.map(|within| self.now().after(within));
            let set = self.timers.set_own_deadline(&slot.times, key.to_bits(), at);
            // Its registration is not over.
            let _ = self.heed(set);
        }
    }

    /// Sets the deadline of an owned handle whose end is bounded: no caller moves it any more.
    pub(in crate::dispatch) fn fix_deadline(&self, key: Key, within: Duration) {
        let (times, at) = (&self.slot(key).times, self.now().after(within));
        let set = self
            .timers
            .set_deadline(times, key.to_bits(), Some(at), || true, || false);
        // Its registration is not over.
        let _ = self.heed(set);
    }

    /// The same for its idle time-out.
    pub(in crate::dispatch) fn fix_timeout(&self, key: Key, idle: Duration) {
        let times = &self.slot(key).times;
        times.note_use(self.now());
        let set = self
            .timers
            .set_idle(times, key.to_bits(), Some(idle), || true, || false);
        // Its registration is not over.
        let _ = self.heed(set);
    }

    /// Clears it if it is still this one.
    pub(in crate::dispatch) fn clear_own_deadline(&self, key: Key, at: Timestamp) {
        if let Some(times) = self.times_of(key) {
            self.timers.clear_own_deadline(times, at);
        }
    }

    /// Sets both times of an owned registration.
    pub(super) fn limit_times(&self, owned: &Owned<'_>, limits: TimeLimits) {
        if !limits.is_unlimited() {
            let times = owned.times();
            times.note_use(self.now());
            let set = self.timers.limit(times, owned.key().to_bits(), limits);
            let set = self.heed(set);
            debug_assert!(set.is_ok(), "an owned registration exists");
        }
    }

    /// The limits of a connection that is accepted now.
    pub(in crate::dispatch) fn limits_of(&self, accepted: &Accepted) -> TimeLimits {
        TimeLimits {
            deadline: None,
            idle: accepted.idle_timeout.unwrap_or(self.limits.idle_timeout),
        }
    }

    /// As `put_in_place`, for a timer that is called at `at`. That is set while this thread owns
    /// the slot: what comes of it waits until the entry is in place.
    fn put_in_place_until(&self, owned: Owned<'_>, entry: Box<dyn Entry>, at: Timestamp) -> Handle {
        let set = self.call_at(owned.key(), at);
        debug_assert!(set.is_ok(), "an owned registration exists");
        self.put_in_place(owned, entry)
    }

    /// Has a timer called at this point.
    pub(in crate::dispatch) fn call_at(&self, key: Key, at: Timestamp) -> Result<(), Stale> {
        let slot = self.slot_of(key)?;
        let exists = || is_of(slot, key);
        self.heed(self.timers.call_at(&slot.times, key.to_bits(), at, exists))
    }

    /// After a point in time was set: a leader that would sleep over it is woken.
    fn heed(&self, set: Set) -> Result<(), Stale> {
        match set {
            Set::Over => return Err(Stale),
            Set::Later => {}
            Set::Earliest if self.is_open() => self.set_alarm(),
            Set::Earliest => {
                if let Pushed::WakeLeader = self.returned.nudge() {
                    self.set.wake();
                }
            }
        }
        Ok(())
    }

    /// Something happens at a registration that may have an idle time-out. (If it is over, its
    /// slot's next one is put off a little.)
    pub(in crate::dispatch) fn note_use(&self, key: Key) {
        if let Some(times) = self.times_of(key) {
            times.note_use(self.now());
        }
    }

    pub(in crate::dispatch) fn times_of(&self, key: Key) -> Option<&Times> {
        self.slots.get(key.index).map(|slot| &slot.times)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.timers.now()
    }

    /// A periodic timer could not be called so often.
    pub(in crate::dispatch) fn note_missed(&self, ticks: u64) {
        self.counters.missed_ticks.add(ticks);
    }

    /// Lines up every handle whose time has come. This thread holds the lead, and has just polled
    /// the set: those reports come first, and if it has not reported everything (`batch`), no
    /// handle is taken for idle yet. Or the set has no lead.
    pub(in crate::dispatch) fn expire(&self, batch: Batch, mut enlist: impl FnMut(u32)) {
        let line = &mut enlist;
        self.timers.expire(|due, now, late| {
            let key = Key::from_bits(due.key);
            match due.purpose {
                Purpose::Call => self.call(key, late, line),
                Purpose::Look => self.look_at_times(key, now, batch, line),
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

    /// Looks at the times of a handle under the wheel's lock. If one is over, the handle is lined
    /// up; its visit judges ([`judge`](super::super::overdue::judge)). Returns when to look again.
    fn look_at_times(
        &self,
        key: Key,
        now: Timestamp,
        batch: Batch,
        line: &mut impl FnMut(u32),
    ) -> Option<Timestamp> {
        let slot = self.slots.get(key.index)?;
        slot.times.begin_look();
        let deadline = deadline_of(slot, now);
        let idle = idle_end_of(slot, now, batch);
        if deadline.is_over || idle.is_over {
            let state = slot.readiness.note_overdue(key.generation).ok()?;
            self.line_up(key, slot, state, line);
        }
        let next = earliest(deadline.look_again, idle.look_again);
        slot.times.end_look(next);
        next
    }

    /// Whether nothing happened at an owned handle for as long as its idle time-out allows.
    pub(in crate::dispatch) fn was_idle_for_too_long(&self, key: Key) -> bool {
        let Some(slot) = self.slots.get(key.index) else {
            return false;
        };
        let end = slot.times.idle().map(|span| slot.times.used().after(span));
        end.is_some_and(|end| end <= self.now()) && !slot.is_shared()
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

/// The limits of a registration that has a deadline.
pub(super) fn until(deadline: Timestamp) -> TimeLimits {
    TimeLimits {
        deadline: Some(deadline),
        idle: None,
    }
}

/// What a look at one of the times of a handle found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    is_over: bool,
    look_again: Option<Timestamp>,
}

/// A deadline is over when it has passed. From then on it is the visit's affair.
fn deadline_of(slot: &Slot, now: Timestamp) -> Found {
    let deadline = slot.times.deadline();
    let is_over = deadline.is_some_and(|at| at <= now);
    Found {
        is_over,
        look_again: deadline.filter(|_| !is_over),
    }
}

/// An idle handle is over so long after it was last used. One that is in use is looked at again
/// later.
fn idle_end_of(slot: &Slot, now: Timestamp, batch: Batch) -> Found {
    let Some(span) = slot.times.idle() else {
        return Found::default();
    };
    let end = slot.idle_since().map(|since| since.after(span));
    let is_over = end.is_some_and(|end| end <= now) && batch == Batch::Whole;
    let later = now.after(span.max(SHORTEST));
    let look_again = match end {
        Some(end) if end > now => end,
        // The set has more to report.
        Some(_) if !is_over => now,
        _ => later,
    };
    Found {
        is_over,
        look_again: Some(look_again),
    }
}

/// Whether the pool bounds the end of a handle: its times stay as they are.
fn is_fixed(slot: &Slot) -> bool {
    slot.readiness.look().is_leaving()
}

/// Whether the slot still belongs to this registration.
fn is_of(slot: &Slot, key: Key) -> bool {
    slot.readiness.look().generation() == key.generation
}
