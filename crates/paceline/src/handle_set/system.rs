//! What the sets of a Unix system have in common.

use std::{io, os::fd::RawFd, time::Duration};

use crate::sync::{Clock, Timestamp};

/// The time that is left until a deadline; no clock is read where none is needed.
pub(super) fn time_left(clock: &Clock, until: Option<Timestamp>) -> Option<Duration> {
    match until {
        Some(Timestamp::PAST) => Some(Duration::ZERO),
        until => until.map(|until| until.since(clock.now())),
    }
}

/// Rounds up, so that a wait never ends before its time.
pub(super) fn milliseconds(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |timeout| {
        let rounded = timeout.as_nanos().div_ceil(1_000_000);
        rounded.try_into().unwrap_or(i32::MAX)
    })
}

pub(crate) fn set_nonblocking(descriptor: RawFd) -> io::Result<()> {
    let mut on: libc::c_int = 1;
    // SAFETY: FIONBIO reads one int through the pointer, which lives until the call returns.
    checked(unsafe { libc::ioctl(descriptor, libc::FIONBIO, &mut on) }).map(drop)
}

pub(super) fn checked(told: i32) -> io::Result<i32> {
    if told < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(told)
}

/// The error, with what was attempted.
pub(super) fn attempted(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
