//! The socket under a conversation: every wait on it has a limit, and a client that has waited too long may make an
//! edge in the server, where the terms say so.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::conversation::End;

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
    /// By a message that is answered.
    pub(super) messages: u64,
}

/// A socket to the server.
pub(super) struct Wire {
    /// The socket.
    stream: TcpStream,
    /// Where it leads.
    address: SocketAddr,
    /// What the client does when it waits too long.
    pub(super) nudge: Option<Nudge>,
    /// Nudges that are not counted yet.
    pub(super) nudges: Nudges,
}

impl Wire {
    /// Opens one.
    pub(super) fn open(address: SocketAddr, nudge: Option<Nudge>) -> io::Result<Wire> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        let patience = nudge.map_or(PATIENCE, |_| BEFORE_NUDGE);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Wire {
            stream,
            address,
            nudge,
            nudges: Nudges::default(),
        })
    }

    /// A second owner of the socket, which stays open as long as either is there.
    pub(super) fn second(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Sends everything.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        let late = |error: io::Error| {
            if is_too_late(&error) {
                End::Hung
            } else {
                End::Ended
            }
        };
        self.stream.write_all(bytes).map_err(late)
    }

    /// Nothing more will be sent.
    pub(super) fn send_no_more(&self) -> Result<(), End> {
        self.stream
            .shutdown(Shutdown::Write)
            .map_err(|_| End::Ended)
    }

    /// Reads once. `None`: nothing came for a while.
    pub(super) fn read(&mut self, buffer: &mut [u8], since: Instant) -> Result<Option<usize>, End> {
        match self.stream.read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) => bear(&error, since).map(|()| None),
        }
    }

    /// Waits until something is there to be read, and leaves it there.
    pub(super) fn await_input(&mut self) -> Result<(), End> {
        let since = Instant::now();
        loop {
            match self.stream.peek(&mut [0]) {
                Ok(0) => return Err(End::Ended),
                Ok(_) => return Ok(()),
                Err(error) => bear(&error, since)?,
            }
            self.knock()?;
        }
    }

    /// Makes an edge by a further connection, if that is allowed here.
    pub(super) fn knock(&mut self) -> Result<(), End> {
        if self.nudge == Some(Nudge::Connection) {
            let another = TcpStream::connect_timeout(&self.address, LIMIT);
            drop(another.map_err(|_| End::Ended)?);
            self.nudges.edges += 1;
        }
        Ok(())
    }
}

/// Whether one can wait on after this error.
fn bear(error: &io::Error, since: Instant) -> Result<(), End> {
    if !is_too_late(error) && error.kind() != io::ErrorKind::Interrupted {
        Err(End::Ended)
    } else if since.elapsed() > LIMIT {
        Err(End::Hung)
    } else {
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
