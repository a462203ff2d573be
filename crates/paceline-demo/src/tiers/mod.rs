//! The servers of the system: child processes that are started again when they end.
//!
//! ```text
//!   Plan --> Server --> Process    what a server is, the life of one, its present child
//!   Tiers                          all of them, each looked after by a thread
//! ```

pub(crate) mod embedded;
pub(crate) mod front;
pub(crate) mod postgres;
mod process;
mod server;

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use paceline_check::client::Target;

use crate::journal::Journal;

pub(crate) use process::Launch;
pub(crate) use server::{Server, State, View};

/// How often a server is looked at.
const TICK: Duration = Duration::from_millis(5);

/// What a server is, and how it is reached.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Its name, such as `bank-a`.
    pub(crate) name: String,
    /// What it is.
    pub(crate) tier: Tier,
    /// How it is started.
    pub(crate) launch: Launch,
    /// Answers when it serves.
    pub(crate) probe: Target,
    /// The databases of the front-end whose clients it may serve.
    pub(crate) databases: Vec<String>,
    /// Where it shows its threads itself.
    pub(crate) page: Option<String>,
    /// How long after its end it is started again. A standby takes over meanwhile.
    pub(crate) rest: Duration,
}

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    FrontEnd,
    BackEnd,
}

impl Tier {
    /// As people name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FrontEnd => "front-end",
            Self::BackEnd => "back-end",
        }
    }

    /// The request of a probe. A back-end says whether it is a standby.
    fn question(self) -> &'static str {
        match self {
            Self::FrontEnd => "SHOW VERSION",
            Self::BackEnd => "SELECT pg_is_in_recovery()",
        }
    }
}

/// What a back-end does, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Standby,
}

/// A fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its processes are killed.
    Kill,
    /// Its processes are stopped for a while.
    Stop,
    /// Its processes get a part of the time only, for a while.
    Slow,
}

impl Fault {
    /// The fault of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "kill" => Some(Self::Kill),
            "stop" => Some(Self::Stop),
            "slow" => Some(Self::Slow),
            _ => None,
        }
    }
}

/// All servers, the back-ends first.
#[derive(Debug)]
pub(crate) struct Tiers {
    pub(crate) servers: Vec<Arc<Server>>,
    is_over: AtomicBool,
}

impl Tiers {
    /// Starts one server after the other.
    pub(crate) fn start(plans: Vec<Plan>) -> io::Result<Self> {
        let servers = plans
            .into_iter()
            .map(|plan| Server::start(plan).map(Arc::new));
        Ok(Self {
            servers: servers.collect::<io::Result<_>>()?,
            is_over: AtomicBool::new(false),
        })
    }

    /// Looks after all servers until [`stop_looking_after`](Self::stop_looking_after), each in a
    /// thread of its own: a probe of one of them may wait.
    pub(crate) fn look_after<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, journal: &'s Journal) {
        for server in &self.servers {
            scope.spawn(move || {
                while !self.is_over.load(Ordering::Relaxed) {
                    server.look_after(journal);
                    thread::sleep(TICK);
                }
            });
        }
    }

    /// Does not start servers again any more.
    pub(crate) fn stop_looking_after(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Ends all servers, the front-end first.
    pub(crate) fn end(&self, journal: &Journal) {
        self.servers
            .iter()
            .rev()
            .for_each(|server| server.end(journal));
    }

    /// Kills all servers at once, also those that are stopped.
    pub(crate) fn kill(&self) {
        self.stop_looking_after();
        self.servers.iter().for_each(|server| server.kill());
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.plan.name == name)
    }

    /// The first back-end that has this role.
    pub(crate) fn first(&self, role: Role) -> Option<&Arc<Server>> {
        self.servers
            .iter()
            .find(|server| server.role() == Some(role))
    }
}
