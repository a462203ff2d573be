//! A server: listeners, dialers and timers on one pool, from the start to the report at the end.
//!
//! ```text
//!   ServerBuilder --start--> Server --drain--> DrainReport
//!     judges everything        |                 1. readiness says no
//!     opens all sockets        |                 2. the listeners close
//!     builds the pools         |                 3. connections end between two items
//!     registers                |                 4. what is left at the deadline is closed
//!                              +-- run: waits for SIGINT or SIGTERM, drains, prints the report
//! ```

mod admin;
mod builder;
mod drain;
mod endpoint;
mod metrics;
mod pools;
mod run;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex, OnceLock,
    },
    time::Duration,
};

use paceline::{Listener, Pool};

#[cfg_attr(not(feature = "http"), allow(unused_imports))]
pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::endpoint::{Part, Site};
use self::pools::Pools;
pub use self::{
    builder::ServerBuilder,
    drain::{DrainReport, ServiceReport},
};
use crate::{
    engine::Workers,
    limits::Limit,
    link::ConnectionId,
    page::Page,
    remote::Remote,
    service::{Gate, Service},
    sync::lock,
    unix_path::OwnPath,
};

/// A server that runs: what [`ServerBuilder::start`] returns.
///
/// Cloning gives another handle to the same server. When the last one is dropped, all connections
/// are closed at once; [`drain`](Self::drain) is the graceful end.
///
/// ```
/// use std::{io::{Read, Write}, net::{Shutdown, TcpStream}, time::Duration};
/// use paceline_server::{codec::{line, Message}, Next, Peer, Server};
///
/// let server = Server::builder()
///     .listen("127.0.0.1:0", line(80), |_peer| {
///         |name: Message<'_>, cx: &mut Peer<'_>| {
///             cx.reply(format!("hello, {}", name.as_str()?))?;
///             Ok(Next::Continue)
///         }
///     })
///     .start()?;
///
/// let mut client = TcpStream::connect(server.local_addr().expect("it listens"))?;
/// client.write_all(b"Ada\r\n")?;
/// client.shutdown(Shutdown::Write)?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert_eq!(answer, "hello, Ada\r\n");
///
/// let report = server.drain(Duration::from_secs(5));
/// assert!(report.is_clean(), "{report}");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

/// What the handles to a server share.
struct Shared {
    pools: Pools,
    /// Listeners first, then dialers.
    services: Vec<Arc<Service>>,
    listening: Vec<Listening>,
    /// The listener of metrics and health, which a drain closes last.
    admin: Vec<Listening>,
    /// It outlives a drain, which it shows.
    page: OnceLock<Page>,
    workers: Option<Arc<Workers>>,
    gate: Arc<Gate>,
    drain_time: Duration,
    drain_delay: Duration,
    /// It has not begun to drain.
    is_ready: AtomicBool,
    /// Held by the thread that drains.
    drains: Mutex<()>,
    #[cfg(feature = "_tls")]
    certificates: Vec<crate::tls::Tls>,
}

/// A socket that accepts connections, and the service of these.
#[derive(Debug)]
struct Listening {
    service: Arc<Service>,
    accepting: Accepting,
}

/// A socket that accepts connections.
#[derive(Debug)]
enum Accepting {
    Tcp(Listener<SocketAddr>),
    /// The path is removed once at the end, if there is one: later it may be another server's.
    Unix(
        Listener<std::os::unix::net::SocketAddr>,
        Mutex<Option<OwnPath>>,
    ),
    Simulated(crate::inlet::Inlet),
}

impl Server {
    /// To choose what it serves.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// The TCP addresses at which it listens, in the order of the builder.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.shared.listening)
    }

    /// The first TCP address at which it listens.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses().first().copied()
    }

    /// The address of its metrics and health, if it has such a listener.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        addresses(&self.shared.admin).first().copied()
    }

    /// The address of its [page](ServerBuilder::page), if it has one.
    #[must_use]
    pub fn page_addr(&self) -> Option<SocketAddr> {
        Some(self.shared.page.get()?.local_addr())
    }

    /// The pool that serves its connections: for timers, posts, other handles, and to look at. With
    /// levels, that of the connections whose listener names no level.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.shared.pools.main()
    }

    /// The level with this name, for [`Peer::move_to`](crate::Peer::move_to).
    #[must_use]
    pub fn level(&self, name: &str) -> Option<&paceline::Level> {
        self.shared.pools.level(name)
    }

    /// How many connections are open: those of listeners and of dialers.
    #[must_use]
    pub fn connections(&self) -> usize {
        let open = self.shared.services.iter().map(|service| service.open());
        open.sum()
    }

    /// An open connection.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<Remote> {
        let mut services = self.shared.services.iter();
        let link = services.find_map(|service| service.connection(id))?;
        Some(Remote::new(&link))
    }

    /// Whether it accepts connections: it has not begun to drain.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // A flag of its own: what a caller concludes from it orders nothing.
        self.shared.is_ready.load(Ordering::Relaxed)
    }

    /// Counters and gauges of the server and its pools as OpenMetrics text: what the metrics port
    /// serves.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.shared.open_metrics()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses())
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(workers) = &self.workers {
            workers.close();
        }
        self.listening.iter().for_each(Listening::remove_path);
    }
}

impl Listening {
    /// Accepts no more connections.
    fn close(&self) {
        self.remove_path();
        // A listener that is closed already needs no other end.
        let _ = match &self.accepting {
            Accepting::Tcp(listener) => listener.handle().close(),
            Accepting::Unix(listener, _) => listener.handle().close(),
            Accepting::Simulated(inlet) => {
                inlet.close();
                Ok(())
            }
        };
    }

    /// Removes the path that this server has made, while its listener is open: see [`OwnPath`].
    fn remove_path(&self) {
        if let Accepting::Unix(_, path) = &self.accepting {
            drop(lock(path).take());
        }
    }

    fn refused(&self) -> u64 {
        match &self.accepting {
            Accepting::Tcp(listener) => listener.refused(),
            Accepting::Unix(listener, _) => listener.refused(),
            Accepting::Simulated(inlet) => inlet.refused(),
        }
    }

    /// Where it listens, as text.
    fn place(&self) -> String {
        match &self.accepting {
            Accepting::Tcp(listener) => listener.local_addr().to_string(),
            Accepting::Unix(listener, _) => {
                let address = listener.local_addr();
                let path = address.as_pathname().map(|path| path.display().to_string());
                path.unwrap_or_else(|| "a Unix socket without a path".to_owned())
            }
            Accepting::Simulated(_) => "a simulation".to_owned(),
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        match &self.accepting {
            Accepting::Tcp(listener) => Some(listener.local_addr()),
            _ => None,
        }
    }
}

impl Shared {
    /// How many connections the listeners of this service have refused.
    fn refused(&self, service: &Arc<Service>) -> u64 {
        let own = |listening: &&Listening| Arc::ptr_eq(&listening.service, service);
        let listening = self.listening.iter().filter(own);
        let of_dialer = service.counters().times_met(Limit::Connections);
        listening
            .map(Listening::refused)
            .sum::<u64>()
            .max(of_dialer)
    }
}

fn addresses(listening: &[Listening]) -> Vec<SocketAddr> {
    listening.iter().filter_map(Listening::address).collect()
}
