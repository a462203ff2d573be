//! What a pool tells, as events of the crate `tracing`.

use std::io;

use super::{Observer, Role, Stuck, Unread};
use crate::dispatch::HandleId;

/// An observer that makes events of the crate `tracing` of what it is told, with the feature `tracing`. All have the target
/// `paceline`, and a field `pool` with the name that is given here.
///
/// | level | event | fields |
/// | --- | --- | --- |
/// | error | a handler panicked | `handle`, `message` |
/// | warn | a handle failed | `handle`, `error` |
/// | warn | a handler is stuck, or is back ([`stuck_after`](crate::Builder::stuck_after)) | `thread`, `handle`, `handler`, `lasts` |
/// | warn | a handler leaves input unread ([`unread_limit`](crate::Builder::unread_limit)) | `handle`, `handler`, `calls` |
/// | debug | a thread was called, or let go | `thread` |
/// | trace | a thread has another role | `thread`, `role` |
///
/// Changes of role are told in the middle of the protocol. Whoever lets them through (level trace) has a subscriber that
/// is quick, does not call the pool, and does not panic.
///
/// ```
/// use paceline::{observe::Traces, Pool};
///
/// let pool = Pool::builder().observer(Traces::new("orders")).build()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Traces {
    pool: String,
}

impl Traces {
    /// Of the pool with this name.
    pub fn new(pool: impl Into<String>) -> Self {
        Self { pool: pool.into() }
    }
}

impl Observer for Traces {
    fn role_changed(&self, thread: usize, role: Role) {
        tracing::trace!(target: "paceline", pool = %self.pool, thread, %role, "a thread has another role");
    }

    fn panicked(&self, handle: HandleId, message: &str) {
        tracing::error!(target: "paceline", pool = %self.pool, %handle, message, "a handler panicked");
    }

    fn failed(&self, handle: HandleId, error: &io::Error) {
        tracing::warn!(target: "paceline", pool = %self.pool, %handle, %error, "a handle failed");
    }

    fn stuck(&self, stuck: &Stuck) {
        let (pool, thread) = (&self.pool, stuck.name.as_str());
        let (handle, handler, lasts) = (stuck.call.handle, stuck.call.handler, stuck.call.lasts);
        match stuck.is_over {
            false => {
                tracing::warn!(target: "paceline", %pool, thread, %handle, handler, ?lasts, "a handler is stuck");
            }
            true => {
                tracing::warn!(target: "paceline", %pool, thread, %handle, handler, ?lasts, "a handler is back");
            }
        }
    }

    fn unread(&self, unread: &Unread) {
        let Unread {
            handle,
            handler,
            calls,
        } = *unread;
        tracing::warn!(target: "paceline", pool = %self.pool, %handle, handler, calls, "a handler leaves input unread");
    }

    fn grown(&self, thread: usize) {
        tracing::debug!(target: "paceline", pool = %self.pool, thread, "a thread was called");
    }

    fn retired(&self, thread: usize) {
        tracing::debug!(target: "paceline", pool = %self.pool, thread, "a thread was let go");
    }
}
