//! What can be asked of a pool about itself.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use super::Pool;
use crate::{
    hub::Hub,
    observe::{Histograms, Metrics, Observer, Snapshot, Stuck, ThreadReport},
    sync::thread::ThreadId,
    unwind::Contained,
};

impl Pool {
    /// How often what happened so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let hub = self.hub();
        Snapshot {
            threads: hub.membership.len(),
            ..hub.counters.snapshot()
        }
    }

    /// What the pool's threads do now, and how long things took: see [`Inspect`].
    #[must_use]
    pub fn inspect(&self) -> Inspect<'_> {
        Inspect { pool: self }
    }

    /// Calls `observer` from now on, until the returned value is dropped (a call that is being made
    /// then may still be going on). There may be several. It learns nothing of what was before: a
    /// sleeping thread reports its next role.
    ///
    /// ```
    /// use paceline::{observe::{Observer, Role}, Pool};
    ///
    /// struct Aloud;
    /// impl Observer for Aloud {
    ///     fn role_changed(&self, thread: usize, role: Role) {
    ///         println!("thread {thread}: {role}");
    ///     }
    /// }
    ///
    /// let pool = Pool::new()?;
    /// let observation = pool.observe(Aloud);
    /// // ... and when it was enough:
    /// drop(observation);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn observe(&self, observer: impl Observer) -> Observation {
        let hub = self.hub();
        let begin = || hub.lead.set_observed(true);
        let observer = Arc::new(Contained::new(observer));
        let number = hub.observers.add(observer, begin);
        Observation {
            pool: Arc::downgrade(hub),
            number,
        }
    }
}

/// Looks into a running pool: see [`Pool::inspect`]. Counters are in [`Pool::snapshot`].
#[derive(Clone, Copy, Debug)]
pub struct Inspect<'p> {
    pool: &'p Pool,
}

impl Inspect<'_> {
    /// What each thread does, and since when: every thread of the pool, its own and those that
    /// joined, in the order of entering. Of those that handle an event, also which, and with what
    /// type of handler. Each thread's report is whole; they are taken one after the other, while
    /// the pool works on.
    ///
    /// Empty, unless the pool was built with a [`board`](crate::Builder::board).
    ///
    /// ```
    /// use paceline::{observe::Role, Pool};
    ///
    /// let pool = Pool::builder().threads(2).board(true).build()?;
    /// while !pool.inspect().threads().iter().any(|thread| thread.role == Role::Leader) {
    ///     std::thread::yield_now();
    /// }
    /// for thread in pool.inspect().threads() {
    ///     println!("{thread}"); // paceline-0: leader for 21.4us
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadReport> {
        let hub = self.pool.hub();
        let board = hub.membership.board();
        board.map_or_else(Vec::new, |board| board.threads(hub.lead.standby_index()))
    }

    /// The calls of handlers that have lasted for `limit` or longer, in the order of their threads.
    /// [`stuck_after`](crate::Builder::stuck_after) reports them without a question.
    ///
    /// Empty, unless the pool was built with a [`board`](crate::Builder::board).
    #[must_use]
    pub fn stuck(&self, limit: Duration) -> Vec<Stuck> {
        let Some(board) = self.pool.hub().membership.board() else {
            return Vec::new();
        };
        let (stuck, _) = board.stuck(limit);
        stuck.into_iter().map(|(_, stuck)| stuck).collect()
    }

    /// How long turns, handlers and blind times took so far.
    ///
    /// Each thread counts for itself, without a lock; this adds them up, while the pool works on.
    /// Times are those that the pool has read anyway, on its own clock.
    ///
    /// `None`, unless the pool was built with a [`board`](crate::Builder::board).
    ///
    /// ```
    /// # use std::sync::mpsc;
    /// # use paceline::Pool;
    /// let pool = Pool::builder().threads(2).board(true).build()?;
    /// # let (sender, receiver) = mpsc::channel();
    /// # pool.post(move |_| sender.send(()).unwrap())?;
    /// # receiver.recv().unwrap();
    /// let times = pool.inspect().histograms().expect("it has a board");
    /// println!("{:?} {:?} {:?}", times.handler.p50(), times.handler.p99(), times.handler.max());
    /// for bucket in times.handler.buckets() {
    ///     println!("{:?} to {:?}: {}", bucket.from, bucket.to, bucket.count);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn histograms(&self) -> Option<Histograms> {
        Some(self.pool.hub().membership.board()?.times())
    }

    /// The bound of [`Snapshot::longest_blind`]: four and a half [ticks](crate::Builder::tick). A
    /// wake and what the system's scheduler adds come on top. `None` under
    /// [`Wake::Eager`](crate::Wake::Eager), which wakes a follower each time.
    ///
    /// ```
    /// use std::time::Duration;
    /// let pool = paceline::Pool::builder().tick(Duration::from_millis(2)).build()?;
    /// assert_eq!(pool.inspect().blind_bound(), Some(Duration::from_millis(9)));
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn blind_bound(&self) -> Option<Duration> {
        self.pool.hub().lead.blind_bound()
    }

    /// The threads that are in the pool now, its own and those that joined, in the order of
    /// entering: for [`Handle::pin_to`](crate::Handle::pin_to), which has an example.
    #[must_use]
    pub fn thread_ids(&self) -> Vec<ThreadId> {
        self.pool.hub().membership.thread_ids()
    }
}

/// Everything that a pool knows: its counters, and if it has a board, its histograms.
impl Metrics for Pool {
    fn snapshot(&self) -> Snapshot {
        Self::snapshot(self)
    }

    fn histograms(&self) -> Option<Histograms> {
        self.inspect().histograms()
    }
}

/// A pool is observed until this is dropped: see [`Pool::observe`]. Forgotten, it lasts as long as
/// the pool.
#[must_use = "dropping it ends the observation"]
pub struct Observation {
    pool: Weak<Hub>,
    number: u64,
}

impl Drop for Observation {
    fn drop(&mut self) {
        let Some(hub) = self.pool.upgrade() else {
            return;
        };
        let others = hub.membership.board().is_some() || hub.observers.has_first();
        hub.observers.remove(self.number, |guests| {
            hub.lead.set_observed(guests || others);
        });
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observation").field(&self.number).finish()
    }
}
