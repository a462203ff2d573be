//! A small generator of random numbers: orders need no more.

use std::time::{SystemTime, UNIX_EPOCH};

/// A state that is never zero (xorshift, Marsaglia 2003).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From the time of day: every run has another order.
    pub(crate) fn seeded() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self::from_seed(since.as_nanos() as u64)
    }

    /// The same numbers every time.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// Puts `items` in random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
