//! What is to be reached: the goals as data.
//!
//! A goal is a ratio, paceline / peer, of one quantity under one work, within the same rounds. The verdict on a goal
//! is made in `report/judge.rs`.

use crate::{
    record::{Place, Record, Slice},
    works::{self, Work},
};

use Place::{Apart, Together};
use Quantity::{Cpu, Max, Throughput, P50, P99};

/// The server that is to reach the goals.
pub(crate) const OURS: &str = "paceline";

/// Ours, where lines are asked for.
pub(crate) const SERVER: &str = "paceline-server";

/// Ours, where frames over TLS are.
pub(crate) const SERVER_TLS: &str = "paceline-server-tls";

/// What `idle` may find in bytes for each idle connection, with its session: a plain one, and one with TLS, with all
/// that rustls keeps.
pub(crate) const IDLE: [f64; 2] = [1024.0, 9.0 * 1024.0];

/// The same with a leader that looks again and again for a while before it sleeps.
const SPINNING: &str = "paceline-spin";

/// The longest wait of other events behind a handler that blocks without an announcement, in microseconds. It was set when the
/// bound was two ticks, with 100 for the wake. The bound is four and a half ticks now; the goal was kept.
const SURPRISE: f64 = 1100.0;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Replies per second.
    Throughput,
    /// The server's processor time per reply, in microseconds.
    Cpu,
    /// The median latency of the requests in focus, in microseconds.
    P50,
    /// What 99 of 100 of these latencies do not exceed.
    P99,
    /// What 999 of 1000 of them do not exceed.
    P999,
    /// The longest of them.
    Max,
    /// The server's voluntary switches per reply.
    Voluntary,
    /// The server's involuntary switches per reply.
    Involuntary,
    /// The server's resident memory, in bytes.
    Memory,
}

impl Quantity {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Quantity::Throughput => "throughput",
            Quantity::Cpu => "CPU/request",
            Quantity::P50 => "p50",
            Quantity::P99 => "p99",
            Quantity::P999 => "p99.9",
            Quantity::Max => "max",
            Quantity::Voluntary => "voluntary",
            Quantity::Involuntary => "involuntary",
            Quantity::Memory => "memory",
        }
    }

    /// Its value in one slice, if a slice has it.
    pub(crate) fn of_slice(self, slice: &Slice) -> Option<f64> {
        let requests = slice.requests as f64;
        match self {
            Quantity::Throughput => Some(requests / slice.seconds),
            Quantity::Cpu => Some(slice.server_cpu * 1e6 / requests),
            Quantity::P50 => slice.p50,
            Quantity::P99 => slice.p99,
            _ => None,
        }
    }

    /// Whether more of it is better.
    pub(crate) fn more_is_better(self) -> bool {
        self == Quantity::Throughput
    }

    /// Whether it is a latency.
    pub(crate) fn is_latency(self) -> bool {
        matches!(
            self,
            Quantity::P50 | Quantity::P99 | Quantity::P999 | Quantity::Max
        )
    }

    /// What a record says about it; nothing if there was no reply, or nothing was measured.
    pub(crate) fn of(self, record: &Record) -> Option<f64> {
        let load = &record.load;
        if load.requests == 0 || self.is_latency() && load.latency.count == 0 {
            return None;
        }
        let value = match self {
            Quantity::Throughput => load.throughput(),
            Quantity::Cpu => load.cpu_per_request(),
            Quantity::P50 => load.latency.p50,
            Quantity::P99 => load.latency.p99,
            Quantity::P999 => load.latency.p999,
            Quantity::Max => load.latency.max,
            Quantity::Voluntary => load.voluntary as f64 / load.requests as f64,
            Quantity::Involuntary => load.involuntary as f64 / load.requests as f64,
            Quantity::Memory => load.memory as f64,
        };
        value.is_finite().then_some(value)
    }
}

/// What a figure has to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// The bound at this value: more of a good quantity, less of a bad one.
    fn of(quantity: Quantity, value: f64) -> Bound {
        if quantity.more_is_better() {
            Bound::AtLeast(value)
        } else {
            Bound::AtMost(value)
        }
    }

    /// Where it is.
    pub(crate) fn value(self) -> f64 {
        match self {
            Bound::AtLeast(value) | Bound::AtMost(value) => value,
        }
    }

    /// Whether a figure keeps it.
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Bound::AtLeast(least) => figure >= least,
            Bound::AtMost(most) => figure <= most,
        }
    }
}

/// Which numbers of threads are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Any: the peer's best setting.
    Any,
    /// As many as ours.
    Equal,
    /// This many.
    Exactly(usize),
}

