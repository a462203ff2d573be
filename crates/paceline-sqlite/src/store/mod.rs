//! A database: its file, the connections to it, the right to write, and what is durable.

pub(crate) mod catalogue;
mod functions;
pub(crate) use functions::random;
pub(crate) mod lane;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod role;

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    },
};

use crate::failure::Failure;
use lane::Lane;
use link::{Link, Purpose};
use log::Log;
use role::Role;

/// The most sessions that keep a snapshot at the same time.
const SNAPSHOTS: usize = 32;

/// A database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) name: String,
    path: PathBuf,
    role: Arc<Role>,
    /// For reads that end within a call. Their number is the peak of concurrent reads.
    readers: Mutex<Vec<Link>>,
    /// For transactions that read.
    pub(crate) snapshots: Arc<Lane>,
    /// The one connection that writes.
    pub(crate) writer: Arc<Lane>,
    pub(crate) log: Log,
    catalogue: Mutex<Option<Link>>,
    /// Changed with each change of the schema by this process.
    schema: AtomicU64,
}

impl Database {
    /// The database of this name in the folder.
    pub(crate) fn open(
        folder: &Path,
        name: &str,
        role: &Arc<Role>,
        is_durable: bool,
    ) -> Result<Arc<Self>, Failure> {
        let path = folder.join(format!("{name}.sqlite"));
        let file = path.clone();
        let snapshots = Lane::new(SNAPSHOTS, move || {
            Link::open(&file, Purpose::Snapshot)?.guard()
        });
        let file = path.clone();
        let writer = Lane::new(1, move || Link::open(&file, Purpose::Write)?.guard());
        let log = if is_durable {
            Log::synced(sync_of(&path))
        } else {
            Log::relaxed()
        };
        let database = Self {
            name: name.to_owned(),
            path,
            role: Arc::clone(role),
            readers: Mutex::default(),
            snapshots,
            writer,
            log,
            catalogue: Mutex::default(),
            schema: AtomicU64::new(0),
        };
        if role.writes() {
            database.begin_to_write()?;
        }
        Ok(Arc::new(database))
    }

    /// Opens the connection that writes, which also recovers the log of a process that was killed,
    /// and makes durable what that process has left in it.
    pub(crate) fn begin_to_write(&self) -> Result<(), Failure> {
        let opened = self
            .writer
            .take(|| unreachable!("no session waits for a new lane"));
        let grant = opened?;
        let synced = self.log.sync_inherited();
        drop(grant);
        synced.map_err(|error| {
            Failure::new(
                "58030",
                format!("the log could not be made durable: {error}"),
            )
        })
    }

    /// Whether this process may write.
    pub(crate) fn writes(&self) -> bool {
        self.role.writes()
    }

    /// A connection for a read that ends within this call.
    pub(crate) fn reader(&self) -> Result<Link, Failure> {
        match lock(&self.readers).pop() {
            Some(link) => Ok(link),
            None => Link::open(&self.path, Purpose::Read)?.guard(),
        }
    }

    /// Gives a reader back for the next read.
    pub(crate) fn give_back(&self, reader: Link) {
        if reader.connection.is_autocommit() {
            lock(&self.readers).push(reader);
        }
    }

    /// The connection that knows the catalogue. It is held for one statement.
    pub(crate) fn catalogue(&self) -> MutexGuard<'_, Option<Link>> {
        lock(&self.catalogue)
    }

    /// Opens the connection for [`catalogue`](Self::catalogue).
    pub(crate) fn open_catalogue(&self) -> Result<Link, Failure> {
        let link = Link::open(&self.path, Purpose::Read)?;
        catalogue::define(&link, &self.name)?;
        link.guard()
    }

    /// A number that changes with the schema.
    pub(crate) fn schema(&self) -> u64 {
        self.schema.load(Ordering::Acquire)
    }

    pub(crate) fn schema_changed(&self) {
        self.schema.fetch_add(1, Ordering::AcqRel);
    }
}

/// Makes the log of a database file durable.
fn sync_of(path: &Path) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let (log, file) = (PathBuf::from(log), OnceLock::<File>::new());
    move || {
        // The file stays the same one while a connection is open. SQLite locks the others of its
        // files, so closing this one releases no lock.
        let file = match file.get() {
            Some(file) => file,
            None => {
                let opened = File::open(&log)?;
                file.get_or_init(|| opened)
            }
        };
        file.sync_data()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
