//! The login to a server.
//!
//! ```text
//!   Asking -> Encrypting   the server answers S to the SSLRequest        [feed]
//!   Asking -> Greeting     it answers N, or TLS is not wanted            [start, feed]
//!   Encrypting -> Greeting the handshake is done                         [tls_started]
//!   Greeting -> Greeting   password, MD5, the steps of SCRAM             [feed, hashed]
//!   Greeting -> Settling   the server has accepted                       [feed]
//!   Settling -> Done       it is ready                                   [feed]
//! ```

use std::sync::Arc;

use paceline_pg_wire::{
    auth::{
        md5,
        scram::{Client, Credentials, Keys, Proved, MECHANISM},
    },
    backend::{Authentication, Reply, Texts},
    frontend,
    startup::{self, Version},
    Header, Malformed, Message, Report,
};

use super::{
    client::nonce_text,
    secrets::{Outcome, Work},
    Hashed, Hashing, StoredPassword,
};

/// The longest message of a server at its login.
const LIMIT: usize = 1 << 20;

/// An error that seems longer than this is a text without a length.
const MOST_ERROR: usize = 30_000;

/// The SQLSTATE of a failure that the server has not reported itself.
const NO_CODE: Option<String> = None;

/// Whether the connection to a server uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTls {
    /// It does not.
    Disabled,
    /// It does if the server can.
    Preferred,
    /// It must.
    Required,
}

/// The credentials of the front-end at a server.
#[derive(Clone, Debug)]
pub enum ServerCredentials {
    /// Nothing: the server must trust it.
    None,
    /// A password, or its MD5 form.
    Password(StoredPassword),
    /// The keys of a client that has authenticated with the same SCRAM secret.
    Keys(Keys),
}

/// How a login begins.
#[derive(Clone, Debug)]
pub struct ServerStart {
    /// Whether the connection uses TLS.
    pub tls: ServerTls,
    /// The user.
    pub user: String,
    /// The database and all other parameters, in their order.
    pub parameters: Vec<(String, Vec<u8>)>,
    /// How the front-end authenticates.
    pub credentials: ServerCredentials,
    /// Random bytes for the nonce of SCRAM.
    pub nonce: [u8; 18],
}

/// The caller's next step, after it has sent the output.
#[derive(Debug)]
#[must_use]
pub enum ServerStep {
    /// Read further.
    More,
    /// Begin the handshake of TLS; then call [`ServerLogin::tls_started`].
    StartTls,
    /// Run this when another thread leads, and call [`ServerLogin::hashed`].
    Hash(Hashing),
    /// The server is ready for queries.
    Ready(Box<ServerReady>),
    /// Close the connection.
    Failed(ServerFailure),
}

/// The reports of a server at its login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReady {
    /// Its parameters.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of its process and the secret of its key, if it has given one.
    pub key: Option<(i32, Vec<u8>)>,
}

/// Why a login has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFailure {
    /// The server's severity, if it has reported an error.
    pub severity: Option<String>,
    /// The SQLSTATE, if the server has given one.
    pub code: Option<String>,
    /// The text.
    pub message: String,
}

impl ServerFailure {
    fn own(message: impl Into<String>) -> Self {
        Self {
            severity: None,
            code: NO_CODE,
            message: message.into(),
        }
    }

    fn reported(report: &Report<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let severity = report.get(b'V').or_else(|| report.get(b'S'));
        Self {
            severity: severity.map(text),
            code: report.get(b'C').map(text),
            message: text(report.message()),
        }
    }

    /// Whether the server only starts or stops (57P03): clients wait for it.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.code.as_deref() == Some("57P03")
    }
}

impl From<Malformed> for ServerFailure {
    fn from(malformed: Malformed) -> Self {
        Self::own(malformed.to_string())
    }
}

/// The login to one server.
#[derive(Debug)]
pub struct ServerLogin {
    start: ServerStart,
    state: State,
    ready: ServerReady,
}

#[derive(Debug)]
enum State {
    Asking,
    Encrypting,
    Greeting(Scram),
    Settling,
    Done,
}

/// The progress of SCRAM.
#[derive(Debug)]
enum Scram {
    None,
    Begun(Client),
    Hashing,
    Proved(Proved),
    /// The server has proved itself too.
    Verified,
}

impl ServerLogin {
    /// A login that has not begun.
    #[must_use]
    pub fn new(start: ServerStart) -> Self {
        Self {
            start,
            state: State::Asking,
            ready: ServerReady::default(),
        }
    }

