//! Letters of rooms that are sent and perhaps kept by the pool.

use crate::mailbox::Letter;

/// Letters that are sent and perhaps kept by the pool. In a box, because an idle connection has none.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "one word, where a list is three")]
pub(super) struct Letters(Option<Box<Vec<Letter>>>);

impl Letters {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn push(&mut self, letter: Letter) {
        self.0.get_or_insert_default().push(letter);
    }

    /// The peer has taken all output.
    pub(super) fn reached(&mut self) {
        if let Some(letters) = self.0.take() {
            letters.into_iter().for_each(Letter::reached);
        }
    }

    /// The connection is over: they have missed their peer.
    pub(super) fn missed(&mut self) {
        self.0 = None;
    }
}