/// A peer: one or several servers, of which the best that ran counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// Its servers; if none is named, all that are not ours.
    pub(crate) servers: &'static [&'static str],
    /// With how many threads.
    pub(crate) threads: Threads,
    /// Which of our servers faces it.
    pub(crate) ours: &'static str,
}

impl Peer {
    /// A peer of some servers, in their best setting.
    const fn of(name: &'static str, servers: &'static [&'static str]) -> Peer {
        Peer {
            name,
            servers,
            threads: Threads::Any,
            ours: OURS,
        }
    }

    /// The same with these threads.
    const fn threads(self, threads: Threads) -> Peer {
        Peer { threads, ..self }
    }

    /// The same, with another server of ours to face it.
    const fn facing(self, ours: &'static str) -> Peer {
        Peer { ours, ..self }
    }
}

/// What a goal is measured by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Against {
    /// The ratio to a peer.
    Peer(Peer),
    /// The ratio to ourselves, under another work or in another place.
    Itself(&'static str, Place),
    /// No ratio: the quantity itself, in its unit.
    Nothing,
}

/// One goal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Our work.
    pub(crate) work: &'static str,
    /// Where server and client run.
    pub(crate) place: Place,
    /// What it is measured by.
    pub(crate) against: Against,
    /// What is compared.
    pub(crate) quantity: Quantity,
    /// What is to be kept.
    pub(crate) bound: Bound,
}

impl Goal {
    /// Which of our servers is to reach it.
    pub(crate) fn ours(&self) -> &'static str {
        match self.against {
            Against::Peer(peer) => peer.ours,
            Against::Itself(..) | Against::Nothing => works::ours_of(self.work),
        }
    }

    /// Whether a measurement of this server is needed to judge it. Of "all peers" it is the usual ones.
    pub(crate) fn needs(&self, work: &Work, place: Place, server: &str) -> bool {
        let here = work.name == self.work && place == self.place;
        match self.against {
            Against::Peer(peer) if here => {
                let usual = peer.servers.is_empty() && work.default.contains(&server);
                server == peer.ours || usual || peer.servers.contains(&server)
            }
            Against::Itself(other, there) => {
                (here || work.name == other && place == there) && server == self.ours()
            }
            _ => here && server == self.ours(),
        }
    }
}

/// All goals, in the order of the table.
pub(crate) fn goals() -> impl Iterator<Item = Goal> {
    TABLE.iter().flat_map(Row::goals)
}

/// A row of the table: what is to be reached against one peer.
struct Row(&'static str, Place, Against, &'static [(Quantity, f64)]);

impl Row {
    /// The row's goals.
    fn goals(&self) -> impl Iterator<Item = Goal> + '_ {
        let Row(work, place, against, bounds) = *self;
        bounds.iter().map(move |&(quantity, value)| Goal {
            work,
            place,
            against,
            quantity,
            bound: Bound::of(quantity, value),
        })
    }
}

/// The bare loop: one thread, nothing but epoll.
const BARE: Peer = Peer::of("bare loop", &["bare"]);
/// Tokio with its handlers inline.
const TOKIO: Peer = Peer::of("tokio, best setting", &["tokio", "tokio-eager"]);
/// Tokio with its handlers on threads for blocking.
const SPAWN_BLOCKING: Peer = Peer::of("tokio spawn_blocking", &["tokio-blocking"]);
/// Tokio in whatever way is best.
const ANY_TOKIO: Peer = Peer::of(
    "tokio, best of all ways",
    &["tokio", "tokio-eager", "tokio-blocking", "tokio-in-place"],
);
/// The pattern as the books have it.
const TEXTBOOK: Peer = Peer::of("textbook", &["textbook"]);
/// The same with the number of threads that the goal names.
const TEXTBOOK_8: Peer =
    Peer::of("textbook, 8 threads", &["textbook"]).threads(Threads::Exactly(8));
/// The same with as many threads as ours.
const EQUAL_TEXTBOOK: Peer =
    Peer::of("textbook, as many threads", &["textbook"]).threads(Threads::Equal);
/// One thread that reads, and a queue to many that work.
const HALF_SYNC: Peer = Peer::of("half-sync, best setting", &["half-sync"]);
/// The same with as many threads as ours.
const EQUAL_HALF_SYNC: Peer =
    Peer::of("half-sync, as many threads", &["half-sync"]).threads(Threads::Equal);
/// Boost.Asio.
const ASIO: Peer = Peer::of("Boost.Asio, best setting", &["asio", "asio-2"]);
/// ACE.
const ACE: Peer = Peer::of(
    "ACE, best setting",
    &["ace-tp", "ace-tp-2", "ace-dev-poll", "ace-dev-poll-2"],
);
/// Every server that is not ours.
const ALL: Peer = Peer::of("best of all peers", &[]);

