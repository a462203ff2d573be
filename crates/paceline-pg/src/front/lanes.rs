//! The shared connections of a pool (`multiplex`): the requests that wait for one, and the trunks
//! that take them.
//!
//! ```text
//!   session --share--> Lanes: queue --take--> trunk --> server        a batch of each client
//!      ^                                        |
//!      +--------- replies, in their order ------+
//! ```
//!
//! A [trunk](super::trunk) is the handler of a group that has a server connection for a while. It
//! takes requests in the order of their arrival while fewer than `multiplex` of its own are
//! outstanding. Another trunk is put to work only when those at work have no room.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use paceline::Group;

use super::{client::Client, registers::PoolEntry, sockets::Stream, state::Front, trunk::Trunk};
use crate::protocol::ClientHalf;

/// A request: a batch of one client. The client's half of the protocol travels with it.
pub(crate) struct Request {
    pub(crate) client: Arc<Client>,
    pub(crate) half: ClientHalf,
    pub(crate) bytes: Vec<u8>,
}

/// The shared connections of one pool.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    queue: VecDeque<Request>,
    trunks: Vec<Row>,
    /// The pool was removed.
    is_closed: bool,
}

/// What the others know of a trunk.
#[derive(Debug)]
struct Row {
    group: Group<Stream>,
    /// It takes requests, or asks for a server.
    is_at_work: bool,
    /// A request that comes is taken at once if there is room. Without a server the trunk takes
    /// what waits when it gets one: it needs no notification.
    has_server: bool,
    /// How many requests it takes before the next reply.
    room: usize,
}

/// The number of a trunk in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrunkNumber(usize);

/// Whether a trunk that has nothing outstanding may rest.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Requests wait.
    No,
    /// The next request wakes it.
    Yes,
    /// The pool is gone: so is the trunk.
    ForEver,
}

/// Whether requests wait.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    No,
    Some,
}

/// The most trunks of a pool without a limit of connections.
const MOST_TRUNKS: usize = 64;

impl Lanes {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest request.
    pub(crate) fn take(&self) -> Option<Request> {
        self.tables().queue.pop_front()
    }

    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables().queue.is_empty()
    }

    /// All requests that wait.
    pub(crate) fn take_all(&self) -> VecDeque<Request> {
        std::mem::take(&mut self.tables().queue)
    }

    /// The trunk has a server, and takes so many requests now. With `Some` it takes them, or wakes
    /// another trunk: their sessions may have seen other room, and notified none.
    pub(crate) fn set_room(&self, trunk: TrunkNumber, room: usize) -> Waiting {
        let mut tables = self.tables();
        let row = &mut tables.trunks[trunk.0];
        (row.room, row.has_server) = (room, true);
        if tables.queue.is_empty() {
            Waiting::No
        } else {
            Waiting::Some
        }
    }

    /// A session ends: its request is not sent.
    pub(crate) fn remove(&self, client: u64) {
        let mut tables = self.tables();
        let mut numbers = tables.queue.iter().map(|request| request.client.number);
        let place = numbers.position(|number| number == client);
        let removed = place.and_then(|place| tables.queue.remove(place));
        // The lock first: the request has a buffer and the client's statements.
        drop(tables);
        drop(removed);
    }

    /// Whether the trunk may rest. From `Yes` on the next request notifies its group.
    pub(crate) fn rest(&self, trunk: TrunkNumber) -> Rest {
        let mut tables = self.tables();
        if !tables.queue.is_empty() {
            return Rest::No;
        }
        tables.trunks[trunk.0].is_at_work = false;
        if tables.is_closed {
            Rest::ForEver
        } else {
            Rest::Yes
        }
    }

    /// The pool was removed: its trunks end.
    pub(crate) fn close(&self) {
        let mut tables = self.tables();
        tables.is_closed = true;
        for trunk in &tables.trunks {
            // It has ended already, if that fails.
            let _ = trunk.group.notify();
        }
    }
}

impl Tables {
    /// How many requests the trunks at work take before their next replies.
    fn room(&self) -> usize {
        let at_work = self.trunks.iter().filter(|row| row.is_at_work);
        at_work.map(|row| row.room).sum()
    }

