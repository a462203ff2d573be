//! The pool: joins promotion, handle set and dispatch, and owns the threads.
//!
//! It is the only room that knows all the others. `turn.rs` has what a thread does in it,
//! `builder.rs` how it is built, `crew.rs` which threads are in it, `threads.rs` its own threads,
//! `shutdown.rs` how it ends, `observation.rs` what it shows of itself. A pool can be given any
//! source (`references.rs`), listeners (`listen.rs`), outgoing connections (`connect.rs`), groups
//! (`groups.rs`), posts and timers (`tasks.rs`), queues and semaphores (`sources.rs`).

// The documentation of `Pool` has its methods in the order of these modules.
mod references;

mod tasks;

mod connect;

mod groups;

mod sources;

mod attach;

mod observation;

mod entrance;

mod builder;
mod clock;
mod listen;
mod set_kind;

mod crew;
mod monitor;
mod shutdown;
mod threads;
mod visits;
mod watch;

#[cfg(all(test, loom))]
mod models;

use std::{fmt, io, sync::Arc};

pub use self::{
    builder::Builder,
    clock::PoolClock,
    entrance::Entrance,
    listen::{Listener, ListenerBuilder, ListenerSocket},
    observation::{Inspect, Observation},
    references::{Pool, WeakPool},
    set_kind::SetKind,
    shutdown::{ShutdownReport, Unfinished},
    sources::Sources,
    tasks::{Timer, TimerGuard},
    threads::Threads,
};
use crate::{
    dispatch::{Line, Registry},
    observe::{Counters, Observers},
    promotion::Lead,
    sync::{thread, Clock, Looks, Mutex, Timestamp},
    turn::{self, Follower, LeaderSpin, Left, Spins},
};
use crew::Crew;
pub(crate) use crew::Membership;
pub(crate) use listen::TakenOnBy;
use monitor::Monitor;
pub(crate) use shutdown::Ending;
use threads::Outfit;
pub(crate) use visits::{Visitor, Visits};
use watch::Watch;

/// Gets errors of the wait on the pool's own threads, and of threads that could not be had.
type ErrorHook = Box<dyn Fn(&io::Error) + Send + Sync>;

/// What the threads of a pool share.
pub(crate) struct Shared {
    /// The right to wait; and the line of handles that belongs to its holder.
    pub(crate) lead: Arc<Lead<Line>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) crew: Crew,
    /// The thread that watches for surprises.
    watch: Watch,
    /// Whether a leader that finds nothing looks again and again before it sleeps.
    pub(crate) leader_spin: LeaderSpin,
    /// Whether that pays, if it is to find out.
    pub(crate) spins: Spins,
    /// Whether a leader that finds nothing lets others run, and looks once more.
    pub(crate) looks: Looks,
    pub(crate) observers: Arc<Observers>,
    /// The thread that finds stuck handlers, if there is one.
    monitor: Option<Arc<Monitor>>,
    /// The threads that the pool spawned, by their index in the crew.
    threads: Mutex<Vec<(usize, thread::JoinHandle<()>)>>,
    /// What the pool's own threads begin with.
    outfit: Outfit,
    /// Errors of the wait on the pool's own threads, and of spawning them.
    errors: Mutex<Vec<io::Error>>,
    on_error: Option<ErrorHook>,
}

impl Shared {
    /// Whether no thread shall wait any more. The leader that finds everything drained closes the
    /// lead.
    pub(crate) fn is_over(&self) -> bool {
        if self.registry.is_drained() {
            self.lead.close();
        }
        self.lead.is_closed()
    }

    /// The same, or whether the pool is observed, as one question.
    pub(crate) fn wants_attention(&self) -> bool {
        if self.registry.is_drained() {
            self.lead.close();
        }
        self.lead.wants_attention()
    }

    fn join(&self, deadline: Option<Timestamp>, priority: u8) -> io::Result<Left> {
        if self.lead.is_closed() {
            return Ok(Left::Closing);
        }
        turn::join(self.enter(deadline, priority)?)
    }

    fn enter(&self, deadline: Option<Timestamp>, priority: u8) -> io::Result<Follower<'_>> {
        if self.registry.runs_here() {
            let text = "enter: this thread is inside a handler of the same pool";
            return Err(io::Error::new(io::ErrorKind::Deadlock, text));
        }
        if self.lead.is_closed() {
            let text = "enter: the pool is shut down";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        }
        let seat = self.crew.enlist(priority)?;
        let tray = turn::open_tray(self, &seat);
        self.name(seat.index(), thread::current().id(), tray.as_deref());
        let membership = self.crew.arrived(seat.index());
        Ok(Follower::new(self, seat, deadline, tray, Some(membership)))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("lead", &self.lead)
            .finish_non_exhaustive()
    }
}
