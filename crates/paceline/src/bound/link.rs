//! What the users of one multiplexed connection share, and what anyone may do with it: send, end,
//! replace.

use std::{io, sync::Arc, time::Duration};

use super::{
    calls::{Calls, Key},
    connect::Connecting,
    counters::Callers,
    inbound::Inbound,
    lead::{Arrival, Call, End, LeadWord, Revival},
    leading::Leading,
    line::Line,
    outbound::{Outbound, Pushed, Sink, Written},
    pooled::Pooled,
    protocol::Protocol,
    sleepers::{Elect, Sleepers},
    wire_order::WireOrder,
};
use crate::{
    idle::{IdlePolicy, Yielded, Yielding, CALLER_YIELDS, READER_YIELDS},
    sync::{lock, try_until_done, Clock, Mutex},
    unwind::Contained,
};

/// So often a thread that is about to be refused reads, or lets the leader run.
const MOST_STEPS: usize = 256;

/// Everything that the users of one multiplexed connection share.
pub(super) struct Link<P> {
    pub(super) calls: Calls,
    pub(super) order: WireOrder,
    pub(super) outbound: Outbound,
    pub(super) lead: LeadWord,
    /// Belongs to the leader. The lock is never held for long.
    pub(super) reading: Mutex<Reading>,
    /// The connection, for threads that must wake its leader.
    pub(super) line: Mutex<Option<Arc<dyn Line>>>,
    /// Why the last connection ended.
    cause: Mutex<Option<Cause>>,
    pub(super) protocol: Contained<P>,
    pub(super) clock: Clock,
    pub(super) elect: Elect,
    /// What a leader without input does before it sleeps, while many replies arrive at once.
    pub(super) leader_idle: IdlePolicy,
    /// What a caller does before it sleeps.
    pub(super) caller_idle: IdlePolicy,
    pub(super) connecting: Connecting,
    pub(super) pooled: Pooled,
    /// Of the caller that reads because it is about to be refused. Held for one read, which never
    /// blocks.
    catching_up: Mutex<()>,
}

/// What belongs to the leader.
pub(super) struct Reading {
    pub(super) line: Option<Arc<dyn Line>>,
    pub(super) inbound: Inbound,
    pub(super) sleepers: Sleepers,
    /// How many others get something at once: as many as the last time, or half of what it was
    /// before.
    pub(super) batch: u64,
}

/// What became of the output.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Nothing is left to be written here.
    Done,
    /// The socket takes no more.
    Full,
    /// There may be room, but others want this thread too.
    Paused,
}

/// The bounds of a link.
pub(super) struct Bounds {
    pub(super) calls: u32,
    pub(super) unsent: usize,
    pub(super) longest_reply: usize,
    pub(super) elect: Elect,
    pub(super) leader_spin: Duration,
}

/// Why a connection ended.
#[derive(Clone)]
struct Cause {
    kind: io::ErrorKind,
    text: String,
}

impl<P: Protocol> Link<P> {
    /// Without a connection.
    pub(super) fn new(protocol: P, clock: Clock, bounds: &Bounds) -> Result<Self, (P, io::Error)> {
        let calls = match Calls::new(P::ID_BITS, bounds.calls) {
            Ok(calls) => calls,
            Err(error) => return Err((protocol, error)),
        };
        let places = if calls.is_in_order() {
            bounds.calls as usize
        } else {
            1
        };
        Ok(Self {
            calls,
            order: WireOrder::new(places),
            outbound: Outbound::new(bounds.unsent),
            lead: LeadWord::lost(),
            reading: Mutex::new(Reading {
                line: None,
                inbound: Inbound::new(bounds.longest_reply),
                sleepers: Sleepers::new(),
                batch: 0,
            }),
            line: Mutex::new(None),
            cause: Mutex::new(None),
            protocol: Contained::new(protocol),
            clock,
            elect: bounds.elect,
            leader_idle: IdlePolicy::new(READER_YIELDS, Some(bounds.leader_spin)),
            caller_idle: IdlePolicy::new(CALLER_YIELDS, Some(Duration::ZERO)),
            connecting: Connecting::default(),
            pooled: Pooled::default(),
            catching_up: Mutex::new(()),
        })
    }

