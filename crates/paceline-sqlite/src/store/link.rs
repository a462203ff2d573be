//! A connection to a database file, and the means to stop the statement that runs on it.

use std::{
    cell::Cell,
    collections::HashMap,
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        Arc,
    },
    time::{Duration, Instant},
};

use rusqlite::{
    config::DbConfig,
    hooks::{AuthAction, AuthContext, Authorization, Wal},
    limits::Limit,
    wal::CheckpointMode,
    Connection, InterruptHandle, OpenFlags,
};

use super::{
    asked::{self, Change},
    clock::{self, Clock},
    functions,
};
use crate::failure::Failure;

/// How many statements a connection keeps compiled.
const STATEMENTS: usize = 256;

/// How many steps of SQLite's virtual machine run between two checks of the deadline.
const STEPS: i32 = 5_000;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reads only.
    Read,
    /// A transaction that reads at first.
    Snapshot,
    /// Everything; the file is made if it does not exist.
    Write,
}

/// The length of the log, in pages, at which it is written back into the file.
const LOG_PAGES: u32 = 1_000;

/// A connection to a database file.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    stopper: Arc<Stopper>,
    deadline: Arc<Deadline>,
    /// The pages of the log after the last commit of this connection.
    log_pages: Arc<AtomicU32>,
    clock: Arc<Clock>,
    asked: asked::Shared,
    /// The schema that the connection has read.
    schema: Cell<u64>,
}

/// Stops the statement that runs on a connection, from any thread.
pub(crate) struct Stopper {
    interrupt: InterruptHandle,
    is_stopped: Arc<AtomicBool>,
}

impl Stopper {
    /// Stops the running statement. The caller's lock guarantees that it is the intended one.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.interrupt.interrupt();
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stopper")
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// When the statement that runs must end, in microseconds from a common start; zero: never.
#[derive(Debug)]
struct Deadline {
    start: Instant,
    at: AtomicU64,
}

impl Deadline {
    fn is_over(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at != 0 && self.start.elapsed().as_micros() as u64 > at
    }

    fn set(&self, limit: Option<Duration>) {
        let at = limit.map_or(0, |limit| (self.start.elapsed() + limit).as_micros() as u64);
        self.at.store(at, Ordering::Relaxed);
    }
}

impl Link {
    /// Opens the file, which is made if it does not exist and the purpose is to write.
    pub(crate) fn open(path: &Path, purpose: Purpose) -> Result<Self, Failure> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if purpose == Purpose::Write {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let mut connection = Connection::open_with_flags(path, flags)?;
        let deadline = Arc::new(Deadline {
            start: Instant::now(),
            at: AtomicU64::new(0),
        });
        let is_stopped = Arc::new(AtomicBool::new(false));
        configure(&mut connection, purpose)?;
        functions::register(&connection, Arc::clone(&is_stopped))?;
        let asked = asked::Shared::default();
        asked::register(&connection, &asked)?;
        let clock = Arc::default();
        clock::register(&connection, &clock)?;
        let of_handler = Arc::clone(&deadline);
        connection.progress_handler(STEPS, Some(move || of_handler.is_over()))?;
        let stopper = Stopper {
            interrupt: connection.get_interrupt_handle(),
            is_stopped,
        };
        let mut link = Self {
            connection,
            stopper: Arc::new(stopper),
            deadline,
            log_pages: Arc::default(),
            clock,
            asked,
            schema: Cell::new(0),
        };
        if purpose != Purpose::Read {
            link.watch_log()?;
        }
        Ok(link)
    }

    /// Counts the pages of the log. This takes the place of SQLite's own writing back, which would
    /// be part of the commit.
    fn watch_log(&mut self) -> Result<(), Failure> {
        let log_pages = Arc::clone(&self.log_pages);
        self.connection
            .wal_hook(Some(move |_: &mut Wal, pages: i32| {
                log_pages.store(pages.unsigned_abs(), Ordering::Relaxed);
                Ok(())
            }))?;
        Ok(())
    }

    /// Installs the authorizer, which refuses access beyond the file. Sessions use the connection
    /// only after this.
    pub(crate) fn guard(mut self) -> Result<Self, Failure> {
        self.connection.authorizer(Some(authorize))?;
        Ok(self)
    }

    /// What stops the statement that runs.
    pub(crate) fn stopper(&self) -> &Arc<Stopper> {
        &self.stopper
    }

