//! The system that a row breaks: a front-end before a pair of back-ends, and links between them.
//!
//! ```text
//!   clients --link--> front-end --link--> writer   \
//!                               --link--> standby   the same files
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use paceline_check::client::Target;

use super::{apart::Network, link::Link, spoiler::Spoiler};
use crate::{
    journal::Journal,
    ports::{self, Wish},
    tiers::{
        embedded::{self, Redundancy},
        front::{self, Database, Pooler},
        postgres, Fault, Plan, Role, Server, State, Tiers,
    },
    USER,
};

/// How long anything that follows a fault may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How often a condition is tested.
const TICK: Duration = Duration::from_millis(5);

/// What a row needs beside the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// Nothing.
    Plain,
    /// Back-ends with the library of [`Spoiler`] in them.
    Spoiled,
    /// Back-ends on a small file system: the process must have mounts of its own.
    SmallDisk,
    /// Back-ends in a network namespace of their own, without links: so must the process be.
    OwnNetwork,
    /// PostgreSQL with two replicas as the back-end, without links.
    Postgres,
}

/// The system of a row.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) tiers: Tiers,
    pub(super) journal: Journal,
    /// From the clients to the front-end.
    pub(super) clients: Link,
    /// From the front-end to each back-end.
    pub(super) servers: Vec<Link>,
    spoiler: Option<Spoiler>,
    network: Option<Network>,
    /// Where the files of the back-ends are.
    pub(super) data: PathBuf,
    console: Target,
}

