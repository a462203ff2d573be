//! Threads that wait inside a handler for something that is not in the pool, and how
//! [`Lead::close`] reaches them.
//!
//! Such a thread registers how it is woken ([`Lead::reach`]), and asks after that whether the lead
//! is closed. The thread that closes the lead changes its word first, and wakes every thread in the
//! list after that. The second of the two sees the first: so the thread does not begin to wait, or
//! it is woken.

use std::sync::Arc;

use super::{followers::Recall, lead::Lead};
use crate::sync::{lock, Mutex};

/// How the threads are woken that wait elsewhere.
#[derive(Default)]
pub(super) struct Absent(Mutex<Vec<Recall>>);

impl Absent {
    /// Wakes all of them. It runs their code under no lock.
    pub(super) fn wake_all(&self) {
        let all = lock(&self.0).clone();
        all.iter().for_each(|wake| wake());
    }

    #[cfg(all(test, loom))]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

/// One thread is in the list, until this is dropped. It may be woken once more after that.
#[must_use = "dropping it takes the thread off the list"]
pub(crate) struct Reached<'l> {
    absent: &'l Absent,
    wake: &'l Recall,
}

impl Drop for Reached<'_> {
    fn drop(&mut self) {
        let mut list = lock(&self.absent.0);
        list.retain(|other| !Arc::ptr_eq(other, self.wake));
    }
}

impl<T> Lead<T> {
    /// Has `wake` called when the lead is closed. It may be closed already: ask
    /// [`is_closed`](Self::is_closed) afterwards.
    pub(crate) fn reach<'l>(&'l self, wake: &'l Recall) -> Reached<'l> {
        let absent = &self.absent;
        lock(&absent.0).push(Arc::clone(wake));
        Reached { absent, wake }
    }

    /// Whether no thread takes the lead any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.word.look().is_closed()
    }
}
