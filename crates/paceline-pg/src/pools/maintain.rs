//! Periodic work, a few times a second: time-outs, the reserve, the minimum of connections, and the
//! removal of unused connections and pools.
//!
//! These calls scan pools, idle servers and clients that wait. No transaction waits for them.

use std::time::Duration;

use super::{
    book::{Book, Orders},
    list::List,
    orders::{Order, Refusal},
    slab::NONE,
    CloseReason, DatabaseId, Phase, ServerState,
};

impl<T> Book<T> {
    /// Carries out all due work. The caller calls it a few times a second.
    pub fn maintain(&mut self, now: Duration, orders: &mut Orders<T>) {
        for pool in 0..self.pools.slots() {
            if self.pools.is_full(pool) {
                self.end_waits(pool, now, orders);
                self.close_idle_servers(pool, now, orders);
                self.shrink(pool, orders);
                self.open_for_cancels(pool, now, orders);
                self.serve(pool, now, orders);
            }
        }
        self.grow_all(now, orders);
        for pool in 0..self.pools.slots() {
            if self.pools.is_full(pool) {
                self.open_reserve(pool, now, orders);
                self.open_minimum(pool, now, orders);
            }
        }
        self.recall(orders);
        self.remove_unused(orders);
        self.check_operations(orders);
    }

    /// Ends the wait of clients that have waited too long, and reports long waits.
    fn end_waits(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        let mut next = self.pools[pool].waiting.first();
        while let Some(client) = next {
            next = List::<0>::after(&self.clients, client);
            self.end_wait(client, now, orders);
        }
        let mut next = self.pools[pool].arriving.first();
        while let Some(client) = next {
            next = List::<0>::after(&self.clients, client);
            self.end_wait(client, now, orders);
        }
        self.note_blocked(pool);
    }

    fn end_wait(&mut self, client: u32, now: Duration, orders: &mut Orders<T>) {
        let wait = now.saturating_sub(self.clients[client].since);
        let most = self.wait_timeout(client);
        let notify = self.settings.query_wait_notify;
        let id = self.clients.id(client);
        if !most.is_zero() && wait > most {
            self.stop_waiting(client);
            let why = Refusal::QueryWaitTimeout;
            orders.push(Order::Refuse { client: id, why });
        } else if !notify.is_zero() && wait > notify && self.may_notify(client) {
            self.clients[client].is_notified = true;
            orders.push(Order::Notify { client: id });
        }
    }

    /// Whether the client can take a notice: not before the end of its login.
    fn may_notify(&self, client: u32) -> bool {
        let client = &self.clients[client];
        client.is_logged_in && !client.is_notified
    }

    /// How long the client waits. Its user's setting comes first, then its database's, then the
    /// global.
    fn wait_timeout(&self, client: u32) -> Duration {
        let client = &self.clients[client];
        let user = self.users.get(client.user);
        let user = user.and_then(|user| user.settings.query_wait_timeout);
        let database = self.databases.get(client.database);
        let database = database.and_then(|it| it.settings.query_wait_timeout);
        user.or(database)
            .unwrap_or(self.settings.query_wait_timeout)
    }

    fn close_idle_servers(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        let mut next = self.pools[pool].idle.first();
        while let Some(slot) = next {
            next = List::<{ super::entries::IN_POOL }>::after(&self.servers, slot);
            if let Some(reason) = self.end_while_idle(slot, now) {
                self.close_idle(slot, reason, orders);
            }
        }
    }

    fn end_while_idle(&mut self, slot: u32, now: Duration) -> Option<CloseReason> {
        let timeout = self.settings.server_idle_timeout;
        let server = &self.servers[slot];
        let pool = &self.pools[server.pool];
        let is_kept = pool.limits.min > 0 && pool.connected() <= pool.limits.min;
        let idle = now.saturating_sub(server.since);
        if self.is_marked(slot) {
            Some(CloseReason::Changed)
        } else if !timeout.is_zero() && idle > timeout && !is_kept {
            Some(CloseReason::IdleTimeout)
        } else if self.is_over_age(slot, now) {
            Some(CloseReason::LifetimeOver)
        } else {
            None
        }
    }

    /// Closes idle servers of a pool that has become smaller.
    fn shrink(&mut self, pool: u32, orders: &mut Orders<T>) {
        while self.is_over_size(pool) {
            let Some(idle) = self.pools[pool].idle.first() else {
                break;
            };
            self.close_idle(idle, CloseReason::TooMany, orders);
        }
    }

    /// Asks for connections of sessions back, which may be between two transactions: those to be
    /// closed with `fast_close`, and all of them while the pooler drains.
    fn recall(&self, orders: &mut Orders<T>) {
        let drains = self.phase == Phase::WaitForTransactions;
        let closes = self.settings.fast_close && self.pools.iter().any(|(_, it)| it.marked > 0);
        if !drains && !closes {
            return;
        }
        for (slot, server) in self.servers.iter() {
            let is_held = server.state == ServerState::Held && server.client != NONE;
            if is_held && (drains || self.is_marked(slot)) {
                orders.push(Order::Recall {
                    server: self.servers.id(slot),
                    client: self.clients.id(server.client),
                    reason: if drains {
                        CloseReason::ShuttingDown
                    } else {
                        CloseReason::Changed
                    },
                });
            }
        }
    }

    /// Closes the servers of pools that have had no client for this long, and forgets them.
    pub fn close_idle_pools(&mut self, timeout: Duration, now: Duration, orders: &mut Orders<T>) {
        for slot in 0..self.pools.slots() {
            if timeout.is_zero() || !self.pools.is_full(slot) || !self.is_unused(slot) {
                continue;
            }
            if now.saturating_sub(self.pools[slot].unused_since) > timeout {
                while let Some(idle) = self.pools[slot].idle.first() {
                    self.close_idle(idle, CloseReason::IdlePool, orders);
                }
                if self.pools[slot].is_empty() {
                    self.remove_pool(slot, orders);
                }
            }
        }
    }

    /// Forgets the databases made from the entry `*` that have had neither clients nor connections
    /// for this long, and returns them. One that an administrator has paused or disabled is kept.
    pub fn forget_unused_databases(
        &mut self,
        timeout: Duration,
        now: Duration,
        orders: &mut Orders<T>,
    ) -> Vec<DatabaseId> {
        let mut forgotten = Vec::new();
        for slot in 0..self.databases.slots() {
            if !self.databases.is_full(slot) || !self.databases[slot].settings.is_auto {
                continue;
            }
            if self.is_database_used(slot) {
                self.databases[slot].unused_since = None;
                continue;
            }
            let since = *self.databases[slot].unused_since.get_or_insert(now);
            if now.saturating_sub(since) > timeout {
                forgotten.push(self.databases.id(slot));
                self.forget_database(slot, orders);
            }
        }
        forgotten
    }

    fn is_database_used(&self, slot: u32) -> bool {
        let database = &self.databases[slot];
        let mut pools = database.pools.iter();
        let has_work =
            database.shared.clients > 0 || pools.any(|(_, pool)| !self.pools[*pool].is_empty());
        has_work || database.is_paused || database.is_disabled || database.is_removed
    }

    fn forget_database(&mut self, slot: u32, orders: &mut Orders<T>) {
        while let Some((_, pool)) = self.databases[slot].pools.last().copied() {
            self.remove_pool(pool, orders);
        }
        self.databases.remove(slot);
    }

    fn is_unused(&self, slot: u32) -> bool {
        let pool = &self.pools[slot];
        pool.clients + pool.waiting.len() + pool.arriving.len() == 0
    }
}
