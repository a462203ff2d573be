//! An entry of `[databases]`.

use std::{sync::Arc, time::Duration};

use super::{
    entry::{self, entry_keys, EntryKey, Remark},
    error::Reason,
    roles::{Host, HostAddress},
    value::{AuthDatabase, Names, Password, Value},
    words::{LoadBalance, PoolMode, Roles, TargetSession},
};

/// A database that clients may name, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database {
    /// The name that clients use; `*` for the entry of all others.
    pub name: Box<str>,
    /// Whether it is made from the entry `*`.
    pub is_auto: bool,
    /// The name on the server, if it is another one.
    pub dbname: Option<Box<str>>,
    /// The hosts as the entry lists them; empty: the local Unix socket.
    pub host: Names,
    /// One port for all hosts, or one for each; empty: 5432.
    pub port: Ports,
    /// The user of all its server connections; unset: the client's.
    pub user: Option<Box<str>>,
    /// The password of that user.
    pub password: Option<Password>,
    /// The user that asks `auth_query`.
    pub auth_user: Option<Box<str>>,
    /// The query for secrets of users.
    pub auth_query: Option<Box<str>>,
    /// The database where that query runs.
    pub auth_dbname: Option<AuthDatabase>,
    /// The most server connections of one of its pools; 0: no limit.
    pub pool_size: Option<u32>,
    /// How many server connections a pool keeps while it has clients.
    pub min_pool_size: Option<u32>,
    /// How many further ones for clients that wait long.
    pub reserve_pool_size: Option<u32>,
    /// The query that each new server connection runs first.
    pub connect_query: Option<Box<str>>,
    /// When a server connection becomes free for other clients.
    pub pool_mode: Option<PoolMode>,
    /// How long a client waits for a server connection.
    pub query_wait_timeout: Option<Duration>,
    /// Which of several hosts a new connection uses.
    pub load_balance_hosts: LoadBalance,
    /// The most server connections; 0: no limit.
    pub max_db_connections: Option<u32>,
    /// The most clients; 0: no limit.
    pub max_db_client_connections: Option<u32>,
    /// How long a server connection lives.
    pub server_lifetime: Option<Duration>,
    /// A parameter of the start of each server connection.
    pub client_encoding: Option<Box<str>>,
    /// A parameter of the start of each server connection.
    pub datestyle: Option<Box<str>>,
    /// A parameter of the start of each server connection.
    pub timezone: Option<Box<str>>,
    /// A parameter of the start of each server connection.
    pub application_name: Option<Box<str>>,
    /// How the roles of its hosts are found.
    pub roles: Roles,
    /// Which role a server must have.
    pub target_session_attrs: Option<TargetSession>,
    /// How far a replica may lag.
    pub max_replica_lag: Option<Duration>,
    /// How many requests share one server connection.
    pub multiplex: Option<u32>,
    /// Whether a commit that did not wait for its standby is unknown.
    pub strict_commit: Option<bool>,
}

entry_keys! { Database:
    "dbname" => dbname, "the name on the server, if it is another one";
    "host" => host, "hosts with commas between; a folder is that of a Unix socket";
    "port" => port, "one port for all hosts, or one for each";
    "user" => user, "the user of all its server connections";
    "password" => password, "the password of that user";
    "auth_user" => auth_user, "the user that asks auth_query";
    "auth_query" => auth_query, "the query for secrets of users";
    "auth_dbname" => auth_dbname, "the database where that query runs";
    "pool_size" => pool_size, "the most server connections of one pool; 0: no limit";
    "min_pool_size" => min_pool_size, "how many a pool keeps while it has clients";
    "reserve_pool_size" => reserve_pool_size, "how many further ones for clients that wait long";
    "reserve_pool" => reserve_pool_size, "the older name of reserve_pool_size";
    "connect_query" => connect_query, "the query that each new server connection runs first";
    "pool_mode" => pool_mode, "when a server connection becomes free for other clients";
    "query_wait_timeout" => query_wait_timeout, "how long a client waits for a server";
    "load_balance_hosts" => load_balance_hosts, "round-robin, or disable: the first reachable";
    "max_db_connections" => max_db_connections, "the most server connections; 0: no limit";
    "max_db_client_connections" => max_db_client_connections, "the most clients; 0: no limit";
    "server_lifetime" => server_lifetime, "how long a server connection lives";
    "client_encoding" => client_encoding, "a parameter of each server connection's start";
    "datestyle" => datestyle, "a parameter of each server connection's start";
    "timezone" => timezone, "a parameter of each server connection's start";
    "application_name" => application_name, "a parameter of each server connection's start";
    "roles" => roles, "off, auto (one primary, the others replicas) or equal";
    "target_session_attrs" => target_session_attrs, "which role a server must have";
    "max_replica_lag" => max_replica_lag, "how far a replica may lag; 0: any";
    "multiplex" => multiplex, "how many requests share one server connection";
    "strict_commit" => strict_commit, "a commit that did not wait for its standby is unknown";
}

