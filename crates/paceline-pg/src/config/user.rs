//! An entry of `[users]`.

use std::time::Duration;

use super::{
    entry::{self, entry_keys, EntryKey, Remark},
    words::{PoolMode, TargetSession},
};

/// What holds for one user, in all databases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: Box<str>,
    /// When a server connection becomes free for other clients.
    pub pool_mode: Option<PoolMode>,
    /// The most server connections of one of its pools; 0: no limit.
    pub pool_size: Option<u32>,
    /// How many further ones for clients that wait long.
    pub reserve_pool_size: Option<u32>,
    /// The most server connections; 0: no limit.
    pub max_user_connections: Option<u32>,
    /// The most clients; 0: no limit.
    pub max_user_client_connections: Option<u32>,
    /// How long a query may run.
    pub query_timeout: Option<Duration>,
    /// How long a client waits for a server connection.
    pub query_wait_timeout: Option<Duration>,
    /// How long a client may be idle in a transaction.
    pub idle_transaction_timeout: Option<Duration>,
    /// How long a transaction may take.
    pub transaction_timeout: Option<Duration>,
    /// How long a client may be idle.
    pub client_idle_timeout: Option<Duration>,
    /// Which role a server must have.
    pub target_session_attrs: Option<TargetSession>,
}

entry_keys! { User:
    "pool_mode" => pool_mode, "when a server connection becomes free for other clients";
    "pool_size" => pool_size, "the most server connections of one pool; 0: no limit";
    "reserve_pool_size" => reserve_pool_size, "how many further ones for clients that wait long";
    "max_user_connections" => max_user_connections, "the most server connections; 0: no limit";
    "max_user_client_connections" => max_user_client_connections, "the most clients; 0: no limit";
    "query_timeout" => query_timeout, "how long a query may run";
    "query_wait_timeout" => query_wait_timeout, "how long a client waits for a server";
    "idle_transaction_timeout" => idle_transaction_timeout, "how long idle in a transaction";
    "transaction_timeout" => transaction_timeout, "how long a transaction may take";
    "client_idle_timeout" => client_idle_timeout, "how long a client may be idle";
    "target_session_attrs" => target_session_attrs, "which role a server must have";
}

impl User {
    /// The keys of an entry.
    #[must_use]
    pub fn keys() -> &'static [EntryKey<Self>] {
        KEYS
    }

    pub(super) fn read(name: &str, text: &str) -> Result<Self, Remark> {
        let mut user = Self {
            name: name.into(),
            ..Self::default()
        };
        entry::read(&mut user, KEYS, text)?;
        Ok(user)
    }
}
