//! The configuration files.
//!
//! ```text
//!   pgbouncer.ini --> ini (lines) --> keys (table) --> Settings, Database, User
//!   userlist.txt  --> userlist    --> secrets          hba file --> hba --> rules
//!   old and new Config --> difference: what a reload changes
//! ```
//!
//! Nothing here opens a file: [`load()`] takes a function that reads one.

mod conn_string;
mod database;
mod difference;
mod entry;
mod error;
pub mod hba;
mod ini;
mod keys;
mod load;
mod roles;
mod settings;
mod user;
mod userlist;
mod value;
mod words;

use std::{collections::BTreeMap, sync::Arc};

pub use database::{Database, Ports, Target};
pub use difference::{Changes, Difference};
pub use entry::EntryKey;
pub use error::{Error, Faulty, Problem, Reason};
pub use keys::{Effect, Key, Outcome, SetError, Standing};
pub use load::{load, load_hba, load_userlist, ReadFile};
pub use roles::{Host, HostAddress};
pub use settings::Settings;
pub use user::User;
pub use userlist::{UserSecret, Userlist};
pub use value::{AuthDatabase, Mode, Names, Password, TlsVersions};
pub use words::{AuthType, Facility, LoadBalance, PoolMode, Roles, SslMode, TargetSession};

/// The name of the database that is the admin console.
pub const CONSOLE: &str = "pgbouncer";

/// The contents of the configuration files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The section `[pgbouncer]`.
    pub settings: Settings,
    /// The section `[databases]` without `*`, by name.
    pub databases: BTreeMap<Box<str>, Arc<Database>>,
    /// The entry `*` of `[databases]`, for databases without an entry.
    pub autodb: Option<Arc<Database>>,
    /// The section `[users]`, by name.
    pub users: BTreeMap<Box<str>, Arc<User>>,
    /// Warnings about accepted keys without effect.
    pub warnings: Vec<Problem>,
    /// Where each key of the section `[pgbouncer]` was set last.
    pub places: BTreeMap<&'static str, Place>,
    /// Where each entry of the section `[databases]` was set last.
    pub entries: BTreeMap<Box<str>, Place>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// The line, counted from one.
    pub line: u32,
}

impl Config {
    /// An error or a warning about this key of the section `[pgbouncer]`, with the line that sets
    /// it.
    #[must_use]
    pub fn problem(&self, key: &str, reason: Reason) -> Problem {
        match self.places.get(key) {
            Some(place) => Problem::new(&place.file, place.line, key, reason),
            None => Problem::new(&Arc::from(""), 0, key, reason),
        }
    }

    /// The keys that have no effect because of others, with the reason.
    #[must_use]
    pub fn without_effect(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.settings.unix_socket_dir.starts_with('@') {
            let why = "a socket in the abstract namespace has no file";
            let keys = ["unix_socket_group", "unix_socket_mode"];
            let set = keys.iter().filter(|key| self.places.contains_key(**key));
            problems.extend(set.map(|key| self.problem(key, Reason::NoEffect(why))));
        }
        self.multiplex_without_effect(&mut problems);
        problems
    }

    /// Only statement mode has shared connections.
    fn multiplex_without_effect(&self, problems: &mut Vec<Problem>) {
        let why = Reason::NoEffect("only pools with pool_mode = statement share connections");
        let is_statement = |mode: Option<PoolMode>| mode == Some(PoolMode::Statement);
        if self.users.values().any(|user| is_statement(user.pool_mode)) {
            return;
        }
        let global = self.settings.pool_mode;
        let all = self.databases.values().chain(&self.autodb);
        let shares = |database: &Database| is_statement(database.pool_mode.or(Some(global)));
        for database in all.clone() {
            let place = self.entries.get(&database.name);
            if let (Some(2..), Some(place), false) = (database.multiplex, place, shares(database)) {
                let key = format!("[databases] {}: multiplex", database.name);
                let line = place.line;
                problems.push(Problem::new(&place.file, line, &key, why.clone()));
            }
        }
        let mut all = all;
        let has_any = global == PoolMode::Statement || all.any(|database| shares(database));
        if self.settings.multiplex > 1 && !has_any {
            problems.push(self.problem("multiplex", why));
        }
    }

