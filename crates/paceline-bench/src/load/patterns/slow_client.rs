//! The closed loop, beside many clients that send one byte a second and read one byte a second.
//!
//! ```text
//!  closed loop   measured as ever
//!  slow client   s . . l . . o . . w . . CR . . LF        a byte a second, and then the next line
//!                                       s . . l . . o ..  its reply, read at the same pace
//! ```
//!
//! The clients have their turns one after the other, evenly over the second, so that no burst of them disturbs the
//! client's own thread. They are not watched and not counted: each turn is one write and one read of one byte.

use std::{cell::RefCell, io};

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{recv, send, RecvFlags, SendFlags},
};

use super::Closed;
use crate::load::{
    asker::{Asker, Lines, NEVER},
    clock::Nanos,
    request::Asked,
};

/// How long one byte takes.
const SECOND: Nanos = 1_000_000_000;

/// What a slow client asks, and what it gets. Some servers answer without the CR.
const LINE: &[u8] = b"slow\r\n";

/// The closed loop, and the slow clients.
#[derive(Debug)]
pub(in crate::load) struct SlowClients<'t> {
    /// What is measured.
    closed: Closed,
    /// Those that are slow.
    trickle: &'t RefCell<Trickle>,
}

/// The slow clients, which have their turns one after the other.
#[derive(Debug)]
pub(in crate::load) struct Trickle {
    clients: Vec<Client>,
    /// Whose turn is next.
    turn: usize,
    /// When that is.
    next: Nanos,
}

impl Trickle {
    /// Over these sockets. Each client sends its first byte at once: a server may end a connection that stays silent.
    ///
    /// # Errors
    /// A connection has ended.
    pub(in crate::load) fn over(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let mut clients: Vec<_> = sockets.into_iter().map(Client::over).collect();
        clients.iter_mut().try_for_each(Client::write)?;
        Ok(Self {
            clients,
            turn: 0,
            next: 0,
        })
    }

    /// Lets the clients have the turns that are due by `now`. Says how many have failed: these are gone.
    fn go_on(&mut self, now: Nanos) -> usize {
        if self.next + SECOND < now {
            // Between two slices time has passed that nothing was asked for.
            self.next = now;
        }
        let mut failed = 0;
        while self.next <= now && !self.clients.is_empty() {
            self.next += SECOND / self.clients.len() as Nanos;
            self.turn %= self.clients.len();
            if self.clients[self.turn].go_on().is_ok() {
                self.turn += 1;
            } else {
                self.clients.remove(self.turn);
                failed += 1;
            }
        }
        failed
    }

    fn next_turn(&self) -> Nanos {
        if self.clients.is_empty() {
            NEVER
        } else {
            self.next
        }
    }
}

impl<'t> SlowClients<'t> {
    /// `closed`, beside these.
    pub(in crate::load) fn new(closed: Closed, trickle: &'t RefCell<Trickle>) -> Self {
        Self { closed, trickle }
    }
}

impl Asker for SlowClients<'_> {
    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        self.closed.due(lines, now);
        let mut trickle = self.trickle.borrow_mut();
        for _ in 0..trickle.go_on(now) {
            lines.fault();
        }
        trickle.next_turn()
    }

    fn answered(&mut self, lines: &mut impl Lines, connection: usize, replies: usize, now: Nanos) {
        self.closed.answered(lines, connection, replies, now);
    }

    fn focuses_on(&mut self, connection: usize, asked: Asked) -> bool {
        self.closed.focuses_on(connection, asked)
    }
}

/// One that is slow.
#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    /// How many bytes were sent, and how many came.
    sent: usize,
    read: usize,
}

impl Client {
    fn over(socket: OwnedFd) -> Self {
        Self {
            socket,
            sent: 0,
            read: 0,
        }
    }

    /// One byte each way.
    ///
    /// # Errors
    /// The connection ended, or the reply was wrong.
    fn go_on(&mut self) -> io::Result<()> {
        self.write()?;
        self.read()
    }

    fn write(&mut self) -> io::Result<()> {
        let byte = LINE[self.sent % LINE.len()];
        match send(&self.socket, &[byte], SendFlags::NOSIGNAL) {
            Ok(count) => self.sent += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let mut byte = [0];
        match recv(&self.socket, &mut byte, RecvFlags::empty()) {
            Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => self.check(byte[0]),
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks the next byte of the reply.
    fn check(&mut self, byte: u8) -> io::Result<()> {
        let due = |read: usize| LINE[read % LINE.len()];
        if byte == b'\n' && due(self.read) == b'\r' {
            self.read += 1;
        }
        let is_right = byte == due(self.read) && self.read < self.sent;
        self.read += 1;
        is_right
            .then_some(())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::UnixStream,
    };

    /// A slow client, and the server's end of its connection.
    fn slow() -> (Trickle, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Trickle::over(vec![ours.into()]).unwrap(), theirs)
    }

    /// The bytes of one line, one in each second; then the reply, and one byte too many.
    fn served(reply: &[u8]) -> Vec<usize> {
        let (mut trickle, mut server) = slow();
        // The first byte is sent, so five seconds complete the line.
        assert_eq!(
            (0..5).map(|at| trickle.go_on(at * SECOND)).sum::<usize>(),
            0
        );
        let mut line = [0; LINE.len()];
        server.read_exact(&mut line).unwrap();
        assert_eq!(line, LINE);
        server.write_all(reply).unwrap();
        (5..5 + reply.len() as Nanos)
            .map(|at| trickle.go_on(at * SECOND))
            .collect()
    }

    #[test]
    fn a_slow_client_sends_and_reads_a_byte_a_second() {
        assert_eq!(served(b"slow\r\n"), [0; 6]);
        assert_eq!(served(b"slow\n"), [0; 5]);
    }

    #[test]
    fn a_wrong_reply_to_a_slow_client_is_found() {
        assert_eq!(served(b"slaw"), [0, 0, 1, 0]);
        assert_eq!(served(b"slow\nx"), [0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn no_turns_are_made_up_for() {
        let (mut trickle, mut server) = slow();
        assert_eq!(trickle.go_on(10 * SECOND), 0);
        assert_eq!(trickle.go_on(100 * SECOND), 0);
        let mut bytes = [0; LINE.len()];
        assert_eq!(server.read(&mut bytes).unwrap(), 3);
    }
}
