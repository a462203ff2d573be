//! What a group's handler gets: the members that its call is not about.

use std::{fmt, io};

use super::{
    super::{
        claim::{publish_sending, Duty},
        context::{Afterwards, Context, Lent, Origin},
        handle::{Handle, Key},
        registry::Registry,
        unwind::caught,
    },
    Group, HandedOver, Roster,
};

/// The members of a group, for its handler: all but the one that its call is about, which it has already.
pub struct Members<'g, S> {
    roster: &'g mut Roster<S>,
    registry: &'g Registry,
    /// Whom the call is about: a member, or the group itself.
    origin: Origin<'g>,
    /// What was to be done after others gave their handles back; this thread does it with its own.
    afterwards: Afterwards,
    /// Where the member goes that the call is about.
    goes_to: Option<Group<S>>,
}

impl<'g, S: Send + 'static> Members<'g, S> {
    pub(super) fn new(
        roster: &'g mut Roster<S>,
        registry: &'g Registry,
        origin: Origin<'g>,
    ) -> Self {
        Self {
            afterwards: Afterwards::nothing(origin.key),
            roster,
            registry,
            origin,
            goes_to: None,
        }
    }

    /// How many others there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.roster.members.len()
    }

    /// Whether there are no others.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The others, in no particular order.
    pub fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        let keys = self.roster.members.iter().map(|member| member.key);
        keys.map(|key| self.handle(key))
    }

    /// This group, to be kept or given to others.
    #[must_use]
    pub fn group(&self) -> Group<S> {
        self.roster.group.clone()
    }

    /// Uses another member: its source on loan, as its own call would have it. `None` if it is no member of this group,
    /// or the one that the call is about.
    ///
    /// An operation that would block, and an error, are the caller's affair here: they change nothing.
    pub fn with<R>(
        &mut self,
        member: &Handle,
        using: impl FnOnce(&mut Context<'_, S>) -> R,
    ) -> Option<R> {
        let key = self.key_of(member)?;
        let at = self.position(key)?;
        let registry = self.registry;
        let readiness = registry.readiness_of(key)?;
        let origin = Origin { key, ..self.origin };
        let lent = Lent::aside(readiness, registry.read_budget(), registry.reports());
        let seen = lent.seen;
        let channel = &mut self.roster.members[at].channel;
        // Also if it panics.
        let told = caught(|| channel.lend(lent, origin, &mut self.afterwards, using));
        publish_sending(channel.sending(), readiness, seen);
        registry.look_after(key);
        match told {
            Ok(told) => Some(told),
            Err(panic) => std::panic::resume_unwind(Box::new(panic)),
        }
    }

    /// Closes another member when its kept output is sent, as [`Next::Close`](crate::Next::Close) does.
    ///
    /// # Errors
    /// `NotFound` if it is no member, or the one that the call is about.
    pub fn finish(&mut self, member: &Handle) -> io::Result<()> {
        let at = self.key_of(member).and_then(|key| self.position(key));
        let at = at.ok_or_else(|| not_here("finish", member))?;
        let member = &mut self.roster.members[at];
        let _ = member.channel.finish();
        // Its visit finds that nothing holds it up.
        let _ = self.registry.notify(member.key);
        Ok(())
    }

    /// Moves a member to another group; the one that the call is about goes when the call is over (if that group has
    /// not ended by then). Its interest, its time-out and output that is kept go with it. It never waits.
    ///
    /// # Errors
    /// `NotFound` if it is no member, or the other group has ended; `InvalidInput` if that is of another pool.
    pub fn move_to(&mut self, member: &Handle, group: &Group<S>) -> io::Result<()> {
        if !group.is_of(self.registry) {
            let text = format!("move_to: group {} is of another pool", group.id());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let key = self.key_of(member);
        let key = key.ok_or_else(|| not_here("move_to", member))?;
        if key == self.origin.key {
            self.goes_to = (group.key() != self.roster.group.key()).then(|| group.clone());
            return Ok(());
        }
        match self.roster.hand_over(key, group, self.registry) {
            HandedOver::Done => Ok(()),
            HandedOver::NotHere => Err(not_here("move_to", member)),
            HandedOver::Refused => Err(group.over("move_to")),
        }
    }

    /// Runs `block`, which may block: see [`Context::blocking`].
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        self.origin.duty.blocking(block)
    }

    /// The call is over: where the member goes that it was about.
    pub(super) fn leave(mut self, afterwards: &mut Afterwards) -> Option<Group<S>> {
        afterwards.work.append(&mut self.afterwards.work);
        self.goes_to
    }

    fn position(&mut self, key: Key) -> Option<usize> {
        self.roster.take_in(self.registry);
        self.roster.position(key)
    }

    fn key_of(&self, member: &Handle) -> Option<Key> {
        member.key_in(self.registry)
    }

    fn handle(&self, key: Key) -> Handle {
        Handle::new(self.origin.registry.clone(), key)
    }
}

impl<S> fmt::Debug for Members<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members")
            .field("group", &self.roster.group)
            .field("others", &self.roster.members.len())
            .finish_non_exhaustive()
    }
}

fn not_here(attempted: &str, member: &Handle) -> io::Error {
    let id = member.id();
    let text = format!("{attempted}: handle {id} is no other member of this group");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// At the end of the pool nobody leads, so there is nobody to tell.
pub(super) struct NoDuty;

impl Duty for NoDuty {
    fn go_away(&self) {}
    fn come_back(&self) {}
    fn call_for_help(&self) {}
}
