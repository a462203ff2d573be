//! Numbers by chance that a seed repeats.

/// A generator: splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// A number of an account, a client or a key below `limit`, which is positive.
    pub fn id_below(&mut self, limit: i64) -> i64 {
        i64::try_from(self.below(limit.unsigned_abs())).unwrap_or(0)
    }

    /// True in so many of a hundred cases.
    pub fn is_within(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
