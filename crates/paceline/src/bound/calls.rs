//! The calls that are under way: their slots, their ids, and the outcome each caller gets.
//!
//! An **id** on the wire is a slot's index and its generation. The index alone makes the ids of
//! live calls differ, however often they wrap; the generation separates a call from earlier calls
//! in the same slot.

use std::{io, mem};

use super::{
    counters::Counters,
    owed::Settled,
    protocol::Protocol,
    slot::{Slot, Slots, MOST_SLOTS, NONE},
    word::{Begun, Left, Loss, Phase, Told},
};
use crate::sync::lock;

/// Which call: a slot, and which of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Key {
    /// No call at all.
    pub(super) const NOBODY: Self = Self {
        index: NONE,
        generation: 0,
    };
}

/// Whose reply begins.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A call that waits for it. What its caller does.
    Call(Key, Phase),
    /// It belongs to no call, and is counted.
    Nobody,
}

/// The table of calls.
pub(crate) struct Calls {
    pub(super) slots: Slots,
    pub(super) counters: Counters,
    /// How many bits of an id are the slot's index.
    index_bits: u32,
    /// The generation is within this.
    generation_mask: u32,
    /// Replies come in order, so a call that was forgotten must keep its place until its reply has
    /// come.
    in_order: bool,
}

impl Calls {
    /// For ids of `id_bits`, and `most` calls at once.
    ///
    /// # Errors
    /// So many calls have no ids of so few bits.
    pub(crate) fn new(id_bits: u32, most: u32) -> io::Result<Self> {
        let index_bits = u32::BITS - most.saturating_sub(1).leading_zeros();
        let in_order = id_bits == 0;
        // A bit at least, so that a doubled reply is not taken for the next one.
        let possible = if in_order {
            MOST_SLOTS
        } else {
            1_u32
                .checked_shl(id_bits - 1)
                .map_or(MOST_SLOTS, |ids| ids.min(MOST_SLOTS))
        };
        if most == 0 || most > possible {
            let text = format!(
                "have {most} calls at once: with ids of {id_bits} bits 1 to {possible} are \
                 possible (`Builder::calls`)"
            );
            return Err(invalid(&text));
        }
        let generation_bits = if in_order {
            32
        } else {
            (id_bits - index_bits).min(32)
        };
        Ok(Self {
            slots: Slots::new(most),
            counters: Counters::default(),
            index_bits,
            generation_mask: u32::MAX >> (32 - generation_bits),
            in_order,
        })
    }

    /// How many can be under way at once.
    pub(super) fn most(&self) -> u32 {
        self.slots.most()
    }

    pub(super) fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Encodes the request of a call into its slot. Its length.
    ///
    /// # Errors
    /// What the protocol said; or it wrote nothing.
    pub(crate) fn encode<P: Protocol>(
        &self,
        key: Key,
        protocol: &P,
        request: &P::Request,
    ) -> io::Result<usize> {
        let mut buffer = lock(&self.slot(key).request);
        buffer.clear();
        protocol.encode(request, self.id(key), &mut buffer)?;
        match buffer.len() {
            0 => Err(invalid("send a request of no bytes")),
            length => Ok(length),
        }
    }

    /// Registers a call; `None` if there is no room.
    pub(crate) fn register(&self) -> Option<Key> {
        while let Some(index) = self.slots.take() {
            let slot = self.slots.at(index);
            let last = slot.word.look().generation();
            if let Some(generation) = slot.owed.next_or_park(last, self.generation_mask) {
                slot.word.register(generation);
                return Some(Key { index, generation });
            }
        }
        self.reclaim()
    }

    /// Takes the slot of a call that was forgotten, and whose reply does not come. Where replies
    /// come in order it does, or none of those behind it.
    #[cold]
    fn reclaim(&self) -> Option<Key> {
        self.slots.used().find_map(|index| {
            let slot = self.slots.get(index)?;
            let (word, mask) = (&slot.word, self.generation_mask);
            let generation = slot.owed.reclaim(word, self.in_order, mask)?;
            // A reply that came too late, or was read and put back.
            slot.clear();
            Some(Key { index, generation })
        })
    }

    /// There is another connection: what was owed on the old one never comes.
    pub(super) fn begin_anew(&self) {
        self.slots.begin_anew();
    }

    /// Its id on the wire.
    pub(crate) fn id(&self, key: Key) -> u64 {
        if self.in_order {
            0
        } else {
            u64::from(key.generation) << self.index_bits | u64::from(key.index)
        }
    }

    /// The slot of a call that is under way.
    pub(super) fn slot(&self, key: Key) -> &Slot {
        self.slots.at(key.index)
    }

    /// The reply with this id begins.
    pub(super) fn begin_reply(&self, id: u64) -> Found {
        let index = (id & ((1 << self.index_bits) - 1)) as u32;
        let generation = u32::try_from(id >> self.index_bits);
        match generation.ok().zip(self.slots.get(index)) {
            Some((generation, _)) => self.begin_reply_of(Key { index, generation }),
            None => self.unknown_reply(),
        }
    }

