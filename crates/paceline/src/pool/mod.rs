//! The pool: what an application builds and calls.
//!
//! It joins the hub, which its threads share, and the turn, which they run. `builder.rs` has how it
//! is built, `threads.rs` the life of its own threads, `entrance.rs` how others come into it,
//! `shutdown.rs` how it ends, `observation.rs` what it shows of itself. A pool can be
//! given any source (`references.rs`), listeners (`listen.rs`), outgoing connections
//! (`connect.rs`), groups (`groups.rs`), posts and timers (`tasks.rs`), queues and semaphores
//! (`sources.rs`).

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

mod shutdown;
mod threads;

use std::io;

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
    hub::{open_mailbox, Hub},
    sync::{thread, Timestamp},
    turn::{self, Follower, Left},
};
pub(crate) use listen::TakenOnBy;
pub(crate) use shutdown::Ending;

impl Hub {
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
        let seat = self.membership.enlist(priority)?;
        let mailbox = open_mailbox(self, &seat);
        self.name(seat.index(), thread::current().id(), mailbox.as_deref());
        let member_guard = self.membership.arrived(seat.index());
        Ok(Follower::new(
            self,
            seat,
            deadline,
            mailbox,
            Some(member_guard),
        ))
    }
}
