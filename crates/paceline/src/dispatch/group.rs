//! Groups: several handles, one handler, one ownership. The two connections of a proxied session
//! are never handled by two threads at once, and a handle may go from group to group.
//!
//! ```text
//!   a handle of its own:   line -> claim the handle            -> handler
//!   a member:              line -> queue at the group, claim it -> handler, with all members
//! ```
//!
//! A group is a registration without a descriptor. Its entry ([`Grouped`]) has the handler and the
//! members with their sources, so the owner of the group owns them all. A member's own slot has its
//! readiness, its time and a place in a list; its owner word only says which list it is in.
//!
//! A thread that claims a member queues it at its group and notifies that (`registry/members.rs`).
//! A visit of the group serves one member; if more wait it goes to the end of the line, as every
//! handle does.
//!
//! **A move** takes the member out of one group and puts it into the [`Inbox`] of the other, with
//! the slot's new group in the same step. It takes no ownership of the other group, so it never
//! waits. A member that was queued at the group which it has left is sent on by that one.

mod grouped;
mod inbox;
mod member;
mod members;
mod roster;

use std::{
    fmt, io,
    sync::{Arc, Weak},
};

pub(crate) use self::member::{too_late, Opens, Outcome};
pub use self::members::Members;
pub(super) use self::{
    grouped::Grouped,
    inbox::Inbox,
    member::{Begins, Member, Opening},
    roster::{HandedOver, Roster},
};
use super::{
    handle::{Handle, HandleId, Key},
    handler::{Closed, Interest, Next},
    overdue::Overdue,
    provenance::Accepted,
    registry::Registry,
    Context, HandlerKind, Rejected,
};
use crate::handle_set::Source;

/// The application's service for several handles at once.
///
/// Whatever happens to any of them, one thread at a time runs the handler, and may use them all.
pub trait GroupHandler<S>: Send + 'static {
    /// Something may be done at the member that `cx` is for. [`Next`] and an error are about this
    /// member alone: see [`EventHandler::ready`](super::EventHandler::ready). The others are to be
    /// had from `members`.
    ///
    /// # Errors
    /// An error closes this member.
    fn ready(&mut self, cx: &mut Context<'_, S>, members: &mut Members<'_, S>) -> io::Result<Next>;

    /// The kind of its calls, if it is not that of its type: see
    /// [`Pool::handler_kind`](crate::Pool::handler_kind). Asked once.
    fn kind(&self) -> Option<HandlerKind> {
        None
    }

    /// A member is there: registered, accepted, connected or moved here. Called once for it, before
    /// everything else; if it brought kept output along, when that is sent (or at once, if it reads
    /// meanwhile).
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

    /// A thread called [`Group::notify`]. Several notifications before this call are one.
    fn notified(&mut self, members: &mut Members<'_, S>) {
        let _ = members;
    }

    /// A time of a member is over: see [`EventHandler::overdue`](super::EventHandler::overdue). By
    /// default it fails with `TimedOut`, which closes this member.
    ///
    /// # Errors
    /// As [`EventHandler::overdue`](super::EventHandler::overdue).
    fn overdue(
        &mut self,
        cx: &mut Context<'_, S>,
        what: Overdue,
        members: &mut Members<'_, S>,
    ) -> io::Result<Next> {
        let _ = (cx, what, members);
        Err(io::ErrorKind::TimedOut.into())
    }

    /// A member is closed, or could not be connected; its source is dropped right afterwards.
    /// Called exactly once, on the handler of the group that it is in then.
    fn closed(&mut self, member: &Handle, why: Closed, members: &mut Members<'_, S>) {
        let _ = (member, why, members);
    }

    /// The last member is gone: closed, or moved away. [`Next::Close`] ends the group too, and is
    /// what happens by default. Anything else: it waits for its next member. (One that never had a
    /// member waits for its first.)
    fn deserted(&mut self) -> Next {
        Next::Close
    }

    /// The group has ended; nothing will be called after this.
    fn ended(&mut self, why: Closed) {
        let _ = why;
    }
}

