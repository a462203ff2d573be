//! The names that one client has given to its statements.

use std::collections::{HashMap, VecDeque};

use super::Held;

/// The most names that one client may have.
const MOST_NAMES: usize = 1 << 16;

/// The most bytes that the statements of one client may have.
const MOST_BYTES: usize = 64 << 20;

/// The names of one client, and what to undo if the server skips a message.
///
/// ```text
///   Parse name   insert, and note `Forget`     ParseComplete: it stays    skipped: forgotten
///   Close name   remove, and note `Restore`    CloseComplete: it is gone  skipped: restored
/// ```
#[derive(Debug, Default)]
pub(crate) struct Names {
    statements: HashMap<Box<[u8]>, Held>,
    /// The bytes of these statements, as if no other client had them too.
    size: usize,
    /// The changes that wait for a reply, in the order of their messages.
    provisional: VecDeque<Undo>,
}

/// How to undo a provisional change.
#[derive(Debug)]
enum Undo {
    /// A Parse: the name was not there.
    Forget(Box<[u8]>),
    /// A Close: the statement of the name before it.
    Restore(Box<[u8]>, Held),
    /// Nothing: the server has forgotten all statements meanwhile.
    Nothing,
}

impl Names {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Held> {
        self.statements.get(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether the client may have another statement, with a definition of `length` bytes.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        self.len() < MOST_NAMES && self.size + length <= MOST_BYTES
    }

    /// A Parse with this name was sent, or is answered in its place.
    pub(crate) fn insert(&mut self, name: &[u8], statement: Held) {
        self.put(name.into(), statement);
        self.provisional.push_back(Undo::Forget(name.into()));
    }

    /// A Close of this name is answered in its place. Returns whether the name existed.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let Some((name, statement)) = self.take(name) else {
            return false;
        };
        self.provisional.push_back(Undo::Restore(name, statement));
        true
    }

    /// As [`insert`](Self::insert), for a name that waits for no reply.
    pub(crate) fn insert_for_good(&mut self, name: &[u8], statement: Held) {
        self.put(name.into(), statement);
    }

    /// As [`remove`](Self::remove), for a name that waits for no reply.
    pub(crate) fn remove_for_good(&mut self, name: &[u8]) -> Option<Held> {
        self.take(name).map(|(_, statement)| statement)
    }

    fn put(&mut self, name: Box<[u8]>, statement: Held) {
        self.size += statement.definition.len();
        if let Some(before) = self.statements.insert(name, statement) {
            self.size -= before.definition.len();
        }
    }

    fn take(&mut self, name: &[u8]) -> Option<(Box<[u8]>, Held)> {
        let (name, statement) = self.statements.remove_entry(name)?;
        self.size -= statement.definition.len();
        Some((name, statement))
    }

    /// The oldest provisional change has got its reply.
    pub(crate) fn commit(&mut self) {
        self.provisional.pop_front();
    }

    /// The server has skipped the youngest provisional change.
    pub(crate) fn undo(&mut self) {
        let undo = self.provisional.pop_back();
        self.take_back(undo);
    }

    /// The server is lost: it has skipped all provisional changes.
    pub(crate) fn undo_all(&mut self) {
        while !self.provisional.is_empty() {
            self.undo();
        }
    }

    /// The oldest provisional change was refused.
    pub(crate) fn undo_oldest(&mut self) {
        let undo = self.provisional.pop_front();
        self.take_back(undo);
    }

    fn take_back(&mut self, undo: Option<Undo>) {
        match undo {
            Some(Undo::Forget(name)) => drop(self.take(&name)),
            Some(Undo::Restore(name, statement)) => self.put(name, statement),
            Some(Undo::Nothing) | None => {}
        }
    }

    /// The order of replies is unknown: all provisional changes stay.
    pub(crate) fn commit_all(&mut self) {
        self.provisional.clear();
    }

    /// The server has forgotten all statements, except those of later messages.
    pub(crate) fn clear(&mut self) {
        let provisional = &mut self.provisional;
        for undo in provisional.iter_mut() {
            if matches!(undo, Undo::Restore(..)) {
                *undo = Undo::Nothing;
            }
        }
        self.statements.retain(|name, _| {
            let is_it = |undo: &Undo| matches!(undo, Undo::Forget(new) if new == name);
            provisional.iter().any(is_it)
        });
        self.size = self
            .statements
            .values()
            .map(|held| held.definition.len())
            .sum();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::keyword::Class, Statements},
        *,
    };

    /// A limit stops a client that keeps preparing statements. Closed statements do not count.
    #[test]
    fn the_statements_of_a_client_have_a_limit() {
        let table = Statements::new();
        let long = table.get(&vec![b'x'; MOST_BYTES / 2], Class::Inside);
        let mut names = Names::default();
        names.insert(b"a", long.clone());
        assert!(names.has_room(MOST_BYTES / 2) && !names.has_room(MOST_BYTES / 2 + 1));
        names.insert(b"b", long);
        assert!(!names.has_room(1));
        names.undo();
        assert!(names.has_room(MOST_BYTES / 2));
        names.commit();
        assert!(names.remove(b"a") && !names.remove(b"a"));
        assert!(names.has_room(MOST_BYTES));
        names.undo();
        assert!(!names.has_room(MOST_BYTES));
        names.clear();
        assert!(names.len() == 0 && names.has_room(MOST_BYTES));
    }

    /// DEALLOCATE ALL discards provisionally closed names for good, and keeps provisionally
    /// prepared ones.
    #[test]
    fn only_what_is_older_is_forgotten() {
        let table = Statements::new();
        let held = table.get(b"x", Class::Inside);
        let mut names = Names::default();
        names.insert_for_good(b"old", held.clone());
        assert!(names.remove(b"old"));
        names.insert(b"new", held);
        names.clear();
        assert_eq!(names.len(), 1);
        names.undo_all();
        assert_eq!(names.len(), 0);
    }
}
