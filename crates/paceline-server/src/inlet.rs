//! Connections of a simulation: a listener for tests, with peers in memory and virtual time.

use std::{
    fmt,
    io::Write,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex,
    },
};

use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Handle, Interest, Pool,
};

use crate::{codec::Codec, connection::Connection, service::Service, session::Session, sync::lock};

/// A listener for tests: its peers are streams of a [`Simulation`], and its times pass when the
/// test moves the clock.
///
/// ```
/// use std::time::Duration;
/// use paceline::{simulated::Simulation, Pool, SetKind};
/// use paceline_server::{codec::{line, Message}, Inlet, Listen, Next, Peer, Server};
///
/// let world = Simulation::new(7);
/// let inlet = Inlet::new(&world);
/// let server = Server::builder()
///     .pool(Pool::builder().threads(2).handle_set(SetKind::Simulated(world.clone())))
///     .listener(Listen::simulated(&inlet), line(80), |_peer| {
///         |line: Message<'_>, cx: &mut Peer<'_>| {
///             cx.reply(line)?;
///             Ok(Next::Continue)
///         }
///     })
///     .start()?;
///
/// let peer = inlet.connect();
/// peer.send(b"hello\r\n");
/// assert_eq!(peer.wait_for(7), b"hello\r\n");
///
/// // A client that says nothing for 75 seconds is closed: here that takes no time. The time begins
/// // when the session's call has ended, and both threads sleep.
/// while world.clock().asleep() < 2 {
///     std::thread::yield_now();
/// }
/// world.clock().advance(Duration::from_secs(80));
/// peer.wait_closed();
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Inlet {
    shared: Arc<Shared>,
}

struct Shared {
    world: Simulation,
    acceptor: Mutex<Option<Acceptor>>,
    refused: AtomicU64,
}

/// Takes the server's end of a connection; whether it was refused.
type Acceptor = Arc<dyn Fn(SimStream) -> Accepted + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepted {
    Yes,
    Refused,
}

impl Inlet {
    /// An inlet for connections of this simulation, which the pool of the server must have as its
    /// handle set.
    #[must_use]
    pub fn new(world: &Simulation) -> Self {
        Self {
            shared: Arc::new(Shared {
                world: world.clone(),
                acceptor: Mutex::new(None),
                refused: AtomicU64::new(0),
            }),
        }
    }

    /// Connects to the server. If that has not started yet, or drains, the connection is closed at
    /// once.
    #[must_use]
    pub fn connect(&self) -> SimPeer {
        let (stream, peer) = self.shared.world.stream();
        let acceptor = lock(&self.shared.acceptor).clone();
        let accepted = acceptor.map_or(Accepted::Refused, |accept| accept(stream));
        if accepted == Accepted::Refused {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
        }
        peer
    }

    /// The server begins to accept.
    pub(crate) fn open<C, N>(
        &self,
        pool: &Pool,
        service: Arc<Service>,
        make: impl Fn() -> Connection<C, N> + Send + Sync + 'static,
    ) where
        C: Codec,
        N: Session<C>,
    {
        let pool = pool.downgrade();
        *lock(&self.shared.acceptor) = Some(Arc::new(move |stream: SimStream| {
            let Some(pool) = pool.upgrade() else {
                return Accepted::Refused;
            };
            let Some(place) = service.take_place() else {
                // The peer of a simulation may have closed its side.
                let _ = (&stream).write(&service.refusal);
                return Accepted::Refused;
            };
            match pool.register(stream, Interest::READ, make().at_place(place)) {
                Ok(handle) => set_idle_time(&handle, &service),
                Err(_) => Accepted::Refused,
            }
        }));
    }

    pub(crate) fn close(&self) {
        *lock(&self.shared.acceptor) = None;
    }

    pub(crate) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

fn set_idle_time(handle: &Handle, service: &Service) -> Accepted {
    // A connection that is over already is not idle.
    let _ = handle.set_timeout(service.limits().idle);
    Accepted::Yes
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").finish_non_exhaustive()
    }
}
