//! A group's entry: its handler, its members, and one visit.

use std::{
    any::Any,
    sync::{Arc, Weak},
};

use super::{
    super::{
        channel::Call,
        claim::{do_what_is_due, publish_sending, Due},
        context::{Afterwards, Lent, Origin},
        entry::{Done, Ending, Entry, Undone, Verdict},
        handle::{Handle, Key},
        handler::{Closed, Interest},
        kind::Kind,
        registry::{End, Registry},
        slot::Owned,
        unwind::caught,
    },
    members::NoDuty,
    roster::Reason,
    Group, GroupHandler, Member, Members, Roster,
};

/// A group's handler, and its members.
pub(in crate::dispatch) struct Grouped<S, H> {
    handler: H,
    roster: Roster<S>,
    kind: Arc<Kind>,
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
        }
    }

    /// Visits the first member that waits. Tells whether the handler was called.
    fn visit_next(&mut self, visit: &mut Visit<'_>) -> bool {
        while let Some(index) = self.roster.waiting.pop_front() {
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
        mut member: Member<S>,
        visit: &mut Visit<'_>,
    ) -> bool {
        let (registry, readiness) = (visit.registry, owned.readiness());
        let lent = Lent::claim(readiness, registry.read_budget(), registry.reports());
        let seen = lent.seen;
        if seen.is_closing() {
            let own = member.channel.take_end();
            let own = own.or_else(|| Some(self.roster.ending.as_ref()?.closed()));
            let verdict = own.map_or_else(|| registry.verdict_on_request(seen), Verdict::Close);
            self.conclude(owned, member, verdict, None, visit);
            return false;
        }
        let origin = Origin {
            key: owned.key(),
            ..visit.origin
        };
        let mut members = Members::new(&mut self.roster, registry, origin);
        let (handler, afterwards) = (&mut self.handler, &mut *visit.afterwards);
        let work = |lent: Lent<'_>| member.work(lent, origin, afterwards, handler, &mut members);
        let done = match do_what_is_due(registry, origin.key, lent, work) {
            Due::Done(done) => done,
            Due::Drained => Done::without_call(Verdict::Close(Closed::Shutdown)),
        };
        let goes_to = members.leave(visit.afterwards);
        publish_sending(member.channel.sending(), readiness, seen);
        registry.note_use_of(&owned);
        self.conclude(owned, member, done.verdict, goes_to, visit);
        done.called
    }

    /// What becomes of a member after its visit.
    fn conclude(
        &mut self,
        owned: Owned<'_>,
        member: Member<S>,
        verdict: Verdict,
        goes_to: Option<Group<S>>,
        visit: &mut Visit<'_>,
    ) {
        let registry = visit.registry;
        match verdict {
            Verdict::Keep => self.let_go(owned, member, goes_to, registry),
            Verdict::Close(why) => self.close(Some(owned), member, why, false, visit.origin),
            Verdict::CloseByForce => {
                self.close(Some(owned), member, Closed::Shutdown, true, visit.origin);
            }
            Verdict::Panicked(panic) => match self.judge_panic(member.key, panic, visit) {
                None => self.let_go(owned, member, None, registry),
                Some(why) => self.close(Some(owned), member, why, false, visit.origin),
            },
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
        member: Member<S>,
        goes_to: Option<Group<S>>,
        registry: &Registry,
    ) {
        let refused = match goes_to {
            None => Err(member),
            Some(group) => registry.pass_to(&group, member),
        };
        match refused {
            Ok(()) => registry.let_go(owned),
            Err(mut member) => {
                let again = registry.let_go_member(owned, &mut member.channel);
                self.roster.waiting.extend(again);
                self.roster.put(member);
            }
        }
    }

    /// Ends a member, which is out of the roster. Its slot is owned, unless the pool has ended.
    fn close(
        &mut self,
        owned: Option<Owned<'_>>,
        member: Member<S>,
        why: Closed,
        by_force: bool,
        origin: Origin<'_>,
    ) {
        let Some(registry) = origin.registry.upgrade() else {
            return;
        };
        let key = member.key;
        let (descriptor, unsent) = (member.channel.descriptor(), member.channel.unsent());
        let ending = MemberEnding {
            handle: Handle::new(Weak::clone(origin.registry), key),
            source: member.channel.into_source(),
            handler: &mut self.handler,
            members: Members::new(&mut self.roster, &registry, Origin { key, ..origin }),
        };
        registry.take_out(key, owned, descriptor);
        let lost = by_force.then_some(unsent);
        registry.finish_member(Box::new(ending), key, why, lost);
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

    /// What becomes of the group itself. It ends if nobody is in it, nobody is about to be, and nobody wants it.
    fn fate(&mut self, visit: &Visit<'_>) -> Verdict {
        if !self.roster.members.is_empty() {
            return Verdict::Keep;
        }
        let why = match &self.roster.ending {
            Some(reason) => reason.closed(),
            None if std::mem::take(&mut self.roster.was_inhabited) => {
                let handler = &mut self.handler;
                let ends = caught(|| handler.deserted()).unwrap_or_else(|panic| {
                    visit.registry.tell_panic(visit.origin.key, &panic);
                    true
                });
                match ends {
                    true => Closed::Finished,
                    false => return Verdict::Keep,
                }
            }
            None => return Verdict::Keep,
        };
        match self.roster.group.inbox.shut_if_empty() {
            true => Verdict::Close(why),
            false => Verdict::Keep,
        }
    }
}

/// One visit of a group.
struct Visit<'v> {
    registry: &'v Registry,
    origin: Origin<'v>,
    afterwards: &'v mut Afterwards,
}

impl<S, H> Entry for Grouped<S, H>
where
    S: Send + 'static,
    H: GroupHandler<S>,
{
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn work(&mut self, lent: Lent<'_>, origin: Origin<'_>, afterwards: &mut Afterwards) -> Done {
        let Some(registry) = origin.registry.upgrade() else {
            return Done::without_call(Verdict::Keep);
        };
        let mut visit = Visit {
            registry: &registry,
            origin,
            afterwards,
        };
        let errands = self.roster.group.inbox.take_errands();
        self.roster.take_in(&registry);
        registry.take_waiting(origin.key, &mut self.roster.waiting);
        if errands.end {
            self.roster.end(Reason::Requested, &registry);
        }
        let called = match errands.call {
            true => {
                self.call_notified(&mut visit);
                true
            }
            false => self.visit_next(&mut visit),
        };
        let verdict = self.fate(&visit);
        match &verdict {
            // Whoever still waits has moved elsewhere.
            Verdict::Close(_) => registry.send_on_all(&mut self.roster.waiting),
            // Somebody came meanwhile, or still waits.
            _ if !self.roster.waiting.is_empty() || self.roster.is_awaited() => {
                lent.settle_and_ask_again();
                return Done { verdict, called };
            }
            _ => {}
        }
        lent.settle();
        Done { verdict, called }
    }

    /// Members hold up a drain, and each is ended by itself.
    fn sending(&self) -> (bool, bool) {
        let holds_up = !self.roster.members.is_empty();
        (holds_up, holds_up)
    }

    fn may_end(&mut self) -> bool {
        let Roster { group, members, .. } = &mut self.roster;
        group.inbox.take_newcomers(members);
        members.is_empty() && group.inbox.shut_if_empty()
    }

    fn undone(&self) -> Undone {
        Undone::Nothing
    }

    fn roster(&mut self) -> Option<&mut dyn Any> {
        Some(&mut self.roster)
    }

    fn dissolve(&mut self, registry: &Registry) {
        self.roster.group.inbox.shut(&mut self.roster.members);
        let origin = Origin {
            registry: registry.weak(),
            key: self.roster.group.key,
            duty: &NoDuty,
        };
        while let Some(member) = self.roster.members.pop() {
            self.close(None, member, Closed::Shutdown, true, origin);
        }
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
    fn closed(&mut self, why: Closed) {
        self.handler.ended(why);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        let Self {
            handler, roster, ..
        } = *self;
        [caught(|| drop(handler)), caught(|| drop(roster))]
    }
}

/// What is left of a member at its end.
struct MemberEnding<'g, S, H> {
    handle: Handle,
    source: S,
    handler: &'g mut H,
    members: Members<'g, S>,
}

impl<S, H> Ending for MemberEnding<'_, S, H>
where
    S: Send + 'static,
    H: GroupHandler<S>,
{
    fn closed(&mut self, why: Closed) {
        self.handler.closed(&self.handle, why, &mut self.members);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        let source = self.source;
        [Ok(()), caught(|| drop(source))]
    }
}

impl<S: Send + 'static> Member<S> {
    /// Does what its claimed readiness allows.
    fn work<H: GroupHandler<S>>(
        &mut self,
        lent: Lent<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        handler: &mut H,
        members: &mut Members<'_, S>,
    ) -> Done {
        let opens = &mut self.opens;
        self.channel
            .work(lent, origin, afterwards, |cx, call| match (*opens, call) {
                (Some(outcome), _) => {
                    cx.try_write(outcome)?;
                    *opens = None;
                    let handle = cx.handle();
                    // From its own handler: it is not over.
                    let _ = handle.set_interest(Interest::READ);
                    let _ = handle.clear_deadline();
                    handler.joined(cx, members)
                }
                (None, Call::Greet) => handler.joined(cx, members),
                (None, Call::Ready) => handler.ready(cx, members),
            })
    }
}
