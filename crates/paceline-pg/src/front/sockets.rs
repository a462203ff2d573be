//! Sockets: where clients are accepted, how servers are reached, and what the system knows of a peer.
//!
//! TCP and Unix sockets are the same to everything above: a descriptor that is read from and written
//! to. So the source of every connection has one type, [`Stream`], and connections of both kinds can
//! be members of one group.

use std::{
    ffi::OsStr,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{getrlimit, getuid, setrlimit, Resource, Rlimit};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// A connected stream socket of either family.
///
/// The standard library sends and receives on it by its descriptor, whatever its family is. Only
/// the addresses of a Unix socket can't be asked for in this form: see [`Address`].
pub(crate) type Stream = TcpStream;

/// Where a peer is, for log lines and the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Ip(SocketAddr),
    /// A Unix socket of this port; of a client, with the number of its process.
    Unix {
        port: u16,
        process: Option<i32>,
    },
}

impl Address {
    /// The address alone, as the console shows it.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Ip(address) => address.ip().to_string(),
            Self::Unix { .. } => "unix".to_owned(),
        }
    }

    /// As in log lines: `unix(17)` for the process of that number.
    pub(crate) fn logged(&self) -> String {
        match self {
            Self::Unix {
                process: Some(process),
                ..
            } => format!("unix({process})"),
            other => other.host(),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Ip(address) => address.port(),
            Self::Unix { port, .. } => *port,
        }
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip()),
            Self::Unix { .. } => None,
        }
    }
}

/// As in log lines: `127.0.0.1:5432`, `[::1]:5432`, `unix(17):5432`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix {
                port,
                process: Some(process),
            } => write!(f, "unix({process}):{port}"),
            Self::Unix {
                port,
                process: None,
            } => write!(f, "unix:{port}"),
        }
    }
}

/// What is known of the process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerProcess {
    pub(crate) process: i32,
    /// It runs as the same user as this program.
    pub(crate) is_own_user: bool,
}

/// The process that made the connection.
pub(crate) fn peer_process(stream: &impl AsFd) -> io::Result<PeerProcess> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(PeerProcess {
        process: credentials.pid.as_raw_nonzero().get(),
        is_own_user: credentials.uid == getuid(),
    })
}

/// The same socket as the source that all connections have.
pub(crate) fn from_unix(stream: UnixStream) -> Stream {
    Stream::from(OwnedFd::from(stream))
}

/// Options of TCP connections: the keys `tcp_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpOptions {
    pub(crate) keepalive: bool,
    pub(crate) keepcount: u32,
    pub(crate) keepidle: u32,
    pub(crate) keepinterval: u32,
    /// In milliseconds.
    pub(crate) user_timeout: u32,
    pub(crate) send_buffer: usize,
}

impl TcpOptions {
    /// Sets them. A connection on which that fails is used as it is: it will tell if it is gone.
    pub(crate) fn apply(&self, stream: &Stream) {
        let socket = SockRef::from(stream);
        let _ = socket.set_tcp_nodelay(true);
        if self.send_buffer > 0 {
            let _ = socket.set_send_buffer_size(self.send_buffer);
        }
        if self.keepalive {
            let _ = socket.set_keepalive(true);
            let _ = socket.set_tcp_keepalive(&self.keepalive_times());
        }
        if self.user_timeout > 0 {
            let timeout = Duration::from_millis(self.user_timeout.into());
            let _ = socket.set_tcp_user_timeout(Some(timeout));
        }
    }

    fn keepalive_times(&self) -> TcpKeepalive {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let mut times = TcpKeepalive::new();
        if self.keepidle > 0 {
            times = times.with_time(seconds(self.keepidle));
        }
        if self.keepinterval > 0 {
            times = times.with_interval(seconds(self.keepinterval));
        }
        if self.keepcount > 0 {
            times = times.with_retries(self.keepcount);
        }
        times
    }
}

/// Listens at each of the addresses that `listen_addr` names: `*` is every address.
///
/// # Errors
/// Names the address that can't be used.
pub(crate) fn listen_tcp(
    names: &[String],
    port: u16,
    backlog: u32,
) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for name in names {
        for address in addresses_to_listen_at(name, port)? {
            let listener = listen_at(address, backlog)
                .map_err(|why| attempted(format_args!("listen on {address}"), why))?;
            listeners.push(listener);
        }
    }
    Ok(listeners)
}

fn addresses_to_listen_at(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if name == "*" {
        return Ok(vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))]);
    }
    let found = (name, port).to_socket_addrs();
    let found = found.map_err(|why| attempted(format_args!("listen_addr {name}"), why))?;
    Ok(found.collect())
}

fn listen_at(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// The file of a Unix socket that clients connect to; it is removed at the end. A socket in the
/// abstract namespace has none.
#[derive(Debug)]
pub(crate) struct UnixPath {
    path: Option<PathBuf>,
}

impl Drop for UnixPath {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Another program may have taken its place; then there is nothing to do.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The processes that may connect to the file of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRights {
    /// The bits, as for `chmod`.
    pub(crate) mode: u32,
    /// Its group; `None`: that of the process.
    pub(crate) group: Option<u32>,
}

/// Whether the socket in this folder is in the abstract namespace: it has a name and no file.
pub(crate) fn is_abstract(folder: &Path) -> bool {
    folder.as_os_str().as_bytes().starts_with(b"@")
}

/// The address of a Unix socket; `@` at the start of the path is the abstract namespace.
fn unix_address(path: &Path) -> io::Result<SockAddr> {
    match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SockAddr::unix(OsStr::from_bytes(&[b"\0", name].concat())),
        None => SockAddr::unix(path),
    }
}

/// Listens at `.s.PGSQL.PORT` in this folder.
///
/// # Errors
/// Names the path that can't be used; `AddrInUse` if a live program listens there.
pub(crate) fn listen_unix(
    folder: &Path,
    port: u16,
    rights: FileRights,
    backlog: u32,
) -> io::Result<(UnixListener, UnixPath)> {
    let path = folder.join(socket_name(port));
    let socket = if is_abstract(folder) {
        bind_abstract(&path)
    } else {
        bind_file(&path, rights)
    };
    let listener = socket.and_then(|socket| {
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(UnixListener::from(OwnedFd::from(socket)))
    });
    let listener =
        listener.map_err(|why| attempted(format_args!("listen on {}", path.display()), why))?;
    let path = (!is_abstract(folder)).then_some(path);
    Ok((listener, UnixPath { path }))
}

/// The kernel removes the name with the last socket that has it.
fn bind_abstract(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&unix_address(path)?)?;
    Ok(socket)
}

