//! What became of every value that a pool was given: `closed` called once, dropped once, or given
//! back.

use std::{
    fmt::Write,
    sync::{Arc, Mutex},
};

use paceline::Handle;

/// What is expected of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its `closed` is called once, if it was accepted.
    Handler,
    /// A listener's maker made it. The pool may drop it instead of registering it, before it was
    /// ever called.
    Made,
    /// It is called at most once.
    Once,
    /// It is only dropped.
    Value,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    what: &'static str,
    accepted: bool,
    called: u32,
    closed: u32,
    dropped: u32,
    handle: Option<Handle>,
}

/// Every value of a round.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Mutex<Vec<Entry>>,
    complaints: Mutex<Vec<String>>,
}

/// The name of one value.
pub(crate) type Id = usize;

/// Part of a value: notes that the value is dropped.
#[derive(Debug)]
pub(crate) struct Life {
    ledger: Arc<Ledger>,
    pub(crate) id: Id,
}

impl Ledger {
    pub(crate) fn begin(self: &Arc<Self>, kind: Kind, what: &'static str) -> Life {
        let mut entries = self.entries.lock().unwrap();
        entries.push(Entry {
            kind,
            what,
            accepted: false,
            called: 0,
            closed: 0,
            dropped: 0,
            handle: None,
        });
        let id = entries.len() - 1;
        Life {
            ledger: Arc::clone(self),
            id,
        }
    }

    fn note<R>(&self, id: Id, note: impl FnOnce(&mut Entry) -> R) -> R {
        note(&mut self.entries.lock().unwrap()[id])
    }

    pub(crate) fn accept(&self, id: Id) {
        self.note(id, |entry| entry.accepted = true);
    }

    /// The pool did not take it.
    pub(crate) fn refuse(&self, id: Id) {
        self.note(id, |entry| entry.accepted = false);
    }

    pub(crate) fn set_handle(&self, id: Id, handle: Handle) {
        let old = self.note(id, |entry| entry.handle.replace(handle));
        drop(old);
    }

    pub(crate) fn handle(&self, id: Id) -> Option<Handle> {
        self.note(id, |entry| entry.handle.clone())
    }

    /// The keys of all values that have one.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let entries = self.entries.lock().unwrap();
        entries
            .iter()
            .filter_map(|entry| entry.handle.clone())
            .collect()
    }

    /// The value has ended: its `closed` was called, or it was dropped.
    pub(crate) fn has_ended(&self, id: Id) -> bool {
        self.note(id, |entry| entry.closed > 0 || entry.dropped > 0)
    }

    /// Nothing is left of the value.
    pub(crate) fn is_gone(&self, id: Id) -> bool {
        self.note(id, |entry| {
            entry.dropped == 1 && (entry.kind != Kind::Handler || entry.closed == 1)
        })
    }

    /// How many values of this kind are not dropped.
    pub(crate) fn left_of(&self, kind: Kind) -> usize {
        let entries = self.entries.lock().unwrap();
        let left = entries
            .iter()
            .filter(|entry| entry.kind == kind && entry.dropped == 0);
        left.count()
    }

    pub(crate) fn complain(&self, what: String) {
        let mut complaints = self.complaints.lock().unwrap();
        if complaints.len() < 20 {
            complaints.push(what);
        }
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap().clone()
    }

    /// What is wrong at the end of the round, when every pool is gone (H3, S2).
    pub(crate) fn judge(&self) -> Vec<String> {
        let entries = self.entries.lock().unwrap();
        let wrong = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| !entry.is_right());
        wrong
            .map(|(id, entry)| format!("value {id}: {entry}"))
            .collect()
    }

    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for (id, entry) in self.entries.lock().unwrap().iter().enumerate() {
            if entry.dropped == 0 {
                let _ = writeln!(text, "  value {id}: {entry}");
            }
        }
        text
    }
}

impl Entry {
    fn is_right(&self) -> bool {
        let calls = match self.kind {
            Kind::Once => 1,
            _ => u32::MAX,
        };
        self.dropped == 1 && self.is_closed_as_often_as_it_must() && self.called <= calls
    }

    fn is_closed_as_often_as_it_must(&self) -> bool {
        match self.kind {
            Kind::Handler => self.closed == u32::from(self.accepted),
            Kind::Made if self.handle.is_some() => self.closed == 1,
            Kind::Made => self.closed <= 1,
            Kind::Once | Kind::Value => true,
        }
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind,
            what,
            accepted,
            called,
            closed,
            dropped,
            handle,
        } = self;
        let accepted = if *accepted { "accepted" } else { "refused" };
        let handle = handle.as_ref().map(Handle::id);
        write!(f, "{what} ({kind:?}, {handle:?}), {accepted}, ")?;
        write!(f, "calls {called}, closed {closed}, dropped {dropped}")
    }
}

impl Life {
    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(crate) fn accept(&self) {
        self.ledger.accept(self.id);
    }

    pub(crate) fn called(&self) {
        self.ledger.note(self.id, |entry| entry.called += 1);
    }

    pub(crate) fn closed(&self) {
        self.ledger.note(self.id, |entry| entry.closed += 1);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.ledger.note(self.id, |entry| entry.dropped += 1);
    }
}

/// Panics when it is dropped, unless its thread panics already.
#[derive(Debug)]
pub(crate) struct Bomb(pub(crate) bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 && !std::thread::panicking() {
            panic!("misuse: in a drop");
        }
    }
}