/// Lines by a handler on the pool, which splits them itself.
const BARE_LINES: Peer = Peer::of("bare handler", &["bare-lines"]).facing(SERVER);
/// Lines by tokio's codec.
const TOKIO_LINES: Peer = Peer::of("tokio, LinesCodec", &["tokio-lines"]).facing(SERVER);
/// The same sessions on the other engine.
const HALF_SYNC_LINES: Peer =
    Peer::of("half-sync engine", &["paceline-server-half-sync"]).facing(SERVER);
/// TLS by tokio.
const TOKIO_TLS: Peer = Peer::of("tokio-rustls", &["tokio-tls"]).facing(SERVER_TLS);

/// To a peer.
const fn to(peer: Peer) -> Against {
    Against::Peer(peer)
}

/// To ourselves under another work, apart.
const fn itself(work: &'static str) -> Against {
    Against::Itself(work, Apart)
}

/// The same together.
const fn itself_together(work: &'static str) -> Against {
    Against::Itself(work, Together)
}

/// The spread that `mostly-idle-*` and `threads-*` may have.
const OVER_CONNECTIONS: &[(Quantity, f64)] = &[(Throughput, 0.95), (Cpu, 1.05)];
/// See [`OVER_CONNECTIONS`].
const OVER_THREADS: &[(Quantity, f64)] = &[(Throughput, 0.97), (Cpu, 1.03)];
/// Together, we are never behind tokio.
const NOT_BEHIND: &[(Quantity, f64)] = &[(Throughput, 1.0)];

