//! The server: its databases, its pool, its start and its end.

pub mod cli;
mod shared;
mod users;

use std::{
    fmt, fs, io,
    net::{SocketAddr, ToSocketAddrs},
    num::NonZeroUsize,
    ops::RangeInclusive,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use paceline::{Level, Levels, LevelsReport, Listener, Pool};

use crate::{
    failure::Failure,
    session::Session,
    store::{
        catalogue::Directory,
        role::{Role, TakeOver},
        Database,
    },
};
pub(crate) use shared::Shared;
pub use shared::Statistics;
pub(crate) use users::Stored;
use users::Users;

/// The limits of sessions.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest message of a client, in bytes.
    pub message: usize,
    /// Sessions at once.
    pub sessions: usize,
    /// Prepared statements of a session.
    pub statements: usize,
    /// Portals and cursors of a session.
    pub portals: usize,
    /// How long a session waits for the lane of writers.
    pub lane_wait: Duration,
    /// How long a transaction that holds the lane may be idle.
    pub idle_writer: Duration,
    /// How long any other transaction may be idle.
    pub idle_reader: Duration,
    /// How long a client may take to begin its session.
    pub start: Duration,
    /// How many bytes of a result may wait in a file for a slow client.
    pub spool: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 64 << 20,
            sessions: 1_000,
            statements: 1_000,
            portals: 100,
            lane_wait: Duration::from_secs(30),
            idle_writer: Duration::from_secs(10),
            idle_reader: Duration::from_secs(60),
            start: Duration::from_secs(60),
            spool: 1 << 30,
        }
    }
}

/// When the server replies to a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When a loss of power can undo neither this commit nor any commit that the reply may show.
    #[default]
    Synced,
    /// At once. The end of the process undoes no commit; a loss of power may.
    Relaxed,
}

/// The settings of a server.
#[derive(Debug)]
pub struct Builder {
    folder: PathBuf,
    databases: Vec<String>,
    addresses: Vec<String>,
    threads: Option<usize>,
    limits: Limits,
    durability: Durability,
    users: Users,
    ends_process: bool,
}

/// An embedded server. [`Server::builder`] makes one.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// A server with its database files in `folder`. `start` makes the folder if it does not exist.
    pub fn builder(folder: impl Into<PathBuf>) -> Builder {
        Builder {
            folder: folder.into(),
            databases: Vec::new(),
            addresses: Vec::new(),
            threads: None,
            limits: Limits::default(),
            durability: Durability::default(),
            users: Users::default(),
            ends_process: false,
        }
    }
}

impl Builder {
    /// Serves the database of this name: the file `NAME.sqlite` of the folder.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.databases.push(name.into());
        self
    }

    /// Listens at this address; port 0 lets the system choose.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// How many threads take turns; by default four per core, and up to 64 while statements last.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// When the server replies to commits.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// A user with what the server stores of the password: `SCRAM-SHA-256$..`, `md5..`, or the
    /// password itself. With no user at all every client is trusted, which only loopback addresses
    /// allow.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.users.add(name.into(), secret.into());
        self
    }

    /// Ends the process one second after a failed sync of the log: by then all waiting clients have
    /// their error. Without this setting the server keeps running and refuses to commit.
    #[must_use]
    pub fn end_process_on_lost_log(mut self) -> Self {
        self.ends_process = true;
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// If the folder can't be made or written, a database can't be opened, an address can't be
    /// listened at, or a setting makes no sense.
    pub fn start(self) -> io::Result<Running> {
        self.check()?;
        fs::create_dir_all(&self.folder).map_err(|error| {
            let text = format!(
                "could not make the folder {}: {error}",
                self.folder.display()
            );
            io::Error::new(error.kind(), text)
        })?;
        let role = Role::of(&self.folder).map_err(|error| {
            let text = format!(
                "could not lock the folder {}: {error}",
                self.folder.display()
            );
            io::Error::new(error.kind(), text)
        })?;
        let role = Arc::new(role);
        let is_durable = self.durability == Durability::Synced;
        let directory = Directory {
            databases: self.databases.clone(),
            users: self.users.names(),
        };
        let databases: io::Result<Vec<_>> = self
            .databases
            .iter()
            .map(|name| {
                Database::open(&self.folder, name, &role, &directory, is_durable)
                    .map_err(|failure| of_database(name, &failure))
            })
            .collect();
        let databases = databases?;
        if role.is_locked() {
            role.serve();
        }
        let shared = Arc::new(Shared::new(
            databases,
            self.users,
            role,
            self.limits,
            &self.folder,
            self.ends_process,
        )?);
        let readers = Pool::builder().name("back");
        let readers = match self.threads {
            Some(threads) => readers.threads(threads),
            None => readers.threads(default_threads()),
        };
        let writers = Pool::builder().name("back-writers").threads(WRITERS);
        let levels = Levels::builder();
        let levels = levels
            .level("readers", readers)
            .level("writers", writers)
            .build()?;
        let keys: [Level; 2] = levels.keys().expect("two levels were named");
        let readers = levels.pool(&keys[0]).expect("it was built").clone();
        shared.set_levels(keys);
        let mut listeners = Vec::new();
        for address in &self.addresses {
            listeners.push(listen(&readers, address, &shared)?);
        }
        watch_role(&readers, &shared)?;
        Ok(Running {
            levels,
            readers,
            shared,
            listeners,
        })
    }

    fn check(&self) -> io::Result<()> {
        let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.databases.is_empty() {
            return invalid("no database is given".to_owned());
        }
        if self.addresses.is_empty() {
            return invalid("no address to listen at is given".to_owned());
        }
        let is_plain = |name: &String| {
            let plain = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
            !name.is_empty() && name.chars().all(plain)
        };
        if let Some(name) = self.databases.iter().find(|name| !is_plain(name)) {
            return invalid(format!(
                "{name:?} is no name of a database: letters, digits, _ and -"
            ));
        }
        if self.users.is_empty() {
            for address in &self.addresses {
                let mut all = address.to_socket_addrs()?;
                if all.any(|address| !address.ip().is_loopback()) {
                    return invalid(format!("{address} is not a loopback address: give users"));
                }
            }
        }
        Ok(())
    }
}

