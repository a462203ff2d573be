//! The judgement of list-append: histories of simulated systems, and histories with one fault each.

use std::collections::BTreeMap;

use super::{
    judge, History, Key,
    Operation::{self, Append, Read},
    Outcome::{self, Committed, Undone, Unknown},
    Transaction, Value,
};
use crate::{Isolation, Random};

fn transaction(outcome: Outcome, operations: &[Operation]) -> Transaction {
    Transaction {
        operations: operations.to_vec(),
        outcome,
    }
}

fn history(transactions: &[Transaction], last: &[(Key, &[Value])]) -> History {
    History {
        transactions: transactions.to_vec(),
        last: last
            .iter()
            .map(|(key, list)| (*key, list.to_vec()))
            .collect(),
    }
}

/// The names of what is wrong, each once.
fn rules(history: &History, expected: Isolation) -> Vec<&'static str> {
    let mut rules: Vec<_> = judge(history, expected)
        .iter()
        .map(|one| one.rule)
        .collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

fn strictly(transactions: &[Transaction], last: &[(Key, &[Value])]) -> Vec<&'static str> {
    rules(&history(transactions, last), Isolation::Serializable)
}

const NONE: [&str; 0] = [];

/// How a simulated system runs transactions that overlap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Simulated {
    /// One after the other.
    Serial,
    /// Each sees its start, and one that appends to what has changed since is undone.
    Snapshot,
    /// Each sees its start, and nothing is undone: updates get lost.
    Careless,
}

struct Running {
    operations: Vec<Operation>,
    start: BTreeMap<Key, Vec<Value>>,
}

/// A history of a simulated system with `at_once` transactions at a time.
fn simulated(kind: Simulated, seed: u64, at_once: usize) -> History {
    const LISTS: u64 = 4;
    let mut random = Random::new(seed);
    let mut lists: BTreeMap<Key, Vec<Value>> = (0..4).map(|key| (key, vec![])).collect();
    let mut next: Value = 0;
    let mut history = History::default();
    let mut running: Vec<Running> = Vec::new();
    for _ in 0..400 {
        if running.len() < at_once {
            let operations = (0..=random.below(3)).map(|_| {
                let key = random.below(LISTS) as Key;
                next += 1;
                if random.is_within(50) {
                    Append(key, next)
                } else {
                    Read(key, vec![])
                }
            });
            let operations = operations.collect();
            let start = lists.clone();
            running.push(Running { operations, start });
        }
        if running.len() == at_once {
            let one = running.remove(random.below(at_once as u64) as usize);
            history.transactions.push(ended(kind, one, &mut lists));
        }
    }
    history.last = lists;
    history
}

/// Ends a transaction: what it has read, and whether it has committed.
fn ended(kind: Simulated, running: Running, lists: &mut BTreeMap<Key, Vec<Value>>) -> Transaction {
    let mut view = if kind == Simulated::Serial {
        lists.clone()
    } else {
        running.start.clone()
    };
    let mut operations = running.operations;
    let mut has_conflict = false;
    for operation in &mut operations {
        match operation {
            Append(key, value) => {
                has_conflict |= running.start[key] != lists[key];
                view.entry(*key).or_default().push(*value);
            }
            Read(key, list) => list.clone_from(&view[key]),
        }
    }
    if kind == Simulated::Snapshot && has_conflict {
        return transaction(Undone, &operations);
    }
    for operation in &operations {
        if let Append(key, _) = operation {
            lists.insert(*key, view[key].clone());
        }
    }
    transaction(Committed, &operations)
}

#[test]
fn a_serial_system_passes() {
    for seed in 0..50 {
        let history = simulated(Simulated::Serial, seed, 1);
        assert_eq!(
            rules(&history, Isolation::Serializable),
            NONE,
            "seed {seed}"
        );
    }
}

/// Snapshot isolation allows write skew, which a check for serializability must find.
#[test]
fn a_snapshot_system_passes_as_one_and_is_not_serializable() {
    let mut skewed = 0;
    for seed in 0..50 {
        let history = simulated(Simulated::Snapshot, seed, 4);
        assert_eq!(rules(&history, Isolation::Snapshot), NONE, "seed {seed}");
        skewed += usize::from(rules(&history, Isolation::Serializable) == ["G2"]);
    }
    assert!(
        skewed > 40,
        "write skew was found in {skewed} of 50 histories"
    );
}

