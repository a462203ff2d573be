//! The loop: waits for events, and passes them to the asker.
//!
//! ```text
//!        +--> due: asks what is due --> wait, until then at most --> for each ready connection:
//!        |                                                             one read, the time once,
//!        +-----------------------------------------------------------  check and record, one write
//! ```
//!
//! The time is taken once per ready connection, after its read. That is the end of the replies that were read and,
//! in a closed loop, the start of what is asked next. To take it once per batch would be cheaper by some 20 ns of
//! several microseconds per request, and would let requests start up to a whole batch too early.

use std::io;

use rustix::{
    event::{
        epoll::{self, Event, EventData, EventFlags},
        Timespec,
    },
    io::Errno,
};

use super::{
    asker::{Asker, Lines},
    clock::{Alarm, Nanos},
    tally::Tally,
    wire::{Reply, Wire},
};
use crate::service::REQUEST;

/// How many events one wait gives at most.
const BATCH: usize = 256;

/// The data of the alarm's events: no connection has this number.
const ALARM: u64 = u64::MAX;

/// The flags of a connection that ends, or has failed.
const ENDING: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// Drives the connections.
pub(super) struct Driver {
    /// The connections.
    pub(super) wire: Wire,
    /// What is written down.
    pub(super) tally: Tally,
    /// Ends a wait.
    alarm: Alarm,
    /// The memory of a wait.
    events: Vec<Event>,
    /// The memory of a read: more than can be due on a connection.
    incoming: Vec<u8>,
    /// Whether anything is asked, or only replies are taken.
    asks: bool,
}

impl Driver {
    /// Of these connections, each with up to `pipeline` replies due.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn new(wire: Wire, pipeline: usize) -> io::Result<Self> {
        let alarm = Alarm::new()?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(wire.epoll(), &alarm, EventData::new_u64(ALARM), flags)?;
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(ALARM),
        };
        Ok(Self {
            wire,
            tally: Tally::new(),
            alarm,
            events: vec![nothing; BATCH],
            incoming: vec![0; (pipeline + 1) * REQUEST],
            asks: true,
        })
    }

    /// Asks, and again after it was hushed.
    pub(super) fn begin(&mut self) {
        self.asks = true;
    }

    /// What was written down, and nothing is from here on.
    pub(super) fn take_tally(&mut self) -> Tally {
        std::mem::replace(&mut self.tally, Tally::new())
    }

    /// Asks no more.
    pub(super) fn hush(&mut self) {
        self.asks = false;
    }

    /// Runs until `end`, or until `over` returns true. Returns the time.
    ///
    /// # Errors
    /// No connection is left, or what the system said.
    pub(super) fn drive<A: Asker>(
        &mut self,
        asker: &mut A,
        end: Nanos,
        over: impl Fn(&A, &Wire) -> bool,
    ) -> io::Result<Nanos> {
        let mut now = self.wire.now();
        while now < end && !over(asker, &self.wire) {
            let due = if self.asks {
                asker.due(&mut self.wire, now).min(end)
            } else {
                end
            };
            now = self.turn(asker, now, due)?;
            self.check_standing()?;
        }
        Ok(now)
    }

    /// Waits until `due` at most, and handles what arrived. Returns the time.
    fn turn<A: Asker>(&mut self, asker: &mut A, now: Nanos, due: Nanos) -> io::Result<Nanos> {
        let count = self.wait(now, due)?;
        let mut last = None;
        for place in 0..count {
            let Event { flags, data } = self.events[place];
            if data.u64() == ALARM {
                self.alarm.rang();
            } else {
                last = Some(self.ready(asker, data.u64() as usize, flags));
            }
        }
        Ok(last.unwrap_or_else(|| self.wire.now()))
    }

    /// How many events came, until `due` at most.
    fn wait(&mut self, now: Nanos, due: Nanos) -> io::Result<usize> {
        const GLANCE: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let glance = due <= now;
        if !glance {
            self.alarm.set(&self.wire.clock, due)?;
        }
        match epoll::wait(
            self.wire.epoll(),
            &mut self.events[..],
            glance.then_some(&GLANCE),
        ) {
            Err(Errno::INTR) => Ok(0),
            other => Ok(other?),
        }
    }

    /// A connection can be read, or written, or ended. Gives the time back.
    fn ready<A: Asker>(&mut self, asker: &mut A, connection: usize, flags: EventFlags) -> Nanos {
        self.wire.flush(connection);
        let mut replies = 0;
        loop {
            let read = self.wire.read(connection, &mut self.incoming);
            let now = self.wire.now();
            match read {
                Ok(bytes) => {
                    replies += self.take(asker, connection, bytes, now);
                    let full = bytes + REQUEST > self.incoming.len();
                    let ends = bytes > 0 && flags.intersects(ENDING);
                    if full || ends {
                        continue;
                    }
                    if replies > 0 && self.asks {
                        asker.answered(&mut self.wire, connection, replies, now);
                    }
                }
                Err(why) => {
                    let unanswered = self.wire.lose(connection, why);
                    asker.lost(connection, unanswered + replies);
                }
            }
            return now;
        }
    }

    /// Takes the replies that were read. Says how many were due.
    fn take(
        &mut self,
        asker: &mut impl Asker,
        connection: usize,
        bytes: usize,
        now: Nanos,
    ) -> usize {
        let mut replies = 0;
        let form = self.wire.form();
        for frame in form.replies(&self.incoming[..bytes]) {
            match self.wire.reply(connection, frame) {
                Reply::Right(asked) => {
                    let in_focus = asker.focuses_on(connection, asked);
                    self.tally.reply(asked, now, in_focus);
                    replies += 1;
                }
                Reply::Wrong => replies += 1,
                Reply::Unasked => {}
            }
        }
        replies
    }

    /// At least one connection must be open.
    fn check_standing(&self) -> io::Result<()> {
        if self.wire.standing() > 0 {
            return Ok(());
        }
        let why = self
            .wire
            .last_loss()
            .map_or_else(String::new, |why| format!(": {why}"));
        let text = format!(
            "all {} connections were lost, the last{why}",
            self.wire.len()
        );
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
    }
}
