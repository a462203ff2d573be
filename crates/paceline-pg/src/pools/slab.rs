//! Entries in reused slots. An id is a slot and its generation, so the id of a removed entry finds
//! nothing.

use std::ops::{Index, IndexMut};

/// A slot without an entry, and the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// An id that a caller holds.
macro_rules! id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub(super) slot: u32,
            pub(super) generation: u32,
        }

        impl From<(u32, u32)> for $name {
            fn from((slot, generation): (u32, u32)) -> Self {
                Self { slot, generation }
            }
        }

        impl From<$name> for (u32, u32) {
            fn from(id: $name) -> Self {
                (id.slot, id.generation)
            }
        }
    };
}

id! {
    /// A database that clients may name.
    DatabaseId
}
id! {
    /// A user with limits.
    UserId
}
id! {
    /// The servers of one database and one user.
    PoolId
}
id! {
    /// A client, from its login to its end.
    ClientId
}
id! {
    /// A connection to a server, from the order to open it on.
    ServerId
}
id! {
    /// A request to cancel a client's query.
    CancelId
}

#[derive(Debug)]
struct Slot<V> {
    generation: u32,
    content: Content<V>,
}

#[derive(Debug)]
enum Content<V> {
    Full(V),
    /// The next free slot.
    Free(u32),
}

/// Entries by their slots.
#[derive(Debug)]
pub(super) struct Slab<V> {
    slots: Vec<Slot<V>>,
    /// The first free slot.
    free: u32,
    len: usize,
}

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            len: 0,
        }
    }
}

impl<V> Slab<V> {
    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts an entry into a free slot.
    pub(super) fn insert(&mut self, value: V) -> u32 {
        self.len += 1;
        if self.free == NONE {
            let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 entries");
            let content = Content::Full(value);
            self.slots.push(Slot {
                generation: 0,
                content,
            });
            return slot;
        }
        let slot = self.free;
        let free = &mut self.slots[slot as usize];
        if let Content::Free(next) = free.content {
            self.free = next;
        }
        free.content = Content::Full(value);
        slot
    }

    /// Takes the entry out: its ids find nothing from now on.
    pub(super) fn remove(&mut self, slot: u32) -> V {
        let full = &mut self.slots[slot as usize];
        let content = std::mem::replace(&mut full.content, Content::Free(self.free));
        full.generation = full.generation.wrapping_add(1);
        self.free = slot;
        self.len -= 1;
        match content {
            Content::Full(value) => value,
            Content::Free(_) => unreachable!("slot {slot} has no entry"),
        }
    }

    /// The id of the entry in this slot.
    pub(super) fn id<I: From<(u32, u32)>>(&self, slot: u32) -> I {
        I::from((slot, self.slots[slot as usize].generation))
    }

    /// The slot of this id, if its entry is still there.
    pub(super) fn find<I: Into<(u32, u32)>>(&self, id: I) -> Option<u32> {
        let (slot, generation) = id.into();
        let found = self.slots.get(slot as usize)?;
        let is_there = found.generation == generation && matches!(found.content, Content::Full(_));
        is_there.then_some(slot)
    }

    /// The entry in this slot, if there is one.
    pub(super) fn get(&self, slot: u32) -> Option<&V> {
        match &self.slots.get(slot as usize)?.content {
            Content::Full(value) => Some(value),
            Content::Free(_) => None,
        }
    }

    /// Each slot with its entry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        (0_u32..)
            .zip(&self.slots)
            .filter_map(|(slot, it)| match &it.content {
                Content::Full(value) => Some((slot, value)),
                Content::Free(_) => None,
            })
    }

    /// Each entry, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots
            .iter_mut()
            .filter_map(|it| match &mut it.content {
                Content::Full(value) => Some(value),
                Content::Free(_) => None,
            })
    }

    /// How many slots there are, with and without entries.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("fewer than 2^32 entries")
    }

    /// Whether this slot has an entry.
    pub(super) fn is_full(&self, slot: u32) -> bool {
        self.get(slot).is_some()
    }
}

impl<V> Index<u32> for Slab<V> {
    type Output = V;

    fn index(&self, slot: u32) -> &V {
        match &self.slots[slot as usize].content {
            Content::Full(value) => value,
            Content::Free(_) => unreachable!("slot {slot} has no entry"),
        }
    }
}

impl<V> IndexMut<u32> for Slab<V> {
    fn index_mut(&mut self, slot: u32) -> &mut V {
        match &mut self.slots[slot as usize].content {
            Content::Full(value) => value,
            Content::Free(_) => unreachable!("slot {slot} has no entry"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of a removed connection must not reach the next one in its slot.
    #[test]
    fn an_id_of_an_entry_that_is_gone_finds_nothing() {
        let mut slab = Slab::default();
        let slot = slab.insert("old");
        let old: ClientId = slab.id(slot);
        assert_eq!(slab.find(old), Some(slot));
        assert_eq!(slab.remove(slot), "old");
        assert_eq!((slab.find(old), slab.len()), (None, 0));
        assert_eq!(slab.insert("new"), slot);
        assert_eq!(slab.find(old), None);
        let new: ClientId = slab.id(slot);
        assert_eq!(slab.find(new).map(|slot| slab[slot]), Some("new"));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(slot, &"new")]);
    }
}
