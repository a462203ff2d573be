//! How a thread that belongs to several pools visits one of them.

use std::{io, sync::Arc, time::Duration};

use super::{Ending, Pool, Shared};
use crate::{
    dispatch::Line,
    promotion::Lead,
    sync::Clock,
    turn::{self, Follower},
};

/// One pool, as those who visit it know it. It does not keep the pool alive.
pub(crate) struct Visits(Arc<Shared>);

impl Visits {
    /// Its lead, and the clock of that.
    pub(crate) fn lead(&self) -> (Arc<Lead<Line>>, Clock) {
        (Arc::clone(&self.0.lead), self.0.clock.clone())
    }

    /// The period of its looks.
    pub(crate) fn tick(&self) -> Duration {
        self.0.lead.tick()
    }

    /// Sets up the calling thread as the pool's own threads are.
    pub(crate) fn put_on(&self, index: usize) {
        let tell = |error| self.0.tell_error(error);
        self.0.outfit.put_on(index, tell);
    }

    /// Leads there if nobody does, serves, and comes back when it is not needed any more, or the pool is shut down.
    ///
    /// # Errors
    /// What the wait itself said.
    pub(crate) fn visit(&self) -> io::Result<()> {
        let shared = &*self.0;
        if shared.lead.is_closed() {
            return Ok(());
        }
        // The end of the pool may come first.
        let Ok(follower) = shared.enter(None, 0) else {
            return Ok(());
        };
        turn::join(Follower::sent(follower)).map(drop)
    }

    pub(crate) fn tell_error(&self, error: io::Error) {
        self.0.tell_error(error);
    }
}

impl Pool {
    /// For threads that visit it.
    pub(crate) fn visits(&self) -> Visits {
        Visits(Arc::clone(self.shared()))
    }

    /// Waits until a shutdown that has begun has nothing left to drain, or its time for that is over. Somebody who is not
    /// there yet may come and drain it.
    pub(crate) fn wait_until_drained(&self, ending: &Ending) {
        const PAUSE: Duration = Duration::from_millis(1);
        let Shared {
            registry, clock, ..
        } = &**self.shared();
        while !registry.is_drained() && !ending.is_time_to_leave(clock) {
            std::thread::sleep(PAUSE);
        }
    }
}
