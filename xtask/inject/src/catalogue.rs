//! The faults, each with what it is, how it is made, and what a client has to put up with.
//!
//! What is legal decides what is made. A kernel may interrupt, refuse, or take less than it was offered, at any
//! time. It may not say "would block" while input waits, nor bring less than there is: both tell a reader of
//! edges that a further edge will come, and the product relies on it, as epoll(7) says one may. Where such a
//! lie is made all the same, the client keeps the promise: it makes the further edge itself (a nudge), and
//! what is checked is that nothing is lost, doubled or misrouted meanwhile.
//!
//! Sockets are read and written by `recvfrom` and `sendto`. A plain `write` wakes the leader through its eventfd,
//! and a wake is never spoilt: a swallowed one is no real fault. With `--set poll` the wake is a `sendto` too, of
//! one byte. There strace would spoil it, so the library does its work, which spares what is that short.

use super::library::Call;
use super::load::{Lives, Terms};
use super::server::End;
use super::thread::Role;
use super::wire::Nudge;

/// One fault.
pub(super) struct Fault {
    /// What it is called on the command line and in the table.
    pub(super) name: &'static str,
    /// What it represents.
    pub(super) story: &'static str,
    /// How it is made.
    pub(super) how: How,
    /// What a client has to put up with.
    pub(super) terms: Terms,
    /// How long connections live while it is there.
    pub(super) lives: Lives,
    /// What the server has to tell when it ends.
    pub(super) end: End,
}

/// By which calls the leader of the server waits, and descriptors are added for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// `epoll_wait` and `epoll_ctl`, for edges or once.
    Epoll,
    /// `poll` alone.
    Poll,
}

impl Set {
    /// That of a server with these arguments.
    pub(super) fn of(arguments: &[String]) -> Set {
        if arguments.windows(2).any(|two| two == ["--set", "poll"]) {
            Set::Poll
        } else {
            Set::Epoll
        }
    }
}

/// How a fault is made.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// By strace: these calls, in this way.
    Strace(&'static str, &'static str),
    /// By the library: of `step` calls so many, one behind the other.
    Library {
        /// The call.
        call: Call,
        /// Its error; zero for doing less than was asked.
        error: u64,
        /// How many of ...
        run: u64,
        /// ... how many.
        step: u64,
    },
    /// By the library: the n-th call, for n = 1, 2, 3 and so on, with this error.
    Site(Call, u64, Lasts),
    /// One thread is stopped.
    Stop(Role),
    /// The server may open no more descriptors.
    Descriptors,
    /// Not at all, for this reason.
    Not(&'static str),
}

/// How long a call continues to fail from its n-th time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Once.
    Once,
    /// Until the fault is taken away.
    On,
}

/// EINTR, as Linux numbers it.
const EINTR: u64 = 4;
/// EAGAIN, as Linux numbers it.
const EAGAIN: u64 = 11;
/// EMFILE, as Linux numbers it.
const EMFILE: u64 = 24;
/// ENOSPC, as Linux numbers it.
const ENOSPC: u64 = 28;
/// ECONNRESET, as Linux numbers it.
const ECONNRESET: u64 = 104;
/// ECONNREFUSED, as Linux numbers it.
const ECONNREFUSED: u64 = 111;

/// The calls by which a leader waits in epoll.
const EPOLL_WAIT: &str = "?epoll_wait,?epoll_pwait";
/// The calls by which a leader waits in `poll`.
const POLL: &str = "?poll,?ppoll";

/// The faults that any server may meet, in the order of the table, if it has this set.
pub(super) fn all(set: Set) -> Vec<Fault> {
    let groups = [interrupted(), at_accept(), at_connections(), held_up()];
    let more = [by_library(), sites(), of_threads_and_limits()];
    let all = groups.into_iter().chain(more).flatten();
    match set {
        Set::Epoll => all.collect(),
        Set::Poll => all.map(on_poll).chain(of_poll()).collect(),
    }
}

/// A fault as it is made where the leader waits in `poll`; skipped, if it is one of epoll's own.
fn on_poll(fault: Fault) -> Fault {
    match fault.how {
        How::Strace(EPOLL_WAIT, tamper) => Fault {
            name: "poll-EINTR",
            how: How::Strace(POLL, tamper),
            ..fault
        },
        How::Strace("sendto", _) => {
            let how = how_to_spoil_sends(fault.name);
            Fault { how, ..fault }
        }
        How::Strace("epoll_ctl", _) | How::Site(Call::EpollCtl, ..) => {
            fault.skipped("with `--set poll` there is no epoll_ctl: descriptors stand in a table")
        }
        How::Library {
            call: Call::EpollWait,
            ..
        } => fault.skipped("`poll` has no batches: it brings all that is ready"),
        How::Site(Call::EpollWait, _, lasts) => Fault {
            name: match lasts {
                Lasts::Once => "nth-poll",
                Lasts::On => "from-nth-poll",
            },
            ..fault
        },
        _ => fault,
    }
}

