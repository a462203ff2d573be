//! What threads do that all wait in one concurrent set: how each finds its next handle, and how it
//! gives one back.
//!
//! No thread leads, so no thread's line is at hand. The set reports each event to one thread, which
//! owns the handle directly; what has no event waits in the open line (`open_line.rs`); and the
//! set's alarm reports to one thread that a time has come.
//!
//! Between the report of an event to a thread and the moment when that thread has noted it, others
//! can't know of it. It matters to two only: a drain that ends a handle, and a time-out that ends
//! an idle one. These ask the descriptor itself ([`Registry::finds_news`]).

use std::{io, os::fd::RawFd};

use super::{
    super::{
        claim::Claim,
        context::Afterwards,
        handle::Key,
        open_line::{Call, First, OpenLine},
        owner::Signal,
        readiness::{Readiness, Stale},
        slot::Owned,
    },
    Registry, SHUT,
};
use crate::{
    handle_set::{Batch, ConcurrentSet, Event, Ready, Told},
    sync::{lock, Mutex, Timestamp},
};

/// A look into the set that does not wait brings at most so many.
const MANY: usize = 256;

/// What a thread has found that looked for something to do.
#[must_use]
pub(crate) enum Found<'r> {
    /// This handle, claimed.
    Handle(Claim<'r>),
    /// The set reported something else: there may be more.
    LookAgain,
    /// Nothing came, or the wait was interrupted.
    Nothing,
}

impl<'r> Found<'r> {
    fn of(claim: Option<Claim<'r>>) -> Self {
        claim.map_or(Self::LookAgain, Self::Handle)
    }
}

/// What a registry has whose set is a concurrent one.
pub(super) struct Open {
    line: OpenLine,
    /// The set's alarm: a thread that sets it reads the earliest time and changes the set under
    /// this lock, so the last change is right.
    alarm: Mutex<()>,
}

impl Open {
    pub(super) fn new() -> Self {
        Self {
            line: OpenLine::new(),
            alarm: Mutex::new(()),
        }
    }
}

