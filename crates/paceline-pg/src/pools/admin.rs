//! The commands of an administrator: pause, resume, disable, enable, kill, reconnect, wait for
//! closed connections, suspend, and the forms of a shutdown.
//!
//! A command that takes time is an operation with a number. An order reports that it is complete.

use std::time::Duration;

use super::{
    book::{Book, Orders},
    orders::{Order, Refusal},
    slab::NONE,
    ClientState, CloseReason, DatabaseId, ServerState,
};

/// A command that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(u64);

/// The phase of the whole pooler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    #[default]
    Active,
    /// No client gets a server, and the servers are closed.
    Paused,
    /// No client gets a server; the servers stay.
    Suspended,
    /// It ends when no client has a server.
    WaitForServers,
    /// It ends when all clients have disconnected; no client can log in.
    WaitForClients,
    /// As `WaitForClients`; the book closes each client at the end of its transaction.
    WaitForTransactions,
}

/// How a pooler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Clients keep their servers as long as they need them; those that wait get an error.
    WaitForServers,
    /// Clients stay as long as they want.
    WaitForClients,
    /// Clients stay as long as they have a transaction.
    WaitForTransactions,
}

/// The scope of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// One database.
    Database(DatabaseId),
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Commanded {
    /// It is complete.
    Done,
    /// It is under way: `Order::Completed` reports its end.
    Pending(OperationId),
    /// There is no such database.
    NoDatabase,
    /// The pooler or the database was already paused or suspended.
    AlreadyPaused,
    /// Neither is paused.
    NotPaused,
    /// The pooler shuts down.
    ShuttingDown,
}

#[derive(Clone, Copy, Debug)]
enum Goal {
    /// No connection is left in the scope.
    NoServers,
    /// No client has a server.
    NoneHeld,
    /// No marked connection is left.
    NoneMarked,
    /// No client is left.
    NoClients,
}

/// Commands that are not complete.
#[derive(Debug, Default)]
pub(super) struct Operations {
    next: u64,
    pending: Vec<(OperationId, Goal, Option<u32>)>,
}

impl<T> Book<T> {
    /// The phase of the whole pooler.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether clients of the pool can get servers now.
    pub(super) fn gives_servers(&self, pool: u32) -> bool {
        let serves = !matches!(
            self.phase,
            Phase::Paused | Phase::Suspended | Phase::WaitForServers
        );
        serves && !self.databases[self.pools[pool].database].is_paused
    }

    /// Whether the book closes servers of the pool as soon as no client has them.
    pub(super) fn is_paused(&self, pool: u32) -> bool {
        let database = &self.databases[self.pools[pool].database];
        let is_paused = matches!(self.phase, Phase::Paused | Phase::WaitForServers);
        is_paused || database.is_paused || database.is_removed
    }

    /// Why an authenticated client can't enter this database.
    pub(super) fn login_refusal(&self, database: u32) -> Option<Refusal> {
        let database = &self.databases[database];
        if database.is_removed {
            Some(Refusal::Gone)
        } else if database.is_disabled {
            Some(Refusal::Disabled(database.name.clone()))
        } else if self.is_shutting_down() {
            Some(Refusal::PoolerShutsDown)
        } else {
            None
        }
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        use Phase::{WaitForClients, WaitForServers, WaitForTransactions};
        matches!(
            self.phase,
            WaitForServers | WaitForClients | WaitForTransactions
        )
    }

    /// Closes a client that has just lost its server, if the pooler drains.
    pub(super) fn dismiss_if_drained(&self, client: u32, orders: &mut Orders<T>) {
        if self.phase == Phase::WaitForTransactions {
            self.dismiss(client, Refusal::Drained, orders);
        }
    }

    fn dismiss(&self, client: u32, why: Refusal, orders: &mut Orders<T>) {
        let client = self.clients.id(client);
        orders.push(Order::Dismiss { client, why });
    }

    /// Gives out no more servers, and closes them as clients give them back.
    pub fn pause(&mut self, scope: Scope, orders: &mut Orders<T>) -> Commanded {
        if let Err(refused) = self.set_paused(scope) {
            return refused;
        }
        self.close_unused(scope, CloseReason::Paused, orders);
        self.begin(Goal::NoServers, scope)
    }

