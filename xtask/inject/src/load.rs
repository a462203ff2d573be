//! The load: clients on threads of their own, each with several connections, that ask, check every answer,
//! and close, reset and reopen their connections now and then.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::conversation::{Conversation, End, Findings};
use super::service::Speech;
use super::wire::{Nudge, LIMIT};

/// Threads of clients.
const CLIENTS: usize = 4;

/// Connections of each.
const EACH: usize = 4;

/// How long a client pauses after it was refused.
const AFTER_REFUSAL: Duration = Duration::from_millis(1);

/// The period of polls in a wait.
const LOOK: Duration = Duration::from_millis(2);

/// What a client has to put up with while a fault is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// Nothing: whatever it asks is answered.
    Answered,
    /// A connection may end, visibly; what was asked there counts as refused.
    MayBeRefused,
    /// The fault takes an edge away, so the client makes another one when it waits too long.
    Nudging(Nudge),
}

/// How long connections live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lives {
    /// For many requests.
    Long,
    /// For a few, so that there are many connections.
    Short,
}

/// What was counted, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Messages sent, but those whose connection was reset by the client itself.
    pub(super) requests: u64,
    /// Messages that came back.
    pub(super) answered: u64,
    /// Messages whose connection ended, visibly.
    pub(super) refused: u64,
    /// Connections that the server ended.
    pub(super) broken: u64,
    /// Edges that a client made because it had waited too long.
    pub(super) nudges: u64,
    /// Messages without an answer, on a connection that should have lived or lives on.
    pub(super) lost: u64,
    /// Messages that came back again.
    pub(super) doubled: u64,
    /// Messages that came to another connection.
    pub(super) misrouted: u64,
    /// Messages with neither answer nor end in time.
    pub(super) hung: u64,
}

impl Tally {
    /// Whether nothing happened that never may.
    pub(super) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.misrouted + self.hung == 0
    }

    /// Adds what was found in a connection.
    pub(super) fn add(&mut self, findings: &Findings) {
        self.answered += findings.answered;
        self.lost += findings.lost;
        self.doubled += findings.doubled;
        self.misrouted += findings.misrouted;
    }

    /// Counts the end of a connection on which so many messages were unanswered.
    pub(super) fn end(&mut self, end: &End, unanswered: u64, terms: Terms) {
        match (end, terms) {
            (End::Hung, _) => self.hung += unanswered.max(1),
            (End::Ended, Terms::MayBeRefused) => {
                self.refused += unanswered;
                self.broken += 1;
            }
            (End::Ended | End::Garbled, _) => self.lost += unanswered.max(1),
        }
    }
}

/// What the clients are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Ask.
    Work,
    /// Wait, with nothing unanswered.
    Rest,
    /// Close everything, and end.
    End,
}

/// What the clients share.
struct Shared {
    /// Where the server listens.
    address: SocketAddr,
    /// What they speak.
    speech: Speech,
    /// What they put up with.
    terms: Terms,
    /// How long their connections live.
    lives: Lives,
    /// What they are to do, and what they have counted.
    state: Mutex<State>,
    /// The phase has changed, or a client has come to rest.
    changed: Condvar,
    /// Numbers of connections, each used once.
    connections: AtomicU64,
}

/// Under the lock.
struct State {
    /// What the clients are to do.
    phase: Phase,
    /// How many of them rest.
    resting: usize,
    /// What they have counted.
    tally: Tally,
}

impl Shared {
    /// The state, also after a panic of its holder.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts something.
    fn count(&self, how: impl FnOnce(&mut Tally)) {
        how(&mut self.state().tally);
    }

    /// Counts what was found in a connection.
    fn found(&self, findings: &Findings) {
        self.count(|tally| tally.add(findings));
    }

    /// A new connection.
    fn open(&self) -> io::Result<Box<dyn Conversation>> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        self.speech.open(self.address, number, self.nudge())
    }

    /// The edge that a client may make.
    fn nudge(&self) -> Option<Nudge> {
        match self.terms {
            Terms::Nudging(nudge) => Some(nudge),
            Terms::Answered | Terms::MayBeRefused => None,
        }
    }
}

