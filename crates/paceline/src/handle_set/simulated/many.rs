//! The simulated world as a concurrent set: many threads wait in it at once, and each event is
//! reported to one of them.
//!
//! Each thread sleeps on a parker of its own. Each event wakes one of them, chosen by the seed. A
//! thread that is awake takes what is reported to it, and if anything is left, or an alarm is set
//! that it might have slept for, wakes another.

use std::{io, os::fd::RawFd, sync::Arc};

use super::{
    super::{ConcurrentSet, Ready, Reports, Told},
    set::{SimulatedSet, Watch},
    PeerEnd, Simulation, State, Stream,
};
use crate::sync::{lock, Clock, Parker, Timestamp};

/// The threads that sleep in a concurrent set, and when one of them is to be woken for a time.
#[derive(Default)]
pub(super) struct Hall {
    asleep: Vec<Arc<Parker>>,
    alarm: Option<Timestamp>,
}

impl Simulation {
    /// The same, with a set in which all threads wait at once, as
    /// [`SetKind::Concurrent`](crate::SetKind::Concurrent) does.
    #[must_use]
    pub fn concurrent(seed: u64) -> Self {
        let mut state = State::new(seed, Reports::Once);
        state.watches[0].hall = Some(Hall::default());
        Self::holding(state)
    }

    /// Whether its set is a concurrent one.
    pub(crate) fn is_for_many(&self) -> bool {
        self.world.is_for_many
    }
}

impl State {
    /// Whether its sets are concurrent ones.
    pub(super) fn is_for_many(&self) -> bool {
        self.watches[0].hall.is_some()
    }

    /// Chooses one of the threads that sleep in a set.
    pub(super) fn call_one(&mut self, set: usize) -> Option<Arc<Parker>> {
        let chosen = self.next_random();
        let asleep = &mut self.watches[set].hall.as_mut()?.asleep;
        let place = chosen.checked_rem(asleep.len() as u64)?;
        Some(asleep.swap_remove(place as usize))
    }

    /// At most `room` things, in no certain order.
    fn tell_some(&mut self, set: usize, room: usize, now: Timestamp) -> Vec<Told> {
        let room = if self.strikes(self.faults.single) {
            1
        } else {
            room
        };
        let bells_first = self.next_random() % 2 == 0;
        let watch = &mut self.watches[set];
        let mut told = Vec::new();
        while told.len() < room {
            let next = if bells_first {
                watch.bell(now).or_else(|| watch.event())
            } else {
                watch.event().or_else(|| watch.bell(now))
            };
            match next {
                Some(next) => told.push(next),
                None => break,
            }
        }
        told
    }
}

impl Watch {
    /// A thread sleeps, or is up.
    fn note_sleep(&mut self, parker: &Arc<Parker>, asleep: bool) {
        if let Some(hall) = &mut self.hall {
            hall.asleep.retain(|other| !Arc::ptr_eq(other, parker));
            hall.asleep.extend(asleep.then(|| Arc::clone(parker)));
        }
    }

    fn alarm(&self) -> Option<Timestamp> {
        self.hall.as_ref()?.alarm
    }

    fn event(&mut self) -> Option<Told> {
        self.take_event().map(Told::Handle)
    }

    fn bell(&mut self, now: Timestamp) -> Option<Told> {
        if std::mem::take(&mut self.woken) {
            return Some(Told::Woken);
        }
        self.alarm().filter(|at| *at <= now)?;
        self.hall.as_mut()?.alarm = None;
        Some(Told::Alarm)
    }

    /// Whether another thread has to wake.
    fn has_more(&self) -> bool {
        self.has_news() || self.alarm().is_some()
    }
}

impl Stream {
    /// What of `directions` is ready now, or whether the connection is broken.
    fn glance(&self, directions: Ready) -> Ready {
        match (self.ended, self.ready()) {
            (Some(PeerEnd::Reset), all) => all,
            (_, ready) if ready.has(Ready::READABLE & directions) => {
                ready & (directions | Ready::HANG_UP)
            }
            (_, ready) => ready & directions,
        }
    }
}

impl ConcurrentSet for SimulatedSet {
    fn wait_among_others(
        &self,
        room: usize,
        until: Option<Timestamp>,
        tell: &mut dyn FnMut(Told),
    ) -> io::Result<()> {
        let (clock, parker) = (
            Clock::Virtual(Arc::clone(&self.world.clock)),
            Arc::new(Parker::new()),
        );
        let mut state = lock(&self.world.state);
        let is_interrupted = state.interrupt().is_err();
        let told = loop {
            if let Some(kind) = state.watches[self.set].failure.take() {
                break Err(kind);
            }
            let told = state.tell_some(self.set, room, clock.now());
            if !told.is_empty() || is_interrupted || clock.has_passed(until) {
                break Ok(told);
            }
            state.watches[self.set].note_sleep(&parker, true);
            parker.take();
            let alarm = state.watches[self.set].alarm();
            drop(state);
            let times = until.into_iter().chain(alarm);
            clock.sleep(&parker, times.min());
            state = lock(&self.world.state);
        };
        state.watches[self.set].note_sleep(&parker, false);
        if state.watches[self.set].has_more() {
            self.world.wake_leader(state, self.set)
        } else {
            drop(state)
        }
        told?.into_iter().for_each(tell);
        Ok(())
    }

    fn set_alarm(&self, at: Option<Timestamp>) {
        let mut state = lock(&self.world.state);
        if let Some(hall) = &mut state.watches[self.set].hall {
            hall.alarm = at;
        }
        // A thread sleeps until then.
        self.world.wake_leader(state, self.set);
    }

    fn glance(&self, descriptor: RawFd, directions: Ready) -> Ready {
        let state = lock(&self.world.state);
        let id = state.stream_of(descriptor - self.world.first_descriptor);
        id.map_or(Ready::NONE, |id| state.streams[id].glance(directions))
    }
}
