//! What happened at one listener, as numbers that only grow.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{limits::Limit, session::Ended};

/// The reasons of [`Ended`], as they are named in metrics.
pub(crate) const REASONS: [&str; 8] = [
    "finished",
    "by_peer",
    "malformed",
    "limit",
    "failed",
    "panicked",
    "requested",
    "shutdown",
];

const LIMITS: usize = Limit::ALL.len();

/// A number that orders nothing and only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one listener.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections whose session began.
    pub(crate) opened: Counter,
    /// Items that sessions have handled.
    pub(crate) items: Counter,
    /// Bytes that peers have sent.
    pub(crate) bytes_in: Counter,
    ended: [Counter; REASONS.len()],
    limits: [Counter; LIMITS],
}

impl Counters {
    /// A limit is met.
    pub(crate) fn met(&self, limit: Limit) {
        self.limits[limit as usize].add(1);
    }

    /// How often a limit was met.
    pub(crate) fn times_met(&self, limit: Limit) -> u64 {
        self.limits[limit as usize].get()
    }

    /// A connection ended.
    pub(crate) fn ended(&self, why: &Ended) {
        if let Some(index) = REASONS.iter().position(|name| *name == why.name()) {
            self.ended[index].add(1);
        }
    }

    /// How many connections ended for each reason.
    pub(crate) fn endings(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        REASONS
            .iter()
            .zip(&self.ended)
            .map(|(name, counter)| (*name, counter.get()))
    }
}
