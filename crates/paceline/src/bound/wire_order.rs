//! The order of requests on the wire, for protocols without ids: the request written first is
//! answered first.
//!
//! One thread at a time puts in (the writer), one at a time takes out (the reader): a ring without
//! a lock. It has a place for every slot, and a slot is in it once at most, so it is never full.

use super::calls::Key;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(super) struct WireOrder {
    ring: Box<[AtomicU64]>,
    /// How many were put in.
    put: AtomicUsize,
    /// How many were taken out.
    taken: AtomicUsize,
}

impl WireOrder {
    /// With a place for so many.
    pub(super) fn new(places: usize) -> Self {
        Self {
            ring: (0..places).map(|_| AtomicU64::new(0)).collect(),
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// The request of this call is the next on the wire.
    pub(super) fn put(&self, key: Key) {
        let count = self.put.load(Ordering::Relaxed);
        debug_assert!(count.wrapping_sub(self.taken.load(Ordering::Acquire)) < self.ring.len());
        let bits = u64::from(key.generation) << 32 | u64::from(key.index);
        self.ring[count % self.ring.len()].store(bits, Ordering::Relaxed);
        // Release, with the Acquire of `first`: a thread that sees the count sees the place.
        self.put.store(count.wrapping_add(1), Ordering::Release);
    }

    /// Whose reply is the next.
    pub(super) fn first(&self) -> Option<Key> {
        let count = self.taken.load(Ordering::Relaxed);
        if self.put.load(Ordering::Acquire) == count {
            return None;
        }
        let bits = self.ring[count % self.ring.len()].load(Ordering::Relaxed);
        Some(Key {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        })
    }

    /// Takes it out: its reply begins.
    pub(super) fn take(&self) -> Option<Key> {
        let first = self.first()?;
        let count = self.taken.load(Ordering::Relaxed);
        // Release, with the Acquire of `put`: the place was read before it is used again.
        self.taken.store(count.wrapping_add(1), Ordering::Release);
        Some(first)
    }

    /// Forgets all. Its caller both reads and writes.
    pub(super) fn clear(&self) {
        while self.take().is_some() {}
    }
}
