//! A client that speaks message by message, so that it can be left in any state of the protocol.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use paceline_pg_wire::{
    backend::Reply,
    frontend,
    startup::{self, Version},
    Message, Report, Severity, TransactionStatus,
};

/// The longest message that this client accepts.
const LONGEST: usize = 64 << 20;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    status: TransactionStatus,
}

/// Why a request has no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server has sent an error with this SQLSTATE, and the session continues.
    Refused(String),
    /// The session has ended; the SQLSTATE of the last words, if there were any.
    Ended(Option<String>),
    /// No byte has arrived in time.
    Hung,
}

/// What a request has got, up to the next `ReadyForQuery`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Rows of texts.
    pub(super) rows: Vec<Vec<String>>,
    /// The tag of each statement.
    pub(super) tags: Vec<String>,
    /// How many pieces of data were copied out.
    pub(super) pieces: u64,
}

impl Client {
    /// Logs in. A wait for a byte ends after `patience`.
    pub(super) fn open(
        address: SocketAddr,
        user: &str,
        database: &str,
        patience: Duration,
    ) -> Result<Self, Trouble> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, patience)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(stream)
        };
        let mut client = Self {
            stream: connect().map_err(|error| Trouble::of(&error))?,
            input: Vec::new(),
            status: TransactionStatus::Idle,
        };
        client.send(&login(user, database))?;
        client.answer()?;
        Ok(client)
    }

    /// Sends bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(()),
            // What the peer has said before its end explains more.
            Err(error) => Err(self.last_words().unwrap_or_else(|| Trouble::of(&error))),
        }
    }

    /// Sends messages.
    pub(super) fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Trouble> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.send(&bytes)
    }

    /// Runs a text of SQL.
    pub(super) fn query(&mut self, sql: &str) -> Result<Answer, Trouble> {
        self.say(|out| frontend::query(out, sql.as_bytes()))?;
        self.answer()
    }

    /// Leaves a transaction block, if the last answer says that there is one.
    pub(super) fn leave_block(&mut self) -> Result<(), Trouble> {
        if self.status == TransactionStatus::Idle {
            return Ok(());
        }
        self.query("ROLLBACK").map(drop)
    }

    /// Reads up to the next `ReadyForQuery`.
    pub(super) fn answer(&mut self) -> Result<Answer, Trouble> {
        let mut answer = Answer::default();
        let mut refused = None;
        loop {
            let (tag, body) = self.message()?;
            match Reply::read(Message { tag, body: &body }) {
                Ok(Reply::Row(values)) => {
                    let values = values.iter().map(|value| text(value.unwrap_or_default()));
                    answer.rows.push(values.collect());
                }
                Ok(Reply::Complete(tag)) => answer.tags.push(text(tag)),
                Ok(Reply::CopyData(_)) => answer.pieces += 1,
                Ok(Reply::Error(report)) => {
                    let trouble = Trouble::reported(&report);
                    if let Trouble::Ended(_) = trouble {
                        return Err(trouble);
                    }
                    refused = refused.or(Some(trouble));
                }
                Ok(Reply::Ready(status)) => {
                    self.status = status;
                    return refused.map_or(Ok(answer), Err);
                }
                _ => {}
            }
        }
    }

    /// Reads up to a message of this type, or to an error.
    pub(super) fn wait_for(&mut self, wanted: u8) -> Result<(), Trouble> {
        loop {
            let (tag, body) = self.message()?;
            if tag == wanted {
                return Ok(());
            }
            if let Ok(Reply::Error(report)) = Reply::read(Message { tag, body: &body }) {
                return Err(Trouble::reported(&report));
            }
        }
    }

    fn message(&mut self) -> Result<(u8, Vec<u8>), Trouble> {
        loop {
            let first = Message::first(&self.input, LONGEST);
            let first = first.map_err(|_| Trouble::Ended(Some("malformed".to_owned())))?;
            if let Some((message, length)) = first {
                let received = (message.tag, message.body.to_vec());
                self.input.drain(..length);
                return Ok(received);
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(Trouble::Ended(None)),
                Ok(count) => self.input.extend_from_slice(&piece[..count]),
                Err(error) => return Err(Trouble::of(&error)),
            }
        }
    }

    /// What the peer has sent before it has ended the connection.
    fn last_words(&mut self) -> Option<Trouble> {
        loop {
            let (tag, body) = self.message().ok()?;
            if let Ok(Reply::Error(report)) = Reply::read(Message { tag, body: &body }) {
                return Some(Trouble::Ended(Some(text(report.code()))));
            }
        }
    }
}

impl Trouble {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Hung,
            _ => Self::Ended(None),
        }
    }

    fn reported(report: &Report<'_>) -> Self {
        let code = text(report.code());
        if report.severity() == Severity::Error.name().as_bytes() {
            Self::Refused(code)
        } else {
            Self::Ended(Some(code))
        }
    }

    /// The SQLSTATE, or what took its place.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Refused(code) => code.clone(),
            Self::Ended(Some(code)) => format!("ended {code}"),
            Self::Ended(None) => "ended".to_owned(),
            Self::Hung => "hung".to_owned(),
        }
    }
}

/// Whether a login on this connection ends with a session. The server may be on its way up.
pub(crate) fn answers_login(
    stream: &mut (impl Read + Write),
    user: &str,
    database: &str,
) -> io::Result<bool> {
    stream.write_all(&login(user, database))?;
    let mut input = Vec::new();
    loop {
        let mut piece = [0; 4096];
        match stream.read(&mut piece)? {
            0 => return Ok(false),
            count => input.extend_from_slice(&piece[..count]),
        }
        let ready = [b'Z', 0, 0, 0, 5, TransactionStatus::Idle.byte()];
        if input.ends_with(&ready) {
            return Ok(true);
        }
    }
}

fn login(user: &str, database: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    let parameters = [("user", user), ("database", database)];
    let parameters = parameters.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    startup::session(&mut packet, Version { major: 3, minor: 0 }, parameters);
    packet
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
