//! Slots: where a registration lives, and the proof that one thread owns it.
//!
//! A slot never moves and is never freed, so a stale key is always safe to look up. It is reused
//! for the next registration with the next generation.

use std::sync::OnceLock;

use super::{
    entry::Entry,
    handle::Key,
    mailboxes::Affinity,
    owner::{Attempt, Owner, Rest, Signal},
    readiness::Readiness,
    return_list::{Link, ReturnList},
};
use crate::{
    sync::{
        atomic::{AtomicU64, Ordering},
        lock, Mutex, Timestamp, UnsafeCell,
    },
    timer::Times,
};

const NO_GROUP: u64 = u64::MAX;

/// One place for a registration.
pub(super) struct Slot {
    pub(super) readiness: Readiness,
    owner: Owner,
    pub(super) link: Link,
    /// Of a group: members that wait for it.
    pub(super) waiting: ReturnList,
    /// The group that it is a member of, as the bits of its key, or [`NO_GROUP`].
    group: AtomicU64,
    /// Its deadline and its idle time-out, or of a timer its next call.
    pub(super) times: Times,
    users: Users,
    /// How long it waited in the line, if that was too long, in nanoseconds. It orders nothing.
    pub(super) age: std::sync::atomic::AtomicU64,
    /// Its rank in a line that is ordered by that. It orders no memory.
    pub(super) priority: std::sync::atomic::AtomicU8,
    /// Which threads may call its handler; `None` is the default: any thread, one at a time. Boxed
    /// because others are rare, and each idle connection takes a whole slot.
    pub(super) affinity: Mutex<Option<Box<Affinity>>>,
    /// Whether it belongs to certain threads: then the leader checks which. It orders nothing.
    pub(super) has_affinity: std::sync::atomic::AtomicBool,
    /// Source and handler; `None` while vacant. Only the owner touches it.
    entry: UnsafeCell<Option<Box<dyn Entry>>>,
}

// SAFETY: `entry` is reached only through `Owned`, which exists only while the owner word is BUSY
// or AGAIN on behalf of its holder (H1, see `owner.rs`); the word's read-modify-writes order one
// owner's accesses before the next one's. An entry is `Send`.
unsafe impl Sync for Slot {}

impl Slot {
    fn vacant() -> Self {
        Self {
            readiness: Readiness::new(),
            owner: Owner::busy(),
            link: Link::new(),
            waiting: ReturnList::new(),
            group: AtomicU64::new(NO_GROUP),
            times: Times::new(),
            users: Users::default(),
            age: Default::default(),
            priority: Default::default(),
            affinity: Mutex::default(),
            has_affinity: Default::default(),
            entry: UnsafeCell::new(None),
        }
    }

    /// Whether it belongs to certain threads.
    pub(super) fn has_affinity(&self) -> bool {
        self.has_affinity.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// It belongs to no particular thread any more; its key is stale.
    pub(super) fn leave_affinity(&self) {
        let mut affinity = lock(&self.affinity);
        *affinity = None;
        self.has_affinity
            .store(false, std::sync::atomic::Ordering::Relaxed);
    }

    /// There is a reason to visit: see [`Owner::signal`].
    pub(super) fn signal(&self) -> Signal {
        self.owner.signal()
    }

    /// The group that it is a member of, if it is.
    pub(super) fn group(&self) -> Option<Key> {
        // Acquire, with the Release of `set_group`: a thread that sees the group sees what was put
        // into it before.
        match self.group.load(Ordering::Acquire) {
            NO_GROUP => None,
            bits => Some(Key::from_bits(bits)),
        }
    }

    /// It is a member of this group from now on.
    pub(super) fn set_group(&self, group: Key) {
        self.group.store(group.to_bits(), Ordering::Release);
    }

    /// A thread uses this registration without owning it, until the returned value is dropped.
    pub(super) fn user(&self, generation: u32) -> User<'_> {
        self.users.change(generation, |count| count + 1);
        User {
            users: &self.users,
            generation,
        }
    }

    /// Whether no thread has it, and it waits for none.
    pub(super) fn is_idle(&self) -> bool {
        self.owner.is_idle()
    }

    /// Owns it, which has this index and was taken off a list; `None` if a sweep was there first.
    pub(super) fn claim(&self, index: u32) -> Option<Owned<'_>> {
        let slot = self;
        slot.owner.claim().then_some(Owned { slot, index })
    }

    /// Since when nothing has happened there; `None` while something does, or may not.
    pub(super) fn idle_since(&self) -> Option<Timestamp> {
        let is_suspended = self.readiness.look().is_suspended();
        let idle = self.is_idle() && !self.is_shared() && !is_suspended;
        idle.then(|| self.times.used())
    }

    /// Whether threads use it without owning it.
    pub(super) fn is_shared(&self) -> bool {
        self.users.of(self.readiness.look().generation()) > 0
    }
}

