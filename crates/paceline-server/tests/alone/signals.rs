//! `run`: a server as a program, which signals end.

use std::time::Duration;

use paceline_server::{codec::line, Server};
use rustix::process::Signal;

use crate::support::{
    actor::{Actor, Calls},
    client, name_of,
    process::{is_child, Process},
    Client,
};

/// A server as a program, with an hour to drain.
fn run() {
    let calls = Calls::default();
    let server = Server::builder()
        .listen("127.0.0.1:0", line(80), move |_| Actor::new(&calls))
        .drain_time(Duration::from_secs(3600));
    server.run().unwrap();
    eprintln!("run has returned");
}

/// Starts the test `name` as a program, and connects to it.
fn start(name: &str) -> (Process, Client<std::net::TcpStream>) {
    let process = Process::start(&name_of(module_path!(), name), name, |_| {});
    let address = process.line("listening on ");
    (process, client(address.parse().unwrap()))
}

/// The first signal drains: what is half there is answered, a report is printed, and `run` returns.
#[test]
fn first_signal_drains() {
    if is_child("first_signal_drains") {
        return run();
    }
    for signal in [Signal::INT, Signal::TERM] {
        let (mut process, mut client) = start("first_signal_drains");
        client.ask("a\nhal", "a\r\n");
        process.signal(signal);
        process.line("draining");
        client.ask("f\n", "half\r\n");
        drop(client);
        let report = process.line("127.0.0.1:");
        // Whether the connection is open when the drain begins is a matter of chance.
        let served = report.contains(": 1 connections served, 2 items, 0 refused, ");
        assert!(served && report.ends_with(", 0 cut"), "{report}");
        process.line("run has returned");
        assert!(process.end().success());
    }
}

/// A server that ignored further signals had to be killed. Here the second one ends the drain at
/// once, whatever is open, and the report says so.
#[test]
fn second_signal_ends() {
    if is_child("second_signal_ends") {
        return run();
    }
    let (mut process, mut client) = start("second_signal_ends");
    client.ask("a\nhal", "a\r\n");
    process.signal(Signal::TERM);
    process.line("draining");
    process.signal(Signal::INT);
    let report = process.line("127.0.0.1:");
    assert!(report.ends_with("1 open at the end, 1 cut"), "{report}");
    process.line("run has returned");
    assert!(process.end().success());
}

/// SIGHUP reads the certificates anew; a bad file keeps the old ones, and says so.
#[cfg(feature = "_tls")]
#[test]
fn hangup_reloads() {
    use crate::support::tls::Identity;
    use paceline_server::Listen;

    if is_child("hangup_reloads") {
        let identity = Identity::new("localhost");
        eprintln!("key {}", identity.key().display());
        let calls = Calls::default();
        let listen = Listen::tcp("127.0.0.1:0").tls(&identity.tls());
        let server = Server::builder().listener(listen, line(80), move |_| Actor::new(&calls));
        return server.run().unwrap();
    }
    let name = "hangup_reloads";
    let mut process = Process::start(&name_of(module_path!(), name), name, |_| {});
    let key = process.line("key ");
    process.line("listening on ");
    process.signal(Signal::HUP);
    process.line("certificates read anew");
    std::fs::write(&key, "nonsense").unwrap();
    process.signal(Signal::HUP);
    let error = process.line("the old certificates stay: ");
    assert!(error.contains("key.pem"), "{error}");
    process.signal(Signal::TERM);
    assert!(process.end().success());
}
