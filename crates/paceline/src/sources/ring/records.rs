//! The ring itself: records of any size in shared words, one thread puts in, one takes out.
//!
//! Each side has a **position**, in bytes since the beginning, which it keeps for itself and
//! publishes in a word of its own. The lowest bit of that word belongs to the other side: *I sleep
//! until you move*. So to move and to learn that the other side must be woken is one step, and so
//! is to check once more and to announce a sleep:
//!
//! ```text
//!  tail         --> tail + record   [Out::push]             swap: whether the consumer slept
//!  tail         --> tail, SLEEPS    [In::announce_sleep]    refused if the tail has moved
//!  head         --> head + record   [In::pop]               swap: whether the producer slept
//!  head         --> head, SLEEPS    [Out::announce_sleep]   refused if the head has moved
//! ```
//!
//! **The other side is not trusted.** It may write anything anywhere, at any time. Therefore a side
//! never reads its own position back, judges the other's before it uses it, reads each number once,
//! and touches no memory but single words by their index. Whatever is wrong ends the ring
//! ([`Broken`]); what a peer can spoil is its own records.

use std::cell::Cell;

use crate::sync::atomic::{AtomicU64, Ordering};

/// The bit of a position's word that says that the other side sleeps.
const SLEEPS: u64 = 1;

/// What a word holds, in bytes.
const WORD: u64 = 8;

/// Where the words are. The two positions have cache lines of their own.
const TAIL: usize = 8;
const HEAD: usize = 16;
pub(super) const HEADER: usize = 24;

/// The other side has written what can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// What became of a record.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It is in, and the consumer sleeps: wake it.
    WakePeer,
    /// It is in.
    Quiet,
    /// There is no room for it now.
    Full,
}

/// What was found.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Popped {
    /// A record; and the producer sleeps until there is room: wake it.
    WakePeer,
    /// A record.
    Quiet,
    Empty,
}

/// Whether a side may sleep.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// The next move of the other side will wake it.
    Announced,
    /// The other side has moved: look first.
    NotYet,
}

/// How much the words of a ring hold, in bytes; `None` if they are too few to hold anything.
pub(super) fn capacity(words: usize) -> Option<u64> {
    let data = words.checked_sub(HEADER)? as u64;
    (data >= 2).then_some(data.saturating_mul(WORD))
}

/// New words: at first the consumer sleeps, so the first record makes its descriptor readable.
pub(super) fn begin(words: &[AtomicU64]) {
    words[TAIL].swap(SLEEPS, Ordering::AcqRel);
}

/// How much room a record takes, with its length: whole words.
fn room_for(length: u64) -> u64 {
    WORD + length.next_multiple_of(WORD)
}

/// The largest record that fits.
pub(super) fn most(capacity: u64) -> u64 {
    capacity - WORD
}

fn data(words: &[AtomicU64], position: u64) -> &AtomicU64 {
    let data = &words[HEADER..];
    &data[(position / WORD % data.len() as u64) as usize]
}

/// The position of the other side, judged: between it and ours lies at most what the ring holds, in
/// whole words.
fn judged(ahead: u64, behind: u64, capacity: u64) -> Result<u64, Broken> {
    let between = ahead.wrapping_sub(behind);
    if between <= capacity && between % WORD == 0 {
        Ok(between)
    } else {
        Err(Broken)
    }
}

/// Says that one sleeps until the word at `index` is not `seen` any more.
fn announce(words: &[AtomicU64], index: usize, seen: u64) -> Sleep {
    let announced =
        words[index].compare_exchange(seen, seen | SLEEPS, Ordering::AcqRel, Ordering::Relaxed);
    match announced {
        Ok(_) => Sleep::Announced,
        // From the last time: the other side has not moved since.
        Err(found) if found == seen | SLEEPS => Sleep::Announced,
        Err(_) => Sleep::NotYet,
    }
}

