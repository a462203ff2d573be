//! The databases, users and pools of the book by name, with what the front keeps of each.

use std::{
    collections::HashMap,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{
    lanes::Lanes,
    live::{database_settings, user_settings, Live},
    sites::Site,
    state::Front,
};
use crate::{
    config::{self, Effective, PoolMode},
    log::Level,
    login::ServerCredentials,
    pools::{DatabaseId, PoolId, UserId},
    protocol::{Mode, RelaySettings, Statements, Values},
    stats::{Averages, Counters},
};

/// The longest Parse of a named statement.
const LONGEST_STATEMENT: usize = 64 << 20;

/// Everything that has a name.
#[derive(Debug, Default)]
pub(crate) struct Registers(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    databases: HashMap<Box<str>, Arc<Database>>,
    users: HashMap<Box<str>, UserId>,
    pools: HashMap<PoolId, Arc<PoolEntry>>,
    by_name: HashMap<(DatabaseId, Box<str>), Arc<PoolEntry>>,
}

/// A database that clients have named, or that the configuration has.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) id: DatabaseId,
    pub(crate) name: Arc<str>,
    config: ArcSwap<config::Database>,
    pub(crate) counters: Counters,
    pub(crate) averages: Mutex<Averages>,
    /// Which host a new connection tries next.
    next_host: AtomicUsize,
    /// Its hosts, if their roles are known.
    site: ArcSwapOption<Site>,
}

/// The servers of one database and user.
#[derive(Debug)]
pub(crate) struct PoolEntry {
    pub(crate) id: PoolId,
    pub(crate) database: Arc<Database>,
    pub(crate) user: Arc<str>,
    statements: Arc<Statements>,
    /// The shared connections.
    pub(crate) lanes: Lanes,
    terms: ArcSwap<Terms>,
    /// What the pool's servers have reported at their login.
    welcome: ArcSwapOption<Reported>,
    /// What a client has proved itself with: the server takes it, if the configuration has no
    /// password for it.
    pub(crate) credentials: ArcSwapOption<ServerCredentials>,
}

/// What holds for a pool by the configuration in force.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) effective: Effective,
    pub(crate) relay: RelaySettings,
    /// How many clients share a connection; zero: none.
    pub(crate) multiplex: usize,
    pub(crate) reset: Option<Box<[u8]>>,
    pub(crate) check: Box<[u8]>,
}

/// The name of a parameter, and its value.
pub(crate) type Parameter = (Box<[u8]>, Box<[u8]>);

/// What a server has reported at its login.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    /// Every parameter, in the server's order.
    pub(crate) parameters: Vec<Parameter>,
    /// The tracked ones.
    pub(crate) values: Values,
}

impl Database {
    pub(crate) fn config(&self) -> Arc<config::Database> {
        self.config.load_full()
    }

    /// Its hosts with their roles; `None`: they are treated as PgBouncer does.
    pub(crate) fn site(&self) -> Option<Arc<Site>> {
        self.site.load_full()
    }

    pub(crate) fn set_site(&self, site: Option<Arc<Site>>) {
        self.site.store(site);
    }

    /// The number of the host that a new connection tries first.
    pub(crate) fn first_host(&self, hosts: usize) -> usize {
        match self.config().load_balance_hosts {
            config::LoadBalance::RoundRobin => {
                self.next_host.fetch_add(1, Ordering::Relaxed) % hosts.max(1)
            }
            config::LoadBalance::Disable => self.next_host.load(Ordering::Relaxed) % hosts.max(1),
        }
    }

