//! The state that all sessions of a server share.

use std::{
    fmt, io,
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, OnceLock,
    },
    thread,
    time::Duration,
};

use paceline::Level;

use super::{users::Users, Limits, Stored};
use crate::{
    failure::Failure,
    session::running::Keys,
    spool::Spool,
    store::{
        random,
        role::{Role, TakeOver},
        Database,
    },
};

/// The state that all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    databases: Vec<Arc<Database>>,
    users: Users,
    seed: [u8; 32],
    pub(crate) keys: Arc<Keys>,
    pub(crate) role: Arc<Role>,
    pub(crate) limits: Limits,
    folder: Arc<Path>,
    pub(crate) version: String,
    short_version: String,
    ends_process: bool,
    is_lost: AtomicBool,
    /// The level of readers and the level of writers.
    levels: OnceLock<[Level; 2]>,
    sessions: AtomicU64,
    commits: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        databases: Vec<Arc<Database>>,
        mut users: Users,
        role: Arc<Role>,
        limits: Limits,
        folder: &Path,
        ends_process: bool,
    ) -> io::Result<Self> {
        users.verify_by_scram()?;
        let (one, two) = (random()?, random()?);
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&one);
        seed[16..].copy_from_slice(&two);
        let truth = format!(
            "Paceline {}, SQLite {}",
            env!("CARGO_PKG_VERSION"),
            rusqlite::version()
        );
        Ok(Self {
            databases,
            users,
            seed,
            keys: Arc::default(),
            role,
            limits,
            folder: Arc::from(folder),
            version: format!("PostgreSQL 15.0 ({truth})"),
            short_version: format!("15.0 ({truth})"),
            ends_process,
            is_lost: AtomicBool::new(false),
            levels: OnceLock::new(),
            sessions: AtomicU64::new(0),
            commits: AtomicU64::new(0),
        })
    }

    /// Sets the levels. The pools need `Shared` for their listeners, so they are built after it.
    pub(super) fn set_levels(&self, levels: [Level; 2]) {
        // `Server::start` calls this once, so `set` can't fail.
        let _ = self.levels.set(levels);
    }

    /// The level of writers, or that of readers.
    pub(crate) fn level(&self, writes: bool) -> Option<&Level> {
        self.levels.get().map(|levels| &levels[usize::from(writes)])
    }

    pub(crate) fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.databases
            .iter()
            .find(|database| database.name == name)
            .cloned()
    }

    /// The stored form of the user's password; `None` if the server trusts every client.
    pub(crate) fn stored(&self, user: &str) -> Option<Stored> {
        self.users.stored(user, &self.seed)
    }

    /// `server_version`: drivers derive from it which features they use.
    pub(crate) fn version_of_protocol(&self) -> &str {
        &self.short_version
    }

    /// An empty spool for results.
    pub(crate) fn spool(&self) -> Spool {
        Spool::new(&self.folder, self.limits.spool)
    }

    pub(crate) fn count_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Tries to become the writer.
    pub(super) fn take_over(&self) -> Result<TakeOver, Failure> {
        let outcome = self.role.try_to_lock();
        let outcome = outcome.map_err(|error| Failure::new("58030", error.to_string()))?;
        if outcome == TakeOver::Writer {
            for database in &self.databases {
                database.begin_to_write()?;
            }
            self.role.serve();
        }
        Ok(outcome)
    }

    /// Reports a failed sync. The kernel may have dropped the dirty pages, so no later sync can
    /// make them durable.
    pub(crate) fn log_is_lost(&self, failure: &Failure) {
        if self.is_lost.swap(true, Ordering::SeqCst) {
            return;
        }
        let detail = failure.detail.as_deref().unwrap_or_default();
        eprintln!("paceline back: {}. {detail}", failure.message);
        if self.ends_process {
            // The delay lets the other clients of the same sync get their error.
            thread::spawn(|| {
                thread::sleep(Duration::from_secs(1));
                std::process::exit(74);
            });
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        let (mut syncs, mut waiting, mut snapshots) = (0, 0, 0);
        for database in &self.databases {
            syncs += database.log.counts().0;
            waiting += database.writer.waiting();
            snapshots += database.snapshots.in_use();
        }
        Statistics {
            sessions: self.keys.count(),
            sessions_so_far: self.sessions.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            syncs,
            waiting_writers: waiting,
            snapshots,
        }
    }
}

/// The counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Sessions that are open.
    pub sessions: usize,
    /// Sessions since the start.
    pub sessions_so_far: u64,
    /// Transactions that have written, and were committed.
    pub commits: u64,
    /// Syncs of the log: fewer than commits, because one makes many durable.
    pub syncs: u64,
    /// Sessions that wait for the lane of writers.
    pub waiting_writers: usize,
    /// Transactions that read a snapshot of their own.
    pub snapshots: usize,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sessions so far, {} commits in {} syncs",
            self.sessions_so_far, self.commits, self.syncs
        )
    }
}
