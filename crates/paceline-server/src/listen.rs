//! Where a server listens, and what holds for the connections that come there.

use std::{
    fmt, io,
    net::{Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::Arc,
};

use socket2::{Domain, Socket, Type};

use crate::{
    inlet::Inlet,
    limits::Limits,
    routes::Routes,
    unix_path::{bind_unix, OwnPath},
};

/// Where a server listens, and what holds for the connections that come there.
///
/// ```
/// use paceline_server::{Listen, Limits};
///
/// let listen = Listen::tcp("localhost:7000")
///     .name("orders")
///     .limits(Limits::default().connections(500))
///     .refusal("-ERR too many clients\r\n");
/// ```
#[must_use = "give it to `ServerBuilder::listener`"]
pub struct Listen {
    place: io::Result<Place>,
    pub(crate) name: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) at_limit: AtLimit,
    pub(crate) overload: Option<Arc<[u8]>>,
    pub(crate) level: Option<String>,
    pub(crate) priority: u8,
    pub(crate) backlog: u32,
    /// What its items are for, if it has routes.
    pub(crate) routes: Option<Arc<dyn Routes>>,
    #[cfg(feature = "_tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
}

/// What happens to a connection beyond [`Limits::connections`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtLimit {
    /// It gets this text and is closed. The text may be empty.
    Refuse(Arc<[u8]>),
    /// It waits in the backlog of the system until another connection ends.
    Wait,
}

enum Place {
    Tcp {
        addresses: Vec<SocketAddr>,
        reuse_port: bool,
    },
    Unix {
        path: PathBuf,
        mode: Option<u32>,
    },
    Sockets(Vec<Bound>),
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    /// The path, if this server made it, is dropped before the listener.
    Unix(Option<OwnPath>, UnixListener),
    Simulated(Inlet),
}

impl Bound {
    /// Its address as text.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.to_string(),
                Err(_) => "tcp".to_owned(),
            },
            Self::Unix(_, listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(|| "unix".to_owned(), |path| path.display().to_string())
            }
            Self::Simulated(_) => "simulated".to_owned(),
        }
    }
}

impl Listen {
    fn at(place: io::Result<Place>) -> Self {
        Self {
            place,
            name: None,
            limits: Limits::default(),
            at_limit: AtLimit::Refuse(Arc::default()),
            overload: None,
            level: None,
            priority: 0,
            backlog: 4096,
            routes: None,
            #[cfg(feature = "_tls")]
            tls: None,
        }
    }

    /// At every TCP address that `address` stands for: `"localhost:7000"` is often two.
    pub fn tcp(address: impl ToSocketAddrs + fmt::Debug) -> Self {
        Self::at(resolve(address).map(|addresses| Place::Tcp {
            addresses,
            reuse_port: false,
        }))
    }

    /// At a path in the file system. A socket that is left over there, and at which no process
    /// listens, is replaced. The path is removed when the server ends, unless another file has
    /// taken its place.
    pub fn unix(path: impl AsRef<Path>) -> Self {
        Self::at(Ok(Place::Unix {
            path: path.as_ref().to_owned(),
            mode: None,
        }))
    }

    /// On a TCP socket that listens already.
    pub fn tcp_socket(listener: TcpListener) -> Self {
        Self::at(Ok(Place::Sockets(vec![Bound::Tcp(listener)])))
    }

    /// On a Unix socket that listens already. Its path stays when the server ends.
    pub fn unix_socket(listener: UnixListener) -> Self {
        Self::at(Ok(Place::Sockets(vec![Bound::Unix(None, listener)])))
    }

    /// At an inlet: for tests on simulated streams and virtual time.
    pub fn simulated(inlet: &Inlet) -> Self {
        Self::at(Ok(Place::Sockets(vec![Bound::Simulated(inlet.clone())])))
    }

    /// On all sockets that systemd has opened for this service (`LISTEN_FDS`).
    #[cfg(feature = "systemd")]
    pub fn systemd() -> Self {
        Self::at(systemd_sockets().map(Place::Sockets))
    }

    /// The mode of a Unix socket in the file system, such as `0o660`: from the moment in which it
    /// exists there.
    pub fn mode(mut self, bits: u32) -> Self {
        if let Ok(Place::Unix { mode, .. }) = &mut self.place {
            *mode = Some(bits);
        }
        self
    }

    /// Lets other processes listen at the same TCP address, for restarts without a gap.
    pub fn reuse_port(mut self) -> Self {
        if let Ok(Place::Tcp { reuse_port, .. }) = &mut self.place {
            *reuse_port = true;
        }
        self
    }

    /// Its name in logs, metrics and reports. Default: its address.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The limits of its connections.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What a connection beyond [`Limits::connections`] gets before it is closed. So does one whose
    /// item finds no worker in time, in the half-sync engine.
    pub fn refusal(self, text: impl AsRef<[u8]>) -> Self {
        self.at_limit(AtLimit::Refuse(Arc::from(text.as_ref())))
    }