    fn set_paused(&mut self, scope: Scope) -> Result<(), Commanded> {
        if self.phase != Phase::Active {
            return Err(Commanded::AlreadyPaused);
        }
        match self.scope(scope)? {
            None => self.phase = Phase::Paused,
            Some(database) => self.databases[database].is_paused = true,
        }
        Ok(())
    }

    /// Gives out servers again.
    pub fn resume(&mut self, scope: Scope, now: Duration, orders: &mut Orders<T>) -> Commanded {
        if self.is_shutting_down() {
            return Commanded::ShuttingDown;
        }
        match self.scope(scope) {
            Err(refused) => return refused,
            Ok(None) if self.resume_all() => {}
            Ok(Some(database)) if self.databases[database].is_paused => {
                self.databases[database].is_paused = false;
            }
            Ok(_) => return Commanded::NotPaused,
        }
        self.check_operations(orders);
        for pool in self.pools_of(scope) {
            self.serve(pool, now, orders);
        }
        self.grow_all(now, orders);
        Commanded::Done
    }

    /// Whether anything was paused.
    fn resume_all(&mut self) -> bool {
        let mut was_paused = self.phase != Phase::Active;
        self.phase = Phase::Active;
        for database in self.databases.iter_mut() {
            was_paused |= std::mem::take(&mut database.is_paused);
        }
        was_paused
    }

    /// Gives out no more servers, and keeps them.
    pub fn suspend(&mut self) -> Commanded {
        let is_paused = self.databases.iter().any(|(_, it)| it.is_paused);
        if self.phase != Phase::Active || is_paused {
            return Commanded::AlreadyPaused;
        }
        self.phase = Phase::Suspended;
        self.begin(Goal::NoneHeld, Scope::All)
    }

    /// Refuses new clients of a database, or admits them again.
    pub fn set_disabled(&mut self, database: DatabaseId, disabled: Disabled) -> Commanded {
        let Some(database) = self.databases.find(database) else {
            return Commanded::NoDatabase;
        };
        self.databases[database].is_disabled = disabled == Disabled::Yes;
        Commanded::Done
    }

    /// Closes all clients and servers, and pauses.
    pub fn kill(&mut self, scope: Scope, orders: &mut Orders<T>) -> Commanded {
        if let Err(refused) = self.set_paused(scope) {
            return refused;
        }
        self.close_unused(scope, CloseReason::Killed, orders);
        self.dismiss_all(scope, &Refusal::Killed, orders);
        Commanded::Done
    }

    /// Dismisses all clients of a database that have a pool.
    pub(super) fn dismiss_all(&mut self, scope: Scope, why: &Refusal, orders: &mut Orders<T>) {
        let Ok(only) = self.scope(scope) else { return };
        for client in 0..self.clients.slots() {
            if !self.clients.is_full(client) || self.clients[client].pool == NONE {
                continue;
            }
            if only.is_none_or(|only| self.clients[client].database == only) {
                self.stop_waiting(client);
                self.dismiss(client, why.clone(), orders);
            }
        }
    }

    /// Closes all connections, each as soon as no client has it; new ones take their place.
    pub fn reconnect(&mut self, scope: Scope, now: Duration, orders: &mut Orders<T>) -> Commanded {
        if let Err(refused) = self.scope(scope) {
            return refused;
        }
        for pool in self.pools_of(scope) {
            self.mark(pool, orders);
        }
        self.grow_all(now, orders);
        Commanded::Done
    }

    /// Marks the connections of a pool to be closed; idle ones are closed at once.
    pub(super) fn mark(&mut self, pool: u32, orders: &mut Orders<T>) {
        while let Some(idle) = self.pools[pool].idle.first() {
            self.close_idle(idle, CloseReason::Changed, orders);
        }
        let it = &mut self.pools[pool];
        it.epoch = it.epoch.wrapping_add(1);
        it.marked = it.connections();
        it.has_welcome = false;
    }

    /// Completes when no connection is left that [`Book::reconnect`] has marked.
    pub fn wait_close(&mut self, scope: Scope) -> Commanded {
        if let Err(refused) = self.scope(scope) {
            return refused;
        }
        self.begin(Goal::NoneMarked, scope)
    }

