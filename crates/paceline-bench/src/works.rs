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
    /// Works of one family are measured in the same rounds, because they are compared with each other:
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
        name: "short-requests",
        about: "64 connections, short requests",
        threads: 8,
        announced: false,
        load: &["--connections", "64"],
        places: BOTH,
        servers: Entrants::All,
        default: &["paceline", "bare", "tokio", "textbook", "half-sync", "asio-2", "ace-tp-2"],
        rate: None,
    },
    open("open-50", "64 connections, short requests, open loop at 50 % of the slowest server's peak", 0.5),
    open("open-80", "64 connections, short requests, open loop at 80 % of the slowest server's peak", 0.8),
    Work {
        name: "pipelined",
        about: "64 connections, 16 short requests in flight on each",
        threads: 8,
        announced: false,
        load: &["--connections", "64", "--pipeline", "16"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "one-connection",
        about: "one connection, one short request after the other",
        threads: 8,
        announced: false,
        load: &["--connections", "1"],
        places: BOTH,
        servers: Entrants::PeersAnd(&["paceline-spin"]),
        default: &["paceline", "paceline-spin", "bare", "tokio"],
        rate: None,
    },
    Work {
        name: "announced-blocking",
        about: "64 connections, one request in a hundred sleeps 5 ms, and the handler says so",
        threads: 16,
        announced: true,
        load: ONE_IN_A_HUNDRED_SLEEPS,
        places: BOTH,
        servers: Entrants::All,
        default: &["paceline", "textbook", "half-sync"],
        rate: None,
    },
    Work {
        name: "unannounced-blocking",
        about: "the same, and the handler does not say so",
        threads: 16,
        announced: false,
        load: ONE_IN_A_HUNDRED_SLEEPS,
        places: BOTH,
        servers: Entrants::All,
        default: &["paceline", "textbook", "half-sync", "tokio", "tokio-blocking"],
        rate: None,
    },
    Work {
        name: "all-sleep",
        about: "64 connections, every request sleeps 200 us",
        threads: 32,
        announced: false,
        load: &["--connections", "64", "--mix", "sleep-short=1"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &["paceline", "textbook", "half-sync", "tokio-blocking"],
        rate: None,
    },
    Work {
        name: "all-compute",
        about: "64 connections, every request computes 20 us",
        threads: 8,
        announced: false,
        load: &["--connections", "64", "--mix", "compute=1"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &["paceline", "bare", "tokio", "half-sync"],
        rate: None,
    },
    Work {
        name: "all-compute-pipelined",
        about: "64 connections, 16 requests in flight on each, every request computes 20 us: the client needs little of a core",
        threads: 8,
        announced: false,
        load: &["--connections", "64", "--pipeline", "16", "--mix", "compute=1"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "connections-512",
        about: "512 connections, short requests",
        threads: 8,
        announced: false,
        load: &["--connections", "512"],
        places: APART,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "connections-4000",
        about: "4,000 connections, short requests",
        threads: 8,
        announced: false,
        load: &["--connections", "4000"],
        places: APART,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "pairs",
        about: "two short requests at once: how long the second takes",
        threads: 8,
        announced: false,
        load: &["--connections", "8", "--pattern", "pairs"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "pairs-first-blocks",
        about: "two requests at once, the first sleeps 5 ms without an announcement: how long the second takes",
        threads: 8,
        announced: false,
        load: &["--connections", "8", "--pattern", "pairs", "--first", "sleep-long"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "bursts",
        about: "16 requests at once after 50 ms of silence: how long the first reply takes",
        threads: 8,
        announced: false,
        load: &["--connections", "16", "--pattern", "bursts", "--idle", "50", "--size", "16"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    connections("mostly-idle-100", "100 connections, all active", &["--connections", "100", "--active", "100"]),
    connections("mostly-idle-1000", "1,000 connections, 100 active", &["--connections", "1000", "--active", "100"]),
    connections("mostly-idle-10000", "10,000 connections, 100 active", &["--connections", "10000", "--active", "100"]),
    connections("mostly-idle-19000", "19,000 connections, 100 active", &["--connections", "19000", "--active", "100"]),
    threads("threads-4", "short requests with 4 threads", 4),
    threads("threads-16", "short requests with 16 threads", 16),
    threads("threads-64", "short requests with 64 threads", 64),
    Work {
        name: "churn",
        about: "connect, one request, close: 16 at a time",
        threads: 8,
        announced: false,
        load: &["--connections", "16", "--pattern", "churn"],
        places: APART,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "slow-reader",
        about: "64 connections, short requests, beside 8 that read slowly",
        threads: 8,
        announced: false,
        load: &["--connections", "64", "--pattern", "slow-reader", "--slow", "8"],
        places: APART,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "slow-handler",
        about: "64 connections, one request in ten computes 20 us",
        threads: 8,
        announced: false,
        load: &["--connections", "64", "--mix", "nothing=9,compute=1"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
    },
    Work {
        name: "all-busy",
        about: "256 connections, every request sleeps 5 ms: all threads are busy, events wait in the sockets",
        threads: 16,
        announced: false,
        load: &["--connections", "256", "--mix", "sleep-long=1"],
        places: APART,
        servers: Entrants::Peers,
        default: &[],
        rate: None,
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
    framed("tls", "64 connections with TLS, short requests", TLS, &["--tls", "--connections", "64"]),
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

/// A work of lines, or of TLS.
const fn framed(
    name: &'static str,
    about: &'static str,
    servers: Entrants,
    load: &'static [&'static str],
) -> Work {
    Work {
        name,
        about,
        threads: 8,
        announced: false,
        load,
        places: BOTH,
        servers,
        default: &[],
        rate: None,
    }
}

/// `short-requests` as an open loop: latencies run from the intended start.
const fn open(name: &'static str, about: &'static str, rate: f64) -> Work {
    Work {
        name,
        about,
        threads: 8,
        announced: false,
        load: &["--connections", "64", "--pattern", "open"],
        places: BOTH,
        servers: Entrants::Peers,
        default: &[],
        rate: Some(rate),
    }
}

/// A work that compares paceline with itself: many connections, few of them active.
const fn connections(
    name: &'static str,
    about: &'static str,
    load: &'static [&'static str],
) -> Work {
    Work {
        name,
        about,
        threads: 8,
        announced: false,
        load,
        places: APART,
        servers: OURS,
        default: &[],
        rate: None,
    }
}

/// A work that compares paceline with itself: more threads than are needed.
const fn threads(name: &'static str, about: &'static str, threads: usize) -> Work {
    Work {
        name,
        about,
        threads,
        announced: false,
        load: &["--connections", "64"],
        places: APART,
        servers: OURS,
        default: &[],
        rate: None,
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
