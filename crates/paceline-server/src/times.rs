//! The times of one connection, without a clock: what it waits for, and until when.
//!
//! ```text
//!   Opening --first byte--> Item --last byte--> Between --first byte--> Item ..
//!                             \                    |
//!                              +--- output is kept -+--> Output --all is sent--> back
//! ```
//!
//! A message whose body is a stream goes on as `Stream`: under the least rate alone.
//!
//! A connection has one deadline in the pool at a time: [`Times::deadline`]. Nothing is set while
//! whole items come and all output is sent at once, so the usual turn reads no clock. A rate is
//! checked lazily: the deadline is the moment in which a peer that moves no further byte falls
//! below the least rate. When it passes, [`Times::overdue`] asks how far the peer has come since.

use std::time::Duration;

use crate::{
    limits::{LeastRate, Limit, Limits},
    moment::Moment,
};

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// The first byte, or the end of the handshake.
    Opening { until: Moment, limit: Limit },
    /// The rest of an item.
    Item { since: Moment, bytes: u64 },
    /// The rest of a message whose length is no matter of time.
    Stream { since: Moment, bytes: u64 },
    /// The next item.
    Next,
}

/// Output that the peer has not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Output {
    since: Moment,
    /// How many bytes were to be sent since then.
    given: u64,
    /// Since when output is kept, without a gap.
    kept_since: Moment,
}

/// The times of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    awaited: Awaited,
    /// In a box, because an idle connection keeps none.
    output: Option<Box<Output>>,
    /// The session's own deadline.
    own: Option<Moment>,
}

/// What is to be done when the deadline of the pool has passed.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This limit is met.
    Met(Limit),
    /// Nothing is over yet: wait for the next deadline.
    GoOn,
}

impl Times {
    /// A connection begins, and must speak, or end its handshake, by `until`.
    pub(crate) fn opening(until: Moment, limit: Limit) -> Self {
        Self {
            awaited: Awaited::Opening { until, limit },
            output: None,
            own: None,
        }
    }

    /// The peer must speak, or end its handshake, by `until`. The session's own deadline goes on.
    pub(crate) fn open(&mut self, until: Moment, limit: Limit) {
        self.awaited = Awaited::Opening { until, limit };
    }

