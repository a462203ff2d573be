//! PostgreSQL as the back-end: a primary, and two replicas that stream from it.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use paceline_check::client::{Protocol, Session, Target};

use super::{
    embedded::Redundancy, front::Database, server::FIRST_START, Launch, Plan, Server, Tier,
};
use crate::{
    journal::Journal,
    ports::{self, Wish},
    USER,
};

/// The databases of the primary.
const DATABASES: [&str; 3] = ["bank", "travel", "scratch"];

/// The servers that follow the primary.
const REPLICAS: [&str; 2] = ["replica1", "replica2"];

/// Ends a server without waiting for its clients, and the shutdown is clean: SIGINT.
const FAST_SHUTDOWN: &str = "2";

/// The primary and its replicas with their data below this folder, started, and the databases that
/// the front-end knows. `program` is ours: it ends the servers with itself.
pub(crate) fn plans(
    folder: &Path,
    program: &Path,
    redundancy: Redundancy,
) -> io::Result<(Vec<Plan>, Vec<Database>)> {
    let cluster = Cluster {
        programs: programs()?,
        user: user()?,
        guard: program.to_owned(),
        folder: folder.to_owned(),
    };
    cluster.give_away(folder)?;
    let primary = cluster.plan("primary", cluster.port()?);
    cluster.make(&primary)?;
    let mut plans = vec![primary];
    for name in REPLICAS {
        plans.push(cluster.plan(name, cluster.port()?));
    }
    // A front-end that knows roles finds out which one is the primary.
    let writers = match redundancy {
        Redundancy::Single => &plans[..1],
        Redundancy::Pair => &plans[..],
    };
    let entry = |name: &&str| Database::writer(name, name, writers);
    let mut databases: Vec<_> = DATABASES.iter().map(entry).collect();
    if redundancy == Redundancy::Pair {
        databases.push(Database::reader("bank", &plans));
    }
    for plan in &mut plans {
        plan.databases = databases.iter().map(|entry| entry.name.clone()).collect();
    }
    Ok((plans, databases))
}

/// What all servers have in common.
struct Cluster {
    /// The folder of PostgreSQL's programs.
    programs: PathBuf,
    /// The number of the user that runs them.
    user: u32,
    guard: PathBuf,
    folder: PathBuf,
}

impl Cluster {
    fn port(&self) -> io::Result<u16> {
        ports::find(Wish::Any, "PostgreSQL")
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn plan(&self, name: &str, port: u16) -> Plan {
        let mut arguments: Vec<OsString> = vec![
            "guard".into(),
            self.user.to_string().into(),
            FAST_SHUTDOWN.into(),
            self.programs.join("postgres").into(),
            "-D".into(),
            self.data(name).into(),
        ];
        arguments.extend(["-k", "", "-p", &port.to_string()].map(Into::into));
        Plan {
            name: name.to_owned(),
            tier: Tier::BackEnd,
            launch: Launch {
                program: self.guard.clone(),
                arguments,
                variables: Vec::new(),
                log: self.folder.join(format!("{name}.log")),
            },
            probe: Target {
                port,
                ..Target::default()
            },
            databases: Vec::new(),
            page: None,
            rest: Duration::ZERO,
        }
    }

    /// Makes the data of the primary and of its replicas, as far as they are not there.
    fn make(&self, primary: &Plan) -> io::Result<()> {
        let is_new = !self.is_made("primary");
        if is_new {
            self.make_empty()?;
        }
        let port = primary.probe.port;
        let (made, missing): (Vec<_>, Vec<_>) =
            REPLICAS.into_iter().partition(|name| self.is_made(name));
        made.into_iter()
            .try_for_each(|name| self.follow(name, port))?;
        if missing.is_empty() {
            return Ok(());
        }
        let server = Server::start(primary.clone())?;
        if is_new {
            make_databases(primary)?;
        }
        missing
            .into_iter()
            .try_for_each(|name| self.copy(name, port))?;
        server.end(&Journal::new());
        Ok(())
    }

    fn is_made(&self, name: &str) -> bool {
        self.data(name).join("PG_VERSION").exists()
    }

    fn make_empty(&self) -> io::Result<()> {
        let data = self.data("primary");
        let mut initdb = self.command("initdb");
        initdb
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "-D"])
            .arg(&data);
        self.run(initdb)?;
        let settings = data.join("postgresql.conf");
        let text = fs::read_to_string(&settings)?;
        fs::write(
            settings,
            text + "\nlisten_addresses = '127.0.0.1'\nmax_connections = 100\n",
        )
    }

    /// Copies the running primary.
    fn copy(&self, name: &str, primary: u16) -> io::Result<()> {
        let mut copy = self.command("pg_basebackup");
        copy.args([
            "-h",
            "127.0.0.1",
            "-p",
            &primary.to_string(),
            "-U",
            "postgres",
        ]);
        copy.args(["--checkpoint=fast", "--write-recovery-conf", "-D"])
            .arg(self.data(name));
        self.run(copy)
    }

    /// Names the primary's present port to a replica that has been made earlier.
    fn follow(&self, name: &str, primary: u16) -> io::Result<()> {
        let settings = self.data(name).join("postgresql.auto.conf");
        let text = fs::read_to_string(&settings)?;
        let place = format!("primary_conninfo = 'user=postgres host=127.0.0.1 port={primary}'\n");
        fs::write(settings, text + &place)
    }

    /// A program of PostgreSQL, which refuses to run as root.
    fn command(&self, name: &str) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(self.programs.join(name));
        if rustix::process::getuid().is_root() {
            command.uid(self.user);
        }
        command.current_dir(&self.folder);
        command
    }

    fn run(&self, mut command: Command) -> io::Result<()> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = command.stdin(Stdio::null()).output();
        let output = output
            .map_err(|error| io::Error::new(error.kind(), format!("starting {name}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(io::Error::other(format!("{name} has failed: {words}")))
    }

    fn give_away(&self, folder: &Path) -> io::Result<()> {
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(folder, Some(self.user), None)?;
        }
        Ok(())
    }
}

/// The user and the databases of the demo.
fn make_databases(primary: &Plan) -> io::Result<()> {
    let mut session =
        Session::open(&primary.probe, Protocol::Simple, FIRST_START).map_err(io::Error::other)?;
    let mut run = |sql: String| session.query(&sql).map_err(io::Error::other);
    run(format!("CREATE ROLE {USER} LOGIN"))?;
    for name in DATABASES {
        run(format!("CREATE DATABASE {name} OWNER {USER}"))?;
    }
    session.close();
    Ok(())
}

/// The folder of PostgreSQL's programs: of the search path, or the newest that Debian has.
fn programs() -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut versions: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    let has_all = |folder: &PathBuf| {
        let needed = ["initdb", "postgres", "pg_basebackup"];
        needed.iter().all(|name| folder.join(name).exists())
    };
    let found = folders.into_iter().find(has_all);
    found.ok_or_else(|| io::Error::other("PostgreSQL is not installed (Debian: postgresql)"))
}

/// The user of the servers: this one, or for root the user `postgres`, or `nobody`.
pub(crate) fn user() -> io::Result<u32> {
    let own = rustix::process::getuid();
    if !own.is_root() {
        return Ok(own.as_raw());
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let number = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    };
    let found = number("postgres").or_else(|| number("nobody"));
    found.ok_or_else(|| io::Error::other("no user `postgres` or `nobody` runs PostgreSQL"))
}
