//! What happens when a time of a handle is over: its deadline, or its idle time-out.
//!
//! ```text
//!   the wheel:   finds a time that may be over       -> marks the handle *overdue*, lines it up
//!   the visit:   checks the times themselves         -> its deadline has passed, it is idle,
//!                                                       or neither
//!                then calls `EventHandler::overdue`  -> goes on, or closes
//! ```
//!
//! The mark is only a hint. The fields of the slot decide, and the visit takes a deadline that has
//! passed out of its field in one step. So one that was moved or cleared after the mark is not
//! called for, and of one deadline the handler hears once.

use std::time::Duration;

use super::{
    context::{Context, Origin},
    handle::Key,
    readiness_guard::ReadinessGuard,
    registry::Registry,
};
use crate::sync::Timestamp;

/// Which time of a handle is over: see [`EventHandler::overdue`](super::EventHandler::overdue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overdue {
    /// Nothing happened at the handle for as long as its idle time-out allows
    /// ([`Handle::set_timeout`](super::Handle::set_timeout)). If the handle lives on, that time
    /// begins anew.
    Idle,
    /// Its deadline has passed ([`Handle::set_deadline`](super::Handle::set_deadline)). If the
    /// handle lives on, it has none until another one is set.
    Deadline,
}

impl<S> Context<'_, S> {
    /// Sets the deadline of this handle, `within` from now; `None`: it has none. It is
    /// [`Handle::set_deadline`](super::Handle::set_deadline) for the handler itself, made to be
    /// called twice per request: at its first byte and at its end. A deadline later than the last
    /// one, and one that is cleared, take no lock and allocate nothing.
    ///
    /// ```
    /// # use std::{io, net::TcpStream, time::Duration};
    /// # use paceline::{scratch, Context, EventHandler, Next};
    /// struct Session { request: Vec<u8> }
    /// impl EventHandler<TcpStream> for Session {
    ///     fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
    ///         let mut buffer = scratch();
    ///         let count = cx.read(&mut buffer)?;
    ///         if self.request.is_empty() {
    ///             cx.set_deadline(Some(Duration::from_secs(10)));   // for the whole request
    ///         }
    ///         self.request.extend_from_slice(&buffer[..count]);
    ///         if self.request.ends_with(b"\r\n") {
    ///             cx.set_deadline(None);
    ///             cx.write_all(b"done\r\n")?;
    ///             self.request.clear();
    ///         }
    ///         Ok(if count == 0 { Next::Close } else { Next::Continue })
    ///     }
    /// }
    /// ```
    pub fn set_deadline(&mut self, within: Option<Duration>) {
        if let Some(registry) = self.origin.registry.upgrade() {
            registry.set_own_deadline(self.origin.key, within);
        }
    }

    /// Clears the deadline if it is still this one.
    pub(crate) fn clear_deadline(&mut self, at: Timestamp) {
        if let Some(registry) = self.origin.registry.upgrade() {
            registry.clear_own_deadline(self.origin.key, at);
        }
    }
}

impl ReadinessGuard<'_> {
    /// A time of the handle may be over.
    pub(super) fn is_overdue(&self) -> bool {
        self.called && self.seen.is_overdue()
    }

    /// Whether nothing but a time that may be over is a reason for this visit.
    pub(super) fn is_quiet(&self) -> bool {
        self.seen.wanted().is_empty() && !self.is_notified() && !self.greets()
    }

    /// Puts the other calls back that were claimed: the handler is called because a time is over.
    pub(super) fn put_other_calls_back(&self) {
        self.readiness.restore_other_calls(self.seen);
    }
}

/// Which time is over, of a handle whose visit owns it, or its group.
#[cold]
pub(super) fn judge(
    guard: &ReadinessGuard<'_>,
    origin: &Origin<'_>,
    descriptor: Option<std::os::fd::RawFd>,
) -> Option<Overdue> {
    if !guard.is_overdue() {
        return None;
    }
    let registry = origin.registry.upgrade()?;
    if registry.take_passed_deadline(origin.key) {
        Some(Overdue::Deadline)
    } else {
        let is_idle = guard.is_quiet()
            && registry.was_idle_for_too_long(origin.key)
            && !registry.finds_news(descriptor, guard.readiness);
        is_idle.then_some(Overdue::Idle)
    }
}

impl Registry {
    /// Takes the deadline of an owned handle back if it has passed.
    fn take_passed_deadline(&self, key: Key) -> bool {
        let times = self.times_of(key);
        times.is_some_and(|times| times.take_passed_deadline(self.now()))
    }
}