    /// Begins the login on a new connection: appends the first packet.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        match self.start.tls {
            ServerTls::Disabled => self.greet(out),
            ServerTls::Preferred | ServerTls::Required => startup::ask_tls(out),
        }
    }

    /// The handshake of TLS is done.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) {
        self.greet(out);
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        let user = (&b"user"[..], self.start.user.as_bytes());
        let others = self.start.parameters.iter();
        let others = others.map(|(name, value)| (name.as_bytes(), value.as_slice()));
        let version = Version { major: 3, minor: 0 };
        startup::session(out, version, std::iter::once(user).chain(others));
        self.state = State::Greeting(Scram::None);
    }

    /// Takes the next answer or message of `input`, which is all input so far. The first value is
    /// the number of bytes taken.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, ServerStep) {
        let fed = match self.state {
            State::Asking => self.read_tls_answer(input, out),
            State::Greeting(Scram::Hashing) => Ok((0, ServerStep::More)),
            State::Greeting(_) | State::Settling => self.read_message(input, out),
            State::Encrypting | State::Done => Ok((0, ServerStep::More)),
        };
        fed.unwrap_or_else(|failure| {
            self.state = State::Done;
            (0, ServerStep::Failed(failure))
        })
    }

    fn read_tls_answer(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ServerStep), ServerFailure> {
        match input {
            [] => Ok((0, ServerStep::More)),
            [b'S'] => {
                self.state = State::Encrypting;
                Ok((1, ServerStep::StartTls))
            }
            [b'S', ..] => Err(ServerFailure::own(
                "data behind the server's answer to SSLRequest",
            )),
            [b'N', ..] if self.start.tls == ServerTls::Required => {
                Err(ServerFailure::own("server does not support TLS"))
            }
            [b'N', ..] => {
                self.greet(out);
                Ok((1, ServerStep::More))
            }
            // A server that can't fork sends an error in place of the answer.
            [b'E', ..] => self.read_message(input, out),
            _ => Err(ServerFailure::own("bad answer to SSLRequest")),
        }
    }

    fn read_message(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ServerStep), ServerFailure> {
        if self.is_bare(input) {
            return Self::read_bare(input);
        }
        let Some((message, length)) = Message::first(input, LIMIT)? else {
            return Ok((0, ServerStep::More));
        };
        let step = match Reply::read(message)? {
            Reply::Error(report) => return Err(ServerFailure::reported(&report)),
            Reply::Notice(_) => ServerStep::More,
            Reply::Negotiate { .. } if matches!(self.state, State::Greeting(_)) => ServerStep::More,
            Reply::Authentication(authentication) => self.authenticate(authentication, out)?,
            reply if matches!(self.state, State::Settling) => self.settle(reply)?,
            _ => return Err(unexpected(message.tag)),
        };
        Ok((length, step))
    }

    /// Whether the input is a text without a length: a server sends that if it can't start a
    /// process for the connection. Read as a length, its first letters are more than a GiB.
    fn is_bare(&self, input: &[u8]) -> bool {
        let is_first = matches!(self.state, State::Asking | State::Greeting(Scram::None));
        let header = Header::first(input).ok().flatten();
        let is_long = header.is_some_and(|it| it.tag == b'E' && it.message() > MOST_ERROR);
        is_first && is_long
    }

    /// Reads such an error, once its end has arrived.
    fn read_bare(input: &[u8]) -> Result<(usize, ServerStep), ServerFailure> {
        let text = &input[1..];
        match text.iter().position(|byte| *byte == 0) {
            Some(end) => {
                let text = String::from_utf8_lossy(&text[..end]);
                Err(ServerFailure::own(text.trim()))
            }
            None if input.len() < MOST_ERROR => Ok((0, ServerStep::More)),
            None => Err(ServerFailure::own("an error without an end")),
        }
    }

    fn settle(&mut self, reply: Reply<'_>) -> Result<ServerStep, ServerFailure> {
        match reply {
            Reply::Parameter { name, value } => {
                let parameters = &mut self.ready.parameters;
                parameters.retain(|(known, _)| known != name);
                parameters.push((name.to_vec(), value.to_vec()));
            }
            Reply::KeyData { process, secret } => {
                self.ready.key = Some((process, secret.to_vec()));
            }
            Reply::Ready(_) => {
                self.state = State::Done;
                let ready = std::mem::take(&mut self.ready);
                return Ok(ServerStep::Ready(Box::new(ready)));
            }
            _ => return Err(ServerFailure::own("unknown message at the end of a login")),
        }
        Ok(ServerStep::More)
    }

    fn authenticate(
        &mut self,
        authentication: Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ServerStep, ServerFailure> {
        let State::Greeting(scram) = &mut self.state else {
            return Err(unexpected(b'R'));
        };
        let scram = std::mem::replace(scram, Scram::None);
        let next = match (authentication, scram) {
            (Authentication::Ok, Scram::None | Scram::Verified) => {
                self.state = State::Settling;
                return Ok(ServerStep::More);
            }
            (Authentication::Password, Scram::None) => self.send_password(out)?,
            (Authentication::Md5(salt), Scram::None) => self.send_md5(salt, out)?,
            (Authentication::Sasl(mechanisms), Scram::None) => self.begin_scram(mechanisms, out)?,
            (Authentication::SaslContinue(first), Scram::Begun(client)) => {
                return self.prove(client, first, out);
            }
            (Authentication::SaslFinal(last), Scram::Proved(proved)) => {
                let verified = proved.verify(last);
                verified.map_err(|why| ServerFailure::own(format!("SCRAM: {why}")))?;
                Scram::Verified
            }
            (Authentication::Other(number), _) => {
                let text = format!("unknown/unsupported auth method: {number}");
                return Err(ServerFailure::own(text));
            }
            _ => return Err(unexpected(b'R')),
        };
        self.state = State::Greeting(next);
        Ok(ServerStep::More)
    }

    fn send_password(&self, out: &mut Vec<u8>) -> Result<Scram, ServerFailure> {
        match &self.start.credentials {
            ServerCredentials::Password(StoredPassword::Plain(password)) => {
                frontend::password(out, password);
                Ok(Scram::None)
            }
            _ => Err(self.lacks("a plain password")),
        }
    }

    fn send_md5(&self, salt: [u8; 4], out: &mut Vec<u8>) -> Result<Scram, ServerFailure> {
        let ServerCredentials::Password(stored) = &self.start.credentials else {
            return Err(self.lacks("a password"));
        };
        let stored = stored.as_md5(&self.start.user);
        let response = stored.and_then(|stored| md5::response(&stored, salt));
        let response = response.ok_or_else(|| self.lacks("a password or its MD5 form"))?;
        frontend::password(out, response.as_bytes());
        Ok(Scram::None)
    }

    fn begin_scram(
        &self,
        mechanisms: Texts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Scram, ServerFailure> {
        if !mechanisms.iter().any(|name| name == MECHANISM.as_bytes()) {
            return Err(ServerFailure::own(
                "server login failed: none of the server's SASL authentication mechanisms are \
                 supported",
            ));
        }
        let client = Client::new(&nonce_text(&self.start.nonce));
        let first = client.first();
        frontend::sasl_initial(out, MECHANISM.as_bytes(), first.as_bytes());
        Ok(Scram::Begun(client))
    }

    fn prove(
        &mut self,
        client: Client,
        first: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ServerStep, ServerFailure> {
        match &self.start.credentials {
            ServerCredentials::Keys(keys) => {
                let keys = Credentials::Keys(keys.clone());
                self.send_proof(client.answer(first, &keys), out)
            }
            ServerCredentials::Password(StoredPassword::Plain(password)) => {
                let password = Arc::clone(password);
                self.state = State::Greeting(Scram::Hashing);
                let first = Box::from(first);
                Ok(ServerStep::Hash(Hashing(Work::Prove {
                    client,
                    first,
                    password,
                })))
            }
            _ => Err(self.lacks("a plain password, nor a client's proof")),
        }
    }

    /// Continues the login with the result of a slow step.
    pub fn hashed(&mut self, hashed: Hashed, out: &mut Vec<u8>) -> ServerStep {
        let Outcome::Proved(proof) = hashed.0 else {
            self.state = State::Done;
            return ServerStep::Failed(ServerFailure::own("login out of order"));
        };
        self.send_proof(proof, out).unwrap_or_else(|failure| {
            self.state = State::Done;
            ServerStep::Failed(failure)
        })
    }

    fn send_proof(
        &mut self,
        proof: Result<(Proved, String), paceline_pg_wire::auth::scram::Failure>,
        out: &mut Vec<u8>,
    ) -> Result<ServerStep, ServerFailure> {
        let (proved, last) = proof.map_err(|why| ServerFailure::own(format!("SCRAM: {why}")))?;
        frontend::sasl_response(out, last.as_bytes());
        self.state = State::Greeting(Scram::Proved(proved));
        Ok(ServerStep::More)
    }

    /// The error for a method of authentication that the front-end lacks, in PgBouncer's words.
    fn lacks(&self, what: &str) -> ServerFailure {
        let user = &self.start.user;
        ServerFailure::own(format!("wrong password type: \"{user}\" has not {what}"))
    }
}

fn unexpected(tag: u8) -> ServerFailure {
    let tag = char::from(tag).escape_default();
    ServerFailure::own(format!(
        "unexpected message '{tag}' at the login of a server"
    ))
}
