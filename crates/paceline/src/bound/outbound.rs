//! What goes out: requests of many threads become few writes.
//!
//! A caller encodes its request into its own slot and pushes the slot onto a stack. The head of the
//! stack also says whether a thread writes, so the question "must I do it?" and the push are one
//! step:
//!
//! ```text
//!   IDLE    --> WRITING   [push]      no thread writes: the caller has the **pen**, writes all
//!   IDLE    --> WRITING   [hold]      the leader, with many replies: their callers will send
//!   WRITING --> WRITING   [push]      the thread with the pen will take this one too
//!   WRITING --> IDLE      [put_down]  nothing is left
//!   WRITING --> KEPT      [keep]      the socket takes no more; the leader waits for room
//!   KEPT    --> KEPT      [push]      likewise
//!   KEPT    --> WRITING   [pick_up]   the socket takes more
//!   any     --> DEAD      [die]       the connection is lost: the pen empties the queue
//! ```
//!
//! No thread waits for the pen. Requests are written in the order in which they were pushed, from
//! the slots' own buffers, and no byte is copied.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    mem,
    sync::{atomic::Ordering::Relaxed, Arc},
};

use super::{
    calls::{Calls, Key},
    slot::NONE,
    wire_order::WireOrder,
    word::{Loss, Told},
};
use crate::{
    sync::{
        atomic::{AtomicU64, Ordering},
        lock, Mutex,
    },
    unwind::caught,
};

/// The topmost slot of the stack.
const HEAD: u64 = NONE as u64;
const WRITING: u64 = 1 << 32;
const KEPT: u64 = 1 << 33;
const DEAD: u64 = 1 << 34;

/// So many requests go into one write.
const AT_ONCE: usize = 64;

/// After this many writes another thread takes the pen: this caller wants to join too.
const MOST_WRITES: usize = 16;

/// What the pusher of a request does next.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It has the pen: [`Outbound::write`].
    Write,
    /// Another thread writes it.
    Left,
    /// The connection is lost, and the request was not taken.
    Dead,
}

/// What came of writing.
#[must_use]
#[derive(Debug)]
pub(crate) enum Written {
    /// All that there was; the pen is put down.
    All,
    /// The socket takes no more. The leader must be called, so that it waits for room.
    Kept,
    /// Others want this thread too; the rest is kept, though there may be room.
    Paused,
    /// The connection is lost for writing. The leader must be called, and then the pen be put down
    /// ([`Outbound::give_up`]): until then the connection can't be replaced, so the leader does not
    /// end the next one instead.
    Failed(io::Error),
    /// Another thread has found the connection lost and emptied the queue; every caller in it has
    /// the loss.
    Dead,
}

