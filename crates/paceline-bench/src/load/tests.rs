//! The whole client, against servers of a few lines: one that is right, and some that are not.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process, thread,
    time::{Duration, Instant},
};

use super::*;
use crate::service::REQUEST;

/// A server with a thread for each connection, which does `reply` with each request. It ends with the test.
fn server(reply: fn(&mut TcpStream, [u8; REQUEST]) -> io::Result<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, reply));
        }
    });
    address
}

/// One connection, to its end.
fn serve(mut stream: TcpStream, reply: fn(&mut TcpStream, [u8; REQUEST]) -> io::Result<()>) {
    stream.set_nodelay(true).unwrap();
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        if reply(&mut stream, request).is_err() {
            break;
        }
    }
}

/// The right reply.
fn right(stream: &mut TcpStream, request: [u8; REQUEST]) -> io::Result<()> {
    Task::of(&request).perform(0);
    stream.write_all(&request)
}

/// A short plan for that server.
fn plan(address: SocketAddr) -> Plan {
    let mut plan = Plan::new(address);
    plan.connections = 4;
    plan.seconds = 0.2;
    plan.warm_up = 0.05;
    plan
}

/// Sequence of a request, as the server sees it.
fn sequence(request: &[u8; REQUEST]) -> u64 {
    u64::from_le_bytes(request[5..13].try_into().unwrap())
}

/// A short plan of each pattern for that server.
fn plans(address: SocketAddr) -> impl Iterator<Item = Plan> {
    let change: [fn(&mut Plan); 6] = [
        |plan| (plan.pattern, plan.pipeline) = (Pattern::Closed, 4),
        |plan| (plan.pattern, plan.rate) = (Pattern::Open, Some(2000.0)),
        |plan| (plan.pattern, plan.first) = (Pattern::Pairs, Some(Task::SleepShort)),
        |plan| (plan.pattern, plan.idle, plan.size) = (Pattern::Bursts, Some(5), Some(3)),
        |plan| plan.pattern = Pattern::Churn,
        |plan| (plan.pattern, plan.slow) = (Pattern::SlowReader, Some(2)),
    ];
    change.into_iter().map(move |change| {
        let mut plan = plan(address);
        change(&mut plan);
        plan
    })
}

#[test]
fn every_pattern_is_answered_without_error() {
    for plan in plans(server(right)) {
        let load = run(&plan).unwrap();
        assert!(load.requests > 0 && load.errors == 0, "{plan:?}: {load:?}");
        assert!(
            load.latency.count > 0 && load.seconds >= 0.2,
            "{plan:?}: {load:?}"
        );
        assert!(load.client_cpu > 0.0, "{load:?}");
    }
}

/// Nothing of a slice is left when the next one begins, on the same connections.
#[test]
fn every_pattern_goes_on_after_a_slice() {
    for mut plan in plans(server(right)) {
        plan.in_slices = true;
        let mut answers = Vec::new();
        let orders = "slice 0.05 0.1\n".repeat(3);
        let sum = run_for(&plan, orders.as_bytes(), &mut answers).unwrap();
        let text = String::from_utf8(answers).unwrap();
        let (ready, slices) = text.split_once('\n').unwrap();
        assert_eq!(ready, READY);
        let slices: Vec<Load> = slices
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(slices.len(), 3);
        for load in &slices {
            assert!(
                load.latency.count > 0 && load.errors == 0,
                "{plan:?}: {load:?}"
            );
        }
        let requests = slices.iter().map(|load| load.requests).sum::<u64>();
        assert!(
            requests > 0 && sum.requests == requests,
            "{plan:?}: {sum:?}"
        );
    }
}

