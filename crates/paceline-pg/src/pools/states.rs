//! The states of servers, and the counts of pools, databases and users that follow from them.

use std::time::Duration;

use super::{
    book::{Book, Orders},
    entries::{Pool, Server},
    orders::Order,
    CloseReason, ServerState,
};

impl Pool {
    /// The count of this state; the idle servers have a list.
    fn count(&mut self, state: ServerState) -> Option<&mut usize> {
        let counts = &mut self.counts;
        Some(match state {
            ServerState::Opening => &mut counts.opening,
            ServerState::Checking => &mut counts.checking,
            ServerState::Resetting => &mut counts.resetting,
            ServerState::Held => &mut counts.held,
            ServerState::BeingCancelled => &mut counts.being_cancelled,
            ServerState::CancelOpening => &mut counts.cancel_opening,
            ServerState::Cancelling => &mut counts.cancelling,
            ServerState::Idle => return None,
        })
    }

    fn leave_state(&mut self, state: ServerState) {
        if let Some(count) = self.count(state) {
            *count -= 1;
        }
    }

    fn enter_state(&mut self, state: ServerState) {
        if let Some(count) = self.count(state) {
            *count += 1;
        }
    }
}

impl<T> Book<T> {
    /// Adds a connection. Connections of cancels do not count for database and user.
    pub(super) fn add_server(&mut self, pool: u32, state: ServerState, now: Duration) -> u32 {
        let it = &mut self.pools[pool];
        it.enter_state(state);
        let server = Server::new(pool, state, it.epoch, now);
        if state == ServerState::Opening {
            let (database, user) = (it.database, it.user);
            self.databases[database].shared.connections += 1;
            self.users[user].shared.connections += 1;
        }
        self.servers.insert(server)
    }

    /// Changes the state of a server that neither is nor becomes idle.
    pub(super) fn set_state(&mut self, slot: u32, state: ServerState) {
        let server = &mut self.servers[slot];
        let before = std::mem::replace(&mut server.state, state);
        let pool = &mut self.pools[server.pool];
        pool.leave_state(before);
        pool.enter_state(state);
    }

    pub(super) fn put_idle(&mut self, slot: u32, connection: T, now: Duration) {
        self.set_state(slot, ServerState::Idle);
        let server = &mut self.servers[slot];
        server.connection = Some(connection);
        server.since = now;
        let pool = &mut self.pools[server.pool];
        pool.idle.push(&mut self.servers, slot);
        let database = &mut self.databases[pool.database].shared;
        database.idle.push(&mut self.servers, slot);
        let user = &mut self.users[pool.user].shared;
        user.idle.push(&mut self.servers, slot);
    }

    /// Takes an idle server out of the lists; its state must change next.
    pub(super) fn take_idle(&mut self, slot: u32) {
        let pool = &mut self.pools[self.servers[slot].pool];
        pool.idle.remove(&mut self.servers, slot);
        let database = &mut self.databases[pool.database].shared;
        database.idle.remove(&mut self.servers, slot);
        let user = &mut self.users[pool.user].shared;
        user.idle.remove(&mut self.servers, slot);
    }

    pub(super) fn close_idle(&mut self, slot: u32, reason: CloseReason, orders: &mut Orders<T>) {
        self.take_idle(slot);
        let server = self.servers.id(slot);
        let connection = self.forget(slot);
        orders.push(Order::Close {
            server,
            connection: connection.expect("an idle server has its connection"),
            reason,
        });
    }

    /// Removes a server that is in no list and has no client.
    pub(super) fn forget(&mut self, slot: u32) -> Option<T> {
        let is_marked = self.is_marked(slot);
        let server = self.servers.remove(slot);
        let pool = &mut self.pools[server.pool];
        pool.leave_state(server.state);
        if is_marked {
            pool.marked -= 1;
        }
        if !matches!(
            server.state,
            ServerState::CancelOpening | ServerState::Cancelling
        ) {
            let (database, user) = (pool.database, pool.user);
            self.databases[database].shared.connections -= 1;
            self.users[user].shared.connections -= 1;
        }
        server.connection
    }

    /// Whether the server was opened before the configuration of its pool changed.
    pub(super) fn is_marked(&self, slot: u32) -> bool {
        let server = &self.servers[slot];
        server.epoch != self.pools[server.pool].epoch && !self.carries_cancel(slot)
    }

    /// Whether the connection is one for a cancel.
    pub(super) fn carries_cancel(&self, slot: u32) -> bool {
        matches!(
            self.servers[slot].state,
            ServerState::CancelOpening | ServerState::Cancelling
        )
    }

    /// Why an idle server may not be used again.
    ///
    /// Its age does not matter here: with a lifetime of zero each server is used once, and `maintain`
    /// closes idle ones that are over their lifetime.
    pub(super) fn end_of_idle(&self, slot: u32) -> Option<CloseReason> {
        self.is_marked(slot).then_some(CloseReason::Obsolete)
    }

    /// Why a server that is given back may not be used again.
    pub(super) fn end_at_release(&mut self, slot: u32, now: Duration) -> Option<CloseReason> {
        let pool = self.servers[slot].pool;
        let has_served = self.servers[slot].state != ServerState::Opening;
        if self.is_marked(slot) {
            return Some(CloseReason::Changed);
        }
        if self.is_paused(pool) {
            return Some(CloseReason::Paused);
        }
        if self.is_over_size(pool) {
            return Some(CloseReason::TooMany);
        }
        if has_served && self.is_over_age(slot, now) {
            return Some(CloseReason::LifetimeOver);
        }
        self.others_are_first(slot, now)
            .then_some(CloseReason::Evicted)
    }

    /// Whether the pool has more connections than it may have.
    pub(super) fn is_over_size(&self, pool: u32) -> bool {
        let pool = &self.pools[pool];
        let most = pool.limits.size + pool.limits.reserve;
        pool.limits.size > 0 && pool.connections() > most
    }

    /// Whether the server is to be closed for its age. Servers of a pool are closed at least
    /// `lifetime / size` apart, so that they are not all opened anew at once.
    pub(super) fn is_over_age(&mut self, slot: u32, now: Duration) -> bool {
        let server = &self.servers[slot];
        let pool = &mut self.pools[server.pool];
        let limits = &pool.limits;
        if now.saturating_sub(server.opened_at) < limits.lifetime {
            return false;
        }
        let size = u32::try_from(limits.size).unwrap_or(u32::MAX);
        let gap = limits.lifetime.checked_div(size).unwrap_or_default();
        let is_over = pool
            .last_lifetime_close
            .is_none_or(|last| now.saturating_sub(last) >= gap);
        if is_over {
            pool.last_lifetime_close = Some(now);
        }
        is_over
    }
}
