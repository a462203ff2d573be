//! What a line that is arranged asks of the registry: ranks, and what has waited too long.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use super::{
    super::{handle::Key, readiness::Stale},
    Registry,
};

impl Registry {
    /// The rank of a handle in a line that is ordered by it.
    pub(in crate::dispatch) fn set_priority(&self, key: Key, priority: u8) -> Result<(), Stale> {
        self.slot_of(key)?.priority.store(priority, Relaxed);
        Ok(())
    }

    pub(in crate::dispatch) fn priority_of(&self, index: u32) -> u8 {
        let slot = self.slots.get(index);
        slot.map_or(0, |slot| slot.priority.load(Relaxed))
    }

    /// A handle is taken off the line after so long: too long. This thread holds the lead.
    #[cold]
    pub(in crate::dispatch) fn expire_event(&self, index: u32, age: Duration) {
        let Some(slot) = self.slots.get(index).filter(|slot| slot.group().is_none()) else {
            return;
        };
        let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        slot.age.store(nanos, Relaxed);
        slot.readiness.expire();
    }

    /// How long the handle at hand has waited; its handler gets to know it.
    pub(in crate::dispatch) fn note_expired(&self, key: Key) -> Duration {
        self.counters.expired.one_more();
        let slot = self.slots.get(key.index);
        Duration::from_nanos(slot.map_or(0, |slot| slot.age.load(Relaxed)))
    }
}
