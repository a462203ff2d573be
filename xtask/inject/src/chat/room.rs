//! The clients' own book of the room: which guests are present, what each has said, and what is settled. Every client writes
//! into it *before* it sends and *after* it has received, so the book is never ahead of the server where that would
//! accuse it, and never behind where that would excuse it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::conversation::Findings;

/// The book, shared by all clients.
#[derive(Default)]
pub(super) struct Room(Mutex<Book>);

impl Room {
    /// The book, also after a panic of its holder.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When all have left: receipts that count fewer guests than have proved that they were reached, or more than
    /// possible.
    pub(super) fn settle(&self) -> Findings {
        let book = self.book();
        let (all, unsure) = (
            book.presence(|_| true),
            book.presence(|it| it.gone.is_none()),
        );
        let mut findings = Findings::default();
        for voice in book.voices.values() {
            // The speaker was there too, and does not hear itself.
            let itself = u64::from(voice.gone.is_none());
            let in_doubt = |receipt: &Receipt| unsure.during(receipt) - itself + book.strangers;
            for piece in voice.receipts.chunk_by(|one, next| one.said == next.said) {
                findings.lost += unheard(piece, voice.heard_of(piece), in_doubt);
            }
            for receipt in &voice.receipts {
                let others = all.during(receipt) - 1 + book.strangers;
                findings.lost += receipt.short();
                findings.misrouted += (receipt.reached + receipt.missed).saturating_sub(others);
            }
        }
        findings
    }
}

/// How many guests the receipts of one piece count that have not heard a line of it. Receipts may overtake each other there,
/// so the one that counts most is compared with the line that most have heard.
fn unheard(piece: &[Receipt], heard: &[u64], in_doubt: impl Fn(&Receipt) -> u64) -> u64 {
    let descending = |mut counts: Vec<u64>| {
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    };
    let sure = |receipt: &Receipt| receipt.reached.saturating_sub(in_doubt(receipt));
    let told = descending(piece.iter().map(sure).collect());
    let heard = descending(heard.to_vec());
    let pairs = told.into_iter().zip(heard);
    pairs.map(|(told, heard)| told.saturating_sub(heard)).sum()
}

/// When some of the guests were about to come, and when it was known that they were out, in order.
struct Presence {
    came: Vec<Time>,
    gone: Vec<Time>,
}

impl Presence {
    /// How many of them may have been there when a line was said, which has this receipt.
    fn during(&self, receipt: &Receipt) -> u64 {
        let came = self.came.partition_point(|time| *time < receipt.read);
        let gone = self.gone.partition_point(|time| *time < receipt.said);
        (came - gone) as u64
    }
}

/// Counted by the book: one more for everything that is written into it.
pub(super) type Time = u64;

/// What is under the lock.
#[derive(Default)]
pub(super) struct Book {
    /// All guests ever, by connection.
    voices: HashMap<u64, Voice>,
    /// The guests that have not left.
    present: BTreeSet<u64>,
    /// The others, in the order in which they left.
    left: Vec<u64>,
    /// How much was written.
    time: Time,
    /// How many came and went that no client keeps account of.
    strangers: u64,
    /// The guests whose departure was reported to another one, and when first.
    told_gone: HashMap<String, Time>,
}

/// A guest as a speaker.
#[derive(Default)]
pub(super) struct Voice {
    /// Its name on the server, as soon as any guest knows it.
    name: Option<String>,
    /// How many lines it has said, or is about to.
    pub(super) said: u64,
    /// When it was about to say each.
    times: Vec<Time>,
    /// How many have heard each, of those that have read the end.
    heard: Vec<u64>,
    /// When it was about to come.
    came: Time,
    /// When it was welcomed.
    pub(super) welcomed: Option<Time>,
    /// When it was there for certain the last time: it asked something then, and was answered.
    was_there: Option<Time>,
    /// When it had read the end of what the server sends: it was out of the room by then, and has heard everything that
    /// was ever sent to it.
    gone: Option<Time>,
    /// One for each of its first lines, which are settled. Receipts of lines that were said in one piece may overtake each
    /// other (a guest that breaks off loses what waits behind a line before that line itself), so which of these lines each belongs
    /// to is not known: see [`unheard`]. None of them counts fewer than must hear any of these lines.
    receipts: Vec<Receipt>,
    /// How many had left before it; `None` while it is there.
    left: Option<usize>,
}