/// Planted: a system without any conflict check.
#[test]
fn a_careless_system_fails_for_each_seed() {
    for seed in 0..50 {
        let history = simulated(Simulated::Careless, seed, 4);
        let found = rules(&history, Isolation::ReadCommitted);
        assert!(found.contains(&"lost"), "seed {seed}: {found:?}");
    }
}

/// Planted: an acknowledged append is gone, and no read had seen it.
#[test]
fn a_lost_append_is_found_by_the_final_read() {
    let transactions = [
        transaction(Committed, &[Append(1, 1)]),
        transaction(Committed, &[Append(1, 2)]),
    ];
    assert_eq!(strictly(&transactions, &[(1, &[1, 2])]), NONE);
    assert_eq!(strictly(&transactions, &[(1, &[1])]), ["lost"]);
    assert_eq!(strictly(&transactions, &[]), ["lost"]);
}

/// Planted: an append is applied twice.
#[test]
fn a_doubled_append_is_found() {
    let transactions = [transaction(Committed, &[Append(1, 1)])];
    assert_eq!(strictly(&transactions, &[(1, &[1, 1])]), ["doubled"]);
}

/// Planted: a list has the value of another program.
#[test]
fn a_foreign_value_is_found() {
    assert_eq!(strictly(&[], &[(1, &[9])]), ["foreign"]);
}

/// Planted: half of a transaction of unknown outcome is there.
#[test]
fn a_torn_transaction_is_found() {
    let transactions = [transaction(Unknown, &[Append(1, 1), Append(1, 2)])];
    assert_eq!(strictly(&transactions, &[(1, &[1])]), ["torn"]);
    for whole in [&[(1, &[1, 2][..])][..], &[(1, &[][..])]] {
        assert_eq!(strictly(&transactions, whole), NONE);
    }
}

/// Planted: two lists of one transaction of unknown outcome, of which one is there.
#[test]
fn a_transaction_torn_between_lists_is_found() {
    let transactions = [transaction(Unknown, &[Append(1, 1), Append(2, 1)])];
    assert_eq!(strictly(&transactions, &[(1, &[1])]), ["torn"]);
}

/// Planted: two readers see two orders.
#[test]
fn reads_in_two_orders_are_found() {
    let transactions = [
        transaction(Committed, &[Append(1, 1)]),
        transaction(Committed, &[Append(1, 2)]),
        transaction(Committed, &[Read(1, vec![2])]),
    ];
    assert_eq!(strictly(&transactions, &[(1, &[1, 2])]), ["order"]);
}

/// Planted: a reader sees what is rolled back afterwards.
#[test]
fn a_read_of_what_is_rolled_back_is_found() {
    let transactions = [
        transaction(Undone, &[Append(1, 1)]),
        transaction(Committed, &[Read(1, vec![1])]),
    ];
    assert!(strictly(&transactions, &[(1, &[])]).contains(&"G1a"));
    assert_eq!(strictly(&transactions, &[(1, &[1])]), ["G1a"]);
}

/// Planted: a reader sees the middle of a transaction.
#[test]
fn a_read_within_a_transaction_is_found() {
    let transactions = [
        transaction(Committed, &[Append(1, 1), Append(1, 2)]),
        transaction(Committed, &[Read(1, vec![1])]),
    ];
    let found = strictly(&transactions, &[(1, &[1, 2])]);
    assert!(found.contains(&"G1b"), "{found:?}");
}

/// Planted: a transaction does not see its own append, or the list changes under it.
#[test]
fn a_transaction_that_does_not_see_itself_is_found() {
    let unseen = [transaction(Committed, &[Append(1, 1), Read(1, vec![])])];
    assert_eq!(strictly(&unseen, &[(1, &[1])]), ["internal"]);
    let changing = [
        transaction(Committed, &[Append(1, 1)]),
        transaction(Committed, &[Read(1, vec![]), Read(1, vec![1])]),
    ];
    assert!(strictly(&changing, &[(1, &[1])]).contains(&"internal"));
    let own = [transaction(
        Committed,
        &[Read(1, vec![]), Append(1, 1), Read(1, vec![1])],
    )];
    assert_eq!(strictly(&own, &[(1, &[1])]), NONE);
}

