//! `tls_tunnel`: bytes both ways, ends of each direction, back-pressure, and back-ends that fail.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::Stdio,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use paceline_server::tls::rustls::{
    pki_types::{pem::PemObject, CertificateDer, ServerName},
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
};
use socket2::{SockRef, Socket};

use super::{
    certificates::Certificates,
    program::{bound, read_all, tool, Program, Server, BOUND},
};

/// A tunnel in front of a back-end of the test.
struct Tunnel {
    certificates: Certificates,
    server: Server,
    back_end: TcpListener,
}

impl Tunnel {
    fn start(args: &[&str]) -> Self {
        let back_end = TcpListener::bind("127.0.0.1:0").unwrap();
        let certificates = Certificates::new();
        let to = back_end.local_addr().unwrap().to_string();
        let (chain, key) = (
            certificates.chain("localhost"),
            certificates.key("localhost"),
        );
        let all = [&["--to", &to, "--tls", &chain, &key], args].concat();
        let server = Server::start("tls_tunnel", &all);
        Self {
            certificates,
            server,
            back_end,
        }
    }

    /// The connection of the next client, as the back-end sees it.
    fn accept(&self) -> TcpStream {
        bound(self.back_end.accept().unwrap().0)
    }

    /// The client's side of TLS, before its first byte.
    fn hello(&self) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_file(self.certificates.root()).unwrap();
        roots.add(root).unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    fn connect(&self) -> Client {
        self.over(self.server.connect())
    }

    fn over(&self, stream: TcpStream) -> Client {
        StreamOwned::new(self.hello(), stream)
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Ends the output of a client properly. It still reads.
fn end_output(client: &mut Client) {
    client.conn.send_close_notify();
    client.flush().unwrap();
}

/// Bytes that are different at each place.
fn pattern(from: usize, count: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    (from..from + count).map(byte).collect()
}

/// OpenSSL through the tunnel to a back-end that speaks first.
#[test]
fn openssl_through_the_tunnel() {
    let tunnel = Tunnel::start(&[]);
    let Some(mut openssl) = tool("openssl", "version") else {
        return;
    };
    openssl
        .args(["s_client", "-brief", "-verify_return_error"])
        .args(["-CAfile", &tunnel.certificates.root()])
        .args(["-connect", &tunnel.server.address.to_string()])
        .stdin(Stdio::piped());
    let mut client = Program::start(&mut openssl);
    let mut back = tunnel.accept();
    back.write_all(b"220 ready\n").unwrap();
    assert_eq!(client.line(), "220 ready");
    client.stdin().write_all(b"hello\n").unwrap();
    let mut line = String::new();
    BufReader::new(&mut back).read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
    back.shutdown(Shutdown::Both).unwrap();
    client.wait();
    tunnel.server.end();
}

/// Megabytes both ways at once, byte for byte; then each direction ends by itself, in either order.
#[test]
fn both_directions_end_apart() {
    const BYTES: usize = 3 << 20;
    let tunnel = Tunnel::start(&[]);
    for client_ends_first in [true, false] {
        let mut client = tunnel.connect();
        client.flush().unwrap();
        let mut back = tunnel.accept();
        let writes = back.try_clone().unwrap();
        let back_writes = thread::spawn(move || {
            (&writes).write_all(&pattern(7, BYTES)).unwrap();
            if !client_ends_first {
                writes.shutdown(Shutdown::Write).unwrap();
            }
        });
        let back_reads = thread::spawn(move || {
            let mut got = vec![0; BYTES];
            back.read_exact(&mut got).unwrap();
            assert!(got == pattern(0, BYTES), "the back-end got other bytes");
            back
        });
        let mut got = vec![0; BYTES];
        // One thread on this side: parts in turns, smaller than what the sockets keep.
        for (at, part) in got.chunks_mut(16 * 1024).enumerate() {
            client
                .write_all(&pattern(at * 16 * 1024, part.len()))
                .unwrap();
            client.read_exact(part).unwrap();
        }
        assert!(got == pattern(7, BYTES), "the client got other bytes");
        back_writes.join().unwrap();
        let mut back = back_reads.join().unwrap();
        if client_ends_first {
            end_output(&mut client);
            assert_eq!(read_all(&mut back), "");
            back.write_all(b"after your end").unwrap();
            back.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&mut client), "after your end");
        } else {
            // The end of TLS comes, and then this side still sends.
            assert_eq!(read_all(&mut client), "");
            client.write_all(b"after your end").unwrap();
            end_output(&mut client);
            assert_eq!(read_all(&mut back), "after your end");
        }
    }
    tunnel.server.end();
}

