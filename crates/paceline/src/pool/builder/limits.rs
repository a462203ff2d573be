//! The bounds of a pool: how much is read, kept and posted, and for how long.

use std::time::Duration;

use super::Builder;
use crate::dispatch::QueueOrder;

impl Builder {
    /// How much one call of a handler may read before the others have their turn. Default: 64 KiB.
    #[must_use]
    pub fn read_budget(mut self, bytes: usize) -> Self {
        self.limits.read_budget = bytes;
        self
    }

    /// How much output is kept for one handle; with zero only
    /// [`Context::write_now`](crate::Context::write_now) can send. Default: 256 KiB.
    #[must_use]
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.limits.output_limit = bytes;
        self
    }

    /// After how many calls in a row a handler is reported that leaves its input unread. Such a
    /// handler is called again at once, and keeps a thread busy. From this call on the pool counts
    /// them ([`Snapshot::unread_calls`](crate::observe::Snapshot::unread_calls)), and reports each
    /// handle once ([`Observer::unread`](crate::observe::Observer::unread)). A call counts if input
    /// was there, the handler read nothing through its context, and it asked for no other call
    /// ([`Next::Again`](crate::Next::Again)). Default: 1,000.
    #[must_use]
    pub fn unread_limit(mut self, calls: u32) -> Self {
        self.limits.unread_calls = calls;
        self
    }

    /// How long a connection that a listener has accepted may be idle before it is closed
    /// ([`Closed::TimedOut`](crate::Closed::TimedOut)); from its first moment on, also if it never
    /// sends anything. [`Handle::set_timeout`](crate::Handle::set_timeout) defines idle, and gives
    /// a single one another time, or none. Default: for ever.
    #[must_use]
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.limits.idle_timeout = Some(idle);
        self
    }

    /// How long a handle may take to close that is closed gently
    /// ([`Next::CloseGently`](crate::Next::CloseGently)). While its last output is sent, this is
    /// how long its peer may take nothing: then it closes with
    /// [`Closed::TimedOut`](crate::Closed::TimedOut). When all is sent, this is how long the pool
    /// waits for the peer to end its side: then it closes with
    /// [`Closed::Finished`](crate::Closed::Finished). With zero a gentle end is no different from
    /// [`Next::Close`](crate::Next::Close). Default: five seconds.
    #[must_use]
    pub fn linger_time(mut self, time: Duration) -> Self {
        self.limits.linger_time = time;
        self
    }

    /// How many bytes of input the pool reads and drops for a handle that is closed gently. A peer
    /// that sends more may lose the last answer. With zero a gentle end is no different from
    /// [`Next::Close`](crate::Next::Close). Default: 1 MiB.
    #[must_use]
    pub fn linger_limit(mut self, bytes: usize) -> Self {
        self.limits.linger_limit = bytes;
        self
    }

    /// How many handlers may wait for replies on one thread, one inside the other (see
    /// [`Serve`](crate::Serve)): each takes its part of the stack. Default: 16.
    #[must_use]
    pub fn nesting(mut self, depth: usize) -> Self {
        self.limits.nesting = depth;
        self
    }

    /// How many posts may wait to be done ([`Pool::post`](crate::Pool::post)). Default: 1,024.
    #[must_use]
    pub fn post_limit(mut self, posts: usize) -> Self {
        self.limits.post_limit = posts;
        self
    }

    /// Which of the handles that are ready is served next. Default: the one that has waited
    /// longest. Another order costs a look at those that are ready at every turn; a concurrent set
    /// has none.
    #[must_use]
    pub fn queue_order(mut self, order: QueueOrder) -> Self {
        self.queue_order = order;
        self
    }

    /// What was ready for longer than this before its turn came is not served: its handler's
    /// [`expired`](crate::EventHandler::expired) is called instead, and decides. The time counts
    /// from the moment in which a leader has seen it; what only the system knows has no age.
    /// Members of groups, concurrent handles, posts and timers are served however long they waited.
    /// It costs a clock reading at every turn; a concurrent set has none. Default: no limit.
    #[must_use]
    pub fn age_limit(mut self, limit: Duration) -> Self {
        self.age_limit = Some(limit);
        self
    }
}