fn of_database(name: &str, failure: &Failure) -> io::Error {
    io::Error::other(format!(
        "could not open the database {name}: {}",
        failure.message
    ))
}

fn listen(pool: &Pool, address: &str, shared: &Arc<Shared>) -> io::Result<Listener> {
    let server = Arc::clone(shared);
    let listener = pool.listener().bind(address, move |stream, _peer| {
        // Send small replies at once. After an error here, the first read fails too.
        let _ = stream.set_nodelay(true);
        Some(Session::new(&server))
    });
    listener.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("could not listen at {address}: {error}"),
        )
    })
}

/// Makes a standby try to become the writer.
fn watch_role(pool: &Pool, shared: &Arc<Shared>) -> io::Result<()> {
    if shared.role.writes() {
        return Ok(());
    }
    let shared = Arc::clone(shared);
    let timer = pool.every(STANDBY_PERIOD, move |cx| {
        match cx.blocking(|| shared.take_over()) {
            Ok(TakeOver::Writer) => cx.stop(),
            Ok(TakeOver::Standby) => {}
            Err(failure) => eprintln!("paceline back: could not take over: {}", failure.message),
        }
    });
    timer.map(drop).map_err(|rejected| rejected.error)
}

/// Threads of the level of writers: two, and more while statements block. In one pool with the
/// readers, the lane holder would get one turn per round of all sessions, while every other writer
/// waits for it.
const WRITERS: RangeInclusive<usize> = 2..=16;

/// The most threads that long statements may block. One more must stay free to read a cancel.
const MOST_THREADS: usize = 64;

/// Four threads per core, like the default of the pool, and more while statements block.
fn default_threads() -> RangeInclusive<usize> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let least = (4 * cores).min(MOST_THREADS);
    least..=MOST_THREADS
}

/// How often a standby tries to take the lock of the writer.
const STANDBY_PERIOD: Duration = Duration::from_millis(20);

/// A running server. Dropping it ends it at once.
#[derive(Debug)]
pub struct Running {
    levels: Levels,
    /// The pool of the level where sessions begin.
    readers: Pool,
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
}

impl Running {
    /// The first address on which the server listens.
    ///
    /// # Panics
    /// Never: a server without an address does not start.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listeners[0].local_addr()
    }

    /// Whether this process writes; otherwise it is a standby of another one.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.shared.role.writes()
    }

    /// The counters so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    /// The pool where sessions begin: for signals, and for timers.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.readers
    }

    /// Both levels: one for sessions that read, one for those with a write in the last transaction.
    #[must_use]
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Ends the server gracefully: it answers the requests that have arrived, and rolls back open
    /// transactions.
    pub fn shutdown(&self, within: Duration) -> Report {
        let pool = self.levels.shutdown(within);
        Report {
            pool,
            statistics: self.statistics(),
        }
    }
}

/// The report of a shutdown.
#[must_use]
#[derive(Debug)]
pub struct Report {
    /// The reports of both pools.
    pub pool: LevelsReport,
    /// The counters of sessions and databases.
    pub statistics: Statistics,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.pool, self.statistics)
    }
}
