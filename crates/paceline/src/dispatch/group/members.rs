//! What a group's handler gets: the members that its call is not about.

use std::{fmt, io};

use super::{
    super::{
        claim::{publish_sending, Duty},
        context::{Afterwards, Context, Origin, Work},
        handle::{Handle, Key},
        readiness_guard::ReadinessGuard,
        registry::Registry,
    },
    Group, HandedOver, Roster,
};
use crate::unwind::caught;

/// The members of a group, for its handler: all but the one that its call is about, which it has
/// already. Those are among them that have not [joined](super::GroupHandler::joined) yet, and those
/// whose connection does not stand yet.
pub struct Members<'g, S> {
    roster: &'g mut Roster<S>,
    registry: &'g Registry,
    /// What the call is about: a member, or the group itself.
    origin: Origin<'g>,
    /// What is to be done after the handles were given back: for others, with the one at hand.
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

    /// Uses another member: its source on loan, as its own call would have it.
    ///
    /// Returns what `using` returns: an error closes no member here, and "would block" is nothing
    /// special. Passed on by [`ready`](super::GroupHandler::ready) it closes the member that *that*
    /// call is about.
    ///
    /// # Errors
    /// What `using` says; `NotFound` if it is no other member of this group, `NotConnected` if its
    /// connection does not stand yet.
    pub fn with<R>(
        &mut self,
        member: &Handle,
        using: impl FnOnce(&mut Context<'_, S>) -> io::Result<R>,
    ) -> io::Result<R> {
        let at = self.position("use", member)?;
        if self.roster.members[at].opening.is_some() {
            let text = format!(
                "use handle {}: its connection does not stand yet",
                member.id()
            );
            return Err(io::Error::new(io::ErrorKind::NotConnected, text));
        }
        self.lend(at, using)
    }

    /// Uses each of the others in turn whose connection stands.
    pub fn each(&mut self, mut using: impl FnMut(&Handle, &mut Context<'_, S>)) {
        for at in 0..self.len() {
            let member = &self.roster.members[at];
            if member.opening.is_none() {
                let handle = self.handle(member.key);
                self.lend(at, |cx| using(&handle, cx));
            }
        }
    }

    /// Closes another member when its kept output is sent, as [`Next::Close`](crate::Next::Close)
    /// does for the one that the call is about. The handler is not called for it any more but for
    /// its end.
    ///
    /// # Errors
    /// `NotFound` if it is no other member of this group.
    pub fn finish(&mut self, member: &Handle) -> io::Result<()> {
        let at = self.position("finish", member)?;
        let member = &mut self.roster.members[at];
        match member.channel.unsent() {
            0 => {
                member.channel.end_as_finished();
                self.registry.ask_to_close(member.key);
            }
            _ => member.channel.finish(),
        }
        Ok(())
    }

    /// Moves a member to another group. Its interest, its time-out and output that is kept go with
    /// it. It never waits.
    ///
    /// The member that the call is about goes when the call is over, unless that closes it. If the
    /// other group has ended by then it stays, and [`joined`](super::GroupHandler::joined) is
    /// called for it again.
    ///
    /// # Errors
    /// `NotFound` if it is no member, or the other group has ended; `InvalidInput` if that is of
    /// another pool.
    pub fn move_to(&mut self, member: &Handle, group: &Group<S>) -> io::Result<()> {
        let refusal = |kind, reason: &str| {
            let (member, group) = (member.id(), group.id());
            io::Error::new(
                kind,
                format!("move handle {member} to group {group}: {reason}"),
            )
        };
        let over = || refusal(io::ErrorKind::NotFound, "that has ended");
        if !group.is_of(self.registry) {
            return Err(refusal(
                io::ErrorKind::InvalidInput,
                "that is of another pool",
            ));
        }
        if member.key_in(self.registry) == Some(self.origin.key) {
            if group.inbox().is_shut() {
                return Err(over());
            }
            self.goes_to = (*group != self.roster.group).then(|| group.clone());
            return Ok(());
        }
        let at = self.position("move", member)?;
        let key = self.roster.members[at].key;
        if *group == self.roster.group {
            return Ok(());
        }
        match self.roster.hand_over(key, group, self.registry) {
            HandedOver::Done => Ok(()),
            HandedOver::NotHere | HandedOver::Refused => Err(over()),
        }
    }

    /// Runs `block`, which may block: see [`Context::blocking`].
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        self.origin.duty.blocking(block)
    }

    /// The call is over: where the member goes that it was about.
    pub(super) fn leave(mut self, afterwards: &mut Afterwards) -> Option<Group<S>> {
        self.leave_work(afterwards);
        self.goes_to
    }

    /// The work that was left and is not done any more.
    pub(super) fn into_work(self) -> Vec<Work> {
        self.afterwards.work
    }

    /// Leaves the work for afterwards to another call.
    pub(super) fn leave_work(&mut self, afterwards: &mut Afterwards) {
        afterwards.work.append(&mut self.afterwards.work);
    }

    /// Lends the source of a member. Whatever `using` does, what is due there then is done.
    fn lend<R>(&mut self, at: usize, using: impl FnOnce(&mut Context<'_, S>) -> R) -> R {
        let registry = self.registry;
        let member = &mut self.roster.members[at];
        let slot = registry.slot(member.key);
        let guard =
            ReadinessGuard::aside(&slot.readiness, registry.read_budget(), registry.reports());
        let seen = guard.seen;
        let origin = Origin {
            key: member.key,
            ..self.origin
        };
        let (channel, afterwards) = (&mut member.channel, &mut self.afterwards);
        let told = caught(|| channel.lend(guard, origin, afterwards, using));
        publish_sending(channel.sending(), &slot.readiness, seen);
        registry.look_after(member.key);
        told.unwrap_or_else(|panic| std::panic::resume_unwind(Box::new(panic)))
    }

    fn position(&mut self, attempted: &str, member: &Handle) -> io::Result<usize> {
        let key = member.key_in(self.registry);
        let at = key.and_then(|key| self.roster.position(key));
        at.ok_or_else(|| {
            let (member, group) = (member.id(), self.roster.group.id());
            let text = format!("{attempted} handle {member}: it is no other member of {group}");
            io::Error::new(io::ErrorKind::NotFound, text)
        })
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

/// At the end of the pool no thread leads, so there is no lead to report to.
pub(super) struct NoDuty;

impl Duty for NoDuty {
    fn go_away(&self) {}
    fn come_back(&self) {}
    fn call_for_help(&self) {}
}