    /// Begins to end. A later form takes the place of an earlier one.
    pub fn shut_down(&mut self, form: Shutdown, orders: &mut Orders<T>) -> Commanded {
        match form {
            Shutdown::WaitForServers => {
                self.phase = Phase::WaitForServers;
                self.close_unused(Scope::All, CloseReason::ShuttingDown, orders);
                for pool in self.pools_of(Scope::All) {
                    self.refuse_all(pool, &Refusal::ShuttingDown, orders);
                }
                self.begin(Goal::NoServers, Scope::All)
            }
            Shutdown::WaitForClients => {
                self.phase = Phase::WaitForClients;
                self.begin(Goal::NoClients, Scope::All)
            }
            Shutdown::WaitForTransactions => {
                self.phase = Phase::WaitForTransactions;
                for client in 0..self.clients.slots() {
                    if self.clients.is_full(client) && self.is_at_rest(client) {
                        self.stop_waiting(client);
                        self.dismiss(client, Refusal::Drained, orders);
                    }
                }
                self.begin(Goal::NoClients, Scope::All)
            }
        }
    }

    fn is_at_rest(&self, client: u32) -> bool {
        let client = &self.clients[client];
        client.state != ClientState::Active && client.pool != NONE
    }

    /// Closes idle connections, and gives up those that are being opened.
    fn close_unused(&mut self, scope: Scope, reason: CloseReason, orders: &mut Orders<T>) {
        for pool in self.pools_of(scope) {
            while let Some(idle) = self.pools[pool].idle.first() {
                self.close_idle(idle, reason, orders);
            }
            self.note_blocked(pool);
        }
        for slot in 0..self.servers.slots() {
            if self.servers.is_full(slot)
                && self.servers[slot].state == ServerState::Opening
                && self.is_paused(self.servers[slot].pool)
            {
                let server = self.servers.id(slot);
                self.forget(slot);
                orders.push(Order::Abort { server, reason });
            }
        }
    }

    /// The database of the scope; `None` for all.
    fn scope(&self, scope: Scope) -> Result<Option<u32>, Commanded> {
        match scope {
            Scope::All => Ok(None),
            Scope::Database(id) => match self.databases.find(id) {
                Some(slot) => Ok(Some(slot)),
                None => Err(Commanded::NoDatabase),
            },
        }
    }

    /// The pools of a scope.
    pub(super) fn pools_of(&self, scope: Scope) -> Vec<u32> {
        let only = self.scope(scope).unwrap_or(Some(NONE));
        let pools = self.pools.iter();
        let pools = pools.filter(|(_, it)| only.is_none_or(|only| it.database == only));
        pools.map(|(slot, _)| slot).collect()
    }

    fn begin(&mut self, goal: Goal, scope: Scope) -> Commanded {
        let Ok(scope) = self.scope(scope) else {
            return Commanded::NoDatabase;
        };
        if self.is_reached(goal, scope) {
            return Commanded::Done;
        }
        self.operations.next += 1;
        let id = OperationId(self.operations.next);
        self.operations.pending.push((id, goal, scope));
        Commanded::Pending(id)
    }

    fn is_reached(&self, goal: Goal, only: Option<u32>) -> bool {
        let pools = self.pools.iter().map(|(_, it)| it);
        let mut pools = pools.filter(|it| only.is_none_or(|only| it.database == only));
        match goal {
            Goal::NoServers => pools.all(|it| it.connections() == 0),
            Goal::NoneHeld => pools.all(|it| it.counts.held == 0),
            Goal::NoneMarked => pools.all(|it| it.marked == 0),
            Goal::NoClients => self.clients.len() == 0,
        }
    }

    /// Reports the operations that are complete now.
    pub(super) fn check_operations(&mut self, orders: &mut Orders<T>) {
        if self.operations.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.operations.pending);
        let (done, rest) = pending
            .into_iter()
            .partition(|(_, goal, scope)| self.is_reached(*goal, *scope));
        self.operations.pending = rest;
        let done: Vec<(OperationId, Goal, Option<u32>)> = done;
        let done = done.into_iter();
        orders.extend(done.map(|(operation, ..)| Order::Completed { operation }));
    }

    /// Forgets an operation: the caller no longer waits for it.
    pub fn give_up(&mut self, operation: OperationId) {
        let pending = &mut self.operations.pending;
        pending.retain(|(id, ..)| *id != operation);
    }
}

/// Whether a database refuses new clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// It refuses them.
    Yes,
    /// It admits them.
    No,
}
