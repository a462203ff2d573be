//! Judges a history of list-append: first each list by itself, then the transactions together.
//!
//! The lists at the end give the order of the appends to each list. That every read is a start of
//! its list, with nothing twice, makes the dependencies of the transactions certain:
//!
//! ```text
//!   ww   the next value of the list is of the other transaction
//!   wr   the other transaction has read the list up to this value
//!   rw   the other transaction has appended the value behind what was read
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::{
    cycles,
    graph::{Edge, Graph, Kind},
    history::{History, Key, Operation, Outcome, Value},
};
use crate::{finding::Finding, options::Isolation};

/// Everything that is wrong with a history whose transactions were to be isolated like this.
#[must_use]
pub fn judge(history: &History, expected: Isolation) -> Vec<Finding> {
    let writers = Writers::of(history);
    let mut findings = Vec::new();
    findings.extend(lists(history, &writers));
    findings.extend(lost(history));
    findings.extend(reads(history, &writers));
    if expected >= Isolation::Snapshot {
        findings.extend(history.transactions.iter().enumerate().filter_map(own_view));
    }
    findings.extend(cycles::find(history, &graph(history, &writers), expected));
    findings
}

/// Which transaction has appended a value.
struct Writers(BTreeMap<(Key, Value), usize>);

impl Writers {
    fn of(history: &History) -> Self {
        let all = history.transactions.iter().enumerate();
        let appends = all.flat_map(|(number, transaction)| {
            transaction.appends().map(move |append| (append, number))
        });
        Self(appends.collect())
    }

    fn get(&self, key: Key, value: Value) -> Option<usize> {
        self.0.get(&(key, value)).copied()
    }
}

/// What is wrong with the lists at the end.
fn lists(history: &History, writers: &Writers) -> Vec<Finding> {
    let by_list = history.last.iter().flat_map(|(key, list)| {
        let what = format!("list {key} at the end");
        values(history, writers, *key, list, &what)
    });
    by_list.collect()
}

/// Finds the wrong values of one list: those that the list holds twice, that no transaction has
/// appended, or whose transaction was undone.
fn values(
    history: &History,
    writers: &Writers,
    key: Key,
    list: &[Value],
    what: &str,
) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let wrong = list.iter().filter_map(|value| {
        let writer = writers.get(key, *value);
        if !seen.insert(*value) {
            return Some(Finding::new("doubled", format!("{what} has {value} twice")));
        }
        let Some(writer) = writer else {
            let text = format!("{what} has {value}, which was not appended");
            return Some(Finding::new("foreign", text));
        };
        let is_undone = history.transactions[writer].outcome == Outcome::Undone;
        is_undone.then(|| {
            let text = format!("{what} has {value} of T{writer}, which was rolled back");
            Finding::new("G1a", text)
        })
    });
    wrong.collect()
}

/// Acknowledged appends that the lists at the end do not have, and transactions of unknown outcome
/// of which they have a part.
fn lost(history: &History) -> Vec<Finding> {
    let lists = history.last.iter();
    let present: BTreeSet<_> = lists
        .flat_map(|(key, list)| list.iter().map(move |value| (*key, *value)))
        .collect();
    let wrong = history.transactions.iter().enumerate();
    let wrong = wrong.filter_map(|(number, transaction)| {
        let appends = || transaction.appends();
        let missing: Vec<_> = appends().filter(|one| !present.contains(one)).collect();
        if missing.is_empty() {
            return None;
        }
        let is_partly_there = missing.len() < appends().count();
        match transaction.outcome {
            Outcome::Committed => {
                let text = format!("T{number} was acknowledged; missing are {missing:?}");
                Some(Finding::new("lost", text))
            }
            Outcome::Unknown if is_partly_there => {
                let text = format!("T{number} is there in part; missing are {missing:?}");
                Some(Finding::new("torn", text))
            }
            _ => None,
        }
    });
    wrong.collect()
}

