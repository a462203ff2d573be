//! What the sets of a Unix system have in common.

use std::{
    io, mem,
    net::TcpListener,
    os::fd::{AsRawFd, RawFd},
    ptr,
    time::Duration,
};

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

/// Turns SO_LINGER off where it would have close(2) wait, which it does for non-blocking sockets,
/// too. A time of zero asks for a reset and does not wait: it stays. What is no socket has no such
/// option.
pub(super) fn forget_linger(descriptor: RawFd) {
    let mut linger = libc::linger {
        l_onoff: 0,
        l_linger: 0,
    };
    let mut length = mem::size_of_val(&linger) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_LINGER);
    let place = ptr::from_mut(&mut linger).cast();
    // SAFETY: the option is a `linger`, whose length is passed; both live until the call returns,
    // which writes them.
    let known = unsafe { libc::getsockopt(descriptor, level, option, place, &mut length) };
    if known != 0 || linger.l_onoff == 0 || linger.l_linger == 0 {
        return;
    }
    linger.l_onoff = 0;
    let place = ptr::from_ref(&linger).cast();
    // SAFETY: as above; the call reads it. (If it fails, close(2) waits as the owner of the socket
    // has asked for.)
    unsafe { libc::setsockopt(descriptor, level, option, place, length) };
}

/// Has the kernel keep a new connection back until its first bytes are there, and at most for about `within`
/// (`TCP_DEFER_ACCEPT`). Zero turns that off. A peer that sends nothing then costs the program nothing. The caller must not
/// do it where the server speaks first.
///
/// # Errors
/// What the system says; [`Unsupported`](io::ErrorKind::Unsupported) where there is no such option.
pub fn defer_accept(listener: &TcpListener, within: Duration) -> io::Result<()> {
    set_defer_accept(listener.as_raw_fd(), within)
        .map_err(|error| attempted("set TCP_DEFER_ACCEPT", &error))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn set_defer_accept(descriptor: RawFd, within: Duration) -> io::Result<()> {
    // Less than a second must not turn it off.
    let seconds = within.as_secs().max(u64::from(!within.is_zero()));
    let seconds = libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX);
    let length = mem::size_of_val(&seconds) as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    let place = ptr::from_ref(&seconds).cast();
    // SAFETY: the option is an int, whose length is passed; it lives until the call returns, which reads it.
    checked(unsafe { libc::setsockopt(descriptor, level, option, place, length) }).map(drop)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set_defer_accept(_descriptor: RawFd, _within: Duration) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
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
