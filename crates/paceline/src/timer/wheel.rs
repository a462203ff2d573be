//! The wheel: many points in time, sorted only as far as needed. To set one, to take one back and
//! to find the next one take the same time, however many there are.
//!
//! Time is counted in ticks. Level 0 has a slot for each of the next 64 ticks, level 1 for each 64
//! ticks of the next 4,096, and so on; eleven levels are all of time. A point lies where its
//! highest digit (to the base of 64) differs from now:
//!
//! ```text
//!   now = 3.07, a point at 3.20:  level 0, slot 20    due when now is 3.20
//!               a point at 5.00:  level 1, slot  5    now is 5.00: emptied; due, or goes down
//! ```
//!
//! So all points of a level come before those of the next, in the order of their slots, and the
//! next thing to happen is the first occupied slot of the lowest occupied level.

/// A level has `1 << BITS` slots.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Enough for 64 bits of ticks.
const LEVELS: usize = 11;

/// No node.
const NONE: u32 = u32::MAX;

/// Points in time, each with a `T`. A node is known by its index.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    nodes: Vec<Node<T>>,
    /// The first free node; free ones are linked by `next`.
    free: u32,
    levels: [Level; LEVELS],
    /// Everything up to this tick has happened.
    now: u64,
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    at: u64,
    next: u32,
    previous: u32,
    /// Where it lies; `None` while it waits nowhere.
    place: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// A bit for each slot that is not empty.
    occupied: u64,
    /// The first node of each slot.
    first: [u32; SLOTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Narrow: each idle connection that has a time-out has a node.
    level: u8,
    slot: u8,
}

impl<T: Copy> Wheel<T> {
    pub(super) fn new() -> Self {
        let empty = Level {
            occupied: 0,
            first: [NONE; SLOTS],
        };
        Self {
            nodes: Vec::new(),
            free: NONE,
            levels: [empty; LEVELS],
            now: 0,
        }
    }

    /// A new node, which waits nowhere yet.
    pub(super) fn take_node(&mut self, value: T) -> u32 {
        let node = Node {
            value,
            at: 0,
            next: NONE,
            previous: NONE,
            place: None,
        };
        if self.free == NONE {
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let index = self.free;
        self.free = self.nodes[index as usize].next;
        self.nodes[index as usize] = node;
        index
    }

    /// Gives a node up, wherever it is.
    pub(super) fn give_back(&mut self, index: u32) {
        self.take_out(index);
        self.nodes[index as usize].next = self.free;
        self.free = index;
    }

    /// Lets a node wait for the tick `at`, with this value, instead of what it waited for before.
    /// `now` is the time: a wheel in which nothing waits need not pass through the time since it
    /// was last used.
    pub(super) fn set(&mut self, index: u32, value: T, at: u64, now: u64) {
        self.take_out(index);
        if self.next().is_none() {
            self.now = self.now.max(now);
        }
        let node = &mut self.nodes[index as usize];
        node.value = value;
        // What is over comes with the next tick.
        node.at = at.max(self.now.saturating_add(1));
        self.put_in(index);
    }

    /// The tick at which something is to be done: a point is due, or comes nearer.
    pub(super) fn next(&self) -> Option<u64> {
        self.first_place().map(|place| self.start_of(place))
    }

    /// Lets the time pass until `to`. Passes on each value that is due, and when it was, in order
    /// of time, and of one time in the order in which they were set; `due` may ask for another
    /// point for the same node.
    pub(super) fn advance(&mut self, to: u64, mut due: impl FnMut(T, u64) -> Option<u64>) {
        while let Some(place) = self.first_place() {
            let start = self.start_of(place);
            if start > to {
                break;
            }
            self.now = start;
            let mut index = self.empty(place);
            while index != NONE {
                let node = &mut self.nodes[index as usize];
                let next = node.next;
                node.place = None;
                let again = if node.at <= start {
                    due(node.value, node.at)
                } else {
                    Some(node.at)
                };
                if let Some(at) = again {
                    node.at = at.max(start.saturating_add(1));
                    self.put_in(index);
                }
                index = next;
            }
        }
        self.now = self.now.max(to);
    }

    fn first_place(&self) -> Option<Place> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        let slot = self.levels[level].occupied.trailing_zeros();
        Some(Place {
            level: level as u8,
            slot: slot as u8,
        })
    }

    /// The first tick of a slot.
    fn start_of(&self, place: Place) -> u64 {
        let shift = u32::from(place.level) * BITS;
        let above = shift + BITS;
        let prefix = if above < u64::BITS {
            self.now >> above << above
        } else {
            0
        };
        prefix | u64::from(place.slot) << shift
    }

    /// Where a later tick lies, seen from now.
    fn place_of(&self, at: u64) -> Place {
        let highest = u64::BITS - 1 - (at ^ self.now).max(1).leading_zeros();
        let level = highest / BITS;
        let slot = (at >> (level * BITS)) as usize % SLOTS;
        Place {
            level: level as u8,
            slot: slot as u8,
        }
    }

    fn put_in(&mut self, index: u32) {
        let place = self.place_of(self.nodes[index as usize].at);
        let level = &mut self.levels[usize::from(place.level)];
        level.occupied |= 1 << place.slot;
        let next = std::mem::replace(&mut level.first[usize::from(place.slot)], index);
        if next != NONE {
            self.nodes[next as usize].previous = index;
        }
        let node = &mut self.nodes[index as usize];
        node.next = next;
        node.previous = NONE;
        node.place = Some(place);
    }

