//! The loss with a server connection: that of the worst message in flight.

use super::{super::keyword::Class, model::Entry, Loss};

/// The transaction's state during a pass over the messages in flight, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    /// Whether the last `Z` said that a block was open.
    was_in_block: bool,
    /// Whether the next statement runs inside of a block.
    is_in_block: bool,
    /// A statement was sent that ends the block: what follows in another batch may commit.
    has_left: bool,
    loss: Loss,
}

impl Tally {
    /// After a `Z`.
    pub(crate) fn new(is_in_block: bool) -> Self {
        Self {
            was_in_block: is_in_block,
            is_in_block,
            has_left: false,
            loss: Loss::Nothing,
        }
    }

    /// The loss. An open block is always lost.
    pub(crate) fn loss(self) -> Loss {
        if self.was_in_block {
            self.loss.max(Loss::RolledBack)
        } else {
            self.loss
        }
    }

    /// A message of the client was sent.
    pub(crate) fn sent(&mut self) {
        self.loss = self.loss.max(Loss::RolledBack);
    }

    /// An entry was sent, or answered within the present batch.
    pub(crate) fn add(&mut self, entry: &Entry) {
        match entry {
            entry if entry.is_own_query() => {}
            Entry::Query(_, class) => {
                self.statement(*class);
                self.end_batch();
            }
            Entry::Function => self.loss = Loss::Unknown,
            Entry::Execute(class) => self.statement(*class),
            Entry::Sync(_) => {
                self.sent();
                self.end_batch();
            }
            _ => self.sent(),
        }
    }

    fn statement(&mut self, class: Class) {
        self.sent();
        match class {
            // If it fails, the rest of its batch is skipped.
            Class::Opens => self.is_in_block = true,
            Class::RollsBack if self.is_in_block => {
                (self.is_in_block, self.has_left) = (false, true);
            }
            Class::Inside | Class::Forgets if self.is_in_block => {}
            Class::RollsBack
            | Class::Inside
            | Class::Forgets
            | Class::MayCommit
            | Class::Several => {
                self.loss = Loss::Unknown;
            }
        }
    }

    /// A statement in another batch runs also if the one that opens a block has failed.
    fn end_batch(&mut self) {
        self.is_in_block = self.was_in_block && !self.has_left;
    }
}
