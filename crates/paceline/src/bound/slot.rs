//! Slots: where a call lives, from its registration until no claim to it is left.
//!
//! A slot never moves and is never freed, so a wrong id is always safe to look up. Vacant ones are
//! in a stack without a lock, the one that was used last on top. What a slot holds besides its word
//! are buffers, which are kept for the next call: after the first calls nothing is allocated.

use std::sync::{Arc, OnceLock};

use super::{
    owed::Owed,
    word::{CallWord, Left},
};
use crate::{
    dispatch::Recall,
    sync::{
        atomic::{AtomicU32, AtomicU64, Ordering},
        lock, Mutex, Parker,
    },
};

/// Buffers that have grown beyond this are not kept for the next call.
const KEPT_BUFFER: usize = 64 * 1024;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// In place of a neighbour: the slot is not in the line of sleepers.
pub(super) const NOT_IN_LINE: u32 = NONE - 1;

/// One place for a call.
pub(super) struct Slot {
    pub(super) word: CallWord,
    /// Where its caller sleeps.
    pub(super) parker: Arc<Parker>,
    /// The request: its caller's until it is queued, then the writer's. The lock is never
    /// contended.
    pub(super) request: Mutex<Vec<u8>>,
    /// The reply: the reader's while it is owed, then its caller's. The lock is never contended.
    pub(super) reply: Mutex<Vec<u8>>,
    /// Ids of it that may not be used.
    pub(super) owed: Owed,
    /// How its caller is recalled, if that is a handler of a pool.
    pub(super) recall: Mutex<Option<Recall>>,
    /// The next one in the stack of vacant slots.
    vacant: AtomicU32,
    /// The next one in the queue of requests.
    pub(super) queued: AtomicU32,
    /// Its neighbours in the line of sleepers.
    pub(super) line: Neighbours,
}

/// The links of a slot in the line of sleepers: see `sleepers.rs`.
pub(super) struct Neighbours {
    pub(super) before: AtomicU32,
    pub(super) behind: AtomicU32,
}

impl Slot {
    fn new() -> Self {
        Self {
            word: CallWord::vacant(),
            parker: Arc::new(Parker::new()),
            request: Mutex::new(Vec::new()),
            reply: Mutex::new(Vec::new()),
            owed: Owed::default(),
            recall: Mutex::new(None),
            vacant: AtomicU32::new(NONE),
            queued: AtomicU32::new(NONE),
            line: Neighbours {
                before: AtomicU32::new(NOT_IN_LINE),
                behind: AtomicU32::new(NONE),
            },
        }
    }
}

impl Slot {
    /// Empties the buffers for the next call. No other thread has a claim to them.
    pub(super) fn clear(&self) {
        for buffer in [&self.request, &self.reply] {
            let mut buffer = lock(buffer);
            buffer.clear();
            if buffer.capacity() > KEPT_BUFFER {
                *buffer = Vec::new();
            }
        }
    }
}

/// All slots of a connection: an array that grows by chunks, each twice as large as the one before,
/// and is read without a lock.
pub(super) struct Slots {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// The stack of vacant slots: the topmost in the low half, and in the high half a count of
    /// changes, which distinguishes an old view of the stack from a new one.
    vacant: AtomicU64,
    /// The lowest index that was never used.
    fresh: AtomicU32,
    most: u32,
}

/// The first chunk has `1 << FIRST` slots. Two under loom, which follows every single word.
const FIRST: u32 = if cfg!(loom) { 1 } else { 5 };
const CHUNKS: usize = 16;

/// More calls than this can't be under way at once.
pub(super) const MOST_SLOTS: u32 = 1 << (CHUNKS as u32 + 4);

const ONE_CHANGE: u64 = 1 << 32;

impl Slots {
    /// Room for `most` calls.
    pub(super) fn new(most: u32) -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacant: AtomicU64::new(NONE.into()),
            fresh: AtomicU32::new(0),
            most,
        }
    }

    /// How many there can be.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// The slot at `index`, if there ever was one.
    pub(super) fn get(&self, index: u32) -> Option<&Slot> {
        let (chunk, offset) = position(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// The slot at `index`, which was taken once.
    pub(super) fn at(&self, index: u32) -> &Slot {
        self.get(index).expect("it was taken")
    }

    /// Takes a vacant slot; `None` if all are taken.
    pub(super) fn take(&self) -> Option<u32> {
        self.pop().or_else(|| self.take_fresh())
    }

    /// There is another connection, on which nothing is owed: parked slots are vacant.
    pub(super) fn begin_anew(&self) {
        for index in self.used() {
            if self.get(index).is_some_and(|slot| slot.owed.begin_anew()) {
                self.push(index);
            }
        }
    }

    /// Gives slot `index` back, if that is due.
    pub(super) fn vacate(&self, index: u32, left: Left) {
        if left == Left::Vacant {
            self.push(index);
        }
    }

    /// Every index that was ever used.
    pub(super) fn used(&self) -> std::ops::Range<u32> {
        0..self.fresh.load(Ordering::Acquire).min(self.most)
    }

    /// Goes through a stack whose topmost is `head`, beginning with the slot that was pushed first.
    /// Each may be used otherwise once `give` was called with it.
    pub(super) fn oldest_first(
        &self,
        head: u32,
        link: impl Fn(&Slot) -> &AtomicU32,
        mut give: impl FnMut(u32),
    ) {
        let (mut turned, mut at) = (NONE, head);
        while at != NONE {
            let link = link(self.at(at));
            let next = link.load(Ordering::Relaxed);
            link.store(turned, Ordering::Relaxed);
            (turned, at) = (at, next);
        }
        while turned != NONE {
            let next = link(self.at(turned)).load(Ordering::Relaxed);
            give(turned);
            turned = next;
        }
    }

    fn take_fresh(&self) -> Option<u32> {
        let index = self
            .fresh
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |fresh| {
                (fresh < self.most).then_some(fresh + 1)
            })
            .ok()?;
        let (chunk, _) = position(index);
        self.chunks[chunk].get_or_init(|| {
            (0..1 << (chunk as u32 + FIRST))
                .map(|_| Slot::new())
                .collect()
        });
        Some(index)
    }

    fn push(&self, index: u32) {
        let slot = self.at(index);
        let mut seen = self.vacant.load(Ordering::Relaxed);
        loop {
            slot.vacant.store(seen as u32, Ordering::Relaxed);
            let next = (seen & !u64::from(NONE)).wrapping_add(ONE_CHANGE) | u64::from(index);
            // Release: the thread that pops it sees the link.
            match self
                .vacant
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(newer) => seen = newer,
            }
        }
    }

    fn pop(&self) -> Option<u32> {
        let mut seen = self.vacant.load(Ordering::Acquire);
        loop {
            let index = seen as u32;
            if index == NONE {
                return None;
            }
            // If another thread takes this slot meanwhile, the link is not true any more; then the
            // count has changed too.
            let below = self.at(index).vacant.load(Ordering::Relaxed);
            let next = (seen & !u64::from(NONE)).wrapping_add(ONE_CHANGE) | u64::from(below);
            match self
                .vacant
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(index),
                Err(newer) => seen = newer,
            }
        }
    }
}

/// Which chunk holds `index`, and where.
fn position(index: u32) -> (usize, usize) {
    let shifted = u64::from(index) + (1 << FIRST);
    let chunk = shifted.ilog2() - FIRST;
    (chunk as usize, (shifted - (1 << (chunk + FIRST))) as usize)
}
