//! One call of a group's handler: whichever member it is for, every member can be used.

use std::io;

use paceline::{Context, Group, Handle, HandleId, Members, Next};

use super::sockets::Stream;

/// One call of a group's handler.
pub(crate) struct Call<'a, 'c, 'g> {
    /// The member that the call is for; `None`: it is for the group.
    subject: Option<(&'a mut Context<'c, Stream>, HandleId)>,
    members: &'a mut Members<'g, Stream>,
    /// What becomes of the member that the call is for.
    next: Next,
}

impl<'a, 'c, 'g> Call<'a, 'c, 'g> {
    /// A call that is about a member.
    pub(crate) fn for_member(
        cx: &'a mut Context<'c, Stream>,
        members: &'a mut Members<'g, Stream>,
    ) -> Self {
        let id = cx.handle().id();
        Self {
            subject: Some((cx, id)),
            members,
            next: Next::Continue,
        }
    }

    /// A call that is about the group.
    pub(crate) fn for_group(members: &'a mut Members<'g, Stream>) -> Self {
        Self {
            subject: None,
            members,
            next: Next::Continue,
        }
    }

    /// The member that the call is for.
    pub(crate) fn subject(&self) -> Option<HandleId> {
        self.subject.as_ref().map(|(_, id)| *id)
    }

    /// Uses a member: its source on loan.
    ///
    /// # Errors
    /// What `using` returns; `NotFound` if it is no member.
    pub(crate) fn with<R>(
        &mut self,
        member: &Handle,
        using: impl FnOnce(&mut Context<'_, Stream>) -> io::Result<R>,
    ) -> io::Result<R> {
        match &mut self.subject {
            Some((cx, id)) if *id == member.id() => using(cx),
            _ => self.members.with(member, using),
        }
    }

    /// Closes a member when its kept output is sent. A client gets its last words even if it sends
    /// on.
    pub(crate) fn finish(&mut self, member: &Handle) {
        if self.subject() == Some(member.id()) {
            self.next = Next::CloseGently;
        } else {
            // One that is closed already needs no end.
            let _ = self.members.finish(member);
        }
    }

    /// Closes a member at once.
    pub(crate) fn close(&mut self, member: &Handle) {
        if self.subject() == Some(member.id()) {
            self.next = Next::Close;
        } else {
            let _ = member.close();
        }
    }

    /// Asks for another call for this member, after the others had their turn.
    pub(crate) fn again(&mut self, member: &Handle) {
        if self.subject() != Some(member.id()) {
            // If it is over, nothing is left to do.
            let _ = member.notify();
        } else if self.next == Next::Continue {
            self.next = Next::Again;
        }
    }

    /// Closes the member that this call is for.
    pub(crate) fn finish_subject(&mut self) {
        self.next = Next::Close;
    }

    /// Moves a member to another group.
    ///
    /// # Errors
    /// The other group has ended, or it is no member here.
    pub(crate) fn move_to(&mut self, member: &Handle, group: &Group<Stream>) -> io::Result<()> {
        self.members.move_to(member, group)
    }

    /// Whether it is a member here.
    pub(crate) fn has(&self, member: &Handle) -> bool {
        self.subject() == Some(member.id()) || self.members.handles().any(|other| other == *member)
    }

    pub(crate) fn group(&self) -> Group<Stream> {
        self.members.group()
    }

    pub(crate) fn members(&mut self) -> &mut Members<'g, Stream> {
        self.members
    }

    /// Whether another thread should lead meanwhile: a computation follows.
    pub(crate) fn wake_follower(&self) {
        if let Some((cx, _)) = &self.subject {
            cx.wake_follower();
        }
    }

    /// What the handler returns.
    pub(crate) fn next(self) -> Next {
        self.next
    }
}
