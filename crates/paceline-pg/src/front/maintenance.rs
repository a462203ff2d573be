//! What is done three times a second: time-outs of clients, and what the book has due.

use std::{sync::Arc, time::Duration};

use super::{
    client::{Client, Letter, Overdue, Phase},
    state::Front,
};
use crate::log::Level;

/// How often. A time-out takes effect at most so much later.
pub(crate) const PERIOD: Duration = Duration::from_millis(333);

impl Front {
    /// One round of maintenance.
    pub(crate) fn maintain(&self) {
        self.maintain_book();
        self.check_clients();
        if self.lifecycle.is_overdue(self.now()) {
            let text = format_args!("the time of the shutdown is over");
            self.note(Level::Log, text);
            self.lifecycle.end();
        }
    }

    fn maintain_book(&self) {
        let live = self.live();
        let settings = live.settings();
        let (cancel, idle) = (settings.cancel_wait_timeout, settings.pool_idle_timeout);
        let ((), orders) = self.with_book(|book, now, orders| {
            book.maintain(now, orders);
            book.expire_cancels(cancel, now, orders);
            if !idle.is_zero() {
                book.close_idle_pools(idle, now, orders);
            }
        });
        self.carry_out(orders);
    }

    fn check_clients(&self) {
        let now = self.now();
        let login = self.live().settings().client_login_timeout;
        let clients: Vec<Arc<Client>> = self.clients().all().cloned().collect();
        for client in clients {
            if let Some(overdue) = overdue(&client, login, now) {
                client.send(Letter::Overdue(overdue));
            }
        }
    }
}

fn overdue(client: &Client, login: Duration, now: Duration) -> Option<Overdue> {
    let (phase, since) = client.watch.phase();
    match phase {
        Phase::Login => {
            let is_over = !login.is_zero() && now.saturating_sub(since) > login;
            is_over.then_some(Overdue::Login)
        }
        Phase::Cancel | Phase::Console | Phase::Waiting => None,
        _ => {
            let limits = client.facts().limits;
            client.watch.overdue(&limits, now)
        }
    }
}
