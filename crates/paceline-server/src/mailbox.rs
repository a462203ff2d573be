//! The mailbox of one connection: what other code has for it, in order and bounded.
//!
//! A letter decides exactly once: [`Letter::reached`] uses it up, and a letter that is dropped in
//! any other way has missed. So a receipt counts each addressee once, whatever ends a connection.

mod waiting;

use std::{
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Mutex, Weak,
    },
};

use paceline::Piece;

use self::waiting::Waiting;
use crate::{
    encoding::{Body, Encoding},
    link::ConnectionId,
    room::Members,
    sync::lock,
};

/// How many addressees a message has reached, and how many have missed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The system has taken all of the message for so many connections.
    pub reached: usize,
    /// So many connections closed before that, or had no place for it.
    pub missed: usize,
}

/// Which connections a message has reached, and which have missed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// The system has taken all of the message for these connections.
    pub reached: Vec<ConnectionId>,
    /// These connections closed before that, or had no place for it.
    pub missed: Vec<ConnectionId>,
}

/// Whom a sender wants to be called.
pub(crate) enum OnDone {
    Receipt(Box<dyn FnOnce(Receipt) + Send>),
    Delivery(Box<dyn FnOnce(Delivery) + Send>),
}

/// A message on its way, and what became of its letters.
pub(crate) struct Tally {
    body: Body,
    /// Letters that are not decided yet, and one for the sender.
    undecided: AtomicUsize,
    reached: AtomicUsize,
    missed: AtomicUsize,
    /// Their connections, if the sender wants to know.
    delivery: Option<Mutex<Delivery>>,
    on_done: Mutex<Option<OnDone>>,
}

/// What became of a letter.
#[derive(Clone, Copy)]
enum Fate {
    Reached,
    Missed,
}

impl Tally {
    pub(crate) fn new(bytes: Arc<[u8]>, on_done: Option<OnDone>) -> Self {
        let wants_names = matches!(on_done, Some(OnDone::Delivery(_)));
        Self {
            body: Body::new(bytes),
            undecided: AtomicUsize::new(1),
            reached: AtomicUsize::new(0),
            missed: AtomicUsize::new(0),
            delivery: wants_names.then(Mutex::default),
            on_done: Mutex::new(on_done),
        }
    }

    fn decide(&self, to: ConnectionId, fate: Fate) {
        if let Some(delivery) = &self.delivery {
            let mut delivery = lock(delivery);
            match fate {
                Fate::Reached => delivery.reached.push(to),
                Fate::Missed => delivery.missed.push(to),
            }
        }
        let counter = match fate {
            Fate::Reached => &self.reached,
            Fate::Missed => &self.missed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.decide_sender();
    }

    /// One fewer is undecided.
    pub(crate) fn decide_sender(&self) {
        // Pairs with itself: the last one sees the counts of all others.
        if self.undecided.fetch_sub(1, Ordering::AcqRel) == 1 {
            let done = lock(&self.on_done).take();
            if let Some(done) = done {
                // A panic here is not the failure of the session whose letter was the last one.
                let _ = catch_unwind(AssertUnwindSafe(|| self.report(done)));
            }
        }
    }

    fn report(&self, done: OnDone) {
        match done {
            OnDone::Receipt(done) => done(Receipt {
                reached: self.reached.load(Ordering::Relaxed),
                missed: self.missed.load(Ordering::Relaxed),
            }),
            OnDone::Delivery(done) => {
                let delivery = self.delivery.as_ref();
                done(delivery.map_or_else(Delivery::default, |it| std::mem::take(&mut *lock(it))));
            }
        }
    }
}

/// One message on its way to one connection.
pub(crate) struct Letter {
    tally: Arc<Tally>,
    to: ConnectionId,
    /// How many bytes it takes of the mailbox.
    size: usize,
    is_decided: bool,
}

impl Letter {
    /// For this connection, which has this encoding now.
    pub(crate) fn new(tally: &Arc<Tally>, to: ConnectionId, encoding: Encoding) -> Self {
        // The sender's own share is undecided until all letters are made.
        tally.undecided.fetch_add(1, Ordering::Relaxed);
        Self {
            size: tally.body.size(encoding),
            tally: Arc::clone(tally),
            to,
            is_decided: false,
        }
    }

    /// The message in this form.
    pub(crate) fn piece(&self, encoding: Encoding) -> Piece {
        Piece::from(Arc::clone(self.tally.body.encoded(encoding)))
    }

