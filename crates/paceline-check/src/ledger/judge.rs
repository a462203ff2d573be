//! Compares what clients know of their entries with what the system has at the end.

use std::collections::BTreeMap;

use crate::finding::Finding;

/// What a client knows of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server has acknowledged it.
    Acknowledged,
    /// The server has refused it, or the client has rolled it back.
    Undone,
    /// The client knows nothing.
    Unknown,
}

/// An entry that a client has attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How many rows it has, numbered from zero. They are written in one transaction.
    pub parts: u32,
    /// What the client knows of it.
    pub fate: Fate,
}

/// A client and a number that it has given to an entry.
pub type Key = (u32, u64);

/// What the system has of an entry: how often it has each part.
pub type Parts = BTreeMap<u32, u64>;

/// What a ledger shows at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How many entries were acknowledged.
    pub acknowledged: u64,
    /// How many entries were undone.
    pub undone: u64,
    /// How many entries had an unknown outcome.
    pub unknown: u64,
    /// How many of those are there.
    pub unknown_done: u64,
}

/// Compares all attempted entries with all entries that the system has.
#[must_use]
pub fn audit(attempted: &BTreeMap<Key, Entry>, present: &BTreeMap<Key, Parts>) -> Audit {
    let mut audit = Audit::default();
    for (key, entry) in attempted {
        audit.count(*key, *entry, present.get(key).unwrap_or(&Parts::new()));
    }
    let foreign = present.keys().filter(|key| !attempted.contains_key(key));
    audit.findings.extend(foreign.map(|(client, number)| {
        let text = format!("client {client} has not sent entry {number}, and it is there");
        Finding::new("foreign", text)
    }));
    audit
}

impl Audit {
    fn count(&mut self, key: Key, entry: Entry, parts: &Parts) {
        match entry.fate {
            Fate::Acknowledged => self.acknowledged += 1,
            Fate::Undone => self.undone += 1,
            Fate::Unknown => {
                self.unknown += 1;
                self.unknown_done += u64::from(!parts.is_empty());
            }
        }
        let wrong = wrong_with(entry, parts);
        self.findings.extend(wrong.map(|(rule, what)| {
            let (client, number) = key;
            Finding::new(rule, format!("entry {number} of client {client} {what}"))
        }));
    }
}

/// What is wrong with an entry of which the system has these parts.
fn wrong_with(entry: Entry, parts: &Parts) -> Option<(&'static str, String)> {
    let doubled = parts.values().find(|count| **count > 1);
    let found = parts.keys().filter(|part| **part < entry.parts).count();
    let is_whole = found == entry.parts as usize;
    if let Some(count) = doubled {
        return Some(("doubled", format!("is there {count} times")));
    }
    if parts.len() > found {
        return Some(("foreign", "has a part that was not sent".to_owned()));
    }
    let partly = || format!("has {found} of {} parts", entry.parts);
    match entry.fate {
        Fate::Acknowledged if found == 0 => {
            Some(("lost", "was acknowledged and is not there".to_owned()))
        }
        Fate::Acknowledged | Fate::Unknown if found > 0 && !is_whole => Some(("torn", partly())),
        Fate::Undone if found > 0 => Some(("undone", "was rolled back and is there".to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(fate: Fate, parts: u32, present: &[(u32, u64)]) -> Audit {
        let attempted = BTreeMap::from([((1, 7), Entry { parts, fate })]);
        let found: Parts = present.iter().copied().collect();
        let there = Some(found).filter(|found| !found.is_empty());
        audit(
            &attempted,
            &there.map(|found| ((1, 7), found)).into_iter().collect(),
        )
    }

    fn rules(audit: &Audit) -> Vec<&'static str> {
        audit.findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_ledger_that_agrees_passes() {
        for (fate, parts, present) in [
            (Fate::Acknowledged, 2, &[(0, 1), (1, 1)][..]),
            (Fate::Undone, 2, &[]),
            (Fate::Unknown, 1, &[]),
            (Fate::Unknown, 2, &[(0, 1), (1, 1)]),
        ] {
            assert_eq!(rules(&judged(fate, parts, present)), [""; 0], "{fate:?}");
        }
    }

    /// Planted: an acknowledged entry is gone.
    #[test]
    fn a_lost_entry_is_found() {
        assert_eq!(rules(&judged(Fate::Acknowledged, 2, &[])), ["lost"]);
    }

    /// Planted: a proxy has sent a statement again.
    #[test]
    fn a_doubled_entry_is_found() {
        for fate in [Fate::Acknowledged, Fate::Unknown, Fate::Undone] {
            assert_eq!(rules(&judged(fate, 1, &[(0, 2)])), ["doubled"], "{fate:?}");
        }
    }

    /// Planted: half of a transaction is there.
    #[test]
    fn a_torn_entry_is_found() {
        for fate in [Fate::Acknowledged, Fate::Unknown] {
            assert_eq!(rules(&judged(fate, 2, &[(1, 1)])), ["torn"], "{fate:?}");
        }
    }

    /// Planted: a transaction that has rolled back has left a row.
    #[test]
    fn an_undone_entry_that_is_there_is_found() {
        assert_eq!(rules(&judged(Fate::Undone, 2, &[(0, 1)])), ["undone"]);
    }

    /// Planted: the data of a client have reached another one.
    #[test]
    fn an_entry_that_was_not_sent_is_found() {
        let present = BTreeMap::from([((3, 1), Parts::from([(0, 1)]))]);
        assert_eq!(rules(&audit(&BTreeMap::new(), &present)), ["foreign"]);
        assert_eq!(
            rules(&judged(Fate::Acknowledged, 1, &[(0, 1), (5, 1)])),
            ["foreign"]
        );
    }

    #[test]
    fn unknown_entries_are_counted_as_done_or_not() {
        let done = judged(Fate::Unknown, 1, &[(0, 1)]);
        assert_eq!((done.unknown, done.unknown_done), (1, 1));
        let not_done = judged(Fate::Unknown, 1, &[]);
        assert_eq!((not_done.unknown, not_done.unknown_done), (1, 0));
    }
}
