//! The results of the book's calls: outcomes, and orders that the caller carries out.

use std::{fmt, sync::Arc};

use super::{CancelId, ClientId, OperationId, PoolId, ServerId, ServerKey};

/// A task for the caller. `T` is its value for a connection in the book.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an order that is not carried out leaves the book wrong"]
pub enum Order<T> {
    /// Connect and log in; then call `opened` or `open_failed`.
    Open {
        /// The connection that is to be.
        server: ServerId,
        /// Its pool.
        pool: PoolId,
        /// Why it is opened.
        why: OpenReason,
    },
    /// Give up the connection that is being opened. The book has forgotten it.
    Abort {
        /// The connection.
        server: ServerId,
        /// Why.
        reason: CloseReason,
    },
    /// Close this connection. The book has forgotten it.
    Close {
        /// Its id until now.
        server: ServerId,
        /// What the book kept of it.
        connection: T,
        /// Why.
        reason: CloseReason,
    },
    /// Check this connection; then call `give_back`, or `closed`.
    Check {
        /// The connection.
        server: ServerId,
        /// What the book kept of it.
        connection: T,
    },
    /// The client, which has waited, has this server now.
    Give {
        /// The client.
        client: ClientId,
        /// Its server.
        server: ServerId,
        /// What the book kept of it.
        connection: T,
        /// The number of this assignment.
        binding: u64,
    },
    /// The pool has had a server, which the client has waited for: its login can end.
    Welcome {
        /// The client.
        client: ClientId,
    },
    /// The client, which has waited, gets an error. It remains in the book until it leaves.
    Refuse {
        /// The client.
        client: ClientId,
        /// The error.
        why: Refusal,
    },
    /// The client has waited long enough for a notice.
    Notify {
        /// The client.
        client: ClientId,
    },
    /// The client is to be closed with this error. It remains in the book until it leaves.
    Dismiss {
        /// The client.
        client: ClientId,
        /// The error.
        why: Refusal,
    },
    /// Close this connection if its session is in no transaction, else leave it. It is ordered
    /// again at each maintenance.
    Recall {
        /// The connection.
        server: ServerId,
        /// The client that has it.
        client: ClientId,
        /// Why.
        reason: CloseReason,
    },
    /// Connect to the server of this cancel; then call `cancel_connected`, and `closed` at the end.
    OpenCancel {
        /// The connection that is to be.
        server: ServerId,
        /// The cancel.
        cancel: CancelId,
        /// Its pool.
        pool: PoolId,
        /// The key of the target server. The caller connects to the host in this key.
        key: Arc<ServerKey>,
    },
    /// The cancel is not sent: end the connection that has asked for it.
    DropCancel {
        /// The cancel.
        cancel: CancelId,
    },
    /// The operation of a command is complete.
    Completed {
        /// The operation.
        operation: OperationId,
    },
    /// The pool is in the book no longer.
    PoolRemoved {
        /// The pool.
        pool: PoolId,
    },
}

/// Why a connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenReason {
    /// A client waits.
    Demand,
    /// This client has waited so long that it gets a connection of the reserve.
    Reserve(ClientId),
    /// The pool has fewer than `min_pool_size`.
    Minimum,
}

/// Why a connection is closed. Shown as in PgBouncer's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Another pool needs a connection within a limit that both share.
    Evicted,
    /// It was opened before its configuration changed.
    Changed,
    /// A client would get it, but it was opened before its configuration changed.
    Obsolete,
    /// It has reached its age.
    LifetimeOver,
    /// It was idle for too long.
    IdleTimeout,
    /// The pool is smaller than it was.
    TooMany,
    /// The pool is paused.
    Paused,
    /// The database was removed or killed.
    Killed,
    /// The pooler shuts down.
    ShuttingDown,
    /// A cancel that was sent to it does not end.
    CancelHangs,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evicted => "evicted",
            Self::Changed => "database configuration changed",
            Self::Obsolete => "obsolete connection",
            Self::LifetimeOver => "server lifetime over",
            Self::IdleTimeout => "server idle timeout",
            Self::TooMany => "too many servers in the pool",
            Self::Paused => "pause mode",
            Self::Killed => "admin forced disconnect",
            Self::ShuttingDown => "server shutting down",
            Self::CancelHangs => "cancel_wait_timeout",
        })
    }
}

