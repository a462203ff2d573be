//! What the clients of a list-append run have done and seen.

use std::collections::BTreeMap;

/// The name of a list.
pub type Key = u32;

/// A value of a list. Each value is appended to its list at most once.
pub type Value = u32;

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A value is appended to a list.
    Append(Key, Value),
    /// A list is read, with what it had.
    Read(Key, Vec<Value>),
}

impl Operation {
    /// Its list.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Append(key, _) | Self::Read(key, _) => *key,
        }
    }
}

/// What the client knows of the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has acknowledged the commit.
    Committed,
    /// The transaction is undone.
    Undone,
    /// The client knows nothing.
    Unknown,
}

/// A transaction that a client has attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its operations in their order.
    pub operations: Vec<Operation>,
    /// What the client knows of its end.
    pub outcome: Outcome,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Each transaction, in no order.
    pub transactions: Vec<Transaction>,
    /// Each list as it is at the end.
    pub last: BTreeMap<Key, Vec<Value>>,
}

impl Transaction {
    /// Its appends in their order: lists and values.
    pub(super) fn appends(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        self.operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Append(key, value) => Some((*key, *value)),
                Operation::Read(..) => None,
            })
    }

    /// What it has read of each list before it appended to it.
    pub(super) fn outer_reads(&self) -> impl Iterator<Item = (Key, &[Value])> {
        let mut appended = Vec::new();
        self.operations
            .iter()
            .filter_map(move |operation| match operation {
                Operation::Append(key, _) => {
                    appended.push(*key);
                    None
                }
                Operation::Read(key, _) if appended.contains(key) => None,
                Operation::Read(key, list) => Some((*key, list.as_slice())),
            })
    }
}
