//! A group's entry: its handler, its members, and one visit.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use super::{
    super::{
        claim::{do_what_is_due, publish_sending, Due},
        context::{Afterwards, Origin},
        entry::{Called, Done, Ending, Entry, Undone, Verdict},
        handle::{Handle, Key},
        handler::{Closed, Next},
        kind::{Kind, Part, RoomForPart},
        provenance::Provenance,
        readiness::State,
        readiness_guard::ReadinessGuard,
        registry::{End, LostHandle, Registry},
        slot::Owned,
    },
    inbox::Shut,
    members::NoDuty,
    roster::Reason,
    Group, GroupHandler, Member, Members, Roster,
};
use crate::unwind::{caught, drop_each};

/// A group's handler, and its members.
pub(in crate::dispatch) struct Grouped<S, H> {
    handler: H,
    roster: Roster<S>,
    kind: Arc<Kind>,
    /// The part of the last call that was of another kind.
    part: RoomForPart,
}

/// One visit of a group.
struct Visit<'v> {
    registry: &'v Registry,
    origin: Origin<'v>,
    afterwards: &'v mut Afterwards,
}

impl<S, H> Grouped<S, H>
where
    S: Send + 'static,
    H: GroupHandler<S>,
{
    pub(in crate::dispatch) fn new(handler: H, group: Group<S>, kind: Arc<Kind>) -> Self {
        Self {
            handler,
            roster: Roster::new(group),
            kind,
            part: RoomForPart::default(),
        }
    }

    /// PoolRef the first member that waits. Returns whether the handler was called.
    fn visit_next(&mut self, visit: &mut Visit<'_>) -> bool {
        while let Some(index) = self.roster.queue.pop_front() {
            let Some(owned) = visit.registry.own_member(index) else {
                continue;
            };
            match self.roster.take(owned.key()) {
                None => visit.registry.send_on(owned),
                Some(member) => return self.visit_member(owned, member, visit),
            }
        }
        false
    }

    fn visit_member(
        &mut self,
        owned: Owned<'_>,
        mut member: Box<Member<S>>,
        visit: &mut Visit<'_>,
    ) -> bool {
        let (registry, readiness) = (visit.registry, owned.readiness());
        let guard = ReadinessGuard::claim(readiness, registry.read_budget(), registry.reports());
        let seen = guard.seen;
        if seen.is_closing() {
            let own = member.channel.take_end();
            let own = own.or_else(|| Some(self.roster.ending.as_ref()?.closed()));
            let verdict = own.map_or_else(|| registry.verdict_on_request(), Verdict::close);
            self.conclude(owned, member, verdict, None, visit);
            return false;
        }
        let origin = Origin {
            key: member.key,
            ..visit.origin
        };
        let mut members = Members::new(&mut self.roster, registry, origin);
        let (handler, afterwards) = (&mut self.handler, &mut *visit.afterwards);
        let work = |guard: ReadinessGuard<'_>| {
            member.work(guard, origin, afterwards, handler, &mut members)
        };
        let done = match do_what_is_due(registry, origin.key, guard, work) {
            Due::Done(done) => done,
            Due::Drained if registry.finds_news(Some(member.channel.descriptor()), readiness) => {
                Done::without_call(Verdict::Keep)
            }
            Due::Drained => Done::without_call(Verdict::close(Closed::Shutdown)),
        };
        let goes_to = members.leave(visit.afterwards);
        if done.called == Called::Specially {
            let finding = member.channel.unread(registry.unread_limit());
            registry.note_unread(member.key, self.kind.name(), finding);
            if let Some(part) = member.channel.take_part() {
                self.part.put(part);
            }
        }
        publish_sending(member.channel.sending(), readiness, seen);
        registry.note_use_of(&owned);
        self.conclude(owned, member, done.verdict, goes_to, visit);
        done.called != Called::No
    }

    /// What becomes of a member after its visit.
    fn conclude(
        &mut self,
        owned: Owned<'_>,
        member: Box<Member<S>>,
        verdict: Verdict,
        goes_to: Option<Group<S>>,
        visit: &mut Visit<'_>,
    ) {
        let why = match verdict {
            Verdict::Keep | Verdict::Move => None,
            Verdict::Finished => Some(Closed::Finished),
            Verdict::Close(why) => Some(*why),
            Verdict::Panicked(panic) => self.judge_panic(member.key, *panic, visit),
            Verdict::CloseByForce => {
                let leaver = Leaver::by_force(member, owned.readiness().look());
                visit
                    .registry
                    .take_out(leaver.key, owned, leaver.descriptor);
                return self.part_from(leaver, Closed::Shutdown, visit);
            }
        };
        match why {
            None => self.let_go(owned, member, goes_to, visit.registry),
            Some(why) => {
                let leaver = Leaver::new(member);
                visit
                    .registry
                    .take_out(leaver.key, owned, leaver.descriptor);
                self.part_from(leaver, why, visit);
            }
        }
    }

    /// The handler panicked. If that closes a handle, it closes them all.
    fn judge_panic(&mut self, key: Key, panic: String, visit: &mut Visit<'_>) -> Option<Closed> {
        visit.registry.drop_afterwards(visit.afterwards);
        let why = visit.registry.judge_panic(key, panic)?;
        if let Closed::Panicked(message) = &why {
            let reason = Reason::Panicked(message.clone());
            self.roster.end(reason, visit.registry);
        }
        Some(why)
    }

    /// Puts a member back: into the roster, or into the group that it goes to.
    fn let_go(
        &mut self,
        owned: Owned<'_>,
        member: Box<Member<S>>,
        goes_to: Option<Group<S>>,
        registry: &Registry,
    ) {
        // A member that is about to end ends here.
        let goes_to = goes_to.filter(|_| !member.channel.is_finishing());
        let stays = match goes_to {
            None => Err(member),
            Some(group) => registry.pass_to(&group, member).inspect_err(|_| {
                // The handler believes that it is gone.
                owned.readiness().greet();
            }),
        };
        match stays {
            Ok(()) => registry.let_go(owned),
            Err(mut member) => {
                let again = registry.let_go_member(owned, &mut member.channel);
                self.roster.queue.extend(again);
                self.roster.put(member);
            }
        }
    }

    /// Reports the end of a member that is out of the roster, and out of its slot.
    fn part_from(&mut self, leaver: Leaver<S>, why: Closed, visit: &mut Visit<'_>) {
        let registry = visit.registry;
        let ending = MemberEnding {
            handle: Handle::new(Weak::clone(visit.origin.registry), leaver.key),
            source: leaver.source,
            provenance: leaver.provenance,
            handler: &mut self.handler,
            members: Members::new(&mut self.roster, registry, visit.origin),
            afterwards: visit.afterwards,
        };
        let Leaver {
            key,
            descriptor,
            lost,
            ..
        } = leaver;
        registry.finish_member(Box::new(ending), key, why, descriptor, lost);
    }

    /// Calls `notified`.
    fn call_notified(&mut self, visit: &mut Visit<'_>) {
        let mut members = Members::new(&mut self.roster, visit.registry, visit.origin);
        let handler = &mut self.handler;
        let told = caught(|| handler.notified(&mut members));
        let _ = members.leave(visit.afterwards);
        if let Err(panic) = told {
            let _ = self.judge_panic(visit.origin.key, panic, visit);
        }
    }

    /// What becomes of the group itself. It ends if it has no member, no newcomer, and no handle
    /// that wants it.
    fn fate(&mut self, visit: &Visit<'_>) -> Verdict {
        if self.roster.members.is_empty() {
            self.roster.take_in();
        }
        if !self.roster.members.is_empty() {
            return Verdict::Keep;
        }
        let why = match &self.roster.ending {
            Some(reason) => reason.closed(),
            None if std::mem::take(&mut self.roster.was_inhabited) => match self.deserted(visit) {
                Next::Close | Next::CloseGently => Closed::Finished,
                _ => return Verdict::Keep,
            },
            None => return Verdict::Keep,
        };
        match self.roster.group.inbox().shut_if_empty() {
            Shut::Shut => Verdict::close(why),
            Shut::NotYet => Verdict::Keep,
        }
    }

    /// The last member is gone: asks the handler. One that panics does not go on alone.
    fn deserted(&mut self, visit: &Visit<'_>) -> Next {
        let handler = &mut self.handler;
        caught(|| handler.deserted()).unwrap_or_else(|panic| {
            visit.registry.tell_panic(visit.origin.key, &panic);
            Next::Close
        })
    }
}

