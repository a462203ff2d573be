//! The client's clock, which can stand still, and its alarm.
//!
//! ```text
//!  system's clock   ----------+======+---------------------+======+------->
//!  this clock       ----------+      +---------------------+      +------->
//!                     warm-up  /proc        measured         /proc  drain
//!                               is read                       is read
//! ```
//!
//! Reading /proc for a server of many threads takes a while, in which the client asks nothing. This clock stops
//! meanwhile, so that the pause is part of no latency and of no window.

use std::io;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    time::{
        clock_gettime, timerfd_create, timerfd_settime, ClockId, Itimerspec, TimerfdClockId,
        TimerfdFlags, TimerfdTimerFlags, Timespec,
    },
};

/// A point in time of a [`Clock`], or a length of time: nanoseconds.
pub(super) type Nanos = u64;

/// Nanoseconds in a second.
const SECOND: Nanos = 1_000_000_000;

/// Seconds as nanoseconds.
pub(super) fn nanos(seconds: f64) -> Nanos {
    (seconds * SECOND as f64) as Nanos
}

/// Nanoseconds as seconds.
pub(super) fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

/// Time since the client began, but for its pauses.
#[derive(Debug)]
pub(super) struct Clock {
    /// The system's time at which this clock would have shown 0, had it never stood still.
    origin: Nanos,
}

impl Clock {
    /// A clock that shows 0 now.
    pub(super) fn start() -> Self {
        Self {
            origin: monotonic(),
        }
    }

    /// The time. No system call.
    pub(super) fn now(&self) -> Nanos {
        monotonic() - self.origin
    }

    /// Stops while `work` is done.
    pub(super) fn pause<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let before = monotonic();
        let result = work();
        self.origin += monotonic() - before;
        result
    }
}

/// The system's clock that never jumps.
fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}

/// Wakes an epoll at a point in time, to the nanosecond where the machine allows; the time-out of the wait itself
/// knows only milliseconds, and would have to be set up for every wait.
#[derive(Debug)]
pub(super) struct Alarm {
    /// To be watched, edge-triggered: it needs no reading.
    timer: OwnedFd,
    /// The system's time for which it is set.
    set: Nanos,
}

impl Alarm {
    /// An alarm that is not set.
    pub(super) fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        Ok(Self { timer, set: 0 })
    }

    /// Rings when `clock` shows `due`, and no more at what it was set for before. One system call if that is
    /// another time.
    pub(super) fn set(&mut self, clock: &Clock, due: Nanos) -> io::Result<()> {
        let at = clock.origin + due;
        if at == self.set {
            return Ok(());
        }
        self.set = at;
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once(at))?;
        Ok(())
    }

    /// It rang: the next [`set`](Self::set) is a new one.
    pub(super) fn rang(&mut self) {
        self.set = 0;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// One expiry, at that time.
fn once(at: Nanos) -> Itimerspec {
    let never = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let at = Timespec {
        tv_sec: (at / SECOND) as i64,
        tv_nsec: (at % SECOND) as i64,
    };
    Itimerspec {
        it_interval: never,
        it_value: at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};

    #[test]
    fn a_pause_takes_no_time() {
        let mut clock = Clock::start();
        let before = clock.now();
        clock.pause(|| thread::sleep(Duration::from_millis(300)));
        assert!(clock.now() - before < nanos(0.2));
    }
}
