//! Several leaders, one for each source: which thread leads which, and which takes over.
//!
//! ```text
//!  vacant  --> led      [arrive]     a free thread takes the source that has waited longest
//!  led     --> led      [promote]    its leader has an event: the newest follower gets it
//!  led     --> vacant   [promote]    the same, without a free thread: the next one takes it
//!  led     --> over     [retire]     it will bring nothing more
//! ```
//!
//! All of it is one small lock. At every moment in which that is free:
//!
//! - a source is vacant, or over, or led by one thread (L1);
//! - if a source is vacant, no follower sleeps (L2). A thread that is handed one is no follower any
//!   more, though it may still be waking up.

use std::{collections::VecDeque, sync::Arc};

use crate::sync::{lock, Clock, Mutex, Parker, Timestamp};

/// The message that there is nothing more to do; others are the number of a source, and [`FIRST`].
const GO_HOME: u32 = 1;
const FIRST: u32 = 2;

/// The number of sources that can be distinguished.
pub(super) const MOST_SOURCES: usize = 1 << 20;

/// Which thread leads which source.
#[derive(Debug, Default)]
pub(super) struct Succession(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Sources without a leader, the longest first.
    vacant: VecDeque<usize>,
    /// Where followers sleep, the newest last.
    followers: Vec<Arc<Parker>>,
    /// Sources that are led.
    leaders: usize,
    /// No thread leads any more.
    is_closed: bool,
}

/// What became of a thread that has nothing to do.
#[must_use]
pub(super) enum Arrival<'s> {
    Leads(Lead<'s>),
    TimedOut,
    Closed,
}

/// What became of a source that was given away.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promotion {
    /// A follower has it, and was woken.
    HandedOver,
    /// No thread was free: the next one to come back takes it.
    LeftVacant,
    /// No thread leads any more.
    Closed,
}

/// The right to wait in one source. Dropped, it is given away.
#[must_use]
pub(super) struct Lead<'s> {
    succession: &'s Succession,
    source: usize,
}

impl Lead<'_> {
    pub(super) fn source(&self) -> usize {
        self.source
    }

    /// Gives the source away, before its event is handled.
    pub(super) fn promote(self) -> Promotion {
        let promotion = self.succession.give_away(self.source);
        std::mem::forget(self);
        promotion
    }

    /// The source is over: no thread leads it any more.
    pub(super) fn retire(self) {
        lock(&self.succession.0).leaders -= 1;
        std::mem::forget(self);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let _ = self.succession.give_away(self.source);
    }
}

impl Succession {
    /// One more source, which has no leader yet.
    pub(super) fn add(&self, source: usize) {
        lock(&self.0).leaders += 1;
        // As if a thread had led it, and gave it away.
        let _ = self.give_away(source);
    }

    /// This thread has nothing to do: it leads a source that is vacant, or follows until it is
    /// handed one, `deadline` has passed, or all ends. `seat` is its own.
    pub(super) fn arrive(
        &self,
        seat: &Arc<Parker>,
        clock: &Clock,
        deadline: Option<Timestamp>,
    ) -> Arrival<'_> {
        let mut state = lock(&self.0);
        if state.is_closed {
            return Arrival::Closed;
        }
        if clock.has_passed(deadline) {
            return Arrival::TimedOut;
        }
        if let Some(source) = state.vacant.pop_front() {
            state.leaders += 1;
            return Arrival::Leads(self.lead(source));
        }
        state.followers.push(Arc::clone(seat));
        drop(state);
        self.follow(seat, clock, deadline)
    }

    /// How many sources are led, and how many followers sleep.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.0);
        (state.leaders, state.followers.len())
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.0).is_closed
    }

    /// No thread follows any more, and a leader shall not go on. The followers are woken.
    pub(super) fn close(&self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        let followers = std::mem::take(&mut state.followers);
        followers.iter().for_each(|seat| seat.post(GO_HOME));
        drop(state);
        followers.iter().for_each(|seat| seat.wake());
    }

    /// Sleeps until there is a message. The thread that takes this one off the list leaves it under
    /// the lock.
    fn follow(
        &self,
        seat: &Arc<Parker>,
        clock: &Clock,
        deadline: Option<Timestamp>,
    ) -> Arrival<'_> {
        loop {
            if let Some(arrival) = self.obey(seat.take()) {
                return arrival;
            }
            if clock.has_passed(deadline) {
                return self.leave(seat);
            }
            clock.sleep(seat, deadline);
        }
    }

    fn obey(&self, message: u32) -> Option<Arrival<'_>> {
        match message {
            0 => None,
            GO_HOME => Some(Arrival::Closed),
            number => Some(Arrival::Leads(self.lead((number - FIRST) as usize))),
        }
    }

    /// The time of a follower is over. If it was handed a source meanwhile, it passes that on.
    fn leave(&self, seat: &Arc<Parker>) -> Arrival<'_> {
        let mut state = lock(&self.0);
        state.followers.retain(|other| !Arc::ptr_eq(other, seat));
        drop(state);
        match self.obey(seat.take()) {
            Some(Arrival::Leads(lead)) => {
                drop(lead);
                Arrival::TimedOut
            }
            _ => Arrival::TimedOut,
        }
    }

    /// A source that was led is the newest follower's, or vacant.
    fn give_away(&self, source: usize) -> Promotion {
        let mut state = lock(&self.0);
        if state.is_closed {
            state.leaders -= 1;
            return Promotion::Closed;
        }
        match state.followers.pop() {
            None => {
                state.leaders -= 1;
                state.vacant.push_back(source);
                Promotion::LeftVacant
            }
            Some(seat) => {
                // Under the lock: a thread that is taken off the list has its message.
                seat.post(source as u32 + FIRST);
                drop(state);
                seat.wake();
                Promotion::HandedOver
            }
        }
    }

    fn lead(&self, source: usize) -> Lead<'_> {
        Lead {
            succession: self,
            source,
        }
    }

    /// How many sources have no leader.
    #[cfg(all(test, loom))]
    pub(super) fn vacant(&self) -> usize {
        lock(&self.0).vacant.len()
    }
}
