//! A shared parker: all followers of a pool asleep in one place, where the operating system picks
//! the one that wakes.
//!
//! Its word counts tickets to lead. A thread that wakes takes one; one that finds none sleeps on. A
//! ticket is issued under the followers' lock for one sleeper that is taken off the list, whichever
//! that turns out to be.

use std::sync::Arc;

use super::followers::Message;
use crate::sync::Parker;

const ONE_TICKET: u32 = 1;
const CLOSE: u32 = 1 << 16;

#[derive(Debug)]
pub(super) struct SharedParker {
    parker: Arc<Parker>,
}

impl SharedParker {
    pub(super) fn new() -> Self {
        Self {
            parker: Arc::new(Parker::new()),
        }
    }

    pub(super) fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    /// Issues a ticket, or closes for all; the caller wakes the shared parker after the lock.
    pub(super) fn post(&self, message: Message) {
        self.parker.change(|word| match message {
            Message::Close => word | CLOSE,
            _ => word + ONE_TICKET,
        });
    }

    /// Takes a ticket, if there is one.
    pub(super) fn take(&self) -> Option<Message> {
        let was = self.parker.change(|word| match word {
            0 => 0,
            _ if word & CLOSE != 0 => word,
            _ => word - ONE_TICKET,
        });
        match was {
            0 => None,
            _ if was & CLOSE != 0 => Some(Message::Close),
            _ => Some(Message::Lead),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A shutdown closes more than once: the leader that finds nothing left, and the caller of the
    /// shutdown. A sleeper that wakes after all of that goes too, and so does the next.
    #[test]
    fn closed_twice_is_closed() {
        let shared_parker = SharedParker::new();
        shared_parker.post(Message::Lead);
        shared_parker.post(Message::Close);
        shared_parker.post(Message::Close);
        for _ in 0..3 {
            assert_eq!(shared_parker.take(), Some(Message::Close));
        }
    }
}
