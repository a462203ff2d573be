//! The connections: their sockets, what was asked on each, and the check of what comes back.
//!
//! ```text
//!            ask        ask                reply      reply
//!  next ->  [ 7 ]      [ 8 ]   ...  due -> [ 5 ]      [ 6 ]
//!             a ring of requests per connection: its places are numbered by sequence
//! ```
//!
//! The ring of every connection lies in one list, made once. Sockets are watched edge-triggered and registered once:
//! a request costs one write and one read, and nothing is allocated. What the kernel did not take of a write, and
//! the beginning of a reply, are kept for the next event; neither happens with few requests on the way.

use std::io;

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{recv, send, RecvFlags, SendFlags},
};

use super::{
    asker::Lines,
    clock::{Clock, Nanos},
    connect::Opener,
    request::{bytes_of, Asked},
};
use crate::service::{Task, REQUEST};

/// The connections of a run.
#[derive(Debug)]
pub(super) struct Wire {
    /// Where all of them are watched.
    epoll: OwnedFd,
    /// How new ones are opened.
    opener: Opener,
    /// All of them, by number.
    connections: Vec<Connection>,
    /// The rings of all connections, one after the other.
    asked: Vec<Asked>,
    /// How many places a ring has: a power of two.
    places: usize,
    /// Requests that are written down and not sent, of one connection.
    outgoing: Vec<u8>,
    /// Replies that are due, over all.
    outstanding: u64,
    /// Connections that stand.
    standing: usize,
    /// Wrong replies and lost connections.
    errors: u64,
    /// What the last lost connection was lost by.
    last_loss: Option<io::Error>,
    /// The time.
    pub(super) clock: Clock,
}

/// One connection.
#[derive(Debug)]
struct Connection {
    /// Its socket; of a lost one, not watched any more.
    socket: OwnedFd,
    /// The sequence of the next request.
    next: u64,
    /// The sequence of the next reply.
    due: u64,
    /// Whether epoll knows the socket.
    watched: bool,
    /// Whether it was lost.
    lost: bool,
    /// What the kernel did not take yet.
    unsent: Vec<u8>,
    /// The beginning of a reply.
    begun: Vec<u8>,
}

/// What came of a frame of 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The reply to this request.
    Right(Asked),
    /// A reply was due, and this is not it.
    Wrong,
    /// No reply was due.
    Unasked,
}

