//! The book: clients ask for servers and give them back.

use std::time::Duration;

use super::{
    admin::{Operations, Phase},
    entries::{Cancel, Client, Database, Pool, Server, User},
    orders::{Ask, FailureScope, GiveBack, LoginFailure, Order, Refusal, Welcome},
    settings::Settings,
    slab::{Slab, NONE},
    ClientId, ClientState, CloseReason, PoolId, ServerId, ServerKey, ServerState,
};
use std::sync::Arc;

/// Orders that the caller carries out, in their order.
pub type Orders<T> = Vec<Order<T>>;

/// The waiting clients, and the server of each other client. `T` is the caller's connection.
#[derive(Debug)]
pub struct Book<T> {
    pub(super) settings: Settings,
    pub(super) databases: Slab<Database>,
    pub(super) users: Slab<User>,
    pub(super) pools: Slab<Pool>,
    pub(super) servers: Slab<Server<T>>,
    pub(super) clients: Slab<Client>,
    pub(super) cancels: Slab<Cancel>,
    pub(super) phase: Phase,
    pub(super) operations: Operations,
    /// How many clients are at the console.
    pub(super) consoles: usize,
    /// How many clients are beyond a limit, and have not proved that they are administrators.
    pub(super) claims: usize,
    /// The next arrival number of a waiting client.
    pub(super) next_ticket: u64,
    pub(super) next_binding: u64,
}

/// The outcome of [`Book::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Left {
    /// Nothing.
    Nothing,
    /// This server, which must be given back or closed.
    Server(ServerId),
}

/// After a failed login the next one waits at least so long, also if `login_retry` is zero: one that
/// fails at once would otherwise be ordered again by its own failure, without end.
const LEAST_RETRY: Duration = Duration::from_millis(10);

/// The outcome of a search for an idle server.
enum Found {
    Fit(u32),
    Checked,
    Nothing,
}

