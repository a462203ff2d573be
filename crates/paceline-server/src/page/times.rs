//! How long turns were: counts by length, two for each power of two.

/// The first count is for what is shorter than this power of two of nanoseconds.
const FIRST_POWER: u32 = 10;
const COUNTS: usize = 50;

/// How many turns took how long.
#[derive(Clone, Debug)]
pub(super) struct Times([u64; COUNTS]);

impl Default for Times {
    fn default() -> Self {
        Self([0; COUNTS])
    }
}

impl Times {
    pub(super) fn note(&mut self, nanos: u64) {
        self.0[index_of(nanos)] += 1;
    }

    /// The counts that are not zero, each with its index: index `i` holds what took less than
    /// `1024 * 2^(i/2)` ns, where an odd power is one and a half times the even one below.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = self.0.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }
}

fn index_of(nanos: u64) -> usize {
    let power = (nanos | 1).ilog2();
    if power < FIRST_POWER {
        return 0;
    }
    let half = (nanos >> (power - 1)) & 1;
    let index = 1 + (power - FIRST_POWER) as usize * 2 + half as usize;
    index.min(COUNTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of the counts with this index, as the page computes it.
    fn end_of(index: usize) -> u64 {
        let power = 1_u64 << (FIRST_POWER as usize + index / 2);
        power + if index % 2 == 1 { power / 2 } else { 0 }
    }

    /// Each count begins where the one before ends.
    #[test]
    fn counts_are_without_gaps() {
        for index in 0..COUNTS - 1 {
            assert_eq!(index_of(end_of(index) - 1), index);
            assert_eq!(index_of(end_of(index)), index + 1);
        }
        assert_eq!((index_of(0), index_of(u64::MAX)), (0, COUNTS - 1));
    }
}