/// How many threads use a registration without owning it: of a concurrent handle. The low half
/// counts, the high half is of the generation: a user of a registration that is over does not count
/// for the slot's next one. It orders nothing.
#[derive(Debug, Default)]
struct Users(std::sync::atomic::AtomicU32);

impl Users {
    fn of(&self, generation: u32) -> u32 {
        let word = self.0.load(std::sync::atomic::Ordering::Relaxed);
        if word >> 16 == generation & 0xFFFF {
            word & 0xFFFF
        } else {
            0
        }
    }

    fn change(&self, generation: u32, change: impl Fn(u32) -> u32) {
        use std::sync::atomic::Ordering::Relaxed;
        let next = |word: u32| {
            let current = word >> 16 == generation & 0xFFFF;
            let count = change(if current { word & 0xFFFF } else { 0 });
            Some(generation << 16 | count & 0xFFFF)
        };
        let _ = self.0.fetch_update(Relaxed, Relaxed, next);
    }
}

/// A thread that uses a registration.
pub(super) struct User<'s> {
    users: &'s Users,
    generation: u32,
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        if self.users.of(self.generation) > 0 {
            self.users
                .change(self.generation, |count| count.saturating_sub(1));
        }
    }
}

/// A slot that this thread owns. All ways out consume it.
pub(super) struct Owned<'s> {
    slot: &'s Slot,
    index: u32,
}

impl<'s> Owned<'s> {
    /// Which registration this is.
    pub(super) fn key(&self) -> Key {
        Key {
            index: self.index,
            generation: self.slot.readiness.look().generation(),
        }
    }

    pub(super) fn readiness(&self) -> &'s Readiness {
        &self.slot.readiness
    }

    pub(super) fn slot(&self) -> &'s Slot {
        self.slot
    }

    /// It is a member of no group any more.
    pub(super) fn leave_group(&self) {
        if self.slot.group().is_some() {
            self.slot.group.store(NO_GROUP, Ordering::Release);
        }
    }

    pub(super) fn times(&self) -> &'s Times {
        &self.slot.times
    }

    /// It was used until now.
    pub(super) fn note_use(&self, now: Timestamp) {
        if self.slot.times.counts_idle() {
            self.slot.times.note_use(now);
        }
    }

    pub(super) fn with_entry<R>(
        &mut self,
        using: impl FnOnce(&mut Option<Box<dyn Entry>>) -> R,
    ) -> R {
        self.slot.entry.with_mut(|entry| {
            // SAFETY: this is the one `Owned` of the slot, borrowed exclusively; slots live as long
            // as their table, which `'s` borrows.
            using(unsafe { &mut *entry })
        })
    }

    /// Lets go, unless a signal came: then it is still owned.
    pub(super) fn rest(self) -> Result<(), Self> {
        match self.slot.owner.rest() {
            Rest::Idle => Ok(()),
            Rest::LookAgain => Err(self),
        }
    }

    /// Lets go and asks for another visit; the caller puts the index into a list.
    pub(super) fn requeue(self) -> u32 {
        self.slot.owner.requeue();
        self.index
    }
}

/// All slots of a pool: an array that grows by chunks and is read without a lock.
///
/// Eight chunks of one size double the array, and the next eight are twice as large. So of a table
/// that has just grown about an eighth is vacant.
pub(super) struct SlotTable {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    free: Mutex<FreeList>,
}

/// The first doubling makes `1 << FIRST` slots. Two under loom, which follows every single word.
const FIRST: u32 = if cfg!(loom) { 1 } else { 6 };
/// A doubling takes `1 << PARTS` chunks. One under loom.
const PARTS: u32 = if cfg!(loom) { 0 } else { 3 };
const DOUBLINGS: usize = 22;
const CHUNKS: usize = DOUBLINGS << PARTS;

/// More registrations than this at a time can't be held.
const MOST_SLOTS: u32 = ((1 << DOUBLINGS) - 1) << FIRST;

#[derive(Debug, Default)]
struct FreeList {
    vacated: Vec<u32>,
    /// The lowest index that was never used.
    fresh: u32,
}