    /// Queues the request of a call. Writes it, with the requests of others, unless another thread
    /// writes.
    ///
    /// # Errors
    /// It was not taken.
    pub(super) fn send(&self, key: Key, request: &P::Request) -> io::Result<()> {
        if self.lead.is_lost() {
            return Err(self.loss());
        }
        let length = self.calls.encode(key, &*self.protocol, request)?;
        if !self.outbound.reserve(length) && !self.reserve_late(length) {
            self.calls.counters.refused_sends.add(1);
            let text = format!("send {length} bytes: too much waits to be sent already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let word = &self.calls.slot(key).word;
        let queued = word.queue();
        debug_assert!(queued, "a call is sent once");
        match self.outbound.push(&self.calls, key.index) {
            Pushed::Write => self.write(),
            Pushed::Left => self.write_if_unled(),
            Pushed::Dead => {
                word.unqueue();
                self.outbound.release(length);
                return Err(self.loss());
            }
        }
        self.calls.counters.calls.add(1);
        Ok(())
    }

    /// Registers a call; `None` if there is no room.
    pub(super) fn register(&self) -> Option<Key> {
        let register = || self.calls.register();
        register().or_else(|| self.catch_up(register))
    }

    /// Why a call was refused.
    #[cold]
    pub(super) fn no_place(&self) -> io::Error {
        let (most, (_, forgotten, _)) = (self.calls.most(), self.calls.count());
        let text = format!(
            "register a call: all {most} places are taken, {forgotten} of them by calls that were \
             dropped and whose replies have not come"
        );
        io::Error::new(io::ErrorKind::QuotaExceeded, text)
    }

    /// Makes room for a request of so many bytes, where there was none.
    #[cold]
    fn reserve_late(&self, length: usize) -> bool {
        let reserve = || self.outbound.reserve(length).then_some(());
        self.catch_up(reserve).is_some()
    }

    /// Does what a leader does, until `attempt` succeeds or there is nothing to do. Without it a
    /// connection on which no caller waits would refuse for ever: forgotten calls take all places,
    /// or their requests all room, and no thread reads their replies or sends their requests.
    ///
    /// It never blocks. If another thread leads, that one does all this: then it lets that one run,
    /// until it waits.
    #[cold]
    fn catch_up<R>(&self, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        let mut yielding = Yielding::begin(&self.clock);
        for _ in 0..MOST_STEPS {
            self.write_if_unled();
            let done = attempt();
            if done.is_some() {
                return done;
            }
            let goes_on = match self.try_to_read() {
                Arrival::Leads => true,
                Arrival::Follows if self.lead.waits() => false,
                Arrival::Follows => yielding.let_others_run() == Yielded::Shortly,
                Arrival::Lost => false,
            };
            if !goes_on {
                break;
            }
        }
        attempt()
    }

    /// Reads once, if no other thread leads. `Lost`: there was nothing to be read.
    fn try_to_read(&self) -> Arrival {
        // A caller that is about to be refused waits here while another one reads.
        let _alone = lock(&self.catching_up);
        match self.lead.take() {
            Arrival::Leads if Leading::new(self).read_once().is_err() => Arrival::Lost,
            arrival => arrival,
        }
    }

    /// Output is kept, and there may be no leader to send it: its senders may all have left.
    fn write_if_unled(&self) {
        if self.outbound.is_kept() && !self.lead.is_held() && self.outbound.pick_up() {
            self.write();
        }
    }

    /// Of the thread that has the pen.
    pub(super) fn write(&self) {
        match self.write_out() {
            Output::Done => {}
            Output::Full | Output::Paused => self.pooled.call_reader(),
        }
    }

    /// The same. A leader that is no pool learns what is left.
    pub(super) fn write_out(&self) -> Output {
        let output = match self.outbound.write(&self.calls, &self.order) {
            Written::All | Written::Dead => return Output::Done,
            Written::Failed(error) => {
                self.end(End::Lost, "write", &error);
                self.outbound.give_up(&self.calls);
                return Output::Done;
            }
            Written::Kept => Output::Full,
            Written::Paused => Output::Paused,
        };
        let call = self.lead.call_leader();
        self.follow(call);
        output
    }

    /// The connection is over, if it is not already. Every caller gets its outcome, here or from
    /// the leader.
    pub(super) fn end(&self, end: End, attempted: &str, error: &io::Error) {
        self.note_cause(attempted, error);
        let call = self.lead.break_off(end);
        self.follow(call);
    }

    pub(super) fn note_cause(&self, attempted: &str, error: &io::Error) {
        let (kind, text) = (error.kind(), format!("{attempted}: {error}"));
        lock(&self.cause).get_or_insert(Cause { kind, text });
    }

    /// Does what a call of the leader asks for.
    pub(super) fn follow(&self, call: Call) {
        match call {
            Call::Quiet => {}
            Call::Leads => drop(Leading::new(self)),
            Call::Kick => {
                let line = lock(&self.line).clone();
                if let Some(line) = line {
                    self.calls.counters.kicks.add(1);
                    line.wake();
                }
            }
        }
    }

    /// Why there is no connection.
    pub(super) fn loss(&self) -> io::Error {
        match &*lock(&self.cause) {
            Some(Cause { kind, text }) => {
                io::Error::new(*kind, format!("the connection was lost: {text}"))
            }
            None => io::Error::new(io::ErrorKind::NotConnected, "there is no connection"),
        }
    }

    /// The callers that use it at this moment.
    pub(super) fn callers(&self) -> Callers {
        let (under_way, forgotten, asleep) = self.calls.count();
        Callers {
            under_way,
            forgotten,
            asleep,
            led: self.lead.is_held(),
            waits: self.lead.waits(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lead.is_lost()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lead.is_closed()
    }

    /// There is a connection. `Err`: there is one already, or it is closed. One thread at a time:
    /// see `connect.rs`.
    pub(super) fn begin(&self, line: Arc<dyn Line>) -> Result<(), Arc<dyn Line>> {
        let revival = try_until_done(|| match self.lead.take_lost() {
            Revival::NotYet => None,
            end => Some(end),
        });
        if revival == Revival::Refused {
            return Err(line);
        }
        // The last writer may still be giving outcomes to the callers whose requests it had.
        try_until_done(|| self.outbound.is_buried().then_some(()));
        let mut reading = lock(&self.reading);
        reading.inbound.begin_anew();
        reading.line = Some(Arc::clone(&line));
        drop(reading);
        self.order.clear();
        self.calls.begin_anew();
        *lock(&self.line) = Some(Arc::clone(&line));
        if !self.is_closed() {
            *lock(&self.cause) = None;
        }
        self.outbound.live_again(Arc::clone(&line) as Arc<dyn Sink>);
        let call = self.lead.revive();
        self.follow(call);
        if let Err(error) = self.pooled.connected(&line) {
            self.end(End::Lost, "attach to the pool", &error);
        }
        Ok(())
    }
}
