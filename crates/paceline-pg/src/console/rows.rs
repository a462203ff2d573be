//! The rows of the tables: the front-end fills them.

mod stats;

pub(super) use stats::{AveragesRow, TotalsRow, TOTALS};
pub use stats::{Counters, StatsRow};

use super::table::{row, Big, Head, Row};

row! {
    /// A row of `SHOW DATABASES`.
    DatabaseRow {
        /// The name that clients use.
        name: String,
        /// The hosts; `None`: the Unix socket.
        host: Option<String>,
        /// The port.
        port: u32,
        /// The name on the server.
        database: String,
        /// The user of all server connections.
        force_user: Option<String>,
        /// The most server connections of a pool.
        pool_size: u32,
        /// How many a pool keeps.
        min_pool_size: u32,
        /// How many further ones for clients that wait long.
        reserve_pool_size: u32,
        /// How many seconds a server connection lives.
        server_lifetime: u32,
        /// The pool mode, if the database has one of its own.
        pool_mode: Option<String>,
        /// How a host is chosen, if there are several.
        load_balance_hosts: Option<String>,
        /// The most server connections.
        max_connections: u32,
        /// How many there are.
        current_connections: u32,
        /// The most clients.
        max_client_connections: u32,
        /// How many there are.
        current_client_connections: u32,
        /// No servers are assigned.
        paused: bool,
        /// No logins are admitted.
        disabled: bool,
    }
}

row! {
    /// A row of `SHOW POOLS`.
    PoolRow {
        /// The database.
        database: String,
        /// The user.
        user: String,
        /// Clients with a server, or idle.
        cl_active: u32,
        /// Clients that wait for a server.
        cl_waiting: u32,
        /// Cancels that are passed on.
        cl_active_cancel_req: u32,
        /// Cancels that wait for a connection.
        cl_waiting_cancel_req: u32,
        /// Servers with a client.
        sv_active: u32,
        /// Server connections that carry a cancel.
        sv_active_cancel: u32,
        /// Servers whose query is being cancelled.
        sv_being_canceled: u32,
        /// Servers that are free.
        sv_idle: u32,
        /// Servers that are free and must be checked first.
        sv_used: u32,
        /// Servers that are checked or reset.
        sv_tested: u32,
        /// Servers that log in.
        sv_login: u32,
        /// How many seconds the first client in the queue has waited.
        maxwait: u32,
        /// The microseconds of that.
        maxwait_us: u32,
        /// The pool mode.
        pool_mode: String,
        /// How a host is chosen, if there are several.
        load_balance_hosts: Option<String>,
    }
}

row! {
    /// A row of `SHOW CLIENTS`, `SERVERS`, `SOCKETS` and `ACTIVE_SOCKETS`.
    SocketRow {
        /// `C` for a client, `S` for a server.
        r#type: &'static str,
        /// The user; `(nouser)` before the login.
        user: String,
        /// The database; `(nodb)` before the login.
        database: String,
        /// `none`, `logical` or `physical`.
        replication: &'static str,
        /// The state.
        state: &'static str,
        /// The other side's address; `unix` for a Unix socket.
        addr: String,
        /// Its port.
        port: u32,
        /// Our address.
        local_addr: String,
        /// Our port.
        local_port: u32,
        /// When the connection was made, as text.
        connect_time: String,
        /// When the last request came, as text.
        request_time: String,
        /// How many seconds the client has waited.
        wait: u32,
        /// The microseconds of that.
        wait_us: u32,
        /// The connection is closed as soon as it is free.
        close_needed: bool,
        /// A name of this connection.
        ptr: String,
        /// The name of the connection that it is bound to.
        link: String,
        /// The process at the other side, if it is known.
        remote_pid: u32,
        /// The version and the cipher of TLS.
        tls: String,
        /// The application's name.
        application_name: String,
        /// How many prepared statements it has.
        prepared_statements: u32,
        /// Its number, as in the log.
        id: u32,
    }
}

