//! A bounded queue without a lock: many put in, and the owner of the queue's registration takes
//! out.
//!
//! Every cell has a **word**, which says for which position it is ready, and how far that has come.
//! Position `p` lives in cell `p % capacity`:
//!
//! ```text
//!  FREE(p)  --> FULL(p)           [push]     by the one thread that moved the tail from p to p + 1
//!  FULL(p)  --> TAKEN(p)          [redeem]   by one thread
//!  TAKEN(p) --> FREE(p + capacity)           by the same, when it has the item
//! ```
//!
//! The **tail** is the next position to be put in, with SHUT as its highest bit: of a push and the
//! end the second one sees the first. The **head** is the next position to be claimed. A position
//! between the two counts, also while its item is being put in.
//!
//! `unsafe`, because an item lies in a cell that only its word guards.

use crate::{
    dispatch::{Shut, Store, Ticket},
    sync::{
        atomic::{AtomicU64, Ordering},
        UnsafeCell,
    },
    unwind::caught,
};

/// The tail moves no more.
const SHUT: u64 = 1 << 63;

const fn free(position: u64) -> u64 {
    position << 2
}

const fn full(position: u64) -> u64 {
    position << 2 | 1
}

const fn taken(position: u64) -> u64 {
    position << 2 | 2
}

/// Why an item was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Shut,
}

pub(super) struct Cells<T> {
    tail: Line,
    head: Line,
    cells: Box<[Cell<T>]>,
}

/// A number with a cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

struct Cell<T> {
    word: AtomicU64,
    item: UnsafeCell<Option<T>>,
}

// SAFETY: an item is touched only by the thread that moved the tail past its position, until it
// makes the word FULL, and then by the thread that made that TAKEN. The word's Release and Acquire
// order the one before the other. So items only go from thread to thread.
unsafe impl<T: Send> Sync for Cells<T> {}

impl<T> Cells<T> {
    /// `None`: there is not so much memory. At least one.
    pub(super) fn new(capacity: usize) -> Option<Self> {
        let mut cells = Vec::new();
        cells.try_reserve_exact(capacity).ok()?;
        cells.extend((0..capacity as u64).map(|position| Cell {
            word: AtomicU64::new(free(position)),
            item: UnsafeCell::new(None),
        }));
        Some(Self {
            tail: Line(AtomicU64::new(0)),
            head: Line(AtomicU64::new(0)),
            cells: cells.into_boxed_slice(),
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// Puts an item in, unless it is full or shut. On `Ok`, the caller must notify the handler.
    pub(super) fn push(&self, item: T) -> Result<(), (T, Refusal)> {
        let tail = &self.tail.0;
        let mut seen = tail.load(Ordering::Relaxed);
        loop {
            if seen & SHUT != 0 {
                return Err((item, Refusal::Shut));
            }
            let cell = self.cell(seen);
            // Acquire: pairs with the Release in `redeem`. A thread that finds the cell free sees
            // it emptied.
            let word = cell.word.load(Ordering::Acquire);
            if word == free(seen) {
                match tail.compare_exchange_weak(
                    seen,
                    seen + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        cell.put(item, seen);
                        return Ok(());
                    }
                    Err(newer) => seen = newer,
                }
                continue;
            }
            let newer = tail.load(Ordering::Relaxed);
            // The item of the round before is still there.
            if newer == seen {
                return Err((item, Refusal::Full));
            }
            seen = newer;
        }
    }

    fn cell(&self, position: u64) -> &Cell<T> {
        &self.cells[(position % self.cells.len() as u64) as usize]
    }
}

impl<T> Drop for Cells<T> {
    /// The end of the queue does not find an item that is still being put in, nor those behind it:
    /// the last owner drops them. It moves them out of their cells, because the checkers do not see
    /// that the counter of the last owner's `Arc` orders earlier uses of the cells before this one.
    fn drop(&mut self) {
        for cell in std::mem::take(&mut self.cells).into_vec() {
            let item = cell.item.into_inner();
            let _ = caught(|| drop(item));
        }
    }
}

impl<T> Cell<T> {
    /// The caller has moved the tail past `position`, and found this cell free for it.
    fn put(&self, item: T, position: u64) {
        self.item.with_mut(|place| {
            // SAFETY: the word says FREE for this position, and no other thread moves the tail from
            // it: until the word changes, which this thread does, the cell is this thread's. It
            // lives as long as the borrowed queue.
            unsafe { *place = Some(item) };
        });
        // Release: pairs with the Acquire in `claim` and `redeem`.
        self.word.store(full(position), Ordering::Release);
    }
}

impl<T: Send + 'static> Store for Cells<T> {
    type Item = T;

    fn claim(&self) -> Option<Ticket> {
        // Only owners of the registration move the head, one after the other: the owner word orders
        // them.
        let head = self.head.0.load(Ordering::Relaxed);
        if self.cell(head).word.load(Ordering::Acquire) != full(head) {
            return None;
        }
        self.head.0.store(head + 1, Ordering::Relaxed);
        Some(Ticket(head))
    }

    fn redeem(&self, Ticket(position): Ticket) -> Option<T> {
        let cell = self.cell(position);
        // Acquire: pairs with the Release in `put`.
        cell.word
            .compare_exchange(
                full(position),
                taken(position),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .ok()?;
        let item = cell.item.with_mut(|place| {
            // SAFETY: this thread made the word TAKEN, which no other can do for this position, and
            // no thread puts anything in before it is FREE, which this thread makes it below.
            unsafe { (*place).take() }
        });
        let next = position + self.cells.len() as u64;
        // Release: pairs with the Acquire in `push`.
        cell.word.store(free(next), Ordering::Release);
        item
    }

    fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Acquire) & !SHUT;
        tail.saturating_sub(head) as usize
    }

    fn shut(&self) {
        self.tail.0.fetch_or(SHUT, Ordering::AcqRel);
    }

    fn shut_if_empty(&self) -> Shut {
        let head = self.head.0.load(Ordering::Relaxed);
        let shut = head | SHUT;
        match self
            .tail
            .0
            .compare_exchange(head, shut, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Shut::Shut,
            Err(tail) if tail == shut => Shut::Shut,
            Err(_) => Shut::NotYet,
        }
    }

    fn is_over(&self) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        self.tail.0.load(Ordering::Acquire) == head | SHUT
    }

    fn discard(&self) -> Result<(), String> {
        let mut told = Ok(());
        while let Some(ticket) = self.claim() {
            let dropped = caught(|| drop(self.redeem(ticket)));
            told = told.and(dropped);
        }
        told
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        Arc,
    };

    use super::*;

    struct Grenade(Arc<AtomicUsize>);

    impl Drop for Grenade {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            panic!("drop fails");
        }
    }

    /// At the end of a queue an item may still be on its way in. What lies behind it stays in the
    /// cells then, and the last owner of the queue drops it, with a panic for each, wherever that
    /// is.
    #[test]
    fn what_the_end_did_not_find_is_dropped_with_the_cells() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let cells = Cells::new(4).unwrap();
        // A sender has moved the tail, and has put nothing in yet.
        cells.tail.0.fetch_add(1, Ordering::AcqRel);
        for _ in 0..2 {
            assert!(cells.push(Grenade(Arc::clone(&dropped))).is_ok());
        }
        cells.shut();
        assert_eq!((cells.discard(), cells.len()), (Ok(()), 3));
        drop(cells);
        assert_eq!(dropped.load(SeqCst), 2);
    }
}