impl<S, H> Entry for Grouped<S, H>
where
    S: Send + 'static,
    H: GroupHandler<S>,
{
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn work(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
    ) -> Done {
        let Some(registry) = origin.registry.upgrade() else {
            return Done::without_call(Verdict::Keep);
        };
        let mut visit = Visit {
            registry: &registry,
            origin,
            afterwards,
        };
        let errands = self.roster.take_letters();
        registry.take_waiting(origin.key, &mut self.roster.queue);
        if errands.end {
            self.roster.end(Reason::Requested, &registry);
        }
        if errands.notify {
            self.call_notified(&mut visit);
        }
        // Also then: constant notifications do not starve its members.
        let visited = self.visit_next(&mut visit);
        let verdict = self.fate(&visit);
        if let Verdict::Close(_) = verdict {
            // Members that still wait here have moved elsewhere.
            registry.send_on_all(&mut self.roster.queue);
        }
        if self.roster.queue.is_empty() {
            guard.settle()
        } else {
            guard.settle_and_ask_again()
        }
        Done {
            verdict,
            called: if self.part.is_taken() {
                Called::Specially
            } else {
                Called::plainly_if(visited || errands.notify)
            },
        }
    }

    fn take_part(&mut self) -> Option<Part> {
        self.part.take()
    }

    /// Members hold up a drain, as kept output does; each is ended by itself.
    fn sending(&self) -> (bool, bool) {
        let holds_up = !self.roster.members.is_empty();
        (holds_up, holds_up)
    }

    fn may_end(&mut self) -> bool {
        self.roster.take_in();
        self.roster.members.is_empty() && self.roster.group.inbox().shut_if_empty() == Shut::Shut
    }

    fn undone(&self) -> Undone {
        Undone::Nothing
    }

    fn roster(&mut self) -> Option<&mut dyn Any> {
        Some(&mut self.roster)
    }

    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)> {
        Some((self, end))
    }
}

