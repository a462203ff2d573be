//! A client that speaks the protocol message by message.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
};

use paceline_pg_wire::{
    auth::scram,
    backend::{Authentication, Reply},
    frontend,
    startup::{self, CancelKey, Version},
    Message,
};

use crate::LIMIT;

/// A connection in plain text, or under TLS.
pub(crate) trait Channel: Read + Write + Send {}

impl<C: Read + Write + Send> Channel for C {}

/// A session of a client.
pub(crate) struct Client {
    channel: Box<dyn Channel>,
    pooler: SocketAddr,
    buffer: Vec<u8>,
    /// The key for cancels.
    pub(crate) key: (i32, Vec<u8>),
    /// The parameters at the login.
    pub(crate) parameters: Vec<(String, String)>,
}

/// What a client asks for.
pub(crate) struct Connect {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) parameters: Vec<(String, String)>,
}

/// An error of the server: its SQLSTATE and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// What a query gave: rows of texts.
pub(crate) type Rows = Vec<Vec<String>>;

impl Connect {
    pub(crate) fn new(database: &str, user: &str) -> Self {
        Self {
            database: database.to_owned(),
            user: user.to_owned(),
            password: None,
            parameters: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The first packet.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        let own = [
            (&b"user"[..], self.user.as_bytes()),
            (b"database", self.database.as_bytes()),
        ];
        let more = self.parameters.iter();
        let more = more.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let version = Version { major: 3, minor: 0 };
        startup::session(&mut packet, version, own.into_iter().chain(more));
        packet
    }
}

impl Client {
    /// Logs in.
    pub(crate) fn to(address: SocketAddr, connect: &Connect) -> Result<Self, Failure> {
        let mut client = Self::connected(address);
        client.send(&connect.packet());
        client.log_in(connect)
    }

    /// The connection alone, which stays open.
    #[allow(dead_code, reason = "not every test program uses it")]
    pub(crate) fn into_channel(self) -> Box<dyn Channel> {
        self.channel
    }

    /// A connection without a login.
    pub(crate) fn connected(address: SocketAddr) -> Self {
        Self::through(address, Box::new(connect(address)))
    }

    /// A connection without a login, whose bytes go through `channel`.
    pub(crate) fn through(pooler: SocketAddr, channel: Box<dyn Channel>) -> Self {
        Self {
            channel,
            pooler,
            buffer: Vec::new(),
            key: (0, Vec::new()),
            parameters: Vec::new(),
        }
    }

    /// A connection by a Unix socket, without a login.
    pub(crate) fn of_unix(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        // Requests to cancel go to no address here.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::through(nowhere, Box::new(stream))
    }

    /// Waits for the end of a login that was begun.
    pub(crate) fn log_in(mut self, connect: &Connect) -> Result<Self, Failure> {
        let password = connect.password.as_deref().unwrap_or_default().as_bytes();
        loop {
            let (tag, body) = match self.message() {
                Ok(message) => message,
                Err(error) => return Err(closed(&error)),
            };
            match Reply::read(Message { tag, body: &body }) {
                Ok(Reply::Authentication(Authentication::Password)) => {
                    let mut bytes = Vec::new();
                    frontend::password(&mut bytes, password);
                    self.send(&bytes);
                }
                Ok(Reply::Authentication(Authentication::Sasl(_))) => self.prove(password),
                Ok(Reply::Parameter { name, value }) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.parameters.push((text(name), text(value)));
                }
                Ok(Reply::KeyData { process, secret }) => self.key = (process, secret.to_vec()),
                Ok(Reply::Ready(_)) => return Ok(self),
                Ok(Reply::Error(report)) => return Err(failure(&report)),
                _ => {}
            }
        }
    }