/// What became of one line.
struct Receipt {
    /// How many others it has reached, by the receipt.
    reached: u64,
    /// How many it has not, by the receipt.
    missed: u64,
    /// How many others it has reached, by those others.
    proved: u64,
    /// When it was about to be said.
    said: Time,
    /// When the receipt was read.
    read: Time,
}

impl Receipt {
    /// How many have proved that they heard the line, beyond those that it counts.
    fn short(&self) -> u64 {
        self.proved.saturating_sub(self.reached)
    }
}

impl Voice {
    /// How many of its lines are settled.
    pub(super) fn settled(&self) -> u64 {
        self.receipts.len() as u64
    }

    /// How many have heard each line of this piece.
    fn heard_of(&self, piece: &[Receipt]) -> &[u64] {
        let said = piece[0].said;
        let first = self.times.partition_point(|time| *time < said);
        let end = self.times.partition_point(|time| *time <= said);
        &self.heard[first..end]
    }

    /// Whether this is its name. The first name that any guest hears is taken for true.
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
    /// One of the counts of every guest that was present.
    pub(super) counts: HashMap<u64, u64>,
    /// How many had left.
    left: usize,
    /// When that was.
    time: Time,
}

/// What one guest must have heard.
#[derive(Default)]
pub(super) struct Duty {
    /// Lines, by speaker.
    pub(super) lines: Vec<(u64, Range<u64>)>,
    /// The guests that have arrived.
    pub(super) come: Vec<String>,
    /// The guests that have left.
    pub(super) gone: Vec<String>,
}

impl Book {
    /// A guest is about to arrive.
    pub(super) fn enter(&mut self, guest: u64) {
        let came = self.tick();
        let voice = Voice {
            came,
            ..Voice::default()
        };
        self.voices.insert(guest, voice);
        self.present.insert(guest);
    }

    /// Something is written: when.
    pub(super) fn tick(&mut self) -> Time {
        self.time += 1;
        self.time
    }

    /// A guest without an account is about to arrive and leave.
    pub(super) fn stranger(&mut self) {
        self.strangers += 1;
    }

    /// A guest has read the end of its stream, and heard these lines before it: speakers and numbers.
    pub(super) fn gone(&mut self, guest: u64, heard: &[(u64, u64)]) {
        let now = self.tick();
        if let Some(voice) = self.voices.get_mut(&guest) {
            voice.gone = Some(now);
        }
        for (speaker, number) in heard {
            let voice = self.voices.get_mut(speaker);
            let count = voice.and_then(|it| it.heard.get_mut(*number as usize));
            count.into_iter().for_each(|count| *count += 1);
        }
    }

    /// The departure of this guest was reported to another one.
    pub(super) fn told_gone(&mut self, name: &str) {
        let now = self.tick();
        self.told_gone.entry(name.to_owned()).or_insert(now);
    }

    /// A guest with a request at that time was answered. Returns whether its departure had been reported before.
    pub(super) fn was_there(&mut self, guest: u64, asked: Time) -> bool {
        let Some(voice) = self.voices.get_mut(&guest) else {
            return false;
        };
        voice.was_there = Some(asked);
        let name = voice.name.as_ref();
        let told = name.and_then(|name| self.told_gone.get(name));
        told.is_some_and(|told| *told < asked)
    }

    /// What is wrong with these names, which a guest got as the list that it requested at that time.
    pub(super) fn judge_names(&self, guest: u64, names: &str, asked: Time) -> Findings {
        let names: Vec<_> = names.split(", ").collect();
        let different: HashSet<_> = names.iter().copied().collect();
        let named = |voice: &Voice| {
            voice
                .name
                .as_deref()
                .is_some_and(|it| different.contains(it))
        };
        let is_there = self.voices.get(&guest).is_some_and(named);
        let had_gone = |voice: &&Voice| voice.gone.is_some_and(|gone| gone < asked);
        let left = self.left.iter().filter_map(|guest| self.voices.get(guest));
        Findings {
            lost: u64::from(!is_there),
            doubled: (names.len() - different.len()) as u64,
            misrouted: left.filter(had_gone).filter(|it| named(it)).count() as u64,
            ..Findings::default()
        }
    }