/// Clients at work. Dropping it ends them.
pub(super) struct Load {
    /// What they share.
    shared: Arc<Shared>,
    /// Their threads.
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Sends clients that speak so to a server.
    pub(super) fn start(address: SocketAddr, speech: Speech, terms: Terms, lives: Lives) -> Load {
        let state = State {
            phase: Phase::Work,
            resting: 0,
            tally: Tally::default(),
        };
        let shared = Arc::new(Shared {
            address,
            speech,
            terms,
            lives,
            state: Mutex::new(state),
            changed: Condvar::new(),
            connections: AtomicU64::new(1),
        });
        let client = |index| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || Client::new(shared, index).run())
        };
        let clients = (1..=CLIENTS as u64).map(client).collect();
        Load { shared, clients }
    }

    /// What was counted so far.
    pub(super) fn tally(&self) -> Tally {
        self.shared.state().tally
    }

    /// Lets the clients work until `enough`, or until something went wrong, or the time is over.
    pub(super) fn work_until(&self, end: Instant, mut enough: impl FnMut(&Tally) -> bool) {
        while Instant::now() < end {
            let tally = self.tally();
            if enough(&tally) || !tally.is_clean() {
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits until everything is answered, and lets the clients rest.
    pub(super) fn rest(&self) {
        let mut state = self.shared.state();
        state.phase = Phase::Rest;
        self.shared.changed.notify_all();
        let all_rest = |state: &mut State| state.resting < CLIENTS;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, 3 * LIMIT, all_rest);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            state.tally.hung += 1;
        }
    }

    /// Lets the clients work on.
    pub(super) fn go_on(&self) {
        self.shared.state().phase = Phase::Work;
        self.shared.changed.notify_all();
    }

    /// Opens `count` fresh connections until all of them are served in one round; returns how long that
    /// took since `since`.
    pub(super) fn recover(&self, count: u64, since: Instant) -> Duration {
        loop {
            let round = self.fresh_round(count);
            let time = since.elapsed();
            match round {
                // The last of the faults may still be on its way.
                Err(End::Ended) if self.shared.terms == Terms::MayBeRefused && time < LIMIT => {
                    thread::sleep(AFTER_REFUSAL);
                }
                Err(End::Ended) => {
                    self.shared.count(|tally| tally.hung += 1);
                    return time;
                }
                Ok(()) | Err(End::Hung | End::Garbled) => return time,
            }
        }
    }

    /// Opens `count` connections and asks once on each.
    fn fresh_round(&self, count: u64) -> Result<(), End> {
        let opened = (0..count).map(|_| self.shared.open());
        let opened: io::Result<Vec<_>> = opened.collect();
        let mut fresh = opened.map_err(|_| End::Ended)?;
        self.shared.count(|tally| tally.requests += count);
        let served = self.serve(&mut fresh);
        if let Err(end) = &served {
            let unanswered = count - fresh.iter().map(|it| it.answered()).sum::<u64>();
            let terms = self.shared.terms;
            self.shared.count(|tally| tally.end(end, unanswered, terms));
        }
        served
    }

    /// Asks once on each, reads the answers, and closes.
    fn serve(&self, connections: &mut [Box<dyn Conversation>]) -> Result<(), End> {
        for connection in connections.iter_mut() {
            connection.ask(1)?;
        }
        for connection in connections.iter_mut() {
            connection.collect(&mut |findings| self.shared.found(findings))?;
        }
        let close =
            |it: &mut Box<dyn Conversation>| it.close(&mut |findings| self.shared.found(findings));
        connections.iter_mut().try_for_each(close)
    }

    /// One crowd of `count` connections, each of which may be refused if the terms are so.
    pub(super) fn crowd(&self, count: u64) {
        let mut client = Client::new(Arc::clone(&self.shared), 0);
        client.slots = (0..count).map(|_| None).collect();
        client.ask_everywhere();
        client.collect_everywhere();
        client.close_everything();
    }

    /// Lets the clients close their connections, and returns what was counted.
    pub(super) fn finish(mut self) -> Tally {
        self.end();
        let mut tally = self.tally();
        tally.add(&self.shared.speech.settle());
        let told = tally.answered + tally.refused + tally.lost + tally.hung;
        // Whatever cannot be accounted for is lost.
        let lost = tally.lost + tally.requests.saturating_sub(told);
        Tally { lost, ..tally }
    }

    /// Ends the clients.
    fn end(&mut self) {
        self.shared.state().phase = Phase::End;
        self.shared.changed.notify_all();
        for client in self.clients.drain(..) {
            if client.join().is_err() {
                self.shared.count(|tally| tally.hung += 1);
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

/// One client.
struct Client {
    /// What all share.
    shared: Arc<Shared>,
    /// Its connections; `None` where one must be opened.
    slots: Vec<Option<Box<dyn Conversation>>>,
    /// The state of its dice.
    dice: u64,
}

impl Client {
    /// One without a connection yet.
    fn new(shared: Arc<Shared>, index: u64) -> Client {
        Client {
            shared,
            slots: (0..EACH).map(|_| None).collect(),
            dice: 0x2545_F491_4F6C_DD1D ^ index,
        }
    }

    /// Does what the phase says, until the end.
    fn run(mut self) {
        loop {
            let phase = self.shared.state().phase;
            match phase {
                Phase::Work => self.beat(),
                Phase::Rest => self.rest(),
                Phase::End => return self.close_everything(),
            }
        }
    }

    /// Asks on every connection, then reads all answers, then gives some of the connections up.
    fn beat(&mut self) {
        self.ask_everywhere();
        self.collect_everywhere();
        for slot in 0..self.slots.len() {
            self.perhaps_leave(slot);
        }
    }

    /// Waits until the phase is another.
    fn rest(&self) {
        let mut state = self.shared.state();
        state.resting += 1;
        self.shared.changed.notify_all();
        while state.phase == Phase::Rest {
            let woken = self.shared.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.resting -= 1;
    }

    /// Opens what is not open, and sends one to four messages each.
    fn ask_everywhere(&mut self) {
        for slot in 0..self.slots.len() {
            let count = 1 + self.roll(4);
            if let Some(mut connection) = self.take(slot) {
                self.shared.count(|tally| tally.requests += count);
                let asked = connection.ask(count);
                self.put_back(slot, connection, asked);
            }
        }
    }

    /// Reads the answers.
    fn collect_everywhere(&mut self) {
        for slot in 0..self.slots.len() {
            if let Some(mut connection) = self.slots[slot].take() {
                let collected = self.collect(&mut *connection);
                self.put_back(slot, connection, collected);
            }
        }
    }

    /// Reads the answers of one connection.
    fn collect(&self, connection: &mut dyn Conversation) -> Result<(), End> {
        let collected = connection.collect(&mut |findings| self.shared.found(findings));
        let nudges = connection.take_nudges();
        self.shared.count(|tally| {
            tally.nudges += nudges.edges;
            tally.requests += nudges.messages;
        });
        collected
    }

    /// Takes the connection of a slot out; opens it if there is none.
    fn take(&mut self, slot: usize) -> Option<Box<dyn Conversation>> {
        if let Some(connection) = self.slots[slot].take() {
            return Some(connection);
        }
        match self.shared.open() {
            Ok(connection) => Some(connection),
            Err(_) => {
                self.give_up(&End::Ended, 0);
                None
            }
        }
    }

    /// Puts a connection back, unless it has ended.
    fn put_back(
        &mut self,
        slot: usize,
        connection: Box<dyn Conversation>,
        outcome: Result<(), End>,
    ) {
        match outcome {
            Ok(()) => self.slots[slot] = Some(connection),
            Err(end) => self.give_up(&end, connection.unanswered()),
        }
    }

    /// Counts a connection that has ended.
    fn give_up(&self, end: &End, unanswered: u64) {
        let terms = self.shared.terms;
        self.shared.count(|tally| tally.end(end, unanswered, terms));
        thread::sleep(AFTER_REFUSAL);
    }

    /// Closes or resets a connection now and then. Where the fault removes the edges of input no client
    /// leaves: nothing can follow after an end.
    fn perhaps_leave(&mut self, slot: usize) {
        let life = match self.shared.lives {
            Lives::Long => 40,
            Lives::Short => 3,
        };
        if self.shared.nudge() == Some(Nudge::Message) || self.roll(life) > 0 {
            return;
        }
        let Some(mut connection) = self.slots[slot].take() else {
            return;
        };
        let resets = self.roll(3) == 0;
        let mut found = |findings: &Findings| self.shared.found(findings);
        let left = if resets {
            connection.reset(&mut found)
        } else {
            connection.close(&mut found)
        };
        if let Err(end) = left {
            self.give_up(&end, 0);
        }
    }

    /// Closes all connections, each of which must end gracefully.
    fn close_everything(&mut self) {
        for mut connection in std::mem::take(&mut self.slots).into_iter().flatten() {
            let closed = connection.close(&mut |findings| self.shared.found(findings));
            if let Err(end) = closed {
                self.give_up(&end, 0);
            }
        }
    }

    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % sides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_refused_only_where_the_terms_allow_it() {
        let counted = |end, terms| {
            let mut tally = Tally::default();
            tally.end(&end, 3, terms);
            (tally.refused, tally.lost, tally.hung)
        };
        assert_eq!(counted(End::Ended, Terms::MayBeRefused), (3, 0, 0));
        assert_eq!(counted(End::Ended, Terms::Answered), (0, 3, 0));
        assert_eq!(counted(End::Garbled, Terms::MayBeRefused), (0, 3, 0));
        assert_eq!(counted(End::Hung, Terms::MayBeRefused), (0, 0, 3));
    }
}
