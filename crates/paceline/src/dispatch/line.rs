//! The ready list, as a line in which handles wait for their turn. It belongs to the holder of the
//! lead.
//!
//! Usually the first handle to be ready is served first, and that is all. An **arranged** line
//! knows since when each has waited, and the order among them (`arrangement.rs`). Its turns take a
//! way of their own, at a question that other lines ask only before they poll the set: they pay
//! nothing for it.

mod arrangement;

use std::{collections::VecDeque, io};

pub(crate) use self::arrangement::Arrangement;
pub use self::arrangement::QueueOrder;
use super::{claim::Claim, registry::Registry};
use crate::{
    handle_set::{Answer, Batch, Event},
    sync::Timestamp,
};

/// After this many dispatches the leader polls the set, although handles wait in the line (F1).
const DISPATCHES_BETWEEN_POLLS: u32 = 64;

/// How the set was asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    /// Not at all: a handle waited in the line.
    None,
    /// Without sleeping.
    WithoutSleep,
    /// Nothing was there, and the leader slept until something came.
    Slept,
}

/// Claimable handles, first come first served, and the way to find more.
#[derive(Debug)]
pub(crate) struct Line {
    waiting: VecDeque<u32>,
    /// Dispatches since the last look, and [`after_poll`](Self::after_poll).
    since_poll: u32,
    /// What `since_poll` begins with: zero, or so much that an arranged line is always asked
    /// whether it must look.
    after_poll: u32,
    /// What the last [`next`](Self::next) asked of the set.
    last_poll: Poll,
    /// The last answer of the set was not whole, or others put something back since.
    may_be_more: bool,
    /// The memory of one wait, kept for the next.
    events: Vec<Event>,
    arrangement: Option<Box<Arrangement>>,
}

impl Line {
    /// A plain one.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Self::arranged(None)
    }

    /// Arranged, if there is something to arrange.
    pub(crate) fn arranged(arrangement: Option<Arrangement>) -> Self {
        let after_poll = match arrangement {
            Some(_) => DISPATCHES_BETWEEN_POLLS,
            None => 0,
        };
        Self {
            waiting: VecDeque::with_capacity(256),
            since_poll: after_poll,
            after_poll,
            arrangement: arrangement.map(Box::new),
            last_poll: Poll::None,
            may_be_more: false,
            events: Vec::with_capacity(256),
        }
    }

    /// The next handle, claimed. Polls the set if the line is empty or a poll is due, and sleeps
    /// there until `until` (`None`: for ever) if there is nothing at all.
    ///
    /// `None`: nothing came, the wait was interrupted, or the leader was woken for another reason.
    pub(crate) fn next<'r>(
        &mut self,
        registry: &'r Registry,
        until: Option<Timestamp>,
    ) -> io::Result<Option<Claim<'r>>> {
        self.last_poll = Poll::None;
        if self.must_poll(registry) {
            if self.arrangement.is_some() {
                return self.next_arranged(registry, until);
            }
            self.poll(registry, until)?;
        }
        while let Some(index) = self.waiting.pop_front() {
            if let Some(claim) = registry.claim(index) {
                self.since_poll += 1;
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    /// Whether no handle waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How the last [`next`](Self::next) looked into the set.
    pub(crate) fn last_poll(&self) -> Poll {
        self.last_poll
    }

    /// Whether no handle waits but the next one. Polls the set, without sleeping, before it says
    /// so.
    pub(crate) fn has_no_backlog(&mut self, registry: &Registry) -> io::Result<bool> {
        if self.waiting.len() < 2 {
            self.since_poll = self.after_poll;
            self.ask(registry, Some(Timestamp::PAST))?;
        }
        Ok(self.waiting.len() < 2)
    }

    /// Whether a handle waits. Polls the set, without sleeping, if none did.
    pub(crate) fn finds_handle(&mut self, registry: &Registry) -> io::Result<bool> {
        registry.take_returned(self);
        if self.waiting.is_empty() {
            self.since_poll = self.after_poll;
            self.ask(registry, Some(Timestamp::PAST))?;
        }
        Ok(!self.waiting.is_empty())
    }

    /// Announces the sleep of a leader that sleeps in several sets at once, unless there is
    /// something. Until when it may sleep that wants to until `until`.
    pub(crate) fn may_sleep(
        &mut self,
        registry: &Registry,
        until: Option<Timestamp>,
    ) -> Option<Timestamp> {
        registry.take_returned(self);
        if self.waiting.is_empty() {
            registry.may_sleep(until)
        } else {
            Some(Timestamp::PAST)
        }
    }

    /// Ends an announced sleep.
    pub(crate) fn wake(&mut self, registry: &Registry) {
        registry.take_returned(self);
    }

    fn must_poll(&self, registry: &Registry) -> bool {
        self.waiting.is_empty()
            || self.since_poll >= DISPATCHES_BETWEEN_POLLS
            || !registry.is_accepting()
    }

    /// Puts a handle at the end of the line. Its owner word says QUEUED.
    pub(super) fn append(&mut self, index: u32) {
        self.waiting.push_back(index);
    }

    /// Asks for more, and sleeps if there is nothing.
    fn poll(&mut self, registry: &Registry, until: Option<Timestamp>) -> io::Result<()> {
        self.since_poll = self.after_poll;
        registry.take_returned(self);
        // A poll without sleep announces none: no thread need wake it.
        let sleeps = self.waiting.is_empty() && until != Some(Timestamp::PAST);
        let until = if sleeps {
            registry.may_sleep(until)
        } else {
            Some(Timestamp::PAST)
        };
        self.last_poll = if self.ask(registry, until)?.slept {
            Poll::Slept
        } else {
            Poll::WithoutSleep
        };
        // A drain takes a handle without readiness for one that is done. So the set is polled until
        // everything in the line was there before the last answer, and that was whole.
        while !registry.is_accepting() && self.may_be_more {
            self.ask(registry, Some(Timestamp::PAST))?;
        }
        Ok(())
    }

    /// Waits in the set once, and lines up what came, there, from others, and by the clock.
    fn ask(&mut self, registry: &Registry, until: Option<Timestamp>) -> io::Result<Answer> {
        let waited = registry.wait(&mut self.events, until);
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            registry.edge(event, self);
        }
        self.events = events;
        // Also ends the announced sleep, whatever the wait said.
        let before = self.waiting.len();
        registry.take_returned(self);
        let answer = waited?;
        self.may_be_more = answer.batch == Batch::Full || self.waiting.len() > before;
        registry.expire(answer.batch, |index| self.append(index));
        Ok(answer)
    }
}