impl Stage {
    /// Starts the servers with their files in this folder.
    pub(super) fn start(folder: &Path, setup: Setup) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let spoiler = match setup {
            Setup::Spoiled => Some(Spoiler::make(folder)?),
            Setup::Plain | Setup::SmallDisk | Setup::OwnNetwork | Setup::Postgres => None,
        };
        let back_ends = BackEnds::plan(folder, &program, setup, spoiler.as_ref())?;
        let port = ports::find(Wish::Any, "the front-end")?;
        let pooler = Pooler {
            program,
            arguments: vec!["front".into()],
            is_ours: true,
        };
        let mut plans = back_ends.plans;
        plans.push(front::plan(folder, port, &back_ends.databases, pooler)?);
        let tiers = Tiers::start(plans)?;
        Ok(Self {
            tiers,
            journal: Journal::silent(),
            clients: Link::to(port)?,
            servers: back_ends.links,
            spoiler,
            network: back_ends.network,
            data: folder.join("bank"),
            console: target(port, "pgbouncer"),
        })
    }

    /// Where clients connect.
    pub(super) fn target(&self) -> Target {
        target(self.clients.port(), "bank")
    }

    pub(super) fn console(&self) -> &Target {
        &self.console
    }

    pub(super) fn spoiler(&self) -> io::Result<&Spoiler> {
        let none = || io::Error::other("the row has no library in its servers");
        self.spoiler.as_ref().ok_or_else(none)
    }

    pub(super) fn network(&self) -> io::Result<&Network> {
        let none = || io::Error::other("the row has no network of its own");
        self.network.as_ref().ok_or_else(none)
    }

    /// The front-end, when it serves.
    pub(super) fn front(&self) -> io::Result<&Arc<Server>> {
        let front = self.tiers.named("front");
        let front = front.ok_or_else(|| io::Error::other("there is no front-end"))?;
        self.await_service(front)?;
        Ok(front)
    }

    /// The back-end that has this role, when all back-ends serve.
    pub(super) fn back_end(&self, role: Role) -> io::Result<&Arc<Server>> {
        for server in &self.tiers.servers {
            self.await_service(server)?;
        }
        self.wait_until(&format!("a back-end is the {role:?}"), || {
            self.tiers.first(role).is_some()
        })?;
        let found = self.tiers.first(role);
        found.ok_or_else(|| io::Error::other(format!("no back-end is the {role:?}")))
    }

    /// The link from the front-end to the back-end that writes.
    pub(super) fn link_of_writer(&self) -> io::Result<&Link> {
        let writer = self.back_end(Role::Writer)?;
        let place = self.tiers.servers.iter();
        let place = place
            .into_iter()
            .position(|server| Arc::ptr_eq(server, writer));
        let link = place.and_then(|place| self.servers.get(place));
        link.ok_or_else(|| io::Error::other("the writer has no link"))
    }

    /// Makes a fault of a server, and waits until the server serves again.
    pub(super) fn strike(&self, server: &Arc<Server>, fault: Fault) -> io::Result<()> {
        let before = server.view().restarts;
        server.make(fault, &self.journal);
        match fault {
            Fault::Kill => self.await_restart(server, before),
            Fault::Stop | Fault::Slow => self.await_service(server),
        }
    }

    /// Waits until a server was started again, and serves.
    pub(super) fn await_restart(&self, server: &Arc<Server>, before: u32) -> io::Result<()> {
        let name = &server.plan.name;
        self.wait_until(&format!("{name} is started again"), || {
            server.view().restarts > before
        })?;
        self.await_service(server)
    }

    pub(super) fn await_service(&self, server: &Arc<Server>) -> io::Result<()> {
        let name = &server.plan.name;
        self.wait_until(&format!("{name} serves"), || {
            server.view().state == State::Serving
        })
    }

    /// Waits for a condition.
    pub(super) fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) -> io::Result<()> {
        if self.happens_within(LIMIT, is_so) {
            return Ok(());
        }
        let text = format!("not within {} s: {what}", LIMIT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// Whether a condition holds within this time.
    pub(super) fn happens_within(&self, limit: Duration, is_so: impl Fn() -> bool) -> bool {
        let end = Instant::now() + limit;
        while !is_so() {
            if Instant::now() > end {
                return false;
            }
            thread::sleep(TICK);
        }
        true
    }
}

fn target(port: u16, database: &str) -> Target {
    Target {
        port,
        user: USER.to_owned(),
        database: database.to_owned(),
        ..Target::default()
    }
}

/// The back-ends, the links to them, and the databases that the front-end knows.
struct BackEnds {
    plans: Vec<Plan>,
    links: Vec<Link>,
    databases: Vec<Database>,
    network: Option<Network>,
}

impl BackEnds {
    fn plan(
        folder: &Path,
        program: &Path,
        setup: Setup,
        spoiler: Option<&Spoiler>,
    ) -> io::Result<Self> {
        if setup == Setup::Postgres {
            let (plans, databases) = postgres::plans(folder, program, Redundancy::Pair)?;
            return Ok(Self {
                plans,
                links: Vec::new(),
                databases,
                network: None,
            });
        }
        fs::create_dir_all(folder.join("bank"))?;
        let mut plans = embedded::pair(folder, program, &["bank"], Redundancy::Pair)?;
        for plan in &mut plans {
            plan.launch.variables = spoiler.map(Spoiler::variables).unwrap_or_default();
        }
        if setup == Setup::OwnNetwork {
            return Self::apart(plans);
        }
        let links: Vec<_> = plans
            .iter()
            .map(|plan| Link::to(plan.probe.port))
            .collect::<io::Result<_>>()?;
        let mut database = Database::writer("bank", "bank", &plans);
        for (host, link) in database.hosts.iter_mut().zip(&links) {
            host.1 = link.port();
        }
        Ok(Self {
            plans,
            links,
            databases: vec![database],
            network: None,
        })
    }

    /// The same servers in another network, which this one reaches by a cable.
    fn apart(mut plans: Vec<Plan>) -> io::Result<Self> {
        let network = Network::make()?;
        plans.iter_mut().for_each(|plan| network.take_in(plan));
        let databases = vec![Database::writer("bank", "bank", &plans)];
        Ok(Self {
            plans,
            links: Vec::new(),
            databases,
            network: Some(network),
        })
    }
}
