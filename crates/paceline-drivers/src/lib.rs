//! Where drivers of other projects are tried: front-ends in session and in transaction mode, over a
//! real PostgreSQL and over the embedded back-end.
//!
//! The tests share these servers. They end when no test uses them any more.
#![forbid(unsafe_code)]

use std::{
    io::{self, Write},
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use paceline_trial::{
    back::{Back, Kind},
    front::{self, Front},
    postgres,
};

/// How a front-end shares its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A client keeps its server.
    Session,
    /// It keeps it for a transaction.
    Transaction,
}

/// A front-end, and the server behind it.
#[derive(Debug)]
pub struct System {
    /// Which server is behind it.
    pub kind: Kind,
    /// How it shares its servers.
    pub mode: Mode,
    front: Front,
}

/// All front-ends, and the servers behind them.
#[derive(Debug)]
pub struct Systems {
    // The front-ends end before their servers.
    systems: Vec<System>,
    _backs: Vec<Back>,
}

/// Server connections in transaction mode: fewer than a test has clients, so that they change hands.
const FEW: u32 = 3;

/// Server connections in session mode: enough for the clients of all tests.
const MANY: u32 = 60;

impl Mode {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
        }
    }

    fn pool_size(self) -> u32 {
        match self {
            Self::Session => MANY,
            Self::Transaction => FEW,
        }
    }
}

impl Systems {
    /// The servers of this test program. A back-end that is not installed is left out, with a line
    /// that says so.
    ///
    /// # Panics
    /// If an installed server does not start.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Systems>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let systems = Arc::new(Self::start().expect("the servers start"));
            *shared = Arc::downgrade(&systems);
            systems
        })
    }

    /// Each front-end with the server behind it.
    pub fn iter(&self) -> impl Iterator<Item = &System> {
        self.systems.iter()
    }

    fn start() -> io::Result<Self> {
        let (mut systems, mut backs) = (Vec::new(), Vec::new());
        for kind in Kind::ALL {
            let Some(back) = Back::start(kind)? else {
                skipped(&format!("{} is not installed", kind.name()));
                continue;
            };
            for mode in [Mode::Session, Mode::Transaction] {
                systems.push(System::start(&back, mode)?);
            }
            backs.push(back);
        }
        Ok(Self {
            systems,
            _backs: backs,
        })
    }
}

impl System {
    fn start(back: &Back, mode: Mode) -> io::Result<Self> {
        let kind = back.kind();
        let ((host, port), database) = (back.host_and_port(), kind.database());
        let (name, size) = (mode.name(), mode.pool_size());
        // As PgBouncer's users set it for Java's driver.
        let settings = format!(
            "pool_mode = {name}\ndefault_pool_size = {size}\n\
             ignore_startup_parameters = extra_float_digits\n"
        );
        let entry = format!("host={host} port={port} dbname={database}");
        Ok(Self {
            kind,
            mode,
            front: Front::start(&entry, &settings)?,
        })
    }

    /// The port of the front-end.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.front.address().port()
    }

    /// Where clients connect, as drivers take it.
    #[must_use]
    pub fn url(&self) -> String {
        let (user, port, name) = (postgres::USER, self.port(), front::DATABASE);
        format!("postgres://{user}@127.0.0.1:{port}/{name}")
    }

    /// A name for the tables of a test: those of two modes are in one database.
    #[must_use]
    pub fn table(&self, test: &str) -> String {
        format!("{test}_{}", self.mode.name())
    }

    /// A query that takes longer than any test.
    #[must_use]
    pub fn slow(&self) -> &'static str {
        match self.kind {
            Kind::Postgres => "SELECT pg_sleep(600)",
            Kind::Embedded => {
                "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) \
                 SELECT count(*) FROM c"
            }
        }
    }

    /// Runs a program of the folder `programs` or another one, with this system in its environment.
    ///
    /// # Panics
    /// If it can't be run, or fails.
    pub fn run(&self, test: &str, command: &mut Command) -> String {
        let output = self
            .describe_to(test, command)
            .output()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{self}: {command:?}: {text}{errors}\nthe front-end's log:\n{}",
            self.last_of_log()
        );
        format!("{text}{errors}")
    }

    /// Puts this system into the environment of a program.
    pub fn describe_to<'c>(&self, test: &str, command: &'c mut Command) -> &'c mut Command {
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port().to_string())
            .env("PGUSER", postgres::USER)
            .env("PGDATABASE", front::DATABASE)
            .env("PGSSLMODE", "disable")
            .env("TRIAL_TABLE", self.table(test))
            .env("TRIAL_SLOW", self.slow())
            .env("TRIAL_BACK", self.kind.name())
            .env("TRIAL_MODE", self.mode.name())
    }

    fn last_of_log(&self) -> String {
        let log = self.front.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {} mode", self.kind.name(), self.mode.name())
    }
}

/// Says that something is skipped. The test harness does not capture this line.
pub fn skipped(why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {why} (cargo xtask setup)");
}

/// A program of the folder `programs`.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name)
}
