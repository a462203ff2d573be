//! All registrations of a pool: how they begin, are visited, and end.

mod close;
mod user_code;

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{Arc, Weak},
};

pub(super) use self::close::NotWaited;
pub(crate) use self::close::Remains;
use super::{
    claim::Claim,
    endings::Endings,
    entry::Registered,
    frames,
    handle::{Handle, HandleId, Key},
    handler::{EventHandler, Interest},
    hooks::Hooks,
    kind::Kinds,
    line::Line,
    owner::Signal,
    readiness::{Readiness, Stale, State},
    return_list::{Pushed, ReturnList, Sleep},
    slot::{Owned, SlotTable},
    unwind::caught,
    Rejected,
};
use crate::{
    handle_set::{Answer, Event, HandleSet, Reports},
    observe::Counters,
    sync::{
        atomic::{AtomicU32, AtomicUsize, Ordering},
        Mutex, Timestamp,
    },
};

/// What one handle may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes that one call of a handler may read.
    pub(crate) read_budget: usize,
    /// Bytes of output that are kept.
    pub(crate) output_limit: usize,
}

/// Registrations are accepted.
const ACCEPTING: u32 = 0;
/// None is accepted any more; those that exist end as soon as they have nothing left to do.
const DRAINING: u32 = 1;
/// All end now. Nobody leads any more.
const SHUT: u32 = 2;

/// Every registration, the set that watches them, and the list of those that were put back.
pub(crate) struct Registry {
    /// For the handles that are given out.
    me: Weak<Registry>,
    set: Box<dyn HandleSet>,
    slots: SlotTable,
    returned: ReturnList,
    limits: Limits,
    kinds: Kinds,
    hooks: Hooks,
    endings: Endings,
    /// What was ended by force and not reported yet.
    forced: Mutex<Vec<(HandleId, usize)>>,
    phase: AtomicU32,
    /// Registrations whose `closed` has not been told and finished.
    live: AtomicUsize,
    /// Of these, how many belong to handlers that wait for a shutdown themselves.
    excused: AtomicUsize,
    counters: Arc<Counters>,
}

