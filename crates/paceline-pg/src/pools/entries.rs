//! The entries of the book.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    list::{Link, Linked, List},
    settings::{DatabaseSettings, PoolLimits, UserSettings},
    slab::NONE,
    ServerKey,
};

/// Lanes of the lists of servers: a server that is idle is in one list of each kind.
pub(super) const IN_POOL: usize = 0;
pub(super) const IN_DATABASE: usize = 1;
pub(super) const OF_USER: usize = 2;

/// Pools that wait for a shared limit, by the arrival of their first client that waits.
pub(super) type Blocked = BTreeSet<(u64, u32)>;

/// The connections that share the limit of one database or user.
#[derive(Debug, Default)]
pub(super) struct Shared<const LANE: usize> {
    /// Connections of all its pools, including those that are opening.
    pub(super) connections: usize,
    pub(super) clients: usize,
    /// Idle servers of all its pools, the one that has been idle longest first.
    pub(super) idle: List<LANE>,
    /// Pools that would open a connection if the limit allowed it.
    pub(super) blocked: Blocked,
}

/// A database that clients may name.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) name: Arc<str>,
    pub(super) settings: DatabaseSettings,
    pub(super) shared: Shared<IN_DATABASE>,
    pub(super) is_paused: bool,
    pub(super) is_disabled: bool,
    pub(super) is_removed: bool,
    /// Since when it was found without clients and connections.
    pub(super) unused_since: Option<Duration>,
    /// Its pools, by user.
    pub(super) pools: Vec<(u32, u32)>,
}

/// A user with limits.
#[derive(Debug)]
pub(super) struct User {
    pub(super) name: Arc<str>,
    pub(super) settings: UserSettings,
    pub(super) shared: Shared<OF_USER>,
}

/// Why a pool opens no connection for a while.
#[derive(Debug)]
pub(super) struct Failing {
    pub(super) message: Arc<str>,
    /// Until then it opens none.
    pub(super) until: Duration,
}

/// The servers of one database and one user, and the clients that wait for them.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) database: u32,
    pub(super) user: u32,
    pub(super) limits: PoolLimits,
    /// Clients that wait for a server, by arrival.
    pub(super) waiting: List<0>,
    /// Clients in a login that waits for the first server.
    pub(super) arriving: List<0>,
    /// Clients that have logged in and do not wait.
    pub(super) clients: usize,
    pub(super) idle: List<IN_POOL>,
    pub(super) counts: Counts,
    /// A server has logged in since the last change of the configuration.
    pub(super) has_welcome: bool,
    pub(super) failing: Option<Failing>,
    /// The epoch of the configuration: servers of an earlier one must be closed.
    pub(super) epoch: u32,
    /// How many of an earlier epoch there are.
    pub(super) marked: usize,
    pub(super) last_lifetime_close: Option<Duration>,
    /// The arrival under which it is listed in `blocked` of its database and user.
    pub(super) blocked: [Option<u64>; 2],
    pub(super) cancels: List<0>,
    /// Since when it has had neither clients nor requests.
    pub(super) unused_since: Duration,
    pub(super) waits: Waits,
}

/// The number of connections of a pool by state. Idle ones are in a list instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) opening: usize,
    /// Checked for a client that waits.
    pub(super) checking: usize,
    /// Reset after use.
    pub(super) resetting: usize,
    pub(super) held: usize,
    pub(super) being_cancelled: usize,
    /// Connections that are opened to carry a cancel.
    pub(super) cancel_opening: usize,
    /// Connections that have carried a cancel.
    pub(super) cancelling: usize,
}

/// How long clients have waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How often a client got a server.
    pub assignments: u64,
    /// How long the clients that got one have waited, together.
    pub total: Duration,
    /// The longest of these waits.
    pub longest: Duration,
}

impl Waits {
    pub(super) fn add(&mut self, wait: Duration) {
        self.assignments += 1;
        self.total += wait;
        self.longest = self.longest.max(wait);
    }

    /// The average wait.
    #[must_use]
    pub fn average(&self) -> Duration {
        let count = u32::try_from(self.assignments).unwrap_or(u32::MAX);
        self.total.checked_div(count).unwrap_or_default()
    }
}

impl Pool {
    pub(super) fn new(database: u32, user: u32, limits: PoolLimits, now: Duration) -> Self {
        Self {
            database,
            user,
            limits,
            waiting: List::default(),
            arriving: List::default(),
            clients: 0,
            idle: List::default(),
            counts: Counts::default(),
            has_welcome: false,
            failing: None,
            epoch: 0,
            marked: 0,
            last_lifetime_close: None,
            blocked: [None; 2],
            cancels: List::default(),
            unused_since: now,
            waits: Waits::default(),
        }
    }

    /// Connections that are logged in.
    pub(super) fn connected(&self) -> usize {
        let counts = &self.counts;
        self.idle.len() + counts.checking + counts.resetting + counts.held + counts.being_cancelled
    }

    /// Connections that its size limits.
    pub(super) fn connections(&self) -> usize {
        self.connected() + self.counts.opening
    }

    /// Connections with those of cancels.
    pub(super) fn with_cancels(&self) -> usize {
        self.connections() + self.counts.cancel_opening + self.counts.cancelling
    }

