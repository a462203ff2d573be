//! What all sessions share.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    },
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, Guard};
use paceline::{Pool, WeakPool};

use super::{client::Clients, live::Live, lifecycle::Lifecycle, registers::Registers, server::Server};
use crate::{
    log::Log,
    pools::{Book, Orders, ServerId},
};

/// The front-end server.
///
/// Locks are taken one at a time, and none while a handler of another group is called: the book's,
/// then that of clients or of servers, after the book's was released.
pub(crate) struct Front {
    /// The configuration in force, and what was made of it.
    live: ArcSwap<Live>,
    pub(crate) file: PathBuf,
    pub(crate) log: Log,
    pool: OnceLock<WeakPool>,
    started: Instant,
    book: Mutex<Book<Arc<Server>>>,
    clients: Mutex<Clients>,
    servers: Mutex<HashMap<ServerId, Arc<Server>>>,
    /// Databases, users and pools of the book by name, and their counters.
    pub(crate) registers: Registers,
    pub(crate) lifecycle: Lifecycle,
    /// Numbers of clients and servers, for the console and the log.
    numbers: AtomicU64,
}

impl Front {
    pub(crate) fn new(live: Live, file: PathBuf, log: Log) -> Self {
        let book = Book::new(live.book_settings());
        Self {
            live: ArcSwap::from_pointee(live),
            file,
            log,
            pool: OnceLock::new(),
            started: Instant::now(),
            book: Mutex::new(book),
            clients: Mutex::default(),
            servers: Mutex::default(),
            registers: Registers::default(),
            lifecycle: Lifecycle::default(),
            numbers: AtomicU64::new(1),
        }
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
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
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn servers(&self) -> MutexGuard<'_, HashMap<ServerId, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}
