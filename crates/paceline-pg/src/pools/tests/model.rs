//! A slow model of the book: it keeps plain lists of what the book has answered and ordered, and
//! checks each answer against them.
//!
//! - Connections never exceed the limits of pool, database and user.
//! - A server is given to the first client that waits in its pool, with its own connection.
//! - A pool opens a connection only if no client of another pool, which could have used the room,
//!   has arrived before.
//! - While a client waits, no server that it could have is idle, and no connection that could be
//!   opened is not.

use std::collections::BTreeMap;

use super::*;

/// What a client of the model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Rests,
    /// In the queue of this pool; the number is its arrival.
    Waits(usize, u64),
    Arrives(usize, u64),
    Holds(ServerId),
}

/// A connection of the model.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) pool: usize,
    pub(super) state: ServerState,
    /// What the book was given for it.
    pub(super) number: u32,
    pub(super) is_marked: bool,
    /// The server that this connection cancels.
    pub(super) cancels: Option<ServerId>,
}

/// A pool of the model.
#[derive(Clone, Debug)]
pub(super) struct ModelPool {
    pub(super) id: PoolId,
    pub(super) database: usize,
    pub(super) user: usize,
    pub(super) has_welcome: bool,
    pub(super) fails_until: Option<Duration>,
    pub(super) is_paused: bool,
}

/// All that the model knows.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) settings: Settings,
    pub(super) pools: Vec<ModelPool>,
    pub(super) clients: BTreeMap<ClientId, Does>,
    pub(super) servers: BTreeMap<ServerId, Connection>,
    pub(super) arrivals: u64,
    pub(super) now: Duration,
    /// Clients that waited and were given a server.
    pub(super) served: u64,
}

impl Model {
    pub(super) fn count(&self, is_meant: impl Fn(&Connection) -> bool) -> usize {
        let real = self.servers.values().filter(|it| !is_cancel(it.state));
        real.filter(|it| is_meant(it)).count()
    }

    fn in_state(&self, pool: usize, state: ServerState) -> usize {
        self.count(|it| it.pool == pool && it.state == state)
    }