impl<S, H> Ending for Grouped<S, H>
where
    S: Send + 'static,
    H: GroupHandler<S>,
{
    fn dissolve(&mut self, registry: &Registry) {
        self.roster.group.inbox().shut(&mut self.roster.members);
        let key = self.roster.group.key();
        let mut afterwards = Afterwards::nothing(key);
        let mut visit = Visit {
            registry,
            origin: Origin {
                registry: registry.weak(),
                key,
                duty: &NoDuty,
            },
            afterwards: &mut afterwards,
        };
        while let Some(member) = self.roster.members.pop() {
            let state = registry.slot(member.key).readiness.look();
            let leaver = Leaver::by_force(member, state);
            registry.take_out_of_the_end(leaver.key, leaver.descriptor);
            self.part_from(leaver, Closed::Shutdown, &mut visit);
        }
        registry.run_afterwards(afterwards, &NoDuty);
    }

    fn closed(&mut self, why: Closed) {
        self.handler.ended(why);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        let Self {
            handler, roster, ..
        } = *self;
        [caught(|| drop(handler)), drop_each(roster.members)]
    }
}

/// A member that has left its group for good.
struct Leaver<S> {
    key: Key,
    descriptor: std::os::fd::RawFd,
    source: S,
    provenance: Option<Box<Provenance>>,
    /// What was lost with it, if it was ended by force.
    lost: Option<LostHandle>,
}

impl<S: 'static> Leaver<S> {
    fn new(member: Box<Member<S>>) -> Self {
        let (key, descriptor) = (member.key, member.channel.descriptor());
        let (source, provenance) = member.channel.into_source();
        Self {
            key,
            descriptor,
            source,
            provenance,
            lost: None,
        }
    }

    fn by_force(member: Box<Member<S>>, state: State) -> Self {
        let (key, channel) = (member.key, &member.channel);
        let lost = || LostHandle::new(key, channel.unsent(), state, channel.has_unread());
        let lost = (!channel.is_lingering()).then(lost);
        Self {
            lost,
            ..Self::new(member)
        }
    }
}

/// What is left of a member at its end.
struct MemberEnding<'g, S, H> {
    handle: Handle,
    source: S,
    provenance: Option<Box<Provenance>>,
    handler: &'g mut H,
    members: Members<'g, S>,
    afterwards: &'g mut Afterwards,
}

impl<S, H> Ending for MemberEnding<'_, S, H>
where
    S: Send + 'static,
    H: GroupHandler<S>,
{
    fn provenance(&self) -> Option<&Provenance> {
        self.provenance.as_deref()
    }

    fn closed(&mut self, why: Closed) {
        self.handler.closed(&self.handle, why, &mut self.members);
        self.members.leave_work(self.afterwards);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        let Self {
            source,
            members,
            provenance,
            ..
        } = *self;
        // If the handler panicked there is work that no thread will do.
        let dropped = [drop_each(members.into_work()), caught(|| drop(source))];
        // A connection counts until its source is dropped.
        drop(provenance);
        dropped
    }
}
