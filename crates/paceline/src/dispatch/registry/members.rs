//! Groups and their members: how a member finds its group, moves, and ends. See `group.rs`.

use std::{
    collections::{HashSet, VecDeque},
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{Arc, Weak},
};

use super::{
    super::{
        channel::Channel,
        entry::Ending,
        group::{
            Adoption, Begins, Group, GroupHandler, Grouped, HandedOver, Inbox, Member, Opening,
            Roster,
        },
        handle::{Handle, Key},
        handler::{Closed, Interest},
        provenance::Provenance,
        readiness::Stale,
        slot::{Owned, Slot},
        Rejected,
    },
    close::{End, Loss, LostHandle},
    time::until,
    Registry, ACCEPTING,
};
use crate::{handle_set::Source, sync::atomic::Ordering, timer::TimeLimits};

/// What [`Begins`] comes to.
type Beginning<S> = (TimeLimits, Option<Box<Provenance>>, Option<Box<Opening<S>>>);

impl Registry {
    /// Begins a group, without members.
    pub(crate) fn group<S, H>(&self, handler: H) -> Result<Group<S>, Rejected<H>>
    where
        S: Send + 'static,
        H: GroupHandler<S>,
    {
        let kind = self.kinds.chosen::<H>(handler.kind());
        match self.admit(|| self.occupy(Interest::NONE, || "group".to_owned())) {
            Err(error) => Err(Rejected::new(handler, error)),
            Ok(owned) => {
                let inbox = Arc::new(Inbox::new());
                let group = Group::new(Weak::clone(&self.me), owned.key(), inbox);
                let entry = Grouped::new(handler, group.clone(), kind);
                self.put_in_place(owned, Box::new(entry));
                Ok(group)
            }
        }
    }

    /// Begins the registration of a member.
    pub(in crate::dispatch) fn register_member<S>(
        &self,
        group: &Group<S>,
        source: S,
        interest: Interest,
        begins: Begins<S>,
    ) -> Result<Handle, Rejected<S>>
    where
        S: Source,
    {
        let descriptor = source.descriptor().as_raw_fd();
        let owned = match self.admit(|| self.begin(descriptor, interest)) {
            Ok(owned) => owned,
            Err(error) => return Err(Rejected::new(source, error)),
        };
        let key = owned.key();
        let limit = self.limits.output_limit;
        let (limits, provenance, opening) = self.beginning(begins);
        let channel = Channel::new(source, provenance, descriptor, limit);
        let member = self.new_member(&owned, channel, limits, opening);
        let join = |_: &Member<S>| owned.slot().set_group(group.key());
        match group.inbox().put(member, join) {
            Ok(()) => {
                // A drain that passed this slot before `occupy` is seen here; a later one marks it.
                if self.phase() != ACCEPTING {
                    owned.readiness().drain();
                }
                self.let_go(owned);
                Ok(self.handle(key))
            }
            Err(member) => {
                let _ = self.set.remove(descriptor);
                self.empty(owned);
                self.live.fetch_sub(1, Ordering::AcqRel);
                self.set.wake();
                let (source, _) = member.channel.into_source();
                Err(Rejected::new(source, group.ended("register")))
            }
        }
    }

    /// The limits that a member begins with, where it comes from, and how it opens.
    fn beginning<S>(&self, begins: Begins<S>) -> Beginning<S> {
        match begins {
            Begins::Open => (TimeLimits::default(), None, None),
            Begins::Accepted(accepted) => {
                let limits = self.limits_of(&accepted);
                let mut provenance = accepted.provenance;
                provenance.count_in(&self.counters);
                (limits, Some(provenance), None)
            }
            Begins::Opening(opens) => {
                let deadline = self.now().after(opens.within);
                let opening = Opening {
                    outcome: opens.outcome,
                    notified: false,
                    deadline,
                };
                let opening = Some(Box::new(opening));
                (until(deadline), Some(opens.provenance), opening)
            }
        }
    }

