//! What each route of a listener has done: counters that every request pays for, and times that are
//! taken only while a page is watched.

use std::{
    fmt,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        OnceLock,
    },
    time::Duration,
};

use crate::counters::Counter;

/// What a route has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteReport {
    /// Method and path, as the router has them.
    pub name: String,
    /// How many requests it got.
    pub requests: u64,
    /// How many of them it answered with 4xx,
    pub refused: u64,
    /// and with 5xx.
    pub failed: u64,
    /// How many of them have no answer yet.
    pub unanswered: u64,
    /// What the pool has learned of its calls: `short`, `computing` or `blocking`.
    pub pace: &'static str,
    /// The median of the time of its handler and the 99th percentile, since a browser shows the page.
    pub percentiles: Option<(Duration, Duration)>,
}

impl fmt::Display for RouteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} requests, {} refused, {} failed, {} unanswered",
            self.name, self.requests, self.refused, self.failed, self.unanswered
        )
    }
}

/// The routes of a listener.
pub(crate) trait Routes: Send + Sync {
    /// Those that got a request.
    fn reports(&self) -> Vec<RouteReport>;

    /// The name of a route.
    fn name(&self, number: u32) -> Option<String>;

    /// Whether the times of handlers are taken.
    fn set_timed(&self, is_timed: bool);
}

/// The counters of one route.
#[derive(Debug, Default)]
pub(crate) struct RouteCounters {
    begun: Counter,
    answered: Counter,
    refused: Counter,
    failed: Counter,
    is_timed: AtomicBool,
    times: OnceLock<Box<Times>>,
}

#[cfg_attr(not(feature = "http"), allow(dead_code))]
impl RouteCounters {
    pub(crate) fn begin(&self) {
        self.begun.add(1);
    }

    /// A request is answered with this status, or its client is gone.
    pub(crate) fn end(&self, status: Option<u16>) {
        self.answered.add(1);
        match status {
            Some(400..=499) => self.refused.add(1),
            Some(500..) => self.failed.add(1),
            _ => {}
        }
    }

    /// Whether the time of the handler is wanted.
    pub(crate) fn is_timed(&self) -> bool {
        // Orders nothing: a call more or less may be timed.
        self.is_timed.load(Ordering::Relaxed)
    }

    pub(crate) fn took(&self, time: Duration) {
        self.times.get_or_init(Box::default).add(time);
    }

    /// Takes times from now on, and forgets those of before.
    pub(crate) fn set_timed(&self, is_timed: bool) {
        if let Some(times) = self.times.get().filter(|_| is_timed) {
            times.reset();
        }
        self.is_timed.store(is_timed, Ordering::Relaxed);
    }

    pub(crate) fn report(&self, name: &str, pace: &'static str) -> RouteReport {
        // In this order, so that no request is answered before it began.
        let answered = self.answered.get();
        let requests = self.begun.get();
        let times = self.times.get().filter(|_| self.is_timed());
        RouteReport {
            name: name.to_owned(),
            requests,
            refused: self.refused.get(),
            failed: self.failed.get(),
            unanswered: requests.saturating_sub(answered),
            pace,
            percentiles: times.and_then(|times| times.percentiles()),
        }
    }
}

/// How many calls took how long: four buckets for each doubling of nanoseconds.
#[derive(Debug)]
struct Times([AtomicU64; BUCKETS]);

/// Enough for an hour.
const BUCKETS: usize = 168;

impl Default for Times {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Times {
    fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    fn reset(&self) {
        self.0
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// The median and the 99th percentile; `None` if nothing was timed.
    fn percentiles(&self) -> Option<(Duration, Duration)> {
        let counts = self.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        let all: u64 = counts.iter().sum();
        let at = |percent: u64| {
            let mut left = (all * percent).div_ceil(100).max(1);
            let found = counts.iter().position(|count| {
                let is_there = *count >= left;
                left = left.saturating_sub(*count);
                is_there
            });
            Duration::from_nanos(upper_end(found.unwrap_or(BUCKETS - 1)))
        };
        (all > 0).then(|| (at(50), at(99)))
    }
}

/// The bucket of a time: its highest bit, and the two bits below it.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(4);
    let high = 63 - nanos.leading_zeros();
    let fine = (nanos >> (high - 2)) & 3;
    ((high as usize - 2) * 4 + fine as usize).min(BUCKETS - 1)
}

/// The first time that is too long for a bucket.
fn upper_end(bucket: usize) -> u64 {
    let (high, fine) = (bucket / 4 + 2, bucket as u64 % 4);
    (4 + fine + 1) << (high - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A percentile is never below the true one, and at most a quarter above it.
    #[test]
    fn a_percentile_is_at_most_a_quarter_too_long() {
        for nanos in (2..40).map(|bit| (1_u64 << bit) + (1 << bit) / 3) {
            let times = Times::default();
            times.add(Duration::from_nanos(nanos));
            let (half, most) = times.percentiles().unwrap();
            let end = u64::try_from(half.as_nanos()).unwrap();
            assert_eq!(half, most);
            assert!(
                end > nanos && end <= nanos + nanos / 4 + 1,
                "{nanos}: {end}"
            );
        }
    }

    #[test]
    fn percentiles_are_of_the_calls_since_they_are_timed() {
        let counters = RouteCounters::default();
        assert_eq!(counters.report("a", "short").percentiles, None);
        counters.set_timed(true);
        let millis = Duration::from_millis;
        (0..98).for_each(|_| counters.took(millis(1)));
        (0..2).for_each(|_| counters.took(millis(100)));
        let (half, most) = counters.report("a", "short").percentiles.unwrap();
        assert!(half >= millis(1) && half <= millis(2), "{half:?}");
        assert!(most >= millis(100) && most <= millis(126), "{most:?}");
        counters.set_timed(false);
        assert_eq!(counters.report("a", "short").percentiles, None);
        counters.set_timed(true);
        assert_eq!(counters.report("a", "short").percentiles, None);
    }
}
