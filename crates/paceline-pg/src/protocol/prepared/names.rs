//! The names that one client has given to its statements.

use std::collections::{HashMap, VecDeque};

use super::Held;

/// The names of one client, and what to undo if the server skips a message.
///
/// ```text
///   Parse name   insert, and remember to forget it    ParseComplete: it stays    skipped: forgotten
///   Close name   remove, and remember what it was     CloseComplete: it is gone  skipped: restored
/// ```
#[derive(Debug, Default)]
pub(crate) struct Names {
    statements: HashMap<Box<[u8]>, Held>,
    /// What waits for a reply, in the order in which it was sent.
    provisional: VecDeque<Undo>,
}

/// How to undo a provisional change.
#[derive(Debug)]
enum Undo {
    /// A Parse: the name was not there.
    Forget(Box<[u8]>),
    /// A Close: this is what the name stood for.
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

    /// A Parse with this name was sent, or is answered in its place.
    pub(crate) fn insert(&mut self, name: &[u8], statement: Held) {
        self.statements.insert(name.into(), statement);
        self.provisional.push_back(Undo::Forget(name.into()));
    }

    /// A Close of this name is answered in its place. Whether the name was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let Some((name, statement)) = self.statements.remove_entry(name) else {
            return false;
        };
        self.provisional.push_back(Undo::Restore(name, statement));
        true
    }

    /// As [`insert`](Self::insert), for a name that waits for no reply.
    pub(crate) fn insert_for_good(&mut self, name: &[u8], statement: Held) {
        self.statements.insert(name.into(), statement);
    }

    /// As [`remove`](Self::remove), for a name that waits for no reply.
    pub(crate) fn remove_for_good(&mut self, name: &[u8]) -> Option<Held> {
        self.statements.remove(name)
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
            Some(Undo::Forget(name)) => drop(self.statements.remove(&name)),
            Some(Undo::Restore(name, statement)) => {
                self.statements.insert(name, statement);
            }
            Some(Undo::Nothing) | None => {}
        }
    }

    /// The order of replies is unknown: all provisional changes stay.
    pub(crate) fn commit_all(&mut self) {
        self.provisional.clear();
    }

    /// The server has forgotten all statements. Those that were sent since are not concerned.
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
    }
}