/// Where requests are written to.
pub(crate) trait Sink: Send + Sync {
    /// Writes some of these bytes, and never blocks.
    fn write(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// The requests that wait to be written.
pub(crate) struct Outbound {
    word: AtomicU64,
    /// Bytes that were accepted and not written. It orders nothing.
    unsent: std::sync::atomic::AtomicUsize,
    /// More are not accepted.
    most_unsent: usize,
    /// Of the thread that has the pen. The lock is never contended.
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// `None` while there is no connection.
    sink: Option<Arc<dyn Sink>>,
    waiting: VecDeque<Outgoing>,
    /// So many bytes of the first one are written.
    written: usize,
}

struct Outgoing {
    key: Key,
    bytes: Vec<u8>,
}

impl Outbound {
    /// At most so many bytes wait to be written. There is no connection yet.
    pub(crate) fn new(most_unsent: usize) -> Self {
        Self {
            word: AtomicU64::new(HEAD | DEAD),
            unsent: 0.into(),
            most_unsent,
            queue: Mutex::default(),
        }
    }

    /// Makes room for a request of so many bytes. If nothing waits, there is room for any.
    #[must_use]
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let waiting = self.unsent.fetch_add(bytes, Relaxed);
        let fits = waiting == 0 || waiting.saturating_add(bytes) <= self.most_unsent;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// So many bytes do not wait any more.
    pub(crate) fn release(&self, bytes: usize) {
        self.unsent.fetch_sub(bytes, Relaxed);
    }

    /// Puts the request of slot `index`, which is encoded and marked as queued, behind all others.
    pub(crate) fn push(&self, calls: &Calls, index: u32) -> Pushed {
        let slot = calls.slots.at(index);
        self.update(|seen| {
            if seen & DEAD != 0 {
                return (seen, Pushed::Dead);
            }
            slot.queued.store(seen as u32, Ordering::Relaxed);
            let next = seen & !HEAD | u64::from(index);
            match seen & (WRITING | KEPT) {
                0 => (next | WRITING, Pushed::Write),
                _ => (next, Pushed::Left),
            }
        })
    }

    /// Takes the pen, if it is free and nothing is kept: later pushes wait until this thread
    /// [writes](Self::write).
    #[must_use]
    pub(crate) fn hold(&self) -> bool {
        self.update(|seen| match seen & (KEPT | WRITING | DEAD) {
            0 => (seen | WRITING, true),
            _ => (seen, false),
        })
    }

    /// Whether the socket did not take all.
    pub(crate) fn is_kept(&self) -> bool {
        self.word.load(Ordering::Acquire) & (KEPT | WRITING | DEAD) == KEPT
    }

    /// Takes the pen, if output is kept.
    #[must_use]
    pub(crate) fn pick_up(&self) -> bool {
        self.update(|seen| match seen & (KEPT | WRITING | DEAD) {
            KEPT => (seen & !KEPT | WRITING, true),
            _ => (seen, false),
        })
    }

    /// Of the thread that has the pen: writes the whole queue, with what others push meanwhile.
    pub(crate) fn write(&self, calls: &Calls, order: &WireOrder) -> Written {
        let mut writes = 0;
        loop {
            let mut queue = lock(&self.queue);
            self.take_pushed(calls, order, &mut queue);
            while !queue.waiting.is_empty() {
                match queue.write_some() {
                    Ok(count) => {
                        writes += 1;
                        calls.counters.writes.add(1);
                        calls.counters.bytes_written.add(count as u64);
                        self.release(count);
                        queue.note_written(calls, count);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        drop(queue);
                        return self.keep(calls);
                    }
                    Err(error) => return Written::Failed(error),
                }
            }
            drop(queue);
            if let Some(written) = self.put_down(calls) {
                return written;
            }
            if writes >= MOST_WRITES {
                return match self.keep(calls) {
                    Written::Kept => Written::Paused,
                    other => other,
                };
            }
        }
    }

    /// Puts the pen down after [`Written::Failed`].
    pub(crate) fn give_up(&self, calls: &Calls) {
        let _ = self.keep(calls);
    }

    /// Nothing is left to be written; `None` if there is.
    fn put_down(&self, calls: &Calls) -> Option<Written> {
        let done = self.update(|seen| match (seen & DEAD != 0, seen & HEAD == HEAD) {
            (true, _) => (seen, Some(Written::Dead)),
            (false, true) => (seen & !WRITING, Some(Written::All)),
            (false, false) => (seen, None),
        });
        if let Some(Written::Dead) = done {
            self.bury(calls);
        }
        done
    }

    fn keep(&self, calls: &Calls) -> Written {
        let dead = self.update(|seen| {
            if seen & DEAD != 0 {
                (seen, true)
            } else {
                (seen & !WRITING | KEPT, false)
            }
        });
        if dead {
            self.bury(calls);
            return Written::Dead;
        }
        calls.counters.output_kept.add(1);
        Written::Kept
    }

    /// The connection is lost: it takes no more requests. Every waiting caller gets the loss here,
    /// or from the thread that has the pen. Only the reader calls this: no reply may begin any
    /// more.
    pub(crate) fn die(&self, calls: &Calls) {
        let has_pen = self.update(|seen| match seen & (WRITING | DEAD) {
            0 => (seen & !KEPT | WRITING | DEAD, true),
            _ => (seen | DEAD, false),
        });
        if has_pen {
            self.bury(calls);
        }
    }

    /// Empties the queue, gives every waiting caller its loss, wakes the sleeping ones, and puts
    /// the pen down.
    ///
    /// Only the thread with the pen can: it may have put a request on the wire a moment ago.
    fn bury(&self, calls: &Calls) {
        let mut queue = lock(&self.queue);
        // It may be the last reference to the user's stream: it is dropped without the lock, at the
        // end of all this.
        let _lost = queue.sink.take();
        self.release(queue.unwritten());
        queue.written = 0;
        while let Some(Outgoing { key, bytes }) = queue.waiting.pop_front() {
            *lock(&calls.slot(key).request) = bytes;
            tell_loss(calls, key.index, Loss::Request);
        }
        drop(queue);
        // Nothing is pushed any more.
        let head = self.update(|seen| (seen | HEAD, seen as u32));
        calls.slots.oldest_first(
            head,
            |slot| &slot.queued,
            |index| {
                self.release(lock(&calls.slots.at(index).request).len());
                tell_loss(calls, index, Loss::Request);
            },
        );
        for index in calls.slots.used() {
            tell_loss(calls, index, Loss::Reply);
        }
        self.update(|seen| (seen & !WRITING, ()));
    }

    /// Whether the connection was lost, and every caller in the queue has its outcome.
    pub(crate) fn is_buried(&self) -> bool {
        self.word.load(Ordering::Acquire) & (DEAD | WRITING) == DEAD
    }

    /// There is a new connection. Only after [`is_buried`](Self::is_buried), by one thread.
    pub(crate) fn live_again(&self, sink: Arc<dyn Sink>) {
        debug_assert!(self.is_buried());
        lock(&self.queue).sink = Some(sink);
        self.update(|seen| (seen & !(DEAD | KEPT), ()));
    }

    /// Moves what was pushed into the queue, oldest first. From here on their replies may come.
    fn take_pushed(&self, calls: &Calls, order: &WireOrder, queue: &mut Queue) {
        let head = self.update(|seen| (seen | HEAD, seen as u32));
        let take = |index| {
            let slot = calls.slots.at(index);
            let generation = slot.word.look().generation();
            let key = Key { index, generation };
            match slot.word.begin_write() {
                Ok(()) => {
                    if calls.is_in_order() {
                        order.put(key);
                    }
                    let bytes = mem::take(&mut *lock(&slot.request));
                    queue.waiting.push_back(Outgoing { key, bytes });
                }
                Err(left) => {
                    self.release(lock(&slot.request).len());
                    calls.vacate(index, left);
                }
            }
        };
        calls.slots.oldest_first(head, |slot| &slot.queued, take);
    }

    /// Acquire and Release on every change: links and requests are passed on by it.
    fn update<R>(&self, mut step: impl FnMut(u64) -> (u64, R)) -> R {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let (next, told) = step(seen);
            match self
                .word
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return told,
                Err(newer) => seen = newer,
            }
        }
    }
}

