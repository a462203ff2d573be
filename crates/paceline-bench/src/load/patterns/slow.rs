//! The closed loop, beside clients that send many requests and read slowly.
//!
//! ```text
//!  closed loop   measured as ever
//!  slow reader   asks, asks, asks ...  and reads one reply every 10 ms
//! ```
//!
//! Before the load begins they ask until nothing more is taken: by then the server can send them no more, and the
//! question is which others wait for that. The slow readers are not watched and not counted: every 10 ms each reads at
//! most one reply and writes what the kernel takes.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{recv, send, RecvFlags, SendFlags},
};

use super::Closed;
use crate::{
    load::{
        asker::{Asker, Lines},
        clock::Nanos,
        request::{bytes_of, Asked},
    },
    service::{Task, REQUEST},
};

/// How often a slow reader reads.
const TRICKLE: Nanos = 10_000_000;

/// How many requests a slow reader has ready to write at a time.
const AT_ONCE: usize = 1024;

/// How long nothing is taken of a slow reader until it is said to be full.
const FULL_AFTER: Duration = Duration::from_millis(50);

/// How long it is tried to fill all. A server that keeps what it can't send in its own memory is never full.
const FILLED_WITHIN: Duration = Duration::from_secs(3);

/// The closed loop, and the slow readers.
#[derive(Debug)]
pub(in crate::load) struct SlowReaders {
    /// What is measured.
    closed: Closed,
    /// Those that hardly read.
    readers: Vec<Reader>,
    /// When they read again.
    next: Nanos,
}

impl SlowReaders {
    /// `closed`, beside slow readers over these sockets.
    pub(in crate::load) fn new(closed: Closed, sockets: Vec<OwnedFd>) -> Self {
        let reader = |(number, socket)| Reader::new(number, socket);
        Self {
            closed,
            readers: sockets.into_iter().enumerate().map(reader).collect(),
            next: 0,
        }
    }

    /// Whether the kernel took more of any of them.
    fn took_more(&mut self) -> bool {
        let mut more = false;
        for reader in &mut self.readers {
            // What fails here fails again when it reads, and is counted there.
            more |= reader.write().unwrap_or(0) > 0;
        }
        more
    }
}

impl Asker for SlowReaders {
    fn prepare(&mut self) {
        let begin = Instant::now();
        let mut last = begin;
        while last.elapsed() < FULL_AFTER && begin.elapsed() < FILLED_WITHIN {
            if self.took_more() {
                last = Instant::now();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn due(&mut self, lines: &mut impl Lines, now: Nanos) -> Nanos {
        self.closed.due(lines, now);
        if now >= self.next {
            self.next = now + TRICKLE;
            self.readers.retain_mut(|reader| {
                let going = reader.trickle().is_ok();
                if !going {
                    lines.fault();
                }
                going
            });
        }
        self.next
    }

    fn answered(&mut self, lines: &mut impl Lines, connection: usize, replies: usize, now: Nanos) {
        self.closed.answered(lines, connection, replies, now);
    }

    fn focuses_on(&mut self, connection: usize, asked: Asked) -> bool {
        self.closed.focuses_on(connection, asked)
    }
}

/// One that asks much and hardly reads.
#[derive(Debug)]
struct Reader {
    /// Its number, in its requests: not one of those that are measured.
    number: usize,
    /// Its connection.
    socket: OwnedFd,
    /// Requests; what was sent of them is gone.
    outgoing: Vec<u8>,
    /// The sequence of the next request.
    next: u64,
    /// The reply that is being read.
    reply: [u8; REQUEST],
    /// How much of it is there.
    read: usize,
    /// Its sequence.
    due: u64,
}

impl Reader {
    /// Over this socket.
    fn new(number: usize, socket: OwnedFd) -> Self {
        Self {
            number: number + (1 << 31),
            socket,
            outgoing: Vec::with_capacity(AT_ONCE * REQUEST),
            next: 0,
            reply: [0; REQUEST],
            read: 0,
            due: 0,
        }
    }

    /// Reads at most one reply, and writes what the kernel takes.
    ///
    /// # Errors
    /// The connection ended, or a reply was wrong.
    fn trickle(&mut self) -> io::Result<()> {
        self.read()?;
        self.write()?;
        Ok(())
    }

    /// At most the rest of one reply.
    fn read(&mut self) -> io::Result<()> {
        match recv(
            &self.socket,
            &mut self.reply[self.read..],
            RecvFlags::empty(),
        ) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((read, _)) => self.read += read,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.read < REQUEST {
            return Ok(());
        }
        let right = self.reply == bytes_of(Task::Nothing, self.number, self.due);
        (self.read, self.due) = (0, self.due + 1);
        right
            .then_some(())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// One write. Says how many bytes the kernel took.
    fn write(&mut self) -> io::Result<usize> {
        while self.outgoing.len() < AT_ONCE * REQUEST {
            let request = bytes_of(Task::Nothing, self.number, self.next);
            self.outgoing.extend_from_slice(&request);
            self.next += 1;
        }
        match send(&self.socket, &self.outgoing, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                self.outgoing.drain(..sent);
                Ok(sent)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::mix::{Choice, Mix};
    use std::{io::Read as _, io::Write as _, os::unix::net::UnixStream};

    /// A reader, and the server's end of its connection.
    fn reader() -> (Reader, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Reader::new(0, ours.into()), theirs)
    }

    #[test]
    fn a_slow_reader_asks_much_and_reads_one_reply_at_a_time() {
        let (mut reader, mut server) = reader();
        reader.trickle().unwrap();
        let mut asked = [0; 3 * REQUEST];
        server.read_exact(&mut asked).unwrap();
        server.write_all(&asked).unwrap();
        for due in 1..=3 {
            reader.trickle().unwrap();
            assert_eq!(reader.due, due);
        }
    }

    #[test]
    fn slow_readers_are_full_before_the_load_begins() {
        let (reader, _server) = reader();
        let choice = Choice::new(&Mix::only(Task::Nothing));
        let mut readers = SlowReaders::new(Closed::new(Vec::new(), 1, choice), vec![reader.socket]);
        readers.prepare();
        assert!(readers.readers[0].next > 0);
        assert!(!readers.took_more());
    }

    #[test]
    fn a_wrong_reply_to_a_slow_reader_is_found() {
        let (mut reader, mut server) = reader();
        server.write_all(&[0; REQUEST]).unwrap();
        assert!(reader.trickle().is_err());
    }
}
