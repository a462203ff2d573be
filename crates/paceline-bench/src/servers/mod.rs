//! The servers: all offer the same service, each by its own means.
//!
//! ```text
//!  ALL: name, about, means      [Server]
//!        |- Here      a function: takes the listener, serves for ever
//!        '- Program   built on demand, takes this process's place    [crate::peers]
//!
//!  written by hand:  bare, textbook, shared_epoll, half_sync, threads
//!     on             door (accepts), epoll, slots (by descriptor), peer (one connection)
//!  by libraries:     paceline, tokio, may
//!
//!  FRAMED: lines, and frames over TLS: framework (paceline-server), bare_lines, tokio_codec
//! ```

// `tokio_unstable` is given only to the second build, of the server `tokio-eager`.
#![allow(unexpected_cfgs)]

mod bare;
mod bare_lines;
pub(crate) mod counts;
mod door;
mod epoll;
mod framework;
mod half_sync;
mod may;
mod paceline;
mod peer;
mod shared_epoll;
mod slots;
mod textbook;
mod threads;
pub(crate) mod tokio;
mod tokio_codec;

use std::{io, net::TcpListener, thread};

use crate::peers::{Program, ACE_DEV_POLL, ACE_TP, ASIO};
pub(crate) use crate::service::steps_of_20us;
pub(crate) use bare_lines::whole_lines;

/// The settings of a server.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// How many threads serve, where that can be chosen.
    pub(crate) threads: usize,
    /// Whether the handler says beforehand that it will block.
    pub(crate) announced: bool,
    /// What 20 us of computation take here.
    pub(crate) steps: u32,
}

