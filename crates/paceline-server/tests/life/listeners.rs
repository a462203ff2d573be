//! Where a server listens: names, Unix sockets, UDP, sockets that listen already. On real sockets.

use std::{
    fs, io,
    net::{IpAddr, TcpListener, UdpSocket},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    time::Duration,
};

use paceline::Pool;
use paceline_server::{
    codec::line, AtLimit, Limit, Limits, Listen, PeerAddress, Server, ServerBuilder, UdpPeer,
};
use rustix::fs::{flock, FlockOperation};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::support::{
    actor::{Actor, Calls},
    bounded, client, patience, times_met, wait_until, Client, Folder,
};

fn echo(listen: Listen) -> ServerBuilder {
    let calls = Calls::default();
    Server::builder().listener(listen, line(80), move |_| Actor::new(&calls))
}

/// A name that stands for several addresses is one port at all of them.
#[test]
fn every_address_of_a_name() {
    bounded(|| {
        let server = echo(Listen::tcp("localhost:0")).start().unwrap();
        let addresses = server.addresses();
        assert!(!addresses.is_empty());
        for address in &addresses {
            assert_eq!(address.port(), addresses[0].port());
            client(*address).ask("a\n", "a\r\n");
        }
    });
}

/// spserver knew IPv4 only. An address of IPv6 is as good, and `[::]` alone serves both.
#[test]
fn both_families() {
    bounded(|| {
        if TcpListener::bind("[::1]:0").is_err() {
            eprintln!("skipped: this host has no IPv6");
            return;
        }
        let six = echo(Listen::tcp("[::1]:0")).start().unwrap();
        client(six.local_addr().unwrap()).ask("a\n", "a\r\n");
        let both = echo(Listen::tcp("[::]:0")).start().unwrap();
        let port = both.local_addr().unwrap().port();
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            client((address, port).into()).ask("a\n", "a\r\n");
        }
    });
}

/// Several processes share an address, as the workers of some web servers do: each may begin and
/// end while the others serve.
#[test]
fn an_address_is_shared() {
    bounded(|| {
        let first = echo(Listen::tcp("127.0.0.1:0").reuse_port());
        let first = first.start().unwrap();
        let address = first.local_addr().unwrap();
        let second = echo(Listen::tcp(address).reuse_port()).start().unwrap();
        assert!(echo(Listen::tcp(address)).start().is_err());
        let mut clients: Vec<_> = (0..64).map(|_| client(address)).collect();
        clients
            .iter_mut()
            .for_each(|client| client.ask("a\n", "a\r\n"));
        // The system chooses for each connection: all to one of two is one chance in 2^63.
        let open = [&first, &second].map(Server::connections);
        assert!(open.iter().all(|open| *open > 0) && open.iter().sum::<usize>() == 64);
        drop(clients);
        assert!(first.drain(Duration::from_secs(5)).is_clean());
        client(address).ask("a\n", "a\r\n");
    });
}

/// A Unix socket has its mode from the start, replaces a socket that is left over, and its path is
/// gone at the end.
#[test]
fn unix_socket_with_mode() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("echo.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let server = echo(Listen::unix(&path).mode(0o640)).start().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let mut client = Client(UnixStream::connect(&path).unwrap());
        client.ask("a\n", "a\r\n");
        drop(client);
        assert!(server.drain(Duration::from_secs(5)).is_clean());
        assert!(!path.exists());
    });
}

/// A path at which a server listens is not taken from it, also while its backlog is full: the start
/// fails at once.
#[test]
fn a_path_in_use_is_an_error() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("echo.sock");
        let address = SockAddr::unix(&path).unwrap();
        let socket = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let listener = socket();
        listener.bind(&address).unwrap();
        listener.listen(1).unwrap();
        let start = || echo(Listen::unix(&path)).start().unwrap_err();
        assert_eq!(start().kind(), io::ErrorKind::AddrInUse);
        let mut waiting = Vec::new();
        loop {
            let client = socket();
            client.set_nonblocking(true).unwrap();
            if client.connect(&address).is_err() {
                break;
            }
            waiting.push(client);
        }
        let error = start();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("echo.sock"), "{error}");
    });
}

/// A path that is another file than a socket stays as it is: the system refuses connections to it,
/// as to a socket that is left over.
#[test]
fn a_file_is_not_removed() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("notes.txt");
        fs::write(&path, "important").unwrap();
        let error = echo(Listen::unix(&path)).start().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "important");
    });
}

/// A server that has ended removes its path once: by the time its last handle is dropped, the path
/// may be another server's.
#[test]
fn a_path_is_removed_once() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("echo.sock");
        let first = echo(Listen::unix(&path)).start().unwrap();
        let _ = first.drain(Duration::from_secs(5));
        assert!(!path.exists());
        let _second = echo(Listen::unix(&path)).start().unwrap();
        drop(first);
        let mut client = Client(UnixStream::connect(&path).unwrap());
        client.ask("a\n", "a\r\n");
    });
}

/// Another server has replaced the path: it stays when the first one ends.
#[test]
fn a_replaced_path_stays() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("echo.sock");
        let first = echo(Listen::unix(&path)).start().unwrap();
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        let _ = first.drain(Duration::from_secs(5));
        drop(first);
        let _client = UnixStream::connect(&path).unwrap();
        drop(other);
    });
}

