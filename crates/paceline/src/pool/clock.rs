//! The pool's clock, for layers above that measure times of their own.

use std::{fmt, time::Duration};

use crate::sync::Clock;

/// The clock of a pool: the system's monotonic one, or that of a [simulation](crate::simulated).
///
/// A layer above the pool that measures its own times by this clock is tested on virtual time, as
/// the pool itself is. See [`Pool::clock`](crate::Pool::clock).
#[derive(Clone)]
pub struct PoolClock(Clock);

impl PoolClock {
    pub(super) fn new(clock: Clock) -> Self {
        Self(clock)
    }

    /// The time since a point in the past, which is the same for all pools on the system's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.now().to_nanos())
    }
}

impl fmt::Debug for PoolClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolClock").field(&self.now()).finish()
    }
}
