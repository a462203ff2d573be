//! Until when a call may take.

use std::time::{Duration, Instant};

use crate::sync::{Clock, Timestamp};

/// A point in time on the monotonic clock, or a span from the beginning of the call or of the join that it is given to, or never.
///
/// ```
/// use std::time::{Duration, Instant};
/// use paceline::bound::Deadline;
///
/// let within = Deadline::from(Duration::from_secs(2));
/// let at = Deadline::from(Instant::now() + Duration::from_secs(2));
/// assert_ne!(within, at);
/// assert_ne!(within, Deadline::NEVER);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Until);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Never,
    Within(Duration),
    At(Instant),
}

impl Deadline {
    /// As long as it takes.
    pub const NEVER: Self = Self(Until::Never);

    /// The same point in time, whenever it is asked for.
    pub(super) fn fixed(self) -> Self {
        match self.0 {
            Until::Within(span) => {
                let at = Instant::now().checked_add(span);
                Self(at.map_or(Until::Never, Until::At))
            }
            Until::Never | Until::At(_) => self,
        }
    }

    /// The same on this clock, counted from now.
    pub(super) fn on(self, clock: &Clock) -> Option<Timestamp> {
        let within = match self.0 {
            Until::Never => return None,
            Until::Within(span) => span,
            Until::At(instant) => instant.saturating_duration_since(Instant::now()),
        };
        Some(clock.now().after(within))
    }
}

impl From<Duration> for Deadline {
    fn from(within: Duration) -> Self {
        Self(Until::Within(within))
    }
}

impl From<Instant> for Deadline {
    fn from(at: Instant) -> Self {
        Self(Until::At(at))
    }
}
