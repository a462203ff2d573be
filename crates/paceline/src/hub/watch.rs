//! The watcher's thread: started when handlers first block by surprise, twice in a short time.
//!
//! It is no member of the pool: it never leads and handles nothing. It goes when the pool is
//! closed, and no thread waits for that, because a thread of its class may be without a core for
//! long. So it has only the lead: nothing of the user's, and no descriptor, is dropped there.
//! `promotion/watcher.rs` has what it does.

use std::{
    // Whether it was started orders nothing.
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
};

use super::Hub;
use crate::{
    dispatch::Line,
    promotion::{Lead, Surprise},
    sync::{idle_class, Clock, Timestamp},
    unwind::abort_on_unwind,
};

/// What is needed to start the watcher.
#[derive(Debug)]
pub(crate) struct Watch {
    lead: Arc<Lead<Line>>,
    clock: Clock,
    /// The name of its thread.
    name: String,
    started: AtomicBool,
}

impl Watch {
    pub(crate) fn new(lead: &Arc<Lead<Line>>, clock: &Clock, name: &str) -> Self {
        Self {
            lead: Arc::clone(lead),
            clock: clock.clone(),
            name: format!("{name}-watcher"),
            started: AtomicBool::new(false),
        }
    }

    /// Whether there is a class of threads that the system runs only on idle cores.
    pub(crate) fn can_be_had() -> bool {
        cfg!(all(target_os = "linux", not(any(loom, shuttle))))
    }

    /// Starts it, once. If no thread is to be had, the next surprise tries again: the standby does
    /// without it.
    fn start(&self) {
        if self.started.swap(true, Ordering::Relaxed) {
            return;
        }
        let (lead, clock) = (Arc::clone(&self.lead), self.clock.clone());
        let watch = move || {
            if idle_class::enter() {
                abort_on_unwind(|| lead.watch(&clock));
            }
        };
        let started = thread::Builder::new().name(self.name.clone()).spawn(watch);
        self.started.store(started.is_ok(), Ordering::Relaxed);
    }
}

impl Hub {
    /// A handler has blocked by surprise.
    #[cold]
    pub(crate) fn note_surprise(&self, now: Timestamp) {
        if self.lead.note_surprise(now) == Surprise::Frequent {
            self.watch.start();
        }
    }
}
