//! A bench: all followers of a pool asleep in one place, where the operating system picks who wakes.
//!
//! Its word counts tickets. Who wakes takes one; who finds none sleeps on. A ticket is issued under the
//! followers' lock for one sleeper that is taken off the list, whoever that turns out to be.

use std::sync::Arc;

use super::followers::Message;
use crate::sync::Parker;

const ONE_LEAD: u32 = 1;
const ONE_STANDBY: u32 = 1 << 8;
const CLOSE: u32 = 1 << 16;
const LEADS: u32 = ONE_STANDBY - 1;

#[derive(Debug)]
pub(super) struct Bench {
    parker: Arc<Parker>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            parker: Arc::new(Parker::new()),
        }
    }

    pub(super) fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    /// Issues a ticket; the caller wakes the bench after the lock.
    pub(super) fn post(&self, message: Message) {
        self.parker.change(|word| match message {
            Message::Lead => word + ONE_LEAD,
            Message::StandBy | Message::Tick => word + ONE_STANDBY,
            Message::Close => word | CLOSE,
        });
    }

    /// Takes a ticket, if there is one.
    pub(super) fn take(&self) -> Option<Message> {
        let was = self.parker.change(|word| match word {
            _ if word & CLOSE != 0 => word,
            _ if word & LEADS != 0 => word - ONE_LEAD,
            _ if word >= ONE_STANDBY => word - ONE_STANDBY,
            _ => word,
        });
        match was {
            _ if was & CLOSE != 0 => Some(Message::Close),
            _ if was & LEADS != 0 => Some(Message::Lead),
            _ if was >= ONE_STANDBY => Some(Message::StandBy),
            _ => None,
        }
    }
}
