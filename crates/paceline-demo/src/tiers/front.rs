//! The front-end: its configuration, and what its console shows.

use std::{
    ffi::OsString,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use paceline_check::client::{Failure, Protocol, Session, Target};

use super::{server::PROBE, Launch, Plan, Tier};
use crate::{
    ports::{self, Wish},
    USER,
};

/// A database that clients name, and the servers that have it.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) name: String,
    /// The host and the port of each server.
    pub(crate) hosts: Vec<(String, u16)>,
    /// Its name on these servers.
    pub(crate) dbname: String,
    /// Which of them its clients get, if the front-end knows roles.
    pub(crate) attrs: &'static str,
}

impl Database {
    /// The entry of clients that write: they get the server that writes, and wait while there is
    /// none. Without this a standby would refuse their writes with 25006.
    pub(crate) fn writer(name: &str, dbname: &str, servers: &[Plan]) -> Self {
        Self {
            name: name.to_owned(),
            hosts: servers
                .iter()
                .map(|server| (server.probe.host.clone(), server.probe.port))
                .collect(),
            dbname: dbname.to_owned(),
            attrs: "read-write",
        }
    }

    /// The entry of clients that only read: they get a standby if there is one.
    pub(crate) fn reader(dbname: &str, servers: &[Plan]) -> Self {
        Self {
            attrs: "prefer-standby",
            ..Self::writer(&format!("{dbname}_read"), dbname, servers)
        }
    }

    /// Its line in pgbouncer.ini.
    fn line(&self, is_ours: bool) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(|(host, _)| &**host).collect();
        let ports: Vec<_> = self
            .hosts
            .iter()
            .map(|(_, port)| port.to_string())
            .collect();
        let (name, dbname, attrs) = (&self.name, &self.dbname, self.attrs);
        let (hosts, ports) = (hosts.join(","), ports.join(","));
        let roles = if is_ours {
            format!(" roles=auto target_session_attrs={attrs}")
        } else {
            String::new()
        };
        format!("{name} = host={hosts} port={ports} dbname={dbname}{roles}")
    }
}

/// Server connections of each database and user.
const POOL: u32 = 10;

/// The password of the demo's user.
pub(crate) const PASSWORD: &str = "demo";

/// The database of the console.
const CONSOLE: &str = "pgbouncer";

/// A program that can be the front-end: it reads a pgbouncer.ini.
#[derive(Clone, Debug)]
pub(crate) struct Pooler {
    pub(crate) program: PathBuf,
    /// Its arguments before the name of the configuration.
    pub(crate) arguments: Vec<OsString>,
    /// Whether it is ours: it knows more settings.
    pub(crate) is_ours: bool,
}

/// The front-end of these databases on this port.
pub(crate) fn plan(
    folder: &Path,
    port: u16,
    databases: &[Database],
    pooler: Pooler,
) -> io::Result<Plan> {
    let Pooler {
        program,
        mut arguments,
        is_ours,
    } = pooler;
    let users = folder.join("userlist.txt");
    // Back-ends on the loopback trust every client; others ask for this password.
    fs::write(&users, format!("\"{USER}\" \"{PASSWORD}\"\n"))?;
    let configuration = folder.join("front.ini");
    let page = is_ours.then(|| ports::find(Wish::Any, "the front-end's page"));
    let page = page.transpose()?.map(|port| format!("127.0.0.1:{port}"));
    fs::write(
        &configuration,
        ini(port, databases, &users, page.as_deref()),
    )?;
    arguments.push(configuration.into());
    Ok(Plan {
        name: "front".to_owned(),
        tier: Tier::FrontEnd,
        launch: Launch {
            program,
            arguments,
            variables: Vec::new(),
            log: folder.join("front.log"),
        },
        probe: Target {
            port,
            user: USER.to_owned(),
            database: CONSOLE.to_owned(),
            ..Target::default()
        },
        databases: databases.iter().map(|one| one.name.clone()).collect(),
        page,
        rest: Duration::ZERO,
    })
}

