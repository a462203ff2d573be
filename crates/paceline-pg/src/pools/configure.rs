//! Adds, changes and removes databases, users and pools, and admits clients.

use std::{sync::Arc, time::Duration};

use super::{
    admin::Scope,
    book::{Book, Orders},
    entries::{Client, Database, Pool, Shared, User},
    orders::{Order, Refusal},
    settings::{has_room, DatabaseSettings, PoolLimits, Settings, UserSettings},
    slab::NONE,
    ClientId, DatabaseId, PoolId, UserId,
};

/// Whether client limits hold for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// All limits hold.
    Ordinary,
    /// The client says that it is an administrator at the console, and has not proved it: beyond a
    /// limit there is room for [`MOST_CLAIMS`] such clients at a time.
    Claimed,
    /// An administrator at the console: no limit holds.
    Exempt,
}

/// What a client names at its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// This database.
    Database(DatabaseId),
    /// The console, whose clients have the limit of a database without a limit of its own.
    Console,
    /// A database that does not exist.
    Nowhere,
}

impl From<Option<DatabaseId>> for Destination {
    fn from(database: Option<DatabaseId>) -> Self {
        database.map_or(Self::Nowhere, Self::Database)
    }
}

/// The slot of the console, which is no database.
const CONSOLE: u32 = NONE - 1;

/// How many clients that claim to be administrators may be beyond a limit. More than one, because a
/// client that never proves its claim keeps its place for `client_login_timeout`.
pub const MOST_CLAIMS: usize = 8;

