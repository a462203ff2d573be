//! How a channel ends whose handler has asked for it ([`Next::Close`](super::Next::Close) and
//! [`Next::CloseGently`](super::Next::CloseGently)). The handler is called no more but for its
//! `closed`.
//!
//! ```text
//!   Close:        WhenSent  -- all is sent --> closed
//!   CloseGently:  Gently    -- all is sent, the output ends --> Lingering
//!                 Lingering -- the input ends, or a bound is met --> closed
//! ```
//!
//! - From the start of a gentle end the readiness word says *leaving*: neither a suspension nor
//!   another interest can hold it up, and it holds up a drain.
//! - While output is kept its idle time-out is
//!   [`Builder::linger_time`](crate::Builder::linger_time) at most: a peer that takes nothing for
//!   so long is given up.
//! - While it lingers, its deadline is that far away, and so many bytes are read at most
//!   ([`Builder::linger_limit`](crate::Builder::linger_limit)).

use std::{io, sync::Weak};

use super::{
    channel::Channel,
    entry::Verdict,
    handle::Key,
    handler::{Closed, Interest},
    readiness::Readiness,
    readiness_guard::ReadinessGuard,
    registry::Registry,
};
use crate::handle_set::Ready;

/// Whose handler asks for its end. (Made for that: an `Origin` kept over the call of the handler
/// would cost every call.)
pub(super) type Asker = (Weak<Registry>, Key);

/// How far the end of a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Its handler has not asked for it.
    No,
    /// It closes when all is sent.
    WhenSent,
    /// It lingers when all is sent.
    Gently,
    /// All is sent and the output has ended. So many bytes of input may still come.
    Lingering(u32),
}

impl<S: 'static> Channel<S> {
    /// The handler asks for a gentle end.
    #[cold]
    pub(super) fn close_gently(&mut self, (registry, key): &Asker) -> Verdict {
        self.finish();
        let Some(registry) = registry.upgrade() else {
            return self.finished();
        };
        let readiness = registry.hurry(*key);
        let guard = ReadinessGuard::aside(readiness, registry.read_budget(), registry.reports());
        self.leaving = Leaving::Gently;
        self.leave(guard, registry.weak(), *key)
    }

    /// The handler asks for the end because a time is over: no peer holds that up for long.
    #[cold]
    pub(super) fn close_in_time(&mut self, (registry, key): &Asker) -> Verdict {
        self.finish();
        if let Some(registry) = registry.upgrade() {
            registry.hurry(*key);
        }
        self.finished()
    }

    /// Goes on with the end that the handler has asked for.
    #[cold]
    pub(super) fn leave(
        &mut self,
        guard: ReadinessGuard<'_>,
        registry: &Weak<Registry>,
        key: Key,
    ) -> Verdict {
        match self.leaving {
            Leaving::Gently if self.unsent() == 0 => self.begin_to_linger(guard, registry, key),
            Leaving::Lingering(left) => self.discard(guard, registry, left),
            _ => {
                guard.settle();
                self.finished()
            }
        }
    }

    /// Its time is over before its end.
    #[cold]
    pub(super) fn give_up(&self) -> Verdict {
        if self.is_lingering() {
            Verdict::Finished
        } else {
            Verdict::close(Closed::TimedOut)
        }
    }

    /// Whether all was sent, and only the peer's end is waited for.
    pub(super) fn is_lingering(&self) -> bool {
        matches!(self.leaving, Leaving::Lingering(_))
    }

    /// Ends the output. What is no connected stream closes at once.
    fn begin_to_linger(
        &mut self,
        guard: ReadinessGuard<'_>,
        registry: &Weak<Registry>,
        key: Key,
    ) -> Verdict {
        let limit = registry.upgrade().and_then(|it| it.let_linger(key));
        match (limit, self.lend_descriptor().end_output()) {
            (Some(limit), Ok(())) => {
                guard.readiness.leave(Interest::READ);
                self.discard(guard, registry, limit)
            }
            _ => {
                guard.settle();
                Verdict::Finished
            }
        }
    }

    /// Reads what has come and drops it, as much as one visit may read. At the end of the input,
    /// after an error and after `left` bytes, the channel closes.
    fn discard(
        &mut self,
        mut guard: ReadinessGuard<'_>,
        registry: &Weak<Registry>,
        left: u32,
    ) -> Verdict {
        let left = left as usize;
        let share = left.min(read_budget(registry));
        let mut rest = share;
        let verdict = loop {
            let descriptor_of = self.descriptor_of;
            let read = |source: &S| descriptor_of(source).discard(rest);
            match guard.attempt(Ready::READABLE, self.source(), read) {
                Ok(count) if count > 0 && count < rest => rest -= count,
                Ok(count) if count > 0 && share < left => {
                    rest = 0;
                    break Verdict::Keep;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Verdict::Keep,
                _ => break Verdict::Finished,
            }
        };
        self.leaving = Leaving::Lingering((left - (share - rest)) as u32);
        guard.settle();
        verdict
    }
}

fn read_budget(registry: &Weak<Registry>) -> usize {
    let registry = registry.upgrade();
    registry.map_or(usize::MAX, |registry| registry.read_budget())
}

impl Registry {
    /// The time for a channel that lingers begins. How many bytes it may read; `None` if none
    /// lingers here.
    fn let_linger(&self, key: Key) -> Option<u32> {
        let (time, limit) = (self.limits().linger_time, self.limits().linger_limit);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let may = !time.is_zero() && limit > 0;
        may.then(|| {
            self.fix_deadline(key, time);
            limit
        })
    }

    /// From here on neither a suspension nor the interest holds up the end of an owned handle. A
    /// peer that takes nothing of the last output is given up after the linger time, or after its
    /// own idle time-out.
    fn hurry(&self, key: Key) -> &Readiness {
        let (slot, bound) = (self.slot(key), self.limits().linger_time);
        slot.readiness.leave(Interest::NONE);
        if !bound.is_zero() && slot.times.idle().is_none_or(|idle| idle > bound) {
            self.fix_timeout(key, bound);
        }
        &slot.readiness
    }
}
