//! Tests of the book.

mod cancels;
mod claims;
mod commands;
mod failover;
mod model;
mod random;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::*;

/// A book with one database, one user and their pool. Connections are numbered by the tests.
struct World {
    book: Book<u32>,
    orders: Orders<u32>,
    database: DatabaseId,
    user: UserId,
    pool: PoolId,
    now: Duration,
    connections: u32,
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl World {
    fn new(settings: Settings) -> Self {
        Self::with_database(settings, DatabaseSettings::default())
    }

    fn with_database(settings: Settings, of_database: DatabaseSettings) -> Self {
        let mut book = Book::new(settings);
        let database = book.add_database("bank", of_database);
        let user = book.add_user("ada", UserSettings::default());
        let pool = book.pool(database, user, ms(0)).expect("both exist");
        Self {
            book,
            orders: Vec::new(),
            database,
            user,
            pool,
            now: ms(0),
            connections: 0,
        }
    }

    /// A pool of the same database and another user.
    fn other_pool(&mut self, user: &str) -> PoolId {
        let user = self.book.add_user(user, UserSettings::default());
        let pool = self.book.pool(self.database, user, self.now);
        pool.expect("both exist")
    }

    fn client(&mut self) -> ClientId {
        let (database, user) = (Some(self.database), Some(self.user));
        let client = self
            .book
            .enter(database, user, Privilege::Ordinary, self.now);
        client.expect("there is room")
    }

    fn ask(&mut self, client: ClientId) -> Ask<u32> {
        self.ask_of(client, self.pool)
    }

    fn ask_of(&mut self, client: ClientId, pool: PoolId) -> Ask<u32> {
        self.book.ask(client, pool, self.now, &mut self.orders)
    }

    /// Clients that wait for a server of this pool.
    fn waiting<const N: usize>(&mut self, pool: PoolId) -> [ClientId; N] {
        std::array::from_fn(|_| {
            let client = self.client();
            assert_eq!(self.ask_of(client, pool), Ask::Waiting);
            client
        })
    }

    /// The servers that the orders open; the orders are empty then.
    fn opened(&mut self) -> Vec<ServerId> {
        let orders = std::mem::take(&mut self.orders);
        let open = orders.into_iter().map(|order| match order {
            Order::Open { server, .. } => server,
            other => unreachable!("{other:?}"),
        });
        open.collect()
    }

    fn log_in(&mut self, server: ServerId) -> GiveBack<u32> {
        self.connections += 1;
        let (connection, key) = (self.connections, key(self.connections));
        self.book
            .opened(server, connection, Some(key), self.now, &mut self.orders)
    }

    fn fail(&mut self, server: ServerId, scope: FailureScope) {
        let failure = LoginFailure {
            code: Some("28P01".into()),
            message: "no".into(),
            scope,
        };
        self.book
            .open_failed(server, &failure, self.now, &mut self.orders);
    }

    fn give_back(&mut self, server: ServerId) -> GiveBack<u32> {
        let connection = self.connections;
        self.book
            .give_back(server, connection, self.now, &mut self.orders)
    }

    fn arrive(&mut self, client: ClientId) -> Welcome {
        let (pool, now) = (self.pool, self.now);
        self.book.await_welcome(client, pool, now, &mut self.orders)
    }

    fn maintain(&mut self) {
        self.book.maintain(self.now, &mut self.orders);
    }

    fn take_orders(&mut self) -> Orders<u32> {
        std::mem::take(&mut self.orders)
    }

    /// A client that has a server, which was opened for it.
    fn served(&mut self) -> (ClientId, ServerId) {
        let [client] = self.waiting(self.pool);
        let opened = self.opened();
        let [server] = opened[..] else {
            unreachable!("one server is opened: {opened:?}");
        };
        assert_eq!(to_client(&self.log_in(server)), Some(client));
        (client, server)
    }
}

fn key(number: u32) -> ServerKey {
    ServerKey {
        process: i32::try_from(number).expect("a small number"),
        secret: Box::from(*b"abcd"),
        host: 0,
    }
}

fn to_client(outcome: &GiveBack<u32>) -> Option<ClientId> {
    match outcome {
        GiveBack::ToClient { client, .. } => Some(*client),
        _ => None,
    }
}

fn closed(outcome: &GiveBack<u32>) -> Option<CloseReason> {
    match outcome {
        GiveBack::Close { reason, .. } => Some(*reason),
        _ => None,
    }
}

fn sized(pool_size: usize) -> Settings {
    Settings {
        pool_size,
        ..Settings::default()
    }
}

impl<T> Book<T> {
    /// Whether no pool is listed as blocked, and no list has an entry.
    fn nothing_is_listed(&self) -> bool {
        let databases = self.databases.iter().map(|(_, it)| &it.shared.blocked);
        let users = self.users.iter().map(|(_, it)| &it.shared.blocked);
        let mut pools = self.pools.iter().map(|(_, it)| it);
        databases.chain(users).all(BTreeSet::is_empty)
            && pools.all(|it| it.is_empty() && it.marked == 0)
    }
}