/// The table of goals.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row("short-requests", Apart, to(BARE), &[(Throughput, 1.0), (Cpu, 1.0), (P99, 1.0)]),
    Row("short-requests", Apart, to(TOKIO), &[(Throughput, 1.08), (Cpu, 0.88), (P99, 0.9)]),
    Row("short-requests", Together, to(TOKIO), &[(Throughput, 1.25)]),
    Row("short-requests", Apart, to(TEXTBOOK_8), &[(Throughput, 1.25), (Cpu, 0.78)]),
    Row("short-requests", Together, to(TEXTBOOK_8), &[(Throughput, 1.7)]),
    Row("short-requests", Apart, to(HALF_SYNC), &[(Throughput, 1.35), (Cpu, 0.66)]),
    Row("short-requests", Together, to(HALF_SYNC), &[(Throughput, 1.25)]),
    Row("short-requests", Apart, to(ASIO), &[(Throughput, 1.25), (Cpu, 0.7)]),
    Row("short-requests", Apart, to(ACE), &[(Throughput, 5.0), (Cpu, 0.2)]),
    Row("pipelined", Together, to(TOKIO), NOT_BEHIND),
    Row("one-connection", Apart, to(BARE), &[(Throughput, 1.0), (P50, 0.8)]),
    Row("one-connection", Apart, to(TOKIO), &[(Throughput, 1.0), (P50, 0.8)]),
    Row("one-connection", Together, to(TOKIO), NOT_BEHIND),
    Row("one-connection", Apart, to(BARE.facing(SPINNING)), &[(P50, 0.4)]),
    Row("one-connection", Apart, to(TOKIO.facing(SPINNING)), &[(P50, 0.4)]),
    Row("announced-blocking", Apart, to(EQUAL_HALF_SYNC), &[(Throughput, 1.2), (Cpu, 0.75), (P99, 1.0)]),
    Row("announced-blocking", Apart, to(EQUAL_TEXTBOOK), &[(Throughput, 1.2), (Cpu, 0.75), (P99, 1.0)]),
    Row("announced-blocking", Together, to(EQUAL_HALF_SYNC), &[(Throughput, 1.2)]),
    Row("announced-blocking", Together, to(EQUAL_TEXTBOOK), &[(Throughput, 1.2)]),
    Row("announced-blocking", Together, to(ANY_TOKIO), NOT_BEHIND),
    Row("unannounced-blocking", Apart, to(EQUAL_HALF_SYNC), &[(Throughput, 1.1), (Cpu, 0.82), (P99, 1.1)]),
    Row("unannounced-blocking", Apart, to(EQUAL_TEXTBOOK), &[(Throughput, 1.1), (Cpu, 0.82), (P99, 1.1)]),
    Row("unannounced-blocking", Together, to(EQUAL_HALF_SYNC), &[(Throughput, 1.05)]),
    Row("unannounced-blocking", Together, to(EQUAL_TEXTBOOK), &[(Throughput, 1.05)]),
    Row("unannounced-blocking", Apart, to(TOKIO), &[(Throughput, 4.0), (P99, 0.15)]),
    Row("unannounced-blocking", Apart, to(SPAWN_BLOCKING), &[(Throughput, 1.2), (P99, 1.0)]),
    Row("unannounced-blocking", Together, to(ANY_TOKIO), NOT_BEHIND),
    Row("all-sleep", Apart, to(ALL), &[(Throughput, 1.05), (Cpu, 1.0), (P99, 1.0)]),
    Row("all-sleep", Together, to(ANY_TOKIO), NOT_BEHIND),
    Row("all-compute", Apart, to(ALL), &[(Throughput, 1.0), (Cpu, 1.0)]),
    Row("all-compute", Apart, to(TOKIO), &[(P99, 0.6)]),
    Row("all-compute", Together, to(TOKIO), NOT_BEHIND),
    // The server on all cores, which it shares with the client, against one: the sharing is to our disadvantage.
    Row("all-compute", Together, itself("all-compute"), &[(Throughput, 1.8)]),
    // The same where the client takes little of a core: what is left is the server's own scaling.
    Row("all-compute-pipelined", Together, itself("all-compute-pipelined"), &[(Throughput, 1.8)]),
    Row("all-compute-pipelined", Together, to(TOKIO), NOT_BEHIND),
    Row("connections-512", Apart, to(BARE), &[(Throughput, 1.0)]),
    Row("connections-512", Apart, to(TOKIO), &[(Throughput, 1.3)]),
    Row("connections-4000", Apart, to(BARE), &[(Throughput, 1.0)]),
    Row("connections-4000", Apart, to(TOKIO), &[(Throughput, 1.3)]),
    Row("pairs", Apart, to(TEXTBOOK), &[(P50, 0.5)]),
    Row("pairs-first-blocks", Apart, Against::Nothing, &[(P99, SURPRISE), (Max, SURPRISE)]),
    Row("bursts", Apart, to(TOKIO), &[(P99, 1.0)]),
    Row("mostly-idle-1000", Apart, itself("mostly-idle-100"), OVER_CONNECTIONS),
    Row("mostly-idle-10000", Apart, itself("mostly-idle-100"), OVER_CONNECTIONS),
    Row("mostly-idle-19000", Apart, itself("mostly-idle-100"), OVER_CONNECTIONS),
    Row("threads-16", Apart, itself("threads-4"), OVER_THREADS),
    Row("threads-64", Apart, itself("threads-4"), OVER_THREADS),
    Row("slow-handler", Together, to(TOKIO), NOT_BEHIND),
    Row("churn", Apart, to(BARE), &[(Throughput, 1.0)]),
    Row("lines", Apart, to(BARE_LINES), &[(Cpu, 1.1)]),
    Row("lines", Apart, to(TOKIO_LINES), &[(Cpu, 0.95)]),
    // Both engines serve the same sessions: the usual one is to be the cheaper one.
    Row("lines", Apart, to(HALF_SYNC_LINES), &[(Cpu, 1.0)]),
    Row("lines-blocking", Apart, to(TOKIO_LINES), &[(P99, 0.3)]),
    Row("tls", Apart, to(TOKIO_TLS), &[(Cpu, 0.98)]),
    Row("beside-1000", Together, itself_together("beside-none"), &[(P99, 1.1)]),
    Row("beside-1000", Apart, itself("beside-none"), &[(P99, 1.1)]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{servers, works};

    #[test]
    fn bounds_point_to_the_good_side() {
        assert!(Bound::of(Throughput, 1.25).holds(1.25));
        assert!(!Bound::of(Throughput, 1.25).holds(1.249_999));
        assert!(Bound::of(Cpu, 0.88).holds(0.88));
        assert!(!Bound::of(P99, 0.88).holds(0.880_001));
    }

    #[test]
    fn what_is_no_number_keeps_no_bound() {
        assert!(!Bound::AtLeast(1.0).holds(f64::NAN));
        assert!(!Bound::AtMost(1.0).holds(f64::NAN));
    }

    #[test]
    fn the_table_has_no_goal_twice() {
        let name = |goal: Goal| format!("{goal:?}");
        let mut names: Vec<String> = goals().map(name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// A goal that nothing can be measured for would stay open for ever.
    #[test]
    fn every_goal_can_be_measured() {
        for goal in goals() {
            let needed = |server: &str| {
                let at = |work: &Work| work.places.iter().any(|&at| goal.needs(work, at, server));
                works::ALL.iter().any(at) && servers::find(server).is_some()
            };
            assert!(needed(goal.ours()), "{goal:?}");
            if let Against::Peer(peer) = goal.against {
                assert!(peer.servers.iter().all(|name| needed(name)), "{goal:?}");
            }
        }
    }

    #[test]
    fn every_bound_is_positive() {
        assert!(goals().all(|goal| goal.bound.value() > 0.0));
    }
}
