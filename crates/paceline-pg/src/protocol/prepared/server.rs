//! The prepared statements of one server connection.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use super::Held;

/// The statements of one server connection, after the server has read all messages sent to it.
#[derive(Debug, Default)]
pub(crate) struct OnServer {
    statements: HashMap<u64, Used, BuildHasherDefault<NumberHasher>>,
    /// Counts uses.
    clock: u64,
    /// Statements with changed result types, to be closed before their next use.
    stale: Vec<Held>,
}

#[derive(Debug)]
struct Used {
    statement: Held,
    /// The clock at its last use.
    at: u64,
}

impl OnServer {
    /// Marks the statement as used. Returns whether the server has it.
    pub(crate) fn touch(&mut self, number: u64) -> bool {
        self.clock += 1;
        let used = self.statements.get_mut(&number);
        used.map(|used| used.at = self.clock).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.statements.len()
    }

    pub(crate) fn insert(&mut self, statement: Held) {
        self.clock += 1;
        let at = self.clock;
        let number = statement.number;
        self.statements.insert(number, Used { statement, at });
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Held> {
        let used = self.statements.remove(&number)?;
        Some(used.statement)
    }

    /// Takes the statement that has not been used for the longest time, if there are `limit` or
    /// more.
    pub(crate) fn evict(&mut self, limit: usize) -> Option<Held> {
        if self.statements.len() < limit {
            return None;
        }
        let oldest = self.statements.values().min_by_key(|used| used.at)?;
        let number = oldest.statement.number;
        self.remove(number)
    }

    /// Marks a statement as unusable, because its result types have changed.
    pub(crate) fn spoil(&mut self, number: u64) {
        let statement = self.remove(number);
        self.stale.extend(statement);
    }

    /// Takes the next unusable statement.
    pub(crate) fn next_stale(&mut self) -> Option<Held> {
        self.stale.pop()
    }

    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.stale.clear();
    }
}

/// Spreads consecutive numbers. The front-end chooses them, so no client can cause collisions.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