    /// A reply that no call asked for.
    pub(super) fn unknown_reply(&self) -> Found {
        self.counters.unknown_replies.add(1);
        Found::Nobody
    }

    /// The reply of this call begins.
    pub(super) fn begin_reply_of(&self, key: Key) -> Found {
        match self.slot(key).word.begin_reply(key.generation) {
            Begun::For(phase) => return Found::Call(key, phase),
            Begun::Late(left) => {
                self.counters.late_replies.add(1);
                self.vacate(key.index, left);
            }
            Begun::Unexpected => self.settle(key),
        }
        Found::Nobody
    }

    /// The reply of a call begins that gave way to another one, or is over, or never was.
    #[cold]
    fn settle(&self, key: Key) {
        match self.slot(key).owed.settle(key.generation) {
            Settled::Late => self.counters.late_replies.add(1),
            Settled::LateInParked => {
                self.counters.late_replies.add(1);
                self.slots.vacate(key.index, Left::Vacant);
            }
            Settled::NotOwed if self.was_under_way(key) => self.counters.doubled_replies.add(1),
            Settled::NotOwed => self.counters.unknown_replies.add(1),
        }
    }

    /// Whether there was such a call, and it is over. The older half of the generations is
    /// forgotten.
    fn was_under_way(&self, key: Key) -> bool {
        let word = self.slot(key).word.look();
        let age = word.generation().wrapping_sub(key.generation) & self.generation_mask;
        let known = key.generation <= self.generation_mask && age <= self.generation_mask / 2;
        known && self.slots.used().contains(&key.index) && !(age == 0 && word.is_unsent())
    }

    /// The last byte of a request is written; its memory goes back.
    pub(super) fn note_written(&self, key: Key, request: Vec<u8>) {
        let slot = self.slot(key);
        *lock(&slot.request) = request;
        self.vacate(key.index, slot.word.end_write());
    }

    /// Adds to the reply of a call.
    pub(super) fn append(&self, key: Key, bytes: &[u8]) {
        lock(&self.slot(key).reply).extend_from_slice(bytes);
    }

    /// The reply that has begun is whole. On [`Told::Asleep`], wake its caller.
    pub(super) fn complete(&self, key: Key) -> Told {
        let told = self.slot(key).word.complete();
        match told {
            Told::Awake | Told::Asleep => self.counters.replies.add(1),
            Told::Nobody(left) => {
                self.counters.late_replies.add(1);
                self.vacate(key.index, left);
            }
        }
        told
    }

    /// The call in slot `index` loses its request or its reply, if it has one. On [`Told::Asleep`],
    /// wake its caller.
    pub(super) fn lose(&self, index: u32, loss: Loss) -> Option<Told> {
        let told = self.slots.at(index).word.lose(loss);
        if let Some(Told::Nobody(left)) = told {
            self.vacate(index, left);
        }
        told
    }

    /// No thread holds the call any more.
    pub(crate) fn forget(&self, key: Key) {
        let left = self.slot(key).word.forget();
        self.vacate(key.index, left);
    }

    /// Gives a slot back, if no claim to it is left.
    pub(super) fn vacate(&self, index: u32, left: Left) {
        if left == Left::Vacant {
            self.slots.at(index).clear();
        }
        self.slots.vacate(index, left);
    }

    /// How many calls are held by a caller, how many forgotten calls keep a place, how many callers
    /// sleep.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let used = self.slots.used();
        let slots = used.filter_map(|index| self.slots.get(index));
        slots.fold((0, 0, 0), |(owned, forgotten, asleep), slot| {
            let word = slot.word.look();
            let keeps = word.is_claimed() && !word.has_owner() || slot.owed.is_parked();
            (
                owned + usize::from(word.has_owner()),
                forgotten + usize::from(keeps),
                asleep + usize::from(word.is_claimed() && word.phase().is_asleep()),
            )
        })
    }

    /// Takes the reply of a call whose word says that it is there.
    pub(super) fn take_reply(&self, key: Key) -> Vec<u8> {
        mem::take(&mut *lock(&self.slot(key).reply))
    }

    /// Gives the memory of a reply back to its slot.
    pub(super) fn put_back_reply(&self, key: Key, reply: Vec<u8>) {
        *lock(&self.slot(key).reply) = reply;
    }

    /// Makes the caller in slot `index` check its word, if that caller is a handler that serves its
    /// pool.
    pub(super) fn recall(&self, index: u32) {
        let recall = lock(&self.slots.at(index).recall).clone();
        if let Some(recall) = recall {
            recall.now();
            self.counters.recalls.add(1);
        }
    }

    /// The same for all of them.
    pub(super) fn recall_all(&self) {
        self.slots.used().for_each(|index| self.recall(index));
    }

    /// Wakes the caller in slot `index`, whose word changed while it slept.
    pub(super) fn wake(&self, index: u32) {
        let parker = &self.slots.at(index).parker;
        parker.post(1);
        parker.wake();
        self.counters.wakes.add(1);
    }
}

fn invalid(attempted: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, attempted)
}
