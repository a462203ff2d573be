//! Snapshots of the book for the console.

use std::{sync::Arc, time::Duration};

use super::{
    book::Book, slab::NONE, ClientId, ClientState, DatabaseId, PoolId, PoolLimits, ServerId,
    ServerState, UserId, Waits,
};

/// A row of SHOW POOLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRow {
    /// The pool.
    pub id: PoolId,
    /// Its database.
    pub database: Arc<str>,
    /// Its user.
    pub user: Arc<str>,
    /// Clients that do not wait.
    pub clients_active: usize,
    /// Clients that wait for a server.
    pub clients_waiting: usize,
    /// Cancels that were sent.
    pub cancels_active: usize,
    /// Cancels that wait for a connection.
    pub cancels_waiting: usize,
    /// Servers that clients have.
    pub servers_active: usize,
    /// Connections that have carried a cancel.
    pub servers_cancelling: usize,
    /// Servers that no client gets until a cancel has ended.
    pub servers_being_cancelled: usize,
    /// Servers that a client can have at once.
    pub servers_idle: usize,
    /// Servers that are idle, and checked before a client gets them.
    pub servers_used: usize,
    /// Servers that are checked or reset.
    pub servers_tested: usize,
    /// Connections that log in.
    pub servers_login: usize,
    /// How long the first client has waited.
    pub longest_wait: Duration,
    /// How long clients have waited so far.
    pub waits: Waits,
    /// Its limits.
    pub limits: PoolLimits,
    /// Connections that are to be closed.
    pub marked: usize,
}

/// A row of SHOW DATABASES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseRow {
    /// The database.
    pub id: DatabaseId,
    /// Its name.
    pub name: Arc<str>,
    /// Most connections of all its pools; zero: no limit.
    pub max_connections: usize,
    /// Connections of all its pools.
    pub connections: usize,
    /// Most clients; zero: no limit.
    pub max_clients: usize,
    /// Its clients.
    pub clients: usize,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Whether it refuses new clients.
    pub is_disabled: bool,
}

/// A row of SHOW USERS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRow {
    /// The user.
    pub id: UserId,
    /// Its name.
    pub name: Arc<str>,
    /// Most connections of all its pools; zero: no limit.
    pub max_connections: usize,
    /// Connections of all its pools.
    pub connections: usize,
    /// Most clients; zero: no limit.
    pub max_clients: usize,
    /// Its clients.
    pub clients: usize,
}

/// A row of SHOW CLIENTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRow {
    /// The client.
    pub id: ClientId,
    /// The pool that it uses.
    pub pool: Option<PoolId>,
    /// What it does.
    pub state: ClientState,
    /// Since when it waits, if it does.
    pub waits_since: Option<Duration>,
    /// The server that it has.
    pub server: Option<ServerId>,
}

/// A row of SHOW SERVERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// The connection.
    pub id: ServerId,
    /// Its pool.
    pub pool: PoolId,
    /// What it does.
    pub state: ServerState,
    /// When its connection was begun.
    pub opened_at: Duration,
    /// When a client last got it or gave it back.
    pub since: Duration,
    /// The client that has it.
    pub client: Option<ClientId>,
    /// Whether it is to be closed.
    pub is_marked: bool,
}

/// The numbers of SHOW LISTS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Databases.
    pub databases: usize,
    /// Users.
    pub users: usize,
    /// Pools.
    pub pools: usize,
    /// Clients that have logged in.
    pub used_clients: usize,
    /// Clients that log in.
    pub login_clients: usize,
    /// Servers that are idle.
    pub free_servers: usize,
    /// Other connections to servers.
    pub used_servers: usize,
}

impl<T> Book<T> {
    /// The rows of SHOW POOLS.
    #[must_use]
    pub fn pool_rows(&self, now: Duration) -> Vec<PoolRow> {
        let pools = self.pools.iter();
        pools.map(|(slot, _)| self.pool_row(slot, now)).collect()
    }