impl Registry {
    /// Whether all threads may wait at once, and none leads.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The next handle, for one of many threads that look for one; it sleeps until `until` (`None`:
    /// for ever) if there is nothing.
    pub(crate) fn next_for_anyone(&self, until: Option<Timestamp>) -> io::Result<Found<'_>> {
        let Some((open, set)) = self.open() else {
            return Ok(Found::Nothing);
        };
        let at_once = Some(Timestamp::PAST);
        match open.line.first(until != at_once) {
            First::Handle(index, call) => {
                self.obey(call);
                Ok(Found::of(self.claim(index)))
            }
            First::Over => Ok(Found::Nothing),
            First::Sleep => self.ask(open, set, 1, until, true),
            First::Nothing => self.ask(open, set, 1, at_once, false),
            First::Look => self.ask(open, set, MANY, at_once, false),
        }
    }

    /// Waits in the set. The first handle that it reports is this thread's; if it reports none, the
    /// first of the line.
    fn ask(
        &self,
        open: &Open,
        set: &dyn ConcurrentSet,
        room: usize,
        until: Option<Timestamp>,
        sleeps: bool,
    ) -> io::Result<Found<'_>> {
        let (mut claim, mut woken, mut alarm, mut anything) = (None, false, false, false);
        let waited = set.wait_among_others(room, until, &mut |told| {
            anything = true;
            match told {
                Told::Handle(event) => self.hear(open, event, &mut claim),
                Told::Woken => woken = true,
                Told::Alarm => alarm = true,
            }
        });
        if alarm {
            self.ring(open, set);
        }
        let wants = claim.is_none() && waited.is_ok();
        let (index, call) = open.line.back(sleeps, woken, wants);
        self.obey(call);
        waited?;
        match claim.or_else(|| self.claim(index?)) {
            None if !anything => Ok(Found::Nothing),
            claim => Ok(Found::of(claim)),
        }
    }

    /// Notes what the set reports. This thread owns the first handle that needs a visit; the others
    /// go to the end of the line.
    fn hear<'r>(&'r self, open: &Open, event: Event, claim: &mut Option<Claim<'r>>) {
        let key = Key::from_bits(event.key);
        let Some(slot) = self.slots.get(key.index) else {
            return;
        };
        let reports = self.reports;
        match slot.readiness.report(key.generation, event.ready, reports) {
            Err(Stale) => self.counters.stale_events.one_more(),
            Ok(state) if !state.needs_visit() => {}
            Ok(_) if claim.is_none() => {
                let owned = self.slots.try_own(key.index);
                *claim = owned.and_then(|owned| self.claimed(owned));
            }
            Ok(_) if slot.signal() == Signal::Enlist => open.line.push_quietly(key.index),
            Ok(_) => {}
        }
    }

    /// The alarm rang: lines up everything whose time has come, and sets it for the next time.
    fn ring(&self, open: &Open, set: &dyn ConcurrentSet) {
        let alarm = lock(&open.alarm);
        self.expire(Batch::Whole, |index| open.line.push_quietly(index));
        set.set_alarm(self.timers.earliest());
        drop(alarm);
        // After the end no thread takes from the line any more: see `let_go`.
        while self.phase() == SHUT {
            match open.line.back(false, false, true) {
                (Some(index), call) => {
                    self.obey(call);
                    self.sweep(index);
                }
                (None, _) => break,
            }
        }
    }

    /// A time was set that is earlier than all others.
    #[cold]
    pub(super) fn set_alarm(&self) {
        if let Some((open, set)) = self.open() {
            let _alarm = lock(&open.alarm);
            set.set_alarm(self.timers.earliest());
        }
    }

    /// Asks for a visit. What only has to be armed is armed by this thread.
    #[cold]
    pub(super) fn signal_in_the_open(&self, index: u32) {
        if let Some(owned) = self.slots.try_own(index) {
            self.let_go(owned);
        }
    }

    /// Puts a QUEUED slot into the open line, and wakes a thread if need be.
    #[cold]
    pub(super) fn put_in_open_line(&self, index: u32) {
        if let Some(open) = &self.open {
            self.obey(open.line.push(index));
        }
    }

    /// This thread leaves. If it had put something into the open line, another thread must check
    /// the line.
    pub(crate) fn leave_open_line(&self) {
        if let Some(open) = &self.open {
            self.obey(open.line.pass_on());
        }
    }

    /// No thread shall wait any more: the leader returns from its wait; of many waiting threads one
    /// does, and passes it on.
    pub(crate) fn end_waits(&self) {
        match &self.open {
            None => self.set.wake(),
            Some(open) => self.obey(open.line.end()),
        }
    }

    /// Ends an ownership, as `let_go`, for a thread that is done with a handle and has only
    /// `afterwards` left to do. If that is nothing, the thread takes another handle at once, and no
    /// other thread is woken.
    #[cold]
    pub(in crate::dispatch) fn let_go_for_anyone(&self, owned: Owned<'_>, afterwards: &Afterwards) {
        if let Some(share) = &afterwards.share {
            share.owe(owned.readiness());
        }
        let open = self.open.as_ref().filter(|_| afterwards.is_empty());
        let Some(open) = open else {
            return self.let_go(owned);
        };
        if let Some(index) = self.rest_or_requeue(owned) {
            open.line.push_quietly(index);
            // As in `let_go`.
            if self.phase() == SHUT {
                self.sweep(index);
            }
        }
    }

    /// A thread that uses a concurrent handle has received something, or found nothing: the set
    /// shall report what is there now. If that was **owed** (see
    /// [`Share::owe`](super::super::concurrent::Share::owe)) it is paid here, by a thread that does
    /// not own the handle: an owner would turn away the thread that gets the report at once.
    /// `watched` is the descriptor, while the set has it.
    pub(in crate::dispatch) fn pay(&self, key: Key, watched: &Mutex<Option<RawFd>>, bits: Ready) {
        let descriptor = lock(watched);
        let told = descriptor.map(|descriptor| self.arm_unowned(key, descriptor, bits));
        drop(descriptor);
        if let Some(Err(_)) = told {
            // Its owner tries again, and fails the handler if it can't be.
            let _ = self.change(key, |word| word.disarm(key.generation, bits));
        }
    }

    /// Arms what the word says is armed, until the two agree: its owner may be arming another
    /// direction. A thread that armed anything has overwritten what others armed meanwhile: so it
    /// goes on also if its own direction is armed no more.
    fn arm_unowned(&self, key: Key, descriptor: RawFd, bits: Ready) -> io::Result<()> {
        let Some(slot) = self.slots.get(key.index) else {
            return Ok(());
        };
        let mut told = Ready::NONE;
        loop {
            let state = slot.readiness.look();
            let armed = state.armed();
            // If a report arrived before anything was armed, the thread that got it arms what is
            // awaited.
            let owed = armed.has(bits) || !told.is_empty();
            let is_same = state.generation() == key.generation;
            if !is_same || !owed || armed.without(told).is_empty() {
                return Ok(());
            }
            self.set
                .arm(descriptor, key.to_bits(), state.without_ended(armed))?;
            told = armed;
        }
    }

    /// Whether something is ready and awaited at a handle of a concurrent set that no thread has
    /// noted yet: it is noted now, and the handle is to be visited for it. This thread owns the
    /// handle.
    #[cold]
    pub(in crate::dispatch) fn finds_news(
        &self,
        descriptor: Option<RawFd>,
        readiness: &Readiness,
    ) -> bool {
        let asked = self.set.concurrent().zip(descriptor);
        let news = asked.map_or(Ready::NONE, |(set, descriptor)| {
            let state = readiness.look();
            state.of_news(set.glance(descriptor, state.reportable()))
        });
        readiness.restore(news);
        !news.is_empty()
    }

    fn open(&self) -> Option<(&Open, &dyn ConcurrentSet)> {
        self.open.as_ref().zip(self.set.concurrent())
    }

    fn obey(&self, call: Call) {
        if let Call::WakeOne = call {
            self.counters.wakes.one_more();
            self.set.wake();
        }
    }
}
