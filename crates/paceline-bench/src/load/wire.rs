//! The connections: their sockets, the requests on each, and the check of the replies.
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

use std::{io, sync::Arc};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{recv, send, RecvFlags, SendFlags},
};
use rustls::ClientConfig;

use super::{
    asker::Lines,
    clock::{Clock, Nanos},
    connect::Opener,
    request::{Asked, Form},
    sealed::Sealed,
};
use crate::service::{Task, REQUEST};

/// How many bytes of TLS one read may bring.
const CIPHERTEXT: usize = 64 * 1024;

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
    /// How requests and replies are written.
    form: Form,
    /// The settings of TLS, if the connections have it.
    tls: Option<Arc<ClientConfig>>,
    /// What a read brought, of a connection with TLS.
    ciphertext: Vec<u8>,
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
    /// Its TLS.
    sealed: Option<Box<Sealed>>,
}

/// What came of a frame.
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
            form: Form::Frames,
            tls: None,
            ciphertext: Vec::new(),
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

    /// With requests and replies of this form.
    pub(super) fn with_form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// With TLS on each connection.
    ///
    /// # Errors
    /// What rustls said.
    pub(super) fn with_tls(mut self, config: Arc<ClientConfig>) -> io::Result<Self> {
        for connection in &mut self.connections {
            connection.sealed = Some(Box::new(Sealed::new(&config)?));
        }
        self.ciphertext = vec![0; CIPHERTEXT];
        self.tls = Some(config);
        Ok(self)
    }

    /// How requests and replies are written.
    pub(super) fn form(&self) -> Form {
        self.form
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
        if connection.sealed.is_some() {
            connection.read_sealed(&mut self.ciphertext)?;
            return Ok(connection.take_begun(self.form, buffer));
        }
        let begun = connection.begun.len();
        buffer[..begun].copy_from_slice(&connection.begun);
        let Some(read) = received(&connection.socket, &mut buffer[begun..])? else {
            return Ok(0);
        };
        let filled = &buffer[..begun + read];
        let whole = self.form.replies(filled).map(<[u8]>::len).sum();
        connection.begun.clear();
        connection.begun.extend_from_slice(&filled[whole..]);
        Ok(whole)
    }

    /// Takes a frame that came on `connection`.
    pub(super) fn reply(&mut self, number: usize, frame: &[u8]) -> Reply {
        let connection = &mut self.connections[number];
        if connection.due == connection.next {
            self.errors += 1;
            return Reply::Unasked;
        }
        let asked = self.asked[number * self.places + place(connection.due, self.places)];
        let request = self.form.bytes_of(asked.task, number, connection.due);
        let right = self.form.is_reply(frame, &request);
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

    /// Sends what is written down, and watches the connection.
    fn send_written(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        if let Some(sealed) = &mut connection.sealed {
            sealed.seal(&mut self.outgoing)?;
        }
        connection.send(&self.outgoing);
        self.outgoing.clear();
        self.watch(number)
    }

    /// A new socket in the place of one that has no reply due.
    fn replace(&mut self, number: usize) -> io::Result<()> {
        let socket = self.opener.begin()?;
        let sealed = self.tls.as_ref().map(Sealed::new).transpose()?;
        let connection = &mut self.connections[number];
        connection.say_end();
        connection.sealed = sealed.map(Box::new);
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
            .extend_from_slice(&self.form.bytes_of(task, number, connection.next));
        self.asked[number * self.places + place(connection.next, self.places)] =
            Asked { start, task };
        connection.next += 1;
        self.outstanding += 1;
    }

    fn send(&mut self, number: usize) {
        if let Err(error) = self.send_written(number) {
            self.outgoing.clear();
            self.lose(number, error);
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
            sealed: None,
        }
    }

    /// Sends these bytes, behind those that the kernel did not take before.
    fn send(&mut self, bytes: &[u8]) {
        let sent = if self.unsent.is_empty() {
            sent_of(&self.socket, bytes)
        } else {
            0
        };
        self.unsent.extend_from_slice(&bytes[sent..]);
    }

    /// Reads until nothing is left, opens it, and answers what the protocol wants answered. The replies are behind
    /// what has `begun`.
    fn read_sealed(&mut self, ciphertext: &mut [u8]) -> io::Result<()> {
        let Some(sealed) = &mut self.sealed else {
            return Ok(());
        };
        let mut output = Vec::new();
        while let Some(read) = received(&self.socket, ciphertext)? {
            sealed.open(&ciphertext[..read], &mut self.begun, &mut output)?;
            if read < ciphertext.len() {
                break;
            }
        }
        if !output.is_empty() {
            self.send(&output);
        }
        Ok(())
    }

    /// Moves whole replies to the front of `buffer`. Says how many bytes these are.
    fn take_begun(&mut self, form: Form, buffer: &mut [u8]) -> usize {
        let fits = &self.begun[..self.begun.len().min(buffer.len())];
        let whole = form.replies(fits).map(<[u8]>::len).sum();
        buffer[..whole].copy_from_slice(&self.begun[..whole]);
        self.begun.drain(..whole);
        whole
    }

    /// Says to the server that nothing more is sent, if TLS wants that said.
    fn say_end(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            let mut output = Vec::new();
            sealed.end(&mut output);
            // The server sees the end of the stream in any case.
            sent_of(&self.socket, &output);
        }
    }
}

/// One read: how many bytes it brought, if there were any.
///
/// # Errors
/// The connection ended.
fn received(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match recv(socket, buffer, RecvFlags::empty()) {
        Ok((0, _)) => {
            let text = "the server closed the connection";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
        }
        Ok((read, _)) => Ok(Some(read)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
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
