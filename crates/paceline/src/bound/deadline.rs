//! Until when a call may take, and until when a thread waits for it.

use std::time::{Duration, Instant};

use crate::sync::{Clock, Timestamp};

/// A point in time on the monotonic clock, or a span from the beginning of the call or of the join
/// that it is given to, or never.
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

/// Until when a thread waits: until a point in time, or until the wait is cancelled. The cancelling
/// thread wakes the waiting one afterwards ([`Link::rouse`](super::link::Link::rouse)).
#[derive(Clone, Copy)]
pub(super) struct Patience<'w> {
    deadline: Option<Timestamp>,
    is_called_off: Option<&'w dyn Fn() -> bool>,
}

impl<'w> Patience<'w> {
    /// Until then, or for ever.
    pub(super) const fn until(deadline: Option<Timestamp>) -> Self {
        Self {
            deadline,
            is_called_off: None,
        }
    }

    /// The same, or until it is called off.
    pub(super) fn unless(self, is_called_off: &'w dyn Fn() -> bool) -> Self {
        Self {
            is_called_off: Some(is_called_off),
            ..self
        }
    }

    /// Whether the wait is over.
    pub(super) fn is_over(&self, clock: &Clock) -> bool {
        self.is_called_off() || clock.has_passed(self.deadline)
    }

    pub(super) fn is_called_off(&self) -> bool {
        self.is_called_off
            .is_some_and(|is_called_off| is_called_off())
    }

    /// When the wait is over: at once, if it was called off.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        if self.is_called_off() {
            Some(Timestamp::PAST)
        } else {
            self.deadline
        }
    }
}