    /// When those guests arrived and left. A guest whose departure the server reports is out of the room.
    fn presence(&self, of: impl Fn(&Voice) -> bool) -> Presence {
        let some = || self.voices.values().filter(|voice| of(voice));
        let mut came: Vec<_> = some().map(|voice| voice.came).collect();
        let told_gone = |voice: &Voice| self.told_gone.get(voice.name.as_ref()?).copied();
        let gone = |voice: &Voice| [voice.gone, told_gone(voice)].into_iter().flatten().min();
        let mut gone: Vec<_> = some().filter_map(gone).collect();
        came.sort_unstable();
        gone.sort_unstable();
        Presence { came, gone }
    }

    /// A guest has left, or was disconnected.
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

    /// A guest is about to say `count` lines; returns their numbers.
    pub(super) fn say(&mut self, guest: u64, count: u64) -> Range<u64> {
        let now = self.tick();
        let voice = self.voices.entry(guest).or_default();
        let first = voice.said;
        voice.said += count;
        voice.times.resize(voice.said as usize, now);
        voice.heard.resize(voice.said as usize, 0);
        first..voice.said
    }

    /// A guest got a receipt. `None`: it has no line without one.
    pub(super) fn receipt(&mut self, guest: u64, reached: u64, missed: u64) -> Option<()> {
        let read = self.tick();
        let voice = self.voices.get_mut(&guest)?;
        let said = *voice.times.get(voice.receipts.len())?;
        voice.receipts.push(Receipt {
            reached,
            missed,
            proved: 0,
            said,
            read,
        });
        Some(())
    }

    /// A speaker.
    pub(super) fn voice(&mut self, guest: u64) -> Option<&mut Voice> {
        self.voices.get_mut(&guest)
    }

    /// One of the counts of every present guest.
    pub(super) fn sight(&self, count: impl Fn(&Voice) -> u64) -> Sight {
        let present = self.present.iter();
        let counted = present.filter_map(|guest| Some((*guest, count(self.voices.get(guest)?))));
        Sight {
            counts: counted.collect(),
            left: self.left.len(),
            time: self.time,
        }
    }

    /// What a guest that was welcomed at that moment must have heard by now: of every guest that was present then or arrived
    /// later, what was said since and is settled.
    pub(super) fn duty(&self, guest: u64, welcomed: &Sight) -> Duty {
        let left_since = &self.left[welcomed.left..];
        let speakers = self.present.iter().chain(left_since);
        let others = || speakers.clone().filter(|speaker| **speaker != guest);
        let ranges = others().filter_map(|speaker| {
            let first = welcomed.counts.get(speaker).copied().unwrap_or(0);
            Some((*speaker, first..self.voices.get(speaker)?.settled()))
        });
        let since = |time: Option<Time>| time.is_some_and(|time| time > welcomed.time);
        let named = |of: &dyn Fn(&Voice) -> bool| {
            let voices = others().filter_map(|other| self.voices.get(other));
            voices
                .filter(|it| of(it))
                .filter_map(|it| it.name.clone())
                .collect()
        };
        Duty {
            lines: ranges.filter(|(_, range)| !range.is_empty()).collect(),
            come: named(&|it| it.welcomed.is_some() && it.came > welcomed.time),
            gone: named(&|it| it.gone.is_some() && since(it.was_there)),
        }
    }

    /// A guest has heard these lines of a speaker, as it must.
    pub(super) fn prove(&mut self, speaker: u64, lines: &Range<u64>) {
        let receipts = self.voices.get_mut(&speaker).map(|it| &mut it.receipts);
        let (start, end) = (lines.start as usize, lines.end as usize);
        let proved = receipts.and_then(|receipts| receipts.get_mut(start..end));
        for receipt in proved.into_iter().flatten() {
            receipt.proved += 1;
        }
    }
}
