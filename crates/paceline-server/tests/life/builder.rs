//! A server is judged as a whole before anything begins: one error names everything that can't be.

use std::{io, time::Duration};

use paceline_server::{
    codec::line, Dialer, Engine, HalfSync, LeastRate, Limits, Listen, Server, ServerBuilder,
};

use crate::support::actor::{Actor, Calls};

fn with(builder: ServerBuilder, listen: Listen) -> ServerBuilder {
    let calls = Calls::default();
    builder.listener(listen, line(80), move |_| Actor::new(&calls))
}

/// All impossible settings at once.
#[test]
fn everything_impossible_is_named() {
    let rate = LeastRate {
        bytes_per_second: 0,
        grace: Duration::ZERO,
    };
    let bad = Limits::default()
        .connections(0)
        .silent(Duration::ZERO)
        .handshakes(0)
        .item_time(Duration::ZERO)
        .idle(Duration::ZERO)
        .per_turn(0, 0)
        .least_rate(rate);
    let engine = HalfSync::default().workers(0).capacity(0);
    let builder = Server::builder()
        .engine(Engine::HalfSyncHalfAsync(engine))
        .dialer(&Dialer::new("out").limits(Limits::default().connections(0)));
    let builder = with(builder, Listen::tcp("127.0.0.1:0").limits(bad));
    let builder = with(builder, Listen::tcp("127.0.0.1:0").level("unknown"));
    let builder = with(builder, Listen::tcp("127.0.0.1:0").name("twin"));
    let builder = with(builder, Listen::tcp("127.0.0.1:0").name("twin"));
    let error = builder.start().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let text = error.to_string();
    for name in [
        "silent(0)",
        "handshakes(0)",
        "item_time(0)",
        "idle(0)",
        "per_turn(0, _)",
        "per_turn(_, 0)",
        "least_rate",
        "workers(0)",
        "capacity(0)",
        "level(\"unknown\")",
        "name(\"twin\")",
    ] {
        assert_eq!(text.matches(name).count(), 1, "{name} in {text}");
    }
    assert_eq!(text.matches("connections(0)").count(), 2, "{text}");
}

/// A server without anything to serve.
#[test]
fn nothing_to_serve() {
    let error = Server::builder().start().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("no listener"), "{error}");
}

/// A dialer belongs to one server.
#[test]
fn a_dialer_has_one_server() {
    let dialer = Dialer::new("out");
    let _server = Server::builder().dialer(&dialer).start().unwrap();
    let error = Server::builder().dialer(&dialer).start().unwrap_err();
    assert!(error.to_string().contains("out"), "{error}");
}

/// An address that is in use: the error names it, and what was opened before is closed again.
#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = crate::support::Folder::new();
    let path = folder.path("first.sock");
    let builder = with(Server::builder(), Listen::unix(&path));
    let error = with(builder, Listen::tcp(address)).start().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let again = with(Server::builder(), Listen::unix(&path)).start();
    assert!(again.is_ok());
}