impl Wire {
    /// Over these sockets, with up to `pipeline` requests on the way on each.
    ///
    /// # Errors
    /// What epoll said.
    pub(super) fn over(sockets: Vec<OwnedFd>, opener: Opener, pipeline: usize) -> io::Result<Self> {
        let places = pipeline.next_power_of_two();
        let mut wire = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            opener,
            asked: vec![Asked::NEVER; sockets.len() * places],
            places,
            outgoing: Vec::with_capacity(places * REQUEST),
            outstanding: 0,
            standing: sockets.len(),
            errors: 0,
            last_loss: None,
            clock: Clock::start(),
            connections: sockets.into_iter().map(Connection::over).collect(),
        };
        for number in 0..wire.len() {
            wire.watch(number)?;
        }
        Ok(wire)
    }

    /// Where the connections are watched; the number of one is the data of its events.
    pub(super) fn epoll(&self) -> impl AsFd + '_ {
        &self.epoll
    }

    /// How many connections there are, lost ones too.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// How many connections stand.
    pub(super) fn standing(&self) -> usize {
        self.standing
    }

    /// How many replies are due.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Wrong replies and lost connections, since the client began.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    /// What the last lost connection was lost by.
    pub(super) fn last_loss(&self) -> Option<&io::Error> {
        self.last_loss.as_ref()
    }

    /// One read: whole replies are at the front of `buffer`, as many bytes as said; 0 if there are none yet.
    ///
    /// # Errors
    /// The connection ended; [`lose`](Self::lose) it.
    pub(super) fn read(&mut self, connection: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let connection = &mut self.connections[connection];
        let begun = connection.begun.len();
        buffer[..begun].copy_from_slice(&connection.begun);
        let read = match recv(&connection.socket, &mut buffer[begun..], RecvFlags::empty()) {
            Ok((0, _)) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                ))
            }
            Ok((read, _)) => begun + read,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let whole = read - read % REQUEST;
        connection.begun.clear();
        connection.begun.extend_from_slice(&buffer[whole..read]);
        Ok(whole)
    }

    /// Takes 64 bytes that came on `connection`.
    pub(super) fn reply(&mut self, number: usize, frame: &[u8]) -> Reply {
        let connection = &mut self.connections[number];
        if connection.due == connection.next {
            self.errors += 1;
            return Reply::Unasked;
        }
        let asked = self.asked[number * self.places + place(connection.due, self.places)];
        let right = bytes_of(asked.task, number, connection.due) == *frame;
        connection.due += 1;
        self.outstanding -= 1;
        if right {
            return Reply::Right(asked);
        }
        self.errors += 1;
        Reply::Wrong
    }

    /// The kernel takes more: sends what it did not take before.
    pub(super) fn flush(&mut self, connection: usize) {
        let connection = &mut self.connections[connection];
        if !connection.unsent.is_empty() {
            let sent = sent_of(&connection.socket, &connection.unsent);
            connection.unsent.drain(..sent);
        }
    }

    /// Gives a connection up. Says how many replies were due on it.
    pub(super) fn lose(&mut self, number: usize, why: io::Error) -> usize {
        let connection = &mut self.connections[number];
        if connection.lost {
            return 0;
        }
        let replies = connection.next - connection.due;
        connection.due = connection.next;
        connection.lost = true;
        if connection.watched {
            // It is watched, so that there is nothing that could fail.
            let _ = epoll::delete(&self.epoll, &connection.socket);
        }
        self.outstanding -= replies;
        self.standing -= 1;
        self.errors += 1;
        self.last_loss = Some(why);
        replies as usize
    }

    /// Watches a connection, for good: one that asks nothing too, so that its end is noticed.
    fn watch(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        if connection.watched {
            return Ok(());
        }
        connection.watched = true;
        // Of one that has sent all it will send, it is no news that it could send.
        let out = if connection.next == connection.due || !connection.unsent.is_empty() {
            EventFlags::OUT
        } else {
            EventFlags::empty()
        };
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET | out;
        Ok(epoll::add(
            &self.epoll,
            &connection.socket,
            EventData::new_u64(number as u64),
            flags,
        )?)
    }

    /// A new socket in the place of one that has no reply due.
    fn replace(&mut self, number: usize) -> io::Result<()> {
        let socket = self.opener.begin()?;
        let connection = &mut self.connections[number];
        // The old one is closed here, and epoll forgets it.
        connection.socket = socket;
        connection.watched = false;
        connection.begun.clear();
        Ok(())
    }
}

impl Lines for Wire {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn ask(&mut self, number: usize, task: Task, start: Nanos) {
        let connection = &mut self.connections[number];
        debug_assert!((connection.next - connection.due) < self.places as u64);
        self.outgoing
            .extend_from_slice(&bytes_of(task, number, connection.next));
        self.asked[number * self.places + place(connection.next, self.places)] =
            Asked { start, task };
        connection.next += 1;
        self.outstanding += 1;
    }

    fn send(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let before = if connection.unsent.is_empty() {
            sent_of(&connection.socket, &self.outgoing)
        } else {
            0
        };
        connection
            .unsent
            .extend_from_slice(&self.outgoing[before..]);
        self.outgoing.clear();
        if !connection.watched {
            if let Err(error) = self.watch(number) {
                self.lose(number, error);
            }
        }
    }

    fn stands(&self, number: usize) -> bool {
        !self.connections[number].lost
    }

    fn reopen(&mut self, number: usize) {
        debug_assert_eq!(self.connections[number].next, self.connections[number].due);
        if let Err(error) = self.replace(number) {
            self.lose(number, error);
        }
    }

    fn fault(&mut self) {
        self.errors += 1;
    }
}

impl Connection {
    /// A connection on which nothing was asked.
    fn over(socket: OwnedFd) -> Self {
        Self {
            socket,
            next: 0,
            due: 0,
            watched: false,
            lost: false,
            unsent: Vec::new(),
            begun: Vec::new(),
        }
    }
}

/// The place of a sequence in a ring.
fn place(sequence: u64, places: usize) -> usize {
    sequence as usize & (places - 1)
}

/// One write: how many bytes the kernel took. If the connection is gone it takes none, and the event that says so
/// is on its way.
fn sent_of(socket: &OwnedFd, bytes: &[u8]) -> usize {
    send(socket, bytes, SendFlags::NOSIGNAL).unwrap_or(0)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
