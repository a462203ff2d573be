//! Counters by database, and their averages over the last period.
//!
//! Sessions add to the counters without a lock. [`Averages`] are made once per `stats_period` from
//! two readings.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// The counters of one database. Times are in microseconds.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Counter,)+
        }

        /// What the counters say at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// What they say now.
            #[must_use]
            pub fn totals(&self) -> Totals {
                Totals { $($name: self.$name.get(),)+ }
            }
        }

        impl Totals {
            /// What was added since `before`.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)+ }
            }

            /// The sum of both.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($name: self.$name + other.$name,)+ }
            }

            /// Each counter divided by `by`.
            #[must_use]
            fn divided(&self, by: impl Fn(u64) -> u64) -> Self {
                Self { $($name: by(self.$name),)+ }
            }
        }
    };
}

counters! {
    /// How often a client got a server.
    server_assignments,
    /// Transactions that have ended.
    transactions,
    /// Queries that have ended.
    queries,
    /// Bytes that clients have sent.
    received,
    /// Bytes that clients were sent.
    sent,
    /// How long transactions took.
    transaction_time,
    /// How long queries took.
    query_time,
    /// How long clients waited for a server.
    wait_time,
    /// Named Parse messages of clients.
    client_parses,
    /// Parse messages that servers got for them.
    server_parses,
    /// Bind messages of named statements.
    binds,
    /// Logins of clients.
    client_logins,
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

    /// What it says.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened per second, and how long it took on average, in the last period that is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Averages {
    /// The counters when the present period began.
    before: Totals,
    /// Of the last period.
    last: Totals,
}

impl Averages {
    /// A period of this length is over.
    pub fn end_period(&mut self, now: &Totals, length: Duration) {
        let added = now.since(&self.before);
        let micros = length.as_micros().max(1) as u64;
        let per_second = |count: u64| count.saturating_mul(1_000_000) / micros;
        let mean = |time: u64, count: u64| time.checked_div(count).unwrap_or(0);
        self.last = Totals {
            transaction_time: mean(added.transaction_time, added.transactions),
            query_time: mean(added.query_time, added.queries),
            ..added.divided(per_second)
        };
        self.before = *now;
    }

    /// Rates per second; the two times of queries and transactions are means; the time of waiting
    /// is that of all clients, per second.
    #[must_use]
    pub fn last(&self) -> &Totals {
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
        counters.query_time.add(50);
        let mut averages = Averages::default();
        averages.end_period(&counters.totals(), Duration::from_secs(2));
        assert_eq!((averages.last().queries, averages.last().query_time), (5, 5));
        averages.end_period(&counters.totals(), Duration::from_secs(2));
        assert_eq!(averages.last(), &Totals::default());
    }
}