row! {
    /// What `SHOW SOCKETS` and `ACTIVE_SOCKETS` add to a [`SocketRow`].
    SocketDetail {
        /// Bytes received into the buffer.
        recv_pos: u32,
        /// Bytes of it that are parsed.
        pkt_pos: u32,
        /// Bytes of the current message that are missing.
        pkt_remain: u32,
        /// Bytes of it that are sent.
        send_pos: u32,
        /// Bytes that are to be sent.
        send_remain: u32,
        /// Bytes that wait to be parsed.
        pkt_avail: u32,
        /// Bytes that wait to be sent.
        send_avail: u32,
    }
}

/// A row of `SHOW SOCKETS`.
impl Row for (SocketRow, SocketDetail) {
    fn heads() -> Vec<Head> {
        [SocketRow::heads(), SocketDetail::heads()].concat()
    }

    fn cells(&self) -> Vec<Option<String>> {
        [self.0.cells(), self.1.cells()].concat()
    }
}

row! {
    /// A row of `SHOW USERS`.
    UserRow {
        /// The name.
        name: String,
        /// The size of its pools, if it has one of its own.
        pool_size: String,
        /// Their reserve, if it has one of its own.
        reserve_pool_size: String,
        /// Their mode, if it has one of its own.
        pool_mode: Option<String>,
        /// The most server connections.
        max_user_connections: u32,
        /// How many there are.
        current_connections: u32,
        /// The most clients.
        max_user_client_connections: u32,
        /// How many there are.
        current_client_connections: u32,
    }
}

row! {
    /// A row of `SHOW HOSTS`: a host of a database, and its role.
    HostRow {
        /// The database.
        database: String,
        /// The host.
        host: String,
        /// Its port.
        port: u32,
        /// `unknown`, `primary`, `replica`, `down` or `fenced`.
        state: &'static str,
        /// How many microseconds it lags behind its primary, if that is known.
        lag_us: Option<String>,
        /// How many server connections it has.
        connections: u32,
        /// How many of them have a client.
        active: u32,
        /// When its state changed, as text.
        since: String,
        /// Why it is down or fenced.
        reason: String,
    }
}

row! {
    /// A row of `SHOW MEM`.
    MemoryRow {
        /// What the memory is for.
        name: String,
        /// The size of one item.
        size: u32,
        /// How many items are used.
        used: u32,
        /// How many are kept for later.
        free: u32,
        /// The bytes of all.
        memtotal: u32,
    }
}

row! {
    /// A row of `SHOW DNS_HOSTS`.
    DnsHostRow {
        /// The name.
        hostname: String,
        /// For how many seconds the answer holds.
        ttl: Big,
        /// The addresses with commas between.
        addrs: String,
    }
}

/// What `SHOW LISTS` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Databases.
    pub databases: u32,
    /// Users.
    pub users: u32,
    /// Pools.
    pub pools: u32,
    /// Clients that have logged in.
    pub used_clients: u32,
    /// Clients that log in.
    pub login_clients: u32,
    /// Server connections.
    pub used_servers: u32,
    /// Host names that are known.
    pub dns_names: u32,
    /// Host names that are being looked up.
    pub dns_pending: u32,
}

impl Lists {
    pub(super) fn rows(self) -> [(&'static str, u32); 14] {
        [
            ("databases", self.databases),
            ("users", self.users),
            ("peers", 0),
            ("pools", self.pools),
            ("peer_pools", 0),
            ("free_clients", 0),
            ("used_clients", self.used_clients),
            ("login_clients", self.login_clients),
            ("free_servers", 0),
            ("used_servers", self.used_servers),
            ("dns_names", self.dns_names),
            ("dns_zones", 0),
            ("dns_queries", 0),
            ("dns_pending", self.dns_pending),
        ]
    }
}

/// What `SHOW STATE` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Servers are assigned.
    #[default]
    Active,
    /// None are.
    Paused,
    /// Nothing is read.
    Suspended,
}

impl State {
    pub(super) fn rows(self) -> [(&'static str, &'static str); 3] {
        let is = |state| if self == state { "yes" } else { "no" };
        [
            ("active", is(Self::Active)),
            ("paused", is(Self::Paused)),
            ("suspended", is(Self::Suspended)),
        ]
    }
}