    /// What happens to a connection beyond [`Limits::connections`]. Default: it is closed.
    pub fn at_limit(mut self, at_limit: AtLimit) -> Self {
        self.at_limit = at_limit;
        self
    }

    /// What a connection gets whose item finds no thread in time. Default: its
    /// [refusal](Self::refusal).
    pub fn overload(mut self, text: impl AsRef<[u8]>) -> Self {
        self.overload = Some(Arc::from(text.as_ref()));
        self
    }

    /// The [level](crate::ServerBuilder::level) whose threads serve its connections.
    pub fn level(mut self, name: impl Into<String>) -> Self {
        self.level = Some(name.into());
        self
    }

    /// Workers of the half-sync engine take items of higher priority first. Default: 0.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// How many connections may wait to be accepted. Default: 4,096.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Its connections begin with a TLS handshake.
    #[cfg(feature = "_tls")]
    pub fn tls(mut self, tls: &crate::tls::Tls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// What is said to a connection that is refused.
    pub(crate) fn refusal_text(&self) -> Option<Arc<[u8]>> {
        match &self.at_limit {
            AtLimit::Refuse(text) => Some(Arc::clone(text)),
            AtLimit::Wait => None,
        }
    }

    /// Opens the sockets.
    pub(crate) fn open(&mut self) -> io::Result<Vec<Bound>> {
        let place = std::mem::replace(&mut self.place, Ok(Place::Sockets(Vec::new())))?;
        match place {
            Place::Tcp {
                addresses,
                reuse_port,
            } => bind_all(&addresses, reuse_port, self.backlog),
            Place::Unix { path, mode } => {
                let bound = bind_unix(&path, mode, length(self.backlog));
                let (own, listener) =
                    bound.map_err(|error| attempted(format!("listen at {path:?}"), &error))?;
                Ok(vec![Bound::Unix(Some(own), listener)])
            }
            Place::Sockets(sockets) => Ok(sockets),
        }
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listen")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// All addresses that `address` stands for.
pub(crate) fn resolve(address: impl ToSocketAddrs + fmt::Debug) -> io::Result<Vec<SocketAddr>> {
    let resolved = address.to_socket_addrs().map(Iterator::collect);
    resolved.map_err(|error| attempted(format!("resolve {address:?}"), &error))
}

/// The same kind of error, with what was attempted.
pub(crate) fn attempted(what: impl fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Binds every address. With port zero, all get the port that the system chose for the first one.
fn bind_all(addresses: &[SocketAddr], reuse_port: bool, backlog: u32) -> io::Result<Vec<Bound>> {
    if addresses.is_empty() {
        let text = "listen: the name stands for no address";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let is_alone = addresses.len() == 1;
    let mut port = None;
    let mut sockets = Vec::new();
    for address in addresses {
        let mut address = *address;
        if let (0, Some(port)) = (address.port(), port) {
            address.set_port(port);
        }
        let bound = bind_tcp(address, is_alone, reuse_port, backlog);
        let listener = match bound {
            // A host without IPv6 may have "localhost" stand for ::1 too.
            Err(error) if !is_alone && error.kind() == io::ErrorKind::AddrNotAvailable => continue,
            bound => bound.map_err(|error| attempted(format!("listen at {address}"), &error))?,
        };
        port = Some(listener.local_addr()?.port());
        sockets.push(Bound::Tcp(listener));
    }
    if sockets.is_empty() {
        let text = format!("listen at {addresses:?}: this host has none of these addresses");
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
    }
    Ok(sockets)
}

fn bind_tcp(
    address: SocketAddr,
    is_alone: bool,
    reuse_port: bool,
    backlog: u32,
) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        // "[::]:80" alone serves IPv4 too; beside "0.0.0.0:80" it must not.
        let serves_both = is_alone && address.ip() == Ipv6Addr::UNSPECIFIED;
        socket.set_only_v6(!serves_both)?;
    }
    socket.bind(&address.into())?;
    socket.listen(length(backlog))?;
    Ok(socket.into())
}

fn length(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

#[cfg(feature = "systemd")]
fn systemd_sockets() -> io::Result<Vec<Bound>> {
    let mut given = listenfd::ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..given.len() {
        let socket = match given.take_tcp_listener(index) {
            Ok(Some(tcp)) => Bound::Tcp(tcp),
            Ok(None) => continue,
            Err(_) => match given.take_unix_listener(index) {
                Ok(Some(unix)) => Bound::Unix(None, unix),
                Ok(None) => continue,
                Err(error) => {
                    let what = format!("take socket {index} of systemd");
                    return Err(attempted(what, &error));
                }
            },
        };
        sockets.push(socket);
    }
    if sockets.is_empty() {
        let text = "take the sockets of systemd: it has opened none for this process";
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(sockets)
}
