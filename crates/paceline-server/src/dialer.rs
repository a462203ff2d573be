//! Outgoing connections: made without blocking, served by the same sessions as others.
#![allow(
    clippy::result_large_err,
    reason = "a call that fails gives the connection back, which is large"
)]

use std::{
    fmt, io,
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use paceline::{Handle, Interest, Pool, Rejected, WeakPool};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::{
    codec::Codec,
    connection::{Connection, Opening},
    limits::Limits,
    listen::attempted,
    peer::PeerAddress,
    server::Site,
    service::{ConnectionPlace, Service},
    session::Session,
};

/// Makes outgoing connections of a server.
///
/// A dialer is made before the server, so that sessions can have a clone of it, and works from the
/// start of the server on. Its connections have sessions, limits and counters like those of a
/// listener.
///
/// ```
/// use std::io;
/// use paceline_server::{codec::{line, Message}, Dialer, Ended, Next, Peer, Server, Session};
///
/// /// Asks a server for the time, and prints the answer.
/// struct Ask;
///
/// impl Session for Ask {
///     fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
///         cx.reply("time?")?;
///         Ok(Next::Continue)
///     }
///     fn handle(&mut self, answer: Message<'_>, _cx: &mut Peer<'_>) -> io::Result<Next> {
///         println!("it is {}", answer.as_str()?);
///         Ok(Next::Close)
///     }
///     fn closed(&mut self, why: &Ended) {
///         println!("{why}"); // "failed: connect to ..", if there is no such server
///     }
/// }
///
/// let dialer = Dialer::new("time");
/// let server = Server::builder().dialer(&dialer).start()?;
/// dialer.connect("127.0.0.1:7000".parse().unwrap(), line(80), Ask)?;
/// # io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Dialer {
    name: Arc<str>,
    limits: Limits,
    within: Duration,
    #[cfg(feature = "_tls")]
    tls: Option<(crate::tls::TlsClient, String)>,
    live: Arc<OnceLock<Live>>,
}

/// What a dialer has from the start of its server on.
struct Live {
    pool: WeakPool,
    service: Arc<Service>,
}

impl Dialer {
    /// A dialer with this name in logs, metrics and reports.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            limits: Limits::default(),
            within: Duration::from_secs(10),
            #[cfg(feature = "_tls")]
            tls: None,
            live: Arc::default(),
        }
    }

    /// The limits of its connections: those of the dialer that the server was given.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a connection may take to be made. Default: 10 s.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// Its connections begin with a TLS handshake, and the peer must have a certificate for `name`.
    #[cfg(feature = "_tls")]
    #[must_use]
    pub fn tls(mut self, tls: &crate::tls::TlsClient, name: impl Into<String>) -> Self {
        self.tls = Some((tls.clone(), name.into()));
        self
    }

    /// Connects to a TCP address. The session starts when the connection stands, and its TLS
    /// handshake is done. If that fails, the session is closed with the reason.
    ///
    /// # Errors
    /// Gives the session back: `NotConnected` if the server of this dialer has not started or has
    /// ended, `QuotaExceeded` if the dialer has or makes [`Limits::connections`] already. Otherwise as
    /// [`Pool::connect`].
    pub fn connect<C, N>(
        &self,
        address: SocketAddr,
        codec: C,
        session: N,
    ) -> Result<Handle, Rejected<N>>
    where
        C: Codec,
        N: Session<C>,
    {
        self.dial(
            PeerAddress::Ip(address),
            codec,
            session,
            |pool, within, connection| pool.connect(address, within, connection),
        )
    }

    /// As [`connect`](Self::connect), to a Unix socket.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_unix<C, N>(
        &self,
        path: impl AsRef<Path>,
        codec: C,
        session: N,
    ) -> Result<Handle, Rejected<N>>
    where
        C: Codec,
        N: Session<C>,
    {
        self.dial(PeerAddress::Unix, codec, session, |pool, _, connection| {
            let stream = match unix_stream(path.as_ref()) {
                Ok(stream) => stream,
                Err(error) => return Err(Rejected::new(connection, error)),
            };
            let registered = pool.register(stream, Interest::READ, connection);
            registered.map_err(|rejected| Rejected::new(rejected.value.1, rejected.error))
        })
    }

    fn dial<C, N>(
        &self,
        address: PeerAddress,
        codec: C,
        session: N,
        connect: impl FnOnce(
            &Pool,
            Duration,
            Connection<C, N>,
        ) -> Result<Handle, Rejected<Connection<C, N>>>,
    ) -> Result<Handle, Rejected<N>>
    where
        C: Codec,
        N: Session<C>,
    {
        let (pool, service, place) = match self.live(&address) {
            Ok(live) => live,
            Err(error) => return Err(Rejected::new(session, error)),
        };
        let idle = service.limits().idle;
        let connection = Connection::new(service, address, self.opening(), codec, session);
        let connection = connection.at_place(place);
        match connect(&pool, self.within, connection) {
            Ok(handle) => {
                // A connection that is over already is not idle.
                let _ = handle.set_timeout(idle);
                Ok(handle)
            }
            Err(Rejected { value, error }) => match value.into_session() {
                Some(session) => Err(Rejected::new(session, error)),
                None => unreachable!("a connection that was never made has its session"),
            },
        }
    }

    fn live(&self, address: &PeerAddress) -> io::Result<(Pool, Arc<Service>, ConnectionPlace)> {
        let live = self
            .live
            .get()
            .and_then(|live| Some((live.pool.upgrade()?, live)));
        let Some((pool, live)) = live else {
            let text = format!("connect to {address}: no server runs this dialer");
            return Err(io::Error::new(io::ErrorKind::NotConnected, text));
        };
        let Some(place) = live.service.take_place() else {
            let limit = live.service.limits().connections;
            let text = format!("connect to {address}: the dialer has {limit} connections already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        };
        Ok((pool, Arc::clone(&live.service), place))
    }

    fn opening(&self) -> Opening {
        #[cfg(feature = "_tls")]
        if let Some((tls, name)) = &self.tls {
            return Opening::Client(tls.clone(), name.clone());
        }
        Opening::Plain
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What can't be among its settings, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.limits.faults();
        if self.live.get().is_some() {
            faults.push(format!("dialer({:?}): another server runs it", self.name));
        }
        faults
    }

    /// Its server starts.
    pub(crate) fn begin(&self, site: &mut Site<'_>) -> io::Result<()> {
        let service = site.service(
            self.name.to_string(),
            self.limits.clone().for_this_process(),
        );
        let service = Arc::new(service);
        site.add_service(&service);
        let live = Live {
            pool: site.pool().downgrade(),
            service,
        };
        self.live.set(live).map_err(|_| {
            let text = format!(
                "start a server: another one runs the dialer {:?}",
                self.name
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("name", &self.name)
            .field("is_live", &self.live.get().is_some())
            .finish_non_exhaustive()
    }
}

/// A connection to a Unix socket. The system makes it at once, or says that the backlog is full.
fn unix_stream(path: &Path) -> io::Result<UnixStream> {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)?;
        io::Result::Ok(socket.into())
    };
    connect().map_err(|error| attempted(format!("connect to {path:?}"), &error))
}
