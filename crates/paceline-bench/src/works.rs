//! The works: the requests to a server, the number of connections, and the number of threads.

use crate::{goals, record::Place, servers::Server};

/// One work of the catalogue.
#[derive(Debug)]
pub(crate) struct Work {
    /// What it is called on the command line and in reports.
    pub(crate) name: &'static str,
    /// What it is, in a line.
    pub(crate) about: &'static str,
    /// How many threads a server is given, where that can be chosen.
    pub(crate) threads: usize,
    /// Whether handlers say beforehand that they will block.
    pub(crate) announced: bool,
    /// The words for `load`.
    pub(crate) load: &'static [&'static str],
    /// Where it is measured.
    pub(crate) places: &'static [Place],
    /// The servers that are compared.
    pub(crate) servers: Entrants,
    /// The servers of the default subset; empty if the work is not in it.
    pub(crate) default: &'static [&'static str],
    /// For an open loop: its rate, as a part of the slowest server's peak for `short-requests`.
    pub(crate) rate: Option<f64>,
}

impl Work {
    /// Works of one family are compared with each other, so they are measured in the same rounds:
    /// `mostly-idle`, `threads` and `beside`.
    pub(crate) fn family(&self) -> &'static str {
        match self.name.rsplit_once('-') {
            Some((family @ ("mostly-idle" | "threads" | "beside"), _)) => family,
            _ => self.name,
        }
    }

    /// The server that is to reach the goals of this work: the first of those that are named.
    pub(crate) fn ours(&self) -> &'static str {
        match self.servers {
            Entrants::Only([first, ..]) => first,
            _ => goals::OURS,
        }
    }

    /// How many threads `server` has.
    pub(crate) fn threads_of(&self, server: &Server) -> usize {
        server.threads.unwrap_or(self.threads)
    }
}

/// The servers that are compared in a whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entrants {
    /// Every server of the catalogue.
    All,
    /// Every peer, and paceline in its default form.
    Peers,
    /// The same, and these.
    PeersAnd(&'static [&'static str]),
    /// These.
    Only(&'static [&'static str]),
}

const APART: &[Place] = &[Place::Apart];
const BOTH: &[Place] = &[Place::Apart, Place::Together];
const OURS: Entrants = Entrants::Only(&["paceline"]);

/// A request sleeps 5 ms, the others do nothing.
const ONE_IN_A_HUNDRED_SLEEPS: &[&str] =
    &["--connections", "64", "--mix", "nothing=99,sleep-long=1"];

/// Lines, by each way that there is.
const LINES: Entrants = Entrants::Only(&[
    goals::SERVER,
    "bare-lines",
    "tokio-lines",
    "paceline-server-half-sync",
]);
/// Frames over TLS.
const TLS: Entrants = Entrants::Only(&[goals::SERVER_TLS, "tokio-tls"]);
/// Lines, and clients that may be slow.
const PATIENT: Entrants = Entrants::Only(&["paceline-server-patient"]);

