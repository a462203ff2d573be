//! Each server gives the service, and the client takes the time of it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::*;

/// A work without a request, or a request of the wrong length, would measure errors.
#[test]
fn every_work_has_its_requests() {
    for work in works::ALL {
        let bytes = work.bytes(work.request(0));
        assert!(
            bytes.windows(4).any(|it| it == b"\r\n\r\n"),
            "{}",
            work.name
        );
        let names: Vec<_> = servers::all().map(|(name, ..)| name).collect();
        let known = [
            "hyper-blocking",
            "actix-web",
            "may_minihttp",
            "tiny_http",
            "rouille",
            "khttp",
        ];
        for name in work.without {
            assert!(names.contains(name) || known.contains(name), "{name}");
        }
        assert_eq!(works::find(work.name).map(|it| it.name), Some(work.name));
    }
}

/// A short measurement of a server in another thread: it answers, and the client counts no error.
#[test]
fn the_client_counts_answers_of_every_server_here() {
    for (name, ..) in servers::all() {
        // Programs of their own.
        if matches!(name, "go" | "nginx") {
            continue;
        }
        let site = servers::Site {
            threads: 4,
            tls: false,
            file: servers::file().unwrap(),
        };
        let address = servers::start(name, SocketAddr::from(([127, 0, 0, 1], 0)), site).unwrap();
        for work in [
            "hello",
            "routed",
            "pipelined",
            "sleepy",
            "post-1k",
            "post-1m",
            "file-1m",
        ] {
            if !works::find(work).is_some_and(|work| work.suits(name)) {
                continue;
            }
            let args = LoadArgs {
                address,
                work: work.to_owned(),
                pid: std::process::id(),
                seconds: 0.1,
            };
            let found = load::run(&args);
            let found = found.unwrap_or_else(|error| panic!("{name} {work}: {error}"));
            assert!(found.answers > 0, "{name} {work}: {found:?}");
            assert_eq!(found.errors, 0, "{name} {work}: {found:?}");
        }
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .write_all(b"GET /none HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 404", "{name}");
    }
}
