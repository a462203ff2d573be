//! What others put before a group: members to be, and requests.

use super::Member;
use crate::sync::{lock, Mutex};

/// Open until the group ends.
pub(in crate::dispatch) struct Inbox<S>(Mutex<Letters<S>>);

struct Letters<S> {
    /// `None`: it is shut.
    newcomers: Option<Vec<Box<Member<S>>>>,
    errands: Errands,
}

/// What is asked of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errands {
    /// Its handler is to be called for a notification.
    pub(super) notify: bool,
    /// It is to end.
    pub(super) end: bool,
}

/// Whether an inbox could be shut.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shut {
    Shut,
    /// A newcomer is there.
    NotYet,
}

impl<S> Inbox<S> {
    pub(in crate::dispatch) fn new() -> Self {
        Self(Mutex::new(Letters {
            newcomers: Some(Vec::new()),
            errands: Errands::default(),
        }))
    }

    /// Puts a member into it, and does what makes it one, in one step. Gives it back if it is shut.
    pub(in crate::dispatch) fn put(
        &self,
        member: Box<Member<S>>,
        join: impl FnOnce(&Member<S>),
    ) -> Result<(), Box<Member<S>>> {
        match &mut lock(&self.0).newcomers {
            None => Err(member),
            Some(newcomers) => {
                join(&member);
                newcomers.push(member);
                Ok(())
            }
        }
    }

    pub(super) fn is_shut(&self) -> bool {
        lock(&self.0).newcomers.is_none()
    }

    pub(super) fn ask_to_notify(&self) {
        lock(&self.0).errands.notify = true;
    }

    pub(super) fn ask_to_end(&self) {
        lock(&self.0).errands.end = true;
    }

    /// Everything that has come: members, and what is asked.
    pub(super) fn take(&self, members: &mut Vec<Box<Member<S>>>) -> Errands {
        let mut letters = lock(&self.0);
        if let Some(newcomers) = &mut letters.newcomers {
            members.append(newcomers);
        }
        std::mem::take(&mut letters.errands)
    }

    /// Members that have come.
    pub(super) fn take_newcomers(&self, members: &mut Vec<Box<Member<S>>>) {
        if let Some(newcomers) = &mut lock(&self.0).newcomers {
            members.append(newcomers);
        }
    }

    /// The group ends, unless there is a newcomer.
    pub(super) fn shut_if_empty(&self) -> Shut {
        let mut letters = lock(&self.0);
        if letters.newcomers.as_ref().is_none_or(Vec::is_empty) {
            letters.newcomers = None;
            Shut::Shut
        } else {
            Shut::NotYet
        }
    }

    /// No member joins any more but the newcomers.
    pub(super) fn shut(&self, members: &mut Vec<Box<Member<S>>>) {
        if let Some(newcomers) = lock(&self.0).newcomers.take() {
            members.extend(newcomers);
        }
    }
}
