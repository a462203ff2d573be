//! The members of a group, those that wait there for a visit, and how a member leaves.

use std::collections::VecDeque;

use super::{
    super::{handle::Key, handler::Closed, registry::Registry},
    inbox::Errands,
    Group, Member,
};

/// The members of a group, and those that wait for a visit.
pub(in crate::dispatch) struct Roster<S> {
    pub(super) group: Group<S>,
    pub(super) members: Vec<Box<Member<S>>>,
    /// Slots of members that wait for a visit: their owner words say QUEUED. Some may be members of
    /// another group by now.
    pub(super) queue: VecDeque<u32>,
    /// It had a member since it was last asked what becomes of it without one.
    pub(super) was_inhabited: bool,
    /// Why all members are to be closed, if they are.
    pub(super) ending: Option<Box<Reason>>,
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

impl<S: Send + 'static> Roster<S> {
    pub(super) fn new(group: Group<S>) -> Self {
        Self {
            group,
            members: Vec::new(),
            queue: VecDeque::new(),
            was_inhabited: false,
            ending: None,
        }
    }

    /// Takes in the newcomers, and the requests.
    pub(super) fn take_letters(&mut self) -> Errands {
        let errands = self.group.inbox().take(&mut self.members);
        self.note_inhabitants();
        errands
    }

    /// Takes in the newcomers.
    pub(super) fn take_in(&mut self) {
        self.group.inbox().take_newcomers(&mut self.members);
        self.note_inhabitants();
    }

    fn note_inhabitants(&mut self) {
        self.was_inhabited |= !self.members.is_empty();
    }

    /// From here on no member joins, and every member is to be closed, for this reason unless there
    /// is another.
    pub(super) fn end(&mut self, reason: Reason, registry: &Registry) {
        if self.ending.is_none() {
            self.ending = Some(Box::new(reason));
            self.group.inbox().shut(&mut self.members);
            for member in &self.members {
                registry.ask_to_close(member.key);
            }
        }
    }

    /// The member with this key leaves the roster.
    pub(super) fn take(&mut self, key: Key) -> Option<Box<Member<S>>> {
        let at = self.known(key)?;
        Some(self.members.swap_remove(at))
    }

    pub(super) fn put(&mut self, member: Box<Member<S>>) {
        self.members.push(member);
    }

    /// Where the member with this key is, also if it has come only now.
    pub(super) fn position(&mut self, key: Key) -> Option<usize> {
        self.known(key).or_else(|| {
            self.take_in();
            self.known(key)
        })
    }

    fn known(&self, key: Key) -> Option<usize> {
        self.members.iter().position(|member| member.key == key)
    }

    /// Has the member with this key, if it is one, become one of another group.
    pub(in crate::dispatch) fn hand_over(
        &mut self,
        key: Key,
        to: &Group<S>,
        registry: &Registry,
    ) -> HandedOver {
        let Some(at) = self.position(key) else {
            return HandedOver::NotHere;
        };
        match registry.pass_to(to, self.members.swap_remove(at)) {
            Ok(()) => HandedOver::Done,
            Err(member) => {
                self.put(member);
                HandedOver::Refused
            }
        }
    }
}
