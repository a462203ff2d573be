//! A blocking client of PostgreSQL's protocol, one request at a time.

mod answer;
mod failure;
mod login;
mod target;

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use paceline_pg_wire::{backend::Reply, frontend, Message, TransactionStatus};

pub use answer::{Answer, Value};
pub use failure::{Failure, ServerError};
pub use target::{BadUrl, Target};

/// How statements with values are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// As texts with the values written into them.
    Simple,
    /// Parsed anew for each execution, without a name.
    #[default]
    Extended,
    /// Parsed once for each session, under a name.
    Prepared,
}

/// The longest message of a server that this client accepts.
const LONGEST: usize = 256 << 20;

/// How many bytes are read at once.
const PIECE: usize = 16 << 10;

/// A session with a server.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    /// What has arrived; the first `taken` bytes are read.
    input: Vec<u8>,
    taken: usize,
    /// What is to be sent with the next request.
    output: Vec<u8>,
    status: TransactionStatus,
    protocol: Protocol,
    /// The name of each prepared statement by its text.
    prepared: HashMap<String, String>,
    /// How many names were given.
    names: u64,
    is_over: bool,
}

impl Session {
    /// Connects and logs in. A wait for a reply, or for room to send, ends when no byte has
    /// arrived for `timeout`.
    ///
    /// # Errors
    /// [`Failure`] if there is no connection, or the server refuses the login.
    pub fn open(target: &Target, protocol: Protocol, timeout: Duration) -> Result<Self, Failure> {
        let stream = connected(target, timeout)?;
        let mut session = Self {
            stream,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            status: TransactionStatus::Idle,
            protocol,
            prepared: HashMap::new(),
            names: 0,
            is_over: false,
        };
        login::log_in(&mut session, target)?;
        Ok(session)
    }

    /// Runs a text of SQL without values.
    ///
    /// # Errors
    /// [`Failure`] if the server refuses it, or the session ends.
    pub fn query(&mut self, sql: &str) -> Result<Answer, Failure> {
        frontend::query(&mut self.output, sql.as_bytes());
        self.request()
    }

    /// Runs one statement with the values of `$1`, `$2` and so on, as the session's protocol says.
    ///
    /// # Errors
    /// [`Failure`] if the server refuses it, or the session ends.
    pub fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Answer, Failure> {
        match self.protocol {
            Protocol::Simple => return self.query(&answer::with_literals(sql, values)),
            Protocol::Extended => self.append_execution("", Some(sql), values),
            Protocol::Prepared => return self.execute_prepared(sql, values),
        }
        self.request()
    }

