//! How registrations end: on request, by themselves, or with the pool.

use std::collections::HashSet;

use super::{
    super::{
        entry::{Ending, Entry, Undone, Verdict},
        frames,
        handle::{HandleId, Key},
        handler::Closed,
        readiness::{Stale, State},
        slot::Owned,
    },
    Registry, ACCEPTING, DRAINING, SHUT,
};
use crate::sync::{atomic::Ordering, lock};

/// Why an end was not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dispatch) enum NotWaited {
    /// The registration is over.
    Stale,
    /// The caller is its own handler.
    InOwnHandler,
}

/// A slot that was let go by the holder of the lead after the end of the pool. When this is dropped,
/// after the lead, the registration ends.
#[must_use]
pub(crate) struct Remains<'r> {
    pub(super) registry: &'r Registry,
    pub(super) index: u32,
}

impl Drop for Remains<'_> {
    fn drop(&mut self) {
        self.registry.sweep(self.index);
    }
}

impl Registry {
    /// Ends a registration: here and now if it is idle, else by the thread that has it.
    pub(in crate::dispatch) fn close(&self, key: Key) -> Result<(), Stale> {
        let slot = self.slots.get(key.index).ok_or(Stale)?;
        let before = slot.readiness.request_close(key.generation)?;
        let is_shut = self.phase() == SHUT;
        // After the end of the pool nobody takes it off its list any more.
        if is_shut {
            self.sweep(key.index);
        }
        if before.is_closing() {
            return Err(Stale);
        }
        if is_shut {
            return Ok(());
        }
        // Between the two steps its owner may have ended it, and the slot may have a new one.
        match self.slots.try_own(key.index) {
            None => {}
            Some(owned) if owned.key() == key && owned.slot().group().is_none() => {
                self.end(owned, Closed::Requested);
            }
            // Of another; or of a member, which is ended by its group.
            Some(owned) => self.let_go(owned),
        }
        Ok(())
    }

    /// Ends a registration and waits until its handler and source are dropped. If somebody else has asked
    /// for its end, or it is ending already, that is waited for.
    pub(in crate::dispatch) fn close_and_wait(&self, key: Key) -> Result<(), NotWaited> {
        if self.is_in_frame(key) {
            return Err(NotWaited::InOwnHandler);
        }
        if self.close(key).is_err() && self.is_over(key) {
            return Err(NotWaited::Stale);
        }
        self.endings.wait_until(|| self.is_over(key));
        Ok(())
    }

    /// Whether the handler of a registration, or of its group, runs on this thread.
    fn is_in_frame(&self, key: Key) -> bool {
        let address = self.address();
        let group = || self.slot_of(key).ok()?.group();
        frames::contains(address, key)
            || group().is_some_and(|group| frames::contains(address, group))
    }

    /// Whether nothing is left of a registration. It begins to end before its key goes stale.
    fn is_over(&self, key: Key) -> bool {
        let slot = self.slots.get(key.index);
        let is_stale = slot.is_none_or(|slot| slot.readiness.look().generation() != key.generation);
        is_stale && !self.endings.contains(key)
    }

    /// Accepts no more registrations; lets the others end when they have nothing left to do.
    pub(crate) fn drain(&self) {
        let _ =
            self.phase
                .compare_exchange(ACCEPTING, DRAINING, Ordering::AcqRel, Ordering::Relaxed);
        for (index, slot) in self.slots.iter() {
            if slot.readiness.drain().needs_visit() {
                self.signal_from_outside(index);
            }
        }
        self.set.wake();
    }

    /// Whether a drain has nothing left to wait for.
    pub(crate) fn is_drained(&self) -> bool {
        self.phase() != ACCEPTING
            && self.live.load(Ordering::Acquire) <= self.excused.load(Ordering::Acquire)
    }

    /// A handler that runs on this thread waits for the drain: its own handle is not waited for.
    pub(crate) fn excuse_own_frames(&self) {
        let mut keys = lock(&self.excused_keys);
        // Each registration once: several threads may be inside of a concurrent one. And the members of a group, which
        // can't end before its handler returns.
        keys.extend(self.own_keys());
        self.excused.swap(keys.len(), Ordering::AcqRel);
        drop(keys);
        self.set.wake();
    }

    /// How many handles are with handlers that run on this thread, one inside the other.
    pub(crate) fn own_handles(&self) -> usize {
        self.own_keys().len()
    }

