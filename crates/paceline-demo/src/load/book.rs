//! What clients know of the entries that they have sent: numbered, open or settled.
//!
//! ```text
//!   begin --> open --> settle --> settled --> audited, counted and forgotten
//! ```
//!
//! An audit compares the settled entries below the first open one with the rows that the system
//! has: those of open entries may appear at any moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use paceline_check::{
    ledger::{audit, Audit, Entry, Fate, Parts},
    transaction::Ending,
};

/// The books of one kind of entries.
#[derive(Debug)]
pub(crate) struct Book {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    /// The first number that is not audited.
    first: u64,
    open: BTreeSet<u64>,
    settled: BTreeMap<u64, Entry>,
    counts: Counts,
}

/// Counts of audited entries, and what was wrong with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
    /// Unknown ones that are there.
    pub(crate) unknown_done: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Of other rules.
    pub(crate) other: u64,
}

/// A range of numbers, of which all entries are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The first number.
    pub(crate) first: u64,
    /// The first number behind it.
    pub(crate) end: u64,
}

impl Book {
    /// Books whose first entry has this number.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            state: Mutex::new(State {
                next: first,
                first,
                open: BTreeSet::new(),
                settled: BTreeMap::new(),
                counts: Counts::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new entry, which is open.
    pub(crate) fn begin(&self) -> u64 {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.open.insert(number);
        number
    }

    /// The entry is over, with this knowledge of its client.
    pub(crate) fn settle(&self, number: u64, parts: u32, ending: &Ending) {
        let fate = match ending {
            Ending::Committed => Fate::Acknowledged,
            Ending::RolledBack(_) => Fate::Undone,
            Ending::Unknown(_) => Fate::Unknown,
        };
        let mut state = self.state();
        state.open.remove(&number);
        state.settled.insert(number, Entry { parts, fate });
    }

    /// What can be audited; `None` if nothing is.
    pub(crate) fn window(&self) -> Option<Window> {
        let state = self.state();
        let end = state.open.first().copied().unwrap_or(state.next);
        let first = state.first;
        (end > first).then_some(Window { first, end })
    }

    /// Compares the entries of a window with the parts that the system has of each number, counts
    /// them, and forgets them. The findings are written out.
    pub(crate) fn audit(&self, window: Window, present: BTreeMap<u64, Parts>) -> Vec<String> {
        const CLIENT: u32 = 0;
        let mut state = self.state();
        let rest = state.settled.split_off(&window.end);
        let settled = std::mem::replace(&mut state.settled, rest);
        state.first = window.end;
        let entries = settled
            .into_iter()
            .map(|(number, entry)| ((CLIENT, number), entry));
        let present = present
            .into_iter()
            .map(|(number, parts)| ((CLIENT, number), parts));
        let audit = audit(&entries.collect(), &present.collect());
        state.counts.add(&audit);
        audit.findings.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts.clone()
    }
}

impl Counts {
    fn add(&mut self, audit: &Audit) {
        let found = |rule| audit.findings.iter().filter(|one| one.rule == rule).count() as u64;
        let (lost, doubled) = (found("lost"), found("doubled"));
        self.acknowledged += audit.acknowledged;
        self.unknown += audit.unknown;
        self.unknown_done += audit.unknown_done;
        self.lost += lost;
        self.doubled += doubled;
        self.other += audit.findings.len() as u64 - lost - doubled;
    }

    /// The counts of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            acknowledged: self.acknowledged + other.acknowledged,
            unknown: self.unknown + other.unknown,
            unknown_done: self.unknown_done + other.unknown_done,
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            other: self.other + other.other,
        }
    }

    /// How many entries the system must have at least, and at most: an unknown one that was not
    /// there may have been on its way.
    pub(crate) fn entries_expected(&self) -> (u64, u64) {
        let least = self.acknowledged + self.unknown_done;
        (least, self.acknowledged + self.unknown)
    }

    pub(crate) fn agrees(&self) -> bool {
        self.lost + self.doubled + self.other == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown() -> Ending {
        Ending::Unknown(paceline_check::client::Failure::Protocol(String::new()))
    }

    fn rows(numbers: &[u64]) -> BTreeMap<u64, Parts> {
        let mut rows: BTreeMap<u64, Parts> = BTreeMap::new();
        for number in numbers {
            *rows.entry(*number).or_default().entry(0).or_default() += 1;
        }
        rows
    }

    /// Whether a row of an open entry is there depends on the moment.
    #[test]
    fn open_entries_are_not_audited() {
        let book = Book::new(10);
        let (first, second, third) = (book.begin(), book.begin(), book.begin());
        assert_eq!(book.window(), None);
        book.settle(first, 1, &Ending::Committed);
        book.settle(third, 1, &Ending::Committed);
        let window = Window { first: 10, end: 11 };
        assert_eq!(book.window(), Some(window));
        assert_eq!(book.audit(window, rows(&[10])), [""; 0]);
        book.settle(second, 1, &Ending::RolledBack(None));
        let window = Window { first: 11, end: 13 };
        assert_eq!(book.window(), Some(window));
        assert_eq!(book.audit(window, rows(&[12])), [""; 0]);
        assert_eq!((book.window(), book.counts().acknowledged), (None, 2));
    }

    /// Planted: one row is gone, one is there twice, one was rolled back and is there.
    #[test]
    fn rows_that_differ_are_counted() {
        let book = Book::new(0);
        let endings = [
            Ending::Committed,
            Ending::Committed,
            Ending::RolledBack(None),
            unknown(),
            unknown(),
        ];
        for ending in &endings {
            book.settle(book.begin(), 1, ending);
        }
        let window = book.window().expect("all are settled");
        assert_eq!(book.audit(window, rows(&[1, 1, 2, 3])).len(), 3);
        let expected = Counts {
            acknowledged: 2,
            unknown: 2,
            unknown_done: 1,
            lost: 1,
            doubled: 1,
            other: 1,
        };
        assert_eq!(book.counts(), expected);
        assert_eq!(expected.entries_expected(), (3, 4));
        assert!(!expected.agrees());
    }
}