    fn take_out(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        let Some(place) = node.place.take() else {
            return;
        };
        let (previous, next) = (node.previous, node.next);
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous != NONE {
            self.nodes[previous as usize].next = next;
            return;
        }
        let level = &mut self.levels[usize::from(place.level)];
        level.first[usize::from(place.slot)] = next;
        if next == NONE {
            level.occupied &= !(1 << place.slot);
        }
    }

    /// Takes all nodes out of a slot. They are still linked, and turned around: returns the first
    /// one set.
    fn empty(&mut self, place: Place) -> u32 {
        let level = &mut self.levels[usize::from(place.level)];
        level.occupied &= !(1 << place.slot);
        let mut at = std::mem::replace(&mut level.first[usize::from(place.slot)], NONE);
        let mut turned = NONE;
        while at != NONE {
            let next = std::mem::replace(&mut self.nodes[at as usize].next, turned);
            (turned, at) = (at, next);
        }
        turned
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn at(wheel: &mut Wheel<u64>, tick: u64) -> u32 {
        let node = wheel.take_node(tick);
        wheel.set(node, tick, tick, 0);
        node
    }

    fn due(wheel: &mut Wheel<u64>, to: u64) -> Vec<u64> {
        let mut due = Vec::new();
        wheel.advance(to, |value, _| {
            due.push(value);
            None
        });
        due
    }

    /// At its tick, not before and not after, whatever level it waited in.
    #[test]
    fn due_at_its_tick() {
        for tick in [
            1,
            2,
            63,
            64,
            65,
            4095,
            4096,
            4097,
            300_000,
            1 << 40,
            u64::MAX - 1,
        ] {
            let mut wheel = Wheel::new();
            at(&mut wheel, tick);
            assert!(due(&mut wheel, tick - 1).is_empty(), "{tick}");
            assert_eq!(due(&mut wheel, tick), [tick]);
            assert_eq!(wheel.next(), None);
        }
    }

    /// The next thing to happen is never after the next point that is due: a thread that sleeps
    /// until then misses nothing.
    #[test]
    fn next_is_not_too_late() {
        let mut wheel = Wheel::new();
        at(&mut wheel, 5000);
        let mut steps = 0;
        while let Some(next) = wheel.next() {
            assert!(next <= 5000);
            due(&mut wheel, next);
            steps += 1;
        }
        assert!(steps <= LEVELS, "{steps} steps for one point");
    }

    /// What is taken back is not reported; its node is used again.
    #[test]
    fn taken_back_is_not_told() {
        let mut wheel = Wheel::new();
        let (first, second) = (at(&mut wheel, 10), at(&mut wheel, 10));
        wheel.give_back(first);
        assert_eq!(at(&mut wheel, 11), first);
        wheel.give_back(second);
        assert_eq!(due(&mut wheel, 100), [11]);
    }

    /// Of one time, what was set first comes first, also if it has come down a level before.
    #[test]
    fn first_set_first_told() {
        let mut wheel = Wheel::new();
        for value in 0..3 {
            let node = wheel.take_node(value);
            wheel.set(node, value, 100, 0);
        }
        assert!(due(&mut wheel, 80).is_empty());
        for value in 3..6 {
            let node = wheel.take_node(value);
            wheel.set(node, value, 100, 80);
        }
        assert_eq!(due(&mut wheel, 100), [0, 1, 2, 3, 4, 5]);
    }

    /// A point that has passed comes with the next tick.
    #[test]
    fn too_late_is_soon() {
        let mut wheel = Wheel::new();
        due(&mut wheel, 1000);
        at(&mut wheel, 3);
        assert_eq!(wheel.next(), Some(1001));
    }

    /// A callback that asks for another point gets it, also a near one.
    #[test]
    fn again_and_again() {
        let mut wheel = Wheel::new();
        at(&mut wheel, 1);
        let mut told = 0;
        let mut now = 1;
        wheel.advance(1000, |_, _| {
            told += 1;
            now += 100;
            Some(now)
        });
        assert_eq!(told, 10);
    }

    /// Each idle connection that has a time-out has a node.
    #[test]
    fn a_node_is_small() {
        let size = size_of::<Node<crate::timer::Due>>();
        assert!(size <= 40, "{size} bytes");
    }

    /// Against a sorted map, over some hundred thousand random steps.
    #[test]
    fn as_a_sorted_map() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) % below
        };
        let (mut wheel, mut model, mut now) = (Wheel::new(), BTreeMap::new(), 0_u64);
        let mut nodes = Vec::new();
        for step in 0..100_000_u64 {
            match next(4) {
                0 | 1 => {
                    let spread = [10, 100, 10_000, 10_000_000][next(4) as usize];
                    let tick = now + 1 + next(spread);
                    let node = wheel.take_node(step);
                    wheel.set(node, step, tick, now);
                    model.insert((tick, step), node);
                    nodes.push((tick, step));
                }
                2 if !nodes.is_empty() => {
                    let index = next(nodes.len() as u64) as usize;
                    let point = nodes.swap_remove(index);
                    if let Some(node) = model.remove(&point) {
                        wheel.give_back(node);
                    }
                }
                _ => {
                    now += next(300);
                    let mut told = Vec::new();
                    wheel.advance(now, |value, _| {
                        told.push(value);
                        None
                    });
                    let later = model.split_off(&(now + 1, 0));
                    let expected: Vec<_> = model.keys().map(|(_, step)| *step).collect();
                    model.values().for_each(|node| wheel.give_back(*node));
                    model = later;
                    assert_eq!(told, expected, "at step {step}");
                }
            }
            let first = model.keys().next().map(|(tick, _)| *tick);
            assert_eq!(wheel.next().is_some(), first.is_some());
            assert!(wheel.next() <= first || first.is_none());
        }
    }
}
