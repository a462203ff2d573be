//! How a thread that the pool did not spawn comes into it.

use std::{io, time::Duration};

use super::Pool;
use crate::{
    sync::Timestamp,
    turn::{Follower, Left},
};

/// How the calling thread comes into a pool, and for how long: see [`Pool::entrance`].
#[derive(Debug)]
#[must_use = "the thread comes into the pool by `join` or `enter`"]
pub struct Entrance<'p> {
    pool: &'p Pool,
    priority: u8,
    time: Option<Duration>,
}

impl Pool {
    /// Lets the calling thread come into the pool with settings of its own. It then
    /// [joins](Entrance::join), or [enters](Entrance::enter) to go through the roles by hand.
    ///
    /// ```
    /// use std::time::Duration;
    /// use paceline::{Left, Order, Pool};
    ///
    /// let pool = Pool::builder().threads(2).order(Order::Priority).build()?;
    /// let visit = pool.entrance().priority(7).timeout(Duration::from_millis(1));
    /// assert_eq!(visit.join()?, Left::TimedOut);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn entrance(&self) -> Entrance<'_> {
        Entrance {
            pool: self,
            priority: 0,
            time: None,
        }
    }
}

impl<'p> Entrance<'p> {
    /// The priority of the thread, for [`Order::Priority`](crate::Order::Priority). Default: zero.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// For how long the thread is in the pool: one deadline for the whole visit, in whatever role.
    /// It is checked between roles; a handler is never interrupted. Default: until the pool ends.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Lends the thread to the pool until its time is over or the pool is shut down. If the pool is
    /// shut down already, it returns at once.
    ///
    /// # Errors
    /// As [`Pool::join`].
    pub fn join(self) -> io::Result<Left> {
        self.pool.hub().join(self.deadline(), self.priority)
    }

    /// Makes the thread a follower, to go through the roles by hand: see [`turn`](crate::turn).
    ///
    /// # Errors
    /// As [`Pool::enter`].
    pub fn enter(self) -> io::Result<Follower<'p>> {
        self.pool.hub().enter(self.deadline(), self.priority)
    }

    fn deadline(&self) -> Option<Timestamp> {
        let clock = &self.pool.hub().clock;
        self.time.map(|time| clock.now().after(time))
    }
}
