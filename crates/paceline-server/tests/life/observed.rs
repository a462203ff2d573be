//! What can be seen of a server: metrics, the admin port, the access log.

use std::time::Duration;

use paceline_server::{codec::line, Limits, Listen, Next, Server};

use crate::support::{
    actor::{Actor, Calls},
    bounded, client, metric, times_ended, wait_until,
    world::{assert_gets, finish, on_both_engines, Drain, MAIN},
    Written,
};

/// Connections, items, bytes and endings are counted for each listener.
#[test]
fn everything_is_counted() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || Actor::new(&calls));
        let value = |name: &str| metric(&server, name, "service=\"main\"");
        let (a, b) = (world.inlet.connect(), world.inlet.connect());
        a.send(b"one\ntwo\n");
        assert_gets(&a, "one\r\ntwo\r\n");
        b.send(b"x\n");
        assert_gets(&b, "x\r\n");
        world.settle();
        assert_eq!(value("paceline_server_connections"), 2);
        finish(&a);
        wait_until(|| value("paceline_server_connections") == 1);
        assert_eq!(value("paceline_server_opened_total"), 2);
        assert_eq!(value("paceline_server_items_total"), 3);
        assert_eq!(value("paceline_server_received_bytes_total"), 10);
        assert_eq!(times_ended(&server, MAIN, "by_peer"), 1);
        assert!(server.open_metrics().ends_with("# EOF\n"));
    });
}

/// A line of the access log says which connection did what, and how it ended.
#[test]
fn a_line_for_each_connection() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let _server = world.serve(Limits::default(), line(80), move || Actor::new(&calls));
        let peer = world.inlet.connect();
        peer.send(b"one\ntwo\n");
        assert_gets(&peer, "one\r\ntwo\r\n");
        world.pass(Duration::from_millis(1500));
        finish(&peer);
        let log = world.log.text();
        let line = log.lines().find(|line| line.starts_with("main ")).unwrap();
        let expected = "peer=simulated items=2 bytes_in=8 seconds=1.500 ended=by_peer \
                        detail=\"closed by the peer\"";
        assert!(line.ends_with(expected), "{line}");
    });
}

/// Bytes of a client that come into the log, by an error of the session or a panic, forge no line
/// and reach no terminal: control characters, quotes and backslashes are escaped.
#[test]
fn log_injection() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|item, _| match item.as_str()?.split_once(' ') {
                Some(("panic", text)) => panic!("{text}"),
                _ => Err::<Next, _>(std::io::Error::other(item.as_str()?.to_owned())),
            })
        });
        let evil = "a\"\rmain connection=1 ended=\x1b[2J\\\u{85}x";
        for text in [evil.to_owned(), format!("panic {evil}")] {
            let peer = world.inlet.connect();
            peer.send(format!("{text}\n").as_bytes());
            peer.wait_closed();
        }
        wait_until(|| server.connections() == 0);
        let log = world.log.text();
        let lines: Vec<_> = log
            .lines()
            .filter(|line| line.starts_with("main "))
            .collect();
        assert_eq!(lines.len(), 2, "{log}");
        for line in lines {
            assert!(!line.chars().any(char::is_control), "{line:?}");
            assert_eq!(line.matches('"').count() - line.matches("\\\"").count(), 2);
            assert!(line.contains("a\\\"\\rmain"), "{line}");
            assert!(line.contains("\\u{1b}[2J\\\\\\u{85}x"), "{line}");
        }
    });
}

/// A name that is a hostile label ends no line of the metrics.
#[test]
fn a_name_forges_no_metric() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let listen = world.listen().name("a\"} 1\n\\");
        let builder = world.builder();
        let server = builder.listener(listen, line(80), move |_| Actor::new(&calls));
        let server = world.start(server);
        let value = metric(
            &server,
            "paceline_server_opened_total",
            "service=\"a\\\"} 1\\n\\\\\"",
        );
        assert_eq!(value, 0);
    });
}

fn get(address: std::net::SocketAddr, request: &str) -> String {
    let mut client = client(address);
    client.ask(format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n"), "");
    client.rest()
}

/// The port for monitoring: metrics, health, readiness, and what else may come there.
#[test]
fn admin_port() {
    bounded(|| {
        let calls = Calls::default();
        let log = Written::default();
        let server = Server::builder()
            .listener(
                Listen::tcp("127.0.0.1:0").name("main"),
                line(80),
                move |_| Actor::new(&calls),
            )
            .metrics("127.0.0.1:0")
            .access_log(log.clone())
            .start()
            .unwrap();
        let admin = server.metrics_addr().unwrap();
        client(server.local_addr().unwrap()).ask("a\n", "a\r\n");
        let metrics = get(admin, "GET /metrics");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("content-type: application/openmetrics-text"));
        assert!(metrics.contains("paceline_server_items_total{service=\"main\"} 1\n"));
        assert!(metrics.ends_with("# EOF\n"));
        for (request, status) in [
            ("GET /healthz", "200 OK"),
            ("GET /readyz?x=1", "200 OK"),
            ("HEAD /readyz", "200 OK"),
            ("GET /other", "404 Not Found"),
            ("POST /metrics", "405 Method Not Allowed"),
            ("nonsense", "400 Bad Request"),
            ("GET /healthz HTTP/2.0", "400 Bad Request"),
        ] {
            let answer = get(admin, request);
            let start = format!("HTTP/1.1 {status}\r\n");
            assert!(answer.starts_with(&start), "{request}: {answer}");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(body.is_empty(), request.starts_with("HEAD"), "{answer}");
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.split('\r').next().unwrap().parse().unwrap();
            assert!(body.is_empty() || body.len() == length);
        }
        assert!(!log.text().contains("metrics"), "{}", log.text());
    });
}

/// During a drain `/readyz` says no while `/healthz` says yes, until the last connection has ended.
#[test]
fn readiness_flips_in_a_drain() {
    bounded(|| {
        let calls = Calls::default();
        let server = Server::builder()
            .listen("127.0.0.1:0", line(80), move |_| Actor::new(&calls))
            .metrics("127.0.0.1:0")
            .start()
            .unwrap();
        let admin = server.metrics_addr().unwrap();
        assert!(get(admin, "GET /readyz").contains("200 OK"));
        let mut half = client(server.local_addr().unwrap());
        half.ask("a\nhal", "a\r\n");
        let drain = Drain::begin_unseen(&server, Duration::from_secs(3600));
        assert!(get(admin, "GET /readyz").contains("503 Service Unavailable"));
        assert!(get(admin, "GET /healthz").contains("200 OK"));
        half.ask("f\n", "half\r\n");
        drop(half);
        let report = drain.end();
        assert!(report.services.iter().all(|service| service.cut == 0));
        assert!(std::net::TcpStream::connect(admin).is_err());
    });
}