    /// This host could not be reached. With `disable` the next one is tried, and stays the one for new
    /// connections until it fails.
    pub(crate) fn host_failed(&self, host: usize) {
        if self.config().load_balance_hosts == config::LoadBalance::Disable {
            let next = host.wrapping_add(1);
            // Another connection may have found that out before.
            let _ =
                self.next_host
                    .compare_exchange(host, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl PoolEntry {
    pub(crate) fn terms(&self) -> arc_swap::Guard<Arc<Terms>> {
        self.terms.load()
    }

    pub(crate) fn reported(&self) -> Option<Arc<Reported>> {
        self.welcome.load_full()
    }

    pub(crate) fn set_reported(&self, reported: Reported) {
        self.welcome.store(Some(Arc::new(reported)));
    }
}

impl Terms {
    fn new(live: &Live, database: &config::Database, user: &str, pool: &Pool<'_>) -> Self {
        let effective = live.config.effective(database, user);
        let settings = live.settings();
        let mode = mode(effective.pool_mode);
        let resets = mode == Mode::Session || settings.server_reset_query_always;
        let reset = (resets && !settings.server_reset_query.is_empty())
            .then(|| settings.server_reset_query.as_bytes().into());
        let check = match settings.server_check_query.as_str() {
            "<empty>" => "",
            query => query,
        };
        Self {
            relay: RelaySettings {
                mode,
                max_prepared_statements: settings.max_prepared_statements as usize,
                longest_statement: LONGEST_STATEMENT,
                longest_message: settings.max_packet_size as usize,
                refuses_queries: settings.disable_pqexec,
                strict_commit: database.strict_commit.unwrap_or(settings.strict_commit),
                statements: Arc::clone(pool.statements),
                tracked: Arc::clone(&live.tracked),
            },
            multiplex: multiplex(&effective),
            effective,
            reset,
            check: check.as_bytes().into(),
        }
    }
}

/// What stays of a pool when its terms change.
struct Pool<'p> {
    statements: &'p Arc<Statements>,
}

/// One request at a time is what every connection does.
fn multiplex(effective: &Effective) -> usize {
    match (effective.pool_mode, effective.multiplex) {
        (PoolMode::Statement, 2..) => effective.multiplex as usize,
        _ => 0,
    }
}

fn mode(mode: PoolMode) -> Mode {
    match mode {
        PoolMode::Session => Mode::Session,
        PoolMode::Transaction => Mode::Transaction,
        PoolMode::Statement => Mode::Statement,
    }
}

impl Registers {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pool(&self, id: PoolId) -> Option<Arc<PoolEntry>> {
        self.tables().pools.get(&id).cloned()
    }

    /// The book has removed this pool.
    pub(crate) fn remove_pool(&self, id: PoolId) {
        let mut tables = self.tables();
        if let Some(pool) = tables.pools.remove(&id) {
            let key = (pool.database.id, Box::from(&*pool.user));
            // A younger pool may have the name already.
            if tables.by_name.get(&key).is_some_and(|named| named.id == id) {
                tables.by_name.remove(&key);
            }
            pool.lanes.close();
        }
    }

    /// A database that is known by now.
    pub(crate) fn known_database(&self, name: &str) -> Option<Arc<Database>> {
        self.tables().databases.get(name).cloned()
    }

    pub(crate) fn databases(&self) -> Vec<Arc<Database>> {
        let mut all: Vec<_> = self.tables().databases.values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The databases that know the roles of their hosts.
    pub(crate) fn with_roles(&self) -> Vec<Arc<Database>> {
        let tables = self.tables();
        let all = tables.databases.values();
        all.filter(|database| database.site.load().is_some())
            .cloned()
            .collect()
    }

    pub(crate) fn pools(&self) -> Vec<Arc<PoolEntry>> {
        self.tables().pools.values().cloned().collect()
    }

    pub(crate) fn users(&self) -> Vec<(Box<str>, UserId)> {
        let tables = self.tables();
        let users = tables.users.iter().map(|(name, id)| (name.clone(), *id));
        users.collect()
    }
}

/// What became of a name that was looked up.
pub(crate) enum Lookup<T> {
    Known(T),
    /// It was made from the entry `*` just now.
    Registered(T),
    Unknown,
}

impl Front {
    /// The database with this name, made from `*` if need be.
    pub(crate) fn database(&self, name: &str) -> Lookup<Arc<Database>> {
        if let Some(known) = self.registers.known_database(name) {
            return Lookup::Known(known);
        }
        let live = self.live();
        match live.config.database(name) {
            None => Lookup::Unknown,
            Some(config) if config.is_auto => Lookup::Registered(self.add_database(config)),
            Some(config) => Lookup::Known(self.add_database(config)),
        }
    }

    pub(crate) fn add_database(&self, config: Arc<config::Database>) -> Arc<Database> {
        let mut tables = self.registers.tables();
        if let Some(known) = tables.databases.get(&config.name) {
            return Arc::clone(known);
        }
        let settings = database_settings(&config);
        let id = self.book().add_database(&config.name, settings);
        let database = Arc::new(Database {
            id,
            name: Arc::from(&*config.name),
            config: ArcSwap::from(Arc::clone(&config)),
            counters: Counters::default(),
            averages: Mutex::default(),
            next_host: AtomicUsize::new(0),
            site: ArcSwapOption::from(Site::of(self.live().settings(), &config, self.now())),
        });
        tables
            .databases
            .insert(config.name.clone(), Arc::clone(&database));
        database
    }

    /// A user that the files name, or that has logged in before.
    pub(crate) fn known_user(&self, name: &str) -> Option<UserId> {
        self.registers.tables().users.get(name).copied()
    }

    /// Whether the database takes no logins.
    pub(crate) fn is_disabled(&self, database: &Database) -> bool {
        let rows = self.book().database_rows();
        rows.iter()
            .any(|row| row.id == database.id && row.is_disabled)
    }

    /// A user whose limits count.
    pub(crate) fn user(&self, name: &str) -> UserId {
        let live = self.live();
        let mut tables = self.registers.tables();
        if let Some(known) = tables.users.get(name) {
            return *known;
        }
        let settings = user_settings(live.config.users.get(name).map(Arc::as_ref));
        let id = self.book().add_user(name, settings);
        tables.users.insert(name.into(), id);
        id
    }

    /// The users that the files name are shown even if they have no client.
    pub(crate) fn register_users(&self, live: &Live) {
        for name in live.users() {
            let _ = self.user(&name);
        }
    }

    /// The pool of this database and user; `None` if the database was removed meanwhile.
    ///
    /// The book decides which pool that is: it may have removed the one that is in the register, and
    /// the order to remove that here may not be carried out yet.
    pub(crate) fn pool_of(&self, database: &Arc<Database>, user: &str) -> Option<Arc<PoolEntry>> {
        let user_id = self.user(user);
        let now = self.now();
        let key = (database.id, Box::from(user));
        let mut tables = self.registers.tables();
        // Under this lock, so that no other thread puts an older pool in the place of this one.
        let id = self.book().pool(database.id, user_id, now)?;
        if let Some(known) = tables.by_name.get(&key).filter(|known| known.id == id) {
            return Some(Arc::clone(known));
        }
        let pool = Arc::new(self.new_pool(id, database, user));
        tables.pools.insert(id, Arc::clone(&pool));
        tables.by_name.insert(key, Arc::clone(&pool));
        Some(pool)
    }

    /// The pool that has taken the place of one that the book has removed; `None`: none has.
    pub(crate) fn pool_after(&self, gone: &PoolEntry) -> Option<Arc<PoolEntry>> {
        let pool = self.pool_of(&gone.database, &gone.user)?;
        if pool.id == gone.id {
            return None;
        }
        if let Some(proved) = gone.credentials.load_full() {
            pool.credentials.store(Some(proved));
        }
        Some(pool)
    }

    fn new_pool(&self, id: PoolId, database: &Arc<Database>, user: &str) -> PoolEntry {
        let statements = Arc::new(Statements::new());
        let kept = Pool {
            statements: &statements,
        };
        let terms = Terms::new(&self.live(), &database.config(), user, &kept);
        PoolEntry {
            id,
            database: Arc::clone(database),
            user: Arc::from(user),
            terms: ArcSwap::from_pointee(terms),
            statements,
            lanes: Lanes::default(),
            welcome: ArcSwapOption::empty(),
            credentials: ArcSwapOption::empty(),
        }
    }

    /// The configuration has changed: so do the terms of all pools, and the limits in the book.
    pub(crate) fn renew_terms(&self) {
        let live = self.live();
        for database in self.registers.databases() {
            if let Some(config) = live.config.database(&database.name) {
                let settings = database_settings(&config);
                self.book().configure_database(database.id, settings);
                database.config.store(Arc::clone(&config));
                self.renew_site(&database, &config);
            }
        }
        for (name, id) in self.registers.users() {
            let user = live.config.users.get(&name).map(Arc::as_ref);
            self.book().configure_user(id, user_settings(user));
        }
        for pool in self.registers.pools() {
            let kept = Pool {
                statements: &pool.statements,
            };
            let terms = Terms::new(&live, &pool.database.config(), &pool.user, &kept);
            pool.terms.store(Arc::new(terms));
        }
    }

    /// Forgets the databases made from `*` that have been unused for this long, with their
    /// counters (`autodb_idle_timeout`).
    pub(crate) fn forget_unused_databases(&self, timeout: Duration) {
        // A name that is looked up meanwhile is in both, or in neither.
        let mut tables = self.registers.tables();
        let (forgotten, orders) =
            self.with_book(|book, now, orders| book.forget_unused_databases(timeout, now, orders));
        let mut ended = Vec::new();
        if !forgotten.is_empty() {
            tables.databases.retain(|_, database| {
                let is_kept = !forgotten.contains(&database.id);
                if !is_kept {
                    ended.push(Arc::clone(database));
                }
                is_kept
            });
        }
        drop(tables);
        for database in ended {
            let name = &database.name;
            let text = format_args!("dropping database {name}: it was made from * and is unused");
            self.note(Level::Log, text);
            if let Some(site) = database.site() {
                site.end_probes();
            }
        }
        self.carry_out(orders);
    }

    /// The database is in the configuration no longer.
    pub(crate) fn forget_database(&self, name: &str) -> Option<Arc<Database>> {
        let forgotten = self.registers.tables().databases.remove(name);
        if let Some(site) = forgotten.as_ref().and_then(|database| database.site()) {
            site.end_probes();
        }
        forgotten
    }
}
