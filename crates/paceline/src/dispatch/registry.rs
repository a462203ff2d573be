//! All registrations of a pool: how they begin, are visited, and end.

use std::{
    cell::Cell,
    io,
    os::fd::AsRawFd,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    context::{Lent, Origin},
    entry::{Registered, Verdict},
    handle::{Handle, HandleId, Key},
    handler::{Closed, EventHandler, Interest},
    line::Line,
    owner::Signal,
    readiness::Stale,
    return_list::{Pushed, ReturnList, Sleep},
    slot::{Owned, SlotTable},
    unwind::caught,
    Rejected,
};
use crate::{
    handle_set::{Event, HandleSet},
    observe::Counters,
    sync::{
        atomic::{AtomicU32, AtomicUsize, Ordering},
        thread_local,
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
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            set,
            slots: SlotTable::new(),
            returned: ReturnList::new(),
            limits,
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
        match self.begin(&source, interest) {
            Err(error) => Err(Rejected::new((source, handler), error)),
            Ok((mut owned, key)) => {
                let entry = Registered::new(source, handler, self.limits.output_limit);
                owned.with_entry(|place| *place = Some(Box::new(entry)));
                self.live.fetch_add(1, Ordering::AcqRel);
                // A drain that passed this slot before `occupy` is seen here; a later one marks it.
                if self.phase() != ACCEPTING {
                    owned.readiness().drain();
                }
                self.let_go(owned, None);
                Ok(self.handle(key))
            }
        }
    }

    /// Changes what a registration waits for.
    pub(super) fn set_interest(&self, key: Key, interest: Interest) -> Result<(), Stale> {
        let slot = self.slots.get(key.index).ok_or(Stale)?;
        if slot
            .readiness
            .set_interest(key.generation, interest)?
            .needs_visit()
        {
            self.signal_from_outside(key.index);
        }
        Ok(())
    }

    /// Ends a registration: here and now if it is idle, else by the thread that has it.
    pub(super) fn close(&self, key: Key) -> Result<(), Stale> {
        let slot = self.slots.get(key.index).ok_or(Stale)?;
        if slot.readiness.request_close(key.generation)?.is_closing() {
            return Err(Stale);
        }
        if let Some(owned) = self.slots.try_own(key.index) {
            self.end(owned, Closed::Requested);
        }
        Ok(())
    }

    /// Accepts no more registrations; lets the others end when they have nothing left to do.
    pub(crate) fn drain(&self) {
        let _ = self
            .phase
            .compare_exchange(ACCEPTING, DRAINING, Ordering::AcqRel, Ordering::Relaxed);
        for (index, slot) in self.slots.iter() {
            if slot.readiness.drain().needs_visit() {
                self.signal_from_outside(index);
            }
        }
        self.set.wake();
    }

    /// Whether a drain has nothing left to wait for.
    pub(crate) fn is_drained(&self) -> bool {
        self.phase() != ACCEPTING
            && self.live.load(Ordering::Acquire) <= self.excused.load(Ordering::Acquire)
    }

    /// Whether registrations are still accepted.
    pub(crate) fn is_accepting(&self) -> bool {
        self.phase() == ACCEPTING
    }

    /// A handler that runs on this thread waits for the drain: its own handle is not waited for.
    pub(crate) fn excuse_own_frames(&self) {
        self.excused.fetch_add(self.own_frames(), Ordering::AcqRel);
        self.set.wake();
    }

    /// How many handlers of this registry are running on this thread, one inside the other.
    pub(crate) fn own_frames(&self) -> usize {
        let frames = FRAMES.with(Cell::get);
        match frames.registry == self.address() {
            true => frames.count,
            false => 0,
        }
    }

    /// Ends everything: idle handles by this thread, busy ones by their own when their handler
    /// returns. Lists those that this call ended, with the output they had kept.
    pub(crate) fn shut(&self) -> Vec<(HandleId, usize)> {
        self.phase.swap(SHUT, Ordering::AcqRel);
        let indices: Vec<u32> = self.slots.iter().map(|(index, _)| index).collect();
        indices
            .into_iter()
            .filter_map(|index| self.sweep(index))
            .collect()
    }

    /// Registrations that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// Makes the leader look up from its wait.
    pub(crate) fn wake_leader(&self) {
        self.set.wake();
    }

    // What the holder of the lead uses.

    /// Owns the slot at `index`, taken off the line.
    pub(super) fn claim(&self, index: u32) -> Option<Claim<'_>> {
        let owned = self.slots.claim(index)?;
        Some(Claim {
            registry: self,
            owned: Some(owned),
        })
    }

    /// Notes an edge, and puts its handle in the line if it must be visited.
    pub(super) fn edge(&self, event: Event, line: &mut Line) {
        let key = Key::from_bits(event.key);
        let Some(slot) = self.slots.get(key.index) else {
            return;
        };
        match slot.readiness.edge(key.generation, event.ready) {
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
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.set.wait(events, timeout)
    }

    // Below: how it is done.

    /// Finds a slot, and lets the set watch the source. The slot is owned, so that what the set tells
    /// waits until the entry is in place.
    fn begin<S: AsRawFd>(&self, source: &S, interest: Interest) -> io::Result<(Owned<'_>, Key)> {
        if !self.is_accepting() {
            let text = "register: the pool is shutting down";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        }
        let descriptor = source.as_raw_fd();
        let owned = self.slots.take_vacant().ok_or_else(|| {
            let text = format!("register descriptor {descriptor}: every slot is taken");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })?;
        let key = Key {
            index: owned.index(),
            generation: owned.readiness().occupy(interest),
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
        // After the end nobody takes the list any more. Either the sweep saw this slot QUEUED and has
        // owned it, or this thread sees the end here: both changed the same owner word.
        if self.phase() == SHUT {
            self.sweep(index);
        }
    }

    /// Ends an ownership: idle if nothing is to be done, else to the end of the line. `line` is there
    /// if this thread holds the lead.
    fn let_go(&self, mut owned: Owned<'_>, line: Option<&mut Line>) {
        while !owned.readiness().look().needs_visit() {
            match owned.rest() {
                Ok(()) => return,
                Err(still_owned) => owned = still_owned,
            }
        }
        let index = owned.requeue();
        match line {
            Some(line) if self.phase() != SHUT => line.append(index),
            _ => self.put_back(index),
        }
    }

    /// Ends the registration in a slot at the end of all, if no handler runs there.
    fn sweep(&self, index: u32) -> Option<(HandleId, usize)> {
        let slot = self.slots.get(index)?;
        let generation = slot.readiness.look().generation();
        let _ = slot.readiness.request_close(generation);
        let mut owned = self.slots.sweep(index)?;
        let unsent = owned.with_entry(|entry| entry.as_ref().map_or(0, |entry| entry.unsent()));
        self.end(owned, Closed::Shutdown);
        Some((HandleId::new(Key { index, generation }), unsent))
    }

    /// The end of a registration: out of the set, out of the slot, told, dropped. In this order: when
    /// `closed` is told, the key is stale and the slot free; the descriptor is closed last.
    fn end(&self, mut owned: Owned<'_>, why: Closed) {
        let entry = owned.with_entry(Option::take);
        if let Some(entry) = &entry {
            let _ = self.set.remove(entry.descriptor());
        }
        match self.phase() {
            // It may still be in a list, so it is not used again.
            SHUT => self.slots.abandon(owned),
            _ => self.slots.vacate(owned),
        }
        if let Some(mut entry) = entry {
            self.count_panic(self.in_frame(|| entry.closed(why)));
            self.count_panic(self.in_frame(|| drop(entry)));
            self.live.fetch_sub(1, Ordering::AcqRel);
        }
        if self.phase() != ACCEPTING {
            self.set.wake();
        }
    }

    /// Runs user code that may panic, and knows on which thread.
    fn in_frame<R>(&self, user: impl FnOnce() -> R) -> Result<R, String> {
        let outer = FRAMES.with(Cell::get);
        let count = match outer.registry == self.address() {
            true => outer.count + 1,
            false => 1,
        };
        let registry = self.address();
        FRAMES.with(|frames| frames.set(Frames { registry, count }));
        let told = caught(user);
        FRAMES.with(|frames| frames.set(outer));
        told
    }

    fn count_panic<R>(&self, told: Result<R, String>) {
        if told.is_err() {
            self.counters.panics.one_more();
        }
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

/// One handle, owned by this thread, with something to be done.
///
/// Dropped without being dispatched, it is put back with everything that is ready.
pub(crate) struct Claim<'r> {
    registry: &'r Registry,
    /// `None` once it has been let go.
    owned: Option<Owned<'r>>,
}

impl<'r> Claim<'r> {
    /// Calls the handler, or does what else is due. Returns the handle, still owned, unless that was
    /// its end.
    pub(crate) fn dispatch(mut self) -> Option<Self> {
        let mut owned = self.owned.take()?;
        let registry = self.registry;
        match visit(registry, &mut owned) {
            Verdict::Keep => Some(Self {
                registry,
                owned: Some(owned),
            }),
            Verdict::Close(why) => {
                if let Closed::Panicked(_) = why {
                    registry.counters.panics.one_more();
                }
                registry.end(owned, why);
                None
            }
        }
    }

    /// Gives the handle back; this thread holds the lead, whose line that is.
    pub(crate) fn release_into(mut self, line: &mut Line) {
        if let Some(owned) = self.owned.take() {
            self.registry.let_go(owned, Some(line));
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            self.registry.let_go(owned, None);
        }
    }
}

/// What is due at an owned handle, and what shall become of it.
fn visit(registry: &Registry, owned: &mut Owned<'_>) -> Verdict {
    let readiness = owned.readiness();
    let lent = Lent::claim(readiness, registry.limits.read_budget);
    let seen = lent.seen;
    if seen.is_closing() {
        return Verdict::Close(match registry.phase() {
            SHUT => Closed::Shutdown,
            _ => Closed::Requested,
        });
    }
    let origin = Origin {
        registry: &registry.me,
        key: Key {
            index: owned.index(),
            generation: seen.generation(),
        },
    };
    owned.with_entry(|entry| {
        let Some(entry) = entry else {
            return Verdict::Keep;
        };
        let verdict = match seen.wanted().is_empty() {
            false => registry
                .in_frame(|| entry.visit(lent, origin))
                .unwrap_or_else(|panic| Verdict::Close(Closed::Panicked(panic))),
            true if seen.is_draining() && !seen.is_sending() => Verdict::Close(Closed::Shutdown),
            true => Verdict::Keep,
        };
        let (sending, read_meanwhile) = entry.sending();
        if sending || seen.is_sending() {
            readiness.set_sending(sending, read_meanwhile);
        }
        verdict
    })
}

/// The handlers that run on this thread: of which registry, and how many.
#[derive(Clone, Copy, Default)]
struct Frames {
    registry: usize,
    count: usize,
}

thread_local! {
    static FRAMES: Cell<Frames> = Cell::new(Frames { registry: 0, count: 0 });
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
