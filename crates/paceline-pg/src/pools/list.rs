//! Linked lists through the entries of a slab: no allocation, and removal in constant time.

use super::slab::{Slab, NONE};

/// The neighbours of an entry in one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    before: u32,
    after: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            before: NONE,
            after: NONE,
        }
    }
}

/// An entry that has a place in lists of the kind `LANE`.
pub(super) trait Linked<const LANE: usize> {
    /// Its neighbours.
    fn link(&mut self) -> &mut Link;
    /// The next entry.
    fn after(&self) -> u32;
}

impl Link {
    /// The next entry.
    pub(super) fn after(self) -> u32 {
        self.after
    }
}

/// A list of entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<const LANE: usize> {
    first: u32,
    last: u32,
    len: u32,
}

impl<const LANE: usize> Default for List<LANE> {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl<const LANE: usize> List<LANE> {
    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry that has been in it longest.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The entry that was put into it last.
    pub(super) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    /// The entry behind `slot`.
    pub(super) fn after<V: Linked<LANE>>(slab: &Slab<V>, slot: u32) -> Option<u32> {
        let after = slab[slot].after();
        (after != NONE).then_some(after)
    }

    /// Puts an entry at the end. It must not be in a list of this kind.
    pub(super) fn push<V: Linked<LANE>>(&mut self, slab: &mut Slab<V>, slot: u32) {
        *slab[slot].link() = Link {
            before: self.last,
            after: NONE,
        };
        if self.last == NONE {
            self.first = slot;
        } else {
            slab[self.last].link().after = slot;
        }
        self.last = slot;
        self.len += 1;
    }

    /// Takes an entry out, wherever it is. It must be in this list.
    pub(super) fn remove<V: Linked<LANE>>(&mut self, slab: &mut Slab<V>, slot: u32) {
        let Link { before, after } = std::mem::take(slab[slot].link());
        if before == NONE {
            self.first = after;
        } else {
            slab[before].link().after = after;
        }
        if after == NONE {
            self.last = before;
        } else {
            slab[after].link().before = before;
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Entry(Link);

    impl Linked<0> for Entry {
        fn link(&mut self) -> &mut Link {
            &mut self.0
        }

        fn after(&self) -> u32 {
            self.0.after()
        }
    }

    fn all(list: &List<0>, slab: &Slab<Entry>) -> Vec<u32> {
        std::iter::successors(list.first(), |slot| List::<0>::after(slab, *slot)).collect()
    }

    #[test]
    fn entries_leave_from_anywhere() {
        let mut slab = Slab::default();
        let mut list = List::<0>::default();
        for _ in 0..4 {
            let slot = slab.insert(Entry::default());
            list.push(&mut slab, slot);
        }
        assert_eq!(all(&list, &slab), [0, 1, 2, 3]);
        list.remove(&mut slab, 2);
        assert_eq!((all(&list, &slab), list.len()), (vec![0, 1, 3], 3));
        list.remove(&mut slab, 0);
        list.remove(&mut slab, 3);
        assert_eq!((list.first(), list.last()), (Some(1), Some(1)));
        list.push(&mut slab, 0);
        assert_eq!(all(&list, &slab), [1, 0]);
        list.remove(&mut slab, 1);
        list.remove(&mut slab, 0);
        assert!(list.is_empty() && list.first().is_none() && list.last().is_none());
    }
}