    /// The registrations whose handlers run on this thread, and the members of groups among them.
    fn own_keys(&self) -> HashSet<Key> {
        let mut keys: HashSet<_> = frames::keys(self.address()).into_iter().collect();
        if !keys.is_empty() {
            keys.extend(self.members_of(&keys));
        }
        keys
    }

    /// Ends everything: idle handles by this thread, busy ones by their own when their handler
    /// returns.
    pub(crate) fn shut(&self) {
        self.phase.swap(SHUT, Ordering::AcqRel);
        let indices: Vec<u32> = self.slots.iter().map(|(index, _)| index).collect();
        indices.into_iter().for_each(|index| self.sweep(index));
    }

    /// What was lost at the end of the pool since this was last asked, and how many registrations have not ended. Of
    /// these two, each is in one.
    pub(crate) fn left_undone(&self) -> (LeftUndone, usize) {
        let mut lost = lock(&self.lost);
        (std::mem::take(&mut *lost), self.live())
    }

    /// How a registration ends whose end was asked for.
    pub(in crate::dispatch) fn verdict_on_request(&self, seen: State) -> Verdict {
        match self.phase() {
            SHUT => Verdict::CloseByForce,
            _ if seen.is_timed_out() => {
                self.counters.timed_out.one_more();
                Verdict::close(Closed::TimedOut)
            }
            _ => Verdict::close(Closed::Requested),
        }
    }

    /// Ends the registration in a slot at the end of all, if no handler runs there; of a member, its group.
    pub(super) fn sweep(&self, index: u32) {
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let generation = slot.readiness.look().generation();
        let _ = slot.readiness.request_close(generation);
        if let Some(group) = slot.group() {
            self.sweep(group.index);
            return;
        }
        if let Some(owned) = self.slots.sweep(index) {
            self.end_by_force(owned);
        }
    }

    /// Ends a registration that was not done, and lists it.
    pub(in crate::dispatch) fn end_by_force(&self, owned: Owned<'_>) {
        self.end_and_list(owned, Closed::Shutdown, true);
    }

    /// Ends a registration.
    pub(in crate::dispatch) fn end(&self, owned: Owned<'_>, why: Closed) {
        self.end_and_list(owned, why, false);
    }

    /// The end of a registration: out of the set, out of the slot, told, dropped. In this order: when
    /// `closed` is told, the key is stale and the slot free; the descriptor is closed last.
    fn end_and_list(&self, mut owned: Owned<'_>, why: Closed, by_force: bool) {
        let (key, is_due) = (owned.key(), owned.readiness().look().is_notified());
        let mut entry = owned.with_entry(Option::take);
        if let Some(entry) = &mut entry {
            self.endings.begin(key);
            let dissolved = self.in_frame(Some(key), || entry.dissolve(self));
            dissolved.unwrap_or_else(|panic| self.tell_panic(key, &panic));
            if let Some(descriptor) = entry.descriptor() {
                entry.leave_set();
                let _ = self.set.remove(descriptor);
            }
        }
        self.empty(owned);
        if let Some(entry) = entry {
            let end = End {
                key,
                is_handle: entry.descriptor().is_some(),
                loss: Loss::of(entry.as_ref(), key, &why, by_force, is_due),
                why,
            };
            if let Some((ending, end)) = entry.part(end) {
                self.finish(ending, end);
            }
        }
    }

    /// Nobody uses it any more: tells the end, drops everything, and counts it out.
    pub(in crate::dispatch) fn finish(&self, ending: Box<dyn Ending + '_>, end: End) {
        let (key, loss) = (end.key, end.loss);
        self.take_leave(ending, key, end.why, end.is_handle);
        self.count_out(loss);
        self.endings.finish(key);
        self.wake_drain();
    }

    /// There is one registration less: a drain may have waited for that.
    pub(super) fn wake_drain(&self) {
        // A change of the word, so that of this step and `drain` the second one sees the first: else
        // this thread could miss the drain, and the leader that `live` is zero.
        if self.phase.fetch_or(0, Ordering::AcqRel) != ACCEPTING {
            self.set.wake();
        }
    }

    /// Makes the key stale, then forgets its point in time, and only then gives the slot to others.
    pub(super) fn empty(&self, owned: Owned<'_>) {
        owned.readiness().retire();
        self.timers.forget(owned.pin());
        self.clear_out(owned);
    }

