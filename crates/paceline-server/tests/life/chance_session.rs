//! A session under chance, and the ledger of what became of all of them.

use std::{
    collections::HashMap,
    io,
    panic::resume_unwind,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use paceline_server::{
    codec::{dot_chunks, exact, line, lines, prefixed, raw, Framing, Malformed, Message},
    Ended, Limit, Next, Peer, Remote, Room, Session,
};

use crate::support::Random;

/// What became of all sessions and receipts of a round.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) sessions: HashMap<u64, State>,
    /// What must not be, in words.
    pub(super) violations: Vec<String>,
    pub(super) remotes: Vec<Remote>,
    pub(super) receipts_due: usize,
    /// Sessions that exist.
    pub(super) alive: usize,
    pub(super) made: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Made,
    Started,
    Closed,
}

#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    pub(super) fn with<R>(&self, with: impl FnOnce(&mut Ledger) -> R) -> R {
        with(&mut self.0.lock().unwrap())
    }

    /// The server calls the session of this number.
    fn called(&self, number: u64, function: &str) {
        self.with(|ledger| {
            let state = ledger.sessions[&number];
            if state == State::Closed {
                let text = format!("session {number}: {function} behind its end");
                ledger.violations.push(text);
            }
            ledger.sessions.insert(number, State::Started);
        });
    }

    fn closed(&self, number: u64, why: &Ended) {
        self.with(|ledger| {
            let before = ledger.sessions.insert(number, State::Closed);
            if before == Some(State::Closed) {
                let text = format!("session {number}: closed again ({why})");
                ledger.violations.push(text);
            }
        });
    }
}

/// What the sessions of a round do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They count the items and send each back, so that a lost one is seen.
    Counting,
    /// Anything.
    Anything,
}

pub(super) struct Chaos {
    number: u64,
    mode: Mode,
    shared: Shared,
    random: Random,
    room: Room,
    /// The next item, if they are counted.
    expected: u64,
    parts: usize,
}

impl Chaos {
    pub(super) fn new(mode: Mode, shared: &Shared, room: &Room, seed: u64) -> Self {
        let number = shared.with(|ledger| {
            ledger.made += 1;
            ledger.alive += 1;
            ledger.sessions.insert(ledger.made, State::Made);
            ledger.made
        });
        Self {
            number,
            mode,
            shared: shared.clone(),
            random: Random::new(seed ^ (number << 20)),
            room: room.clone(),
            expected: 0,
            parts: 0,
        }
    }

    /// Something that a session may do, and what it returns.
    fn act(&mut self, function: &str, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.shared.called(self.number, function);
        match self.random.below(20) {
            0 => cx.set_deadline(Duration::from_millis(self.random.below(5000) as u64)),
            1 => cx.set_deadline(None),
            2 => cx.blocking(thread::yield_now),
            3 => cx.wake_follower(),
            4 => self.shared.with(|ledger| ledger.remotes.push(cx.remote())),
            5 | 6 => self.act_on_another(),
            7 if self.parts < 3 => {
                self.parts += 1;
                return Ok(Next::Again);
            }
            8 if self.random.below(3) == 0 => return self.end(),
            9.. if self.mode == Mode::Anything => self.act_freely(cx)?,
            _ => {}
        }
        self.parts = 0;
        Ok(Next::Continue)
    }

    /// What would spoil a count.
    fn act_freely(&mut self, cx: &mut Peer<'_>) -> io::Result<()> {
        match self.random.below(10) {
            0 => drop(self.room.join(cx)),
            1 => drop(self.room.leave(cx.id())),
            2 | 3 => self.send_to_room(cx),
            4 => cx.switch(codec(&mut self.random)),
            5 => cx.send(vec![b'x'; self.random.below(900)])?,
            6 => drop(cx.reply(b"reply")),
            _ => {}
        }
        Ok(())
    }

    fn send_to_room(&mut self, cx: &Peer<'_>) {
        let shared = self.shared.clone();
        shared.with(|ledger| ledger.receipts_due += 1);
        let message = self.room.message(vec![b'm'; self.random.below(200)]);
        let message = message.except(cx.id());
        // With a receipt that comes twice, the number due goes below zero, which panics.
        let done = move || shared.with(|ledger| ledger.receipts_due -= 1);
        if self.random.below(2) == 0 {
            message.on_done(move |_| done()).send();
        } else {
            message.on_delivery(move |_| done()).send();
        }
    }

    fn act_on_another(&mut self) {
        let chosen = self.random.below(1000);
        let other = self.shared.with(|ledger| {
            let count = ledger.remotes.len().max(1);
            ledger.remotes.get(chosen % count).cloned()
        });
        let Some(other) = other else { return };
        match self.random.below(12) {
            0..=2 => other.pause_input(),
            3..=6 => other.resume_input(),
            7 => other.close_gently(),
            8 => other.close(),
            9 if self.mode == Mode::Anything => other.end_output(),
            10 if self.mode == Mode::Anything => drop(other.send(vec![b'r'; 50])),
            _ => other.notify(),
        }
    }

    fn end(&mut self) -> io::Result<Next> {
        match self.random.below(4) {
            0 => Ok(Next::Close),
            1 => Ok(Next::CloseGently),
            2 => Err(io::Error::other("a failure of the session")),
            // Without the message of the panic hook.
            _ => resume_unwind(Box::new("a panic of the session")),
        }
    }
}

impl Session for Chaos {
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.act("start", cx)
    }

    fn handle(&mut self, item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        if self.mode == Mode::Counting {
            if item != self.expected.to_string().as_str() {
                let text = format!("session {}: {item:?}, not {}", self.number, self.expected);
                self.shared.with(|ledger| ledger.violations.push(text));
            }
            self.expected += 1;
            cx.reply(item)?;
        }
        self.act("handle", cx)
    }

    fn again(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.act("again", cx)
    }

    fn turn_ended(&mut self, _: &mut Peer<'_>) -> io::Result<()> {
        self.shared.called(self.number, "turn_ended");
        Ok(())
    }

    fn notified(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.act("notified", cx)
    }

    fn overdue(&mut self, _: Limit, _: &mut Peer<'_>) -> Next {
        self.shared.called(self.number, "overdue");
        match self.random.below(3) {
            0 => Next::Continue,
            1 => Next::Close,
            _ => Next::CloseGently,
        }
    }

    fn malformed(&mut self, _: Malformed, _: &mut Peer<'_>) {
        self.shared.called(self.number, "malformed");
    }

    fn ended(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.act("ended", cx)?;
        Ok(Next::Close)
    }

    fn draining(&mut self, _: &mut Peer<'_>) -> Next {
        self.shared.called(self.number, "draining");
        match self.random.below(3) {
            0 => Next::Continue,
            1 => Next::Close,
            _ => Next::CloseGently,
        }
    }

    fn closed(&mut self, why: &Ended) {
        self.shared.closed(self.number, why);
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        self.shared.with(|ledger| ledger.alive -= 1);
    }
}

pub(super) fn codec(random: &mut Random) -> Framing {
    match random.below(6) {
        0 => line(40),
        1 => lines(40),
        2 => dot_chunks(40),
        3 => prefixed::<u8>(40),
        4 => raw(),
        _ => exact(5),
    }
}