/// The settings that a server connection depends on. A change of them replaces the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'d> {
    /// The name on the server.
    pub dbname: &'d str,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The user that all connections have.
    pub user: Option<&'d str>,
    /// The query that each connection runs first.
    pub connect_query: Option<&'d str>,
    /// The database and the query for secrets.
    pub auth: (Option<&'d str>, Option<&'d str>),
    /// How a host is chosen.
    pub choice: (LoadBalance, Roles),
}

impl Database {
    /// The keys of an entry.
    #[must_use]
    pub fn keys() -> &'static [EntryKey<Self>] {
        KEYS
    }

    /// Reads an entry.
    pub(super) fn read(name: &str, text: &str) -> Result<Self, Remark> {
        let mut database = Self {
            name: name.into(),
            ..Self::default()
        };
        entry::read(&mut database, KEYS, text)?;
        database
            .check_ports()
            .map_err(|reason| ("port".into(), reason))?;
        Ok(database)
    }

    fn check_ports(&self) -> Result<(), Reason> {
        let (hosts, ports) = (self.host.iter().len(), self.port.0.len());
        if ports <= 1 || ports == hosts {
            return Ok(());
        }
        let rule = format!("expected one port, or {hosts}: as many as there are hosts");
        Err(Reason::BadValue(self.port.show().into(), rule.into()))
    }

    /// A database of this name, made from this entry of `*`.
    #[must_use]
    pub fn named(&self, name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            is_auto: true,
            ..self.clone()
        })
    }

    /// The name on the server.
    #[must_use]
    pub fn server_name(&self) -> &str {
        self.dbname.as_deref().unwrap_or(&self.name)
    }

    /// The hosts of its servers; by default, the Unix socket in `socket_dir`.
    #[must_use]
    pub fn hosts(&self, socket_dir: &str) -> Vec<Host> {
        let host = |(index, address)| Host {
            address,
            port: self.port.of(index),
        };
        if self.host.is_empty() {
            return vec![host((0, HostAddress::Unix(socket_dir.into())))];
        }
        let addresses = self.host.iter().map(HostAddress::read);
        addresses.enumerate().map(host).collect()
    }

    /// The settings that its server connections depend on.
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        Target {
            dbname: self.server_name(),
            hosts: self.hosts(""),
            user: self.user.as_deref(),
            connect_query: self.connect_query.as_deref(),
            auth: (
                self.auth_dbname.as_ref().map(AuthDatabase::as_str),
                self.auth_query.as_deref(),
            ),
            choice: (self.load_balance_hosts, self.roles),
        }
    }

    /// The parameters that each of its server connections starts with.
    pub fn startup_parameters(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("client_encoding", &self.client_encoding),
            ("datestyle", &self.datestyle),
            ("timezone", &self.timezone),
            ("application_name", &self.application_name),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// The ports of a list of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Vec<u16>);

impl Ports {
    /// The port of the host at `index`.
    #[must_use]
    pub fn of(&self, index: usize) -> u16 {
        let only = self.0.first().copied();
        self.0.get(index).copied().or(only).unwrap_or(5432)
    }
}

impl Value for Ports {
    fn read(text: &str) -> Result<Self, String> {
        let ports = text.split(',').map(|port| u16::read(port.trim()));
        let ports: Result<Vec<_>, _> = ports.collect();
        let all = ports.ok().filter(|ports| !ports.contains(&0));
        all.map(Self)
            .ok_or_else(|| "expected ports from 1 to 65535".to_owned())
    }

    fn show(&self) -> String {
        let ports: Vec<_> = self.0.iter().map(u16::to_string).collect();
        ports.join(",")
    }
}
