//! A process that may have few descriptors: connections take four fifths of them at most.

use paceline_server::{codec::line, Listen, Server};
use rustix::process::{getrlimit, setrlimit, Resource, Signal};

use crate::support::{
    actor::{Actor, Calls},
    client, name_of,
    process::{is_child, Process},
};

/// So many descriptors the server may have: four fifths of them are connections.
const DESCRIPTORS: usize = 100;

fn run() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(DESCRIPTORS as u64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let calls = Calls::default();
    let listen = Listen::tcp("127.0.0.1:0").refusal("full\r\n");
    let server = Server::builder()
        .listener(listen, line(80), move |_| Actor::new(&calls))
        .threads(2);
    server.run().unwrap();
}

/// 10,000 connections are allowed, and 100 descriptors. Without this bound the last connections take
/// what files and outgoing connections of the sessions need; now they get the refusal.
#[test]
fn connections_leave_descriptors_to_others() {
    let name = "connections_leave_descriptors_to_others";
    if is_child(name) {
        return run();
    }
    let mut process = Process::start(&name_of(module_path!(), name), name, |_| {});
    let address = process.line("listening on ").parse().unwrap();
    let mut clients: Vec<_> = (0..DESCRIPTORS / 5 * 4).map(|_| client(address)).collect();
    clients
        .iter_mut()
        .for_each(|client| client.ask("a\n", "a\r\n"));
    assert_eq!(client(address).rest(), "full\r\n");
    drop(clients);
    process.signal(Signal::TERM);
    assert!(process.end().success());
}