    /// SCRAM. The pooler must know the secret too.
    fn prove(&mut self, password: &[u8]) {
        let client = scram::Client::new("the-nonce-of-this-test");
        let mut bytes = Vec::new();
        frontend::sasl_initial(
            &mut bytes,
            scram::MECHANISM.as_bytes(),
            client.first().as_bytes(),
        );
        self.send(&bytes);
        let Some(first) = self.sasl_data() else {
            return;
        };
        let credentials = scram::Credentials::Password(password.to_vec());
        let answered = client.answer(&first, &credentials);
        let (proved, answer) = answered.expect("a good challenge");
        let mut bytes = Vec::new();
        frontend::sasl_response(&mut bytes, answer.as_bytes());
        self.send(&bytes);
        if let Some(last) = self.sasl_data() {
            proved.verify(&last).expect("the pooler knows the secret");
        }
    }

    /// The next data of SASL. An error is left for the caller.
    fn sasl_data(&mut self) -> Option<Vec<u8>> {
        let (tag, body) = self.message().ok()?;
        match Reply::read(Message { tag, body: &body }) {
            Ok(Reply::Authentication(
                Authentication::SaslContinue(data) | Authentication::SaslFinal(data),
            )) => Some(data.to_vec()),
            _ => {
                let mut message = vec![tag];
                let length = u32::try_from(body.len() + 4).expect("a short message");
                message.extend(length.to_be_bytes());
                message.extend(&body);
                self.buffer.splice(0..0, message);
                None
            }
        }
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the pooler takes bytes");
    }

    /// Sends, although the pooler may have closed.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.channel.write_all(bytes)?;
        self.channel.flush()
    }

    /// The next message; an error at the end of the stream.
    pub(crate) fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        loop {
            let first = Message::first(&self.buffer, 1 << 30).expect("a good message");
            if let Some((message, length)) = first {
                let received = (message.tag, message.body.to_vec());
                self.buffer.drain(..length);
                return Ok(received);
            }
            let mut piece = [0; 16384];
            match self.channel.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.buffer.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// The bytes up to the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.buffer);
        // A reset is an end too.
        let _ = self.channel.read_to_end(&mut all);
        all
    }

    /// Runs a simple query.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Rows, Failure> {
        self.begin(sql);
        self.finish()
    }

    /// Whether a query succeeds; the pooler may have closed the connection.
    pub(crate) fn try_query(&mut self, sql: &str) -> bool {
        let mut bytes = Vec::new();
        frontend::query(&mut bytes, sql.as_bytes());
        self.try_send(&bytes).is_ok() && self.finish().is_ok()
    }

    /// Sends a simple query.
    pub(crate) fn begin(&mut self, sql: &str) {
        let mut bytes = Vec::new();
        frontend::query(&mut bytes, sql.as_bytes());
        self.send(&bytes);
    }

    /// Reads up to the next `Z`, or to the end of the connection.
    pub(crate) fn finish(&mut self) -> Result<Rows, Failure> {
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let (tag, body) = match self.message() {
                Ok(message) => message,
                Err(error) => return Err(failed.unwrap_or_else(|| closed(&error))),
            };
            match Reply::read(Message { tag, body: &body }) {
                Ok(Reply::Row(values)) => {
                    let text = |value: Option<&[u8]>| {
                        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
                    };
                    rows.push(values.iter().map(text).collect());
                }
                Ok(Reply::Error(report)) => failed = Some(failure(&report)),
                Ok(Reply::Ready(_)) => return failed.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Asks on another connection for the cancel of this client's query, and waits for its end.
    pub(crate) fn cancel(&self) {
        cancel(self.pooler, &self.key);
    }
}

/// A connection to the pooler.
pub(crate) fn connect(pooler: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(pooler).expect("the pooler accepts");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// Asks for a cancel, and waits until the connection ends.
pub(crate) fn cancel(address: SocketAddr, (process, secret): &(i32, Vec<u8>)) {
    let mut client = Client::connected(address);
    let mut packet = Vec::new();
    let key = CancelKey {
        process: *process,
        secret,
    };
    startup::cancel(&mut packet, key);
    client.send(&packet);
    assert_eq!(client.rest(), b"", "a cancel has no reply");
}

fn failure(report: &paceline_pg_wire::Report<'_>) -> Failure {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Failure {
        code: text(report.code()),
        message: text(report.message()),
    }
}

fn closed(error: &io::Error) -> Failure {
    Failure {
        code: "closed".to_owned(),
        message: error.to_string(),
    }
}
