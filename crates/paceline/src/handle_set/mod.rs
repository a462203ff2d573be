//! Where the leader waits: the contract of a handle set, and the sets that fulfil it.
//!
//! A handle set knows descriptors and keys. It knows neither threads nor handlers nor leaders. A
//! new platform (kqueue) is one more file beside `epoll.rs`; a set of another kind is too: in
//! `completion.rs` the kernel holds requests, and reports what became of them in a ring (`ring.rs`;
//! its system calls are in `uring.rs`).
//!
//! What every set promises:
//!
//! 1. A descriptor is added once. Then a set reports **edges**: each time its readiness changes for
//!    the better, `wait` reports its key, with every kind of readiness that holds at that moment.
//!    Or it reports **once**: after `arm`, as soon as one of the armed directions is ready, and
//!    then nothing until it is armed again.
//! 2. An event may be doubled, and may come for a key that was removed a moment ago: the caller
//!    compares generations. An event is never lost.
//! 3. `wake` makes the current or the next `wait` return early; it never blocks and is never lost.
//! 4. Everything but `wait` and `wait_for_any` may be called from anywhere, at any time, also while
//!    someone waits.
//! 5. A thread that waits in several sets at once ([`wait_for_any`]) is woken by everything that
//!    would wake one that waits in one of them.
//!
//! In a **concurrent** set ([`ConcurrentSet`]) many threads wait at once. Each event is reported to
//! one of them, and so is a wake; wakes that no thread has taken yet are one.

use std::{io, ops, os::fd::RawFd};

use crate::sync::{Clock, Timestamp};

#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
mod completion;
#[cfg(target_os = "linux")]
mod epoll;
mod farewell;
mod poll;
#[cfg(any(all(target_os = "linux", not(any(loom, shuttle))), all(test, loom)))]
mod ring;
pub mod simulated;
mod source;
mod system;
#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
mod uring;

#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
pub(crate) use completion::CompletionSet;
#[cfg(target_os = "linux")]
pub(crate) use epoll::Epoll;
pub(crate) use poll::{is_readable, poll_two, PollSet};
pub use source::{Descriptor, Source};
pub use system::defer_accept;
pub(crate) use system::set_nonblocking;

/// The contract: see the module's first page.
pub(crate) trait HandleSet: Send + Sync {
    /// How it reports.
    fn reports(&self) -> Reports;

    /// Makes `descriptor` non-blocking and reports it under `key` from now on: its edges, beginning
    /// with what is ready already; or once, when it is armed.
    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()>;

    /// Of a set that reports once: reports `descriptor` as soon as one of `directions` is ready, or
    /// there is an error or a hang-up; if there are none, for that alone. What was armed before is
    /// replaced.
    fn arm(&self, descriptor: RawFd, key: u64, directions: Ready) -> io::Result<()>;

    /// Ends the reports for `descriptor`. Called before the descriptor is closed. It may wait for
    /// the wait that goes on to end.
    fn remove(&self, descriptor: RawFd) -> io::Result<()>;

    /// Has the close of `descriptor`, which is about to come, not wait for output that the kernel
    /// has not sent. (What is simulated is no descriptor of this process.)
    fn close_at_once(&self, descriptor: RawFd) {
        let _ = descriptor;
    }

    /// Waits until something is ready, someone calls [`wake`](Self::wake), or `until` has passed
    /// (`None`: for ever), and appends what came to `events`. An interrupted wait ends early.
    ///
    /// Only the holder of the lead calls this.
    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer>;

    /// Ends the current or the next wait.
    fn wake(&self);

    /// Whether a wait that may not sleep costs little, so that it may be made more often than
    /// needed.
    fn is_cheap_to_poll(&self) -> bool {
        true
    }

    /// How a thread can wait in it and in others at once.
    fn beside(&self) -> Beside<'_> {
        Beside::Alone
    }

    /// The same set, if it is a concurrent one.
    fn concurrent(&self) -> Option<&dyn ConcurrentSet> {
        None
    }
}

