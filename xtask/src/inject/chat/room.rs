//! The clients' own book of the room: who is there, what each has said, and what is settled. Every client writes
//! into it *before* it speaks and *after* it was told, so the book is never ahead of the server where that would
//! accuse it, and never behind where that would excuse it.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::inject::conversation::Findings;

/// The book, shared by all clients.
#[derive(Default)]
pub(super) struct Room(Mutex<Book>);

impl Room {
    /// The book, whoever panicked with it.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When all have left: receipts that told of fewer than have proved that they were reached.
    pub(super) fn settle(&self) -> Findings {
        let book = self.book();
        let short = book.voices.values().flat_map(|voice| &voice.receipts);
        Findings {
            lost: short.map(Receipt::short).sum(),
            ..Findings::default()
        }
    }
}

/// What is under the lock.
#[derive(Default)]
pub(super) struct Book {
    /// Everyone who ever came, by connection.
    voices: HashMap<u64, Voice>,
    /// Those who have not left.
    present: BTreeSet<u64>,
    /// The others, in the order in which they left.
    left: Vec<u64>,
}

/// A guest as a speaker.
#[derive(Default)]
pub(super) struct Voice {
    /// What the server calls it, as soon as anybody was told.
    name: Option<String>,
    /// How many lines it has said, or is about to.
    pub(super) said: u64,
    /// What it was told of its first lines. So many have been handed to the system for everybody who stays: receipts
    /// may overtake each other, but only among lines that were said in one piece, and none of them tells then of
    /// fewer than are bound to hear any of these.
    receipts: Vec<Receipt>,
    /// How many had left before it; `None` while it is there.
    left: Option<usize>,
}

/// What became of one line.
struct Receipt {
    /// How many others it has reached, by the receipt.
    reached: u64,
    /// How many others it has reached, by those others.
    proved: u64,
}

impl Receipt {
    /// How many of those it has reached it does not tell.
    fn short(&self) -> u64 {
        self.proved.saturating_sub(self.reached)
    }
}

impl Voice {
    /// How many of its lines are settled.
    pub(super) fn settled(&self) -> u64 {
        self.receipts.len() as u64
    }

    /// Whether this is its name. Whoever hears a name first takes it for true.
    pub(super) fn is_called(&mut self, name: &str) -> bool {
        self.name.get_or_insert_with(|| name.to_owned()) == name
    }

    /// Whether it had left when this was seen.
    pub(super) fn had_left(&self, seen: &Sight) -> bool {
        self.left.is_some_and(|before| before < seen.left)
    }
}

/// The book at some moment.
pub(super) struct Sight {
    /// One of the counts of everyone who was present.
    pub(super) counts: HashMap<u64, u64>,
    /// How many had left.
    left: usize,
}

/// What somebody must have heard, by speaker.
pub(super) type Duty = Vec<(u64, Range<u64>)>;

impl Book {
    /// Somebody is about to come.
    pub(super) fn enter(&mut self, guest: u64) {
        self.voices.insert(guest, Voice::default());
        self.present.insert(guest);
    }

    /// Somebody has left, or was sent away.
    pub(super) fn leave(&mut self, guest: u64) {
        if !self.present.remove(&guest) {
            return;
        }
        let before = self.left.len();
        self.left.push(guest);
        if let Some(voice) = self.voices.get_mut(&guest) {
            voice.left = Some(before);
        }
    }

    /// Somebody is about to say `count` lines; these are their numbers.
    pub(super) fn say(&mut self, guest: u64, count: u64) -> Range<u64> {
        let voice = self.voices.entry(guest).or_default();
        let first = voice.said;
        voice.said += count;
        first..voice.said
    }

    /// Somebody was given a receipt. `None`: it has no line without one.
    pub(super) fn receipt(&mut self, guest: u64, reached: u64) -> Option<()> {
        let voice = self.voices.get_mut(&guest)?;
        if voice.settled() == voice.said {
            return None;
        }
        voice.receipts.push(Receipt { reached, proved: 0 });
        Some(())
    }

    /// A speaker.
    pub(super) fn voice(&mut self, guest: u64) -> Option<&mut Voice> {
        self.voices.get_mut(&guest)
    }

    /// One of the counts of everyone who is present.
    pub(super) fn sight(&self, count: impl Fn(&Voice) -> u64) -> Sight {
        let present = self.present.iter();
        let counted = present.filter_map(|guest| Some((*guest, count(self.voices.get(guest)?))));
        Sight {
            counts: counted.collect(),
            left: self.left.len(),
        }
    }

    /// What a guest that was welcomed at that moment must have heard by now: of everyone who was there then or came
    /// later, what was said since and is settled.
    pub(super) fn duty(&self, guest: u64, welcomed: &Sight) -> Duty {
        let left_since = &self.left[welcomed.left..];
        let speakers = self.present.iter().chain(left_since);
        let others = speakers.filter(|speaker| **speaker != guest);
        let ranges = others.filter_map(|speaker| {
            let first = welcomed.counts.get(speaker).copied().unwrap_or(0);
            Some((*speaker, first..self.voices.get(speaker)?.settled()))
        });
        ranges.filter(|(_, range)| !range.is_empty()).collect()
    }

    /// Somebody has heard these lines of a speaker, as it must.
    pub(super) fn prove(&mut self, speaker: u64, lines: &Range<u64>) {
        let receipts = self.voices.get_mut(&speaker).map(|it| &mut it.receipts);
        let (start, end) = (lines.start as usize, lines.end as usize);
        let proved = receipts.and_then(|receipts| receipts.get_mut(start..end));
        for receipt in proved.into_iter().flatten() {
            receipt.proved += 1;
        }
    }
}
