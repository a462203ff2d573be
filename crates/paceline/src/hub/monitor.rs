//! The monitor: a thread that finds handlers that are stuck, also when all threads of the pool are.
//!
//! It is no member of the pool: it never leads and handles nothing. It has the board and the hook,
//! and nothing else of the pool; so it keeps neither the pool alive nor anything that the pool
//! owns, and no thread waits for it.
//!
//! A call is due when it has lasted for the limit. Calls that begin after a look can't be due
//! before the limit has passed once more; so the monitor sleeps until then, or until the first of
//! those that it has seen is due.

use std::{collections::HashMap, fmt, io, sync::Arc, time::Duration};

use crate::{
    observe::{Board, Observers, Stuck},
    sync::{thread, Parker, Timestamp},
    unwind::{abort_on_unwind, caught},
};

/// Gets calls that last too long.
pub(crate) type StuckHook = Box<dyn Fn(&Stuck) + Send + Sync>;

/// What the monitor's thread has.
pub(crate) struct Monitor {
    board: Arc<Board>,
    limit: Duration,
    hook: StuckHook,
    observers: Arc<Observers>,
    /// Where it sleeps; a message ends it.
    parker: Arc<Parker>,
}

/// The calls that were reported, by thread: when each began, and the report.
type Told = HashMap<usize, (Timestamp, Stuck)>;

const STOP: u32 = 1;

impl Monitor {
    pub(crate) fn new(
        board: Arc<Board>,
        limit: Duration,
        hook: StuckHook,
        observers: Arc<Observers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            board,
            limit,
            hook,
            observers,
            parker: Arc::new(Parker::new()),
        })
    }

    /// Spawns its thread.
    pub(crate) fn start(self: &Arc<Self>, name: &str) -> io::Result<()> {
        let name = format!("{name}-monitor");
        let monitor = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name(name.clone())
            .spawn(move || abort_on_unwind(|| monitor.watch()));
        match spawned {
            Ok(_) => Ok(()),
            Err(error) => {
                let text = format!("spawn thread {name}: {error}");
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    /// Ends it, and does not wait for that.
    pub(crate) fn stop(&self) {
        self.parker.post(STOP);
        self.parker.wake();
    }

    /// Its life.
    fn watch(&self) {
        let (clock, mut told) = (self.board.clock(), Told::new());
        loop {
            // Before the look: what begins later is due later.
            let at_the_latest = clock.now().after(self.limit);
            let next = self.look(&mut told);
            let until = next.map_or(at_the_latest, |next| next.min(at_the_latest));
            loop {
                // Asked after every look, also if there is no time to sleep. The message stays.
                if self.parker.change(|message| message) == STOP {
                    return;
                }
                if clock.has_passed(Some(until)) {
                    break;
                }
                clock.sleep(&self.parker, Some(until));
            }
        }
    }

    /// Reports the calls that are stuck, and those that are no more. Returns when the next one will
    /// be.
    fn look(&self, told: &mut Told) -> Option<Timestamp> {
        let (stuck, next) = self.board.stuck(self.limit);
        told.retain(|thread, (began, call)| {
            let goes_on = stuck
                .iter()
                .any(|(other, it)| it.thread == *thread && other == began);
            if !goes_on {
                call.is_over = true;
                call.call.lasts = self.board.clock().now().since(*began);
                self.tell(call);
            }
            goes_on
        });
        for (began, call) in stuck {
            told.entry(call.thread).or_insert_with(|| {
                self.tell(&call);
                (began, call)
            });
        }
        next
    }

    fn tell(&self, call: &Stuck) {
        let _ = caught(|| (self.hook)(call));
        self.observers.tell(|it| it.stuck(call));
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