    /// The system has taken all of it.
    pub(crate) fn reached(mut self) {
        self.is_decided = true;
        self.tally.decide(self.to, Fate::Reached);
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        if !self.is_decided {
            self.tally.decide(self.to, Fate::Missed);
        }
    }
}

/// What waits for one connection, and the rooms that it is in.
pub(crate) struct Mailbox {
    limit: usize,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    is_closed: bool,
    /// No letter can follow the end of the output.
    output_ends: bool,
    /// The connection closes behind what waits.
    closes: bool,
    /// The session is called behind what waits.
    calls: bool,
    waiting: Waiting,
    rooms: Vec<Weak<Members>>,
}

/// A letter costs this much at least: the memory of its place, of its buffer and of its receipt.
const LEAST_COST: usize = 64;

/// What may wait in a mailbox.
pub(crate) enum Mail {
    /// Output for the peer.
    Letter(Letter),
    /// The session is called.
    Call,
    /// No output follows.
    EndOfOutput,
    /// The connection closes when all its output is sent.
    Close,
}

/// What became of a letter.
#[must_use]
pub(crate) enum Posted {
    /// It is the first one: its connection must be notified.
    First,
    /// Others wait before it: its connection is notified already.
    Behind,
    /// There is no place for it, or the connection is closed.
    NoPlace(Mail),
}

impl Mail {
    /// How many bytes of a mailbox it takes.
    fn cost(&self) -> usize {
        match self {
            Self::Letter(letter) => letter.size.max(LEAST_COST),
            Self::Call | Self::EndOfOutput | Self::Close => 0,
        }
    }
}

impl Mailbox {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            inside: Mutex::default(),
        }
    }

    pub(crate) fn post(&self, mail: Mail) -> Posted {
        let mut inside = lock(&self.inside);
        let bytes = inside.waiting.bytes() + mail.cost();
        let comes_late = inside.output_ends && matches!(mail, Mail::Letter(_));
        if inside.is_closed || comes_late || bytes > self.limit {
            return Posted::NoPlace(mail);
        }
        let is_there = match mail {
            Mail::Letter(_) => false,
            Mail::Call => std::mem::replace(&mut inside.calls, true),
            Mail::EndOfOutput => std::mem::replace(&mut inside.output_ends, true),
            Mail::Close => std::mem::replace(&mut inside.closes, true),
        };
        if is_there {
            // One of them is enough.
            return Posted::Behind;
        }
        let is_first = inside.waiting.is_empty();
        inside.waiting.push(mail);
        if is_first {
            Posted::First
        } else {
            Posted::Behind
        }
    }

    /// The oldest mail.
    pub(crate) fn take(&self) -> Option<Mail> {
        let mut inside = lock(&self.inside);
        let mail = inside.waiting.pop()?;
        if matches!(mail, Mail::Call) {
            inside.calls = false;
        }
        Some(mail)
    }

    pub(crate) fn has_mail(&self) -> bool {
        !lock(&self.inside).waiting.is_empty()
    }

    /// How many of its bytes are taken.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.inside).waiting.bytes()
    }

    /// Notes a room, which the connection leaves when it closes. Whether it is open.
    pub(crate) fn note_room(&self, room: &Arc<Members>) -> bool {
        let mut inside = lock(&self.inside);
        if !inside.is_closed {
            inside.rooms.push(Arc::downgrade(room));
        }
        !inside.is_closed
    }

    pub(crate) fn forget_room(&self, room: &Arc<Members>) {
        let room = Arc::downgrade(room);
        lock(&self.inside)
            .rooms
            .retain(|other| !other.ptr_eq(&room));
    }

    /// The connection is over: it leaves its rooms, and its letters miss it.
    pub(crate) fn close(&self, id: ConnectionId) {
        let (mail, rooms) = {
            let mut inside = lock(&self.inside);
            inside.is_closed = true;
            (
                std::mem::take(&mut inside.waiting),
                std::mem::take(&mut inside.rooms),
            )
        };
        for room in rooms.iter().filter_map(Weak::upgrade) {
            room.remove(id);
        }
        drop(mail);
    }
}

#[cfg(test)]
mod tests {
    use super::{Mail, Mailbox, Posted};

    /// Each request for an end took a place without a cost, so that a mailbox had no bound. Now one of
    /// each kind waits.
    #[test]
    fn one_end_of_each_kind_waits() {
        let mailbox = Mailbox::new(0);
        let first = mailbox.post(Mail::EndOfOutput);
        assert!(matches!(first, Posted::First));
        for _ in 0..10 {
            for mail in [Mail::Close, Mail::EndOfOutput] {
                assert!(matches!(mailbox.post(mail), Posted::Behind));
            }
        }
        assert!(matches!(mailbox.take(), Some(Mail::EndOfOutput)));
        assert!(matches!(mailbox.take(), Some(Mail::Close)));
        assert!(mailbox.take().is_none());
    }

    /// Mail arrives in its order, and an empty mailbox has no memory for it.
    #[test]
    fn mail_keeps_its_order() {
        let mailbox = Mailbox::new(0);
        assert!(matches!(mailbox.post(Mail::Call), Posted::First));
        for mail in [Mail::EndOfOutput, Mail::Close] {
            assert!(matches!(mailbox.post(mail), Posted::Behind));
        }
        assert!(matches!(mailbox.take(), Some(Mail::Call)));
        assert!(matches!(mailbox.post(Mail::Call), Posted::Behind));
        assert!(matches!(mailbox.take(), Some(Mail::EndOfOutput)));
        assert!(matches!(mailbox.take(), Some(Mail::Close)));
        assert!(mailbox.has_mail());
        assert!(matches!(mailbox.take(), Some(Mail::Call)));
        assert!(mailbox.take().is_none() && !mailbox.has_mail());
        assert!(matches!(mailbox.post(Mail::Call), Posted::First));
        assert!(size_of::<Mailbox>() <= 56, "{}", size_of::<Mailbox>());
    }
}
