//! The threads that wait for the lead, and the order in which they are elected.

use std::sync::Arc;

use crate::sync::Parker;

/// What a sleeping follower can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// You are elected: the lead is offered to you alone.
    Lead,
    /// The pool closes: go.
    Close,
}

/// One thread's place in the pool: how it is named and how it is woken.
#[derive(Debug)]
pub(crate) struct Seat {
    index: usize,
    parker: Arc<Parker>,
}

impl Seat {
    pub(crate) fn new(index: usize) -> Arc<Self> {
        Arc::new(Self {
            index,
            parker: Arc::new(Parker::new()),
        })
    }

    /// The number that observers know this thread by.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    pub(super) fn message(&self) -> Option<Message> {
        match self.parker.message() {
            0 => None,
            1 => Some(Message::Lead),
            _ => Some(Message::Close),
        }
    }

    /// Leaves a message. Only under the followers' lock, by whoever took the seat off the list, and
    /// only after the word was changed: a thread that happens to be awake acts on it at once.
    pub(super) fn post(&self, message: Message) {
        self.parker.post(match message {
            Message::Lead => 1,
            Message::Close => 2,
        });
    }

    /// Wakes the thread; after the lock was released.
    pub(super) fn wake(&self) {
        self.parker.wake();
    }
}

/// The list of followers, newest last. What the pool's one small lock protects.
///
/// Invariant: a seat is in the list if and only if its thread is parked and has no message
/// (while the lock is free).
#[derive(Debug, Default)]
pub(super) struct Followers {
    waiting: Vec<Arc<Seat>>,
}

impl Followers {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Enlists `seat`, whose thread is about to sleep.
    pub(super) fn push(&mut self, seat: &Arc<Seat>) {
        seat.parker.clear();
        self.waiting.push(Arc::clone(seat));
    }

    /// Takes the one to be elected off the list: the newest, whose caches are warm. The caller posts
    /// `Lead` to it under the same lock, once the word says so.
    pub(super) fn pop_best(&mut self) -> Option<Arc<Seat>> {
        self.waiting.pop()
    }

    /// Takes everyone off the list and tells them to go; the caller wakes them after the lock.
    pub(super) fn dismiss(&mut self) -> Vec<Arc<Seat>> {
        let all = std::mem::take(&mut self.waiting);
        all.iter().for_each(|seat| seat.post(Message::Close));
        all
    }

    /// Takes `seat` off the list, if it has no message yet.
    pub(super) fn withdraw(&mut self, seat: &Arc<Seat>) -> Withdrawal {
        match seat.message() {
            Some(message) => Withdrawal::TooLate(message),
            None => {
                self.waiting.retain(|other| !Arc::ptr_eq(other, seat));
                Withdrawal::Done
            }
        }
    }
}

/// What became of an attempt to leave the list.
#[must_use]
#[derive(Debug)]
pub(super) enum Withdrawal {
    /// Off the list; nobody will wake this thread.
    Done,
    /// Someone took the seat off the list first and left this message, which must be obeyed.
    TooLate(Message),
}