/// The side that puts in.
#[derive(Debug, Default)]
pub(super) struct Out {
    tail: Cell<u64>,
    /// The other side's position, as it was last seen.
    head: Cell<u64>,
}

impl Out {
    /// Puts a record in; it is not longer than [`most`].
    pub(super) fn push(&self, words: &[AtomicU64], record: &[u8]) -> Result<Pushed, Broken> {
        let capacity = ((words.len() - HEADER) as u64) * WORD;
        let (tail, needed) = (self.tail.get(), room_for(record.len() as u64));
        if capacity - judged(tail, self.head.get(), capacity)? < needed {
            // Acquire: pairs with the swap in `pop`. What it has left is not read any more.
            self.head.set(words[HEAD].load(Ordering::Acquire) & !SLEEPS);
            if capacity - judged(tail, self.head.get(), capacity)? < needed {
                return Ok(Pushed::Full);
            }
        }
        data(words, tail).store(record.len() as u64, Ordering::Relaxed);
        for (place, part) in (1..).zip(record.chunks(WORD as usize)) {
            let mut bytes = [0; WORD as usize];
            bytes[..part.len()].copy_from_slice(part);
            let word = u64::from_ne_bytes(bytes);
            data(words, tail.wrapping_add(place * WORD)).store(word, Ordering::Relaxed);
        }
        self.tail.set(tail.wrapping_add(needed));
        // Release: pairs with the load in `pop`. A thread that sees the position sees the record.
        match words[TAIL].swap(self.tail.get(), Ordering::AcqRel) & SLEEPS {
            0 => Ok(Pushed::Quiet),
            _ => Ok(Pushed::WakePeer),
        }
    }

    /// Says that the producer sleeps until the consumer has taken something.
    pub(super) fn announce_sleep(&self, words: &[AtomicU64]) -> Sleep {
        announce(words, HEAD, self.head.get())
    }
}

/// The side that takes out.
#[derive(Debug, Default)]
pub(super) struct In {
    head: Cell<u64>,
    /// The other side's position, as it was last seen.
    tail: Cell<u64>,
}

impl In {
    /// Takes the next record, in place of what `record` holds.
    pub(super) fn pop(&self, words: &[AtomicU64], record: &mut Vec<u8>) -> Result<Popped, Broken> {
        let capacity = ((words.len() - HEADER) as u64) * WORD;
        let head = self.head.get();
        if self.tail.get() == head {
            // Acquire: pairs with the swap in `push`.
            self.tail.set(words[TAIL].load(Ordering::Acquire) & !SLEEPS);
        }
        let there = judged(self.tail.get(), head, capacity)?;
        if there == 0 {
            return Ok(Popped::Empty);
        }
        let length = data(words, head).load(Ordering::Relaxed);
        if length > most(capacity) || room_for(length) > there {
            return Err(Broken);
        }
        record.clear();
        for place in 1..=length.div_ceil(WORD) {
            let word = data(words, head.wrapping_add(place * WORD)).load(Ordering::Relaxed);
            record.extend_from_slice(&word.to_ne_bytes());
        }
        record.truncate(length as usize);
        self.head.set(head.wrapping_add(room_for(length)));
        // Release: pairs with the load in `push`. The room is given back when all of it was read.
        match words[HEAD].swap(self.head.get(), Ordering::AcqRel) & SLEEPS {
            0 => Ok(Popped::Quiet),
            _ => Ok(Popped::WakePeer),
        }
    }