/// What is wrong with the reads of transactions that have committed.
fn reads(history: &History, writers: &Writers) -> Vec<Finding> {
    let mut findings = Vec::new();
    let none = Vec::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        if transaction.outcome != Outcome::Committed {
            continue;
        }
        for (key, list) in transaction.outer_reads() {
            let what = format!("the read of list {key} by T{number}");
            let last = history.last.get(&key).unwrap_or(&none);
            if !last.starts_with(list) {
                findings.extend(values(history, writers, key, list, &what));
                let text = format!("{what} has {list:?}, and at the end there is {last:?}");
                findings.push(Finding::new("order", text));
            }
            findings.extend(intermediate(history, writers, key, list, &what));
        }
    }
    findings
}

/// A read that ends between two appends of one transaction.
fn intermediate(
    history: &History,
    writers: &Writers,
    key: Key,
    list: &[Value],
    what: &str,
) -> Option<Finding> {
    let last = list.last()?;
    let writer = writers.get(key, *last)?;
    let appends = history.transactions[writer].appends();
    let final_one = appends.filter(|(other, _)| *other == key).last();
    let is_within = final_one != Some((key, *last));
    is_within.then(|| {
        let text = format!("{what} ends at {last}, within the appends of T{writer}");
        Finding::new("G1b", text)
    })
}

/// What a transaction has read after its own appends and reads must follow from them.
fn own_view((number, transaction): (usize, &super::history::Transaction)) -> Option<Finding> {
    let mut views: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    let mut unseen: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    for operation in &transaction.operations {
        match operation {
            Operation::Append(key, value) => match views.get_mut(key) {
                Some(view) => view.push(*value),
                None => unseen.entry(*key).or_default().push(*value),
            },
            Operation::Read(key, list) => {
                let own = unseen.remove(key).unwrap_or_default();
                let is_right = match views.get(key) {
                    Some(view) => view == list,
                    None => list.ends_with(&own),
                };
                if !is_right && transaction.outcome == Outcome::Committed {
                    let text = format!(
                        "T{number} reads {list:?} of list {key} after {own:?} and {views:?}"
                    );
                    return Some(Finding::new("internal", text));
                }
                views.insert(*key, list.clone());
            }
        }
    }
    None
}

/// The dependencies of the transactions that have committed, or whose appends are there.
fn graph(history: &History, writers: &Writers) -> Graph {
    let mut graph = Graph::new(history.transactions.len());
    for (key, list) in &history.last {
        let pairs = list.iter().zip(list.iter().skip(1));
        for (value, next) in pairs {
            add(
                &mut graph,
                writers.get(*key, *value),
                writers.get(*key, *next),
                Kind::Ww,
                *key,
                *next,
            );
        }
    }
    let none = Vec::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        if transaction.outcome != Outcome::Committed {
            continue;
        }
        for (key, list) in transaction.outer_reads() {
            let last = history.last.get(&key).unwrap_or(&none);
            let seen = list.last();
            if let Some(value) = seen {
                add(
                    &mut graph,
                    writers.get(key, *value),
                    Some(number),
                    Kind::Wr,
                    key,
                    *value,
                );
            }
            let next = match seen {
                Some(value) => last.iter().skip_while(|other| *other != value).nth(1),
                None => last.first(),
            };
            if let Some(value) = next {
                add(
                    &mut graph,
                    Some(number),
                    writers.get(key, *value),
                    Kind::Rw,
                    key,
                    *value,
                );
            }
        }
    }
    graph
}

fn add(
    graph: &mut Graph,
    from: Option<usize>,
    to: Option<usize>,
    kind: Kind,
    key: Key,
    value: Value,
) {
    if let (Some(from), Some(to)) = (from, to) {
        if from != to {
            graph.add(
                from,
                Edge {
                    to,
                    kind,
                    key,
                    value,
                },
            );
        }
    }
}
