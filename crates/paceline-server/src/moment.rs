//! A moment on the pool's clock, in eight bytes.

use std::{num::NonZeroU64, time::Duration};

/// A moment on the pool's clock, in nanoseconds. An `Option` of it has eight bytes too: each connection keeps several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(NonZeroU64);

impl Moment {
    /// Later than every other one: some centuries after the start.
    pub(crate) const MAX: Self = Self(NonZeroU64::MAX);

    /// So long after the start of the clock.
    pub(crate) fn new(since_start: Duration) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos(since_start)))
    }

    /// The moment that is `span` later.
    pub(crate) fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// The time since `earlier`; zero if that is later.
    pub(crate) fn saturating_sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of the clock is a moment, and spans without an end lead to the last one.
    #[test]
    fn moments_have_ends() {
        let start = Moment::new(Duration::ZERO);
        let second = Duration::from_secs(1);
        assert_eq!(start.saturating_add(second).saturating_sub(start), second);
        assert_eq!(start.saturating_sub(Moment::new(second)), Duration::ZERO);
        assert_eq!(start.saturating_add(Duration::MAX), Moment::MAX);
        assert_eq!(Moment::new(Duration::MAX), Moment::MAX);
        assert!(Moment::new(second) < Moment::MAX);
    }

    #[test]
    fn a_moment_is_small() {
        assert_eq!(size_of::<Option<Moment>>(), 8);
    }
}
