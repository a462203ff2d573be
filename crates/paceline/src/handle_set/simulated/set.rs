//! The simulated world as a handle set.

use std::{io, os::fd::RawFd, sync::Arc};

use super::{
    super::{Answer, Batch, ConcurrentSet, Event, HandleSet, Ready, Reports},
    State, World,
};
use crate::sync::{lock, Clock, MutexGuard, Timestamp};

/// The handle set of a world.
pub(super) struct SimulatedSet(pub(super) Arc<World>);

impl World {
    /// Ends the leader's sleep, if there is one, after `state` was changed; of many who sleep, that of one.
    pub(super) fn wake_leader(&self, mut state: MutexGuard<'_, State>) {
        let sleeper = match self.is_for_many {
            true => state.call_one(),
            false => Some(Arc::clone(&self.leader)),
        };
        sleeper.iter().for_each(|sleeper| sleeper.post(1));
        drop(state);
        sleeper.iter().for_each(|sleeper| sleeper.wake());
    }
}

impl HandleSet for SimulatedSet {
    fn reports(&self) -> Reports {
        self.0.reports
    }

    fn arm(&self, descriptor: RawFd, key: u64, directions: Ready) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        let id = state.stream_of(descriptor - self.0.first_descriptor)?;
        if state.streams[id].key != Some(key) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        state.streams[id].armed = Some(directions);
        state.edge(id);
        self.0.wake_leader(state);
        Ok(())
    }

    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        let id = state.stream_of(descriptor - self.0.first_descriptor)?;
        if state.streams[id].key.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        state.streams[id].key = Some(key);
        state.streams[id].armed = None;
        state.edge(id);
        self.0.wake_leader(state);
        Ok(())
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        let id = state.stream_of(descriptor - self.0.first_descriptor)?;
        state.streams[id].key = None;
        Ok(())
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        let clock = Clock::Virtual(Arc::clone(&self.0.clock));
        let mut state = lock(&self.0.state);
        assert!(!state.waited_in, "two threads wait in one handle set (L1)");
        let interrupted = state.interrupt().is_err();
        let mut slept = false;
        while state.pending.is_empty()
            && !state.woken
            && state.failure.is_none()
            && !interrupted
            && !clock.has_passed(until)
        {
            state.waited_in = true;
            slept = true;
            self.0.leader.take();
            drop(state);
            clock.sleep(&self.0.leader, until);
            state = lock(&self.0.state);
            state.waited_in = false;
        }
        if let Some(kind) = state.failure.take() {
            return Err(kind.into());
        }
        state.take_events(events);
        let batch = match state.pending.is_empty() {
            true => Batch::Whole,
            false => Batch::Full,
        };
        Ok(Answer { batch, slept })
    }

    fn wake(&self) {
        let mut state = lock(&self.0.state);
        state.woken = true;
        state.wakes += 1;
        self.0.wake_leader(state);
    }

    fn concurrent(&self) -> Option<&dyn ConcurrentSet> {
        self.0.is_for_many.then_some(self)
    }
}