/// A set, for a thread that waits in several at once. (That wait reports no events: its caller
/// polls each set then.)
#[derive(Clone, Copy)]
pub(crate) enum Beside<'s> {
    /// It can't be waited in beside others.
    Alone,
    /// This descriptor can be read as long as the set has something to report.
    Descriptor(RawFd),
    /// One of a simulated world.
    Simulated(&'s simulated::SimulatedSet),
}

impl Beside<'_> {
    /// Whether a thread can wait in both at once.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Descriptor(_), Self::Descriptor(_)) => true,
            (Self::Simulated(one), Self::Simulated(other)) => one.is_beside(other),
            _ => false,
        }
    }
}

/// Waits until one of these sets has something to report, or its leader is woken, or `until` has
/// passed (`None`: for ever). An interrupted wait ends early. Only the holder of the leads of all
/// of them calls this; all are of one kind.
pub(crate) fn wait_for_any(
    sets: &[Beside<'_>],
    clock: &Clock,
    until: Option<Timestamp>,
) -> io::Result<()> {
    debug_assert!(sets.iter().all(|set| set.goes_with(&sets[0])));
    match sets {
        [Beside::Simulated(first), ..] => {
            let others = sets.iter().filter_map(|set| match set {
                Beside::Simulated(set) => Some(*set),
                _ => None,
            });
            first.wait_beside(others, until);
            Ok(())
        }
        _ => {
            let descriptors = sets.iter().filter_map(|set| match set {
                Beside::Descriptor(descriptor) => Some(*descriptor),
                _ => None,
            });
            poll::poll_many(descriptors, system::time_left(clock, until))
        }
    }
}

/// A set in which many threads may wait at once. It reports once.
pub(crate) trait ConcurrentSet {
    /// As [`HandleSet::wait`], for any number of callers; `tell` gets at most `room` things.
    fn wait_among_others(
        &self,
        room: usize,
        until: Option<Timestamp>,
        tell: &mut dyn FnMut(Told),
    ) -> io::Result<()>;

    /// Has one of the waiting threads woken when `at` has come, instead of the time set before;
    /// `None`: no thread.
    fn set_alarm(&self, at: Option<Timestamp>);

    /// What of `directions` is ready now, or whether there is an error or a hang-up: reported to a
    /// thread already or not.
    fn glance(&self, descriptor: RawFd, directions: Ready) -> Ready;
}

/// What the set reports to one of many waiting threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A descriptor was armed, and is ready.
    Handle(Event),
    /// A thread called [`HandleSet::wake`].
    Woken,
    /// The time that was set has come.
    Alarm,
}

/// How often a set reports a descriptor that stays ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reports {
    /// At every change for the better.
    Edges,
    /// Once after it was armed.
    Once,
}

/// What is known of a wait besides its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) batch: Batch,
    /// It slept, so nothing was ready when it began. A set that does not know says so of every wait
    /// that might have slept.
    pub(crate) slept: bool,
}

/// Whether a wait brought everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// Nothing more was ready.
    Whole,
    /// It brought as much as it can; there may be more.
    Full,
}

/// One edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The key that was given to `add`.
    pub(crate) key: u64,
    /// What holds.
    pub(crate) ready: Ready,
}

/// Kinds of readiness, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready(u8);

impl Ready {
    pub(crate) const NONE: Self = Self(0);
    /// A read would not block.
    pub(crate) const READABLE: Self = Self(1);
    /// A write would not block.
    pub(crate) const WRITABLE: Self = Self(2);
    /// The peer will send no more, or an error is pending. It stays true once it is.
    pub(crate) const HANG_UP: Self = Self(4);
    /// Urgent data is pending: a read stops short at its mark.
    pub(crate) const URGENT: Self = Self(8);

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & 15)
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether anything of `other` is in this set.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl ops::BitOr for Ready {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl ops::BitAnd for Ready {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl ops::BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
