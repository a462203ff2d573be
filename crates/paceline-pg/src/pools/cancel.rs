//! Cancels: a request concerns one assignment of a server, and no other client's query.
//!
//! ```text
//!   ask_cancel        the client's server now, and the number of its assignment, are noted
//!   OpenCancel        a connection to the same host is opened, up to twice the pool's size
//!   cancel_connected  sent if the assignment still holds, else dropped
//!   closed            the server has ended the connection: the signal is out
//! ```
//!
//! A server to which a cancel was sent serves no other client until the connection of the cancel
//! has ended: a late signal would hit that client's query.

use std::{sync::Arc, time::Duration};

use super::{
    book::{Book, Orders},
    entries::{Cancel, CancelState},
    list::List,
    orders::Order,
    slab::NONE,
    CancelId, ClientId, CloseReason, ServerId, ServerState,
};

/// The key for cancels of a server's queries.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerKey {
    /// The number of the server's process.
    pub process: i32,
    /// The secret that only the holder of the connection knows.
    pub secret: Box<[u8]>,
    /// The host that has given this key, by the caller's number.
    pub host: usize,
}

/// Omits the secret.
impl std::fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("ServerKey");
        let fields = fields.field("process", &self.process);
        fields.field("host", &self.host).finish_non_exhaustive()
    }
}

/// The outcome of [`Book::ask_cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CancelAsked {
    /// The client has no server that could be cancelled.
    Dropped,
    /// An order opens a connection for it.
    Queued(CancelId),
}

/// The outcome of [`Book::cancel_connected`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CancelReady {
    /// Send a cancel with this key, and call `closed` when the server has ended the connection.
    Send(Arc<ServerKey>),
    /// The query is done: close the connection and call `closed`.
    Drop,
}

impl<T> Book<T> {
    /// Asks for a cancel of this client's query.
    pub fn ask_cancel(
        &mut self,
        client: ClientId,
        now: Duration,
        orders: &mut Orders<T>,
    ) -> CancelAsked {
        let Some(client) = self.clients.find(client) else {
            return CancelAsked::Dropped;
        };
        let server = self.clients[client].server;
        if server == NONE || self.servers[server].is_quiet || self.servers[server].key.is_none() {
            return CancelAsked::Dropped;
        }
        let (pool, binding) = (self.servers[server].pool, self.servers[server].binding);
        let server = self.servers.id(server);
        let cancel = Cancel::new(pool, server, binding, now);
        let slot = self.cancels.insert(cancel);
        self.pools[pool].cancels.push(&mut self.cancels, slot);
        self.open_for_cancels(pool, now, orders);
        CancelAsked::Queued(self.cancels.id(slot))
    }

    /// Holds cancels back (`quiet`) while the front-end runs its own statements on this server, or
    /// allows them again.
    pub fn set_quiet(&mut self, server: ServerId, quiet: bool) {
        if let Some(slot) = self.servers.find(server) {
            self.servers[slot].is_quiet = quiet;
        }
    }

    /// Opens connections for cancels, ahead of logins, up to twice the size of the pool.
    pub(super) fn open_for_cancels(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        while let Some(slot) = self.pools[pool].cancels.first() {
            let Some(key) = self.key_of_target(slot) else {
                self.dequeue(slot, CancelState::Dropped);
                self.drop_cancel_slot(slot, orders);
                continue;
            };
            let it = &self.pools[pool];
            let most = 2 * it.limits.size;
            if most > 0 && it.with_cancels() >= most {
                break;
            }
            self.dequeue(slot, CancelState::Opening);
            let server = self.add_server(pool, ServerState::CancelOpening, now);
            self.servers[server].carries = slot;
            orders.push(Order::OpenCancel {
                server: self.servers.id(server),
                cancel: self.cancels.id(slot),
                pool: self.pools.id(pool),
                key,
            });
        }
    }

    fn dequeue(&mut self, slot: u32, state: CancelState) {
        let pool = self.cancels[slot].pool;
        if self.cancels[slot].state == CancelState::Queued {
            self.pools[pool].cancels.remove(&mut self.cancels, slot);
        }
        self.cancels[slot].state = state;
    }

