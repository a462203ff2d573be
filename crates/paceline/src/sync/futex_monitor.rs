//! Sleeping on a lock and a condition: the portable stand-in for a futex.

use std::{sync::PoisonError, time::Duration};

use super::{
    atomic::{AtomicU32, Ordering},
    lock, Condvar, Mutex,
};

/// The kernel's half of a futex: compare and sleep as one step.
#[derive(Debug)]
pub(super) struct Futex {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(super) fn new() -> Self {
        Self {
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Sleeps while `word` is `value`. Under loom and shuttle a wait never times out: time is a
    /// step of the virtual clock there.
    pub(super) fn sleep_while(&self, word: &AtomicU32, value: u32, timeout: Option<Duration>) {
        let guard = lock(&self.lock);
        if word.load(Ordering::Acquire) != value {
            return;
        }
        match timeout {
            None => drop(
                self.woken
                    .wait(guard)
                    .unwrap_or_else(PoisonError::into_inner),
            ),
            Some(timeout) => drop(self.woken.wait_timeout(guard, timeout)),
        }
    }

    /// Wakes one thread that sleeps on the word.
    pub(super) fn wake_one(&self, _word: &AtomicU32) {
        // Taking the lock puts this wake after the sleeper's look at the word, or before it.
        drop(lock(&self.lock));
        self.woken.notify_one();
    }

    /// Wakes every thread that sleeps on the word.
    pub(super) fn wake_all(&self, _word: &AtomicU32) {
        drop(lock(&self.lock));
        self.woken.notify_all();
    }
}