/// A failed login of a server, as its clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginFailure {
    /// The SQLSTATE, if the server gave one.
    pub code: Option<Arc<str>>,
    /// The text.
    pub message: Arc<str>,
    /// Which clients get it.
    pub scope: FailureScope,
}

/// Whether a failed login ends the wait of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// The server has refused the login: waiting clients get its error, unless a server is usable.
    Refused,
    /// The server can't be reached, or starts up (57P03): clients keep waiting.
    Temporary,
}

/// Why a client gets an error. Shown as in PgBouncer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client, the pool or the database is in the book no longer.
    Gone,
    /// Too many clients.
    MaxClients,
    /// Too many clients of the database.
    MaxDatabaseClients,
    /// Too many clients of the user.
    MaxUserClients,
    /// The database takes no logins.
    Disabled(Arc<str>),
    /// The pooler takes no logins any more.
    PoolerShutsDown,
    /// The pooler gives out no servers any more.
    ShuttingDown,
    /// It drains: the client has no transaction open.
    Drained,
    /// It has waited too long.
    QueryWaitTimeout,
    /// The login of a server has failed.
    Login(LoginFailure),
    /// Logins of servers have failed before.
    LoginKeepsFailing(Arc<str>),
    /// An administrator has ended the client.
    Killed,
    /// The database was removed from the configuration.
    DatabaseRemoved,
}

impl Refusal {
    /// The SQLSTATE; 08P01 is PgBouncer's for everything of its own.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Drained => "57P01",
            Self::Login(LoginFailure {
                code: Some(code), ..
            }) => code,
            _ => "08P01",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone | Self::DatabaseRemoved => f.write_str("database removed"),
            Self::MaxClients => f.write_str("no more connections allowed (max_client_conn)"),
            Self::MaxDatabaseClients => {
                f.write_str("client connections exceeded (max_db_client_connections)")
            }
            Self::MaxUserClients => {
                f.write_str("client connections exceeded (max_user_client_connections)")
            }
            Self::Disabled(name) => write!(f, "database \"{name}\" is disabled"),
            Self::PoolerShutsDown => f.write_str("pooler is shutting down"),
            Self::ShuttingDown => f.write_str("server shutting down"),
            Self::Drained => f.write_str("terminating connection due to administrator command"),
            Self::QueryWaitTimeout => f.write_str("query_wait_timeout"),
            Self::Login(failure) => f.write_str(&failure.message),
            Self::LoginKeepsFailing(text) => write!(
                f,
                "server login has been failing, cached error: {text} (server_login_retry)"
            ),
            Self::Killed => f.write_str("admin forced disconnect"),
        }
    }
}

/// The outcome of [`Book::ask`](super::Book::ask).
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Ask<T> {
    /// This server, at once.
    Server {
        /// The server.
        server: ServerId,
        /// What the book kept of it.
        connection: T,
        /// The number of this assignment.
        binding: u64,
    },
    /// A place in the queue. An order gives it a server later, or an error.
    Waiting,
    /// An error.
    Refused(Refusal),
}

/// The outcome of [`Book::await_welcome`](super::Book::await_welcome).
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Welcome {
    /// The pool has had a server: the caller sends its reports as the welcome.
    Ready,
    /// The pool has had none yet. An order ends the wait.
    Waiting,
    /// The client gets an error.
    Refused(Refusal),
}

/// The outcome of [`Book::give_back`](super::Book::give_back).
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum GiveBack<T> {
    /// It serves this client, which has waited.
    ToClient {
        /// The client.
        client: ClientId,
        /// The server's connection.
        connection: T,
        /// The number of this assignment.
        binding: u64,
    },
    /// It is idle; the book keeps the connection.
    Idle,
    /// A cancel was sent to it: the book keeps it from all clients until that has ended.
    Held,
    /// The caller must close it. The book has forgotten it.
    Close {
        /// The connection.
        connection: T,
        /// Why.
        reason: CloseReason,
    },
}