    /// A member that is greeted; or, if it is not open yet, when it is.
    fn new_member<S: 'static>(
        &self,
        owned: &Owned<'_>,
        channel: Channel<S>,
        limits: TimeLimits,
        opening: Option<Box<Opening<S>>>,
    ) -> Box<Member<S>> {
        let key = owned.key();
        if opening.is_none() {
            owned.readiness().greet();
        }
        self.limit_times(owned, limits);
        Box::new(Member {
            key,
            channel,
            opening,
        })
    }

    /// Moves a member of another group into this one, if no thread has that group.
    pub(in crate::dispatch) fn adopt<S>(
        &self,
        to: &Group<S>,
        member: &Handle,
    ) -> io::Result<Adoption>
    where
        S: Send + 'static,
    {
        match self.try_adopt(to, member) {
            Ok(adoption) => Ok(adoption),
            Err((kind, reason)) => {
                let (member, group) = (member.id(), to.id());
                let text = format!("move handle {member} to group {group}: {reason}");
                Err(io::Error::new(kind, text))
            }
        }
    }

    /// The same; why not, in words.
    fn try_adopt<S>(
        &self,
        to: &Group<S>,
        member: &Handle,
    ) -> Result<Adoption, (io::ErrorKind, &'static str)>
    where
        S: Send + 'static,
    {
        use io::ErrorKind::{InvalidInput, NotFound};
        let key = member
            .key_in(self)
            .ok_or((InvalidInput, "it is of another pool"))?;
        let slot = self
            .slot_of(key)
            .map_err(|Stale| (NotFound, "it is closed already"))?;
        let from = slot
            .group()
            .ok_or((InvalidInput, "it is a member of no group"))?;
        if from == to.key() {
            return Ok(Adoption::Moved);
        }
        let Some(mut owned) = self.try_own_group(from) else {
            return Ok(Adoption::Busy);
        };
        let told = owned.with_entry(|entry| {
            let roster = entry.as_mut().and_then(|entry| entry.roster());
            let roster = roster.and_then(|roster| roster.downcast_mut::<Roster<S>>());
            let roster = roster.ok_or((InvalidInput, "its source has another type"))?;
            match roster.hand_over(key, to, self) {
                HandedOver::Done => Ok(Adoption::Moved),
                HandedOver::NotHere => Ok(Adoption::Busy),
                HandedOver::Refused => Err((NotFound, "that has ended already")),
            }
        });
        if told == Ok(Adoption::Moved) {
            // It may be deserted now.
            owned.readiness().notify_self();
        }
        self.let_go(owned);
        told
    }

    /// A member goes into this group. Its handler is called for that.
    pub(in crate::dispatch) fn pass_to<S: Send + 'static>(
        &self,
        group: &Group<S>,
        member: Box<Member<S>>,
    ) -> Result<(), Box<Member<S>>> {
        let key = member.key;
        let slot = self.slot(key);
        let join = |member: &Member<S>| {
            // One that is not open yet is greeted when it is.
            if member.opening.is_none() {
                slot.readiness.greet();
            }
            slot.set_group(group.key());
        };
        group.inbox().put(member, join)?;
        // If the pool has ended meanwhile, it is ended with its new group.
        let _ = self.change(key, |word| Ok(word.look()));
        Ok(())
    }

    /// A member was claimed: queues it at its group, and owns that if no other thread has it.
    /// (Apart, so that the claim of others is short.)
    #[inline(never)]
    pub(super) fn own_group_of(&self, member: Owned<'_>, group: Key) -> Option<Owned<'_>> {
        let slot = self.slots.get(group.index)?;
        let index = member.requeue();
        let _ = slot.waiting.push(index, self.link(index));
        match slot.readiness.notify(group.generation) {
            Ok(_) => self.try_own_group(group),
            // It had moved, and its old group was deserted. Of this push and that end the second
            // one sees the first.
            Err(_) => {
                self.send_on_waiting(slot);
                None
            }
        }
    }

    /// Owns a group if no thread has it; else its owner visits it again.
    fn try_own_group(&self, group: Key) -> Option<Owned<'_>> {
        let owned = self.slots.try_own(group.index)?;
        if owned.key() == group {
            return Some(owned);
        }
        // It has ended, and the slot has a new one.
        self.let_go(owned);
        None
    }

    /// Moves every member that waits for this group to the end of its own queue.
    pub(in crate::dispatch) fn take_waiting(&self, group: Key, queue: &mut VecDeque<u32>) {
        if let Some(slot) = self.slots.get(group.index) {
            slot.waiting
                .take_all(|index| self.link(index), |index| queue.push_back(index));
        }
    }

    /// Owns a member that was queued at its group.
    pub(in crate::dispatch) fn own_member(&self, index: u32) -> Option<Owned<'_>> {
        self.slots.claim(index)
    }

    /// A member that was queued at a group which it has left: to the line, and from there to its
    /// group.
    pub(in crate::dispatch) fn send_on(&self, member: Owned<'_>) {
        self.put_back(member.requeue());
    }

    pub(in crate::dispatch) fn send_on_all(&self, queue: &mut VecDeque<u32>) {
        queue.drain(..).for_each(|index| self.put_back(index));
    }

    /// The same for members that wait at a slot whose group has ended.
    pub(super) fn send_on_waiting(&self, slot: &Slot) {
        slot.waiting
            .take_all(|index| self.link(index), |index| self.put_back(index));
    }

    /// Lets a member go that stays in its group; this thread owns that. The slot, if it is to be
    /// queued there again.
    pub(in crate::dispatch) fn let_go_member<S: 'static>(
        &self,
        mut owned: Owned<'_>,
        channel: &mut Channel<S>,
    ) -> Option<u32> {
        loop {
            let (readiness, key) = (owned.readiness(), owned.key());
            let state = readiness.look();
            if state.is_due() {
                return Some(owned.requeue());
            }
            if !state.unarmed().is_empty() {
                let descriptor = Some(channel.descriptor());
                if let Err(refusal) = self.arm_descriptor(descriptor, readiness, key, state) {
                    channel.fail(refusal);
                }
                continue;
            }
            match owned.rest() {
                Ok(()) => return None,
                Err(still_owned) => owned = still_owned,
            }
        }
    }

    /// A member was used that this visit is not for: it is visited if that is due now.
    pub(in crate::dispatch) fn look_after(&self, key: Key) {
        let slot = self.slot(key);
        if slot.times.counts_idle() {
            slot.times.note_use(self.now());
        }
        let _ = self.change(key, |word| Ok(word.look()));
    }

    /// A member was visited.
    pub(in crate::dispatch) fn note_use_of(&self, owned: &Owned<'_>) {
        if owned.times().counts_idle() {
            owned.note_use(self.now());
        }
    }

    /// The slot of a registration that this thread owns, or whose group.
    pub(in crate::dispatch) fn slot(&self, owned: Key) -> &Slot {
        let slot = self.slots.get(owned.index);
        slot.expect("what is owned has a slot")
    }

    /// A member ends: out of the set, and out of its slot.
    pub(in crate::dispatch) fn take_out(&self, key: Key, owned: Owned<'_>, descriptor: RawFd) {
        self.endings.begin(key);
        let _ = self.set.remove(descriptor);
        self.empty(owned);
    }

    /// The same at the end of the pool: its slot is not owned, and never used again.
    pub(in crate::dispatch) fn take_out_of_the_end(&self, key: Key, descriptor: RawFd) {
        self.endings.begin(key);
        let _ = self.set.remove(descriptor);
        let slot = self.slot(key);
        slot.readiness.retire();
        self.timers.forget(&slot.times);
    }

    /// Calls `closed` for a member, drops its source, and counts it out. It is listed if it is
    /// `lost` at the end of the pool.
    pub(in crate::dispatch) fn finish_member(
        &self,
        ending: Box<dyn Ending + '_>,
        key: Key,
        why: Closed,
        descriptor: RawFd,
        lost: Option<LostHandle>,
    ) {
        let end = End {
            key,
            why,
            descriptor: Some(descriptor),
            loss: lost.map(Loss::Handle),
        };
        self.finish_at_once(ending, end);
    }

    /// The members of these groups.
    pub(super) fn members_of(&self, groups: &HashSet<Key>) -> Vec<Key> {
        let members = self.slots.iter().filter(|(_, slot)| {
            let group = slot.group();
            group.is_some_and(|group| groups.contains(&group))
        });
        members
            .map(|(index, slot)| Key {
                index,
                generation: slot.readiness.look().generation(),
            })
            .collect()
    }
}
