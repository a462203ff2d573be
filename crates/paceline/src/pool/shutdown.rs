//! The end of a pool, in numbered steps.

use std::{fmt, io, time::Duration};

use crate::{
    dispatch::HandleId,
    hub::Hub,
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
    /// Handles that were still with those threads. They close when their handlers return. A group
    /// counts as one more.
    pub busy_handles: usize,
    /// Posted work that was not done, and timers that were due and not called.
    pub undone_tasks: usize,
    /// Items that queues and semaphores had accepted and no thread handled: left at the end, or
    /// when a handler panicked.
    pub unhandled_items: usize,
    /// Timers that were to be called once, and were not due. They do not count as unfinished.
    pub timers_not_due: usize,
    /// Errors of the wait itself on the pool's own threads, and of spawning them and setting them
    /// up (the first sixteen).
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
    /// Whether its handler was not called for something that had come, as far as the pool knows:
    /// input, a notification, or the handle itself.
    pub unhandled: bool,
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

/// One line. The texts of the parts that are nothing are left out.
impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clean = "everything was finished".to_owned();
        let parts = [
            self.is_clean().then_some(clean),
            self.text_of_unfinished(),
            counted(self.busy_handles, "handle", "still busy"),
            counted(self.undone_tasks, "task", "not done"),
            counted(self.unhandled_items, "item", "not handled"),
            self.text_of_stuck(),
            self.text_of_errors(),
            counted(self.timers_not_due, "timer", "not due"),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("; "))
    }
}

impl ShutdownReport {
    /// The handles that were closed unfinished, and what their peers miss.
    fn text_of_unfinished(&self) -> Option<String> {
        let handles = counted(self.unfinished.len(), "handle", "closed unfinished")?;
        let unhandled = self.unfinished.iter().filter(|it| it.unhandled).count();
        let unsent = self.unfinished.iter().map(|it| it.unsent).sum();
        let details = [
            (unhandled > 0).then(|| format!("{unhandled} with unhandled input")),
            counted(unsent, "byte", "unsent"),
        ];
        let details: Vec<_> = details.into_iter().flatten().collect();
        Some(if details.is_empty() {
            handles
        } else {
            format!("{handles} ({})", details.join(", "))
        })
    }

    fn text_of_stuck(&self) -> Option<String> {
        let threads = counted(self.stuck_threads.len(), "thread", "stuck")?;
        Some(format!("{threads}: {}", self.stuck_threads.join(", ")))
    }

    fn text_of_errors(&self) -> Option<String> {
        let first = self.errors.first()?;
        Some(match self.errors.len() {
            1 => format!("an error of its threads: {first}"),
            count => format!("{count} errors of its threads, the first: {first}"),
        })
    }
}

/// So many of something, and what is the matter with them; nothing if there are none.
fn counted(count: usize, what: &str, matter: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {what} {matter}")),
        count => Some(format!("{count} {what}s {matter}")),
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

impl Hub {
    /// Ends the pool within a time: see [`Pool::shutdown`](super::Pool::shutdown). May be called
    /// from several threads, and again.
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
        // 1. No registration and no thread any more; what exists ends when it has nothing left to
        //    do. A handler that calls this is not waited for, and since its thread blocks now,
        //    another thread is woken to lead.
        self.membership.stop_hiring();
        self.registry.excuse_own_frames();
        self.registry.leave_own_mailbox();
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
        //    every thread goes. If no thread is there, the shutdown waits for none; but those that
        //    roam may come.
        let may_come = || !self.registry.is_drained() && self.lead.may_be_visited();
        self.membership
            .wait_for_others(&self.clock, drained_by, may_come);
        // 3. No thread leads any more; every thread is woken to go.
        self.lead.close();
        self.membership.end_visits();
        self.registry.end_waits();
        self.membership
            .wait_for_others(&self.clock, deadline, || false);
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
                .map(|lost| Unfinished {
                    handle: lost.handle,
                    unsent: lost.unsent,
                    unhandled: lost.unhandled,
                })
                .collect(),
            stuck_threads,
            busy_handles: live.saturating_sub(self.registry.own_handles()),
            errors: std::mem::take(&mut *lock(&self.errors)),
        }
    }

    /// Joins the pool's own threads that have ended; names all that have not.
    fn part_from_threads(&self, deadline: Timestamp) -> Vec<String> {
        let inside = self.membership.others();
        let mut stuck: Vec<_> = inside.iter().map(|(_, name)| name.clone()).collect();
        let me = thread::current().id();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for (index, thread) in threads {
            // Another one may be in a shutdown of its own, and wait for this one.
            if self.membership.has(index) || thread.thread().id() == me {
                continue;
            }
            // It has only its thread-local variables to drop, but these are user code too.
            while !is_finished(&thread) && !self.clock.has_passed(Some(deadline)) {
                thread::yield_now();
            }
            if is_finished(&thread) {
                drop(thread.join())
            } else {
                stuck.push(format!("thread {index}, ending"))
            }
        }
        stuck
    }
}