impl<S, F> GroupHandler<S> for F
where
    F: FnMut(&mut Context<'_, S>, &mut Members<'_, S>) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Context<'_, S>, members: &mut Members<'_, S>) -> io::Result<Next> {
        self(cx, members)
    }
}

/// What became of a move from outside: see [`Group::adopt`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is a member of this group now.
    Moved,
    /// Some thread has the group that it is in: ask again, or have that group's handler do it
    /// ([`Members::move_to`]).
    Busy,
}

/// A group in a pool: a key to it, as a [`Handle`] is to a registration. Dropping it changes
/// nothing: a group ends when its last member is gone, when it is [closed](Self::close), or with
/// the pool.
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

    /// Gives `source` to the pool, as a member of this group. [`GroupHandler::joined`] is called
    /// first.
    ///
    /// # Errors
    /// Gives `source` back: `NotFound` if the group has ended; otherwise as
    /// [`Pool::register`](crate::Pool::register).
    pub fn register(&self, source: S, interest: Interest) -> Result<Handle, Rejected<S>>
    where
        S: Source,
    {
        self.register_as(source, interest, Begins::Open)
    }

    /// The same for a connection that was accepted.
    pub(crate) fn register_accepted(
        &self,
        source: S,
        accepted: Accepted,
    ) -> Result<Handle, Rejected<S>>
    where
        S: Source,
    {
        self.register_as(source, Interest::READ, Begins::Accepted(accepted))
    }

    /// The same for a source that opens by itself.
    pub(crate) fn register_opening(&self, source: S, opens: Opens<S>) -> Result<Handle, Rejected<S>>
    where
        S: Source,
    {
        self.register_as(source, Interest::WRITE, Begins::Opening(opens))
    }

    fn register_as(
        &self,
        source: S,
        interest: Interest,
        begins: Begins<S>,
    ) -> Result<Handle, Rejected<S>>
    where
        S: Source,
    {
        match self.registry.upgrade() {
            Some(registry) => registry.register_member(self, source, interest, begins),
            None => Err(Rejected::new(source, self.ended("register"))),
        }
    }

    /// Moves a member of another group here, from anywhere. Its interest, its times and output that
    /// is kept come along. It never waits.
    ///
    /// # Errors
    /// `NotFound` if the handle is closed or this group has ended; `InvalidInput` if it is a member
    /// of no group, of another pool, or has another type of source. It stays where it is then.
    pub fn adopt(&self, member: &Handle) -> io::Result<Adoption> {
        match self.registry.upgrade() {
            Some(registry) => registry.adopt(self, member),
            None => Err(self.ended("adopt")),
        }
    }

    /// Has [`GroupHandler::notified`] called.
    ///
    /// # Errors
    /// `NotFound` if the group has ended.
    pub fn notify(&self) -> io::Result<()> {
        self.ask("notify", Inbox::ask_to_notify)
    }

    /// Ends the group: no member joins any more, its members are closed one after the other
    /// ([`Closed::Requested`]; their kept output is dropped), and then it ends. The call does not
    /// wait for that.
    ///
    /// # Errors
    /// `NotFound` if the group has ended.
    pub fn close(&self) -> io::Result<()> {
        self.ask("close", Inbox::ask_to_end)
    }

    /// The name of this group in texts of errors, and for the hook of panics.
    #[must_use]
    pub fn id(&self) -> HandleId {
        HandleId::new(self.key)
    }

    fn ask(&self, attempted: &str, request: impl FnOnce(&Inbox<S>)) -> io::Result<()> {
        request(&self.inbox);
        let registry = self.registry.upgrade();
        match registry.map(|registry| registry.notify(self.key)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended(attempted)),
        }
    }

    /// The error that it has ended.
    pub(super) fn ended(&self, attempted: &str) -> io::Error {
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
