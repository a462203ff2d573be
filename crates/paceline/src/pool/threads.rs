//! The pool's own threads: how many there are, and the life of each.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use crate::{
    dispatch::OwnMailbox,
    hub::{open_mailbox, Hub},
    promotion::{ElasticPolicy, Seat},
    sync::thread,
    turn::{self, Follower, Left},
};

/// So many threads of its own a pool can have.
pub(super) const MOST: usize = 4096;
/// How many threads of its own a pool has: a number, or a range, which makes the pool elastic.
///
/// ```
/// use paceline::{Pool, Threads};
///
/// let fixed = Pool::builder().threads(8);
/// let elastic = Pool::builder().threads(4..=64);
/// assert_eq!(Threads::from(8).to_string(), "8");
/// assert_eq!(Threads::from(4..=64).to_string(), "4..=64");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl From<usize> for Threads {
    fn from(number: usize) -> Self {
        Self::from(number..=number)
    }
}

impl From<RangeInclusive<usize>> for Threads {
    fn from(range: RangeInclusive<usize>) -> Self {
        let (least, most) = range.into_inner();
        Self { least, most }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_elastic() {
            write!(f, "{}..={}", self.least, self.most)
        } else {
            write!(f, "{}", self.least)
        }
    }
}

impl Threads {
    pub(super) fn is_elastic(self) -> bool {
        self.least != self.most
    }

    /// What is wrong with it.
    pub(super) fn fault(self) -> Option<String> {
        match self {
            _ if self.least > self.most => Some(format!("threads({self}): the range is empty")),
            _ if self.most > MOST => Some(format!("threads({self}): at most {MOST} are possible")),
            _ => None,
        }
    }

    /// What an elastic pool needs to grow and to shrink.
    pub(super) fn elastic(self, keep_alive: Duration) -> Option<ElasticPolicy> {
        let elastic = || ElasticPolicy::new(self.least, self.most, keep_alive);
        self.is_elastic().then(elastic)
    }
}

/// The life of a thread of the pool's own: it joins until the pool is shut down or lets it go, and
/// again after an error of the wait.
pub(super) fn work(hub: &Hub, seat: Arc<Seat>, mailbox: Option<Arc<OwnMailbox>>) {
    hub.name(seat.index(), thread::current().id(), mailbox.as_deref());
    let mut place = hub.membership.arrived(seat.index());
    // Given back before the place is.
    let mut mailbox = mailbox;
    let tell = |error| hub.tell_error(error);
    hub.thread_settings.put_on(seat.index(), tell);
    loop {
        let follower = Follower::new(hub, Arc::clone(&seat), None, mailbox.clone(), None);
        match turn::join(follower) {
            Err(error) => hub.report(error),
            Ok(Left::Closing) => return,
            // It has no deadline: the pool has let it go.
            Ok(Left::TimedOut) => {
                drop(mailbox.take());
                match hub.retire(&seat, place) {
                    None => return,
                    Some(kept) => place = kept,
                }
                mailbox = open_mailbox(hub, &seat);
                hub.name(seat.index(), thread::current().id(), mailbox.as_deref());
            }
        }
    }
}
