//! How registrations end: on request, by themselves, or with the pool.

use std::{collections::HashSet, os::fd::RawFd};

use super::{
    super::{
        deferred::{self, Nesting, When},
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

/// A slot that was let go by the holder of the lead after the end of the pool. When this is
/// dropped, after the lead, the registration ends.
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
        // After the end of the pool no thread takes it off its list any more.
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

    /// Ends a registration and waits until its handler and source are dropped. If another thread
    /// has asked for its end, or it is ending already, the call waits for that.
    pub(in crate::dispatch) fn close_and_wait(&self, key: Key) -> Result<(), NotWaited> {
        if self.is_in_frame(key) {
            return Err(NotWaited::InOwnHandler);
        }
        if self.close(key).is_err() && self.is_over(key) {
            return Err(NotWaited::Stale);
        }
        self.finish_deferred();
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
        // The caller waits for these ends, too.
        self.finish_deferred();
    }

    /// Whether a drain has nothing left to wait for.
    pub(crate) fn is_drained(&self) -> bool {
        self.phase() != ACCEPTING
            && self.live.load(Ordering::Acquire) <= self.excused.load(Ordering::Acquire)
    }

    /// A handler that runs on this thread waits for the drain: its own handle is not waited for.
    pub(crate) fn excuse_own_frames(&self) {
        let mut keys = lock(&self.excused_keys);
        // Each registration once: several threads may be inside of a concurrent one. And the
        // members of a group, which can't end before its handler returns.
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
        self.finish_deferred();
    }

    /// What was lost at the end of the pool since this was last asked, and how many registrations
    /// have not ended. Of these two, each is in one.
    pub(crate) fn left_undone(&self) -> (LeftUndone, usize) {
        let mut lost = lock(&self.lost);
        (std::mem::take(&mut *lost), self.live())
    }

    /// How a registration ends whose end was asked for.
    pub(in crate::dispatch) fn verdict_on_request(&self) -> Verdict {
        match self.phase() {
            SHUT => Verdict::CloseByForce,
            _ => Verdict::close(Closed::Requested),
        }
    }

    /// Ends the registration in a slot at the end of all, if no handler runs there; of a member,
    /// its group.
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

    /// The end of a registration: out of the set, out of the slot, `closed` called, dropped. In
    /// this order: when `closed` is called, the key is stale and the slot free; the descriptor is
    /// closed last.
    fn end_and_list(&self, mut owned: Owned<'_>, why: Closed, by_force: bool) {
        let (key, state) = (owned.key(), owned.readiness().look());
        let mut entry = owned.with_entry(Option::take);
        if let Some(entry) = &mut entry {
            self.endings.begin(key);
            if let Some(descriptor) = entry.descriptor() {
                entry.leave_set();
                let _ = self.set.remove(descriptor);
            }
        }
        self.empty(owned);
        if let Some(entry) = entry {
            let end = End {
                key,
                descriptor: entry.descriptor(),
                loss: Loss::of(entry.as_ref(), key, &why, by_force, state),
                why,
            };
            if let Some((ending, end)) = entry.part(end) {
                self.finish(ending, end);
            }
        }
    }

    /// Calls `closed`, drops everything, and counts the registration out: now, or after the end
    /// that this thread finishes just then. No thread uses the registration any more.
    pub(in crate::dispatch) fn finish(&self, ending: Box<dyn Ending>, end: End) {
        match deferred::enter_or_defer(self.address(), (ending, end)) {
            When::Later => {}
            When::Now((ending, end)) => {
                self.finish_now(ending, end);
                self.finish_deferred();
                deferred::leave(self.address());
            }
        }
    }

    /// The same, and never later: what is left is borrowed.
    pub(super) fn finish_at_once(&self, ending: Box<dyn Ending + '_>, end: End) {
        let nesting = deferred::enter(self.address());
        self.finish_now(ending, end);
        if nesting == Nesting::Outermost {
            self.finish_deferred();
            deferred::leave(self.address());
        }
    }

    /// Finishes what this thread has deferred. No other thread does, so a thread that waits for an
    /// end calls this before.
    fn finish_deferred(&self) {
        while let Some((ending, end)) = deferred::next(self.address()) {
            self.finish_now(ending, end);
        }
    }

    fn finish_now(&self, ending: Box<dyn Ending + '_>, end: End) {
        let End {
            key,
            why,
            descriptor,
            loss,
        } = end;
        self.take_leave(ending, key, why, descriptor);
        self.count_out(loss);
        self.endings.finish(key);
        self.wake_drain();
    }

    /// There is one registration less: a drain may have waited for that.
    pub(super) fn wake_drain(&self) {
        // A change of the word, so that of this step and `drain` the second one sees the first:
        // else this thread could miss the drain, and the leader that `live` is zero.
        if self.phase.fetch_or(0, Ordering::AcqRel) != ACCEPTING {
            self.set.wake();
        }
    }

    /// Makes the key stale, then forgets its point in time, and only then gives the slot to others.
    pub(super) fn empty(&self, owned: Owned<'_>) {
        owned.readiness().retire();
        self.timers.forget(owned.times());
        self.clear_out(owned);
    }

    /// Gives a slot to others whose key is stale, and which has no point in time any more.
    pub(super) fn clear_out(&self, owned: Owned<'_>) {
        owned.slot().leave_affinity();
        owned.leave_group();
        self.send_on_waiting(owned.slot());
        // After the end it may still be in a list, so it is not used again.
        if self.phase() != SHUT {
            self.slots.vacate(owned);
        }
    }

    /// Reports the end, and drops everything.
    fn take_leave(
        &self,
        mut ending: Box<dyn Ending + '_>,
        key: Key,
        why: Closed,
        descriptor: Option<RawFd>,
    ) {
        // Tasks have no hook.
        if descriptor.is_some() {
            self.tell_closed(key, &why, ending.provenance());
        }
        let called = self.in_frame(Some(key), || {
            ending.dissolve(self);
            ending.closed(why);
        });
        called.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        if let Some(descriptor) = descriptor {
            self.hurry_close(descriptor);
        }
        let frame = frames::enter(self.address(), Some(key));
        let dropped = ending.dismantle();
        frame.leave();
        for part in dropped {
            part.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        }
    }

    /// The close of a descriptor waits for nothing once the pool ends: a shutdown has a deadline
    /// (S1), and a drop does not wait (S3). It comes after `closed`, which may set the option
    /// itself.
    fn hurry_close(&self, descriptor: RawFd) {
        if self.phase() != ACCEPTING {
            self.set.close_at_once(descriptor);
        }
    }

    /// One registration less; one more in the list, if something was lost with it. Both under the
    /// lock, so that `left_undone` finds it in exactly one of the two.
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
    /// Handles that were ended by force.
    pub(crate) handles: Vec<LostHandle>,
    /// Posted work, and timers that were due, that was not done.
    pub(crate) posts: usize,
    /// Timers that were not due.
    pub(crate) timers: usize,
    /// Items that were accepted and not handled.
    pub(crate) items: usize,
}

/// A handle that was ended by force, and what was lost with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostHandle {
    pub(crate) handle: HandleId,
    /// Bytes of output that were kept.
    pub(crate) unsent: usize,
    /// Something waited for its handler.
    pub(crate) unhandled: bool,
}

