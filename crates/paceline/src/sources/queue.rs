//! A bounded queue as a source of events.

use std::{fmt, io, sync::Arc};

use super::cells::{Cells, Refusal};
use crate::dispatch::{Handle, HandleId, Rejected, Store};

/// The way into a queue of a pool: see [`Sources::queue`](crate::Sources::queue). Cheap to clone.
/// When the last clone is dropped the queue ends, as soon as everything that was sent is handled.
pub struct Sender<T: Send + 'static>(Arc<Door<T>>);

/// What the clones of a sender share.
struct Door<T: Send + 'static> {
    cells: Arc<Cells<T>>,
    handle: Handle,
}

impl<T: Send + 'static> Sender<T> {
    /// Sends an item. It never waits, allocates nothing, and makes a system call only if the thread
    /// that leads is asleep (or, in a concurrent set, if one is to be woken).
    ///
    /// # Errors
    /// Gives the item back: `QuotaExceeded` if the queue is full, `BrokenPipe` if it has ended or
    /// is about to.
    pub fn send(&self, item: T) -> Result<(), Rejected<T>> {
        match self.0.cells.push(item) {
            Ok(()) => {
                self.0.notify();
                Ok(())
            }
            Err((item, refusal)) => Err(Rejected::new(item, self.error(refusal))),
        }
    }

    /// How many items wait to be handled. It may be another number at once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.cells.len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many can wait.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.cells.capacity()
    }

    /// Ends the queue: it accepts nothing more; what it accepted is handled, and then the handler's
    /// `closed` is called.
    pub fn close(&self) {
        self.0.close();
    }

    /// The name of this queue, for observers and hooks.
    #[must_use]
    pub fn id(&self) -> HandleId {
        self.0.handle.id()
    }

    #[cold]
    fn error(&self, refusal: Refusal) -> io::Error {
        let id = self.id();
        match refusal {
            Refusal::Full => {
                let text = format!("send: queue {id} is full, with {} items", self.capacity());
                io::Error::new(io::ErrorKind::QuotaExceeded, text)
            }
            Refusal::Shut => {
                let text = format!("send: queue {id} has ended");
                io::Error::new(io::ErrorKind::BrokenPipe, text)
            }
        }
    }
}

impl<T: Send + 'static> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("queue", &self.id())
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl<T: Send + 'static> Door<T> {
    /// If the queue is over, what was put in is in the report.
    fn notify(&self) {
        let _ = self.handle.notify();
    }

    fn close(&self) {
        self.cells.shut();
        self.notify();
    }
}

impl<T: Send + 'static> Drop for Door<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// A queue that is not registered yet.
pub(crate) struct Queue<T>(Arc<Cells<T>>);

impl<T: Send + 'static> Queue<T> {
    pub(crate) fn new(capacity: usize) -> io::Result<Self> {
        if capacity == 0 {
            let text = "queue: a capacity of zero: nothing could be sent";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        match Cells::new(capacity) {
            Some(cells) => Ok(Self(Arc::new(cells))),
            None => {
                let text = format!("queue: no memory for {capacity} items");
                Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
            }
        }
    }

    pub(crate) fn store(&self) -> &Arc<impl Store<Item = T>> {
        &self.0
    }

    /// Its way in, now that it is registered.
    pub(crate) fn sender(self, handle: Handle) -> Sender<T> {
        Sender(Arc::new(Door {
            cells: self.0,
            handle,
        }))
    }
}