/// What strace does to `sendto`, done by the library.
fn how_to_spoil_sends(name: &str) -> How {
    let (error, step) = match name {
        "sendto-EINTR" => (EINTR, 2),
        "sendto-EAGAIN" => (EAGAIN, 10),
        "sendto-ENOSPC" => (ENOSPC, 20),
        _ => (ECONNRESET, 20),
    };
    How::Library {
        call: Call::Send,
        error,
        run: 1,
        step,
    }
}

/// What only `poll` may say.
fn of_poll() -> Vec<Fault> {
    let story = "no memory for the kernel's table: the error is told, and the lead passes on";
    let how = How::Strace(POLL, "error=ENOMEM:when=2+5");
    let end = End::WaitsFailed;
    vec![Fault {
        end,
        ..fault("poll-ENOMEM", story, how)
    }]
}

/// A fault under which everything is answered, on connections that live long.
fn fault(name: &'static str, story: &'static str, how: How) -> Fault {
    Fault {
        name,
        story,
        how,
        terms: Terms::Answered,
        lives: Lives::Long,
        end: End::Clean,
    }
}

impl Fault {
    /// The same, where a connection may be refused visibly.
    fn may_refuse(self) -> Fault {
        let terms = Terms::MayBeRefused;
        Fault { terms, ..self }
    }

    /// The same, where the client makes the edges that the fault takes away.
    fn nudged(self, nudge: Nudge) -> Fault {
        let terms = Terms::Nudging(nudge);
        Fault { terms, ..self }
    }

    /// The same, where it can't be made, for this reason.
    pub(super) fn skipped(self, reason: &'static str) -> Fault {
        let how = How::Not(reason);
        Fault { how, ..self }
    }

    /// The same, with many short connections.
    fn with_short_lives(self) -> Fault {
        let lives = Lives::Short;
        Fault { lives, ..self }
    }
}

/// A call that a signal interrupts is made again.
fn interrupted() -> Vec<Fault> {
    let strace = |name, calls| {
        let story = "every second call of a thread is interrupted by a signal";
        fault(name, story, How::Strace(calls, "error=EINTR:when=1+2"))
    };
    vec![
        strace("epoll_wait-EINTR", EPOLL_WAIT),
        strace("recvfrom-EINTR", "recvfrom"),
        strace("sendto-EINTR", "sendto"),
        strace("accept4-EINTR", "accept4").with_short_lives(),
    ]
}

/// What accept(2) may say of a connection or of the machine.
fn at_accept() -> Vec<Fault> {
    let strace =
        |name, story, tamper| fault(name, story, How::Strace("accept4", tamper)).with_short_lives();
    vec![
        strace(
            "accept4-EMFILE",
            "the process has no descriptor left: one connection is refused",
            "error=EMFILE:when=2+5",
        )
        .may_refuse(),
        strace(
            "accept4-ENFILE",
            "the machine has no descriptor left: one connection is refused",
            "error=ENFILE:when=2+5",
        )
        .may_refuse(),
        strace(
            "accept4-ENOMEM",
            "no memory for a socket: the connection waits",
            "error=ENOMEM:when=2+3",
        ),
        strace(
            "accept4-ECONNABORTED",
            "the connection is gone before it is accepted; the others are not",
            "error=ECONNABORTED:when=1+2",
        ),
        strace(
            "accept4-EAGAIN",
            "a lie, for somebody waits; nudged by a further connection, which is a new edge",
            "error=EAGAIN:when=3+4",
        )
        .nudged(Nudge::Connection),
    ]
}

