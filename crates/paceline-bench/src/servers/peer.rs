//! One connection: what is common to the servers written by hand. No thread waits for it: output that it does
//! not take is kept.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
};

use super::counts::LastThread;
use crate::service::{perform_all, Rest};

/// A connection. One thread at a time has it.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    rest: Rest,
    /// Output that it did not take yet. While there is some, nothing is read.
    unsent: Vec<u8>,
    last: LastThread,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// The end of the stream.
    End,
    /// Nothing now.
    Nothing,
    /// Less than there was room for.
    Little,
    /// As much as there was room for: there may be more.
    Full,
    /// It has to be waited for until the peer takes more output.
    Stuck,
}

/// Whether a connection continues.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    Ended,
}

impl Peer {
    /// Of a stream that does not block.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            rest: Rest::NONE,
            unsent: Vec::new(),
            last: LastThread::default(),
        }
    }

    /// Reads once, does what whole requests ask for, and replies to all of them by one write.
    pub(super) fn serve_once(&mut self, buffer: &mut [u8], steps: u32) -> io::Result<Brought> {
        if !self.is_all_sent()? {
            return Ok(Brought::Stuck);
        }
        let before = self.rest.restore(buffer);
        let room = buffer.len() - before;
        let count = match read(&self.stream, &mut buffer[before..])? {
            None => return Ok(Brought::Nothing),
            Some(0) => return Ok(Brought::End),
            Some(count) => count,
        };
        self.last.note();
        let whole = self.rest.keep(&buffer[..before + count]);
        perform_all(&buffer[..whole], steps);
        let sent = send(&self.stream, &buffer[..whole])?;
        if sent < whole {
            self.unsent.extend_from_slice(&buffer[sent..whole]);
            return Ok(Brought::Stuck);
        }
        Ok(if count < room {
            Brought::Little
        } else {
            Brought::Full
        })
    }

    /// Reads and replies until nothing is left, or until the peer takes no more; for edge-triggered servers. A
    /// read that was short emptied the stream, unless a hang-up was reported: then the end is still to be read.
    pub(super) fn serve_all(&mut self, buffer: &mut [u8], hung_up: bool, steps: u32) -> State {
        loop {
            match self.serve_once(buffer, steps) {
                Ok(Brought::Full) => {}
                Ok(Brought::Little) if hung_up => {}
                Ok(Brought::Little | Brought::Nothing | Brought::Stuck) => return State::Open,
                Ok(Brought::End) | Err(_) => return State::Ended,
            }
        }
    }

    /// Whether no output is left, after an attempt to send it.
    fn is_all_sent(&mut self) -> io::Result<bool> {
        if !self.unsent.is_empty() {
            let sent = send(&self.stream, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(self.unsent.is_empty())
    }
}

/// Reads what is there; `None`: nothing now.
pub(super) fn read(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.read(buffer) {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends what the socket accepts now; returns how much.
pub(super) fn send(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
