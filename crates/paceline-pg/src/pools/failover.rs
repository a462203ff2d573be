//! What the book does when a host changes its role: its connections end one by one, and pools try
//! again at once.

use std::time::Duration;

use super::{
    admin::Scope,
    book::{Book, Orders},
    CloseReason, DatabaseId, ServerId, ServerState,
};

impl<T> Book<T> {
    /// Closes one connection as soon as no client has it; another one takes its place.
    pub fn retire(&mut self, server: ServerId, orders: &mut Orders<T>) {
        let Some(slot) = self.servers.find(server) else {
            return;
        };
        match self.servers[slot].state {
            ServerState::Idle => self.close_idle(slot, CloseReason::Changed, orders),
            ServerState::Opening | ServerState::CancelOpening | ServerState::Cancelling => {}
            _ if self.is_marked(slot) => {}
            _ => {
                let pool = self.servers[slot].pool;
                let pool = &mut self.pools[pool];
                pool.marked += 1;
                self.servers[slot].epoch = pool.epoch.wrapping_sub(1);
            }
        }
    }

    /// Logins have failed, and may succeed now: the pools of the database do not wait for
    /// `login_retry`.
    pub fn retry(&mut self, database: DatabaseId, now: Duration, orders: &mut Orders<T>) {
        for pool in self.pools_of(Scope::Database(database)) {
            self.pools[pool].failing = None;
        }
        self.grow_all(now, orders);
    }
}