/// The cycles of Adya's thesis, each with the levels that forbid it.
#[test]
fn each_cycle_is_found_where_it_is_forbidden() {
    let interleaved = [
        transaction(Committed, &[Append(1, 1), Append(2, 1)]),
        transaction(Committed, &[Append(1, 2), Append(2, 2)]),
    ];
    let writes = history(&interleaved, &[(1, &[1, 2]), (2, &[2, 1])]);
    let each_sees_the_other = [
        transaction(Committed, &[Append(1, 1), Read(2, vec![2])]),
        transaction(Committed, &[Append(2, 2), Read(1, vec![1])]),
    ];
    let information = history(&each_sees_the_other, &[(1, &[1]), (2, &[2])]);
    let half_seen = [
        transaction(Committed, &[Append(1, 1), Append(2, 1)]),
        transaction(Committed, &[Read(1, vec![1]), Read(2, vec![])]),
    ];
    let skewed_read = history(&half_seen, &[(1, &[1]), (2, &[1])]);
    let skew = [
        transaction(Committed, &[Read(1, vec![]), Append(2, 1)]),
        transaction(Committed, &[Read(2, vec![]), Append(1, 1)]),
    ];
    let skewed_write = history(&skew, &[(1, &[1]), (2, &[1])]);
    for (history, name, weakest) in [
        (writes, "G0", Isolation::ReadCommitted),
        (information, "G1c", Isolation::ReadCommitted),
        (skewed_read, "G-single", Isolation::Snapshot),
        (skewed_write, "G2", Isolation::Serializable),
    ] {
        for level in [
            Isolation::ReadCommitted,
            Isolation::Snapshot,
            Isolation::Serializable,
        ] {
            let expected: &[_] = if level >= weakest { &[name] } else { &[] };
            assert_eq!(rules(&history, level), expected, "{name} at {level}");
        }
    }
}

/// Planted: a reader sees one list without, and another one with, the same transaction.
#[test]
fn a_value_behind_those_read_makes_a_dependency() {
    let transactions = [
        transaction(Committed, &[Append(1, 1)]),
        transaction(Committed, &[Append(1, 2), Append(2, 1)]),
        transaction(Committed, &[Read(1, vec![1]), Read(2, vec![1])]),
    ];
    let last: [(Key, &[Value]); 2] = [(1, &[1, 2]), (2, &[1])];
    assert_eq!(strictly(&transactions, &last), ["G-single"]);
}

/// A cycle has no first transaction: what is at the end of its description is beside its start.
#[test]
fn two_rw_across_the_start_of_a_cycle_are_neighbours() {
    let transactions = [
        transaction(Committed, &[Read(1, vec![]), Append(3, 1)]),
        transaction(Committed, &[Append(1, 1), Append(2, 1)]),
        transaction(Committed, &[Read(2, vec![1]), Read(3, vec![])]),
    ];
    let skew = history(&transactions, &[(1, &[1]), (2, &[1]), (3, &[1])]);
    assert_eq!(rules(&skew, Isolation::Snapshot), NONE);
    assert_eq!(rules(&skew, Isolation::Serializable), ["G2"]);
}

/// Two readers that see two independent appends in two orders. Snapshot isolation forbids it: no
/// two of the four rw and wr edges are rw one behind the other.
#[test]
fn a_long_fork_is_no_snapshot() {
    let fork = [
        transaction(Committed, &[Append(1, 1)]),
        transaction(Committed, &[Append(2, 1)]),
        transaction(Committed, &[Read(1, vec![1]), Read(2, vec![])]),
        transaction(Committed, &[Read(1, vec![]), Read(2, vec![1])]),
    ];
    let fork = history(&fork, &[(1, &[1]), (2, &[1])]);
    assert_eq!(rules(&fork, Isolation::ReadCommitted), NONE);
    assert_eq!(rules(&fork, Isolation::Snapshot), ["G-nonadjacent"]);
}

/// A transaction whose client lost its connection is a part of a cycle if its appends are there.
#[test]
fn unknown_transactions_that_are_done_take_part() {
    let fork = |outcome| {
        let transactions = [
            transaction(outcome, &[Append(1, 1), Append(2, 1)]),
            transaction(Committed, &[Read(1, vec![1]), Read(2, vec![])]),
        ];
        judge(
            &history(&transactions, &[(1, &[1]), (2, &[1])]),
            Isolation::Snapshot,
        )
    };
    let found = fork(Unknown);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].text.contains("unknown to their clients"),
        "{}",
        found[0]
    );
}

/// A chain of dependencies is longer than a thread's stack would allow.
#[test]
fn a_long_history_is_judged() {
    let count: Value = 200_000;
    let transactions: Vec<_> = (1..=count)
        .map(|value| transaction(Committed, &[Append(1, value)]))
        .collect();
    let list: Vec<_> = (1..=count).collect();
    assert_eq!(strictly(&transactions, &[(1, &list)]), NONE);
}