    fn pool_row(&self, slot: u32, now: Duration) -> PoolRow {
        let pool = &self.pools[slot];
        let counts = &pool.counts;
        let firsts = [pool.waiting.first(), pool.arriving.first()];
        let since = firsts.into_iter().flatten();
        let since = since.map(|client| self.clients[client].since).min();
        let used = self.unchecked(slot, now);
        PoolRow {
            id: self.pools.id(slot),
            database: self.databases[pool.database].name.clone(),
            user: self.users[pool.user].name.clone(),
            clients_active: pool.clients,
            clients_waiting: pool.waiting.len() + pool.arriving.len(),
            cancels_active: counts.cancelling,
            cancels_waiting: pool.cancels.len() + counts.cancel_opening,
            servers_active: counts.held,
            servers_cancelling: counts.cancelling,
            servers_being_cancelled: counts.being_cancelled,
            servers_idle: pool.idle.len() - used,
            servers_used: used,
            servers_tested: counts.checking + counts.resetting,
            servers_login: counts.opening + counts.cancel_opening,
            longest_wait: since.map_or(Duration::ZERO, |since| now.saturating_sub(since)),
            waits: pool.waits,
            limits: pool.limits,
            marked: pool.marked,
        }
    }

    /// How many idle servers of the pool are checked before they are used.
    fn unchecked(&self, pool: u32, now: Duration) -> usize {
        let next = |slot: &u32| super::list::List::<0>::after(&self.servers, *slot);
        let idle = std::iter::successors(self.pools[pool].idle.first(), next);
        idle.filter(|slot| self.needs_check(*slot, now)).count()
    }

    /// The rows of SHOW DATABASES.
    #[must_use]
    pub fn database_rows(&self) -> Vec<DatabaseRow> {
        let databases = self.databases.iter().filter(|(_, it)| !it.is_removed);
        let row = |(slot, it): (u32, &super::entries::Database)| DatabaseRow {
            id: self.databases.id(slot),
            name: it.name.clone(),
            max_connections: it
                .settings
                .max_connections
                .unwrap_or(self.settings.max_database_connections),
            connections: it.shared.connections,
            max_clients: it
                .settings
                .max_clients
                .unwrap_or(self.settings.max_database_clients),
            clients: it.shared.clients,
            is_paused: it.is_paused,
            is_disabled: it.is_disabled,
        };
        databases.map(row).collect()
    }

    /// The rows of SHOW USERS.
    #[must_use]
    pub fn user_rows(&self) -> Vec<UserRow> {
        let row = |(slot, it): (u32, &super::entries::User)| UserRow {
            id: self.users.id(slot),
            name: it.name.clone(),
            max_connections: it
                .settings
                .max_connections
                .unwrap_or(self.settings.max_user_connections),
            connections: it.shared.connections,
            max_clients: it
                .settings
                .max_clients
                .unwrap_or(self.settings.max_user_clients),
            clients: it.shared.clients,
        };
        self.users.iter().map(row).collect()
    }

    /// The rows of SHOW CLIENTS.
    #[must_use]
    pub fn client_rows(&self) -> Vec<ClientRow> {
        let clients = self.clients.iter();
        let waits = |state| matches!(state, ClientState::Waiting | ClientState::Arriving);
        let rows = clients.map(|(slot, it)| ClientRow {
            id: self.clients.id(slot),
            pool: (it.pool != NONE).then(|| self.pools.id(it.pool)),
            state: it.state,
            waits_since: waits(it.state).then_some(it.since),
            server: (it.server != NONE).then(|| self.servers.id(it.server)),
        });
        rows.collect()
    }

    /// The rows of SHOW SERVERS.
    #[must_use]
    pub fn server_rows(&self) -> Vec<ServerRow> {
        let rows = self.servers.iter().map(|(slot, it)| ServerRow {
            id: self.servers.id(slot),
            pool: self.pools.id(it.pool),
            state: it.state,
            opened_at: it.opened_at,
            since: it.since,
            client: (it.client != NONE).then(|| self.clients.id(it.client)),
            is_marked: self.is_marked(slot),
        });
        rows.collect()
    }

    /// The numbers of SHOW LISTS.
    #[must_use]
    pub fn lists(&self) -> Lists {
        let logged_in = self.clients.iter().filter(|(_, it)| it.is_logged_in);
        let used_clients = logged_in.count();
        let free_servers = self.pools.iter().map(|(_, it)| it.idle.len()).sum();
        Lists {
            databases: self
                .databases
                .iter()
                .filter(|(_, it)| !it.is_removed)
                .count(),
            users: self.users.len(),
            pools: self.pools.len(),
            used_clients,
            login_clients: self.clients.len() - used_clients,
            free_servers,
            used_servers: self.servers.len() - free_servers,
        }
    }
}
