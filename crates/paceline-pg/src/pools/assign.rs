//! The assignments: which client waits in which queue, and which client has which server.

use std::time::Duration;

use super::{slab::NONE, Book, ClientState, Orders, ServerState};

impl<T> Book<T> {
    /// Puts a client among those of a pool, without a server and in no queue.
    pub(super) fn move_client(&mut self, client: u32, pool: u32) {
        let before = self.clients[client].pool;
        self.part(client);
        self.stop_waiting(client);
        if before != pool {
            if before != NONE {
                self.pools[before].clients -= 1;
            }
            self.clients[client].pool = pool;
            self.pools[pool].clients += 1;
        }
    }

    /// Ends the assignment of the client. The caller still holds the server.
    pub(super) fn part(&mut self, client: u32) {
        let it = &mut self.clients[client];
        let server = std::mem::replace(&mut it.server, NONE);
        if server != NONE {
            it.state = it.at_rest();
            let server = &mut self.servers[server];
            (server.client, server.binding) = (NONE, 0);
        }
    }

    pub(super) fn enqueue(&mut self, client: u32, pool: u32, now: Duration) {
        self.pools[pool].clients -= 1;
        self.stamp(client, ClientState::Waiting, now);
        self.pools[pool].waiting.push(&mut self.clients, client);
    }

    pub(super) fn stamp(&mut self, client: u32, state: ClientState, now: Duration) {
        self.next_ticket += 1;
        let client = &mut self.clients[client];
        client.ticket = self.next_ticket;
        client.since = now;
        client.state = state;
        client.is_notified = false;
    }

    /// Removes a client from its queue, if it is in one.
    pub(super) fn stop_waiting(&mut self, client: u32) {
        let it = &self.clients[client];
        let (pool, rest) = (it.pool, it.at_rest());
        match it.state {
            ClientState::Waiting => self.pools[pool].waiting.remove(&mut self.clients, client),
            ClientState::Arriving => self.pools[pool].arriving.remove(&mut self.clients, client),
            _ => return,
        }
        self.pools[pool].clients += 1;
        self.clients[client].state = rest;
    }

    /// Gives the server to the client, which may wait. `waited_until`: the end of its wait.
    pub(super) fn bind(
        &mut self,
        server: u32,
        client: u32,
        waited_until: Option<Duration>,
        now: Duration,
    ) -> (Option<T>, u64) {
        self.next_binding += 1;
        let since = self.clients[client].since;
        self.stop_waiting(client);
        self.clients[client].server = server;
        self.clients[client].state = ClientState::Active;
        self.set_state(server, ServerState::Held);
        let it = &mut self.servers[server];
        it.client = client;
        it.binding = self.next_binding;
        it.since = now;
        let (connection, pool) = (it.connection.take(), it.pool);
        let wait = waited_until.map(|until| until.saturating_sub(since));
        self.pools[pool].waits.add(wait.unwrap_or_default());
        (connection, self.next_binding)
    }

    /// Takes the server from its client, if it has one.
    pub(super) fn unbind(&mut self, server: u32, orders: &mut Orders<T>) {
        let it = &mut self.servers[server];
        // A cancel for the assignment that ends is not sent.
        it.binding = 0;
        let client = std::mem::replace(&mut it.client, NONE);
        if client != NONE {
            let it = &mut self.clients[client];
            it.server = NONE;
            it.state = it.at_rest();
            self.dismiss_if_drained(client, orders);
        }
    }
}
