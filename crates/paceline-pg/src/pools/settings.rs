//! The settings of pools, in plain values.
//!
//! A limit of zero is no limit. `None` in the settings of a database or user means: not set there.
//! A user's setting overrides its database's, and that one the global setting.

use std::time::Duration;

/// The settings of all pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most clients at once (`max_client_conn`); zero: no limit.
    pub max_clients: usize,
    /// Most clients of one database.
    pub max_database_clients: usize,
    /// Most clients of one user.
    pub max_user_clients: usize,
    /// Most connections of a pool (`default_pool_size`).
    pub pool_size: usize,
    /// Connections that a pool in use keeps.
    pub min_pool_size: usize,
    /// Further connections for clients that have waited `reserve_timeout`.
    pub reserve_size: usize,
    /// How long a client waits before it may take a connection of the reserve; zero: no reserve.
    pub reserve_timeout: Duration,
    /// Most connections to one database.
    pub max_database_connections: usize,
    /// Most connections of one user.
    pub max_user_connections: usize,
    /// Most logins of one pool at once; at least one.
    pub parallel_logins: usize,
    /// How long a pool opens no connection after a failed login.
    pub login_retry: Duration,
    /// Idle servers are taken in turn, not the one that was used last.
    pub round_robin: bool,
    /// A connection is closed at this age; zero: it is used once.
    pub server_lifetime: Duration,
    /// An idle connection is closed after this time; zero: never.
    pub server_idle_timeout: Duration,
    /// A connection that was idle for so long is checked before it is used; `None`: never.
    pub check_delay: Option<Duration>,
    /// How long a client waits for a server; zero: for ever.
    pub query_wait_timeout: Duration,
    /// After this time a waiting client gets a notice; zero: never.
    pub query_wait_notify: Duration,
    /// Connections that are to be closed are taken from sessions without a transaction.
    pub fast_close: bool,
    /// How long a connection serves its own pool before it may be closed for a client of another
    /// pool that has waited longer. It bounds how often connections change between pools that
    /// share a limit.
    pub switch_after: Duration,
}

impl Default for Settings {
    /// PgBouncer's defaults.
    fn default() -> Self {
        Self {
            max_clients: 100,
            max_database_clients: 0,
            max_user_clients: 0,
            pool_size: 20,
            min_pool_size: 0,
            reserve_size: 0,
            reserve_timeout: Duration::from_secs(5),
            max_database_connections: 0,
            max_user_connections: 0,
            parallel_logins: 4,
            login_retry: Duration::from_secs(15),
            round_robin: false,
            server_lifetime: Duration::from_secs(3600),
            server_idle_timeout: Duration::from_secs(600),
            check_delay: None,
            query_wait_timeout: Duration::from_secs(120),
            query_wait_notify: Duration::from_secs(5),
            fast_close: false,
            switch_after: Duration::from_millis(100),
        }
    }
}

/// The settings of the pools of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// Most connections of a pool.
    pub pool_size: Option<usize>,
    /// Connections that a pool in use keeps.
    pub min_pool_size: Option<usize>,
    /// Connections of the reserve.
    pub reserve_size: Option<usize>,
    /// Most connections of all its pools.
    pub max_connections: Option<usize>,
    /// Most clients.
    pub max_clients: Option<usize>,
    /// The age of connections.
    pub server_lifetime: Option<Duration>,
    /// How long a client waits for a server.
    pub query_wait_timeout: Option<Duration>,
    /// Its connections have one user, whichever user has logged in: `min_pool_size` holds without
    /// clients too.
    pub forced_user: bool,
    /// It is made from the entry `*`: it may be forgotten while it is unused.
    pub is_auto: bool,
    /// Clients wait for a server although logins have failed: another host may take over.
    pub parks: bool,
}

/// The settings of the clients and connections of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserSettings {
    /// Most connections of a pool.
    pub pool_size: Option<usize>,
    /// Connections of the reserve.
    pub reserve_size: Option<usize>,
    /// Most connections of all its pools.
    pub max_connections: Option<usize>,
    /// Most clients.
    pub max_clients: Option<usize>,
    /// How long its clients wait for a server.
    pub query_wait_timeout: Option<Duration>,
}

/// The limits of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Most connections; zero: no limit.
    pub size: usize,
    /// Connections that it keeps while in use.
    pub min: usize,
    /// Connections of the reserve.
    pub reserve: usize,
    /// The age of its connections.
    pub lifetime: Duration,
}

impl PoolLimits {
    /// The limits of a pool of this database and this user.
    #[must_use]
    pub fn of(settings: &Settings, database: &DatabaseSettings, user: &UserSettings) -> Self {
        let size = user.pool_size.or(database.pool_size);
        let reserve = user.reserve_size.or(database.reserve_size);
        Self {
            size: size.unwrap_or(settings.pool_size),
            min: database.min_pool_size.unwrap_or(settings.min_pool_size),
            reserve: reserve.unwrap_or(settings.reserve_size),
            lifetime: database.server_lifetime.unwrap_or(settings.server_lifetime),
        }
    }
}

/// Whether one more fits; a limit of zero is no limit.
pub(super) fn has_room(count: usize, limit: usize) -> bool {
    limit == 0 || count < limit
}
