//! Every server offers the service, whatever way the bytes come.

mod checks;
mod framed;
#[cfg(feature = "programs")]
mod programs;

use std::{io::BufRead, net::SocketAddr};

use rustix::net::sockopt;

use super::{answer, bind, start};
use crate::servers::{counts::Counts, Means, Setting, ALL};

const SETTING: Setting = Setting {
    threads: 4,
    announced: false,
    steps: 1000,
};

#[test]
fn requests_in_one_piece_are_answered_in_order() {
    with_each(&SETTING, checks::pipelined);
}

#[test]
fn a_request_in_two_pieces_is_answered() {
    with_each(&SETTING, checks::split);
}

#[test]
fn every_task_is_done() {
    with_each(&SETTING, checks::tasks);
}

#[test]
fn every_announced_task_is_done() {
    let announced = true;
    with_each(
        &Setting {
            announced,
            ..SETTING
        },
        checks::tasks,
    );
}

#[test]
fn the_end_of_the_stream_closes() {
    with_each(&SETTING, checks::end);
}

#[test]
fn many_connections_are_served_at_once() {
    with_each(&SETTING, checks::many);
}

#[test]
fn slow_readers_stop_nobody() {
    with_each(&SETTING, |name, address| {
        checks::slow_readers(name, address, 10_000);
    });
}

#[test]
fn resets_end_nothing() {
    with_each(&SETTING, checks::resets);
}

#[test]
fn counts_are_what_the_parent_reads() {
    let counts = Counts {
        events: Some(3),
        longest_leaderless_us: Some(1.5),
        ..Counts::default()
    };
    let text = serde_json::to_string(&counts).unwrap();
    assert_eq!(
        text,
        "{\"allocations\":null,\"events\":3,\"same_thread\":null,\
         \"leaderless_us\":null,\"longest_leaderless_us\":1.5}"
    );
    assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), counts);
    let mut written = Vec::new();
    answer(&b"one\ntwo\n"[..], &mut written).unwrap();
    assert_eq!(written.lines().count(), 2);
}

/// Does `check` with every server that is part of this program, each on a port of its own.
///
/// But with `may`: it has one runtime for the whole process, which all tests would share, and with several of them at
/// once a reply was missing in about one run of eight. Measured, it is alone in its process, and every reply is checked.
fn with_each(setting: &Setting, check: impl Fn(&str, SocketAddr)) {
    for server in ALL.iter().filter(|server| !server.name.starts_with("may")) {
        if let Means::Here(serve) = server.means {
            let listener = bind(anywhere()).unwrap();
            // Its connections have the same: not much is taken until it is noticed that a peer does not read.
            sockopt::set_socket_send_buffer_size(&listener, 16 * 1024).unwrap();
            check(server.name, start(serve, listener, setting).unwrap());
        }
    }
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