    /// Whether the peer has not spoken yet.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.awaited, Awaited::Opening { .. })
    }

    /// A peer that has not spoken yet must do so by `at`, if that is earlier.
    pub(crate) fn shorten(&mut self, at: Moment) {
        if let Awaited::Opening { until, .. } = &mut self.awaited {
            *until = at.min(*until);
        }
    }

    /// `span` has passed that does not count: everything is later by it.
    pub(crate) fn shift(&mut self, span: Duration) {
        match &mut self.awaited {
            Awaited::Opening { until, .. } => *until = until.saturating_add(span),
            Awaited::Item { since, .. } | Awaited::Stream { since, .. } => {
                *since = since.saturating_add(span)
            }
            Awaited::Next => {}
        }
    }

    /// The session goes on although it has met `limit`: that time begins anew.
    pub(crate) fn restart(&mut self, limit: Limit, now: Moment, limits: &Limits, unsent: usize) {
        match (limit, &mut self.awaited) {
            (Limit::Silent, Awaited::Opening { until, .. }) => {
                *until = now.saturating_add(limits.silent);
            }
            (
                Limit::ItemTime | Limit::ReadRate,
                Awaited::Item { since, bytes } | Awaited::Stream { since, bytes },
            ) => {
                (*since, *bytes) = (now, 0);
            }
            (Limit::WriteRate, _) => {
                let output = self.output.take();
                let kept_since = output.map_or(now, |output| output.kept_since);
                let output = Output {
                    since: now,
                    given: unsent as u64,
                    kept_since,
                };
                self.output = (unsent > 0).then(|| Box::new(output));
            }
            _ => {}
        }
    }

    /// All items that came were whole: the next byte begins another one.
    pub(crate) fn item_ended(&mut self) {
        self.awaited = Awaited::Next;
    }

    /// `bytes` more bytes of an item came, and it is not whole. Is it a new one, its time begins.
    pub(crate) fn item_grew(&mut self, now: Moment, bytes: usize, is_new: bool) {
        let bytes = bytes as u64;
        self.awaited = match self.awaited {
            Awaited::Item {
                since,
                bytes: before,
            } if !is_new => Awaited::Item {
                since,
                bytes: before + bytes,
            },
            _ => Awaited::Item { since: now, bytes },
        };
    }

    /// `bytes` more bytes of a stream came. Its time begins with the first call.
    pub(crate) fn stream_grew(&mut self, now: Moment, bytes: usize, is_new: bool) {
        let bytes = bytes as u64;
        self.awaited = match self.awaited {
            Awaited::Stream {
                since,
                bytes: before,
            } if !is_new => Awaited::Stream {
                since,
                bytes: before + bytes,
            },
            _ => Awaited::Stream { since: now, bytes },
        };
    }

    /// The pool keeps `unsent` bytes of output, and kept `before` when this call began.
    pub(crate) fn output_kept(
        &mut self,
        now: impl FnOnce() -> Moment,
        before: usize,
        unsent: usize,
    ) {
        match &mut self.output {
            Some(output) => output.given += unsent.saturating_sub(before) as u64,
            None => {
                let now = now();
                self.output = Some(Box::new(Output {
                    since: now,
                    given: unsent as u64,
                    kept_since: now,
                }));
            }
        }
    }

    /// The peer has taken all output. It was not read meanwhile, so that time does not count for
    /// its item.
    pub(crate) fn output_sent(&mut self, now: impl FnOnce() -> Moment) {
        let output = self.output.take();
        let (Some(output), Awaited::Item { since, .. } | Awaited::Stream { since, .. }) =
            (output, &mut self.awaited)
        else {
            return;
        };
        *since = since.saturating_add(now().saturating_sub(output.kept_since));
    }

    /// Sets or clears the session's own deadline.
    pub(crate) fn set_own(&mut self, at: Option<Moment>) {
        self.own = at;
    }

    /// When the pool must ask next.
    pub(crate) fn deadline(&self, limits: &Limits, unsent: usize, is_read: bool) -> Option<Moment> {
        if let (Awaited::Next, None) = (self.awaited, &self.output) {
            // The usual turn.
            return self.own;
        }
        let all = self.all(limits, unsent, is_read);
        all.into_iter().flatten().map(|(at, _)| at).min()
    }

    /// Whether a limit is met. The session's own deadline is taken out: it is met once.
    pub(crate) fn overdue(
        &mut self,
        limits: &Limits,
        now: Moment,
        unsent: usize,
        is_read: bool,
    ) -> Verdict {
        let all = self.all(limits, unsent, is_read).into_iter().flatten();
        let first = all.min_by_key(|(at, _)| *at).filter(|(at, _)| *at <= now);
        let Some((_, limit)) = first else {
            return Verdict::GoOn;
        };
        if limit == Limit::Deadline {
            self.own = None;
        }
        Verdict::Met(limit)
    }

    /// Each time that counts now, and its limit.
    fn all(&self, limits: &Limits, unsent: usize, is_read: bool) -> [Option<(Moment, Limit)>; 4] {
        let (first, second) = match self.awaited {
            Awaited::Next => (None, None),
            // A peer that is not read can't break its silence.
            Awaited::Opening { limit, .. } if limit == Limit::Silent && !is_read => (None, None),
            Awaited::Opening { until, limit } => (Some((until, limit)), None),
            // A peer that is not read can't send its item; neither is one that takes no output.
            Awaited::Item { .. } | Awaited::Stream { .. } if !is_read || self.output.is_some() => {
                (None, None)
            }
            Awaited::Stream { since, bytes } => (None, read_rate(limits, since, bytes)),
            Awaited::Item { since, bytes } => (
                limits
                    .item_time
                    .map(|time| (since.saturating_add(time), Limit::ItemTime)),
                read_rate(limits, since, bytes),
            ),
        };
        let output = self.output.as_ref().zip(limits.least_rate);
        let output = output.map(|(output, rate)| {
            let taken = output.given.saturating_sub(unsent as u64);
            (too_slow_at(rate, output.since, taken), Limit::WriteRate)
        });
        [
            first,
            second,
            output,
            self.own.map(|at| (at, Limit::Deadline)),
        ]
    }
}

/// When a peer that has sent `bytes` bytes since then, and sends no more, is too slow.
fn read_rate(limits: &Limits, since: Moment, bytes: u64) -> Option<(Moment, Limit)> {
    let rate = limits.least_rate?;
    Some((too_slow_at(rate, since, bytes), Limit::ReadRate))
}

/// How long a peer may take for `bytes` bytes.
pub(crate) fn longest_time(rate: LeastRate, bytes: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.bytes_per_second.max(1));
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    rate.grace.saturating_add(Duration::from_nanos(nanos))
}

/// When a peer that has moved `bytes` bytes since then, and moves no more, is too slow.
fn too_slow_at(rate: LeastRate, since: Moment, bytes: u64) -> Moment {
    since.saturating_add(longest_time(rate, bytes))
}