    fn drop_cancel_slot(&mut self, slot: u32, orders: &mut Orders<T>) {
        let cancel = self.cancels.id(slot);
        self.cancels.remove(slot);
        orders.push(Order::DropCancel { cancel });
    }

    /// The key of the server that the cancel is for, if the assignment still holds.
    fn key_of_target(&self, cancel: u32) -> Option<Arc<ServerKey>> {
        let cancel = &self.cancels[cancel];
        let slot = self.servers.find(cancel.server)?;
        let server = &self.servers[slot];
        let holds = server.binding == cancel.binding && !server.is_quiet;
        holds.then(|| server.key.clone()).flatten()
    }

    /// The connection of a cancel is made. After `Send`, the target server serves no other client
    /// until the cancel has ended.
    pub fn cancel_connected(&mut self, server: ServerId) -> CancelReady {
        let Some(slot) = self.in_state(server, &[ServerState::CancelOpening]) else {
            return CancelReady::Drop;
        };
        let cancel = self.servers[slot].carries;
        let Some(key) = self.key_of_target(cancel) else {
            self.cancels[cancel].state = CancelState::Dropped;
            return CancelReady::Drop;
        };
        self.set_state(slot, ServerState::Cancelling);
        self.cancels[cancel].state = CancelState::Sent;
        if let Some(target) = self.servers.find(self.cancels[cancel].server) {
            self.servers[target].cancels += 1;
        }
        CancelReady::Send(key)
    }

    /// The connection of a cancel has ended, or its connect has failed.
    pub(super) fn carry_ends(&mut self, server: ServerId, now: Duration, orders: &mut Orders<T>) {
        let Some(slot) = self.servers.find(server) else {
            return;
        };
        if !self.carries_cancel(slot) {
            return;
        }
        let (pool, carried) = (self.servers[slot].pool, self.servers[slot].carries);
        self.forget(slot);
        if carried != NONE {
            let cancel = self.cancels.remove(carried);
            if cancel.state == CancelState::Sent {
                self.cancel_ends(cancel.server, now, orders);
            }
        }
        self.open_for_cancels(pool, now, orders);
    }

    /// A cancel that was sent to this server has ended. The last one frees the server.
    fn cancel_ends(&mut self, server: ServerId, now: Duration, orders: &mut Orders<T>) {
        let Some(slot) = self.servers.find(server) else {
            return;
        };
        self.servers[slot].cancels -= 1;
        let is_free = self.servers[slot].cancels == 0;
        if is_free && self.servers[slot].state == ServerState::BeingCancelled {
            self.release_kept(slot, now, orders);
        }
    }

    /// Drops cancels that have waited longer than `timeout` for a connection. Closes servers that
    /// have waited as long for the end of a cancel: no client may use them again. Zero: never.
    pub fn expire_cancels(&mut self, timeout: Duration, now: Duration, orders: &mut Orders<T>) {
        if timeout.is_zero() {
            return;
        }
        for pool in 0..self.pools.slots() {
            while let Some(first) = self.first_cancel(pool) {
                if now.saturating_sub(self.cancels[first].since) <= timeout {
                    break;
                }
                self.dequeue(first, CancelState::Dropped);
                self.drop_cancel_slot(first, orders);
            }
        }
        for slot in 0..self.servers.slots() {
            if self.has_waited_for_cancel(slot, timeout, now) {
                self.close_cancelled(slot, now, orders);
            }
        }
    }

    fn has_waited_for_cancel(&self, slot: u32, timeout: Duration, now: Duration) -> bool {
        self.servers.get(slot).is_some_and(|server| {
            let wait = now.saturating_sub(server.since);
            server.state == ServerState::BeingCancelled && wait > timeout
        })
    }

    fn close_cancelled(&mut self, slot: u32, now: Duration, orders: &mut Orders<T>) {
        let (server, pool) = (self.servers.id(slot), self.servers[slot].pool);
        let connection = self.forget(slot);
        orders.push(Order::Close {
            server,
            connection: connection.expect("the book keeps the connection"),
            reason: CloseReason::CancelHangs,
        });
        self.refill(pool, now, orders);
    }

    fn first_cancel(&self, pool: u32) -> Option<u32> {
        if !self.pools.is_full(pool) {
            return None;
        }
        let cancels: &List<0> = &self.pools[pool].cancels;
        cancels.first()
    }
}
