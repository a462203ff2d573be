//! Outgoing connections: a dialer, its sessions, its limits and its failures. On real sockets.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    sync::mpsc,
};

use paceline_server::{codec::line, Dialer, Limits, Next, Server};

use crate::support::{
    actor::{Actor, Calls},
    bounded, metric, times_ended, wait_until, Folder,
};

/// A session that asks, and closes after the answer.
fn asking(calls: &Calls) -> Actor {
    Actor::new(calls)
        .on_start(|cx| {
            cx.reply("question")?;
            Ok(Next::Continue)
        })
        .on_item(|_, _| Ok(Next::Close))
}

fn echo() -> Server {
    let calls = Calls::default();
    let make = move |_: &_| Actor::new(&calls);
    let server = Server::builder().listen("127.0.0.1:0", line(80), make);
    server.start().unwrap()
}

/// An address at which no process listens.
fn nowhere() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// An outgoing connection has the life of any other, and its counters.
#[test]
fn a_dialer_serves_sessions() {
    bounded(|| {
        let echo = echo();
        let dialer = Dialer::new("out");
        let server = Server::builder().dialer(&dialer).start().unwrap();
        let calls = Calls::default();
        let connected = dialer.connect(echo.local_addr().unwrap(), line(80), asking(&calls));
        connected.unwrap();
        calls.wait_for("closed: finished");
        let expected = ["start", "handle question", "closed: finished"];
        assert_eq!(calls.all(), expected);
        let served = metric(&server, "paceline_server_opened_total", "service=\"out\"");
        assert_eq!(served, 1);
        wait_until(|| server.connections() == 0);
    });
}

/// A connection that can't be made closes its session with the reason, and is counted.
#[test]
fn a_failure_has_a_reason() {
    bounded(|| {
        let dialer = Dialer::new("out");
        let server = Server::builder().dialer(&dialer).start().unwrap();
        let calls = Calls::default();
        dialer.connect(nowhere(), line(80), asking(&calls)).unwrap();
        wait_until(|| calls.count("closed: failed: ") == 1);
        assert_eq!(calls.all().len(), 1, "{:?}", calls.all());
        let text = &calls.all()[0];
        assert!(text.contains("refused"), "{text}");
        assert_eq!(times_ended(&server, "out", "failed"), 1);
    });
}

/// A dialer whose server has not started, or has ended, gives the session back.
#[test]
fn without_a_server_the_session_comes_back() {
    bounded(|| {
        let dialer = Dialer::new("out");
        let calls = Calls::default();
        let refused = dialer.connect(nowhere(), line(80), asking(&calls));
        let refused = refused.unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::NotConnected);
        let server = Server::builder().dialer(&dialer).start().unwrap();
        drop(server);
        let refused = dialer.connect(nowhere(), line(80), refused.value);
        assert_eq!(
            refused.unwrap_err().error.kind(),
            io::ErrorKind::NotConnected
        );
        assert!(calls.all().is_empty());
    });
}

/// Connections that are being made count for the limit of a dialer: a loop that dials can't use up
/// all descriptors. A place is free again when one ends.
#[test]
fn a_dialer_has_a_limit() {
    bounded(|| {
        let echo = echo();
        let address = echo.local_addr().unwrap();
        let dialer = Dialer::new("out").limits(Limits::default().connections(2));
        let _server = Server::builder().dialer(&dialer).start().unwrap();
        let calls = Calls::default();
        let stay = || Actor::new(&calls);
        let first = dialer.connect(address, line(80), stay()).unwrap();
        dialer.connect(address, line(80), stay()).unwrap();
        let refused = dialer.connect(address, line(80), stay()).unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::QuotaExceeded);
        first.close().unwrap();
        wait_until(|| dialer.connect(address, line(80), stay()).is_ok());
    });
}

/// The same over a Unix socket, and a path at which no process listens.
#[test]
fn unix_sockets() {
    bounded(|| {
        let folder = Folder::new();
        let path = folder.path("echo.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (sent, received) = mpsc::channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut client = crate::support::Client(stream);
            client.expect("question\r\n");
            client.ask("answer\r\n", "");
            sent.send(()).unwrap();
        });
        let dialer = Dialer::new("out");
        let _server = Server::builder().dialer(&dialer).start().unwrap();
        let calls = Calls::default();
        dialer
            .connect_unix(&path, line(80), asking(&calls))
            .unwrap();
        received.recv().unwrap();
        calls.wait_for("closed: finished");
        let refused = dialer.connect_unix(folder.path("none"), line(80), asking(&calls));
        let refused = refused.unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::NotFound);
        assert!(
            refused.error.to_string().contains("none"),
            "{}",
            refused.error
        );
    });
}
