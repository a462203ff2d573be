//! The front-end: its configuration, and what its console shows.

use std::{
    ffi::OsString,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use paceline_check::client::{Protocol, Session, Target};

use super::{Launch, Plan, PROBE};
use crate::{
    ports::{self, Wish},
    USER,
};

/// A database that clients name, and the server that has it.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) name: &'static str,
    /// `host` and `port` of each server, as pgbouncer.ini has them.
    pub(crate) host: String,
    pub(crate) port: String,
    /// Its name on that server.
    pub(crate) dbname: &'static str,
}

/// Server connections of each database and user.
const POOL: u32 = 10;

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
    fs::write(&users, format!("\"{USER}\" \"\"\n"))?;
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
        tier: "front-end",
        launch: Launch {
            program,
            arguments,
            log: folder.join("front.log"),
        },
        probe: Target {
            port,
            user: USER.to_owned(),
            database: CONSOLE.to_owned(),
            ..Target::default()
        },
        question: "SHOW VERSION",
        page,
    })
}

fn ini(port: u16, databases: &[Database], users: &Path, page: Option<&str>) -> String {
    // Clients wait while no server of their database can write.
    let roles = if page.is_some() { " roles=auto" } else { "" };
    let mut text = "[databases]\n".to_owned();
    for Database {
        name,
        host,
        port,
        dbname,
    } in databases
    {
        let _ = writeln!(
            text,
            "{name} = host={host} port={port} dbname={dbname}{roles}"
        );
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
    /// Asks the console.
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
