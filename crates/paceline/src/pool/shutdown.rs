//! The end of a pool, in numbered steps.

use std::{fmt, io, time::Duration};

use super::Shared;
use crate::{
    dispatch::HandleId,
    sync::{is_finished, lock, thread, Timestamp},
};

/// What a shutdown left undone.
#[must_use]
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Handles that still had something to do, and were closed.
    pub unfinished: Vec<Unfinished>,
    /// Threads that were still in a handler when the time was over. They go when it returns.
    pub stuck_threads: Vec<String>,
    /// Handles that were still with those threads. They close when their handlers return. A group counts as one more.
    pub busy_handles: usize,
    /// Posted work that was not done, and timers that were due and not called.
    pub undone_tasks: usize,
    /// Items that queues and semaphores had accepted and nobody handled: left at the end, or when a handler panicked.
    pub unhandled_items: usize,
    /// Timers that were to be called once, and were not due. They do not count as unfinished.
    pub timers_not_due: usize,
    /// Errors of the wait itself on the pool's own threads, and of spawning them and setting them up (the first
    /// sixteen).
    pub errors: Vec<io::Error>,
}

/// A handle that was closed by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// Which one.
    pub handle: HandleId,
    /// Bytes of output that were kept and not sent.
    pub unsent: usize,
}

impl ShutdownReport {
    /// Whether everything was finished in time and nothing failed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unfinished.is_empty()
            && self.stuck_threads.is_empty()
            && self.busy_handles == 0
            && self.undone_tasks == 0
            && self.unhandled_items == 0
            && self.errors.is_empty()
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("everything was finished");
        }
        let unsent: usize = self.unfinished.iter().map(|handle| handle.unsent).sum();
        let of_errors = self.errors.first().map(|first| match self.errors.len() {
            1 => format!("an error of its threads: {first}"),
            count => format!("{count} errors of its threads, the first: {first}"),
        });
        let parts = [
            (!self.unfinished.is_empty()).then(|| {
                let handles = counted(self.unfinished.len(), "handle");
                match unsent {
                    0 => format!("{handles} closed unfinished"),
                    unsent => format!("{handles} closed unfinished ({unsent} bytes unsent)"),
                }
            }),
            (self.busy_handles > 0)
                .then(|| format!("{} still busy", counted(self.busy_handles, "handle"))),
            (self.undone_tasks > 0)
                .then(|| format!("{} not done", counted(self.undone_tasks, "task"))),
            (self.unhandled_items > 0)
                .then(|| format!("{} not handled", counted(self.unhandled_items, "item"))),
            (!self.stuck_threads.is_empty())
                .then(|| format!("stuck: {}", self.stuck_threads.join(", "))),
            of_errors,
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("; "))
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// When a shutdown that has begun is to be over.
#[must_use]
#[derive(Debug)]
pub(crate) struct Ending {
    deadline: Timestamp,
    /// The last tenth is for going home.
    drained_by: Timestamp,
}

impl Shared {
    /// Ends the pool within a time: see [`Pool::shutdown`](super::Pool::shutdown). May be called from
    /// several threads, and again.
    pub(super) fn shutdown(&self, within: Duration) -> ShutdownReport {
        let ending = self.begin_shutdown(within);
        self.finish_shutdown(&ending)
    }

    /// The first step, after which the pool drains.
    pub(super) fn begin_shutdown(&self, within: Duration) -> Ending {
        let start = self.clock.now();
        let ending = Ending {
            deadline: start.after(within),
            drained_by: start.after(within / 10 * 9),
        };
        // 1. Nothing and nobody new; what exists ends when it has nothing left to do. A handler that calls this
        //    is not waited for, and since its thread blocks now, somebody else is called to lead.
        self.crew.stop_hiring();
        self.registry.excuse_own_frames();
        self.registry.leave_own_tray();
        self.registry.drain();
        self.lead.elect_anyone();
        ending
    }

    /// The others, by the time that the first one has set.
    pub(super) fn finish_shutdown(&self, ending: &Ending) -> ShutdownReport {
        let Ending {
            deadline,
            drained_by,
        } = *ending;
        // 2. The pool's threads drain it. The leader that finds nothing left closes the lead, and
        //    everyone goes. If nobody is there, nobody is waited for; but those that roam may come.
        let may_come = || !self.registry.is_drained() && self.lead.may_be_visited();
        self.crew.wait_for_others(&self.clock, drained_by, may_come);
        // 3. Nobody leads any more; everyone is woken to go.
        self.lead.close();
        self.crew.end_visits();
        self.registry.end_waits();
        self.crew.wait_for_others(&self.clock, deadline, || false);
        // 4. What is left ends now: idle handles here, busy ones when their handler returns.
        self.registry.shut();
        // 5. Threads that have gone are joined, the others listed.
        let stuck_threads = self.part_from_threads(deadline);
        self.monitor.iter().for_each(|monitor| monitor.stop());
        let (lost, live) = self.registry.left_undone();
        ShutdownReport {
            undone_tasks: lost.posts,
            unhandled_items: lost.items,
            timers_not_due: lost.timers,
            unfinished: lost
                .handles
                .into_iter()
                .map(|(handle, unsent)| Unfinished { handle, unsent })
                .collect(),
            stuck_threads,
            busy_handles: live.saturating_sub(self.registry.own_handles()),
            errors: std::mem::take(&mut *lock(&self.errors)),
        }
    }

    /// Joins the pool's own threads that have ended; names all that have not.
    fn part_from_threads(&self, deadline: Timestamp) -> Vec<String> {
        let inside = self.crew.others();
        let mut stuck: Vec<_> = inside.iter().map(|(_, name)| name.clone()).collect();
        let me = thread::current().id();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for (index, thread) in threads {
            // Another one may be in a shutdown of its own, and wait for this one.
            if self.crew.has(index) || thread.thread().id() == me {
                continue;
            }
            // It has only its thread-local variables to drop, but these are user code too.
            while !is_finished(&thread) && !self.clock.has_passed(Some(deadline)) {
                thread::yield_now();
            }
            match is_finished(&thread) {
                true => drop(thread.join()),
                false => stuck.push(format!("thread {index}, ending")),
            }
        }
        stuck
    }
}