    /// Gives a slot to others whose key is stale, and which has no point in time any more.
    pub(super) fn clear_out(&self, owned: Owned<'_>) {
        owned.slot().leave_home();
        owned.leave_group();
        self.send_on_waiting(owned.slot());
        // After the end it may still be in a list, so it is not used again.
        if self.phase() != SHUT {
            self.slots.vacate(owned);
        }
    }

    /// Tells the end, and drops everything.
    fn take_leave(&self, mut ending: Box<dyn Ending + '_>, key: Key, why: Closed, is_handle: bool) {
        // Of tasks nobody has heard.
        if is_handle {
            self.tell_closed(key, &why, ending.provenance());
        }
        let told = self.in_frame(Some(key), || ending.closed(why));
        told.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        let frame = frames::enter(self.address(), Some(key));
        let dropped = ending.dismantle();
        frame.leave();
        for part in dropped {
            part.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        }
    }

    /// One registration less; one more in the list, if something was lost with it. Both under the lock, so that
    /// `left_undone` finds it in exactly one of the two.
    pub(super) fn count_out(&self, loss: Option<Loss>) {
        let lost = loss.map(|loss| {
            let mut lost = lock(&self.lost);
            lost.note(loss);
            lost
        });
        self.live.fetch_sub(1, Ordering::AcqRel);
        drop(lost);
    }
}

/// What was lost at the end of the pool.
#[derive(Debug, Default)]
pub(crate) struct LeftUndone {
    /// Handles that were ended by force, with the output that was kept.
    pub(crate) handles: Vec<(HandleId, usize)>,
    /// Posted work, and timers that were due, that was not done.
    pub(crate) posts: usize,
    /// Timers that were not due.
    pub(crate) timers: usize,
    /// Items that were accepted and not handled.
    pub(crate) items: usize,
}

/// The end of a registration that is out of its slot.
pub(in crate::dispatch) struct End {
    pub(super) key: Key,
    pub(super) why: Closed,
    /// Whether it is a handle, and no task.
    pub(super) is_handle: bool,
    pub(super) loss: Option<Loss>,
}

/// What was lost with one registration.
pub(super) enum Loss {
    Handle(HandleId, usize),
    Post,
    Timer,
    Items(usize),
}

impl Loss {
    /// At the end of the pool a handle is lost if it was ended by force; what it kept would have been sent otherwise. Work
    /// is lost if it was not done, however it ended. And items are, whatever the reason is.
    fn of(entry: &dyn Entry, key: Key, why: &Closed, by_force: bool, is_due: bool) -> Option<Self> {
        match entry.undone() {
            Undone::Items(0) => None,
            Undone::Items(count) => Some(Self::Items(count)),
            _ if !matches!(why, Closed::Shutdown) => None,
            Undone::Output(unsent) => by_force.then(|| Self::Handle(HandleId::new(key), unsent)),
            Undone::Post => Some(Self::Post),
            Undone::Timer if is_due => Some(Self::Post),
            Undone::Timer => Some(Self::Timer),
            Undone::Nothing => None,
        }
    }
}

impl LeftUndone {
    fn note(&mut self, loss: Loss) {
        match loss {
            Loss::Handle(id, unsent) => self.handles.push((id, unsent)),
            Loss::Post => self.posts += 1,
            Loss::Timer => self.timers += 1,
            Loss::Items(count) => self.items += count,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::super::{Limits, Registry};
    use crate::{
        dispatch::{Context, Hooks, Interest, Next},
        simulated::Simulation,
    };

    /// What the end of the pool takes stays in the list that it is in. A registration that came through the
    /// door just before the end, and finds its slot after it, is not given that one: it would be in two lists.
    #[test]
    fn slots_of_the_end_are_not_used_again() {
        let world = Simulation::new(1);
        let limits = Limits {
            read_budget: 1,
            output_limit: 1,
            nesting: 1,
            post_limit: 1,
            idle_timeout: None,
        };
        let set = world.set().unwrap();
        let clock = world.clock_of_pool();
        let registry = Registry::new(set, clock, limits, Hooks::default(), Arc::default());
        let (stream, _peer) = world.stream();
        let handler = |_: &mut Context<'_, _>| Ok(Next::Continue);
        registry.register(stream, Interest::READ, handler).unwrap();
        registry.shut();
        let next = registry.slots.take_vacant().unwrap();
        assert_eq!(next.key().index, 1, "the first one has had its time");
    }
}