/// A server of the catalogue.
#[derive(Debug)]
pub(crate) struct Server {
    /// What it is called on the command line and in reports.
    pub(crate) name: &'static str,
    /// What it is, in a line, with the setting that was found best.
    pub(crate) about: &'static str,
    /// So many threads serve, whatever is asked for; `None`: as many as are asked for.
    pub(crate) threads: Option<usize>,
    /// How it is started.
    pub(crate) means: Means,
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Means {
    /// In this program.
    Here(Serve),
    /// By a program that is built on demand.
    Program(&'static Program),
}

/// Serves until the process ends; returns only an error.
pub(crate) type Serve = fn(TcpListener, &Setting) -> io::Result<()>;

/// Every server of 64-byte frames over plain TCP, ours first.
pub(crate) const ALL: &[Server] = &[
    Server {
        name: "paceline",
        about:
            "Leader/Followers by this project: epoll, newest follower first, wakes where it pays",
        threads: None,
        means: Means::Here(paceline::default),
    },
    Server {
        name: "paceline-eager",
        about: "the same, a follower woken on every event, as in the textbook",
        threads: None,
        means: Means::Here(paceline::eager),
    },
    Server {
        name: "paceline-oneshot",
        about: "the same as paceline, on one-shot epoll",
        threads: None,
        means: Means::Here(paceline::one_shot),
    },
    Server {
        name: "paceline-poll",
        about: "the same as paceline, on poll",
        threads: None,
        means: Means::Here(paceline::poll),
    },
    Server {
        name: "paceline-concurrent",
        about: "the same pool on a concurrent set: all threads wait at once, and none leads",
        threads: None,
        means: Means::Here(paceline::concurrent),
    },
    Server {
        name: "paceline-completion",
        about: "the same as paceline, on a completion set (io_uring)",
        threads: None,
        means: Means::Here(paceline::completion),
    },
    Server {
        name: "paceline-oldest",
        about: "the same as paceline, oldest follower first",
        threads: None,
        means: Means::Here(paceline::oldest),
    },
    Server {
        name: "paceline-priority",
        about: "the same as paceline, followers by priority, each thread with its own",
        threads: None,
        means: Means::Here(paceline::priority),
    },
    Server {
        name: "paceline-system",
        about: "the same as paceline, the system picks the follower",
        threads: None,
        means: Means::Here(paceline::system),
    },
    Server {
        name: "paceline-unwatched",
        about: "the same as paceline, without the watcher for handlers that block without an announcement",
        threads: None,
        means: Means::Here(paceline::unwatched),
    },
    Server {
        name: "paceline-board",
        about: "the same as paceline, with a board: the role of each thread since when, and how long things take",
        threads: None,
        means: Means::Here(paceline::board),
    },
    Server {
        name: "paceline-spin",
        about: "the same as paceline, the leader looks again and again for 50 us before it sleeps",
        threads: None,
        means: Means::Here(paceline::spinning),
    },
    Server {
        name: "paceline-sets",
        about: "two sets like paceline, each with half of the threads",
        threads: None,
        means: Means::Here(paceline::sets),
    },
    Server {
        name: "paceline-roaming",
        about: "two sets like paceline, whose leaders roam: one population of threads serves both",
        threads: None,
        means: Means::Here(paceline::roaming),
    },
    Server {
        name: "bare",
        about: "the bound: one thread, edge-triggered epoll, up to 256 events per wait",
        threads: Some(1),
        means: Means::Here(bare::one),
    },
    Server {
        name: "bare-2",
        about: "two such loops on two threads; one acceptor deals connections out by turns",
        threads: Some(2),
        means: Means::Here(bare::two),
    },
    Server {
        name: "textbook",
        about: "Leader/Followers by the textbook: mutex, condition variable, one-shot epoll",
        threads: None,
        means: Means::Here(textbook::serve),
    },
    Server {
        name: "half-sync",
        about: "half-sync/half-reactive: one edge-triggered reader, a bounded channel, workers",
        threads: None,
        means: Means::Here(half_sync::serve),
    },
    Server {
        name: "shared-epoll",
        about: "all threads in one edge-triggered epoll, one event per wait, edges counted",
        threads: None,
        means: Means::Here(shared_epoll::serve),
    },
    Server {
        name: "thread-per-connection",
        about: "a thread for each connection, 64 KiB of stack; the system allows some 16,000",
        threads: None,
        means: Means::Here(threads::serve),
    },
    Server {
        name: "tokio",
        about: "tokio, a task per connection, a worker per core; sleeps block their worker",
        threads: None,
        means: Means::Here(tokio::inline),
    },
    Server {
        name: "tokio-blocking",
        about: "the same, sleeps by spawn_blocking on as many threads as are given",
        threads: None,
        means: Means::Here(tokio::blocking),
    },
    Server {
        name: "tokio-in-place",
        about: "the same as tokio, sleeps by block_in_place",
        threads: None,
        means: Means::Here(tokio::in_place),
    },
    Server {
        name: "tokio-eager",
        about: "the same as tokio, with the unstable eager hand-off of the driver",
        threads: None,
        means: TOKIO_EAGER,
    },
    Server {
        name: "may",
        about: "may, a coroutine per connection, a worker per core, not pinned; sleeps block their worker",
        threads: None,
        means: Means::Here(may::per_core),
    },
    Server {
        name: "may-wide",
        about: "the same, with as many workers as are given: dearer, but not all of them sleep",
        threads: None,
        means: Means::Here(may::wide),
    },
    Server {
        name: "asio",
        about: "Boost.Asio: one io_context, all threads run it, its concurrency hint their number",
        threads: None,
        means: Means::Program(&ASIO),
    },
    Server {
        name: "asio-2",
        about: "the same with two threads, the best number for short requests",
        threads: Some(2),
        means: Means::Program(&ASIO),
    },
    Server {
        name: "ace-tp",
        about: "ACE's TP_Reactor: Leader/Followers on select, signals not masked, 1,024 descriptors",
        threads: None,
        means: Means::Program(&ACE_TP),
    },
    Server {
        name: "ace-tp-2",
        about: "the same with two threads, the best number for short requests",
        threads: Some(2),
        means: Means::Program(&ACE_TP),
    },
    Server {
        name: "ace-dev-poll",
        about: "ACE's Dev_Poll_Reactor: Leader/Followers on one-shot epoll, signals not masked",
        threads: None,
        means: Means::Program(&ACE_DEV_POLL),
    },
    Server {
        name: "ace-dev-poll-2",
        about: "the same with two threads, the best number for short requests",
        threads: Some(2),
        means: Means::Program(&ACE_DEV_POLL),
    },
];

/// Every server of lines, or of frames over TLS; those of `paceline-server` first.
pub(crate) const FRAMED: &[Server] = &[
    Server {
        name: "paceline-server",
        about: "lines: paceline-server with its line codec and default limits",
        threads: None,
        means: Means::Here(framework::lines),
    },
    Server {
        name: "paceline-server-half-sync",
        about: "lines: the same sessions on the half-sync/half-async engine, as many workers",
        threads: None,
        means: Means::Here(framework::lines_half_sync),
    },
    Server {
        name: "paceline-server-patient",
        about: "lines: the same as paceline-server, without a least data rate",
        threads: None,
        means: Means::Here(framework::lines_patient),
    },
    Server {
        name: "bare-lines",
        about: "lines: a handler on paceline's pool that splits them itself, without limits",
        threads: None,
        means: Means::Here(bare_lines::serve),
    },
    Server {
        name: "tokio-lines",
        about: "lines: tokio with tokio_util's LinesCodec, a worker per core",
        threads: None,
        means: Means::Here(tokio_codec::lines),
    },
    Server {
        name: "paceline-server-tls",
        about: "TLS: paceline-server with rustls",
        threads: None,
        means: Means::Here(framework::tls),
    },
    Server {
        name: "tokio-tls",
        about: "TLS: tokio-rustls, a worker per core, the same provider and certificate",
        threads: None,
        means: Means::Here(tokio_codec::tls),
    },
];

/// The unstable part of tokio is to be had only by a flag for the whole build, so this server is served by a
/// second build of this program, which has it.
const TOKIO_EAGER: Means = {
    #[cfg(tokio_unstable)]
    let means = Means::Here(tokio::eager);
    #[cfg(not(tokio_unstable))]
    let means = Means::Program(&crate::peers::TOKIO_EAGER);
    means
};

/// Every server of the catalogue.
pub(crate) fn all() -> impl Iterator<Item = &'static Server> {
    ALL.iter().chain(FRAMED)
}

/// The server of that name.
pub(crate) fn find(name: &str) -> Option<&'static Server> {
    all().find(|server| server.name == name)
}

/// The threads of `pools` serve; this one only keeps them.
fn keep<P>(_pools: P) -> io::Result<()> {
    loop {
        thread::park();
    }
}