/// The errors that a connection may get when it is registered, read and written.
fn at_connections() -> Vec<Fault> {
    let strace = |name, story, calls, tamper| fault(name, story, How::Strace(calls, tamper));
    let lie = "a lie; nudged by a message, which is a new edge for both directions";
    let ends = "the connection ends, and no other";
    vec![
        strace(
            "recvfrom-ECONNRESET",
            ends,
            "recvfrom",
            "error=ECONNRESET:when=5+20",
        )
        .may_refuse(),
        strace(
            "sendto-ECONNRESET",
            ends,
            "sendto",
            "error=ECONNRESET:when=5+20",
        )
        .may_refuse(),
        strace("sendto-ENOSPC", ends, "sendto", "error=ENOSPC:when=5+20").may_refuse(),
        strace("recvfrom-EAGAIN", lie, "recvfrom", "error=EAGAIN:when=5+10").nudged(Nudge::Message),
        strace("sendto-EAGAIN", lie, "sendto", "error=EAGAIN:when=5+10").nudged(Nudge::Message),
        strace(
            "epoll_ctl-ENOSPC",
            "no more watches for this user: the connection is refused",
            "epoll_ctl",
            "error=ENOSPC:when=2+5",
        )
        .may_refuse()
        .with_short_lives(),
        strace(
            "epoll_ctl-ENOMEM",
            "no memory for a watch: the connection is refused",
            "epoll_ctl",
            "error=ENOMEM:when=2+5",
        )
        .may_refuse()
        .with_short_lives(),
    ]
}

/// The errors of a server that opens connections itself: its client has no peer then, and its connection ends.
pub(super) fn at_connect() -> Vec<Fault> {
    let strace = |name, story, calls, tamper| fault(name, story, How::Strace(calls, tamper));
    let ends = [
        strace(
            "connect-ECONNREFUSED",
            "nobody listens at the other end: the client's connection ends",
            "connect",
            "error=ECONNREFUSED:when=2+5",
        ),
        strace(
            "connect-EADDRNOTAVAIL",
            "no port is left: the client's connection ends",
            "connect",
            "error=EADDRNOTAVAIL:when=2+5",
        ),
        strace(
            "socket-EMFILE",
            "no descriptor is left for the second socket: the client's connection ends",
            "socket",
            "error=EMFILE:when=2+5",
        ),
    ];
    let sites = site(
        ["nth-connect", "from-nth-connect"],
        Call::Connect,
        ECONNREFUSED,
    );
    let delayed = strace(
        "connect-delayed",
        "a thread is held up for 20 ms while it opens a connection",
        "connect",
        "delay_enter=20000:when=1+5",
    );
    let ends = ends.into_iter().chain(sites).map(Fault::may_refuse);
    let all = ends.chain([delayed]);
    all.map(Fault::with_short_lives).collect()
}

/// Calls that take long; never an error at a futex, for a wake that is swallowed is no real fault.
fn held_up() -> Vec<Fault> {
    let strace = |name, story, calls, tamper| fault(name, story, How::Strace(calls, tamper));
    vec![
        strace(
            "recvfrom-delayed",
            "a thread is held up for 20 ms inside its handler",
            "recvfrom",
            "delay_enter=20000:when=5+50",
        ),
        strace(
            "futex-delayed-before",
            "going to sleep, or waking somebody, takes 5 ms longer",
            "futex",
            "delay_enter=5000:when=1+20",
        ),
        strace(
            "futex-delayed-after",
            "coming back from sleep, or from a wake, takes 5 ms longer",
            "futex",
            "delay_exit=5000:when=1+20",
        ),
    ]
}

/// What only a library can do.
fn by_library() -> Vec<Fault> {
    let library = |name, story, call, [run, step]: [u64; 2]| {
        let error = 0;
        fault(
            name,
            story,
            How::Library {
                call,
                error,
                run,
                step,
            },
        )
    };
    let twice = How::Library {
        call: Call::Send,
        error: EAGAIN,
        run: 2,
        step: 10,
    };
    vec![
        library(
            "spurious-wakes",
            "every second sleep on a futex ends at once, for no reason",
            Call::FutexSleep,
            [1, 2],
        ),
        library(
            "short-sends",
            "every second write takes one byte",
            Call::Send,
            [1, 2],
        ),
        library(
            "cut-sends",
            "every twentieth write takes one byte; the rest is kept, and then the connection is broken",
            Call::Cut,
            [1, 20],
        )
        .may_refuse(),
        library(
            "one-event-batches",
            "every wait brings one event at most",
            Call::EpollWait,
            [1, 1],
        ),
        library(
            "short-recvs",
            "a lie: every seventh read brings one byte, though more is there; nudged by a message",
            Call::Recv,
            [1, 7],
        )
        .nudged(Nudge::Message),
        fault(
            "sendto-EAGAIN-twice",
            "a lie, told again when asked again, so that output is kept; nudged by a message",
            twice,
        )
        .nudged(Nudge::Message),
    ]
}