#[test]
fn the_focus_of_pairs_is_half_of_all_and_of_a_mix_the_plain_ones() {
    let address = server(right);
    let mut pairs = plan(address);
    (pairs.pattern, pairs.first) = (Pattern::Pairs, Some(Task::SleepLong));
    let load = run(&pairs).unwrap();
    assert_eq!(load.latency.count * 2, load.latency_of_all.count);
    assert!(load.latency_of_all.max >= 5000.0, "{load:?}");

    let mut mixed = plan(address);
    mixed.mix = "nothing=9,sleep-long=1".parse().unwrap();
    let load = run(&mixed).unwrap();
    assert!(load.latency.count < load.latency_of_all.count, "{load:?}");
    assert!(load.latency_of_all.max >= 5000.0, "{load:?}");
}

#[test]
fn the_server_is_looked_at_if_its_process_is_known() {
    let mut plan = plan(server(right));
    plan.pid = Some(process::id());
    let load = run(&plan).unwrap();
    assert!(
        load.server_cpu > 0.0 && load.memory > 0 && load.voluntary > 0,
        "{load:?}"
    );
}

#[test]
fn wrong_replies_are_counted() {
    let address = server(|stream, mut request| {
        if sequence(&request) % 10 == 9 {
            request[40] ^= 1;
        }
        stream.write_all(&request)
    });
    let load = run(&plan(address)).unwrap();
    let tenth = load.errors as f64 / load.requests as f64;
    assert!(tenth > 0.05 && load.errors > 0, "{load:?}");
}

#[test]
fn doubled_replies_are_counted() {
    let address = server(|stream, request| {
        stream.write_all(&request)?;
        if sequence(&request) == 3 {
            stream.write_all(&request)?;
        }
        Ok(())
    });
    let load = run(&plan(address)).unwrap();
    assert!(load.errors >= 4, "{load:?}");
}

#[test]
fn a_connection_that_ends_is_an_error_and_the_others_go_on() {
    let address = server(|stream, request| {
        if request[1] == 0 && sequence(&request) == 5 {
            return Err(io::ErrorKind::Other.into());
        }
        stream.write_all(&request)
    });
    let load = run(&plan(address)).unwrap();
    assert_eq!(load.errors, 1, "{load:?}");
    assert!(load.requests > 0);
}

#[test]
fn when_all_connections_are_lost_it_ends_at_once_and_says_so() {
    let address = server(|stream, request| {
        if sequence(&request) == 5 {
            return Err(io::ErrorKind::Other.into());
        }
        stream.write_all(&request)
    });
    let mut plan = plan(address);
    plan.seconds = 60.0;
    let begin = Instant::now();
    let error = run(&plan).unwrap_err();
    assert!(
        error.to_string().contains("all 4 connections were lost"),
        "{error}"
    );
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_server_that_stops_is_given_up_ten_seconds_after_the_end() {
    let address = server(|stream, request| {
        if sequence(&request) == 50 {
            thread::sleep(Duration::from_secs(60));
        }
        stream.write_all(&request)
    });
    let begin = Instant::now();
    let error = run(&plan(address)).unwrap_err();
    assert!(
        error.to_string().contains("4 replies are missing"),
        "{error}"
    );
    assert!(begin.elapsed() >= Duration::from_secs(10));
    assert!(begin.elapsed() < Duration::from_secs(20));
}

/// A server that stalls for 100 ms must not be judged by the few requests that it served: in an open loop, all requests
/// of that time waited.
#[test]
fn an_open_loop_counts_those_who_could_not_ask() {
    let address = server(|stream, request| {
        if sequence(&request) == 20 {
            thread::sleep(Duration::from_millis(100));
        }
        stream.write_all(&request)
    });
    let mut plan = plan(address);
    (plan.pattern, plan.rate) = (Pattern::Open, Some(1000.0));
    (plan.connections, plan.warm_up, plan.seconds) = (1, 0.0, 0.5);
    let load = run(&plan).unwrap();
    // Every tenth of a second has a hundred arrivals: a fifth of all waited, in the mean for half of the stall.
    assert!(load.latency.p99 > 50_000.0, "{load:?}");
}
