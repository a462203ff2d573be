//! Counters by database, and their averages over the last period.
//!
//! Sessions add to the counters without a lock. [`Averages`] are made once per `stats_period` from
//! two readings.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::console;

/// The counters of one database. Times are in microseconds.
#[derive(Debug, Default)]
pub struct Counters {
    /// How often a client got a server.
    pub server_assignments: Counter,
    /// Transactions that have ended.
    pub transactions: Counter,
    /// Queries that have ended.
    pub queries: Counter,
    /// Bytes that clients have sent.
    pub received: Counter,
    /// Bytes that clients were sent.
    pub sent: Counter,
    /// How long transactions took.
    pub transaction_time: Counter,
    /// How long queries took.
    pub query_time: Counter,
    /// How long clients waited for a server.
    pub wait_time: Counter,
    /// Named Parse messages of clients.
    pub client_parses: Counter,
    /// Parse messages that servers got for them.
    pub server_parses: Counter,
    /// Bind messages of named statements.
    pub binds: Counter,
    /// Logins of clients.
    pub client_logins: Counter,
}

impl Counters {
    /// The present values.
    #[must_use]
    pub fn read(&self) -> console::Counters {
        console::Counters {
            server_assignment_count: self.server_assignments.get(),
            xact_count: self.transactions.get(),
            query_count: self.queries.get(),
            received: self.received.get(),
            sent: self.sent.get(),
            xact_time: self.transaction_time.get(),
            query_time: self.query_time.get(),
            wait_time: self.wait_time.get(),
            client_parse_count: self.client_parses.get(),
            server_parse_count: self.server_parses.get(),
            bind_count: self.binds.get(),
            client_login_count: self.client_logins.get(),
        }
    }
}

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Adds a time, in microseconds.
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The rates per second and the average times of the last complete period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Averages {
    /// The counters when the present period began.
    before: console::Counters,
    /// The averages of the last complete period.
    last: console::Counters,
}

impl Averages {
    /// Ends a period of this length.
    pub fn end_period(&mut self, now: &console::Counters, length: Duration) {
        let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        self.last = now.average(&self.before, micros);
        self.before = *now;
    }

    /// The averages of the last complete period.
    #[must_use]
    pub fn last(&self) -> &console::Counters {
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A period of two seconds: rates are per second, times per event, and the next period begins
    /// at zero.
    #[test]
    fn averages_are_those_of_the_last_period() {
        let counters = Counters::default();
        counters.queries.add(10);
        counters.query_time.add_time(Duration::from_micros(50));
        let mut averages = Averages::default();
        averages.end_period(&counters.read(), Duration::from_secs(2));
        assert_eq!(
            (averages.last().query_count, averages.last().query_time),
            (5, 5)
        );
        averages.end_period(&counters.read(), Duration::from_secs(2));
        assert_eq!(averages.last(), &console::Counters::default());
    }
}
