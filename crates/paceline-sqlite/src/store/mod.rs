//! A database: its file, the connections to it, the right to write, and what is durable.

mod arrays;
pub(crate) mod asked;
mod casts;
pub(crate) mod catalogue;
mod clock;
pub(crate) mod columns;
mod functions;
pub(crate) use functions::random;
pub(crate) mod lane;
pub(crate) mod link;
pub(crate) mod log;
mod numbers;
pub(crate) mod role;
mod texts;
pub(crate) mod violation;

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    },
};

use crate::{
    dialect::{infer::Guess, Schema},
    failure::Failure,
    types::Type,
};
use catalogue::Directory;
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
    /// An open connection of a process that writes. SQLite deletes the log with the last connection
    /// to the file; `sync_of` would then sync a deleted file.
    keeper: Mutex<Option<Link>>,
    catalogue: Mutex<Option<Link>>,
    directory: Directory,
    /// The user whose statement runs on the connection with the catalogue.
    asking: Arc<Mutex<String>>,
    /// Changed with each change of the schema by this process.
    schema: AtomicU64,
}

impl Database {
    /// The database of this name in the folder.
    pub(crate) fn open(
        folder: &Path,
        name: &str,
        role: &Arc<Role>,
        directory: &Directory,
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
            keeper: Mutex::default(),
            catalogue: Mutex::default(),
            directory: directory.clone(),
            asking: Arc::default(),
            schema: AtomicU64::new(0),
        };
        if role.is_locked() {
            database.begin_to_write()?;
        }
        Ok(Arc::new(database))
    }

    /// Recovers the log of a process that was killed, makes durable what that process has left in
    /// it, and keeps it open.
    pub(crate) fn begin_to_write(&self) -> Result<(), Failure> {
        self.keep_log()?;
        let synced = self.log.sync_inherited();
        synced.map_err(|error| {
            Failure::new(
                "58030",
                format!("the log could not be made durable: {error}"),
            )
        })
    }

    /// Opens the connection that keeps the log, and lets it read: only then does it hold the log.
    fn keep_log(&self) -> Result<(), Failure> {
        let mut keeper = lock(&self.keeper);
        if keeper.is_none() {
            let link = Link::open(&self.path, Purpose::Write)?;
            let sql = "SELECT count(*) FROM main.sqlite_master";
            link.connection.query_row(sql, [], |_| Ok(()))?;
            *keeper = Some(link);
        }
        Ok(())
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

    /// The connection that knows the catalogue. It is held for one statement of this user.
    pub(crate) fn catalogue(&self, user: &str) -> MutexGuard<'_, Option<Link>> {
        let link = lock(&self.catalogue);
        user.clone_into(&mut lock(&self.asking));
        link
    }

    /// Opens the connection for [`catalogue`](Self::catalogue).
    pub(crate) fn open_catalogue(&self) -> Result<Link, Failure> {
        let link = Link::open(&self.path, Purpose::Read)?;
        catalogue::define(&link, &self.name, &self.directory, &self.asking)?;
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

impl Schema for Database {
    /// What is committed: a table of the open transaction is not known yet.
    fn column_type(&self, table: &str, column: &str) -> Option<Type> {
        let reader = self.reader().ok()?;
        let declared = columns::of_table(&reader, table, column);
        self.give_back(reader);
        declared.map(|declared| declared.kind)
    }

    fn resolve(&self, tables: &[String], guess: &Guess) -> Option<Type> {
        let reader = self.reader().ok()?;
        let found = columns::resolve(&reader, tables, guess);
        self.give_back(reader);
        found
    }

    fn default_of(&self, tables: &[String], guess: &Guess) -> Option<String> {
        let reader = self.reader().ok()?;
        let table = tables.first()?;
        let default = columns::default_of(&reader, table, guess);
        self.give_back(reader);
        default
    }

    fn is_never_null(&self, table: &str, column: &str) -> bool {
        let Ok(reader) = self.reader() else {
            return false;
        };
        let is_never = columns::is_never_null(&reader, table, column);
        self.give_back(reader);
        is_never
    }
}

/// Makes the log of a database file durable.
fn sync_of(path: &Path) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let (log, file) = (PathBuf::from(log), OnceLock::<File>::new());
    move || {
        // The keeper keeps the file the same one. SQLite locks the others of its files, so closing
        // this one releases no lock.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use lane::{Grant, Take};

    fn writer(database: &Database) -> Grant {
        let taken = database.writer.take(|| unreachable!("the lane is free"));
        match taken.expect("a connection") {
            Take::Granted(grant) => grant,
            Take::Parked(_) => unreachable!("the lane is free"),
        }
    }

    /// SQLite deletes the log with the last connection, and makes a new one for the next. A sync of
    /// the old one would succeed, and make nothing durable.
    #[test]
    fn the_log_is_one_file_while_the_database_is_open() {
        let name = format!("paceline-log-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let role = Arc::new(Role::of(&folder).expect("a lock"));
        let database = Database::open(&folder, "bank", &role, &Directory::default(), true);
        let mut database = database.expect("a database");
        let create = "CREATE TABLE t(n int)";
        writer(&database).link().batch(create).expect("a table");
        // The number of a deleted file may be used again, so the test keeps it open, as a sync does.
        let log = File::open(folder.join("bank.sqlite-wal")).expect("a log");
        let path = database.path.clone();
        let open = move || Link::open(&path, Purpose::Write)?.guard();
        // Closes the only connection that has written.
        Arc::get_mut(&mut database).expect("no other owner").writer = Lane::new(1, open);
        let insert = "INSERT INTO t VALUES (1)";
        writer(&database).link().batch(insert).expect("a row");
        assert_eq!(
            log.metadata().expect("it is open").nlink(),
            1,
            "it was deleted"
        );
        drop(database);
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
