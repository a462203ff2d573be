//! Who is in a group, who waits there for a visit, and how somebody leaves.

use std::collections::VecDeque;

use super::{
    super::{handle::Key, handler::Closed, registry::Registry},
    Group, Member,
};

/// The members of a group, and those that wait for a visit.
pub(in crate::dispatch) struct Roster<S> {
    pub(super) group: Group<S>,
    pub(super) members: Vec<Member<S>>,
    /// Slots of members that wait for a visit: their owner words say QUEUED. Some may be members of another group by now.
    pub(super) waiting: VecDeque<u32>,
    /// It had a member since it was last asked what becomes of it without one.
    pub(super) was_inhabited: bool,
    /// Why all members are to be closed, if they are.
    pub(super) ending: Option<Reason>,
}

/// Why a group ends before its members do.
#[derive(Clone, Debug)]
pub(super) enum Reason {
    Requested,
    Panicked(String),
}

impl Reason {
    pub(super) fn closed(&self) -> Closed {
        match self {
            Self::Requested => Closed::Requested,
            Self::Panicked(message) => Closed::Panicked(message.clone()),
        }
    }
}

impl<S: Send + 'static> Roster<S> {
    pub(super) fn new(group: Group<S>) -> Self {
        Self {
            group,
            members: Vec::new(),
            waiting: VecDeque::new(),
            was_inhabited: false,
            ending: None,
        }
    }

    /// Takes in whoever has come. If the group is ending, so are they.
    pub(super) fn take_in(&mut self, registry: &Registry) {
        let known = self.members.len();
        self.group.inbox.take_newcomers(&mut self.members);
        self.was_inhabited |= self.members.len() > known;
        if self.ending.is_some() {
            close_all(&self.members[known..], registry);
        }
    }

    /// From here on every member is to be closed, for this reason unless there is another.
    pub(super) fn end(&mut self, reason: Reason, registry: &Registry) {
        if self.ending.is_none() {
            self.ending = Some(reason);
            close_all(&self.members, registry);
        }
    }

    /// The member with this key leaves the roster.
    pub(in crate::dispatch) fn take(&mut self, key: Key) -> Option<Member<S>> {
        let at = self.position(key)?;
        Some(self.members.swap_remove(at))
    }

    pub(super) fn put(&mut self, member: Member<S>) {
        self.members.push(member);
    }

    pub(super) fn position(&self, key: Key) -> Option<usize> {
        self.members.iter().position(|member| member.key == key)
    }

    /// Whether a member is known to the inbox alone and nobody is there to take it in.
    pub(super) fn is_awaited(&self) -> bool {
        self.members.is_empty() && self.group.inbox.has_newcomers()
    }

    /// Has the member with this key, if it is one, become one of another group.
    pub(in crate::dispatch) fn hand_over(
        &mut self,
        key: Key,
        to: &Group<S>,
        registry: &Registry,
    ) -> HandedOver {
        self.take_in(registry);
        let Some(member) = self.take(key) else {
            return HandedOver::NotHere;
        };
        match registry.pass_to(to, member) {
            Ok(()) => HandedOver::Done,
            Err(member) => {
                self.put(member);
                HandedOver::Refused
            }
        }
    }
}

/// What became of a member that was to be handed over.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dispatch) enum HandedOver {
    Done,
    /// It is not a member here.
    NotHere,
    /// The other group has ended; it is a member here.
    Refused,
}

fn close_all<S>(members: &[Member<S>], registry: &Registry) {
    for member in members {
        registry.ask_to_close(member.key);
    }
}