impl<T> Book<T> {
    /// A book without databases.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            databases: Slab::default(),
            users: Slab::default(),
            pools: Slab::default(),
            servers: Slab::default(),
            clients: Slab::default(),
            cancels: Slab::default(),
            phase: Phase::default(),
            operations: Operations::default(),
            consoles: 0,
            claims: 0,
            next_ticket: 0,
            next_binding: 0,
        }
    }

    /// Asks for a server of this pool for a client. If the book still assigns another server to the
    /// client, it ends that assignment: the caller must still report that server's end, by
    /// `give_back` or `closed`.
    pub fn ask(
        &mut self,
        client: ClientId,
        pool: PoolId,
        now: Duration,
        orders: &mut Orders<T>,
    ) -> Ask<T> {
        let (client, pool) = match (self.clients.find(client), self.pools.find(pool)) {
            (Some(client), Some(pool)) => (client, pool),
            _ => return Ask::Refused(Refusal::Gone),
        };
        if let Some(why) = self.refusal(pool, now) {
            return Ask::Refused(why);
        }
        self.move_client(client, pool);
        if self.gives_servers(pool) && self.pools[pool].waiting.is_empty() {
            if let Found::Fit(server) = self.find_idle(pool, now, orders) {
                self.take_idle(server);
                let (connection, binding) = self.bind(server, client, None, now);
                let server = self.servers.id(server);
                return Ask::Server {
                    server,
                    connection: connection.expect("an idle server has its connection"),
                    binding,
                };
            }
        }
        self.enqueue(client, pool, now);
        // Idle servers may need a check first.
        self.serve(pool, now, orders);
        self.grow(pool, now, orders);
        Ask::Waiting
    }

    /// Why a client of this pool gets an error at once: the pooler ends, or logins keep failing.
    fn refusal(&self, pool: u32, now: Duration) -> Option<Refusal> {
        if self.phase == Phase::WaitForServers {
            return Some(Refusal::ShuttingDown);
        }
        let parks = self.databases[self.pools[pool].database].settings.parks;
        let pool = &self.pools[pool];
        let failing = pool.failing.as_ref()?;
        let fails = pool.connected() == 0 && now < failing.until && !parks;
        fails.then(|| Refusal::LoginKeepsFailing(failing.message.clone()))
    }

    /// Ends the login of an authenticated client, once the pool has had a server.
    pub fn await_welcome(
        &mut self,
        client: ClientId,
        pool: PoolId,
        now: Duration,
        orders: &mut Orders<T>,
    ) -> Welcome {
        let (client, pool) = match (self.clients.find(client), self.pools.find(pool)) {
            (Some(client), Some(pool)) => (client, pool),
            _ => return Welcome::Refused(Refusal::Gone),
        };
        if let Some(why) = self.login_refusal(self.pools[pool].database) {
            return Welcome::Refused(why);
        }
        self.move_client(client, pool);
        if self.pools[pool].has_welcome {
            let client = &mut self.clients[client];
            client.is_logged_in = true;
            client.state = ClientState::Idle;
            return Welcome::Ready;
        }
        self.pools[pool].clients -= 1;
        self.stamp(client, ClientState::Arriving, now);
        self.pools[pool].arriving.push(&mut self.clients, client);
        self.grow(pool, now, orders);
        Welcome::Waiting
    }

    /// A connection is logged in. Clients that wait for the first one get their welcome.
    pub fn opened(
        &mut self,
        server: ServerId,
        connection: T,
        key: Option<ServerKey>,
        now: Duration,
        orders: &mut Orders<T>,
    ) -> GiveBack<T> {
        let Some(slot) = self.in_state(server, &[ServerState::Opening]) else {
            let reason = CloseReason::Obsolete;
            return GiveBack::Close { connection, reason };
        };
        self.servers[slot].key = key.map(Arc::new);
        let pool = self.servers[slot].pool;
        self.pools[pool].failing = None;
        if !self.is_marked(slot) {
            self.pools[pool].has_welcome = true;
            self.welcome_all(pool, orders);
        }
        let outcome = self.release(slot, connection, now, orders);
        // The login has ended, so the next one may begin.
        self.grow(pool, now, orders);
        outcome
    }

    fn welcome_all(&mut self, pool: u32, orders: &mut Orders<T>) {
        while let Some(client) = self.pools[pool].arriving.first() {
            self.stop_waiting(client);
            self.clients[client].is_logged_in = true;
            self.clients[client].state = ClientState::Idle;
            let client = self.clients.id(client);
            orders.push(Order::Welcome { client });
        }
    }

    /// A connection could not be opened. Clients that wait get the error, unless it is temporary
    /// or another server is usable.
    pub fn open_failed(
        &mut self,
        server: ServerId,
        failure: &LoginFailure,
        now: Duration,
        orders: &mut Orders<T>,
    ) {
        let Some(slot) = self.in_state(server, &[ServerState::Opening]) else {
            return self.carry_ends(server, now, orders);
        };
        let was_marked = self.is_marked(slot);
        let pool = self.servers[slot].pool;
        self.forget(slot);
        if !was_marked {
            self.pools[pool].failing = Some(super::entries::Failing {
                message: failure.message.clone(),
                until: now + self.settings.login_retry.max(LEAST_RETRY),
            });
            let it = &self.pools[pool];
            let is_usable = it.connected() > 0 && it.has_welcome;
            if failure.scope == FailureScope::Refused && !is_usable {
                self.refuse_all(pool, &Refusal::Login(failure.clone()), orders);
            }
        }
        self.refill(pool, now, orders);
    }

    /// Ends the wait of all clients of a pool.
    pub(super) fn refuse_all(&mut self, pool: u32, why: &Refusal, orders: &mut Orders<T>) {
        loop {
            let it = &self.pools[pool];
            let Some(client) = it.arriving.first().or(it.waiting.first()) else {
                return self.note_blocked(pool);
            };
            self.stop_waiting(client);
            let client = self.clients.id(client);
            let why = why.clone();
            orders.push(Order::Refuse { client, why });
        }
    }

    /// Gives back a server after its use by a client, a check or a reset. The next client gets it.
    /// For a connection that no other client may use, call [`Book::closed`] instead. The caller
    /// carries out the outcome before the orders: they rely on a closed connection.
    pub fn give_back(
        &mut self,
        server: ServerId,
        connection: T,
        now: Duration,
        orders: &mut Orders<T>,
    ) -> GiveBack<T> {
        use ServerState::{Checking, Held, Resetting};
        let Some(slot) = self.in_state(server, &[Held, Checking, Resetting]) else {
            let reason = CloseReason::Obsolete;
            return GiveBack::Close { connection, reason };
        };
        self.unbind(slot, orders);
        self.servers[slot].is_quiet = false;
        if self.servers[slot].cancels > 0 {
            self.servers[slot].connection = Some(connection);
            self.servers[slot].since = now;
            self.set_state(slot, ServerState::BeingCancelled);
            return GiveBack::Held;
        }
        self.release(slot, connection, now, orders)
    }

    /// Takes a server from its client for a reset of its session. The caller calls `give_back`
    /// after the reset.
    pub fn reset(&mut self, server: ServerId, orders: &mut Orders<T>) {
        if let Some(slot) = self.in_state(server, &[ServerState::Held]) {
            self.unbind(slot, orders);
            self.servers[slot].is_quiet = true;
            self.set_state(slot, ServerState::Resetting);
        }
    }

    /// Gives a free server to the next client, or makes it idle.
    pub(super) fn release(
        &mut self,
        slot: u32,
        connection: T,
        now: Duration,
        orders: &mut Orders<T>,
    ) -> GiveBack<T> {
        let pool = self.servers[slot].pool;
        if let Some(reason) = self.end_at_release(slot, now) {
            self.forget(slot);
            self.serve(pool, now, orders);
            self.refill(pool, now, orders);
            return GiveBack::Close { connection, reason };
        }
        let first = self.pools[pool].waiting.first();
        let Some(client) = first.filter(|_| self.gives_servers(pool)) else {
            self.put_idle(slot, connection, now);
            self.let_others_evict(slot, now, orders);
            return GiveBack::Idle;
        };
        let (_, binding) = self.bind(slot, client, Some(now), now);
        self.note_blocked(pool);
        let client = self.clients.id(client);
        GiveBack::ToClient {
            client,
            connection,
            binding,
        }
    }

    /// As [`Book::release`], for a server whose connection the book has.
    pub(super) fn release_kept(&mut self, slot: u32, now: Duration, orders: &mut Orders<T>) {
        let server = self.servers.id(slot);
        let connection = self.servers[slot].connection.take();
        let connection = connection.expect("the book keeps the connection");
        let place = orders.len();
        match self.release(slot, connection, now, orders) {
            GiveBack::ToClient {
                client,
                connection,
                binding,
            } => orders.push(Order::Give {
                client,
                server,
                connection,
                binding,
            }),
            // Close it before the orders since then: it makes room for their connections.
            GiveBack::Close { connection, reason } => orders.insert(
                place,
                Order::Close {
                    server,
                    connection,
                    reason,
                },
            ),
            GiveBack::Idle | GiveBack::Held => {}
        }
    }

    /// A connection has ended in any state. Returns the value that the book kept of it.
    pub fn closed(&mut self, server: ServerId, now: Duration, orders: &mut Orders<T>) -> Option<T> {
        let slot = self.servers.find(server)?;
        if self.carries_cancel(slot) {
            self.carry_ends(server, now, orders);
            return None;
        }
        let (pool, state) = (self.servers[slot].pool, self.servers[slot].state);
        self.unbind(slot, orders);
        if state == ServerState::Idle {
            self.take_idle(slot);
        }
        let connection = self.forget(slot);
        // If it was in a check for a client, that client needs another idle server.
        self.serve(pool, now, orders);
        self.refill(pool, now, orders);
        connection
    }

    /// Removes a client that has ended, and forgets its wait.
    pub fn leave(&mut self, client: ClientId, now: Duration, orders: &mut Orders<T>) -> Left {
        let Some(client) = self.clients.find(client) else {
            return Left::Nothing;
        };
        let server = self.clients[client].server;
        self.stop_waiting(client);
        let gone = self.clients.remove(client);
        if gone.pool != NONE {
            self.pools[gone.pool].clients -= 1;
            self.pools[gone.pool].unused_since = now;
            self.note_blocked(gone.pool);
        }
        self.uncount_client(&gone);
        self.check_operations(orders);
        if server == NONE {
            return Left::Nothing;
        }
        (self.servers[server].client, self.servers[server].binding) = (NONE, 0);
        Left::Server(self.servers.id(server))
    }

    /// The first idle server that a client may use.
    fn find_idle(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) -> Found {
        loop {
            let idle = &self.pools[pool].idle;
            let next = if self.settings.round_robin {
                idle.first()
            } else {
                idle.last()
            };
            let Some(slot) = next else {
                return Found::Nothing;
            };
            if let Some(reason) = self.end_of_idle(slot, now) {
                self.close_idle(slot, reason, orders);
            } else if self.needs_check(slot, now) {
                self.check(slot, orders);
                return Found::Checked;
            } else {
                return Found::Fit(slot);
            }
        }
    }

    pub(super) fn needs_check(&self, slot: u32, now: Duration) -> bool {
        let idle = now.saturating_sub(self.servers[slot].since);
        let delay = self.settings.check_delay;
        delay.is_some_and(|delay| idle >= delay)
    }

    fn check(&mut self, slot: u32, orders: &mut Orders<T>) {
        self.take_idle(slot);
        self.set_state(slot, ServerState::Checking);
        let connection = self.servers[slot].connection.take();
        orders.push(Order::Check {
            server: self.servers.id(slot),
            connection: connection.expect("an idle server has its connection"),
        });
    }

    /// Assigns idle servers to waiting clients, such as after a pause.
    pub(super) fn serve(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        while self.gives_servers(pool) && self.pools[pool].lacks_check() {
            match self.find_idle(pool, now, orders) {
                Found::Fit(slot) => {
                    self.take_idle(slot);
                    self.release_kept(slot, now, orders);
                }
                Found::Checked => {}
                Found::Nothing => break,
            }
        }
    }

    /// Whether this connection is still to be opened: a pause gives it up.
    #[must_use]
    pub fn is_opening(&self, server: ServerId) -> bool {
        self.in_state(server, &[ServerState::Opening]).is_some()
    }

    /// The slot of a server in one of these states.
    pub(super) fn in_state(&self, server: ServerId, states: &[ServerState]) -> Option<u32> {
        let slot = self.servers.find(server)?;
        states.contains(&self.servers[slot].state).then_some(slot)
    }
}