impl Queue {
    fn unwritten(&self) -> usize {
        let all: usize = self.waiting.iter().map(|it| it.bytes.len()).sum();
        all - self.written
    }

    /// One write of as many requests as go into it.
    fn write_some(&self) -> io::Result<usize> {
        let Some(sink) = &self.sink else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut slices = [IoSlice::new(&[]); AT_ONCE];
        let mut count = 0;
        for (slice, outgoing) in slices.iter_mut().zip(&self.waiting) {
            let from = if count == 0 { self.written } else { 0 };
            *slice = IoSlice::new(&outgoing.bytes[from..]);
            count += 1;
        }
        // The user's code, perhaps: its panic must not keep the pen.
        let written = caught(|| sink.write(&slices[..count]));
        match written
            .unwrap_or_else(|panic| Err(io::Error::other(format!("it panicked: {panic}"))))?
        {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    /// So many bytes more are written.
    fn note_written(&mut self, calls: &Calls, count: usize) {
        self.written += count;
        while let Some(first) = self.waiting.front() {
            if self.written < first.bytes.len() {
                return;
            }
            self.written -= first.bytes.len();
            if let Some(Outgoing { key, bytes }) = self.waiting.pop_front() {
                calls.note_written(key, bytes);
            }
        }
    }
}

/// The call in slot `index` loses its request or its reply; its caller learns of it.
fn tell_loss(calls: &Calls, index: u32, loss: Loss) {
    match calls.lose(index, loss) {
        Some(Told::Asleep) => calls.wake(index),
        Some(Told::Awake) => calls.recall(index),
        Some(Told::Nobody(_)) | None => {}
    }
}
