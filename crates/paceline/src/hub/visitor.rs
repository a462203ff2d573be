//! How a thread that serves several pools visits one of them.
//!
//! It has a place in each for life, and steps in to serve, or to sleep there; between that it is
//! elsewhere, and no thread of the pool waits for it.

use std::{io, sync::Arc, time::Duration};

use super::{membership::MemberGuard, Hub};
use crate::{
    dispatch::Line,
    handle_set::Beside,
    observe::Role,
    promotion::{Lead, Seat},
    sync::Clock,
};

/// One pool, for the threads that visit it: they share its inside, and do not keep it from ending.
pub(crate) struct PoolRef(Arc<Hub>);

impl PoolRef {
    pub(crate) fn new(hub: &Arc<Hub>) -> Self {
        Self(Arc::clone(hub))
    }

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
        self.0.thread_settings.put_on(index, tell);
    }

    /// The calling thread will visit it.
    ///
    /// # Errors
    /// If there are too many already.
    pub(crate) fn visitor(&self) -> io::Result<Visitor<'_>> {
        let hub = &*self.0;
        let seat = hub.membership.enlist_visitor()?;
        let for_life = hub.membership.arrived(seat.index());
        let row = seat.row().into_iter();
        row.for_each(|row| row.set_role(Role::Gone, hub.clock.now()));
        Ok(Visitor {
            hub,
            seat,
            _for_life: for_life,
        })
    }

    pub(crate) fn tell_error(&self, error: io::Error) {
        self.0.tell_error(error);
    }
}

/// A thread that visits a pool again and again.
pub(crate) struct Visitor<'s> {
    hub: &'s Hub,
    seat: Arc<Seat>,
    _for_life: MemberGuard<'s>,
}

impl<'s> Visitor<'s> {
    pub(crate) fn hub(&self) -> &'s Hub {
        self.hub
    }

    /// How its set can be waited in beside others.
    pub(crate) fn beside(&self) -> Beside<'s> {
        self.hub.registry.beside()
    }

    /// Whether its set can't be waited in beside others.
    pub(crate) fn waits_alone(&self) -> bool {
        matches!(self.beside(), Beside::Alone)
    }

    pub(crate) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Is in the pool until that is dropped. `None`: the pool has ended.
    pub(crate) fn step_in(&self) -> Option<MemberGuard<'s>> {
        self.hub.membership.step_in(self.seat.index())
    }
}
