//! Lines in which not everybody is served in the order of coming, or for ever: by rank, the newest
//! first, and with an age after which what was ready is not worth serving.
//!
//! The handles wait in the order in which they will be served; new ones are behind them, without a
//! time yet. At every turn these are noted and moved to their places, and the first of all is
//! taken. The time counts from then on: a handle that the system knows to be ready, and no leader
//! has seen, has no age.

use std::{collections::VecDeque, io, time::Duration};

use super::{Line, DISPATCHES_BETWEEN_POLLS};
use crate::{
    dispatch::{claim::Claim, registry::Registry},
    sync::Timestamp,
};

/// Which of the handles that are ready is served next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueOrder {
    /// The one that has waited longest: everyone has its turn ([F1](crate::glossary#f1)).
    #[default]
    Oldest,
    /// The one that came last: under overload some are served in time, instead of all too late. The
    /// others may wait for ever, so give it an [`age_limit`](crate::Builder::age_limit).
    Newest,
    /// The one with the highest [`Handle::set_priority`](crate::Handle::set_priority); among
    /// equals, the one that has waited longest. Low ones may wait for ever.
    Priority,
}

/// How a line is arranged.
#[derive(Debug)]
pub(crate) struct Arrangement {
    order: QueueOrder,
    /// What has waited longer is expired.
    age_limit: Option<Duration>,
    /// Of those in their places: since when they wait, and their rank. The others of the line are
    /// new.
    places: VecDeque<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    since: Timestamp,
    priority: u8,
}

impl Arrangement {
    /// `None` if there is nothing to arrange.
    pub(crate) fn new(order: QueueOrder, age_limit: Option<Duration>) -> Option<Self> {
        let plain = order == QueueOrder::Oldest && age_limit.is_none();
        (!plain).then(|| Self {
            order,
            age_limit,
            places: VecDeque::new(),
        })
    }

    /// Moves every handle that was appended since the last time to its place.
    fn arrange(&mut self, waiting: &mut VecDeque<u32>, registry: &Registry, now: Timestamp) {
        while self.places.len() < waiting.len() {
            let from = self.places.len();
            let place = Place {
                since: now,
                priority: registry.priority_of(waiting[from]),
            };
            let to = self.place_for(place);
            if to < from {
                let index = waiting.remove(from);
                index
                    .into_iter()
                    .for_each(|index| waiting.insert(to, index));
            }
            self.places.insert(to, place);
        }
    }

    /// The place of a new one.
    fn place_for(&self, place: Place) -> usize {
        match self.order {
            QueueOrder::Oldest => self.places.len(),
            QueueOrder::Newest => 0,
            QueueOrder::Priority => self
                .places
                .partition_point(|other| other.priority >= place.priority),
        }
    }

    /// The first is taken off the line. Its age, if that is too much.
    fn take_first(&mut self, now: Timestamp) -> Option<Duration> {
        let age = now.since(self.places.pop_front()?.since);
        self.age_limit
            .is_some_and(|limit| age > limit)
            .then_some(age)
    }
}

impl Line {
    /// The next handle of an arranged line: see [`Line::next`].
    #[cold]
    pub(super) fn next_arranged<'r>(
        &mut self,
        registry: &'r Registry,
        until: Option<Timestamp>,
    ) -> io::Result<Option<Claim<'r>>> {
        let since_poll = self.since_poll - self.after_poll;
        if self.waiting.is_empty()
            || since_poll >= DISPATCHES_BETWEEN_POLLS
            || !registry.is_accepting()
        {
            self.poll(registry, until)?;
        }
        let Some(arrangement) = &mut self.arrangement else {
            return Ok(None);
        };
        let now = registry.now();
        arrangement.arrange(&mut self.waiting, registry, now);
        while let Some(index) = self.waiting.pop_front() {
            if let Some(age) = arrangement.take_first(now) {
                registry.expire_event(index, age);
            }
            if let Some(claim) = registry.claim(index) {
                self.since_poll += 1;
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }
}
