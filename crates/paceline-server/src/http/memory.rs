//! The memory that long bodies share: what one of them takes, the others can't have.

use std::sync::{
    atomic::{AtomicUsize, Ordering},
    Arc,
};

/// How many bytes are left.
#[derive(Debug)]
pub(super) struct SharedMemory {
    left: AtomicUsize,
}

/// Bytes that are taken, until this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: Arc<SharedMemory>,
    bytes: usize,
}

impl SharedMemory {
    pub(super) fn new(bytes: usize) -> Self {
        let left = AtomicUsize::new(bytes);
        Self { left }
    }

    /// Takes some bytes; `None` if there are not so many left.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        // A count that orders nothing else.
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            });
        taken.ok().map(|_| Share {
            of: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No more is given than there is, and what was given comes back.
    #[test]
    fn shares_never_exceed_the_whole() {
        let memory = Arc::new(SharedMemory::new(100));
        let first = memory.take(60).unwrap();
        assert!(memory.take(41).is_none());
        let second = memory.take(40).unwrap();
        assert!(memory.take(1).is_none());
        drop(first);
        assert!(memory.take(61).is_none());
        drop(second);
        assert!(memory.take(100).is_some());
    }
}
