//! What all sessions share.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
    },
    time::{Duration, Instant, SystemTime},
};

use arc_swap::{ArcSwap, Guard};
use paceline::{Pool, WeakPool};

use super::{
    client::{Client, Clients},
    common::Commons,
    lifecycle::Lifecycle,
    live::Live,
    names::Names,
    opening::Target,
    openings::Openings,
    random,
    registers::Registers,
    server::Server,
};
use crate::{
    log::Log,
    login::{CancelKeys, ClientKey, Verifiers},
    pools::{Book, CancelId, OperationId, Orders, ServerId},
    stats::Counters,
};

/// The front-end server.
///
/// Locks are taken one at a time, and none while a handler of another group is called: the book's,
/// then that of clients or of servers, after the book's was released. One exception: whatever gives a
/// name to an entry of the book holds the lock of the registers, and then takes the book's.
pub(crate) struct Front {
    me: Weak<Front>,
    /// The configuration in force, and what was made of it.
    live: ArcSwap<Live>,
    pub(crate) file: PathBuf,
    pub(crate) is_quiet: bool,
    pub(crate) log: Log,
    pool: OnceLock<WeakPool>,
    started: Instant,
    started_at: SystemTime,
    book: Mutex<Book<Arc<Server>>>,
    clients: Mutex<Clients>,
    servers: Mutex<HashMap<ServerId, Arc<Server>>>,
    openings: Mutex<Openings>,
    /// Databases, users and pools of the book by name, and their counters.
    pub(crate) registers: Registers,
    pub(crate) commons: Commons,
    pub(crate) lifecycle: Lifecycle,
    /// Numbers of clients and servers, for the console and the log.
    numbers: AtomicU64,
    keys: Mutex<CancelKeys<u64>>,
    cancels: Mutex<HashMap<CancelId, Arc<Client>>>,
    verifiers: Mutex<Verifiers>,
    names: Mutex<Names>,
    targets: Mutex<Vec<Target>>,
    /// The counters of the console.
    pub(crate) console: Counters,
    /// Commands of the console that are not complete.
    pub(crate) operations: Mutex<Operations>,
}

/// Commands that take time, and the clients of the console that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    waiting: HashMap<OperationId, Arc<Client>>,
    /// Those that were complete before their client was noted down.
    done: HashSet<OperationId>,
}

impl Operations {
    /// The client waits for the operation. Whether that is complete already.
    pub(crate) fn wait(&mut self, operation: OperationId, client: &Arc<Client>) -> bool {
        let is_done = self.done.remove(&operation);
        if !is_done {
            self.waiting.insert(operation, Arc::clone(client));
        }
        is_done
    }

    /// The operation is complete: the client that waits for it.
    pub(crate) fn complete(&mut self, operation: OperationId) -> Option<Arc<Client>> {
        let client = self.waiting.remove(&operation);
        if client.is_none() {
            self.done.insert(operation);
        }
        client
    }

    pub(crate) fn forget(&mut self, operation: OperationId) {
        self.waiting.remove(&operation);
        self.done.remove(&operation);
    }
}

impl Front {
    pub(crate) fn new(live: Live, file: PathBuf, is_quiet: bool, log: Log) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            book: Mutex::new(Book::new(live.book_settings())),
            live: ArcSwap::from_pointee(live),
            file,
            is_quiet,
            log,
            pool: OnceLock::new(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            clients: Mutex::default(),
            servers: Mutex::default(),
            openings: Mutex::default(),
            registers: Registers::default(),
            commons: Commons::default(),
            lifecycle: Lifecycle::default(),
            numbers: AtomicU64::new(1),
            keys: Mutex::default(),
            cancels: Mutex::default(),
            verifiers: Mutex::default(),
            names: Mutex::default(),
            targets: Mutex::default(),
            console: Counters::default(),
            operations: Mutex::default(),
        })
    }

    /// Itself, to be kept.
    pub(crate) fn shared(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time of the calendar.
    pub(crate) fn calendar(&self, since_start: Duration) -> SystemTime {
        self.started_at + since_start
    }

    pub(crate) fn live(&self) -> Guard<Arc<Live>> {
        self.live.load()
    }

    pub(crate) fn replace_live(&self, live: Live) {
        self.live.store(Arc::new(live));
    }

    /// The pool that handles everything; `None`: it is over.
    pub(crate) fn pool(&self) -> Option<Pool> {
        self.pool.get()?.upgrade()
    }

    pub(crate) fn set_pool(&self, pool: &Pool) {
        // It is set once.
        let _ = self.pool.set(pool.downgrade());
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Works with the book, and returns the orders that follow. The caller carries them out by
    /// [`Front::carry_out`], when the lock is released.
    pub(crate) fn with_book<R>(
        &self,
        work: impl FnOnce(&mut Book<Arc<Server>>, Duration, &mut Orders<Arc<Server>>) -> R,
    ) -> (R, Orders<Arc<Server>>) {
        let now = self.now();
        let mut orders = Orders::new();
        let done = work(&mut self.book(), now, &mut orders);
        (done, orders)
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book<Arc<Server>>> {
        locked(&self.book)
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, Clients> {
        locked(&self.clients)
    }

    pub(crate) fn servers(&self) -> MutexGuard<'_, HashMap<ServerId, Arc<Server>>> {
        locked(&self.servers)
    }

    /// The connections that are being opened.
    pub(crate) fn openings(&self) -> MutexGuard<'_, Openings> {
        locked(&self.openings)
    }

    /// The connections that have asked for a cancel.
    pub(crate) fn cancels(&self) -> MutexGuard<'_, HashMap<CancelId, Arc<Client>>> {
        locked(&self.cancels)
    }

    pub(crate) fn verifiers(&self) -> MutexGuard<'_, Verifiers> {
        locked(&self.verifiers)
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        locked(&self.names)
    }

    /// The hosts that have given keys for cancels, by their number.
    pub(crate) fn targets(&self) -> MutexGuard<'_, Vec<Target>> {
        locked(&self.targets)
    }

    pub(crate) fn new_key(&self, number: u64, minor: u16) -> ClientKey {
        locked(&self.keys).add(number, minor, random::bytes())
    }

    pub(crate) fn find_key(&self, process: i32, secret: &[u8]) -> Option<u64> {
        locked(&self.keys).find(process, secret)
    }

    pub(crate) fn forget_key(&self, process: i32) {
        locked(&self.keys).remove(process);
    }
}

/// No code leaves what these locks protect in between when it panics.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}
