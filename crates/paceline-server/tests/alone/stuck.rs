//! `run` when the server can not do what a signal needs: each thread is in a session, or standard
//! error is closed.

use std::{thread, time::Duration};

use paceline_server::{codec::line, Next, Server};
use rustix::process::Signal;

use crate::support::{
    actor::{Actor, Calls},
    client, name_of,
    process::{is_child, Process},
    Client,
};

/// A server of two threads as a program, with an hour to drain. The item "block" never ends.
fn run() {
    let calls = Calls::default();
    let make = move |_: &_| {
        Actor::new(&calls).on_item(|item, cx| {
            cx.reply(item)?;
            if item == "block" {
                loop {
                    thread::park();
                }
            }
            Ok(Next::Continue)
        })
    };
    let server = Server::builder()
        .listen("127.0.0.1:0", line(80), make)
        .threads(2)
        .drain_time(Duration::from_secs(3600));
    server.run().unwrap();
    // Without the macro: standard error may be closed.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), b"run has returned\n");
}

fn start(name: &str) -> (Process, std::net::SocketAddr) {
    let process = Process::start(&name_of(module_path!(), name), name, |_| {});
    let address = process.line("listening on ");
    (process, address.parse().unwrap())
}

/// With every thread in a session, no thread heard a signal, and the process had to be killed. Now
/// signals have a thread of their own: the first begins the drain, and the second ends it.
#[test]
fn signals_are_heard_while_all_threads_are_busy() {
    if is_child("signals_are_heard_while_all_threads_are_busy") {
        return run();
    }
    let (mut process, address) = start("signals_are_heard_while_all_threads_are_busy");
    let blocked: Vec<Client<_>> = (0..2)
        .map(|_| {
            let mut client = client(address);
            client.ask("block\n", "block\r\n");
            client
        })
        .collect();
    process.signal(Signal::TERM);
    process.line("draining");
    process.signal(Signal::INT);
    let report = process.line("127.0.0.1:");
    assert!(report.ends_with("2 open at the end, 2 cut"), "{report}");
    process.line("run has returned");
    assert!(process.end().success());
    drop(blocked);
}

/// With the reader of standard error gone, `run` panicked when it printed, and skipped the rest of
/// its end. Now it goes on without.
#[test]
fn a_closed_standard_error_skips_nothing() {
    if is_child("a_closed_standard_error_skips_nothing") {
        return run();
    }
    let (mut process, address) = start("a_closed_standard_error_skips_nothing");
    let mut client = client(address);
    client.ask("a\nhal", "a\r\n");
    // Its first line ends the reader, and with it the pipe.
    process.stop_reading();
    process.signal(Signal::TERM);
    // From the drain on, new clients are refused.
    crate::support::wait_until(|| std::net::TcpStream::connect(address).is_err());
    client.ask("f\n", "half\r\n");
    drop(client);
    assert!(process.end().success());
}