    /// How many more servers its clients could use.
    pub(super) fn demand(&self) -> usize {
        let wants_welcome = !self.has_welcome && !self.arriving.is_empty();
        let demand = self.waiting.len() + usize::from(wants_welcome);
        demand.saturating_sub(self.counts.opening + self.counts.checking)
    }

    /// Whether more clients wait than servers are in a check.
    pub(super) fn lacks_check(&self) -> bool {
        self.waiting.len() > self.counts.checking
    }

    /// Whether the pool has neither connections nor clients.
    pub(super) fn is_empty(&self) -> bool {
        let clients = self.clients + self.waiting.len() + self.arriving.len();
        self.with_cancels() + clients + self.cancels.len() == 0
    }
}

/// The state of a connection.
///
/// ```text
///   Opening -> Idle        opened        Idle -> Held, Checking     ask
///   Held -> Resetting      reset         Held, Checking, Resetting -> Idle or Held    give_back
///   Held -> BeingCancelled give_back     BeingCancelled -> Idle or Held    closed (of the cancel)
///   CancelOpening -> Cancelling          cancel_connected
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerState {
    /// It connects and logs in.
    Opening,
    /// It waits for a client; the book keeps its connection.
    Idle,
    /// It is checked before a client gets it.
    Checking,
    /// Its session is reset after the last client.
    Resetting,
    /// A client has it.
    Held,
    /// A cancel was sent to it: no client gets it until the cancel has ended.
    BeingCancelled,
    /// It connects to carry a cancel.
    CancelOpening,
    /// It has carried a cancel.
    Cancelling,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Server<T> {
    pub(super) pool: u32,
    pub(super) state: ServerState,
    /// The caller's value, while no client has the connection.
    pub(super) connection: Option<T>,
    pub(super) client: u32,
    /// The number of its last assignment.
    pub(super) binding: u64,
    pub(super) epoch: u32,
    pub(super) opened_at: Duration,
    /// When a client last got it or gave it back.
    pub(super) since: Duration,
    pub(super) key: Option<Arc<ServerKey>>,
    /// Cancels that were sent to it and have not ended.
    pub(super) cancels: u32,
    /// The cancel that it carries itself.
    pub(super) carries: u32,
    /// No cancel may be sent now.
    pub(super) is_quiet: bool,
    links: [Link; 3],
}

impl<T> Server<T> {
    pub(super) fn new(pool: u32, state: ServerState, epoch: u32, now: Duration) -> Self {
        Self {
            pool,
            state,
            connection: None,
            client: NONE,
            binding: 0,
            epoch,
            opened_at: now,
            since: now,
            key: None,
            cancels: 0,
            carries: NONE,
            is_quiet: false,
            links: [Link::default(); 3],
        }
    }
}

macro_rules! linked {
    ($($lane:ident)*) => {$(
        impl<T> Linked<$lane> for Server<T> {
            fn link(&mut self) -> &mut Link {
                &mut self.links[$lane]
            }

            fn after(&self) -> u32 {
                self.links[$lane].after()
            }
        }
    )*};
}

linked!(IN_POOL IN_DATABASE OF_USER);

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientState {
    /// It logs in.
    Login,
    /// Its login waits for the pool's first server.
    Arriving,
    /// It has no server and waits for none.
    Idle,
    /// It waits for a server.
    Waiting,
    /// It has a server.
    Active,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) database: u32,
    pub(super) user: u32,
    /// The pool that it uses now.
    pub(super) pool: u32,
    pub(super) state: ClientState,
    pub(super) is_logged_in: bool,
    pub(super) is_notified: bool,
    /// It is beyond a limit, and has not proved that it is an administrator.
    pub(super) claims: bool,
    pub(super) server: u32,
    /// Its arrival number among the waiting clients.
    pub(super) ticket: u64,
    /// Since when it waits.
    pub(super) since: Duration,
    link: Link,
}

impl Client {
    pub(super) fn new(database: u32, user: u32, now: Duration) -> Self {
        Self {
            database,
            user,
            pool: NONE,
            state: ClientState::Login,
            is_logged_in: false,
            is_notified: false,
            claims: false,
            server: NONE,
            ticket: 0,
            since: now,
            link: Link::default(),
        }
    }

    /// Its state when it neither waits nor has a server.
    pub(super) fn at_rest(&self) -> ClientState {
        if self.is_logged_in {
            ClientState::Idle
        } else {
            ClientState::Login
        }
    }
}

impl Linked<0> for Client {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn after(&self) -> u32 {
        self.link.after()
    }
}

/// A request to cancel the query of a client.
#[derive(Debug)]
pub(super) struct Cancel {
    pub(super) pool: u32,
    pub(super) server: super::ServerId,
    /// The assignment that it is for.
    pub(super) binding: u64,
    pub(super) since: Duration,
    pub(super) state: CancelState,
    link: Link,
}

/// The state of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelState {
    /// In the queue of its pool.
    Queued,
    /// A connection is opened for it.
    Opening,
    /// It was sent.
    Sent,
    /// It was not sent.
    Dropped,
}

impl Cancel {
    pub(super) fn new(pool: u32, server: super::ServerId, binding: u64, now: Duration) -> Self {
        Self {
            pool,
            server,
            binding,
            since: now,
            state: CancelState::Queued,
            link: Link::default(),
        }
    }
}

impl Linked<0> for Cancel {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn after(&self) -> u32 {
        self.link.after()
    }
}