/// A call that fails at its n-th time, once and lastingly.
fn site(names: [&'static str; 2], call: Call, error: u64) -> [Fault; 2] {
    let once = "the n-th call fails, n = 1, 2, 3 ... until a run sees no fault";
    let on = "the n-th call fails and all after it, until the fault is taken away; n = 1, 2, 3 ...";
    let made = [(names[0], once, Lasts::Once), (names[1], on, Lasts::On)];
    made.map(|(name, story, lasts)| fault(name, story, How::Site(call, error, lasts)))
}

/// Each call fails at its n-th time, whichever n is.
fn sites() -> Vec<Fault> {
    let accept = site(["nth-accept4", "from-nth-accept4"], Call::Accept4, EMFILE);
    let control = site(
        ["nth-epoll_ctl", "from-nth-epoll_ctl"],
        Call::EpollCtl,
        ENOSPC,
    );
    let recv = site(
        ["nth-recvfrom", "from-nth-recvfrom"],
        Call::Recv,
        ECONNRESET,
    );
    let send = site(["nth-sendto", "from-nth-sendto"], Call::Send, ECONNRESET);
    let wait = site(
        ["nth-epoll_wait", "from-nth-epoll_wait"],
        Call::EpollWait,
        EINTR,
    );
    let new_connections = accept
        .into_iter()
        .chain(control)
        .map(Fault::with_short_lives);
    let refusing = new_connections
        .chain(recv)
        .chain(send)
        .map(Fault::may_refuse);
    refusing.chain(wait).collect()
}

/// Threads that stand still, and limits that are reached.
fn of_threads_and_limits() -> Vec<Fault> {
    vec![
        fault(
            "stopped-leader",
            "the leader stands still: it keeps the lead, and everything is answered when it goes on",
            How::Stop(Role::Leader),
        ),
        fault(
            "stopped-follower",
            "a parked follower stands still: nobody misses it (in a strict order, an offer waits for it)",
            How::Stop(Role::Follower),
        ),
        fault(
            "stopped-standby",
            "the standby stands still: nobody misses it (in a strict order, an offer waits for it)",
            How::Stop(Role::Standby),
        ),
        fault(
            "descriptors",
            "more connections come than descriptors are allowed: those are refused, and served later",
            How::Descriptors,
        )
        .may_refuse()
        .with_short_lives(),
        fault(
            "memory",
            "the address space is used up",
            How::Not(
                "an allocation that fails aborts a Rust program: there is no promise to check; \
                 see accept4-ENOMEM and epoll_ctl-ENOMEM",
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::service::Service;

    const SETS: [Set; 2] = [Set::Epoll, Set::Poll];

    /// The faults of the service that has most, if it has this set.
    fn all(set: Set) -> Vec<Fault> {
        Service::Relay.faults(set)
    }

    #[test]
    fn every_name_is_there_once() {
        for set in SETS {
            let names: Vec<_> = all(set).iter().map(|fault| fault.name).collect();
            let different: BTreeSet<_> = names.iter().collect();
            assert_eq!(names.len(), different.len());
        }
    }

    #[test]
    fn the_arguments_tell_the_set() {
        let set = |text: &str| {
            let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            Set::of(&words)
        };
        assert_eq!(set("--wake eager --set poll"), Set::Poll);
        assert_eq!(set("--set oneshot"), Set::Epoll);
        assert_eq!(set(""), Set::Epoll);
    }

    /// A fault at a call that is never made would never strike; one at a wake-up would not be real.
    #[test]
    fn no_fault_is_made_at_a_call_of_the_other_set() {
        let is_at = |fault: &Fault, words: &str| match fault.how {
            How::Strace(calls, _) => calls.contains(words),
            How::Library { call, .. } | How::Site(call, ..) => {
                words == "epoll" && call == Call::EpollCtl
            }
            How::Stop(_) | How::Descriptors | How::Not(_) => false,
        };
        assert!(!all(Set::Poll).iter().any(|fault| is_at(fault, "epoll")));
        assert!(!all(Set::Poll).iter().any(|fault| is_at(fault, "sendto")));
        assert!(!all(Set::Epoll).iter().any(|fault| is_at(fault, "?poll")));
    }

    /// A lie without a nudge would hang any reader of edges, and a nudge without a lie would hide a hang.
    #[test]
    fn lies_are_nudged_and_nothing_else_is() {
        for fault in SETS.into_iter().flat_map(all) {
            let nudged = matches!(fault.terms, Terms::Nudging(_));
            assert_eq!(nudged, fault.story.starts_with("a lie"), "{}", fault.name);
        }
    }
}
