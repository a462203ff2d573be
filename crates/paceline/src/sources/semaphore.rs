//! A semaphore as a source of events: a count, of which each unit is one.

use std::{fmt, io, sync::Arc};

use crate::{
    dispatch::{Handle, HandleId, Shut, Store, Ticket},
    sync::atomic::{AtomicU64, Ordering},
};

/// Nothing is released any more; the rest of the word is the count.
const SHUT: u64 = 1 << 63;

/// More units than this can't wait.
const MOST: u64 = u32::MAX as u64;

/// A semaphore of a pool: see [`Sources::semaphore`](crate::Sources::semaphore). Cheap to clone.
/// When the last clone is dropped it ends, as soon as every unit is handled.
#[derive(Clone)]
pub struct Semaphore(Arc<Door>);

/// What its clones share.
struct Door {
    count: Arc<Count>,
    handle: Handle,
}

impl Semaphore {
    pub(crate) fn new(count: Arc<Count>, handle: Handle) -> Self {
        Self(Arc::new(Door { count, handle }))
    }

    /// Releases one unit: the handler will be called for it, once.
    ///
    /// # Errors
    /// As [`release_many`](Self::release_many).
    pub fn release(&self) -> io::Result<()> {
        self.release_many(1)
    }

    /// Releases so many units, all or none. It never waits, and makes a system call only if the
    /// thread that leads is asleep.
    ///
    /// # Errors
    /// `QuotaExceeded` if more than `u32::MAX` would wait; `BrokenPipe` if the semaphore has ended
    /// or is about to. No unit is released then.
    pub fn release_many(&self, units: u32) -> io::Result<()> {
        match self.0.count.add(units) {
            Ok(()) => {
                self.0.notify();
                Ok(())
            }
            Err(seen) => Err(self.error(units, seen)),
        }
    }

    /// How many units wait to be handled. It may be another number at once.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.0.count.len() as u32
    }

    /// Ends it: no unit is released any more; what was is handled, and then the handler's `closed`
    /// is called.
    pub fn close(&self) {
        self.0.close();
    }

    /// The name of this semaphore, for observers and hooks.
    #[must_use]
    pub fn id(&self) -> HandleId {
        self.0.handle.id()
    }

    #[cold]
    fn error(&self, units: u32, seen: u64) -> io::Error {
        let id = self.id();
        match seen & SHUT {
            0 => {
                let text = format!("release {units} of semaphore {id}: {seen} units wait already");
                io::Error::new(io::ErrorKind::QuotaExceeded, text)
            }
            _ => {
                let text = format!("release {units} of semaphore {id}: it has ended");
                io::Error::new(io::ErrorKind::BrokenPipe, text)
            }
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("id", &self.id())
            .field("value", &self.value())
            .finish()
    }
}

impl Door {
    /// If it is over, what was released is in the report.
    fn notify(&self) {
        let _ = self.handle.notify();
    }

    fn close(&self) {
        self.count.shut();
        self.notify();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// The units that wait, and whether more may come: one word, so of a release and the end the second
/// one sees the first.
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn new(initial: u32) -> Self {
        Self(AtomicU64::new(initial.into()))
    }

    /// Adds this many; returns what it found if it can't.
    fn add(&self, units: u32) -> Result<(), u64> {
        let more = |seen: u64| match seen & SHUT {
            0 => Some(seen + u64::from(units)).filter(|sum| *sum <= MOST),
            _ => None,
        };
        let added = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        added.map(drop)
    }
}

impl Store for Count {
    type Item = ();

    fn claim(&self) -> Option<Ticket> {
        let less = |seen: u64| (seen & !SHUT > 0).then(|| seen - 1);
        let claimed = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        claimed.ok().map(|_| Ticket(0))
    }

    /// A unit is nothing but its claim.
    fn redeem(&self, _: Ticket) -> Option<()> {
        Some(())
    }

    fn len(&self) -> usize {
        (self.0.load(Ordering::Acquire) & !SHUT) as usize
    }

    fn shut(&self) {
        self.0.fetch_or(SHUT, Ordering::AcqRel);
    }

    fn shut_if_empty(&self) -> Shut {
        match self
            .0
            .compare_exchange(0, SHUT, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) | Err(SHUT) => Shut::Shut,
            Err(_) => Shut::NotYet,
        }
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == SHUT
    }

    fn discard(&self) -> Result<(), String> {
        self.0.fetch_and(SHUT, Ordering::AcqRel);
        Ok(())
    }
}