fn ini(port: u16, databases: &[Database], users: &Path, page: Option<&str>) -> String {
    let mut text = "[databases]\n".to_owned();
    for database in databases {
        let _ = writeln!(text, "{}", database.line(page.is_some()));
    }
    let _ = write!(
        text,
        "\n[pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {}\n\
         admin_users = {USER}\n\
         pool_mode = transaction\n\
         default_pool_size = {POOL}\n\
         max_client_conn = 1000\n\
         server_login_retry = 0.2\n\
         host_check_period = 0.1\n\
         host_check_successes = 1\n\
         ignore_startup_parameters = extra_float_digits\n",
        users.display()
    );
    if let Some(page) = page {
        let _ = writeln!(text, "http_listen = {page}");
    }
    text
}

/// What the front-end's console shows of all its pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools {
    pub(crate) pools: Vec<Pool>,
}

/// A pool of server connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) database: String,
    pub(crate) clients: i64,
    /// Clients that wait for a server connection.
    pub(crate) waiting: i64,
    pub(crate) servers_active: i64,
    pub(crate) servers_idle: i64,
    /// How long the first of the waiting clients has waited, in microseconds.
    pub(crate) longest_wait: i64,
}

impl Pools {
    /// Asks the console; `None` if it does not answer.
    pub(crate) fn read(console: &Target) -> Option<Self> {
        let mut session = Session::open(console, Protocol::Simple, PROBE).ok()?;
        let answer = session.query("SHOW POOLS").ok()?;
        session.close();
        let pools = (0..answer.rows.len()).map(|row| {
            let number = |column: &str| answer.number_of(row, column).unwrap_or(0);
            Pool {
                database: answer.text(row, 0).unwrap_or_default().to_owned(),
                clients: number("cl_active") + number("cl_waiting"),
                waiting: number("cl_waiting"),
                servers_active: number("sv_active"),
                servers_idle: number("sv_idle") + number("sv_used"),
                longest_wait: number("maxwait") * 1_000_000 + number("maxwait_us"),
            }
        });
        let pools = pools.filter(|pool| pool.database != CONSOLE).collect();
        Some(Self { pools })
    }

    /// How many clients wait in all pools.
    pub(crate) fn waiting(&self) -> i64 {
        self.pools.iter().map(|pool| pool.waiting).sum()
    }
}

/// How many transactions the front-end has passed on, by database; `None` if its console does not
/// answer.
pub(crate) fn transactions(console: &Target) -> Option<Vec<(String, i64)>> {
    let mut session = Session::open(console, Protocol::Simple, PROBE).ok()?;
    let answer = session.query("SHOW STATS").ok()?;
    session.close();
    let rows = (0..answer.rows.len()).map(|row| {
        let database = answer.text(row, 0).unwrap_or_default().to_owned();
        let count = answer.number_of(row, "total_xact_count").unwrap_or(0);
        (database, count)
    });
    let counts = rows.filter(|(name, count)| name != CONSOLE && *count > 0);
    Some(counts.collect())
}

/// How long a command of the console may take.
const COMMAND: Duration = Duration::from_secs(10);

/// Gives a command to the console.
pub(crate) fn command(console: &Target, text: &str) -> Result<(), Failure> {
    let mut session = Session::open(console, Protocol::Simple, COMMAND)?;
    let answer = session.query(text).map(drop);
    session.close();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes reached a standby, which refused them with 25006, because the entry did not say that
    /// its clients need the server that writes.
    #[test]
    fn clients_that_write_get_the_writer() {
        let hosts = [7001, 7002].map(|port| ("127.0.0.1".to_owned(), port));
        let writer = Database {
            hosts: hosts.into(),
            ..Database::writer("bank", "bank", &[])
        };
        let line = "bank = host=127.0.0.1,127.0.0.1 port=7001,7002 dbname=bank";
        let roles = "roles=auto target_session_attrs=read-write";
        assert_eq!(writer.line(true), format!("{line} {roles}"));
        // Other poolers do not know these settings.
        assert_eq!(writer.line(false), line);
        let reader = Database::reader("bank", &[]);
        assert_eq!(
            (&*reader.name, reader.attrs),
            ("bank_read", "prefer-standby")
        );
    }
}
