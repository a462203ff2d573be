//! The life cycle of a registry: whether it accepts registrations, how many live, what was lost.

use std::{
    collections::HashSet,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed},
};

use super::super::{
    endings::Endings,
    entry::{Entry, Undone},
    handle::{HandleId, Key},
    handler::Closed,
    readiness::State,
};
use crate::sync::{
    atomic::{AtomicU32, AtomicUsize},
    lock, Mutex,
};

/// Registrations are accepted.
const ACCEPTING: u32 = 0;
/// None is accepted any more; those that exist end as soon as they have nothing left to do.
const DRAINING: u32 = 1;
/// All end now. No thread leads any more.
const SHUT: u32 = 2;

/// Whether registrations are accepted, how many there are, and which of them are ending.
#[derive(Debug)]
pub(in crate::dispatch) struct LifeCycle {
    phase: AtomicU32,
    /// Registrations whose `closed` has not been called and finished.
    live: AtomicUsize,
    /// Of these, how many belong to handlers that wait for a shutdown themselves.
    excused: AtomicUsize,
    excused_keys: Mutex<HashSet<Key>>,
    /// The registrations that are ending.
    pub(super) endings: Endings,
    /// What was lost at the end of the pool and not reported yet.
    lost: Mutex<LeftUndone>,
}

impl LifeCycle {
    pub(super) fn new() -> Self {
        Self {
            phase: AtomicU32::new(ACCEPTING),
            live: AtomicUsize::new(0),
            excused: AtomicUsize::new(0),
            excused_keys: Mutex::default(),
            endings: Endings::default(),
            lost: Mutex::default(),
        }
    }

    /// Whether registrations are still accepted.
    #[inline]
    pub(super) fn is_accepting(&self) -> bool {
        self.phase.load(Acquire) == ACCEPTING
    }

    /// Whether all registrations end now.
    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.phase.load(Acquire) == SHUT
    }

    /// As [`is_accepting`](Self::is_accepting), by a change of the word: of this step and
    /// [`begin_drain`](Self::begin_drain) the second one sees the first.
    pub(super) fn accepts(&self) -> bool {
        self.phase.fetch_or(0, AcqRel) == ACCEPTING
    }

    /// No registration is accepted any more.
    pub(super) fn begin_drain(&self) {
        let _ = self
            .phase
            .compare_exchange(ACCEPTING, DRAINING, AcqRel, Relaxed);
    }

    /// All registrations end.
    pub(super) fn shut(&self) {
        self.phase.swap(SHUT, AcqRel);
    }

    /// Whether a drain has nothing left to wait for.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        !self.is_accepting() && self.live.load(Acquire) <= self.excused.load(Acquire)
    }

    /// A drain does not wait for these registrations. Each counts once: several threads may be
    /// inside of a concurrent one.
    pub(super) fn excuse(&self, own: HashSet<Key>) {
        let mut keys = lock(&self.excused_keys);
        keys.extend(own);
        self.excused.swap(keys.len(), AcqRel);
    }

    /// Registrations that have not ended.
    pub(super) fn live(&self) -> usize {
        self.live.load(Acquire)
    }

    /// One registration more.
    pub(super) fn count_in(&self) {
        self.live.fetch_add(1, AcqRel);
    }

    /// One registration less, which did not come about here.
    pub(super) fn count_back(&self) {
        self.live.fetch_sub(1, AcqRel);
    }

    /// One registration less; one more in the list, if something was lost with it. Both under the
    /// lock, so that `left_undone` finds it in exactly one of the two.
    pub(super) fn count_out(&self, loss: Option<Loss>) {
        let lost = loss.map(|loss| {
            let mut lost = lock(&self.lost);
            lost.note(loss);
            lost
        });
        self.live.fetch_sub(1, AcqRel);
        drop(lost);
    }

    /// What was lost since this was last asked, and how many registrations have not ended. Of these
    /// two, each is in one.
    pub(super) fn left_undone(&self) -> (LeftUndone, usize) {
        let mut lost = lock(&self.lost);
        (std::mem::take(&mut *lost), self.live())
    }
}

/// What was lost at the end of the pool.
#[derive(Debug, Default)]
pub(crate) struct LeftUndone {
    /// Handles that were ended by force.
    pub(crate) handles: Vec<LostHandle>,
    /// Posted work, and timers that were due, that was not done.
    pub(crate) posts: usize,
    /// Timers that were not due.
    pub(crate) timers: usize,
    /// Items that were accepted and not handled.
    pub(crate) items: usize,
}

/// A handle that was ended by force, and what was lost with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostHandle {
    pub(crate) handle: HandleId,
    /// Bytes of output that were kept.
    pub(crate) unsent: usize,
    /// Something waited for its handler.
    pub(crate) unhandled: bool,
}

impl LostHandle {
    /// A handle with so much kept output whose word said this. Its source was asked whether input
    /// is `unread`.
    pub(in crate::dispatch) fn new(
        key: Key,
        unsent: usize,
        state: State,
        unread: Option<bool>,
    ) -> Self {
        Self {
            handle: HandleId::new(key),
            unsent,
            unhandled: state.has_unhandled(unread),
        }
    }
}

/// What was lost with one registration.
pub(super) enum Loss {
    Handle(LostHandle),
    Post,
    Timer,
    Items(usize),
}

impl Loss {
    /// At the end of the pool a handle is lost if it was ended by force; what it kept would have
    /// been sent otherwise. Work is lost if it was not done, however it ended. And items are,
    /// whatever the reason is.
    pub(super) fn of(
        entry: &dyn Entry,
        key: Key,
        why: &Closed,
        by_force: bool,
        state: State,
    ) -> Option<Self> {
        match entry.undone() {
            Undone::Items(0) => None,
            Undone::Items(count) => Some(Self::Items(count)),
            _ if !matches!(why, Closed::Shutdown) => None,
            Undone::Output(unsent) => {
                let lost = || LostHandle::new(key, unsent, state, entry.has_unread());
                by_force.then(|| Self::Handle(lost()))
            }
            Undone::Post => Some(Self::Post),
            Undone::Timer if state.is_notified() => Some(Self::Post),
            Undone::Timer => Some(Self::Timer),
            Undone::Nothing => None,
        }
    }
}

impl LeftUndone {
    fn note(&mut self, loss: Loss) {
        match loss {
            Loss::Handle(lost) => self.handles.push(lost),
            Loss::Post => self.posts += 1,
            Loss::Timer => self.timers += 1,
            Loss::Items(count) => self.items += count,
        }
    }
}
