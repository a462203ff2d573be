//! Counts of a run.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    client::Failure,
    report::{Outcome, Verdict},
    transaction::Ending,
};

/// Counts of a run.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    pub(super) committed: u64,
    pub(super) undone: u64,
    pub(super) unknown: u64,
    /// Why transactions were rolled back, or became unknown.
    reasons: BTreeMap<String, u64>,
    /// Why sessions did not begin.
    connections_refused: BTreeMap<String, u64>,
    /// How often the fault command has run, and how often it has failed.
    pub(super) faults: (u64, u64),
    /// When the last transaction was committed.
    last_commit: Instant,
    longest_gap: Duration,
    /// Of the committed ones, in microseconds.
    latencies: Vec<u32>,
    pub(super) elapsed: Duration,
}

impl Statistics {
    pub(super) fn new() -> Self {
        Self {
            committed: 0,
            undone: 0,
            unknown: 0,
            reasons: BTreeMap::new(),
            connections_refused: BTreeMap::new(),
            faults: (0, 0),
            last_commit: Instant::now(),
            longest_gap: Duration::ZERO,
            latencies: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    pub(super) fn attempts(&self) -> u64 {
        self.committed + self.undone + self.unknown
    }

    pub(super) fn count(&mut self, ending: &Ending, latency: Duration) {
        match ending {
            Ending::Committed => self.count_commit(latency),
            Ending::RolledBack(reason) => {
                self.undone += 1;
                let label = reason.as_ref().map(Failure::label);
                self.count_reason(label.unwrap_or_else(|| "by choice".to_owned()));
            }
            Ending::Unknown(reason) => {
                self.unknown += 1;
                self.count_reason(format!("unknown: {}", reason.label()));
            }
        }
    }

    pub(super) fn count_refused_connection(&mut self, failure: &Failure) {
        let label = failure.label();
        *self.connections_refused.entry(label).or_default() += 1;
    }

    pub(super) fn count_fault(&mut self, succeeded: bool) {
        self.faults.0 += 1;
        self.faults.1 += u64::from(!succeeded);
    }

    fn count_commit(&mut self, latency: Duration) {
        self.committed += 1;
        let now = Instant::now();
        self.longest_gap = self.longest_gap.max(now - self.last_commit);
        self.last_commit = now;
        let latency = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        self.latencies.push(latency);
    }

    fn count_reason(&mut self, label: String) {
        *self.reasons.entry(label).or_default() += 1;
    }

    pub(super) fn verdict(mut self, workload: &'static str, outcome: Outcome) -> Verdict {
        self.latencies.sort_unstable();
        Verdict {
            workload,
            committed: self.committed,
            undone: self.undone,
            unknown: self.unknown,
            median: percentile(&self.latencies, 50),
            p99: percentile(&self.latencies, 99),
            reasons: self.reasons,
            connections_refused: self.connections_refused,
            faults: self.faults,
            longest_gap: self.longest_gap,
            elapsed: self.elapsed,
            outcome,
        }
    }
}

/// The value below which so many of a hundred of the sorted values are.
fn percentile(sorted: &[u32], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    let micros = sorted.get(index).copied().unwrap_or(0);
    Duration::from_micros(micros.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let values: Vec<_> = (1..=100).collect();
        assert_eq!(percentile(&values, 50), Duration::from_micros(51));
        assert_eq!(percentile(&values, 99), Duration::from_micros(100));
        assert_eq!(percentile(&[7], 99), Duration::from_micros(7));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
