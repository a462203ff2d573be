//! How long things took: counts by length, in buckets that grow with it.
//!
//! Each power of two is divided into four buckets, so a bucket is at most a quarter as wide as what
//! it holds is long. A [`Recorder`] belongs to one thread, which adds without a lock and without a
//! read-modify-write; a reader reads them all and adds them up. Numbers that order nothing: std's
//! atomics in all forms.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A power of two has so many buckets, as a power of two.
const FINENESS: u32 = 2;
const PER_POWER: usize = 1 << FINENESS;

/// The buckets reach to 2^44 nanoseconds, nearly five hours. What takes longer is in the last one.
const LARGEST_POWER: u32 = 44;

const BUCKETS: usize = (LARGEST_POWER - FINENESS + 1) as usize * PER_POWER;

/// The bucket of so many nanoseconds.
fn bucket_of(nanos: u64) -> usize {
    // Below the first power with four buckets each number has its own.
    let shift = (nanos | PER_POWER as u64).ilog2() - FINENESS;
    let bucket = (shift as usize) * PER_POWER + (nanos >> shift) as usize;
    bucket.min(BUCKETS - 1)
}

/// The least number of nanoseconds in a bucket; of the one after the last, the end of the last.
fn least_of(bucket: usize) -> u64 {
    if bucket < 2 * PER_POWER {
        return bucket as u64;
    }
    let shift = bucket / PER_POWER - 1;
    let leading = PER_POWER + bucket % PER_POWER;
    (leading as u64) << shift
}

/// One thread at a time writes it, and any thread reads it.
pub(crate) struct Recorder {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    longest: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            longest: AtomicU64::new(0),
        }
    }
}

impl Recorder {
    /// One more, of so many nanoseconds. For the one thread that may.
    pub(crate) fn note(&self, nanos: u64) {
        add(&self.counts[bucket_of(nanos)], 1);
        add(&self.sum, nanos);
        if nanos > self.longest.load(Ordering::Relaxed) {
            self.longest.store(nanos, Ordering::Relaxed);
        }
    }
}

fn add(to: &AtomicU64, more: u64) {
    let before = to.load(Ordering::Relaxed);
    to.store(before.wrapping_add(more), Ordering::Relaxed);
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// How often something took how long: see [`Inspect::histograms`](crate::Inspect::histograms).
///
/// Lengths are counted in buckets, of which each is at most a quarter as wide as what it holds is
/// long. So [`quantile`](Self::quantile) may be up to a quarter too large, and never too little;
/// count, sum and the longest are exact.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    sum: u64,
    longest: u64,
}

/// A part of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket {
    /// What is in it took at least so long
    pub from: Duration,
    /// and less than this. (The last one has no end: it ends with the longest time.)
    pub to: Duration,
    /// So many are in it.
    pub count: u64,
}

impl Default for Histogram {
    /// Nothing was counted.
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            sum: 0,
            longest: 0,
        }
    }
}

impl Histogram {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long they took in all.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// How long they took on average; zero if there were none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(self.count()).unwrap_or(0))
    }

    /// The longest; zero if there were none.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// As [`quantile`](Self::quantile) of 0.5.
    #[must_use]
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// As [`quantile`](Self::quantile) of 0.99.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// This part of them (0.5: half, 0.99: all but one in a hundred) took no longer than the
    /// result; zero if there were none. It is the end of a bucket, or the longest.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count() as f64 * part.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        let most = found.map_or(0, |bucket| least_of(bucket + 1) - 1);
        // Nothing is longer than the longest; and the last bucket has no end.
        let nanos = match found {
            Some(bucket) if bucket + 1 == BUCKETS => self.longest,
            _ => most.min(self.longest),
        };
        Duration::from_nanos(nanos)
    }

    /// The buckets that are not empty, from the shortest to the longest.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let full = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        full.map(|(bucket, count)| Bucket {
            from: Duration::from_nanos(least_of(bucket)),
            to: match bucket + 1 {
                BUCKETS => Duration::from_nanos(self.longest.saturating_add(1)),
                next => Duration::from_nanos(least_of(next)),
            },
            count: *count,
        })
    }

    /// How many took less than this power of two in nanoseconds.
    pub(super) fn count_below_power(&self, power: u32) -> u64 {
        self.counts[..bucket_of(1 << power)].iter().sum()
    }

    /// Those that were recorded too. What is recorded meanwhile may be in it, or a part of it.
    pub(crate) fn add_recorded(&mut self, recorder: &Recorder) {
        let recorded = recorder.counts.iter();
        self.counts
            .iter_mut()
            .zip(recorded)
            .for_each(|(count, more)| *count += more.load(Ordering::Relaxed));
        self.sum = self.sum.wrapping_add(recorder.sum.load(Ordering::Relaxed));
        self.longest = self.longest.max(recorder.longest.load(Ordering::Relaxed));
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.p50())
            .field("p99", &self.p99())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

