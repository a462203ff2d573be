//! All registrations of a pool: how they begin, are visited, and end.

mod affinity;
mod begin;
mod close;
mod line_up;
mod members;
mod moves;
mod open;
mod stock;
mod time;
mod user_code;

use std::{
    collections::HashSet,
    io,
    os::fd::RawFd,
    sync::{Arc, Weak},
    time::Duration,
};

pub(crate) use self::affinity::OwnMailbox;
pub(super) use self::close::{End, NotWaited};
pub(crate) use self::close::{LeftUndone, LostHandle, Remains};
pub use self::moves::Move;
pub(crate) use self::open::Found;
use self::open::Open;
use super::{
    claim::Claim,
    endings::Endings,
    entry::Entry,
    frames,
    handle::{Handle, Key},
    handler::Interest,
    hooks::Hooks,
    kind::Kinds,
    line::Line,
    mailboxes::{Handed, Mailboxes},
    owner::Signal,
    readiness::{Readiness, Stale, State},
    return_list::{Pushed, ReturnList, Sleep},
    slot::{Owned, SlotTable},
    task::Posts,
};
use crate::{
    errors,
    handle_set::{Answer, Beside, Event, HandleSet, Ready, Reports},
    observe::Counters,
    sync::{
        atomic::{AtomicU32, AtomicUsize, Ordering},
        Clock, Mutex, Timestamp,
    },
    timer::Timers,
    unwind::caught,
};

/// What a handle may use, and the whole registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes that one call of a handler may read.
    pub(crate) read_budget: usize,
    /// Bytes of output that are kept.
    pub(crate) output_limit: usize,
    /// So many calls of a handler in a row that leave input unread are reported.
    pub(crate) unread_calls: u32,
    /// Handlers that may wait for replies on one thread, one inside the other.
    pub(crate) nesting: usize,
    /// Posts that may wait, of the whole registry.
    pub(crate) post_limit: usize,
    /// How long a connection that was accepted may be idle, unless it is given another time.
    pub(crate) idle_timeout: Option<Duration>,
    /// How long a gentle end may take.
    pub(crate) linger_time: Duration,
    /// Bytes of input that are read and dropped in a gentle end.
    pub(crate) linger_limit: usize,
}

/// Why what was asked of a handle can't be, in words.
type Refusal = (io::ErrorKind, String);

fn refusal(kind: io::ErrorKind, reason: impl Into<String>) -> Refusal {
    (kind, reason.into())
}

/// Registrations are accepted.
const ACCEPTING: u32 = 0;
/// None is accepted any more; those that exist end as soon as they have nothing left to do.
const DRAINING: u32 = 1;
/// All end now. No thread leads any more.
const SHUT: u32 = 2;

/// Every registration, the set that watches them, and the list of those that were put back.
pub(crate) struct Registry {
    /// For the handles that are given out.
    me: Weak<Registry>,
    set: Box<dyn HandleSet>,
    /// How the set reports, read at every event.
    reports: Reports,
    slots: SlotTable,
    returned: ReturnList,
    /// Instead of that list, if the set is a concurrent one.
    open: Option<Open>,
    timers: Timers,
    posts: Arc<Posts>,
    /// What waits for certain threads.
    mailboxes: Mailboxes,
    limits: Limits,
    kinds: Kinds,
    hooks: Hooks,
    endings: Endings,
    /// What was lost at the end of the pool and not reported yet.
    lost: Mutex<LeftUndone>,
    phase: AtomicU32,
    /// Registrations whose `closed` has not been called and finished.
    live: AtomicUsize,
    /// Of these, how many belong to handlers that wait for a shutdown themselves.
    excused: AtomicUsize,
    excused_keys: Mutex<HashSet<Key>>,
    counters: Arc<Counters>,
}

