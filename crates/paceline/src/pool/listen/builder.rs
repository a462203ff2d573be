//! The settings of a listener, and how it begins.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::{
        fd::AsFd,
        unix::net::{self, UnixListener, UnixStream},
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use socket2::SockRef;

use super::{
    super::Pool,
    acceptor::{alone, as_first_member, Acceptor, TakeOn, TakenOnBy},
    metrics::{self, MetricsPort},
    refusal::{Refusal, Spare},
    Listener, ListenerSocket,
};
use crate::{
    dispatch::{EventHandler, GroupHandler, Interest, OpenConnections, Rejected},
    errors::{attempted, judged},
};

/// How many connections may wait to be accepted, if nothing is said: a peer that finds this queue
/// full tries again after a second.
const DEFAULT_BACKLOG: u32 = 4096;

/// Settings of a listener: see [`Pool::listener`].
///
/// Its last methods judge them all at once, and begin to listen: [`bind`](Self::bind) at a TCP
/// port, [`bind_unix`](Self::bind_unix) at a path, [`on`](Self::on) on a socket that listens
/// already. They ask `make` for the handler of each connection;
/// [`bind_metrics`](Self::bind_metrics) has its own. With [`bind_groups`](Self::bind_groups),
/// [`bind_unix_groups`](Self::bind_unix_groups) and [`on_groups`](Self::on_groups) each connection
/// is the first member of a group of its own.
#[must_use = "it listens when one of its last methods is called"]
pub struct ListenerBuilder<'p> {
    pool: &'p Pool,
    to: TakenOnBy,
    settings: Settings,
}

#[derive(Debug, Default)]
struct Settings {
    max_connections: Option<usize>,
    refusal: Option<Vec<u8>>,
    idle_timeout: Option<Option<Duration>>,
    backlog: Option<u32>,
}

impl<'p> ListenerBuilder<'p> {
    pub(crate) fn new(pool: &'p Pool, to: TakenOnBy) -> Self {
        Self {
            pool,
            to,
            settings: Settings::default(),
        }
    }