    fn waiting(&self, pool: usize) -> Vec<(u64, ClientId)> {
        let clients = self.clients.iter();
        let waiting = clients.filter_map(|(client, does)| match does {
            Does::Waits(of, arrival) if *of == pool => Some((*arrival, *client)),
            _ => None,
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting
    }

    fn arriving(&self, pool: usize) -> Option<u64> {
        let clients = self.clients.values();
        let arriving = clients.filter_map(|does| match does {
            Does::Arrives(of, arrival) if *of == pool => Some(*arrival),
            _ => None,
        });
        arriving.min()
    }

    /// The first arrival for which the pool could use a further connection.
    fn wish(&self, pool: usize) -> Option<u64> {
        let waiting = self.waiting(pool);
        let it = &self.pools[pool];
        let arriving = self.arriving(pool).filter(|_| !it.has_welcome);
        let pending =
            self.in_state(pool, ServerState::Opening) + self.in_state(pool, ServerState::Checking);
        let waiting = waiting.into_iter().map(|(arrival, _)| arrival);
        let mut wishes: Vec<u64> = waiting.chain(arriving).collect();
        wishes.sort_unstable();
        wishes.get(pending).copied()
    }

    fn has_room(&self, pool: usize, count: usize, most: usize, shares: Share) -> bool {
        let idle = self.count(|it| it.state == ServerState::Idle && shares(self, it.pool, pool));
        most == 0 || count < most || idle > 0
    }

    /// The arrival for which this pool could open a connection now.
    fn able(&self, pool: usize) -> Option<u64> {
        let it = &self.pools[pool];
        let opening = self.in_state(pool, ServerState::Opening);
        let parallel = match it.fails_until {
            Some(until) if self.now < until => 0,
            Some(_) => 1,
            None => self.settings.parallel_logins.max(1),
        };
        let size = self.count(|it| it.pool == pool);
        let of_database = self.count(|it| same_database(self, it.pool, pool));
        let of_user = self.count(|it| same_user(self, it.pool, pool));
        let settings = &self.settings;
        let is_able = !it.is_paused
            && opening < parallel
            && (settings.pool_size == 0 || size < settings.pool_size)
            && self.has_room(
                pool,
                of_database,
                settings.max_database_connections,
                same_database,
            )
            && self.has_room(pool, of_user, settings.max_user_connections, same_user);
        self.wish(pool).filter(|_| is_able)
    }

    /// Takes over what the book orders, and checks it.
    pub(super) fn apply(&mut self, orders: Vec<Order<u32>>) {
        for order in orders {
            self.apply_one(order);
        }
    }

    fn apply_one(&mut self, order: Order<u32>) {
        match order {
            Order::Open { server, pool, why } => self.open(server, pool, why),
            Order::Abort { server, .. } => {
                let gone = self.servers.remove(&server).expect("it is known");
                assert_eq!(gone.state, ServerState::Opening);
            }
            Order::Close {
                server, connection, ..
            } => {
                let gone = self.servers.remove(&server).expect("it is known");
                assert_eq!(gone.number, connection);
                let may = [ServerState::Idle, ServerState::BeingCancelled];
                assert!(may.contains(&gone.state), "{gone:?}");
            }
            Order::Check { server, connection } => {
                let it = self.servers.get_mut(&server).expect("it is known");
                assert_eq!((it.state, it.number), (ServerState::Idle, connection));
                it.state = ServerState::Checking;
            }
            Order::Give {
                client,
                server,
                connection,
                ..
            } => self.give(client, server, connection),
            Order::Welcome { client } => {
                let does = self.clients.insert(client, Does::Rests);
                assert!(matches!(does, Some(Does::Arrives(..))), "{does:?}");
            }
            Order::Refuse { client, .. } => {
                let does = self.clients.insert(client, Does::Rests);
                assert!(matches!(does, Some(Does::Arrives(..) | Does::Waits(..))));
            }
            Order::OpenCancel {
                server, pool, key, ..
            } => self.open_cancel(server, pool, &key),
            Order::Notify { .. } | Order::DropCancel { .. } | Order::Completed { .. } => {}
            Order::Recall { server, client, .. } => {
                assert_eq!(self.clients[&client], Does::Holds(server));
                assert!(self.servers[&server].is_marked);
            }
            other @ (Order::Dismiss { .. } | Order::PoolRemoved { .. }) => {
                unreachable!("{other:?}")
            }
        }
    }

    fn open(&mut self, server: ServerId, pool: PoolId, why: OpenReason) {
        let pool = self.place(pool);
        assert!(!self.pools[pool].is_paused, "a paused pool opens nothing");
        if why == OpenReason::Demand {
            let own = self.able(pool).expect("a client could use it");
            let others = (0..self.pools.len()).filter(|other| *other != pool);
            let first = others.filter_map(|other| self.able(other)).min();
            assert!(
                first.is_none_or(|first| own < first),
                "arrival {first:?} is before {own}"
            );
        }
        self.add(server, pool, ServerState::Opening, None);
        self.check_limits(pool, why);
    }

    fn open_cancel(&mut self, server: ServerId, pool: PoolId, key: &ServerKey) {
        let target = self.servers.iter().find(|(_, it)| {
            it.state == ServerState::Held && i32::try_from(it.number) == Ok(key.process)
        });
        let target = target.map(|(target, _)| *target);
        let target = target.expect("a cancel is for a server that a client has");
        let pool = self.place(pool);
        self.add(server, pool, ServerState::CancelOpening, Some(target));
        let all = self.servers.values().filter(|it| it.pool == pool).count();
        let most = 2 * self.settings.pool_size;
        assert!(most == 0 || all <= most, "{all} connections with cancels");
    }

    fn add(&mut self, id: ServerId, pool: usize, state: ServerState, cancels: Option<ServerId>) {
        let connection = Connection {
            pool,
            state,
            number: 0,
            is_marked: false,
            cancels,
        };
        assert!(self.servers.insert(id, connection).is_none());
    }

    /// A lowered limit may be exceeded by what was there, but nothing is added to that.
    fn check_limits(&self, pool: usize, why: OpenReason) {
        let settings = &self.settings;
        let reserve = match why {
            OpenReason::Reserve(_) => settings.reserve_size,
            _ => 0,
        };
        for (count, most, what) in [
            (self.count(|it| it.pool == pool), settings.pool_size, "pool"),
            (
                self.count(|it| same_database(self, it.pool, pool)),
                settings.max_database_connections,
                "database",
            ),
            (
                self.count(|it| same_user(self, it.pool, pool)),
                settings.max_user_connections,
                "user",
            ),
        ] {
            let most = if what == "pool" && most > 0 {
                most + reserve
            } else {
                most
            };
            assert!(
                most == 0 || count <= most,
                "{count} of {what}, {most} allowed"
            );
        }
    }

    /// The book has given a server to a client that waited.
    pub(super) fn give(&mut self, client: ClientId, server: ServerId, connection: u32) {
        let pool = self.servers[&server].pool;
        let first = self.waiting(pool).first().map(|(_, client)| *client);
        assert_eq!(first, Some(client), "the first that waits is served");
        self.served += 1;
        self.hold(client, server, connection);
    }

    pub(super) fn hold(&mut self, client: ClientId, server: ServerId, connection: u32) {
        let it = self.servers.get_mut(&server).expect("it is known");
        assert_eq!(it.number, connection, "the connection is another server's");
        assert!(!it.is_marked, "a marked server serves no other client");
        assert!(
            !self.pools[it.pool].is_paused,
            "a paused pool gives nothing"
        );
        assert_ne!(it.state, ServerState::Held, "another client has it");
        it.state = ServerState::Held;
        self.clients.insert(client, Does::Holds(server));
        let cancels = self.servers.values();
        let mut sent = cancels.filter(|it| it.state == ServerState::Cancelling);
        assert!(
            sent.all(|it| it.cancels != Some(server)),
            "a cancel for another client may still hit it"
        );
    }

    /// What must hold whenever the book has answered.
    pub(super) fn check_rest(&self) {
        for (place, pool) in self.pools.iter().enumerate() {
            if pool.is_paused {
                continue;
            }
            let waiting = self.waiting(place).len();
            let idle = self.in_state(place, ServerState::Idle);
            let checking = self.in_state(place, ServerState::Checking);
            assert!(
                waiting <= checking || idle == 0,
                "{waiting} wait, {idle} are idle"
            );
            let able = self.able(place);
            assert_eq!(able, None, "a connection could be opened for it");
        }
    }

    pub(super) fn place(&self, pool: PoolId) -> usize {
        let found = self.pools.iter().position(|it| it.id == pool);
        found.expect("a pool of the model")
    }
}

type Share = fn(&Model, usize, usize) -> bool;

fn same_database(model: &Model, one: usize, other: usize) -> bool {
    model.pools[one].database == model.pools[other].database
}

fn same_user(model: &Model, one: usize, other: usize) -> bool {
    model.pools[one].user == model.pools[other].user
}

pub(super) fn is_cancel(state: ServerState) -> bool {
    matches!(state, ServerState::CancelOpening | ServerState::Cancelling)
}