impl Registry {
    pub(crate) fn new(
        set: Box<dyn HandleSet>,
        clock: Clock,
        limits: Limits,
        hooks: Hooks,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        let open = set.concurrent().map(|_| Open::new());
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            reports: set.reports(),
            set,
            open,
            slots: SlotTable::new(),
            returned: ReturnList::new(),
            timers: Timers::new(clock),
            posts: Posts::new(limits.post_limit),
            limits,
            mailboxes: Mailboxes::default(),
            kinds: Kinds::default(),
            hooks,
            endings: Endings::default(),
            lost: Mutex::default(),
            phase: AtomicU32::new(ACCEPTING),
            live: AtomicUsize::new(0),
            excused: AtomicUsize::new(0),
            excused_keys: Mutex::default(),
            counters,
        })
    }

    /// Changes what a registration waits for.
    pub(super) fn set_interest(&self, key: Key, interest: Interest) -> Result<(), Stale> {
        self.change(key, |word| word.set_interest(key.generation, interest))
    }

    /// Lets the handler of a registration be called no more, or again.
    pub(super) fn set_suspended(&self, key: Key, suspended: bool) -> Result<(), Stale> {
        if !suspended {
            self.note_use(key);
        }
        self.change(key, |word| word.set_suspended(key.generation, suspended))
    }

    /// Has the handler of a registration called.
    pub(super) fn notify(&self, key: Key) -> Result<(), Stale> {
        self.change(key, |word| word.notify(key.generation))
    }

    /// Clears `bits` for a non-owner that got, or is about to get, `WouldBlock`.
    pub(super) fn clear_ready(&self, key: Key, bits: Ready) {
        // If it is over, there is nothing to clear.
        let _ = self.change(key, |word| word.clear(key.generation, bits));
    }

    /// And found something: others may find more.
    pub(super) fn restore_ready(&self, key: Key, bits: Ready) {
        let _ = self.change(key, |word| word.set(key.generation, bits));
    }

    /// Has a registration closed by the thread that visits it next.
    pub(super) fn ask_to_close(&self, key: Key) {
        let slot = self.slots.get(key.index);
        // If it is over, there is nothing to do.
        if slot.is_some_and(|slot| slot.readiness.request_close(key.generation).is_ok()) {
            self.signal_from_outside(key.index);
        }
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

    /// Whether a handler that runs here may wait, and others be called meanwhile, one inside the
    /// other.
    pub(crate) fn check_depth(&self) -> io::Result<()> {
        let (depth, limit) = (frames::count(self.address()), self.limits.nesting);
        if depth <= limit {
            return Ok(());
        }
        let text =
            format!("wait for a reply: {depth} handlers wait on this thread, and {limit} may");
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, text))
    }

    /// Makes the leader return from its wait.
    pub(crate) fn wake_set(&self) {
        self.set.wake();
    }

    /// Registrations that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// How the set reports.
    pub(super) fn reports(&self) -> Reports {
        self.reports
    }

    /// Whether the set may be looked at more often than needed.
    pub(crate) fn is_cheap_to_poll(&self) -> bool {
        self.set.is_cheap_to_poll()
    }

    /// How its set can be waited in beside others.
    pub(crate) fn beside(&self) -> Beside<'_> {
        self.set.beside()
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many calls of a handler in a row that leave input unread are too many.
    pub(super) fn unread_limit(&self) -> u32 {
        self.limits.unread_calls
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

    /// Owns the slot at `index`, taken off the line; of a member, its group. `None`: it was handed
    /// to a thread that it belongs to, or need not be visited.
    pub(super) fn claim(&self, index: u32) -> Option<Claim<'_>> {
        let slot = self.slots.get(index)?;
        if slot.has_affinity() && self.hand_to_its_thread(index, slot) == Handed::There {
            return None;
        }
        self.claimed(slot.claim(index)?)
    }

    /// What is owned, to be visited; of a member, its group.
    #[inline]
    fn claimed<'r>(&'r self, owned: Owned<'r>) -> Option<Claim<'r>> {
        let owned = match owned.slot().group() {
            None => owned,
            Some(group) => self.own_group_of(owned, group)?,
        };
        Some(Claim::new(self, owned))
    }

    /// Notes an edge, and puts its handle in the line if it must be visited.
    pub(super) fn edge(&self, event: Event, line: &mut Line) {
        let key = Key::from_bits(event.key);
        let Some(slot) = self.slots.get(key.index) else {
            return;
        };
        let reports = self.reports;
        match slot.readiness.report(key.generation, event.ready, reports) {
            Err(Stale) => self.counters.stale_events.one_more(),
            Ok(state) => self.line_up(key, slot, state, |index| line.append(index)),
        }
    }

    /// Moves everything that was put back by others to the end of the line.
    pub(super) fn take_returned(&self, line: &mut Line) {
        self.returned
            .take_all(|index| self.link(index), |index| line.append(index));
    }

    /// Announces the leader's sleep, unless something was put back. Until when it may sleep that
    /// wants to until `until`.
    pub(super) fn may_sleep(&self, until: Option<Timestamp>) -> Option<Timestamp> {
        match self.returned.announce_sleep() {
            Sleep::Announced => self.timers.sleep_limit(until),
            Sleep::NotYet => Some(Timestamp::PAST),
        }
    }

    pub(super) fn wait(
        &self,
        events: &mut Vec<Event>,
        until: Option<Timestamp>,
    ) -> io::Result<Answer> {
        self.set.wait(events, until)
    }

    // Below: how it is done.

    /// Lets a registration begin, which is counted from here on.
    fn admit<'r>(&'r self, begin: impl FnOnce() -> io::Result<Owned<'r>>) -> io::Result<Owned<'r>> {
        // Counted before it is looked whether registrations are accepted: a drain waits for it, or
        // is seen.
        self.live.fetch_add(1, Ordering::AcqRel);
        begin().inspect_err(|_| {
            self.live.fetch_sub(1, Ordering::AcqRel);
            self.set.wake();
        })
    }

    /// The slot of a registration gets its contents, and is let go.
    fn put_in_place(&self, mut owned: Owned<'_>, entry: Box<dyn Entry>) -> Handle {
        let key = owned.key();
        owned.with_entry(|place| *place = Some(entry));
        // A drain that passed this slot before `occupy` is seen here; a later one marks it.
        if self.phase() != ACCEPTING {
            owned.readiness().drain();
        }
        self.let_go(owned);
        self.handle(key)
    }

    /// Finds a slot, and lets the set watch the source. The slot is owned, so that the set's
    /// reports wait until the entry is in place.
    fn begin(&self, descriptor: RawFd, interest: Interest) -> io::Result<Owned<'_>> {
        let attempted = || format!("register descriptor {descriptor}");
        let owned = self.occupy(interest, attempted)?;
        match self.set.add(descriptor, owned.key().to_bits()) {
            Ok(()) => Ok(owned),
            Err(error) => {
                owned.readiness().retire();
                self.slots.vacate(owned);
                let (attempted, reason) = (attempted(), why_not_added(&error));
                Err(errors::attempted(
                    format_args!("{attempted}: {reason}"),
                    error,
                ))
            }
        }
    }

    /// Finds a slot for a registration; `attempted` says what for.
    fn occupy(&self, interest: Interest, attempted: impl Fn() -> String) -> io::Result<Owned<'_>> {
        let refusal = |kind, reason| io::Error::new(kind, format!("{}: {reason}", attempted()));
        // A change of the word, so that of this step and `drain` the second one sees the first.
        if self.phase.fetch_or(0, Ordering::AcqRel) != ACCEPTING {
            return Err(refusal(
                io::ErrorKind::BrokenPipe,
                "the pool is shutting down",
            ));
        }
        let owned = self.slots.take_vacant();
        let owned =
            owned.ok_or_else(|| refusal(io::ErrorKind::QuotaExceeded, "every slot is taken"))?;
        owned.readiness().occupy(interest, self.reports);
        Ok(owned)
    }

    fn handle(&self, key: Key) -> Handle {
        Handle::new(Weak::clone(&self.me), key)
    }

    /// Asks for a visit, from a thread that does not hold the lead.
    fn signal_from_outside(&self, index: u32) {
        if self.is_open() {
            return self.signal_in_the_open(index);
        }
        let slot = self.slots.get(index);
        if slot.is_some_and(|slot| slot.signal() == Signal::Enlist) {
            self.put_back(index);
        }
    }

    /// Puts a QUEUED slot on the return list, and wakes a leader that sleeps; or into the open
    /// line.
    fn put_back(&self, index: u32) {
        if self.is_open() {
            return self.put_in_open_line(index);
        }
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
        // After the end no thread takes the list any more. Either the sweep saw this slot QUEUED
        // and has owned it, or this thread sees the end here: both changed the same owner word. (A
        // signal from outside found it IDLE: then the sweep is still to come.)
        if self.phase() == SHUT {
            self.sweep(index);
        }
    }

    /// The same for the holder of the lead: to the end of its line. At the end of the pool the slot
    /// remains: see [`Remains`]. (Inlined: every turn has one.)
    #[inline(always)]
    pub(super) fn let_go_into(&self, owned: Owned<'_>, line: &mut Line) -> Option<Remains<'_>> {
        let index = self.rest_or_requeue(owned)?;
        if self.phase() == SHUT {
            let registry = self;
            return Some(Remains { registry, index });
        }
        line.append(index);
        None
    }

    /// Idle, and armed for what it waits for; or QUEUED and to be put into a list. (Inlined: every
    /// turn has one.)
    #[inline(always)]
    fn rest_or_requeue(&self, mut owned: Owned<'_>) -> Option<u32> {
        loop {
            let state = owned.readiness().look();
            if state.is_due() {
                return Some(owned.requeue());
            }
            if !state.unarmed().is_empty() {
                // The descriptor of a member is with its group.
                if owned.slot().group().is_some() {
                    return Some(owned.requeue());
                }
                self.arm(&mut owned, state);
                continue;
            }
            match owned.rest() {
                Ok(()) => return None,
                Err(still_owned) => owned = still_owned,
            }
        }
    }

    /// Has the set report an owned handle once more; if it refuses, the handle is closed at its
    /// next visit. (Apart: no handle of a set that reports edges needs it.)
    #[inline(never)]
    fn arm(&self, owned: &mut Owned<'_>, state: State) {
        let (readiness, key) = (owned.readiness(), owned.key());
        owned.with_entry(|entry| {
            let Some(entry) = entry.as_mut() else {
                return;
            };
            let descriptor = entry.descriptor();
            if let Err(refusal) = self.arm_descriptor(descriptor, readiness, key, state) {
                entry.fail(refusal);
            }
        });
    }

    /// The same for a descriptor, if there is one. If it can't for want of memory, the handle is
    /// taken for ready, so that it is visited and armed again. A refused handle is to be closed at
    /// its next visit, for the returned reason.
    fn arm_descriptor(
        &self,
        descriptor: Option<RawFd>,
        readiness: &Readiness,
        key: Key,
        state: State,
    ) -> io::Result<()> {
        let directions = readiness.arm(state.unarmed());
        let Some(descriptor) = descriptor else {
            return Ok(());
        };
        match self.set.arm(descriptor, key.to_bits(), directions) {
            Ok(()) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::ENOSPC)) => {
                // As if it had been reported: not armed any more.
                let _ = readiness.report(key.generation, state.unarmed(), Reports::Once);
                Ok(())
            }
            Err(error) => {
                let _ = readiness.request_close(key.generation);
                let text = format!("arm descriptor {descriptor}: {error}");
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    /// Runs user code that may panic, and knows on which thread.
    pub(super) fn in_frame<R>(
        &self,
        of: Option<Key>,
        user: impl FnOnce() -> R,
    ) -> Result<R, String> {
        let frame = frames::enter(self.address(), of);
        let told = caught(user);
        frame.leave();
        told
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
