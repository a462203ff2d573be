//! Carries out what the book orders.

use std::sync::Arc;

use super::{
    client::{Client, Delivery, Given, Letter, Way},
    server::{Errand, Server},
    state::Front,
};
use crate::log::Level;
use crate::pools::{CancelId, ClientId, Order, Orders};

impl Front {
    /// Carries out orders. The book's lock is not held.
    pub(crate) fn carry_out(&self, orders: Orders<Arc<Server>>) {
        for order in orders {
            self.carry_out_one(order);
        }
    }

    fn carry_out_one(&self, order: Order<Arc<Server>>) {
        match order {
            Order::Open { server, pool, why } => {
                if let (Some(front), Some(pool)) = (self.shared(), self.registers.pool(pool)) {
                    front.open(server, pool, why);
                }
            }
            Order::Abort { server, reason } => self.abort(server, reason),
            Order::Close {
                connection, reason, ..
            } => self.close_idle(&connection, &reason.to_string()),
            Order::Check { connection, .. } => {
                connection.core().errand = Errand::Check;
                // If the home has ended, so has the server.
                let _ = connection.home().notify();
            }
            Order::Give {
                client, connection, ..
            } => self.give(client, connection),
            Order::Welcome { client } => self.tell(client, Letter::Welcome),
            Order::Refuse { client, why } => self.tell(client, Letter::Refuse(why)),
            Order::Notify { client } => self.tell(client, Letter::WaitsLong),
            Order::Dismiss { client, why } => self.tell(client, Letter::Dismiss(why)),
            Order::Recall { client, reason, .. } => self.tell(client, Letter::Recall(reason)),
            Order::OpenCancel {
                server,
                cancel,
                key,
                ..
            } => {
                if let Some(front) = self.shared() {
                    front.open_cancel(server, cancel, &key);
                }
            }
            Order::DropCancel { cancel } => self.drop_cancel(cancel),
            Order::Completed { operation } => self.completed(operation),
            Order::PoolRemoved { pool } => {
                if let Some(entry) = self.registers.pool(pool) {
                    let (database, user) = (&entry.database.name, &entry.user);
                    let text = format_args!("cleaning up idle pool {database}/{user}");
                    self.note(Level::Log, text);
                }
                self.registers.remove_pool(pool);
            }
        }
    }

    fn drop_cancel(&self, cancel: CancelId) {
        self.end_cancel(cancel);
    }

    fn tell(&self, client: ClientId, letter: Letter) {
        let client = self.clients().find(client).cloned();
        if let Some(client) = client {
            client.send(letter);
        }
    }

    /// An idle server is closed, which no group but its home has.
    fn close_idle(&self, server: &Arc<Server>, reason: &str) {
        self.server_gone(server, reason);
        server.close(reason);
    }

    /// A client that has waited gets an idle server, which it fetches.
    fn give(&self, client: ClientId, server: Arc<Server>) {
        let client = self.clients().find(client).cloned();
        let given = Given {
            server: Arc::clone(&server),
            way: Way::Fetch,
        };
        let delivery = client.map(|client| client.give(given));
        if delivery != Some(Delivery::Done) {
            // The client has left: the home gives the server back.
            server.core().errand = Errand::GiveBack;
            let _ = server.home().notify();
        }
    }

    /// The book has given the server to this client.
    pub(crate) fn note_assigned(&self, server: &Server, client: &Arc<Client>) {
        let mut core = server.core();
        core.client = Some(Arc::clone(client));
        core.errand = Errand::None;
        core.requested_at = self.now();
    }
}