/// Every work, in the order in which they are run.
pub(crate) const ALL: &[Work] = &[
    Work {
        servers: Entrants::All,
        default: &["paceline", "bare", "tokio", "textbook", "half-sync", "asio-2", "ace-tp-2"],
        ..work("short-requests", "64 connections, short requests", &["--connections", "64"])
    },
    open(
        "open-50",
        "64 connections, short requests, open loop at 50 % of the slowest server's peak",
        0.5,
    ),
    open(
        "open-80",
        "64 connections, short requests, open loop at 80 % of the slowest server's peak",
        0.8,
    ),
    work(
        "pipelined",
        "64 connections, 16 short requests in flight on each",
        &["--connections", "64", "--pipeline", "16"],
    ),
    Work {
        servers: Entrants::PeersAnd(&["paceline-spin"]),
        default: &["paceline", "paceline-spin", "bare", "tokio"],
        ..work(
            "one-connection",
            "one connection, one short request after the other",
            &["--connections", "1"],
        )
    },
    Work {
        threads: 16,
        announced: true,
        servers: Entrants::All,
        default: &["paceline", "textbook", "half-sync"],
        ..work(
            "announced-blocking",
            "64 connections, one request in a hundred sleeps 5 ms, announced",
            ONE_IN_A_HUNDRED_SLEEPS,
        )
    },
    Work {
        threads: 16,
        servers: Entrants::All,
        default: &["paceline", "textbook", "half-sync", "tokio", "tokio-blocking"],
        ..work("unannounced-blocking", "the same, without an announcement", ONE_IN_A_HUNDRED_SLEEPS)
    },
    Work {
        threads: 32,
        default: &["paceline", "textbook", "half-sync", "tokio-blocking"],
        ..work(
            "all-sleep",
            "64 connections, every request sleeps 200 us",
            &["--connections", "64", "--mix", "sleep-short=1"],
        )
    },
    Work {
        default: &["paceline", "bare", "tokio", "half-sync"],
        ..work(
            "all-compute",
            "64 connections, every request computes 20 us",
            &["--connections", "64", "--mix", "compute=1"],
        )
    },
    work(
        "all-compute-pipelined",
        "64 connections, 16 requests in flight on each, every request computes 20 us",
        &["--connections", "64", "--pipeline", "16", "--mix", "compute=1"],
    ),
    Work {
        places: APART,
        ..work("connections-512", "512 connections, short requests", &["--connections", "512"])
    },
    Work {
        places: APART,
        ..work("connections-4000", "4,000 connections, short requests", &["--connections", "4000"])
    },
    work(
        "pairs",
        "two short requests at once: how long the second takes",
        &["--connections", "8", "--pattern", "pairs"],
    ),
    work(
        "pairs-first-blocks",
        "two requests at once, the first sleeps 5 ms without an announcement: latency of the second",
        &["--connections", "8", "--pattern", "pairs", "--first", "sleep-long"],
    ),
    work(
        "bursts",
        "16 requests at once after 50 ms of silence: how long the first reply takes",
        &["--connections", "16", "--pattern", "bursts", "--idle", "50", "--size", "16"],
    ),
    connections(
        "mostly-idle-100",
        "100 connections, all active",
        &["--connections", "100", "--active", "100"],
    ),
    connections(
        "mostly-idle-1000",
        "1,000 connections, 100 active",
        &["--connections", "1000", "--active", "100"],
    ),
    connections(
        "mostly-idle-10000",
        "10,000 connections, 100 active",
        &["--connections", "10000", "--active", "100"],
    ),
    connections(
        "mostly-idle-19000",
        "19,000 connections, 100 active",
        &["--connections", "19000", "--active", "100"],
    ),
    threads("threads-4", "short requests with 4 threads", 4),
    threads("threads-16", "short requests with 16 threads", 16),
    threads("threads-64", "short requests with 64 threads", 64),
    Work {
        places: APART,
        ..work(
            "churn",
            "connect, one request, close: 16 at a time",
            &["--connections", "16", "--pattern", "churn"],
        )
    },
    Work {
        places: APART,
        ..work(
            "slow-reader",
            "64 connections, short requests, beside 8 that read slowly",
            &["--connections", "64", "--pattern", "slow-reader", "--slow", "8"],
        )
    },
    work(
        "slow-handler",
        "64 connections, one request in ten computes 20 us",
        &["--connections", "64", "--mix", "nothing=9,compute=1"],
    ),
    Work {
        threads: 16,
        places: APART,
        ..work(
            "all-busy",
            "256 connections, every request sleeps 5 ms: all threads are busy",
            &["--connections", "256", "--mix", "sleep-long=1"],
        )
    },
    framed("lines", "64 connections, short lines", LINES, &["--lines", "--connections", "64"]),
    framed(
        "lines-pipelined",
        "64 connections, 16 short lines in flight on each",
        LINES,
        &["--lines", "--connections", "64", "--pipeline", "16"],
    ),
    Work {
        threads: 16,
        ..framed(
            "lines-blocking",
            "64 connections, one line in a hundred sleeps 5 ms without an announcement",
            LINES,
            &["--lines", "--connections", "64", "--mix", "nothing=99,sleep-long=1"],
        )
    },
    framed(
        "tls",
        "64 connections with TLS, short requests",
        TLS,
        &["--tls", "--connections", "64"],
    ),
    framed(
        "tls-churn",
        "connect, a full TLS handshake, one request, close: 16 at a time",
        TLS,
        &["--tls", "--connections", "16", "--pattern", "churn"],
    ),
    Work {
        threads: 4,
        ..framed(
            "beside-none",
            "64 connections, short lines, 4 threads",
            PATIENT,
            &["--lines", "--connections", "64"],
        )
    },
    Work {
        threads: 4,
        ..framed(
            "beside-1000",
            "the same beside 1,000 clients that send and read a byte a second",
            PATIENT,
            &["--lines", "--connections", "64", "--pattern", "slow-client", "--slow", "1000"],
        )
    },
];

/// A work with 8 threads, in both places, for every peer.
const fn work(name: &'static str, about: &'static str, load: &'static [&'static str]) -> Work {
    Work {
        name,
        about,
        threads: 8,
        announced: false,
        load,
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    }
}

/// A work of lines, or of TLS.
const fn framed(
    name: &'static str,
    about: &'static str,
    servers: Entrants,
    load: &'static [&'static str],
) -> Work {
    Work {
        servers,
        ..work(name, about, load)
    }
}

/// `short-requests` as an open loop: latencies run from the intended start.
const fn open(name: &'static str, about: &'static str, rate: f64) -> Work {
    Work {
        rate: Some(rate),
        ..work(name, about, &["--connections", "64", "--pattern", "open"])
    }
}

/// A work that compares paceline with itself: many connections, few of them active.
const fn connections(
    name: &'static str,
    about: &'static str,
    load: &'static [&'static str],
) -> Work {
    Work {
        places: APART,
        servers: OURS,
        ..work(name, about, load)
    }
}

/// A work that compares paceline with itself: more threads than are needed.
const fn threads(name: &'static str, about: &'static str, threads: usize) -> Work {
    Work {
        threads,
        ..connections(name, about, &["--connections", "64"])
    }
}

/// The server that is to reach the goals of the work of this name.
pub(crate) fn ours_of(name: &str) -> &'static str {
    find(name).map_or(goals::OURS, Work::ours)
}

/// The work of this name.
pub(crate) fn find(name: &str) -> Option<&'static Work> {
    ALL.iter().find(|work| work.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers;

    /// A name without a server would silently shorten the comparison.
    #[test]
    fn every_server_that_is_named_exists() {
        for work in ALL {
            let only = match work.servers {
                Entrants::Only(names) | Entrants::PeersAnd(names) => names,
                Entrants::All | Entrants::Peers => &[],
            };
            for name in work.default.iter().chain(only) {
                assert!(servers::find(name).is_some(), "{}: {name}", work.name);
            }
        }
    }

    /// Works are found by their names, so these are distinct.
    #[test]
    fn names_are_distinct() {
        for work in ALL {
            let found = find(work.name).map(|found| found.about);
            assert_eq!(found, Some(work.about));
        }
    }
}
