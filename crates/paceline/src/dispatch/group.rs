//! Groups: several handles, one handler, one ownership. The two connections of a proxied session are never handled by two
//! threads at once, and a handle may go from group to group.
//!
//! ```text
//!   a handle of its own:   line -> claim the handle            -> handler
//!   a member:              line -> queue at the group, claim it -> handler, with all members
//! ```
//!
//! A group is a registration without a descriptor. Its entry ([`Grouped`]) has the handler and the members with their
//! sources, so whoever owns the group owns them all. A member's own slot has its readiness, its time and a place in a
//! list; its owner word only says which list it is in.
//!
//! Who claims a member queues it at its group and notifies that (`registry/members.rs`). A visit of the group serves one
//! member; if more wait it goes to the end of the line, as every handle does.
//!
//! **A move** takes the member out of one group and puts it into the [`Inbox`] of the other, with the slot's new group in
//! the same step. It takes no ownership of the other group, so it never waits. A member that was queued at the group
//! which it has left is sent on by that one.

mod grouped;
mod inbox;
mod members;
mod roster;

use std::{
    fmt, io,
    os::fd::AsRawFd,
    sync::{Arc, Weak},
    time::Duration,
};

pub use self::members::Members;
pub(super) use self::{
    grouped::Grouped,
    inbox::{Inbox, Member},
    roster::{HandedOver, Roster},
};
use super::{
    handle::{Handle, HandleId, Key},
    handler::{Closed, Interest, Next},
    registry::Registry,
    Context, Rejected,
};

/// The application's service for several handles at once.
///
/// Whatever happens to any of them, one thread at a time is told, and may use them all.
pub trait GroupHandler<S>: Send + 'static {
    /// Something may be done at the member that `cx` is for. [`Next`] and an error are about this member alone: see
    /// [`EventHandler::ready`](super::EventHandler::ready). The others are to be had from `members`.
    ///
    /// # Errors
    /// An error closes this member.
    fn ready(&mut self, cx: &mut Context<'_, S>, members: &mut Members<'_, S>) -> io::Result<Next>;

    /// A member is there: registered, accepted, connected or moved here. Called once for it, before everything else;
    /// output that it brought along is sent before.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    fn joined(
        &mut self,
        cx: &mut Context<'_, S>,
        members: &mut Members<'_, S>,
    ) -> io::Result<Next> {
        let _ = (cx, members);
        Ok(Next::Continue)
    }

    /// Somebody called [`Group::notify`]. Several notifications before this call are one.
    fn notified(&mut self, members: &mut Members<'_, S>) {
        let _ = members;
    }

    /// A member is closed, or could not be connected; its source is dropped right afterwards. Told exactly once, by
    /// the group that it is in then.
    fn closed(&mut self, member: &Handle, why: Closed, members: &mut Members<'_, S>) {
        let _ = (member, why, members);
    }

    /// The last member is gone. Whether the group ends with it; by default it does. (One that never had a member waits
    /// for its first.)
    fn deserted(&mut self) -> bool {
        true
    }

    /// The group has ended; nothing will be called after this.
    fn ended(&mut self, why: Closed) {
        let _ = why;
    }
}

/// What became of a move.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is a member of the other group now.
    Moved,
    /// Some thread has the group that it is in: ask again, or have that group's handler do it
    /// ([`Members::move_to`]).
    Busy,
}

/// A group in a pool: a key to it, as a [`Handle`] is to a registration.
pub struct Group<S> {
    registry: Weak<Registry>,
    key: Key,
    inbox: Arc<Inbox<S>>,
}

impl<S: Send + 'static> Group<S> {
    pub(super) fn new(registry: Weak<Registry>, key: Key, inbox: Arc<Inbox<S>>) -> Self {
        Self {
            registry,
            key,
            inbox,
        }
    }

    /// Gives `source` to the pool, as a member of this group. [`GroupHandler::joined`] is told first.
    ///
    /// # Errors
    /// Gives `source` back: `NotFound` if the group has ended; otherwise as [`Pool::register`](crate::Pool::register).
    pub fn register(&self, source: S, interest: Interest) -> Result<Handle, Rejected<S>>
    where
        S: AsRawFd,
    {
        self.admit(source, interest, Opening::Open)
    }

    /// The same, for a source that may have to be opened first.
    pub(crate) fn admit(
        &self,
        source: S,
        interest: Interest,
        opening: Opening<S>,
    ) -> Result<Handle, Rejected<S>>
    where
        S: AsRawFd,
    {
        match self.registry.upgrade() {
            Some(registry) => registry.register_member(self, source, interest, opening),
            None => Err(Rejected::new(source, self.over("register"))),
        }
    }

    /// Moves a member of another group here, from anywhere. Its interest, its time-out and output that is kept come
    /// along. It never waits.
    ///
    /// # Errors
    /// `NotFound` if the handle is closed or this group has ended; `InvalidInput` if it is a member of no group, of
    /// another pool, or has another type of source. It stays where it is then.
    pub fn adopt(&self, member: &Handle) -> io::Result<Moved> {
        match self.registry.upgrade() {
            Some(registry) => registry.adopt(self, member),
            None => Err(self.over("adopt")),
        }
    }

    /// Has [`GroupHandler::notified`] called.
    ///
    /// # Errors
    /// `NotFound` if the group has ended.
    pub fn notify(&self) -> io::Result<()> {
        self.ask("notify", Inbox::ask_for_call)
    }

    /// Ends the group: its members are closed one after the other ([`Closed::Requested`]; their kept output is dropped),
    /// and then it ends. It does not wait for that.
    ///
    /// # Errors
    /// `NotFound` if the group has ended.
    pub fn close(&self) -> io::Result<()> {
        self.ask("close", Inbox::ask_for_end)
    }

    /// The name of this group in reports.
    #[must_use]
    pub fn id(&self) -> HandleId {
        HandleId::new(self.key)
    }

    fn ask(&self, attempted: &str, request: impl FnOnce(&Inbox<S>)) -> io::Result<()> {
        request(&self.inbox);
        let registry = self.registry.upgrade();
        match registry.map(|registry| registry.notify(self.key)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.over(attempted)),
        }
    }

    pub(super) fn over(&self, attempted: &str) -> io::Error {
        let text = format!("{attempted}: group {} has ended already", self.id());
        io::Error::new(io::ErrorKind::NotFound, text)
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn inbox(&self) -> &Inbox<S> {
        &self.inbox
    }

    pub(super) fn is_of(&self, registry: &Registry) -> bool {
        std::ptr::eq(self.registry.as_ptr(), registry)
    }
}

impl<S> Clone for Group<S> {
    fn clone(&self) -> Self {
        Self {
            registry: Weak::clone(&self.registry),
            key: self.key,
            inbox: Arc::clone(&self.inbox),
        }
    }
}

/// The same group of the same pool.
impl<S> PartialEq for Group<S> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inbox, &other.inbox)
    }
}

impl<S> Eq for Group<S> {}

impl<S> fmt::Debug for Group<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group")
            .field(&HandleId::new(self.key))
            .finish()
    }
}

/// How a member begins.
pub(crate) enum Opening<S> {
    /// It is open.
    Open,
    /// It opens by itself, within this time: it is asked when it can be written to. "Would block": not yet.
    Within(Duration, fn(&S) -> io::Result<()>),
}
