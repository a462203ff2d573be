//! The ring of completions, from our side: the kernel fills it, the holder of the lead empties it.
//!
//! ```text
//!        head (ours)                     tail (the kernel's)
//!         |                               |
//!   ... [ 5 ] [ 6 ] [ 7 ] [ 8 ] [ 9 ] ... [   ]
//!         +-- ours to read ---------+     +-- the kernel's to write
//! ```
//!
//! Both words only grow, and wrap. An entry belongs to the kernel again as soon as the head is past
//! it, so it is read before the head moves.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// More completions of the same request will come. (The kernel's name.)
pub(super) const IORING_CQE_F_MORE: u32 = 1 << 1;

/// One place of the ring: the kernel's `io_uring_cqe`, in words that two may look at.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) user_data: AtomicU64,
    pub(super) res: AtomicU32,
    pub(super) flags: AtomicU32,
}

/// What the kernel has reported of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// What the request was submitted with.
    pub(super) key: u64,
    /// What is ready; below zero, an error.
    pub(super) result: i32,
    pub(super) goes_on: GoesOn,
}

/// Whether the request stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoesOn {
    /// It will report the next edge too.
    Yes,
    /// This was its last word.
    No,
}

/// The ring: two words, and a power of two of entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completions<'r> {
    pub(super) head: &'r AtomicU32,
    pub(super) tail: &'r AtomicU32,
    pub(super) entries: &'r [Entry],
}

impl Completions<'_> {
    /// Passes on everything that is there. Only the holder of the lead calls this.
    pub(super) fn take_all(&self, mut tell: impl FnMut(Completion)) {
        // Pairs with the kernel's store of the tail: what is before it was written before it.
        let tail = self.tail.load(Ordering::Acquire);
        // Only this process stores it; the last thread that did passed the lead to this one.
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            let at = head as usize & (self.entries.len() - 1);
            tell(self.entries[at].read());
            head = head.wrapping_add(1);
        }
        // Pairs with the kernel's load of the head: it writes an entry again only after we have
        // read it.
        self.head.store(head, Ordering::Release);
    }
}

impl Entry {
    fn read(&self) -> Completion {
        // The tail orders these loads.
        let flags = self.flags.load(Ordering::Relaxed);
        Completion {
            key: self.user_data.load(Ordering::Relaxed),
            result: self.res.load(Ordering::Relaxed) as i32,
            goes_on: match flags & IORING_CQE_F_MORE {
                0 => GoesOn::No,
                _ => GoesOn::Yes,
            },
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use super::*;
    use crate::sync::{explore, thread};

    /// The memory that is shared, with two entries.
    struct Memory {
        head: AtomicU32,
        tail: AtomicU32,
        entries: [Entry; 2],
    }

    impl Memory {
        /// Both words are about to wrap.
        fn new() -> Self {
            let entry = || Entry {
                user_data: AtomicU64::new(0),
                res: AtomicU32::new(0),
                flags: AtomicU32::new(0),
            };
            Self {
                head: AtomicU32::new(u32::MAX),
                tail: AtomicU32::new(u32::MAX),
                entries: [entry(), entry()],
            }
        }

        fn ours(&self) -> Completions<'_> {
            Completions {
                head: &self.head,
                tail: &self.tail,
                entries: &self.entries,
            }
        }

        /// The kernel's side: one more completion, if there is room.
        fn post(&self, number: u32) -> bool {
            let tail = self.tail.load(Ordering::Relaxed);
            if tail.wrapping_sub(self.head.load(Ordering::Acquire)) == 2 {
                return false;
            }
            let entry = &self.entries[tail as usize & 1];
            entry.user_data.store(number.into(), Ordering::Relaxed);
            entry.res.store(number, Ordering::Relaxed);
            entry.flags.store(IORING_CQE_F_MORE, Ordering::Relaxed);
            self.tail.store(tail.wrapping_add(1), Ordering::Release);
            true
        }
    }

    /// The kernel posts three completions into two places while they are taken: each is reported
    /// once, in order, and whole.
    #[test]
    fn loom_ring_each_completion_once_and_whole() {
        explore(|| {
            let memory = Arc::new(Memory::new());
            let kernel = Arc::clone(&memory);
            let kernel = thread::spawn(move || {
                for number in 1..=3 {
                    while !kernel.post(number) {
                        thread::yield_now();
                    }
                }
            });
            let mut told = Vec::new();
            while told.len() < 3 {
                let before = told.len();
                memory.ours().take_all(|completion| told.push(completion));
                if told.len() == before {
                    thread::yield_now();
                }
            }
            kernel.join().unwrap();
            let whole = |number| Completion {
                key: number as u64,
                result: number,
                goes_on: GoesOn::Yes,
            };
            assert_eq!(told, [1, 2, 3].map(whole));
        });
    }
}