impl<T> Book<T> {
    /// Changes the settings of all pools.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
        self.set_limits();
    }

    /// The settings of all pools.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a database of the configuration. Its id stays valid until the database is removed.
    pub fn add_database(&mut self, name: &str, settings: DatabaseSettings) -> DatabaseId {
        let slot = self.databases.insert(Database {
            name: Arc::from(name),
            settings,
            shared: Shared::default(),
            is_paused: false,
            is_disabled: false,
            is_removed: false,
            unused_since: None,
            pools: Vec::new(),
        });
        self.databases.id(slot)
    }

    /// Changes the limits of a database.
    pub fn configure_database(&mut self, database: DatabaseId, settings: DatabaseSettings) {
        if let Some(slot) = self.databases.find(database) {
            self.databases[slot].settings = settings;
            self.set_limits();
        }
    }

    /// Removes a database from the configuration. The book closes its clients and servers, and then
    /// forgets it.
    pub fn remove_database(&mut self, database: DatabaseId, orders: &mut Orders<T>) {
        let Some(slot) = self.databases.find(database) else {
            return;
        };
        self.databases[slot].is_removed = true;
        let scope = Scope::Database(database);
        self.dismiss_all(scope, &Refusal::DatabaseRemoved, orders);
        for pool in self.pools_of(scope) {
            self.mark(pool, orders);
        }
    }

    /// Adds a user with limits.
    pub fn add_user(&mut self, name: &str, settings: UserSettings) -> UserId {
        let slot = self.users.insert(User {
            name: Arc::from(name),
            settings,
            shared: Shared::default(),
        });
        self.users.id(slot)
    }

    /// Changes the limits of a user.
    pub fn configure_user(&mut self, user: UserId, settings: UserSettings) {
        if let Some(slot) = self.users.find(user) {
            self.users[slot].settings = settings;
            self.set_limits();
        }
    }

    fn set_limits(&mut self) {
        for slot in 0..self.pools.slots() {
            if self.pools.is_full(slot) {
                self.pools[slot].limits = self.limits(&self.pools[slot]);
            }
        }
    }

    fn limits(&self, pool: &Pool) -> PoolLimits {
        let database = &self.databases[pool.database].settings;
        PoolLimits::of(&self.settings, database, &self.users[pool.user].settings)
    }

    /// The pool of this database and user; makes it on the first call.
    pub fn pool(&mut self, database: DatabaseId, user: UserId, now: Duration) -> Option<PoolId> {
        let database = self.databases.find(database)?;
        let user = self.users.find(user)?;
        self.databases[database].unused_since = None;
        let pools = &self.databases[database].pools;
        let place = pools.binary_search_by_key(&user, |(user, _)| *user);
        let slot = match place {
            Ok(place) => pools[place].1,
            Err(place) => {
                let mut pool = Pool::new(database, user, NO_LIMITS, now);
                pool.limits = self.limits(&pool);
                let slot = self.pools.insert(pool);
                self.databases[database].pools.insert(place, (user, slot));
                slot
            }
        };
        Some(self.pools.id(slot))
    }

    /// Forgets pools and databases that were removed and are empty now.
    pub(super) fn remove_unused(&mut self, orders: &mut Orders<T>) {
        for slot in 0..self.pools.slots() {
            if self.pools.is_full(slot) && self.pools[slot].is_empty() {
                let database = self.pools[slot].database;
                if self.databases[database].is_removed {
                    self.remove_pool(slot, orders);
                }
            }
        }
        for slot in 0..self.databases.slots() {
            if self.databases.is_full(slot) {
                let it = &self.databases[slot];
                if it.is_removed && it.pools.is_empty() && it.shared.clients == 0 {
                    self.databases.remove(slot);
                }
            }
        }
    }

    pub(super) fn remove_pool(&mut self, slot: u32, orders: &mut Orders<T>) {
        let pool = self.pools.id(slot);
        let gone = self.pools.remove(slot);
        let database = &mut self.databases[gone.database];
        database.pools.retain(|(_, pool)| *pool != slot);
        orders.push(Order::PoolRemoved { pool });
    }

    /// Counts a client from its login on. A database or user without an entry in the configuration
    /// has no limit of its own.
    ///
    /// # Errors
    /// The limit that the client exceeds, or [`Refusal::Gone`]: the database was forgotten. The
    /// client is in the book only on `Ok`.
    pub fn enter(
        &mut self,
        destination: impl Into<Destination>,
        user: Option<UserId>,
        privilege: Privilege,
        now: Duration,
    ) -> Result<ClientId, Refusal> {
        let destination = destination.into();
        let database = match destination {
            Destination::Database(id) => self.databases.find(id).ok_or(Refusal::Gone)?,
            Destination::Console => CONSOLE,
            Destination::Nowhere => NONE,
        };
        let user = user.and_then(|id| self.users.find(id)).unwrap_or(NONE);
        let claims = match self.check_client_limits(database, user) {
            Ok(()) => false,
            Err(_) if privilege == Privilege::Exempt => false,
            Err(_) if privilege == Privilege::Claimed && self.claims < MOST_CLAIMS => true,
            Err(refusal) => return Err(refusal),
        };
        let mut client = Client::new(database, user, now);
        client.claims = claims;
        self.claims += usize::from(claims);
        if let Some(clients) = self.clients_of(database) {
            *clients += 1;
        }
        if let Destination::Database(_) = destination {
            self.databases[database].unused_since = None;
        }
        if user != NONE {
            self.users[user].shared.clients += 1;
        }
        let slot = self.clients.insert(client);
        Ok(self.clients.id(slot))
    }

    /// How many clients a database or the console has.
    fn clients_of(&mut self, database: u32) -> Option<&mut usize> {
        match database {
            NONE => None,
            CONSOLE => Some(&mut self.consoles),
            slot => Some(&mut self.databases[slot].shared.clients),
        }
    }

    /// Counts a client for its user, which is known only now. It has proved what it claimed.
    ///
    /// # Errors
    /// The user has too many clients. The client remains in the book, and does not count.
    pub fn identify(
        &mut self,
        client: ClientId,
        user: UserId,
        privilege: Privilege,
    ) -> Result<(), Refusal> {
        let (client, user) = match (self.clients.find(client), self.users.find(user)) {
            (Some(client), Some(user)) => (client, user),
            _ => return Err(Refusal::Gone),
        };
        self.claims -= usize::from(std::mem::take(&mut self.clients[client].claims));
        let before = std::mem::replace(&mut self.clients[client].user, NONE);
        if before != NONE {
            self.users[before].shared.clients -= 1;
        }
        if privilege != Privilege::Exempt {
            self.check_user_limit(user)?;
        }
        self.users[user].shared.clients += 1;
        self.clients[client].user = user;
        Ok(())
    }

    fn check_user_limit(&self, user: u32) -> Result<(), Refusal> {
        let user = &self.users[user];
        let most = user.settings.max_clients;
        let most = most.unwrap_or(self.settings.max_user_clients);
        if has_room(user.shared.clients, most) {
            Ok(())
        } else {
            Err(Refusal::MaxUserClients)
        }
    }

    fn check_client_limits(&self, database: u32, user: u32) -> Result<(), Refusal> {
        if !has_room(self.clients.len(), self.settings.max_clients) {
            return Err(Refusal::MaxClients);
        }
        let (count, own) = match self.databases.get(database) {
            Some(it) => (it.shared.clients, it.settings.max_clients),
            None if database == CONSOLE => (self.consoles, None),
            None => (0, Some(0)),
        };
        if !has_room(count, own.unwrap_or(self.settings.max_database_clients)) {
            return Err(Refusal::MaxDatabaseClients);
        }
        if user == NONE {
            return Ok(());
        }
        self.check_user_limit(user)
    }

    pub(super) fn uncount_client(&mut self, client: &Client) {
        self.claims -= usize::from(client.claims);
        if let Some(clients) = self.clients_of(client.database) {
            *clients -= 1;
        }
        if client.user != NONE {
            self.users[client.user].shared.clients -= 1;
        }
    }
}

const NO_LIMITS: PoolLimits = PoolLimits {
    size: 0,
    min: 0,
    reserve: 0,
    lifetime: Duration::ZERO,
};
