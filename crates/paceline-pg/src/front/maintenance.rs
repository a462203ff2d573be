//! What is done three times a second: time-outs of clients, and what the book has due.

use std::{sync::Arc, time::Duration};

use super::{
    client::{Client, Letter, Overdue, Phase},
    state::{locked, Front},
};
use crate::{console::Counters, log::Level};

/// How often. A time-out takes effect at most so much later.
pub(crate) const PERIOD: Duration = Duration::from_millis(333);

/// How long a client may hold up others by not taking its replies, on a shared connection.
const MOST_BEHIND: Duration = Duration::from_secs(10);

impl Front {
    /// One round of maintenance.
    pub(crate) fn maintain(&self) {
        self.maintain_book();
        self.check_clients();
        if let Some(front) = self.shared() {
            front.probe_all();
        }
        self.end_period();
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
        let unused = settings.autodb_idle_timeout;
        if !unused.is_zero() {
            self.forget_unused_databases(unused);
        }
    }

    /// The averages of the last period, when it is over.
    fn end_period(&self) {
        let now = self.now();
        let (period, logs) = {
            let live = self.live();
            let settings = live.settings();
            let period = Duration::from_secs(settings.stats_period.into());
            (period, settings.log_stats)
        };
        let Some(length) = self.lifecycle.period_over(now, period) else {
            return;
        };
        let mut sum = Counters::default();
        for database in self.registers.databases() {
            let totals = database.counters.read();
            locked(&database.averages).end_period(&totals, length);
            sum = sum.plus(&totals);
        }
        let average = self.lifecycle.average(&sum, length);
        if logs {
            self.log_stats(&average);
        }
    }

    fn log_stats(&self, average: &Counters) {
        self.note(
            Level::Log,
            format_args!(
                "stats: {} xacts/s, {} queries/s, {} client parses/s, {} server parses/s, {} \
                 binds/s, in {} B/s, out {} B/s, xact {} us, query {} us, wait {} us",
                average.xact_count,
                average.query_count,
                average.client_parse_count,
                average.server_parse_count,
                average.bind_count,
                average.received,
                average.sent,
                average.xact_time,
                average.query_time,
                average.wait_time,
            ),
        );
    }

    fn check_clients(&self) {
        let now = self.now();
        let login = self.live().settings().client_login_timeout;
        let clients: Vec<Arc<Client>> = self.clients().all().cloned().collect();
        for client in clients {
            let is_behind = client
                .behind_since()
                .is_some_and(|since| now > since + MOST_BEHIND);
            let behind = is_behind.then_some(Overdue::Behind);
            if let Some(overdue) = overdue(&client, login, now).or(behind) {
                client.send(Letter::Overdue(overdue));
            }
        }
    }
}

fn overdue(client: &Client, login: Duration, now: Duration) -> Option<Overdue> {
    let (phase, _) = client.watch.phase();
    let (limits, connected_at, is_logged_in) = {
        let facts = client.facts();
        let limits = facts.limits.clone().unwrap_or_default();
        (limits, facts.connected_at, facts.is_logged_in)
    };
    let is_login = matches!(phase, Phase::Login | Phase::Waiting) && !is_logged_in;
    if is_login && !login.is_zero() && now.saturating_sub(connected_at) > login {
        return Some(Overdue::Login);
    }
    match phase {
        Phase::Login | Phase::Cancel | Phase::Console => None,
        _ => client.watch.overdue(&limits, now),
    }
}