/// How long turns, handlers and blind times took: see
/// [`Inspect::histograms`](crate::Inspect::histograms).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histograms {
    /// Turns: from the moment in which an event was claimed until its thread had rejoined, with the
    /// wake of a follower, the handler, and work for afterwards.
    pub turn: Histogram,
    /// Handlers: one call, or what else was due at a handle (to send kept output, to report its
    /// end).
    pub handler: Histogram,
    /// Blind times: the lead was open although a follower was asleep. (Most are as long as a short
    /// handler, behind which no follower is woken.)
    pub blind: Histogram,
}

/// The times of one thread.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Turns that were nothing but a handler: they count as both.
    plain: Recorder,
    turn: Recorder,
    handler: Recorder,
}

impl Times {
    /// A turn of so many nanoseconds, all of which was the handler's.
    pub(crate) fn note_plain(&self, nanos: u64) {
        self.plain.note(nanos);
    }

    /// A turn of so many nanoseconds.
    pub(crate) fn note_turn(&self, nanos: u64) {
        self.turn.note(nanos);
    }

    /// The handler of a turn took so many nanoseconds.
    pub(crate) fn note_handler(&self, nanos: u64) {
        self.handler.note(nanos);
    }

    /// Adds them to those of others.
    pub(crate) fn add_to(&self, sum: &mut Histograms) {
        sum.turn.add_recorded(&self.plain);
        sum.turn.add_recorded(&self.turn);
        sum.handler.add_recorded(&self.plain);
        sum.handler.add_recorded(&self.handler);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn of(lengths: impl IntoIterator<Item = u64>) -> Histogram {
        let (recorder, mut histogram) = (Recorder::default(), Histogram::default());
        lengths.into_iter().for_each(|nanos| recorder.note(nanos));
        histogram.add_recorded(&recorder);
        histogram
    }

    /// Every bucket begins where the one before ends, and holds its own least and largest number;
    /// it is at most a quarter as wide as what it holds.
    #[test]
    fn buckets_are_without_gaps_and_narrow() {
        assert_eq!(least_of(0), 0);
        for bucket in 0..BUCKETS - 1 {
            let (least, end) = (least_of(bucket), least_of(bucket + 1));
            assert!(least < end);
            assert_eq!((bucket_of(least), bucket_of(end - 1)), (bucket, bucket));
            assert!(end - least <= (least / PER_POWER as u64).max(1), "{bucket}");
        }
        assert_eq!(least_of(BUCKETS), 1 << LARGEST_POWER);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    /// A quantile is never too little, and at most a quarter too much; the longest is exact, also
    /// beyond all buckets.
    #[test]
    fn quantiles_err_on_the_long_side() {
        let histogram = of((1..=1000).map(|step| step * 977));
        for (part, exact) in [
            (0.5, 500 * 977),
            (0.99, 990 * 977),
            (1.0, 977_000),
            (0.0, 977),
        ] {
            let told = histogram.quantile(part).as_nanos() as u64;
            assert!(told >= exact && told <= exact + exact / 4, "{part}: {told}");
        }
        assert_eq!(histogram.count(), 1000);
        assert_eq!(histogram.sum(), Duration::from_nanos(977 * 500_500));
        assert_eq!(
            of([u64::MAX, 5]).quantile(1.0),
            Duration::from_nanos(u64::MAX)
        );
        assert_eq!(of([7]).p50(), Duration::from_nanos(7));
    }

    /// What nothing was counted of has no length.
    #[test]
    fn an_empty_one_is_zero() {
        let empty = Histogram::default();
        assert_eq!((empty.count(), empty.buckets().count()), (0, 0));
        assert_eq!((empty.p99(), empty.max(), empty.mean()), Default::default());
    }

    /// The buckets together hold everything, in order, and below a power of two stands what is
    /// shorter.
    #[test]
    fn buckets_hold_everything_once() {
        let lengths = [0, 1, 3, 4, 7, 8, 1000, 1023, 1024, 1 << 50];
        let histogram = of(lengths);
        assert_eq!(
            histogram.buckets().map(|bucket| bucket.count).sum::<u64>(),
            10
        );
        for (bucket, next) in histogram.buckets().zip(histogram.buckets().skip(1)) {
            assert!(bucket.from < bucket.to && bucket.to <= next.from);
        }
        let nanos = |bucket: Bucket| (bucket.from.as_nanos() as u64, bucket.to.as_nanos() as u64);
        let (from, to) = nanos(histogram.buckets().last().unwrap());
        assert!(from <= 1 << 50 && to == (1 << 50) + 1);
        assert_eq!(histogram.count_below_power(10), 8);
        assert_eq!(histogram.count_below_power(3), 5);
        assert_eq!(histogram.count_below_power(11), 9);
    }

    /// Threads are added up; a turn that was all handler counts as both.
    #[test]
    fn times_add_up() {
        let (one, other) = (Times::default(), Times::default());
        one.note_plain(100);
        other.note_turn(300);
        other.note_handler(200);
        let mut sum = Histograms::default();
        one.add_to(&mut sum);
        other.add_to(&mut sum);
        assert_eq!((sum.turn.count(), sum.handler.count()), (2, 2));
        assert_eq!(sum.turn.sum(), Duration::from_nanos(400));
        assert_eq!(sum.handler.sum(), Duration::from_nanos(300));
    }
}