/// Nothing can connect before the socket listens, and by then the file has its rights.
fn bind_file(path: &Path, rights: FileRights) -> io::Result<Socket> {
    if path.exists() {
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&unix_address(path)?)?;
    if rights.group.is_some() {
        std::os::unix::fs::chown(path, None, rights.group)
            .map_err(|why| attempted("give it to unix_socket_group", why))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(rights.mode))?;
    Ok(socket)
}

/// The name that PostgreSQL gives to the Unix socket of a port.
pub(crate) fn socket_name(port: u16) -> String {
    format!(".s.PGSQL.{port}")
}

/// Connects to a Unix socket, without waiting.
///
/// # Errors
/// Names the path.
pub(crate) fn connect_unix(path: &Path) -> io::Result<Stream> {
    let connected = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&unix_address(path)?)?;
        Ok(Stream::from(OwnedFd::from(socket)))
    };
    connected().map_err(|why| attempted(format_args!("connect to {}", path.display()), why))
}

/// Allows as many descriptors as the system lets this process have. How many that are.
pub(crate) fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If that fails, what was allowed before still is.
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// The error, with what was attempted.
pub(crate) fn attempted(what: impl fmt::Display, why: io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const OWN: FileRights = FileRights {
        mode: 0o700,
        group: None,
    };

    /// Whether a program may connect is decided by the rights and the group of the file.
    #[test]
    fn a_socket_file_has_its_rights_and_its_group() {
        use std::os::unix::fs::MetadataExt;
        let folder = std::env::temp_dir().join(format!("paceline-rights-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let own = std::fs::metadata(&folder).expect("a folder").gid();
        // Only root may give a file to a group that it is not in.
        let group = if rustix::process::geteuid().is_root() {
            own + 4711
        } else {
            own
        };
        let rights = FileRights {
            mode: 0o2710,
            group: Some(group),
        };
        let (_listener, path) = listen_unix(&folder, 8, rights, 10).expect("a free path");
        let file = std::fs::metadata(folder.join(socket_name(8))).expect("a file");
        assert_eq!((file.mode() & 0o7777, file.gid()), (0o2710, group));
        drop(path);
        std::fs::remove_dir(&folder).expect("it is empty");
    }

    /// A name in the abstract namespace is no file: nothing is left behind, and nothing is in the way.
    #[test]
    fn an_abstract_socket_has_no_file() {
        let name = format!("@paceline-abstract-{}", std::process::id());
        let folder = Path::new(&name);
        let (listener, path) = listen_unix(folder, 9, OWN, 10).expect("a free name");
        let taken = listen_unix(folder, 9, OWN, 10).expect_err("it is in use");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let socket = folder.join(socket_name(9));
        assert!(!socket.exists(), "{}", socket.display());
        let mut client = connect_unix(&socket).expect("it listens");
        let (mut accepted, _) = listener.accept().expect("a client");
        accepted.write_all(b"hello").expect("it takes five bytes");
        client.set_nonblocking(false).expect("an option");
        let mut heard = [0; 5];
        client.read_exact(&mut heard).expect("five bytes");
        assert_eq!(&heard, b"hello");
        drop((listener, path));
        let gone = connect_unix(&socket).expect_err("nothing listens");
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// A Unix connection as a `Stream` sends, receives and ends as it should.
    #[test]
    fn a_unix_stream_works_by_its_descriptor() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let ours = from_unix(ours);
        (&ours).write_all(b"ping").expect("it takes four bytes");
        let mut heard = [0; 4];
        theirs.read_exact(&mut heard).expect("four bytes");
        theirs.write_all(b"pong").expect("it takes four bytes");
        drop(theirs);
        let mut all = Vec::new();
        (&ours).read_to_end(&mut all).expect("to the end");
        assert_eq!((&heard, all.as_slice()), (b"ping", &b"pong"[..]));
    }

    /// The console admits the user of this process on the Unix socket: the system says which that is.
    #[test]
    fn the_peer_of_a_unix_socket_is_known() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let peer = peer_process(&ours).expect("it has credentials");
        assert!(peer.is_own_user);
        assert_eq!(peer.process, std::process::id() as i32);
    }

    /// A socket file that a dead program left is replaced, that of a live one is not.
    #[test]
    fn a_stale_socket_file_is_replaced() {
        let folder = std::env::temp_dir().join(format!("paceline-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let first = listen_unix(&folder, 7, OWN, 10).expect("a free path");
        let taken = listen_unix(&folder, 7, OWN, 10).expect_err("it is in use");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let (listener, path) = first;
        std::mem::forget(path);
        drop(listener);
        drop(listen_unix(&folder, 7, OWN, 10).expect("the old one is dead"));
        assert!(!folder.join(socket_name(7)).exists());
        std::fs::remove_dir(&folder).expect("it is empty");
    }
}
