//! The open line: what needs a visit in a pool on a concurrent set. It belongs to no thread, and
//! all take from it.
//!
//! Most handles never wait here: the set reports them to a thread, and they are armed again when
//! they are let go. Here wait those that no descriptor will report: posts, timers that are due,
//! notified and closing handles, and those whose handler has left something unread. All of it is
//! under one lock, with the number of threads that sleep in the set:
//!
//! ```text
//!  a thread checks it     [OpenLine::first]   takes the first; if there is none, it sleeps:
//!                                             counted in the same step
//!  a thread puts one in   [OpenLine::push]    if one sleeps and no wake is on its way: wakes one
//!  a thread is back       [OpenLine::back]    no more asleep; its wake is used up; takes the first
//! ```
//!
//! Wakes that no thread has taken yet are one, so there is a **chain**: a thread that takes a
//! handle and leaves others behind wakes the next, if one sleeps. So while a handle waits here and
//! a thread sleeps, a wake is on its way: it was sent, and the thread that gets it takes the first
//! handle and checks for more. The end of the pool travels along the same chain, to every thread.
//!
//! A thread that lets a handle go and is about to check the line puts it in quietly; if it leaves
//! instead, it wakes another ([`OpenLine::pass_on`]).

use std::collections::VecDeque;

use crate::sync::{lock, Mutex};

/// After this many handles were taken from here the set is polled, although handles wait (F1).
const TAKEN_BETWEEN_LOOKS: u32 = 64;

/// Whether a thread must be woken.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The caller wakes one of the sleeping threads.
    WakeOne,
    /// There is no need, or no thread sleeps, or a wake is on its way.
    Nobody,
}

/// What a thread finds that looks for something to do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// This handle.
    Handle(u32, Call),
    /// It is time to look into the set before the line.
    Look,
    /// Nothing. It counts as asleep from here on, until [`OpenLine::back`].
    Sleep,
    /// Nothing, and it does not want to sleep.
    Nothing,
    /// No thread sleeps any more.
    Over,
}

/// Handles that wait for the next free thread, and how many threads sleep.
#[derive(Debug)]
pub(super) struct OpenLine(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    waiting: VecDeque<u32>,
    /// Threads that sleep in the set, or are about to, or have just got a report there.
    asleep: usize,
    /// A wake is on its way, and the thread that gets it has not been here yet.
    called: bool,
    /// The pool has ended.
    over: bool,
    since_look: u32,
}

impl OpenLine {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Inside {
            waiting: VecDeque::with_capacity(256),
            asleep: 0,
            called: false,
            over: false,
            since_look: 0,
        }))
    }

    /// Puts a handle at the end. Its owner word says QUEUED.
    pub(super) fn push(&self, index: u32) -> Call {
        let mut inside = lock(&self.0);
        inside.waiting.push_back(index);
        inside.call()
    }

    /// The same for a thread that is about to look, or to [`pass_on`](Self::pass_on).
    pub(super) fn push_quietly(&self, index: u32) {
        lock(&self.0).waiting.push_back(index);
    }

    /// What this thread is to do.
    pub(super) fn first(&self, may_sleep: bool) -> First {
        let mut inside = lock(&self.0);
        if inside.since_look >= TAKEN_BETWEEN_LOOKS {
            inside.since_look = 0;
            return First::Look;
        }
        match inside.take() {
            Some(index) => First::Handle(index, inside.call()),
            None if inside.over => First::Over,
            None if may_sleep => {
                inside.asleep += 1;
                First::Sleep
            }
            None => First::Nothing,
        }
    }

    /// This thread was in the set: whether it `slept` there, was `woken`, and `wants` what waits
    /// here.
    pub(super) fn back(&self, slept: bool, woken: bool, wants: bool) -> (Option<u32>, Call) {
        let mut inside = lock(&self.0);
        inside.asleep -= usize::from(slept);
        inside.called &= !woken;
        let first = if wants { inside.take() } else { None };
        (first, inside.call())
    }

    /// This thread does not look, whatever it has put in.
    pub(super) fn pass_on(&self) -> Call {
        lock(&self.0).call()
    }

    /// No thread shall sleep any more. A thread that learns of it passes it on, until none sleeps.
    pub(super) fn end(&self) -> Call {
        let mut inside = lock(&self.0);
        inside.over = true;
        inside.call()
    }
}

impl Inside {
    fn take(&mut self) -> Option<u32> {
        let first = self.waiting.pop_front();
        self.since_look = match first {
            Some(_) => self.since_look + 1,
            None => 0,
        };
        first
    }

    /// Whether a wake must be sent: there is a reason, a thread sleeps, and no wake is on its way.
    fn call(&mut self) -> Call {
        let reason = self.over || !self.waiting.is_empty();
        if reason && self.asleep > 0 && !self.called {
            self.called = true;
            Call::WakeOne
        } else {
            Call::Nobody
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A wake is a system call. One is sent if a thread sleeps, and the next one by the thread that
    /// got it, if there is more; a thread that checks by itself needs none.
    #[test]
    fn one_wake_at_a_time() {
        let line = OpenLine::new();
        line.push_quietly(0);
        assert_eq!(line.push(1), Call::Nobody, "nobody sleeps");
        assert_eq!(line.first(true), First::Handle(0, Call::Nobody));
        assert_eq!(line.first(true), First::Handle(1, Call::Nobody));
        assert_eq!(line.first(false), First::Nothing);
        assert_eq!(line.first(true), First::Sleep);
        assert_eq!(line.first(true), First::Sleep);
        assert_eq!(line.push(2), Call::WakeOne);
        assert_eq!(line.push(3), Call::Nobody, "it is on its way");
        assert_eq!(line.back(true, true, true), (Some(2), Call::WakeOne));
        assert_eq!(line.back(true, true, true), (Some(3), Call::Nobody));
        line.push_quietly(4);
        assert_eq!(line.back(false, false, true), (Some(4), Call::Nobody));
    }

    /// F1: however many wait here, the set has its turn.
    #[test]
    fn the_set_has_its_turn() {
        let line = OpenLine::new();
        (0..=TAKEN_BETWEEN_LOOKS).for_each(|index| line.push_quietly(index));
        let taken = (0..TAKEN_BETWEEN_LOOKS).map(|_| line.first(false));
        assert!(taken.into_iter().all(|first| first != First::Look));
        assert_eq!(line.first(false), First::Look);
        assert!(matches!(line.first(false), First::Handle(..)));
    }

    /// The end wakes one thread, which wakes the next, until none sleeps; and none falls asleep any
    /// more.
    #[test]
    fn the_end_is_passed_on() {
        let line = OpenLine::new();
        assert_eq!(line.first(true), First::Sleep);
        assert_eq!(line.first(true), First::Sleep);
        assert_eq!(line.end(), Call::WakeOne);
        assert_eq!(line.end(), Call::Nobody, "it is on its way");
        assert_eq!(line.back(true, true, true), (None, Call::WakeOne));
        assert_eq!(line.back(true, true, true), (None, Call::Nobody));
        assert_eq!(line.first(true), First::Over);
    }
}