    /// The database with this name: its entry, or else one made from `*`.
    #[must_use]
    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        let made = || self.autodb.as_ref().map(|entry| entry.named(name));
        self.databases.get(name).cloned().or_else(made)
    }

    /// The limits and time-outs of a pool: the user's beat the database's, those beat the global.
    #[must_use]
    pub fn effective(&self, database: &Database, user: &str) -> Effective {
        Effective::new(
            &self.settings,
            database,
            self.users.get(user).map(Arc::as_ref),
        )
    }
}

/// The limits and time-outs that hold for one database and user.
///
/// A time-out of zero is off; a limit of zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the key of its name")]
pub struct Effective {
    pub pool_mode: PoolMode,
    pub pool_size: u32,
    pub min_pool_size: u32,
    pub reserve_pool_size: u32,
    pub max_db_connections: u32,
    pub max_db_client_connections: u32,
    pub max_user_connections: u32,
    pub max_user_client_connections: u32,
    pub server_lifetime: std::time::Duration,
    pub query_wait_timeout: std::time::Duration,
    pub query_timeout: std::time::Duration,
    pub idle_transaction_timeout: std::time::Duration,
    pub transaction_timeout: std::time::Duration,
    pub client_idle_timeout: std::time::Duration,
    pub target_session_attrs: TargetSession,
    pub multiplex: u32,
    pub strict_commit: bool,
}

impl Effective {
    fn new(global: &Settings, database: &Database, user: Option<&User>) -> Self {
        let none = User::default();
        let user = user.unwrap_or(&none);
        let wait = user.query_wait_timeout.or(database.query_wait_timeout);
        let target = user.target_session_attrs.or(database.target_session_attrs);
        let pool_size = user.pool_size.or(database.pool_size);
        let reserve = user.reserve_pool_size.or(database.reserve_pool_size);
        let clients = database.max_db_client_connections;
        let user_clients = user.max_user_client_connections;
        let idle_in = user.idle_transaction_timeout;
        let servers = user.max_user_connections;
        Self {
            pool_mode: user
                .pool_mode
                .or(database.pool_mode)
                .unwrap_or(global.pool_mode),
            pool_size: pool_size.unwrap_or(global.default_pool_size),
            min_pool_size: database.min_pool_size.unwrap_or(global.min_pool_size),
            reserve_pool_size: reserve.unwrap_or(global.reserve_pool_size),
            max_db_connections: database
                .max_db_connections
                .unwrap_or(global.max_db_connections),
            max_db_client_connections: clients.unwrap_or(global.max_db_client_connections),
            max_user_connections: servers.unwrap_or(global.max_user_connections),
            max_user_client_connections: user_clients.unwrap_or(global.max_user_client_connections),
            server_lifetime: database.server_lifetime.unwrap_or(global.server_lifetime),
            query_wait_timeout: wait.unwrap_or(global.query_wait_timeout),
            query_timeout: user.query_timeout.unwrap_or(global.query_timeout),
            idle_transaction_timeout: idle_in.unwrap_or(global.idle_transaction_timeout),
            transaction_timeout: user
                .transaction_timeout
                .unwrap_or(global.transaction_timeout),
            client_idle_timeout: user
                .client_idle_timeout
                .unwrap_or(global.client_idle_timeout),
            target_session_attrs: target.unwrap_or(global.target_session_attrs),
            multiplex: database.multiplex.unwrap_or(global.multiplex),
            strict_commit: database.strict_commit.unwrap_or(global.strict_commit),
        }
    }
}

#[cfg(test)]
mod tests;