impl Registry {
    pub(crate) fn new(
        set: Box<dyn HandleSet>,
        limits: Limits,
        hooks: Hooks,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            set,
            slots: SlotTable::new(),
            returned: ReturnList::new(),
            limits,
            kinds: Kinds::default(),
            hooks,
            endings: Endings::default(),
            forced: Mutex::new(Vec::new()),
            phase: AtomicU32::new(ACCEPTING),
            live: AtomicUsize::new(0),
            excused: AtomicUsize::new(0),
            counters,
        })
    }

    /// Begins a registration. The registry owns `source` and `handler` from here on.
    pub(crate) fn register<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: AsRawFd + Send + 'static,
        H: EventHandler<S>,
    {
        let descriptor = source.as_raw_fd();
        // Counted before it is looked whether registrations are accepted: a drain waits for it, or is seen.
        self.live.fetch_add(1, Ordering::AcqRel);
        match self.begin(descriptor, interest) {
            Err(error) => {
                self.live.fetch_sub(1, Ordering::AcqRel);
                self.set.wake();
                Err(Rejected::new((source, handler), error))
            }
            Ok((mut owned, key)) => {
                let (limit, kind) = (self.limits.output_limit, self.kinds.of::<H>());
                let entry = Registered::new(source, descriptor, handler, limit, kind);
                owned.with_entry(|place| *place = Some(Box::new(entry)));
                // A drain that passed this slot before `occupy` is seen here; a later one marks it.
                if self.phase() != ACCEPTING {
                    owned.readiness().drain();
                }
                self.let_go(owned);
                Ok(self.handle(key))
            }
        }
    }

    /// Changes what a registration waits for.
    pub(super) fn set_interest(&self, key: Key, interest: Interest) -> Result<(), Stale> {
        self.change(key, |word| word.set_interest(key.generation, interest))
    }

    /// Lets the handler of a registration be called no more, or again.
    pub(super) fn set_suspended(&self, key: Key, suspended: bool) -> Result<(), Stale> {
        self.change(key, |word| word.set_suspended(key.generation, suspended))
    }

    /// Has the handler of a registration called.
    pub(super) fn notify(&self, key: Key) -> Result<(), Stale> {
        self.change(key, |word| word.notify(key.generation))
    }

    /// Changes the readiness word of a registration, and asks for a visit if that is needed now.
    fn change(
        &self,
        key: Key,
        change: impl FnOnce(&Readiness) -> Result<State, Stale>,
    ) -> Result<(), Stale> {
        let slot = self.slots.get(key.index).ok_or(Stale)?;
        if change(&slot.readiness)?.needs_visit() {
            self.signal_from_outside(key.index);
        }
        Ok(())
    }

    /// Whether registrations are still accepted.
    pub(crate) fn is_accepting(&self) -> bool {
        self.phase() == ACCEPTING
    }

    /// Whether user code of this registry runs on this thread.
    pub(crate) fn runs_here(&self) -> bool {
        frames::count(self.address()) > 0
    }

    /// Registrations that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// Makes the leader look up from its wait.
    pub(crate) fn wake_leader(&self) {
        self.set.wake();
    }

    /// How the set reports.
    pub(super) fn reports(&self) -> Reports {
        self.set.reports()
    }

    /// How much one visit may read.
    pub(super) fn read_budget(&self) -> usize {
        self.limits.read_budget
    }

    /// For the handles that a visit gives out.
    pub(super) fn weak(&self) -> &Weak<Self> {
        &self.me
    }

    // What the holder of the lead uses.

    /// Owns the slot at `index`, taken off the line.
    pub(super) fn claim(&self, index: u32) -> Option<Claim<'_>> {
        let owned = self.slots.claim(index)?;
        Some(Claim::new(self, owned))
    }

    /// Notes an edge, and puts its handle in the line if it must be visited.
    pub(super) fn edge(&self, event: Event, line: &mut Line) {
        let key = Key::from_bits(event.key);
        let Some(slot) = self.slots.get(key.index) else {
            return;
        };
        let reports = self.set.reports();
        match slot.readiness.report(key.generation, event.ready, reports) {
            Err(Stale) => self.counters.stale_events.one_more(),
            Ok(state) if state.needs_visit() => {
                if let Signal::Enlist = slot.signal() {
                    line.append(key.index);
                }
            }
            Ok(_) => {}
        }
    }

    /// Moves everything that was put back by others to the end of the line.
    pub(super) fn take_returned(&self, line: &mut Line) {
        self.returned
            .take_all(|index| self.link(index), |index| line.append(index));
    }

    /// Announces the leader's sleep, unless something was put back.
    pub(super) fn may_sleep(&self) -> bool {
        self.returned.announce_sleep() == Sleep::Announced
    }

    pub(super) fn wait(
        &self,
        events: &mut Vec<Event>,
        until: Option<Timestamp>,
    ) -> io::Result<Answer> {
        self.set.wait(events, until)
    }

    // Below: how it is done.

    /// Finds a slot, and lets the set watch the source. The slot is owned, so that what the set tells
    /// waits until the entry is in place.
    fn begin(&self, descriptor: RawFd, interest: Interest) -> io::Result<(Owned<'_>, Key)> {
        // A change of the word, so that of this step and `drain` the second one sees the first.
        if self.phase.fetch_or(0, Ordering::AcqRel) != ACCEPTING {
            let text = "register: the pool is shutting down";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        }
        let owned = self.slots.take_vacant().ok_or_else(|| {
            let text = format!("register descriptor {descriptor}: every slot is taken");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })?;
        let key = Key {
            index: owned.index(),
            generation: owned.readiness().occupy(interest, self.set.reports()),
        };
        match self.set.add(descriptor, key.to_bits()) {
            Ok(()) => Ok((owned, key)),
            Err(error) => {
                self.slots.vacate(owned);
                let reason = why_not_added(&error);
                let text = format!("register descriptor {descriptor}: {reason}: {error}");
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    fn handle(&self, key: Key) -> Handle {
        Handle::new(Weak::clone(&self.me), key)
    }

    /// Asks for a visit, from a thread that does not hold the lead.
    fn signal_from_outside(&self, index: u32) {
        let slot = self.slots.get(index);
        if slot.is_some_and(|slot| slot.signal() == Signal::Enlist) {
            self.put_back(index);
        }
    }

    /// Puts a QUEUED slot on the return list, and wakes a leader that sleeps.
    fn put_back(&self, index: u32) {
        if let Pushed::WakeLeader = self.returned.push(index, self.link(index)) {
            self.set.wake();
        }
    }

    /// Ends an ownership: idle if nothing is to be done, else onto the return list.
    pub(super) fn let_go(&self, owned: Owned<'_>) {
        let Some(index) = self.rest_or_requeue(owned) else {
            return;
        };
        self.put_back(index);
        // After the end nobody takes the list any more. Either the sweep saw this slot QUEUED and has
        // owned it, or this thread sees the end here: both changed the same owner word. (Who signals from
        // outside found it IDLE: then the sweep is still to come.)
        if self.phase() == SHUT {
            self.sweep(index);
        }
    }

    /// The same for the holder of the lead: to the end of its line. At the end of the pool the slot
    /// remains: see [`Remains`].
    pub(super) fn let_go_into(&self, owned: Owned<'_>, line: &mut Line) -> Option<Remains<'_>> {
        let index = self.rest_or_requeue(owned)?;
        if self.phase() == SHUT {
            let registry = self;
            return Some(Remains { registry, index });
        }
        line.append(index);
        None
    }

    /// Idle, and armed for what it waits for; or QUEUED and to be put into a list.
    fn rest_or_requeue(&self, mut owned: Owned<'_>) -> Option<u32> {
        loop {
            let state = owned.readiness().look();
            if state.is_due() {
                return Some(owned.requeue());
            }
            if !state.unarmed().is_empty() {
                self.arm(&mut owned, state);
                continue;
            }
            match owned.rest() {
                Ok(()) => return None,
                Err(still_owned) => owned = still_owned,
            }
        }
    }

    /// Has the set report an owned handle once more. If it can't for want of memory, the handle is taken for
    /// ready, so that it is visited and armed again; if it refuses, the handle is closed at its next visit.
    fn arm(&self, owned: &mut Owned<'_>, state: State) {
        let (readiness, key) = (owned.readiness(), owned.key());
        let directions = readiness.arm(state.unarmed());
        let failed = owned.with_entry(|entry| {
            let entry = entry.as_mut()?;
            let armed = self.set.arm(entry.descriptor(), key.to_bits(), directions);
            let error = armed.err()?;
            if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::ENOSPC)) {
                // As if it had been reported: not armed any more.
                let _ = readiness.report(key.generation, state.unarmed(), Reports::Once);
                return None;
            }
            let text = format!("arm descriptor {}: {error}", entry.descriptor());
            entry.fail(io::Error::new(error.kind(), text));
            Some(())
        });
        if failed.is_some() {
            let _ = readiness.request_close(key.generation);
        }
    }

    /// Runs user code that may panic, and knows on which thread.
    pub(super) fn in_frame<R>(
        &self,
        of: Option<Key>,
        user: impl FnOnce() -> R,
    ) -> Result<R, String> {
        frames::enter(self.address(), of, || caught(user))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn link(&self, index: u32) -> &super::return_list::Link {
        let slot = self.slots.get(index);
        &slot.expect("a listed slot exists").link
    }

    fn phase(&self) -> u32 {
        self.phase.load(Ordering::Acquire)
    }
}

/// The most common reasons, in words.
fn why_not_added(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EEXIST) => "it is registered already",
        Some(libc::EBADF) => "it is closed or was never open",
        Some(libc::EPERM) => "it can't be waited for (a regular file or a directory)",
        _ => "the handle set refused it",
    }
}