    /// Whether the statement was stopped since [`begin`](Self::begin).
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopper.is_stopped.load(Ordering::SeqCst)
    }

    /// Prepares for a statement with this time limit.
    pub(crate) fn begin(&self, limit: Option<Duration>) {
        self.stopper.is_stopped.store(false, Ordering::SeqCst);
        self.deadline.set(limit);
        self.clock.begin_statement(self.connection.is_autocommit());
    }

    /// Lends the settings of a session to its next statement.
    pub(crate) fn lend_settings(&self, values: &HashMap<String, String>) {
        asked::lend(&self.asked, values);
    }

    /// The settings that the statement has changed.
    pub(crate) fn changed_settings(&self) -> Vec<Change> {
        asked::take_changes(&self.asked)
    }

    /// Begins a transaction by this statement.
    pub(crate) fn begin_transaction(&self, sql: &str) -> Result<(), Failure> {
        self.clock.begin_transaction();
        self.run_cached(sql)
    }

    /// Writes the log back into the file, if it has grown long. The lane of writers is held, so
    /// that the whole log can be written back and begins anew.
    pub(crate) fn shorten_log(&self) {
        if self.log_pages.load(Ordering::Relaxed) >= LOG_PAGES {
            // A reader of an old snapshot keeps the log: the next commit tries again.
            let _ = self.write_back(CheckpointMode::PASSIVE);
        }
    }

    /// Reads the schema if it has changed: statements are compiled for what the connection has
    /// read, and other connections' changes are seen only when one runs.
    pub(crate) fn read_schema(&self, schema: u64) -> Result<(), Failure> {
        if self.schema.replace(schema) != schema {
            let sql = "SELECT count(*) FROM main.sqlite_master";
            self.connection.query_row(sql, [], |_| Ok(()))?;
            self.connection.flush_prepared_statement_cache();
        }
        Ok(())
    }

    /// Writes the log back into the file.
    pub(crate) fn write_back(&self, mode: CheckpointMode) -> Result<(), Failure> {
        self.connection.wal_checkpoint_v2(None::<&str>, mode)?;
        Ok(())
    }

    /// Whether the limit has stopped the statement.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.deadline.is_over()
    }

    /// Runs the server's own statements, which have no results.
    pub(crate) fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.connection.execute_batch(sql).map_err(Failure::from)
    }

    /// Runs a statement without results that is often run, such as `COMMIT`.
    pub(crate) fn run_cached(&self, sql: &str) -> Result<(), Failure> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute([])?;
        Ok(())
    }

    /// Ends the transaction, if one is open.
    pub(crate) fn roll_back(&self) -> Result<(), Failure> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.run_cached("ROLLBACK")
    }
}

fn configure(connection: &mut Connection, purpose: Purpose) -> Result<(), Failure> {
    connection.busy_timeout(Duration::from_secs(10))?;
    if purpose == Purpose::Write {
        connection.pragma_update(None, "journal_mode", "WAL")?;
    }
    // A commit appends to the log; `Log` makes it durable.
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;
         PRAGMA case_sensitive_like = ON; PRAGMA cache_size = -8192;",
    )?;
    if purpose == Purpose::Read {
        connection.execute_batch("PRAGMA query_only = ON")?;
    }
    // An unknown name in double quotes is an error, not a text.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    rusqlite::vtab::series::load_module(connection)?;
    Ok(())
}

/// Refuses what would reach beyond the file, or change the connection for its next user.
fn authorize(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempView { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateVtable { .. } => Authorization::Deny,
        AuthAction::Pragma { pragma_name, .. } if !is_harmless(pragma_name) => Authorization::Deny,
        AuthAction::Function { function_name } if is_dangerous(function_name) => {
            Authorization::Deny
        }
        _ => Authorization::Allow,
    }
}

/// Whether the pragma only reads the schema.
fn is_harmless(pragma: &str) -> bool {
    const HARMLESS: [&str; 8] = [
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "integrity_check",
    ];
    HARMLESS
        .iter()
        .any(|name| name.eq_ignore_ascii_case(pragma))
}

fn is_dangerous(function: &str) -> bool {
    const DANGEROUS: [&str; 3] = ["load_extension", "fts3_tokenizer", "writefile"];
    DANGEROUS
        .iter()
        .any(|name| name.eq_ignore_ascii_case(function))
}