    /// The state of the transaction that the server has reported last.
    #[must_use]
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Whether the session has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the server has ended the session while the client had no request under way. A
    /// request that is sent all the same would have an unknown outcome for no reason.
    pub fn has_been_ended(&mut self) -> bool {
        let mut first = [0];
        let peeked = self.stream.set_nonblocking(true).and_then(|()| {
            let peeked = self.stream.peek(&mut first);
            self.stream.set_nonblocking(false)?;
            peeked
        });
        self.is_over |= match peeked {
            // Notices and settings may arrive at any time; an error ends an idle session.
            Ok(count) => count == 0 || first[0] == b'E',
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        self.is_over
    }

    /// Ends the session in the way that the protocol wants.
    pub fn close(mut self) {
        frontend::terminate(&mut self.output);
        // The server ends the session as well if the connection is gone.
        let _ = self.send("ending the session");
    }

    /// A statement gets its name only when the server has accepted it. A name is given once: the
    /// server has the statement all the same if it has parsed it and its execution has failed.
    fn execute_prepared(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Answer, Failure> {
        if let Some(name) = self.prepared.get(sql).cloned() {
            self.append_execution(&name, None, values);
            return self.request();
        }
        let name = format!("check_{}", self.names);
        self.names += 1;
        self.append_execution(&name, Some(sql), values);
        let answer = self.request();
        if answer.as_ref().is_ok_and(|answer| answer.is_parsed) {
            self.prepared.insert(sql.to_owned(), name);
        }
        answer
    }

    /// Appends the messages of one execution, with a `Parse` if there is a text.
    fn append_execution(&mut self, name: &str, sql: Option<&str>, values: &[Value<'_>]) {
        let texts: Vec<_> = values.iter().map(Value::text).collect();
        let bytes: Vec<_> = texts.iter().map(|text| Some(text.as_bytes())).collect();
        let output = &mut self.output;
        if let Some(sql) = sql {
            let types: Vec<_> = values.iter().map(Value::oid).collect();
            frontend::parse(output, name.as_bytes(), sql.as_bytes(), &types);
        }
        frontend::bind(output, b"", name.as_bytes(), &bytes);
        frontend::execute(output, b"", 0);
        frontend::sync(output);
    }

    /// Sends what is appended, and reads up to the end of the requests.
    fn request(&mut self) -> Result<Answer, Failure> {
        let answer = self.exchange();
        self.is_over |= answer.as_ref().is_err_and(Failure::ends_session);
        answer
    }

    fn exchange(&mut self) -> Result<Answer, Failure> {
        self.send("sending a request")?;
        let mut answer = Answer::default();
        let mut error = None;
        loop {
            let reply = match self.receive("waiting for a reply") {
                Ok(reply) => reply,
                // The reason of the server explains more than the end of its connection.
                Err(lost) => return Err(error.map_or(lost, Failure::Ended)),
            };
            match reply {
                Reply::Ready(status) => {
                    self.status = status;
                    return error.map_or(Ok(answer), |error| Err(Failure::of_server(error)));
                }
                Reply::Error(report) => error = error.or(Some(ServerError::new(&report))),
                Reply::CopyIn(_) | Reply::CopyOut(_) | Reply::CopyBoth(_) => {
                    let what = "the server copies data, and this client can't";
                    return Err(Failure::Protocol(what.to_owned()));
                }
                other => answer.add(other),
            }
        }
    }

    fn send(&mut self, attempt: &'static str) -> Result<(), Failure> {
        let output = std::mem::take(&mut self.output);
        let sent = self.stream.write_all(&output);
        sent.map_err(Failure::lost(attempt))
    }

    /// The next message of the server.
    fn receive(&mut self, attempt: &'static str) -> Result<Reply<'_>, Failure> {
        while Message::first(&self.input[self.taken..], LONGEST)?.is_none() {
            self.fill().map_err(Failure::lost(attempt))?;
        }
        let first = Message::first(&self.input[self.taken..], LONGEST)?;
        let (message, length) = first.expect("the loop has waited for the whole message");
        self.taken += length;
        Ok(Reply::read(message)?)
    }

    /// Reads more bytes behind those that are not taken.
    fn fill(&mut self) -> std::io::Result<()> {
        self.input.drain(..self.taken);
        self.taken = 0;
        let length = self.input.len();
        self.input.resize(length + PIECE, 0);
        let read = self.stream.read(&mut self.input[length..]);
        self.input
            .truncate(length + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A connection to the first address that answers.
fn connected(target: &Target, timeout: Duration) -> Result<TcpStream, Failure> {
    const ATTEMPT: &str = "connecting";
    let addresses = (target.host.as_str(), target.port).to_socket_addrs();
    let mut last = std::io::ErrorKind::AddrNotAvailable.into();
    for address in addresses.map_err(Failure::lost("resolving the host's name"))? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return prepared(stream, timeout).map_err(Failure::lost(ATTEMPT)),
            Err(error) => last = error,
        }
    }
    Err(Failure::lost(ATTEMPT)(last))
}

/// Requests are small and wait for their replies: delaying them would only cost time.
fn prepared(stream: TcpStream, timeout: Duration) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}
