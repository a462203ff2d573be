//! The limits of connections, all with defaults, and their names in logs and metrics.

use std::{fmt, time::Duration};

/// What the connections of one listener may use, and for how long.
///
/// Every limit has a default that suits a server on the public Internet. A connection that meets a
/// limit is closed, the counter of that limit is raised, and the log names the limit ([`Limit`]).
///
/// ```
/// use std::time::Duration;
/// use paceline_server::Limits;
///
/// let limits = Limits::default().connections(500).idle(Duration::from_secs(600));
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    pub(crate) connections: usize,
    pub(crate) silent: Duration,
    pub(crate) handshakes: usize,
    pub(crate) item_time: Option<Duration>,
    pub(crate) least_rate: Option<LeastRate>,
    pub(crate) idle: Option<Duration>,
    pub(crate) mailbox: usize,
    pub(crate) items_per_turn: usize,
    pub(crate) bytes_per_turn: usize,
}

/// The least data rate of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastRate {
    /// So many bytes per second, on average,
    pub bytes_per_second: u32,
    /// after so long.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            silent: Duration::from_secs(10),
            handshakes: 256,
            item_time: None,
            least_rate: Some(LeastRate {
                bytes_per_second: 240,
                grace: Duration::from_secs(5),
            }),
            idle: Some(Duration::from_secs(75)),
            mailbox: 64 * 1024,
            items_per_turn: 16,
            bytes_per_turn: 16 * 1024,
        }
    }
}

impl Limits {
    /// How many connections may be open at once at each address of the listener. Default: 10,000.
    /// In any case at most four fifths of the descriptors that the process may have.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How long a connection may stay silent after it was accepted, and how long a TLS handshake
    /// may take. Default: 10 s.
    #[must_use]
    pub fn silent(mut self, time: Duration) -> Self {
        self.silent = time;
        self
    }

    /// How many TLS handshakes of the listener may be under way at once: those of clients that have
    /// sent their first byte. One more connection is closed without an answer. Default: 256.
    #[must_use]
    pub fn handshakes(mut self, handshakes: usize) -> Self {
        self.handshakes = handshakes;
        self
    }

    /// How long one item may take, from its first byte to its last one. Default: no such limit,
    /// because the [least rate](Self::least_rate) ends a slow peer too, and lets a large item come
    /// at a steady pace.
    #[must_use]
    pub fn item_time(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.item_time = time.into();
        self
    }

    /// The least data rate of a peer: while it sends an item, and while it takes kept output.
    /// Default: 240 bytes per second after 5 s.
    #[must_use]
    pub fn least_rate(mut self, rate: impl Into<Option<LeastRate>>) -> Self {
        self.least_rate = rate.into();
        self
    }

    /// How long nothing may happen on a connection. Default: 75 s.
    #[must_use]
    pub fn idle(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.idle = time.into();
        self
    }

    /// How many bytes of [rooms](crate::Room) may wait for one connection. A message that finds no
    /// place there misses this connection. A message counts as 64 bytes at least. Default: 64 KiB.
    #[must_use]
    pub fn mailbox(mut self, bytes: usize) -> Self {
        self.mailbox = bytes;
        self
    }

    /// How many items, and about how many bytes of items, one connection may have handled before
    /// other connections have their turn. Default: 16 items, 16 KiB.
    #[must_use]
    pub fn per_turn(mut self, items: usize, bytes: usize) -> Self {
        self.items_per_turn = items;
        self.bytes_per_turn = bytes;
        self
    }

    /// At most as many connections as four fifths of the descriptors that this process may have.
    pub(crate) fn for_this_process(mut self) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let descriptors = limit.current.and_then(|most| usize::try_from(most).ok());
        if let Some(descriptors) = descriptors {
            self.connections = self.connections.min((descriptors / 5 * 4).max(1));
        }
        self
    }

    /// What can't be among these limits, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        let zero = [
            (
                "connections(0): no connection could be accepted",
                self.connections == 0,
            ),
            (
                "silent(0): every connection would be closed at once",
                self.silent.is_zero(),
            ),
            (
                "handshakes(0): no handshake could begin",
                self.handshakes == 0,
            ),
            (
                "item_time(0): no item could arrive",
                self.item_time == Some(Duration::ZERO),
            ),
            (
                "idle(0): every connection would be closed at once",
                self.idle == Some(Duration::ZERO),
            ),
            (
                "per_turn(0, _): no item would be handled",
                self.items_per_turn == 0,
            ),
            (
                "per_turn(_, 0): no item would be handled",
                self.bytes_per_turn == 0,
            ),
            (
                "least_rate with 0 bytes per second: use None for no limit",
                self.least_rate
                    .is_some_and(|rate| rate.bytes_per_second == 0),
            ),
        ];
        let faults = zero.into_iter().filter(|(_, is_fault)| *is_fault);
        faults.map(|(text, _)| text.to_owned()).collect()
    }
}

macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident => $name:literal,)*) => {
        /// A limit that a connection has met: its name in logs and metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Limit {
            $($(#[$doc])* $limit,)*
        }

        impl Limit {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$limit,)*];

            /// Its name in logs and metrics.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$limit => $name,)*
                }
            }
        }
    };
}

limits! {
    /// [`Limits::connections`]: a connection was refused.
    Connections => "connections",
    /// [`Limits::silent`]: nothing came after the connection was accepted.
    Silent => "silent",
    /// [`Limits::silent`]: the TLS handshake took too long.
    HandshakeTime => "handshake_time",
    /// [`Limits::handshakes`]: too many handshakes were under way.
    Handshakes => "handshakes",
    /// [`Limits::item_time`]: an item took too long.
    ItemTime => "item_time",
    /// [`Limits::least_rate`]: the peer sent too slowly.
    ReadRate => "read_rate",
    /// [`Limits::least_rate`]: the peer took output too slowly.
    WriteRate => "write_rate",
    /// [`Limits::idle`]: nothing happened for too long.
    Idle => "idle",
    /// [`Peer::set_deadline`](crate::Peer::set_deadline): the session's own deadline.
    Deadline => "deadline",
    /// The codec's limit: an item was too long.
    ItemSize => "item_size",
    /// The output that a connection may keep.
    Output => "output",
    /// [`Limits::mailbox`]: a message of a room missed the connection. The connection goes on.
    Mailbox => "mailbox",
    /// An item waited too long for a thread, or found the queue of the half-sync engine full.
    Overload => "overload",
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