/// A client may send data in one flight with the end of its handshake: the tunnel pauses it until the
/// back-end is there. It once lost the client.
#[test]
fn data_in_the_flight_of_the_handshake() {
    let tunnel = Tunnel::start(&[]);
    for _ in 0..20 {
        let (mut tls, mut stream) = (tunnel.hello(), tunnel.server.connect());
        tls.write_tls(&mut stream).unwrap();
        while tls.is_handshaking() {
            assert!(tls.read_tls(&mut stream).unwrap() > 0);
            tls.process_new_packets().unwrap();
        }
        tls.writer().write_all(b"at once").unwrap();
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).unwrap();
        }
        stream.write_all(&flight).unwrap();
        let mut back = tunnel.accept();
        let mut got = [0; 7];
        back.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"at once");
    }
    tunnel.server.end();
}

/// A client that does not read stops the back-end: only what the sockets and one piece of the tunnel hold
/// is under way.
#[test]
fn a_client_that_does_not_read_stops_the_back_end() {
    const ALL: usize = 32 << 20;
    let tunnel = Tunnel::start(&[]);
    let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    socket.connect(&tunnel.server.address.into()).unwrap();
    let mut client = tunnel.over(bound(socket.into()));
    client.write_all(b"x").unwrap();
    let back = tunnel.accept();
    SockRef::from(&back)
        .set_send_buffer_size(64 * 1024)
        .unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let writer = thread::spawn(move || -> io::Result<()> {
        let mut back = back;
        while counter.load(Ordering::Relaxed) < ALL {
            let part = pattern(counter.load(Ordering::Relaxed), 64 * 1024);
            back.write_all(&part)?;
            counter.fetch_add(part.len(), Ordering::Relaxed);
        }
        back.shutdown(Shutdown::Write)
    });
    let stopped = quiet(&written);
    assert!(stopped < ALL / 2, "the back-end could send {stopped} bytes");
    let mut got = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match client.read(&mut buffer).unwrap() {
            0 => break,
            count => {
                assert!(
                    buffer[..count] == pattern(got, count),
                    "other bytes at {got}"
                );
                got += count;
            }
        }
    }
    assert_eq!(got, ALL);
    writer.join().unwrap().unwrap();
    end_output(&mut client);
    drop(client);
    tunnel.server.end();
}

/// The count when it has not changed for a while.
fn quiet(count: &AtomicUsize) -> usize {
    let (mut last, mut since) = (0, Instant::now());
    let start = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        assert!(start.elapsed() < BOUND, "it never stops");
        let now = count.load(Ordering::Relaxed);
        if now != last || now == 0 {
            (last, since) = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(5));
    }
    last
}

/// A back-end that can't be reached: the client is closed without the end of TLS, and the log says why.
#[test]
fn a_back_end_that_is_not_there() {
    let tunnel = Tunnel::start(&[]);
    let to = tunnel.back_end.local_addr().unwrap();
    let mut client = tunnel.connect();
    drop(tunnel.back_end);
    client.write_all(b"hello").unwrap();
    let mut answer = Vec::new();
    let end = client.read_to_end(&mut answer);
    assert!(end.is_err(), "the stream ended properly");
    assert_eq!(answer, b"");
    let ended = tunnel.server.end();
    let text = format!("is closed: back-end {to}: failed: connect to {to}: ");
    assert!(ended.errors.contains(&text), "{}", ended.errors);
}

/// A back-end that is cut: the client gets what came before, and no proper end. The other way round, the
/// back-end's connection is reset or ended, and the tunnel keeps nothing.
#[test]
fn a_side_that_is_cut() {
    let tunnel = Tunnel::start(&["--metrics", "127.0.0.1:0"]);
    let metrics = tunnel.server.line();
    let mut client = tunnel.connect();
    client.write_all(b"x").unwrap();
    let mut back = tunnel.accept();
    back.write_all(b"half").unwrap();
    let mut got = [0; 4];
    client.read_exact(&mut got).unwrap();
    SockRef::from(&back)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(back);
    let end = client.read_to_end(&mut Vec::new());
    assert!(end.is_err(), "the stream ended properly");

    let mut client = tunnel.connect();
    client.write_all(b"x").unwrap();
    let mut back = tunnel.accept();
    back.read_exact(&mut got[..1]).unwrap();
    SockRef::from(&client.sock)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    // Reset or ended: it reads no more.
    assert_eq!(back.read(&mut got).unwrap_or(0), 0);
    drop(back);

    let address = metrics.strip_prefix("metrics on http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let gone = "paceline_server_connections{service=\"back-end\"} 0\n";
    let start = Instant::now();
    loop {
        let mut page = bound(TcpStream::connect(address).unwrap());
        page.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        let page = read_all(&mut page);
        if page.contains(gone) {
            break;
        }
        assert!(start.elapsed() < BOUND, "{page}");
        thread::sleep(Duration::from_millis(5));
    }
    tunnel.server.end();
}