    /// How many of its connections may be open at once. A connection counts from the moment in
    /// which it is accepted until its source is dropped, also in another pool. Default: no bound.
    ///
    /// At the bound the listener stops accepting, and goes on when a connection ends. The next ones
    /// wait in the [backlog](Self::backlog): to their peers they look connected. With a
    /// [`refusal`](Self::refusal) the listener accepts, answers and closes them instead.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = Some(connections);
        self
    }

    /// What the listener says to a connection that it refuses, before it closes that: beyond
    /// [`max_connections`](Self::max_connections), or if the pool is shutting down or has no
    /// descriptor or slot left. It may be empty. Default: none; then connections beyond the bound
    /// wait, and others are closed without a word.
    ///
    /// The listener never waits for the peer. It sends as much as the socket takes, ends the
    /// stream, discards what the peer has sent so far, and closes. The system answers with a reset
    /// what the peer sends later; on Linux the peer can read the text all the same. A connection
    /// for which `make` returns `None` gets no text: `make` has the stream, and can write to it.
    pub fn refusal(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.settings.refusal = Some(text.into());
        self
    }

    /// How long a connection of this listener may be idle before it is closed. `None`: for ever.
    /// Default: [`Builder::idle_timeout`](crate::Builder::idle_timeout) of the pool.
    pub fn idle_timeout(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.settings.idle_timeout = Some(idle.into());
        self
    }

    /// How many connections may wait to be accepted. The system may allow fewer (Linux:
    /// `net.core.somaxconn`). Default: 4,096; of a socket that listens already, as it is.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.settings.backlog = Some(connections);
        self
    }

    /// Binds to `address` and listens there. If it stands for several addresses, the listener is at
    /// the first one that can be bound, and only there.
    ///
    /// `make` gets each stream and the address of its peer. It returns the handler, or `None` to
    /// refuse the connection. If `make` panics, that connection is refused, and no other.
    /// Connections that are gone already and a full descriptor table do not stop the listener.
    ///
    /// # Errors
    /// `InvalidInput` if a setting can't be, which the text names, or if `address` stands for no
    /// address. The error of the system with its kind, such as `AddrInUse`, `AddrNotAvailable` or
    /// `PermissionDenied`. `BrokenPipe` if the pool is shutting down, `QuotaExceeded` if every slot
    /// is taken.
    pub fn bind<A, F, H>(self, address: A, make: F) -> io::Result<Listener>
    where
        A: ToSocketAddrs,
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<TcpStream>,
    {
        let listener = self.bound(|| bind(address))?;
        Ok(self.begin(listener, make, alone)?)
    }

    /// Binds to `address`, and answers each HTTP request there with the counters of this pool as
    /// [OpenMetrics text](crate::observe::open_metrics), in which the pool has this name: a port
    /// for a monitoring system. Unless other settings are made, at most 16 connections are open,
    /// and none is idle for longer than 10 s.
    ///
    /// ```
    /// use std::{io::{Read, Write}, net::TcpStream};
    ///
    /// let pool = paceline::Pool::builder().threads(2).build()?;
    /// let port = pool.listener().bind_metrics("127.0.0.1:0", "orders")?;
    /// let mut client = TcpStream::connect(port.local_addr())?;
    /// client.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    /// let mut answer = String::new();
    /// client.read_to_string(&mut answer)?;
    /// assert!(answer.contains("\npaceline_connections{pool=\"orders\"} 1\n"));
    /// assert!(answer.ends_with("# EOF\n"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_metrics<A>(mut self, address: A, name: impl Into<String>) -> io::Result<Listener>
    where
        A: ToSocketAddrs,
    {
        self.settings
            .max_connections
            .get_or_insert(metrics::CONNECTIONS);
        self.settings
            .idle_timeout
            .get_or_insert(Some(metrics::IDLE));
        let (pool, name): (_, Arc<str>) = (self.pool.downgrade(), Arc::from(name.into()));
        self.bind(address, move |_, _| {
            Some(MetricsPort::new(pool.clone(), Arc::clone(&name)))
        })
    }

    /// As [`bind`](Self::bind), with a group for each connection.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_groups<A, F, H>(self, address: A, make: F) -> io::Result<Listener>
    where
        A: ToSocketAddrs,
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: GroupHandler<TcpStream>,
    {
        let listener = self.bound(|| bind(address))?;
        Ok(self.begin(listener, make, as_first_member)?)
    }

    /// As [`bind`](Self::bind), at a path in the file system, which must not exist yet. It stays
    /// there when the listener is closed. (The address of a peer seldom has a path.)
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_unix<F, H>(
        self,
        path: impl AsRef<Path>,
        make: F,
    ) -> io::Result<Listener<net::SocketAddr>>
    where
        F: FnMut(&UnixStream, net::SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<UnixStream>,
    {
        let listener = self.bound(|| bind_unix(path.as_ref()))?;
        Ok(self.begin(listener, make, alone)?)
    }

    /// As [`bind_unix`](Self::bind_unix), with a group for each connection.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_unix_groups<F, H>(
        self,
        path: impl AsRef<Path>,
        make: F,
    ) -> io::Result<Listener<net::SocketAddr>>
    where
        F: FnMut(&UnixStream, net::SocketAddr) -> Option<H> + Send + 'static,
        H: GroupHandler<UnixStream>,
    {
        let listener = self.bound(|| bind_unix(path.as_ref()))?;
        Ok(self.begin(listener, make, as_first_member)?)
    }

    /// Takes a socket that listens already: one with options of its own, or one that another
    /// process handed down.
    ///
    /// # Errors
    /// Returns `listener` and `make`. `InvalidInput` if a setting can't be, which the text names.
    /// The error of the system if the socket has no address or can't be registered. `BrokenPipe`
    /// and `QuotaExceeded` as [`bind`](Self::bind).
    pub fn on<L, F, H>(self, listener: L, make: F) -> Result<Listener<L::Address>, Rejected<(L, F)>>
    where
        L: ListenerSocket,
        F: FnMut(&L::Stream, L::Address) -> Option<H> + Send + 'static,
        H: EventHandler<L::Stream>,
    {
        self.begin_on(listener, make, alone)
    }

    /// As [`on`](Self::on), with a group for each connection.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn on_groups<L, F, H>(
        self,
        listener: L,
        make: F,
    ) -> Result<Listener<L::Address>, Rejected<(L, F)>>
    where
        L: ListenerSocket,
        F: FnMut(&L::Stream, L::Address) -> Option<H> + Send + 'static,
        H: GroupHandler<L::Stream>,
    {
        self.begin_on(listener, make, as_first_member)
    }

    /// A socket that `bind` makes, if the settings can be.
    fn bound<L: AsFd>(&self, bind: impl FnOnce() -> io::Result<L>) -> io::Result<L> {
        self.settings.judge()?;
        let listener = bind()?;
        let backlog = self.settings.backlog.unwrap_or(DEFAULT_BACKLOG);
        set_backlog(&listener, backlog)?;
        Ok(listener)
    }

    fn begin_on<L, F, H>(
        self,
        listener: L,
        make: F,
        take_on: TakeOn<L::Stream, H>,
    ) -> Result<Listener<L::Address>, Rejected<(L, F)>>
    where
        L: ListenerSocket,
        F: FnMut(&L::Stream, L::Address) -> Option<H> + Send + 'static,
        H: 'static,
    {
        let backlog = self.settings.backlog.into_iter();
        let mut set = backlog.map(|connections| set_backlog(&listener, connections));
        match self
            .settings
            .judge()
            .and_then(|()| set.try_for_each(|set| set))
        {
            Ok(()) => self.begin(listener, make, take_on),
            Err(error) => Err(Rejected::new((listener, make), error)),
        }
    }

    /// Registers the socket.
    fn begin<L, F, H>(
        self,
        listener: L,
        make: F,
        take_on: TakeOn<L::Stream, H>,
    ) -> Result<Listener<L::Address>, Rejected<(L, F)>>
    where
        L: ListenerSocket,
        F: FnMut(&L::Stream, L::Address) -> Option<H> + Send + 'static,
        H: 'static,
    {
        let address = match listener.own_address() {
            Ok(address) => address,
            Err(error) => return Err(Rejected::new((listener, make), attempted("listen", error))),
        };
        let Settings {
            max_connections,
            refusal,
            idle_timeout,
            backlog: _,
        } = self.settings;
        let open = OpenConnections::new(address.clone().into(), max_connections);
        let hub = self.pool.hub();
        let acceptor = Acceptor {
            make,
            take_on,
            to: self.to,
            open: Arc::clone(&open),
            refusal: Refusal::new(refusal),
            idle_timeout,
            counters: Arc::clone(&hub.counters),
            spare: Spare::new(),
        };
        match hub.registry.register(listener, Interest::READ, acceptor) {
            Ok(handle) => Ok(Listener {
                handle,
                address,
                open,
            }),
            Err(Rejected { value, error }) => {
                let (listener, acceptor) = value;
                Err(Rejected::new((listener, acceptor.make), error))
            }
        }
    }
}

