//! Made-up records, for tests.

use crate::{
    random::Random,
    record::{Latency, Load, Machine, Place, Record, Run},
};

/// A clean measurement of 3 s with 4 threads, apart, with this throughput; the rest follows from it.
pub(super) fn record(work: &str, server: &str, round: usize, throughput: f64) -> Record {
    Record {
        work: work.to_owned(),
        server: server.to_owned(),
        threads: 4,
        place: Place::Apart,
        round,
        load: load(throughput, 5.0, 300.0),
        distance: None,
        clean: true,
        slices: None,
    }
}

/// A run of these measurements.
pub(super) fn run_of(records: Vec<Record>) -> Run {
    let machine = Machine {
        processor: "A processor @ 2.10GHz".to_owned(),
        cores: 2,
        kernel: "6.1.0".to_owned(),
        compiler: "rustc 1.95.0".to_owned(),
    };
    Run {
        machine,
        source: "0123abc, 2026-11-15".to_owned(),
        command: "paceline-bench run --rounds 7".to_owned(),
        records,
        counted: Vec::new(),
        absent: Vec::new(),
    }
}

/// A run in which the measurements of a round follow each other.
pub(super) fn by_rounds(mut records: Vec<Record>) -> Run {
    records.sort_by_key(|record| record.round);
    run_of(records)
}

/// What a client saw that got so many replies per second, at this cost and with this p99 in microseconds.
fn load(throughput: f64, cpu: f64, p99: f64) -> Load {
    let requests = (throughput * 3.0) as u64;
    let latency = Latency {
        count: requests,
        p50: p99 * 0.6,
        p99,
        p999: p99 * 1.7,
        max: p99 * 9.0,
    };
    Load {
        requests,
        seconds: 3.0,
        latency,
        latency_of_all: latency,
        errors: 0,
        server_cpu: requests as f64 * cpu / 1e6,
        voluntary: requests / 25,
        involuntary: requests / 900,
        client_cpu: 2.9,
        foreign: 0.03,
        memory: 4 << 20,
    }
}

/// Servers as a prototype's measurements had them for `short-requests`: name, threads, replies per second in thousands,
/// microseconds of processor time per reply, p99 in microseconds.
const SERVERS: [(&str, usize, f64, f64, f64); 13] = [
    ("paceline", 16, 188.0, 4.5, 420.0),
    ("paceline-eager", 16, 107.0, 9.6, 900.0),
    ("paceline-oneshot", 16, 150.0, 6.0, 600.0),
    ("bare", 1, 187.0, 4.6, 425.0),
    ("textbook", 8, 107.0, 10.1, 1360.0),
    ("half-sync", 16, 138.0, 7.2, 800.0),
    ("shared-epoll", 8, 125.0, 7.8, 700.0),
    ("tokio", 2, 158.0, 5.6, 610.0),
    ("tokio-eager", 2, 163.0, 5.5, 570.0),
    ("may", 2, 149.0, 5.9, 640.0),
    ("asio", 2, 155.0, 6.6, 650.0),
    ("ace-tp", 4, 15.0, 56.0, 9000.0),
    ("thread-per-connection", 64, 96.0, 10.5, 2100.0),
];

/// Works, each with the factor by which it is slower than `short-requests`.
const WORKS: [(&str, f64); 15] = [
    ("short-requests", 1.0),
    ("one-connection", 12.0),
    ("announced-blocking", 1.2),
    ("unannounced-blocking", 1.3),
    ("all-sleep", 2.3),
    ("connections-512", 1.1),
    ("connections-4000", 1.3),
    ("mostly-idle-100", 1.0),
    ("mostly-idle-1000", 1.01),
    ("mostly-idle-10000", 1.03),
    ("mostly-idle-19000", 1.06),
    ("threads-4", 1.0),
    ("threads-16", 1.01),
    ("threads-64", 1.02),
    ("churn", 6.0),
];

/// A run of many works and servers, with noise, and with a disturbed measurement now and then.
pub(super) fn noisy_run(rounds: usize) -> Run {
    let mut random = Random::from_seed(7);
    let mut records = Vec::new();
    for round in 0..rounds {
        for (work, factor) in WORKS {
            for place in [Place::Apart, Place::Together] {
                let one = |server| noisy(&mut random, work, factor, place, round, server);
                records.extend(SERVERS.iter().map(one));
            }
        }
    }
    let mut run = run_of(records);
    run.absent = vec!["ace-dev-poll: the library is not installed".to_owned()];
    run
}

/// A measurement with noise.
fn noisy(
    random: &mut Random,
    work: &str,
    factor: f64,
    place: Place,
    round: usize,
    &(server, threads, throughput, cpu, p99): &(&str, usize, f64, f64, f64),
) -> Record {
    let mut noise = || 0.95 + random.below(1000) as f64 / 1e4;
    let mut made = record(work, server, round, 0.0);
    made.load = load(
        throughput * 1e3 * noise() / factor,
        cpu * noise() * factor.sqrt(),
        p99 * noise() * factor,
    );
    made.clean = random.below(12) > 0;
    Record {
        threads,
        place,
        ..made
    }
}
