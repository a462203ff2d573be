//! The reports of a pool, as events of the crate `tracing`.

use std::io;

use super::{Observer, Role, Stuck, Unread};
use crate::key::HandleId;

/// An observer that makes events of the crate `tracing` of its calls, with the feature `tracing`.
/// All have the target `paceline`, and a field `pool` with the name that is given here.
///
/// | level | event | fields |
/// | --- | --- | --- |
/// | error | a handler panicked | `handle`, `message` |
/// | warn | a handle failed | `handle`, `error` |
/// | warn | a handler is stuck, or is back ([`stuck_after`]) | those of a call, `lasts` |
/// | warn | a handler leaves input unread ([`unread_limit`]) | `handle`, `handler`, `calls` |
/// | debug | a thread was called, or let go | `thread` |
/// | trace | a thread has another role | `thread`, `role` |
///
/// The fields of a call are `thread`, `handle` and `handler`.
///
/// [`stuck_after`]: crate::Builder::stuck_after
/// [`unread_limit`]: crate::Builder::unread_limit
///
/// Changes of role are reported in the middle of the protocol. A subscriber that lets them through
/// (level trace) must be quick, must not call the pool, and must not panic.
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
        let pool = &self.pool;
        tracing::trace!(target: "paceline", %pool, thread, %role, "a thread has another role");
    }

    fn panicked(&self, handle: HandleId, message: &str) {
        let pool = &self.pool;
        tracing::error!(target: "paceline", %pool, %handle, message, "a handler panicked");
    }

    fn failed(&self, handle: HandleId, error: &io::Error) {
        tracing::warn!(target: "paceline", pool = %self.pool, %handle, %error, "a handle failed");
    }

    fn stuck(&self, stuck: &Stuck) {
        let (pool, thread) = (&self.pool, stuck.name.as_str());
        let (handle, handler, lasts) = (stuck.call.handle, stuck.call.handler, stuck.call.lasts);
        if stuck.is_over {
            tracing::warn!(
                target: "paceline",
                %pool, thread, %handle, handler, ?lasts, "a handler is back"
            );
        } else {
            tracing::warn!(
                target: "paceline",
                %pool, thread, %handle, handler, ?lasts, "a handler is stuck"
            );
        }
    }

    fn unread(&self, unread: &Unread) {
        let Unread {
            handle,
            handler,
            calls,
        } = *unread;
        let pool = &self.pool;
        tracing::warn!(
            target: "paceline",
            %pool, %handle, handler, calls, "a handler leaves input unread"
        );
    }

    fn grown(&self, thread: usize) {
        tracing::debug!(target: "paceline", pool = %self.pool, thread, "a thread was called");
    }

    fn retired(&self, thread: usize) {
        tracing::debug!(target: "paceline", pool = %self.pool, thread, "a thread was let go");
    }
}
