//! The kinds of handle sets, and how each is opened.

use std::io;

use crate::{
    handle_set::{simulated::Simulation, HandleSet, PollSet, Reports},
    sync::Clock,
};

/// Where the leader waits, or everyone.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum SetKind {
    /// Edge-triggered epoll: a descriptor is registered with the kernel once, and no system call is
    /// made for it again but to read and write.
    #[default]
    Epoll,
    /// One-shot epoll, the textbook's deactivation: each event silences its descriptor until it is
    /// armed again, one more system call per event. Level-triggered: also for descriptors that know
    /// no edges.
    OneShot,
    /// `poll`, to be had everywhere. Every wait looks at every handle that waits. Level-triggered
    /// too.
    Poll,
    /// One-shot epoll in which all threads wait at once: the paper's concurrent handle set.
    ///
    /// Each event is reported to one thread, which the system chooses. No thread leads and none is
    /// promoted, so the settings for that do not apply: order, priorities, wake policy,
    /// parallelism, tick, watcher and leader spin. For observers a thread is a follower while it
    /// waits. A thread is woken for what no descriptor reports: posts, closed and notified handles,
    /// handlers that have left something unread, the end of the pool.
    ///
    /// A concurrent handle on it needs no promotion and no wake at all: the next record is reported
    /// to another thread once a call of its handler has received one. A byte stream costs one more
    /// system call per event than on [`Epoll`](Self::Epoll), and the system may wake another thread
    /// for an event that the one before could have taken.
    Concurrent,
    /// A completion set, on io_uring (Linux 6.0 or later; the build fails where it is not to be
    /// had).
    ///
    /// A poll per handle lies in the kernel, and reports every edge into memory that the leader
    /// reads. A thread of the kernel's own does the work of these polls; it polls for more for some
    /// milliseconds before it sleeps, which takes a core while there is work. To register and to
    /// close wait for that thread. What a handler sees is the same as on [`Epoll`](Self::Epoll),
    /// which is faster.
    Completion,
    /// A world of its own, with its own clock, for tests.
    Simulated(Simulation),
}

impl SetKind {
    /// Whether all threads wait in it at once, and none leads.
    pub(super) fn is_for_many(&self) -> bool {
        match self {
            Self::Concurrent => true,
            Self::Simulated(world) => world.is_for_many(),
            Self::Epoll | Self::OneShot | Self::Poll | Self::Completion => false,
        }
    }
}

/// A set of this kind, and the clock of its pool.
pub(super) fn open(kind: &SetKind) -> io::Result<(Box<dyn HandleSet>, Clock)> {
    match kind {
        #[cfg(target_os = "linux")]
        SetKind::Epoll | SetKind::OneShot => {
            let clock = Clock::monotonic();
            let reports = match kind {
                SetKind::OneShot => Reports::Once,
                _ => Reports::Edges,
            };
            let set = crate::handle_set::Epoll::new(clock.clone(), reports)?;
            Ok((Box::new(set), clock))
        }
        #[cfg(target_os = "linux")]
        SetKind::Concurrent => {
            let clock = Clock::monotonic();
            let set = crate::handle_set::Epoll::for_many(clock.clone())?;
            Ok((Box::new(set), clock))
        }
        #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
        SetKind::Completion => {
            let clock = Clock::monotonic();
            let set = crate::handle_set::CompletionSet::new(clock.clone())?;
            Ok((Box::new(set), clock))
        }
        #[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
        SetKind::Completion => {
            let text = "build a pool: io_uring is not to be had on this system";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
        SetKind::Poll => {
            let clock = Clock::monotonic();
            let set = PollSet::new(clock.clone())?;
            Ok((Box::new(set), clock))
        }
        #[cfg(not(target_os = "linux"))]
        SetKind::Epoll | SetKind::OneShot | SetKind::Concurrent => {
            let text = "build a pool: epoll is not to be had on this system";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
        SetKind::Simulated(world) => Ok((world.set()?, world.clock_of_pool())),
    }
}