impl LostHandle {
    /// A handle with so much kept output whose word said this. Its source was asked whether input
    /// is `unread`.
    pub(in crate::dispatch) fn new(
        key: Key,
        unsent: usize,
        state: State,
        unread: Option<bool>,
    ) -> Self {
        Self {
            handle: HandleId::new(key),
            unsent,
            unhandled: state.has_unhandled(unread),
        }
    }
}

/// The end of a registration that is out of its slot.
pub(in crate::dispatch) struct End {
    pub(super) key: Key,
    pub(super) why: Closed,
    /// What is closed with it; `None` if it is a task, and no handle.
    pub(super) descriptor: Option<RawFd>,
    pub(super) loss: Option<Loss>,
}

/// What was lost with one registration.
pub(super) enum Loss {
    Handle(LostHandle),
    Post,
    Timer,
    Items(usize),
}

impl Loss {
    /// At the end of the pool a handle is lost if it was ended by force; what it kept would have
    /// been sent otherwise. Work is lost if it was not done, however it ended. And items are,
    /// whatever the reason is.
    fn of(entry: &dyn Entry, key: Key, why: &Closed, by_force: bool, state: State) -> Option<Self> {
        match entry.undone() {
            Undone::Items(0) => None,
            Undone::Items(count) => Some(Self::Items(count)),
            _ if !matches!(why, Closed::Shutdown) => None,
            Undone::Output(unsent) => {
                let lost = || LostHandle::new(key, unsent, state, entry.has_unread());
                by_force.then(|| Self::Handle(lost()))
            }
            Undone::Post => Some(Self::Post),
            Undone::Timer if state.is_notified() => Some(Self::Post),
            Undone::Timer => Some(Self::Timer),
            Undone::Nothing => None,
        }
    }
}

impl LeftUndone {
    fn note(&mut self, loss: Loss) {
        match loss {
            Loss::Handle(lost) => self.handles.push(lost),
            Loss::Post => self.posts += 1,
            Loss::Timer => self.timers += 1,
            Loss::Items(count) => self.items += count,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::super::{Limits, Registry};
    use crate::{
        dispatch::{Context, Hooks, Interest, Next},
        simulated::Simulation,
    };

    /// What the end of the pool takes stays in the list that it is in. A registration that came
    /// through the door just before the end, and finds its slot after it, is not given that one: it
    /// would be in two lists.
    #[test]
    fn slots_of_the_end_are_not_used_again() {
        let world = Simulation::new(1);
        let limits = Limits {
            read_budget: 1,
            output_limit: 1,
            unread_calls: u32::MAX,
            nesting: 1,
            post_limit: 1,
            idle_timeout: None,
            linger_time: Duration::ZERO,
            linger_limit: 0,
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