impl fmt::Debug for ListenerBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListenerBuilder")
            .field(&self.settings)
            .finish()
    }
}

impl Settings {
    /// Names everything that is wrong, not only the first.
    fn judge(&self) -> io::Result<()> {
        let mut wrong = Vec::new();
        if self.max_connections == Some(0) {
            wrong.push("max_connections(0): none could be accepted".to_owned());
        }
        if self.idle_timeout == Some(Some(Duration::ZERO)) {
            wrong.push("idle_timeout(0): every connection would be closed at once".to_owned());
        }
        let backlog = self.backlog.filter(|backlog| as_int(*backlog).is_none());
        wrong.extend(backlog.map(|it| format!("backlog({it}): at least 1, at most {}", i32::MAX)));
        judged("listen", &wrong)
    }
}

/// A length of a backlog that the system takes for one.
fn as_int(backlog: u32) -> Option<i32> {
    i32::try_from(backlog).ok().filter(|backlog| *backlog > 0)
}

fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let addresses = address.to_socket_addrs();
    let addresses: Vec<_> = addresses
        .map_err(|error| attempted("listen", error))?
        .collect();
    TcpListener::bind(&*addresses)
        .map_err(|error| attempted(format!("listen on {addresses:?}"), error))
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path)
        .map_err(|error| attempted(format!("listen on {}", path.display()), error))
}

/// Lets so many connections wait: std's sockets begin with 128.
fn set_backlog(listener: &impl AsFd, connections: u32) -> io::Result<()> {
    let backlog = as_int(connections).unwrap_or(i32::MAX);
    let set = SockRef::from(listener).listen(backlog);
    set.map_err(|error| attempted(format!("listen with backlog({connections})"), error))
}
