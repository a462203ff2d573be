//! What a client does on one connection, in any protocol: it sends requests, checks the replies, and leaves.

use super::wire::Nudges;

/// One connection of the load. Dropping it leaves at once.
pub(super) trait Conversation: Send {
    /// Sends `count` messages in one piece.
    fn ask(&mut self, count: u64) -> Result<(), End>;

    /// Reads until everything that was asked is answered; reports its findings on the way.
    fn collect(&mut self, found: &mut dyn FnMut(&Findings)) -> Result<(), End>;

    /// Closes gracefully: nothing more is sent, what is on its way arrives, and the server closes too.
    fn close(&mut self, found: &mut dyn FnMut(&Findings)) -> Result<(), End>;

    /// Sends one more request, and drops its reply unread, which resets the connection.
    fn reset(self: Box<Self>, found: &mut dyn FnMut(&Findings)) -> Result<(), End>;

    /// How many messages were answered.
    fn answered(&self) -> u64;

    /// How many were not.
    fn unanswered(&self) -> u64;

    /// The nudges since the last time.
    fn take_nudges(&mut self) -> Nudges;
}

/// Why a connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was closed or reset: that is visible.
    Ended,
    /// Nothing came in time.
    Hung,
    /// What came cannot be understood.
    Garbled,
}

/// What is wrong, or right, with what came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Messages that were answered as they must be.
    pub(super) answered: u64,
    /// Messages that did not come, though they must have, or came changed.
    pub(super) lost: u64,
    /// Messages that came again.
    pub(super) doubled: u64,
    /// Messages that belong to others.
    pub(super) misrouted: u64,
    /// Something came that is no message: nothing behind it can be understood.
    pub(super) garbled: bool,
}
