//! A claimed handle: what one thread does with it, and how it gives it back.

use super::{
    context::{Lent, Origin},
    entry::Verdict,
    handle::Key,
    handler::Closed,
    line::Line,
    registry::{Registry, Remains},
    slot::Owned,
};

/// One handle, owned by this thread, with something to be done.
///
/// Dropped without being dispatched, it is put back with everything that is ready.
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

    /// Calls the handler, or does what else is due. Returns the handle, still owned, unless that was
    /// its end.
    pub(crate) fn dispatch(mut self) -> Option<Self> {
        let mut owned = self.owned.take()?;
        let registry = self.registry;
        match visit(registry, &mut owned) {
            Verdict::Keep => Some(Self::new(registry, owned)),
            Verdict::Close(why) => {
                if let Closed::Panicked(_) = why {
                    registry.count_panic();
                }
                registry.end(owned, why);
                None
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

/// What is due at an owned handle, and what shall become of it.
fn visit(registry: &Registry, owned: &mut Owned<'_>) -> Verdict {
    let readiness = owned.readiness();
    let lent = Lent::claim(readiness, registry.read_budget());
    let seen = lent.seen;
    if seen.is_closing() {
        return Verdict::Close(registry.why_closing());
    }
    let origin = Origin {
        registry: registry.weak(),
        key: Key {
            index: owned.index(),
            generation: seen.generation(),
        },
    };
    owned.with_entry(|entry| {
        let Some(entry) = entry else {
            return Verdict::Keep;
        };
        let verdict = match seen.wanted().is_empty() {
            false => registry
                .in_frame(|| entry.visit(lent, origin))
                .unwrap_or_else(|panic| Verdict::Close(Closed::Panicked(panic))),
            true if seen.is_draining() && !seen.is_sending() => Verdict::Close(Closed::Shutdown),
            // Interest was taken away while the bits were claimed: they stay for when it comes back.
            true => {
                lent.settle();
                Verdict::Keep
            }
        };
        let (sending, read_meanwhile) = entry.sending();
        if sending || seen.is_sending() {
            readiness.set_sending(sending, read_meanwhile);
        }
        verdict
    })
}
