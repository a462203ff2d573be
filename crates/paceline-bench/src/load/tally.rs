//! What is written down while the load runs: replies, and how long they took.

use hdrhistogram::Histogram;

use super::{clock::Nanos, request::Asked};
use crate::record::Latency;

/// Below this, latencies are not distinguished. The client's own two system calls take longer.
const FINEST: Nanos = 100;

/// Above this, latencies are written down as this. No run is as long.
const LONGEST: Nanos = 7_200_000_000_000;

/// Decimal digits that are kept of a latency.
const DIGITS: u8 = 3;

/// Replies and their latencies. Each latency is recorded in one of two histograms, of which the sum is that of all:
/// one record per reply.
#[derive(Debug)]
pub(super) struct Tally {
    /// Right replies, since the client began.
    replies: u64,
    /// Only requests that started at this time or later are measured.
    since: Nanos,
    /// The latencies in focus.
    focus: Histogram<u64>,
    /// The latencies out of focus.
    others: Histogram<u64>,
}

impl Tally {
    /// Counts replies, and measures none before [`begin`](Self::begin).
    pub(super) fn new() -> Self {
        Self {
            replies: 0,
            since: Nanos::MAX,
            focus: histogram(),
            others: histogram(),
        }
    }

    /// From now on requests are measured: those that start at `now` or later.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.since = now;
    }

    /// How many right replies came since the client began.
    pub(super) fn replies(&self) -> u64 {
        self.replies
    }

    /// A right reply came at `now`.
    pub(super) fn reply(&mut self, asked: Asked, now: Nanos, in_focus: bool) {
        self.replies += 1;
        self.waited(asked.start, now, in_focus);
    }

    /// A request waited from `start` to `now`, with a reply or without.
    pub(super) fn waited(&mut self, start: Nanos, now: Nanos, in_focus: bool) {
        if start < self.since {
            return;
        }
        let histogram = if in_focus {
            &mut self.focus
        } else {
            &mut self.others
        };
        histogram.saturating_record(now.saturating_sub(start));
    }

    /// Adds what was written down elsewhere. (The bounds are the same, so that all of the one fits in the other.)
    pub(super) fn add(&mut self, other: &Self) {
        self.replies += other.replies;
        let added = [self.focus.add(&other.focus), self.others.add(&other.others)];
        debug_assert!(added.iter().all(Result::is_ok));
    }

    /// The latencies in focus, and those of all.
    pub(super) fn latencies(&self) -> (Latency, Latency) {
        let mut all = self.focus.clone();
        // The bounds are the same, so that all of the one fits in the other.
        let added = all.add(&self.others);
        debug_assert!(added.is_ok());
        (latency(&self.focus), latency(&all))
    }
}

/// An empty histogram.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(FINEST, LONGEST, DIGITS).expect("the bounds are in order")
}

/// What is kept of a histogram.
fn latency(histogram: &Histogram<u64>) -> Latency {
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let quantile = |quantile| micros(histogram.value_at_quantile(quantile));
    Latency {
        count: histogram.len(),
        p50: quantile(0.5),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: micros(histogram.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Task;

    fn asked(start: Nanos) -> Asked {
        Asked {
            start,
            task: Task::Nothing,
        }
    }

    #[test]
    fn what_started_before_the_window_counts_and_is_not_measured() {
        let mut tally = Tally::new();
        tally.reply(asked(5), 20, true);
        tally.begin(10);
        tally.reply(asked(9), 20, true);
        tally.reply(asked(10), 20, true);
        assert_eq!(tally.replies(), 3);
        assert_eq!(tally.latencies().0.count, 1);
    }

    #[test]
    fn percentiles_are_microseconds_of_the_focus_and_of_all() {
        let mut tally = Tally::new();
        tally.begin(0);
        for micros in 1..=1000 {
            tally.reply(asked(0), micros * 1000, true);
        }
        tally.reply(asked(0), 5_000_000, false);
        let (focus, all) = tally.latencies();
        assert_eq!((focus.count, all.count), (1000, 1001));
        assert!((focus.p50 - 500.0).abs() < 1.0, "{focus:?}");
        assert!((focus.p99 - 990.0).abs() < 1.0, "{focus:?}");
        assert!((focus.max - 1000.0).abs() < 1.0, "{focus:?}");
        assert!((all.max - 5000.0).abs() < 5.0, "{all:?}");
    }
}