impl SlotTable {
    pub(super) fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::new(FreeList::default()),
        }
    }

    /// The slot at `index`, if there ever was one.
    pub(super) fn get(&self, index: u32) -> Option<&Slot> {
        let (chunk, offset) = position(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Takes a vacant slot from the free list; `None` if all are taken.
    pub(super) fn take_vacant(&self) -> Option<Owned<'_>> {
        let mut free = lock(&self.free);
        let index = match free.vacated.pop() {
            Some(index) => index,
            None if free.fresh < MOST_SLOTS => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return None,
        };
        // Under the lock, so that a thread that sees the index used (`iter`) finds its slot.
        let slot = self.grown_to(index);
        Some(Owned { slot, index })
    }

    /// Gives an emptied slot, whose key is stale, back to the free list, which owns it from now on.
    pub(super) fn vacate(&self, owned: Owned<'_>) {
        lock(&self.free).vacated.push(owned.index);
    }

    /// Owns the slot at `index`, which was taken off a list; `None` if a sweep was there first.
    pub(super) fn claim(&self, index: u32) -> Option<Owned<'_>> {
        self.get(index)?.claim(index)
    }

    /// Owns the slot at `index` if it is idle; else its owner will look again.
    pub(super) fn try_own(&self, index: u32) -> Option<Owned<'_>> {
        self.owned_by(index, Owner::try_own)
    }

    /// Owns the slot at `index` if it is idle or in a list; see [`Owner::sweep`].
    pub(super) fn sweep(&self, index: u32) -> Option<Owned<'_>> {
        self.owned_by(index, Owner::sweep)
    }

    /// Every slot that was ever used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let fresh = lock(&self.free).fresh;
        (0..fresh).filter_map(|index| Some((index, self.get(index)?)))
    }

    fn owned_by(&self, index: u32, attempt: impl Fn(&Owner) -> Attempt) -> Option<Owned<'_>> {
        let slot = self.get(index)?;
        match attempt(&slot.owner) {
            Attempt::Owned => Some(Owned { slot, index }),
            Attempt::Noted => None,
        }
    }

    fn grown_to(&self, index: u32) -> &Slot {
        let (chunk, offset) = position(index);
        let chunk = self.chunks[chunk].get_or_init(|| {
            let doubling = chunk as u32 >> PARTS;
            (0..1_usize << (doubling + FIRST - PARTS))
                .map(|_| Slot::vacant())
                .collect()
        });
        &chunk[offset]
    }
}

/// Which chunk holds `index`, and where.
fn position(index: u32) -> (usize, usize) {
    let shifted = u64::from(index) + (1 << FIRST);
    let doubling = shifted.ilog2() - FIRST;
    // The highest bit is the doubling, the next ones are the chunk in it, and the others the place in that.
    let width = doubling + FIRST - PARTS;
    let part = (shifted >> width) - (1 << PARTS);
    let chunk = (u64::from(doubling) << PARTS) + part;
    (chunk as usize, (shifted & ((1 << width) - 1)) as usize)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// There is no slot behind the last one of the last chunk: a registration that would need it is
    /// refused.
    #[test]
    fn full_table_refuses() {
        let last = (1 << (DOUBLINGS as u32 - 1 + FIRST - PARTS)) - 1;
        assert_eq!(position(MOST_SLOTS - 1), (CHUNKS - 1, last));
        let table = SlotTable::new();
        lock(&table.free).fresh = MOST_SLOTS;
        assert!(table.take_vacant().is_none());
    }

    /// A user of a registration counts for that one, and not for the next one in its slot; nor does
    /// it when it leaves.
    #[test]
    fn users_are_of_a_registration() {
        let slot = Slot::vacant();
        let first = slot.user(7);
        assert_eq!((slot.users.of(7), slot.users.of(8)), (1, 0));
        let (second, third) = (slot.user(8), slot.user(8));
        drop(first);
        assert_eq!(slot.users.of(8), 2);
        drop((second, third));
        assert_eq!(slot.users.of(8), 0);
    }

    /// Indices fill each chunk from its start to its end, then the next.
    #[test]
    fn chunks_are_filled_in_order() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            let (chunk, offset) = position(index);
            if expected.1 > 0 && chunk != expected.0 {
                expected = (expected.0 + 1, 0);
            }
            assert_eq!((chunk, offset), expected, "{index}");
            expected.1 += 1;
        }
        assert_eq!((position(7), position(8)), ((0, 7), (1, 0)));
        assert_eq!((position(63), position(64)), ((7, 7), (8, 0)));
        assert_eq!((position(191), position(192)), ((15, 15), (16, 0)));
    }

    /// Each chunk was as large as all chunks before it: at 10,000 connections two of five slots were vacant. Now it is about
    /// an eighth of them.
    #[test]
    fn little_of_the_table_is_vacant() {
        let table = SlotTable::new();
        let mut slots = 0;
        for index in 0..20_000 {
            if index == slots {
                let (chunk, offset) = position(index);
                assert_eq!(offset, 0, "{index}");
                table.grown_to(index);
                let more = table.chunks[chunk].get().map_or(0, |chunk| chunk.len());
                assert!(more <= (slots as usize + 64) / 8, "{more} beside {slots}");
                slots += more as u32;
            }
            assert!(table.get(index).is_some(), "{index}");
        }
    }
}
