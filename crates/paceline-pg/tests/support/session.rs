//! A session with a real server, message by message.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use paceline_pg::protocol::{Tracked, Values};
use paceline_pg_wire::{backend::Reply, frontend, startup, Message};

use super::postgres::{Postgres, USER};

/// Longest time to wait for the server.
const LIMIT: Duration = Duration::from_secs(10);

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    stream: UnixStream,
    /// Bytes that are received and not used.
    buffer: Vec<u8>,
    /// The parameters that the server has reported at the login.
    pub(crate) parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A message as it was received: its type and its body.
pub(crate) type Received = (u8, Vec<u8>);

impl Session {
    /// Logs in to the database of the superuser.
    pub(crate) fn new(postgres: &Postgres) -> Self {
        Self::to(postgres, USER)
    }

    /// Logs in to a database.
    pub(crate) fn to(postgres: &Postgres, database: &str) -> Self {
        let stream = postgres.connect();
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        let mut session = Self {
            stream,
            buffer: Vec::new(),
            parameters: Vec::new(),
        };
        let mut packet = Vec::new();
        let parameters = [
            (&b"user"[..], USER.as_bytes()),
            (b"database", database.as_bytes()),
        ];
        startup::session(
            &mut packet,
            startup::Version { major: 3, minor: 0 },
            parameters,
        );
        session.send(&packet);
        loop {
            let (tag, body) = session.message();
            match Reply::read(Message { tag, body: &body }) {
                Ok(Reply::Parameter { name, value }) => {
                    session.parameters.push((name.to_vec(), value.to_vec()));
                }
                Ok(Reply::Ready(_)) => return session,
                Ok(Reply::Error(report)) => panic!("no login: {:?}", report),
                _ => {}
            }
        }
    }

    /// The parameters of the login, as a server connection has them.
    pub(crate) fn values(&self, tracked: &Tracked) -> Values {
        let mut values = Values::new();
        for (name, value) in &self.parameters {
            if let Some(place) = tracked.place(name) {
                values.set(place, value);
            }
        }
        values
    }

    /// Sends bytes. That the server has closed is seen when its replies are received.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Err(error) if !has_closed(&error) => panic!("the server takes no bytes: {error}"),
            _ => {}
        }
    }

    /// Waits for more bytes, and appends them. `None` at the end of the stream.
    pub(crate) fn receive(&mut self, bytes: &mut Vec<u8>) -> Option<usize> {
        let mut piece = [0; 8192];
        match self.stream.read(&mut piece) {
            Ok(0) => None,
            Err(error) if has_closed(&error) => None,
            Ok(count) => {
                bytes.extend_from_slice(&piece[..count]);
                Some(count)
            }
            Err(error) => panic!("the server does not answer: {error}"),
        }
    }

    /// Appends the bytes that have come.
    pub(crate) fn poll(&mut self, bytes: &mut Vec<u8>) {
        self.stream
            .set_nonblocking(true)
            .expect("it does not block");
        let mut piece = [0; 8192];
        if let Ok(count) = self.stream.read(&mut piece) {
            bytes.extend_from_slice(&piece[..count]);
        }
        self.stream.set_nonblocking(false).expect("it blocks");
    }

    /// Waits for the next message.
    pub(crate) fn message(&mut self) -> Received {
        loop {
            let first = Message::first(&self.buffer, 1 << 30).expect("a good message");
            if let Some((message, length)) = first {
                let received = (message.tag, message.body.to_vec());
                self.buffer.drain(..length);
                return received;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            assert!(self.receive(&mut buffer).is_some(), "the server has closed");
            self.buffer = buffer;
        }
    }

    /// Runs a simple query, and returns all its messages.
    pub(crate) fn query(&mut self, sql: &str) -> Vec<Received> {
        let mut bytes = Vec::new();
        frontend::query(&mut bytes, sql.as_bytes());
        self.send(&bytes);
        let mut all = Vec::new();
        loop {
            all.push(self.message());
            if all.last().is_some_and(|(tag, _)| *tag == b'Z') {
                return all;
            }
        }
    }
}

/// Whether the server has closed the connection, with bytes unread.
fn has_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}
