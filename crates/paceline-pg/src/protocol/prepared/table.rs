//! The table of statements that all clients of a pool share.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::super::keyword::Class;

/// A statement that a client or a server connection holds.
pub(crate) type Held = Arc<Statement>;

/// A text with the types of its parameters.
#[derive(PartialEq, Eq)]
pub(crate) struct Statement {
    /// Identifies the statement. Never reused, and never zero.
    pub(crate) number: u64,
    /// Its name on the servers.
    pub(crate) name: Box<[u8]>,
    /// The body of its Parse behind the name.
    pub(crate) definition: Box<[u8]>,
    /// Its possible effect on a transaction.
    pub(crate) class: Class,
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Statement").field(&self.number).finish()
    }
}

/// The statements of all clients of one pool (one database and user). A statement that no client
/// and no server holds is forgotten some time later.
#[derive(Debug, Default)]
pub struct Statements(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_definition: HashMap<Key, ()>,
    last_number: u64,
    /// How many statements there may be before the next sweep.
    sweep_at: usize,
}

/// Finds a statement by its definition.
#[derive(Debug)]
struct Key(Held);

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0.definition
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.definition.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.definition == other.0.definition
    }
}

impl Eq for Key {}

/// A table with fewer statements is not swept.
const SMALL: usize = 64;

impl Statements {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many statements it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_definition.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The statement with this definition and class.
    pub(crate) fn get(&self, definition: &[u8], class: Class) -> Held {
        let mut table = self.lock();
        if let Some((found, ())) = table.by_definition.get_key_value(definition) {
            return Arc::clone(&found.0);
        }
        table.sweep();
        let statement = table.create(definition, class);
        table.by_definition.insert(Key(Arc::clone(&statement)), ());
        statement
    }

    /// A statement that is not in the table.
    pub(crate) fn unshared(&self, definition: &[u8], class: Class) -> Held {
        self.lock().create(definition, class)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn create(&mut self, definition: &[u8], class: Class) -> Held {
        self.last_number += 1;
        Arc::new(Statement {
            number: self.last_number,
            name: format!("paceline_{}", self.last_number).into_bytes().into(),
            definition: definition.into(),
            class,
        })
    }

    /// Forgets statements that only the table holds, once it has doubled since the last time.
    fn sweep(&mut self) {
        if self.by_definition.len() < self.sweep_at.max(SMALL) {
            return;
        }
        self.by_definition
            .retain(|key, ()| Arc::strong_count(&key.0) > 1);
        self.sweep_at = 2 * self.by_definition.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_one_statement() {
        let table = Statements::new();
        let first = table.get(b"SELECT 1\0\0\0", Class::Inside);
        let again = table.get(b"SELECT 1\0\0\0", Class::Inside);
        let other = table.get(b"SELECT 2\0\0\0", Class::Inside);
        assert!(Arc::ptr_eq(&first, &again) && first.number != other.number);
        let apart = table.unshared(b"SELECT 1\0\0\0", Class::Inside);
        assert!(apart.number != first.number && table.len() == 2);
    }

    /// The table must drop the statements of disconnected clients, or it would grow for ever.
    #[test]
    fn a_statement_that_nothing_holds_is_forgotten() {
        let table = Statements::new();
        let held = table.get(b"held", Class::Inside);
        for number in 0..10_000_u32 {
            drop(table.get(&number.to_be_bytes(), Class::Inside));
        }
        assert!(table.len() <= 2 * SMALL, "{} statements", table.len());
        assert!(Arc::ptr_eq(&held, &table.get(b"held", Class::Inside)));
    }
}