    /// Says that the consumer sleeps until the producer has put something in.
    pub(super) fn announce_sleep(&self, words: &[AtomicU64]) -> Sleep {
        announce(words, TAIL, self.head.get())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn ring(data: usize) -> Vec<AtomicU64> {
        (0..HEADER + data).map(|_| AtomicU64::new(0)).collect()
    }

    /// Records of every size go round and round, whole and in order, also where one goes over the
    /// edge.
    #[test]
    fn records_of_every_size() {
        let (words, out, into) = (ring(7), Out::default(), In::default());
        let mut got = Vec::new();
        let most = most(capacity(words.len()).unwrap()) as usize;
        assert_eq!(most, 48);
        for round in 0..200 {
            let record: Vec<u8> = (0..round % (most + 1))
                .map(|it| (it + round) as u8)
                .collect();
            assert_eq!(out.push(&words, &record), Ok(Pushed::Quiet));
            assert_eq!(into.pop(&words, &mut got), Ok(Popped::Quiet));
            assert_eq!(got, record);
        }
        assert_eq!(into.pop(&words, &mut got), Ok(Popped::Empty));
    }

    /// What is not read is not written over, and the first step after an announcement wakes, no
    /// other does.
    #[test]
    fn one_step_wakes() {
        let (words, out, into) = (ring(4), Out::default(), In::default());
        let mut got = Vec::new();
        assert_eq!(into.announce_sleep(&words), Sleep::Announced);
        assert_eq!(into.announce_sleep(&words), Sleep::Announced);
        assert_eq!(out.push(&words, &[1]), Ok(Pushed::WakePeer));
        assert_eq!(out.push(&words, &[2]), Ok(Pushed::Quiet));
        assert_eq!(out.push(&words, &[]), Ok(Pushed::Full));
        assert_eq!(into.announce_sleep(&words), Sleep::NotYet);
        assert_eq!(out.announce_sleep(&words), Sleep::Announced);
        assert_eq!(into.pop(&words, &mut got), Ok(Popped::WakePeer));
        assert_eq!(into.pop(&words, &mut got), Ok(Popped::Quiet));
        assert_eq!(got, [2]);
        assert_eq!(out.announce_sleep(&words), Sleep::NotYet);
    }

    /// R1: positions and lengths that can't be are found out, and nothing beyond the ring is read.
    #[test]
    fn lies_are_found_out() {
        let mut got = Vec::new();
        let tails = [4, 12, 40, u64::MAX - 7, 1 << 63, u64::MAX];
        for tail in tails {
            let words = ring(4);
            words[TAIL].store(tail, Ordering::Relaxed);
            assert_eq!(In::default().pop(&words, &mut got), Err(Broken), "{tail}");
        }
        for length in [17, 25, u64::MAX, u64::MAX - 8, 1 << 63] {
            let words = ring(4);
            words[TAIL].store(24, Ordering::Relaxed);
            words[HEADER].store(length, Ordering::Relaxed);
            let popped = In::default().pop(&words, &mut got);
            assert_eq!(popped, Err(Broken), "{length}");
        }
        for head in [4, 40, 64, u64::MAX - 7, 1 << 63] {
            let (words, out) = (ring(4), Out::default());
            out.push(&words, &[0; 24]).map(drop).unwrap();
            words[HEAD].store(head, Ordering::Relaxed);
            assert_eq!(out.push(&words, &[1]), Err(Broken), "{head}");
        }
    }

    /// R1: a peer writes whatever it likes, wherever it likes, between any two steps. Nothing
    /// panics, nothing loops, and no record is larger than the ring.
    #[test]
    fn any_words_at_all() {
        let mut state = 7_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut got = Vec::new();
        for _ in 0..2_000 {
            let words = ring(2 + random() as usize % 8);
            let (out, into) = (Out::default(), In::default());
            got.clear();
            let most = most(capacity(words.len()).unwrap()) as usize;
            for _ in 0..50 {
                let value = match random() % 3 {
                    0 => random(),
                    1 => random() % 100,
                    _ => random() % 16 * 8,
                };
                words[random() as usize % words.len()].store(value, Ordering::Relaxed);
                let _ = into.pop(&words, &mut got);
                let _ = into.announce_sleep(&words);
                assert!(got.len() <= most);
                let _ = out.push(&words, &vec![1; random() as usize % (most + 1)]);
                let _ = out.announce_sleep(&words);
            }
        }
    }
}
