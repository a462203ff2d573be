//! One connection of the load: asks, and reads answers until they are all there or there is a reason why not.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::message::{self, Checker, Findings};

/// How long an answer, or the end of a connection, may take. Only a hang reaches it.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// How long a read waits before it looks whether the limit has passed.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a client that may nudge waits before it does.
const BEFORE_NUDGE: Duration = Duration::from_millis(10);

/// What makes a new edge in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nudge {
    /// A further message on the connection: input, and with it the news that there is room for output.
    Message,
    /// A further connection, which is closed at once.
    Connection,
}

/// How many nudges there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nudges {
    /// Of either kind.
    pub(super) edges: u64,
    /// By a message.
    pub(super) messages: u64,
}

/// Why a connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was closed or reset: that is visible.
    Ended,
    /// Nothing came in time.
    Hung,
    /// What came cannot be understood.
    Garbled,
}

/// A connection, with what was asked on it.
pub(super) struct Connection {
    /// The socket.
    stream: TcpStream,
    /// Where it leads.
    address: SocketAddr,
    /// Its number, which every message carries.
    number: u64,
    /// How many messages were sent.
    sent: u64,
    /// When the client asked last.
    asked: Instant,
    /// Reads what comes back.
    checker: Checker,
    /// What the client does when it waits too long.
    nudge: Option<Nudge>,
    /// Nudges that nobody has counted yet.
    nudges: Nudges,
}

impl Connection {
    /// Opens one.
    pub(super) fn open(
        address: SocketAddr,
        number: u64,
        nudge: Option<Nudge>,
    ) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        let patience = nudge.map_or(PATIENCE, |_| BEFORE_NUDGE);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Connection {
            stream,
            address,
            number,
            sent: 0,
            asked: Instant::now(),
            checker: Checker::new(number),
            nudge,
            nudges: Nudges::default(),
        })
    }

    /// How many messages did not come back.
    pub(super) fn unanswered(&self) -> u64 {
        self.sent - self.checker.next().min(self.sent)
    }

    /// How many did.
    pub(super) fn answered(&self) -> u64 {
        self.checker.next().min(self.sent)
    }

    /// Sends `count` messages in one piece.
    pub(super) fn ask(&mut self, count: u64) -> Result<(), End> {
        self.asked = Instant::now();
        self.send(count)
    }

    /// Reads until everything that was asked came back.
    pub(super) fn collect(&mut self, mut found: impl FnMut(&Findings)) -> Result<(), End> {
        let since = self.asked;
        while self.unanswered() > 0 {
            let mut buffer = [0; 16 * 1024];
            match self.read(&mut buffer, since)? {
                Some(0) => return Err(End::Ended),
                Some(count) => {
                    let findings = self.checker.take(&buffer[..count]);
                    found(&findings);
                    if findings.garbled {
                        return Err(End::Garbled);
                    }
                }
                None => self.nudge()?,
            }
        }
        Ok(())
    }

    /// Closes in order: nothing more is sent, nothing more comes, and the server closes too.
    pub(super) fn close(&mut self) -> Result<(), End> {
        let since = Instant::now();
        self.stream
            .shutdown(Shutdown::Write)
            .map_err(|_| End::Ended)?;
        loop {
            match self.read(&mut [0; 64], since)? {
                Some(0) => return Ok(()),
                Some(_) => return Err(End::Garbled),
                // No message can follow any more; a connection can.
                None if self.nudge == Some(Nudge::Connection) => self.nudge()?,
                None => {}
            }
        }
    }

    /// Resets it: asks, and drops what comes unread.
    pub(super) fn reset(mut self) -> Result<(), End> {
        self.ask(1)?;
        let since = Instant::now();
        loop {
            match self.stream.peek(&mut [0]) {
                Ok(0) => return Err(End::Ended),
                Ok(_) => return Ok(()),
                Err(error) => self.bear(&error, since)?,
            }
            if self.nudge == Some(Nudge::Connection) {
                self.nudge()?;
            }
        }
    }

    /// The nudges since the last time.
    pub(super) fn take_nudges(&mut self) -> Nudges {
        std::mem::take(&mut self.nudges)
    }

    /// Sends `count` messages.
    fn send(&mut self, count: u64) -> Result<(), End> {
        let mut bytes = Vec::new();
        for number in self.sent..self.sent + count {
            message::append(&mut bytes, self.number, number);
        }
        self.sent += count;
        self.stream
            .write_all(&bytes)
            .map_err(|error| match is_too_late(&error) {
                true => End::Hung,
                false => End::Ended,
            })
    }

    /// Reads once. `None`: nothing came for a while.
    fn read(&mut self, buffer: &mut [u8], since: Instant) -> Result<Option<usize>, End> {
        match self.stream.read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) => self.bear(&error, since).map(|()| None),
        }
    }

    /// Whether one can wait on after this error.
    fn bear(&self, error: &io::Error, since: Instant) -> Result<(), End> {
        match is_too_late(error) || error.kind() == io::ErrorKind::Interrupted {
            false => Err(End::Ended),
            true if since.elapsed() > LIMIT => Err(End::Hung),
            true => Ok(()),
        }
    }

    /// Makes an edge, if that is allowed here.
    fn nudge(&mut self) -> Result<(), End> {
        match self.nudge {
            None => return Ok(()),
            Some(Nudge::Message) => {
                self.nudges.messages += 1;
                self.send(1)?;
            }
            Some(Nudge::Connection) => {
                let another = TcpStream::connect_timeout(&self.address, LIMIT);
                drop(another.map_err(|_| End::Ended)?);
            }
        }
        self.nudges.edges += 1;
        Ok(())
    }
}

/// Whether the time of an operation is over.
fn is_too_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server of one connection, which does this with it; and the client.
    fn served(serve: impl FnOnce(TcpStream) + Send + 'static) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(listener.accept().unwrap().0));
        Connection::open(address, 9, None).unwrap()
    }

    /// Sends everything back.
    fn echo(mut stream: TcpStream) {
        let _ended = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    }

    #[test]
    fn an_honest_server_answers_everything() {
        let mut connection = served(echo);
        connection.ask(100).unwrap();
        let mut answered = 0;
        connection
            .collect(|findings| answered += findings.answered)
            .unwrap();
        assert_eq!((answered, connection.unanswered()), (100, 0));
        connection.close().unwrap();
    }

    #[test]
    fn an_end_is_seen_and_what_was_asked_is_unanswered() {
        let mut connection = served(drop);
        let ended = connection.ask(3).and_then(|()| connection.collect(|_| ()));
        assert_eq!(ended, Err(End::Ended));
        assert_eq!(connection.unanswered(), 3);
    }

    #[test]
    fn a_server_that_drops_a_byte_is_caught() {
        let mut connection = served(|mut stream| {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            stream.write_all(&bytes[1..count]).unwrap();
        });
        connection.ask(2).unwrap();
        assert_eq!(connection.collect(|_| ()), Err(End::Garbled));
    }
}