/// A start failed at a later listener, and the path of an earlier one stayed. Now nothing is left.
#[test]
fn a_failed_start_leaves_no_path() {
    bounded(|| {
        let folder = Folder::new();
        let (path, calls) = (folder.path("echo.sock"), Calls::default());
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let builder = echo(Listen::unix(&path));
        let builder = builder.listen(address, line(80), move |_| Actor::new(&calls));
        assert_eq!(
            builder.start().unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        assert!(!path.exists());
    });
}

/// While one server starts, its socket is bound and does not listen yet, as one that is left over.
/// Another server that starts in the same folder waits for it, but not for ever.
#[test]
fn starts_in_one_folder_wait_for_each_other() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("echo.sock");
        let locked = fs::File::open(folder.path("")).unwrap();
        flock(&locked, FlockOperation::LockExclusive).unwrap();
        let error = echo(Listen::unix(&path)).start().unwrap_err();
        assert!(
            error.to_string().contains("the lock of the folder"),
            "{error}"
        );
        assert!(!path.exists());
        drop(locked);
        let _server = echo(Listen::unix(&path)).start().unwrap();
        Client(UnixStream::connect(&path).unwrap()).ask("a\n", "a\r\n");
    });
}

/// Sockets that listen already: their addresses are theirs, and a given path stays.
#[test]
fn given_sockets() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("echo.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let calls = Calls::default();
        let unix = Listen::unix_socket(UnixListener::bind(&path).unwrap());
        let server = echo(Listen::tcp_socket(tcp))
            .listener(unix, line(80), move |peer| {
                assert_eq!(*peer, PeerAddress::Unix);
                Actor::new(&calls)
            })
            .start()
            .unwrap();
        assert_eq!(server.addresses(), [address]);
        client(address).ask("a\n", "a\r\n");
        Client(UnixStream::connect(&path).unwrap()).ask("b\n", "b\r\n");
        let _ = server.drain(Duration::from_secs(5));
        assert!(path.exists());
    });
}

/// One connection too many waits in the backlog, and is served when another one ends.
#[test]
fn one_too_many_waits() {
    bounded(|| {
        let limits = Limits::default().connections(1);
        let listen = Listen::tcp("127.0.0.1:0").limits(limits);
        let server = echo(listen.at_limit(AtLimit::Wait)).start().unwrap();
        let address = server.local_addr().unwrap();
        let mut first = client(address);
        first.ask("a\n", "a\r\n");
        let mut second = client(address);
        std::io::Write::write_all(&mut second.0, b"b\n").unwrap();
        first.ask("c\n", "c\r\n");
        assert_eq!(server.connections(), 1);
        drop(first);
        second.expect("b\r\n");
        assert_eq!(
            times_met(&server, &address.to_string(), Limit::Connections),
            0
        );
    });
}

/// On real sockets, one connection too many gets its refusal whole.
#[test]
fn one_too_many_is_refused() {
    bounded(|| {
        let limits = Limits::default().connections(1);
        let listen = Listen::tcp("127.0.0.1:0").limits(limits);
        let server = echo(listen.refusal("-ERR busy\r\n")).start().unwrap();
        let address = server.local_addr().unwrap();
        let mut first = client(address);
        first.ask("a\n", "a\r\n");
        assert_eq!(client(address).rest(), "-ERR busy\r\n");
        assert_eq!(
            times_met(&server, &address.to_string(), Limit::Connections),
            1
        );
        first.ask("b\n", "b\r\n");
    });
}

fn ask_udp(socket: &UdpSocket, text: &str) -> Option<String> {
    socket.send(text.as_bytes()).unwrap();
    let mut buffer = [0; 100];
    let count = socket.recv(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

/// A datagram whose handler fails or panics takes nothing from others. The pool's hook gets each
/// panic.
#[test]
fn udp_goes_on_after_a_failure() {
    bounded(|| {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let handler = |bytes: &[u8], cx: &mut UdpPeer<'_>| match bytes {
            b"fail" => Err(io::Error::other("no")),
            b"panic" => panic!("a bug of the handler"),
            other => cx.reply(other),
        };
        let panics = Calls::default();
        let hook = panics.clone();
        let pool = Pool::builder().on_panic(move |_, panic| hook.note(panic));
        let _server = Server::builder().pool(pool).udp(address, handler);
        let _server = _server.listen("127.0.0.1:0", line(80), {
            let calls = Calls::default();
            move |_: &_| Actor::new(&calls)
        });
        let _server = _server.start().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        socket.set_read_timeout(Some(patience())).unwrap();
        assert_eq!(ask_udp(&socket, "a").unwrap(), "a");
        socket.send(b"fail").unwrap();
        for panicked in 1..=10 {
            // One after the other: several threads receive at once.
            socket.send(b"panic").unwrap();
            wait_until(|| panics.count("a bug of the handler") == panicked);
        }
        assert_eq!(ask_udp(&socket, "b").unwrap(), "b");
    });
}

/// The address of an echo over Unix sockets and TCP, as its sessions see it.
#[test]
fn sessions_know_their_peers() {
    bounded(|| {
        let make = |_: &_| {
            |_: paceline_server::codec::Message<'_>, cx: &mut paceline_server::Peer<'_>| {
                let address = cx.address().to_string();
                cx.reply(address)?;
                Ok(paceline_server::Next::Close)
            }
        };
        let server = Server::builder().listen("127.0.0.1:0", line(80), make);
        let server = server.start().unwrap();
        let mut client = client(server.local_addr().unwrap());
        let own = client.0.local_addr().unwrap();
        client.ask("who\n", format!("{own}\r\n"));
        wait_until(|| server.connections() == 0);
    });
}