    /// Puts a trunk to work that rests. Whether there was one.
    fn wake_resting(&mut self, multiplex: usize) -> bool {
        let Some(row) = self.trunks.iter_mut().find(|row| !row.is_at_work) else {
            return false;
        };
        (row.is_at_work, row.room) = (true, multiplex);
        // A trunk does not end before its pool is gone.
        let _ = row.group.notify();
        true
    }

    /// A trunk with a server takes another request.
    fn notify_one_with_room(&self) {
        let mut rows = self.trunks.iter();
        if let Some(row) = rows.find(|row| row.is_at_work && row.has_server && row.room > 0) {
            let _ = row.group.notify();
        }
    }
}

impl Front {
    /// Puts a request before the shared connections of its pool.
    pub(crate) fn share(self: &Arc<Self>, pool: &Arc<PoolEntry>, request: Request) {
        let mut tables = pool.lanes.tables();
        tables.queue.push_back(request);
        self.wake_trunk(pool, &mut tables);
    }

    /// A trunk takes nothing for the time being: another one does.
    pub(crate) fn wake_other_trunk(self: &Arc<Self>, pool: &Arc<PoolEntry>) {
        let mut tables = pool.lanes.tables();
        if !tables.queue.is_empty() {
            self.wake_trunk(pool, &mut tables);
        }
    }

    /// A trunk has no server any more. A request that was left to it goes to another trunk.
    pub(crate) fn note_serverless(self: &Arc<Self>, pool: &Arc<PoolEntry>, trunk: TrunkNumber) {
        let mut tables = pool.lanes.tables();
        tables.trunks[trunk.0].has_server = false;
        if !tables.queue.is_empty() {
            tables.notify_one_with_room();
        }
    }

    /// Another trunk begins if those at work have no room. If none can, one of them takes the
    /// request after its next replies.
    fn wake_trunk(self: &Arc<Self>, pool: &Arc<PoolEntry>, tables: &mut Tables) {
        let multiplex = pool.terms().multiplex.max(1);
        let is_short = tables.queue.len() > tables.room();
        let another = is_short
            && (tables.wake_resting(multiplex) || self.begin_trunk(pool, tables, multiplex));
        if !another {
            tables.notify_one_with_room();
        }
    }

    /// Whether another trunk could be made.
    fn begin_trunk(
        self: &Arc<Self>,
        pool: &Arc<PoolEntry>,
        tables: &mut Tables,
        multiplex: usize,
    ) -> bool {
        let most = match pool.terms().effective.pool_size as usize {
            0 => MOST_TRUNKS,
            size => size,
        };
        if tables.trunks.len() >= most {
            return false;
        }
        let number = TrunkNumber(tables.trunks.len());
        let trunk = Trunk::new(Arc::clone(self), Arc::clone(pool), number);
        let Some(threads) = self.pool() else {
            return false;
        };
        let Ok(group) = threads.group(trunk) else {
            return false;
        };
        let _ = group.notify();
        tables.trunks.push(Row {
            group,
            is_at_work: true,
            has_server: false,
            room: multiplex,
        });
        true
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("client", &self.client.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        front::{
            sockets::Address,
            tests::{wait_until, World},
        },
        protocol::Values,
    };

    /// A session puts a request before the trunks of a pool that another thread has removed: the trunk
    /// of that request stayed for ever.
    #[test]
    fn a_trunk_ends_with_its_pool() {
        let world = World::new("host=127.0.0.1 pool_mode=statement multiplex=2");
        let pool = world.pool();
        let later = world.front.now() + Duration::from_secs(2);
        let ((), removal) = world.front.with_book(|book, _, orders| {
            book.remove_idle_pools(Duration::from_secs(1), later, orders);
        });
        world.front.carry_out(removal);
        let address = Address::Unix {
            port: 1,
            process: None,
        };
        let request = Request {
            client: Arc::new(Client::new(1, address, Duration::ZERO)),
            half: ClientHalf::new(Values::new(), true),
            bytes: Vec::new(),
        };
        let before = Arc::strong_count(&pool);
        world.front.share(&pool, request);
        assert_eq!(pool.lanes.tables().trunks.len(), 1);
        // A notification would end it.
        wait_until("its trunk has ended", || Arc::strong_count(&pool) == before);
        assert!(pool.lanes.take().is_none(), "the request is refused");
    }
}
