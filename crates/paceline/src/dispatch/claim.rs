//! A claimed handle: what one thread does with it, and how it gives it back.

use super::{
    context::{Lent, Origin},
    entry::{Done, Entry, Verdict},
    handle::Key,
    handler::Closed,
    line::Line,
    readiness::{Readiness, State},
    registry::{Registry, Remains},
    slot::Owned,
};
use crate::sync::{Clock, Timestamp};

/// What a handler may tell the pool while it runs, through its context.
pub(crate) trait Duty {
    /// This thread is about to block.
    fn go_away(&self);
    /// It is back.
    fn come_back(&self);
    /// The rest will take long.
    fn call_for_help(&self);
}

/// One handle, owned by this thread, with something to be done.
///
/// Dropped without being dispatched, it is put back with everything that is ready.
#[must_use]
pub(crate) struct Claim<'r> {
    registry: &'r Registry,
    /// `None` once it has been let go.
    owned: Option<Owned<'r>>,
}

impl<'r> Claim<'r> {
    pub(super) fn new(registry: &'r Registry, owned: Owned<'r>) -> Self {
        Self {
            registry,
            owned: Some(owned),
        }
    }

    /// Whether its handler is of a kind that usually takes long.
    pub(crate) fn is_long(&mut self) -> bool {
        let entry_is_long = |entry: &mut Option<Box<dyn Entry>>| {
            entry.as_ref().is_some_and(|entry| entry.kind().is_long())
        };
        let owned = self.owned.as_mut();
        owned.is_some_and(|owned| owned.with_entry(entry_is_long))
    }

    /// Calls the handler, or does what else is due. Returns the handle, still owned, unless that was
    /// its end; and when the handler was done.
    pub(crate) fn dispatch(
        mut self,
        clock: &Clock,
        start: Timestamp,
        duty: &dyn Duty,
    ) -> (Option<Self>, Timestamp) {
        let Some(mut owned) = self.owned.take() else {
            return (None, start);
        };
        let registry = self.registry;
        let (verdict, end) = visit(registry, &mut owned, clock, start, duty);
        match verdict {
            Verdict::Keep => (Some(Self::new(registry, owned)), end),
            Verdict::Close(why) => {
                if let Closed::Panicked(_) = why {
                    registry.count_panic();
                }
                registry.end(owned, why);
                (None, end)
            }
        }
    }

    /// Gives the handle back; this thread holds the lead, whose line that is.
    pub(crate) fn release_into(mut self, line: &mut Line) -> Option<Remains<'r>> {
        let owned = self.owned.take()?;
        self.registry.let_go_into(owned, line)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            self.registry.let_go(owned);
        }
    }
}

/// Does what is due at an owned handle, and says what shall become of it; and when that was done.
fn visit(
    registry: &Registry,
    owned: &mut Owned<'_>,
    clock: &Clock,
    start: Timestamp,
    duty: &dyn Duty,
) -> (Verdict, Timestamp) {
    let readiness = owned.readiness();
    let lent = Lent::claim(readiness, registry.read_budget());
    let seen = lent.seen;
    if seen.is_closing() {
        return (Verdict::Close(registry.why_closing()), start);
    }
    let origin = Origin {
        registry: registry.weak(),
        key: Key {
            index: owned.index(),
            generation: seen.generation(),
        },
        duty,
    };
    owned.with_entry(|entry| {
        let Some(entry) = entry else {
            return (Verdict::Keep, start);
        };
        let done = do_what_is_due(registry, entry.as_mut(), lent, origin);
        publish_sending(entry.as_ref(), readiness, seen);
        let end = clock.now();
        if done.called {
            entry.kind().note(end.since(start));
        }
        (done.verdict, end)
    })
}

/// Sends and calls if something is wanted; ends what is drained.
fn do_what_is_due(
    registry: &Registry,
    entry: &mut dyn Entry,
    lent: Lent<'_>,
    origin: Origin<'_>,
) -> Done {
    let seen = lent.seen;
    if !seen.wanted().is_empty() {
        let done = registry.in_frame(|| entry.work(lent, origin));
        return done
            .unwrap_or_else(|panic| Done::without_call(Verdict::Close(Closed::Panicked(panic))));
    }
    if seen.is_draining() && !seen.is_sending() {
        return Done::without_call(Verdict::Close(Closed::Shutdown));
    }
    // Interest was taken away while the bits were claimed: they stay for when it comes back.
    lent.settle();
    Done::without_call(Verdict::Keep)
}

/// Notes in the word whether output is kept, if that has changed or may have.
fn publish_sending(entry: &dyn Entry, readiness: &Readiness, seen: State) {
    let (sending, read_meanwhile) = entry.sending();
    if sending || seen.is_sending() {
        readiness.set_sending(sending, read_meanwhile);
    }
}
