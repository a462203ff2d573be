//! What others put before a group: members to be, and requests.

use super::super::{channel::Channel, handle::Key};
use crate::sync::{lock, Mutex};

/// One handle of a group.
pub(in crate::dispatch) struct Member<S> {
    /// Of its own slot.
    pub(in crate::dispatch) key: Key,
    pub(in crate::dispatch) channel: Channel<S>,
    /// While it is not open: how that is found out.
    pub(in crate::dispatch) opens: Option<fn(&S) -> std::io::Result<()>>,
}

/// Open until the group ends.
pub(in crate::dispatch) struct Inbox<S>(Mutex<Letters<S>>);

struct Letters<S> {
    /// `None`: the group has ended.
    newcomers: Option<Vec<Member<S>>>,
    errands: Errands,
}

/// What is asked of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errands {
    /// Its handler is to be called.
    pub(super) call: bool,
    /// It is to end.
    pub(super) end: bool,
}

impl<S> Inbox<S> {
    pub(in crate::dispatch) fn new() -> Self {
        Self(Mutex::new(Letters {
            newcomers: Some(Vec::new()),
            errands: Errands::default(),
        }))
    }

    /// Puts a member into it, and does what makes it one, in one step. Gives it back if the group has ended.
    pub(in crate::dispatch) fn put(
        &self,
        mut member: Member<S>,
        join: impl FnOnce(&mut Member<S>),
    ) -> Result<(), Member<S>> {
        let mut letters = lock(&self.0);
        match &mut letters.newcomers {
            None => Err(member),
            Some(newcomers) => {
                join(&mut member);
                newcomers.push(member);
                Ok(())
            }
        }
    }

    pub(super) fn ask_for_call(&self) {
        lock(&self.0).errands.call = true;
    }

    pub(super) fn ask_for_end(&self) {
        lock(&self.0).errands.end = true;
    }

    pub(super) fn take_errands(&self) -> Errands {
        std::mem::take(&mut lock(&self.0).errands)
    }

    pub(super) fn take_newcomers(&self, members: &mut Vec<Member<S>>) {
        if let Some(newcomers) = &mut lock(&self.0).newcomers {
            members.append(newcomers);
        }
    }

    pub(super) fn has_newcomers(&self) -> bool {
        let letters = lock(&self.0);
        letters
            .newcomers
            .as_ref()
            .is_some_and(|newcomers| !newcomers.is_empty())
    }

    /// The group ends, unless somebody has come.
    pub(super) fn shut_if_empty(&self) -> bool {
        let mut letters = lock(&self.0);
        let is_empty = letters.newcomers.as_ref().is_none_or(Vec::is_empty);
        if is_empty {
            letters.newcomers = None;
        }
        is_empty
    }

    /// The group ends, with whoever has come.
    pub(super) fn shut(&self, members: &mut Vec<Member<S>>) {
        if let Some(newcomers) = lock(&self.0).newcomers.take() {
            members.extend(newcomers);
        }
    }
}
