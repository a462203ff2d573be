//! A gate where threads of a pool wait until the test lets them through.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::support::{wait_until, LONG};

#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// How many have come so far.
    entered: usize,
    /// How many wait, also those who may pass and have not gone yet.
    inside: usize,
    /// The most that waited at the same time.
    most: usize,
    /// So many more may pass.
    permits: usize,
}

impl Gate {
    pub fn shut() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until it is let through.
    pub fn pass(&self) {
        let mut state = self.state();
        state.entered += 1;
        state.inside += 1;
        state.most = state.most.max(state.inside);
        let wait = self
            .moved
            .wait_timeout_while(state, LONG, |state| state.permits == 0);
        let (mut state, waited) = wait.unwrap();
        assert!(!waited.timed_out(), "permission comes");
        state.permits -= 1;
        state.inside -= 1;
    }

    /// So many of those who wait, or will come.
    pub fn let_through(&self, count: usize) {
        self.state().permits += count;
        self.moved.notify_all();
    }

    /// All who wait, and until they have gone.
    pub fn let_all_through(&self) {
        self.let_through(self.inside());
        wait_until(|| self.state().permits == 0);
    }

    /// Waits until so many wait here.
    pub fn wait_for(&self, count: usize) {
        wait_until(|| self.inside() == count);
    }

    /// Waits until so many have come so far.
    pub fn wait_for_all(&self, count: usize) {
        wait_until(|| self.state().entered == count);
    }

    pub fn inside(&self) -> usize {
        self.state().inside
    }

    /// How many wait, and go only if more are let through.
    pub fn shut_out(&self) -> usize {
        let state = self.state();
        state.inside.saturating_sub(state.permits)
    }

    pub fn most(&self) -> usize {
        self.state().most
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}
