//! The login of a client.
//!
//! ```text
//!   Opening -> Encrypting   an SSLRequest, answered S, or TLS without a question    [feed]
//!   Encrypting -> Opening   the handshake is done                                   [tls_started]
//!   Opening -> Started      the session's parameters are read                       [feed]
//!   Started -> Asked        the client must authenticate                            [admit]
//!   Asked -> Asked          the next step of SCRAM                                  [feed]
//!   Started, Asked -> Hashing -> Asked, Done    a slow step                         [hashed]
//!   Started, Asked -> Done  it is authenticated                     [admit, feed, hashed]
//! ```

mod proof;

use std::{fmt, sync::Arc};

use paceline_pg_wire::{
    auth::scram::{Secret, Server},
    backend::{self, Authentication},
    startup::{CancelKey, Session, Startup},
    NewReport, Severity, TransactionStatus,
};

use super::{
    secrets::{Match, Outcome},
    terms::{
        Admission, AuthType, ClientStep, ClientTls, Closing, Denied, Fed, LoginSettings, Proof,
        Seeds, Transport,
    },
    Hashed, StoredPassword,
};

/// The longest message of a client that logs in: a password has up to 65,534 bytes.
const LIMIT: usize = 70_000;

/// The newest minor version of protocol 3 that the front-end speaks.
const MINOR: u16 = 2;

/// The login of one client.
#[derive(Debug)]
pub struct ClientLogin {
    transport: Transport,
    seeds: Seeds,
    is_encrypted: bool,
    asked_tls: bool,
    asked_gss: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Opening,
    Encrypting,
    Started { user: String },
    Asked(Question),
    Hashing(Waiting),
    Done,
}

/// The question that the client must answer.
enum Question {
    Plain {
        user: String,
        stored: Option<StoredPassword>,
    },
    Md5 {
        stored: Option<Arc<str>>,
    },
    ScramFirst {
        secret: Arc<Secret>,
    },
    ScramLast {
        server: Server,
    },
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain { .. } => "Plain",
            Self::Md5 { .. } => "Md5",
            Self::ScramFirst { .. } => "ScramFirst",
            Self::ScramLast { .. } => "ScramLast",
        })
    }
}

/// The purpose of a slow step.
enum Waiting {
    Derive,
    Check { password: Arc<[u8]> },
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Derive => "Derive",
            Self::Check { .. } => "Check",
        })
    }
}

impl ClientLogin {
    /// The login of a client that has just connected.
    #[must_use]
    pub fn new(transport: Transport, seeds: Seeds) -> Self {
        Self {
            transport,
            seeds,
            is_encrypted: false,
            asked_tls: false,
            asked_gss: false,
            state: State::Opening,
        }
    }

    /// Takes the next packet or message of `input`, which is all input so far. Takes nothing while
    /// the caller owes a step.
    pub fn feed(&mut self, input: &[u8], settings: &LoginSettings, out: &mut Vec<u8>) -> Fed {
        let fed = match self.state {
            State::Opening => self.open(input, settings, out),
            State::Asked(_) => self.answer(input, out),
            _ => Ok((0, ClientStep::More)),
        };
        let (consumed, step) = fed.unwrap_or_else(|closing| {
            self.state = State::Done;
            (0, ClientStep::Close(closing))
        });
        Fed { consumed, step }
    }

    /// The TLS handshake is done; the client now sends its first packet in it.
    pub fn tls_started(&mut self) {
        self.is_encrypted = true;
        self.state = State::Opening;
    }

    /// Whether the client uses TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn open(
        &mut self,
        input: &[u8],
        settings: &LoginSettings,
        out: &mut Vec<u8>,
    ) -> Result<(usize, ClientStep), Closing> {
        let first = Startup::first(input).map_err(Closing::Malformed)?;
        let Some((startup, length)) = first else {
            return Ok((0, ClientStep::More));
        };
        let step = match startup {
            Startup::Tls => self.direct_tls(settings)?,
            Startup::AskTls => {
                self.note_question(input, length, Self::tls_question)?;
                self.answer_tls(settings, out)
            }
            Startup::AskGss => {
                self.note_question(input, length, Self::gss_question)?;
                out.push(b'N');
                ClientStep::More
            }
            Startup::Cancel(CancelKey { process, secret }) => {
                self.state = State::Done;
                let secret = secret.to_vec();
                ClientStep::Cancel { process, secret }
            }
            Startup::Session(session) => self.start(&session, settings, out),
        };
        Ok((length, step))
    }

    fn tls_question(&mut self) -> &mut bool {
        &mut self.asked_tls
    }

    fn gss_question(&mut self) -> &mut bool {
        &mut self.asked_gss
    }

    /// Checks that the client asks about encryption only once, before TLS, and waits for the
    /// answer.
    fn note_question(
        &mut self,
        input: &[u8],
        length: usize,
        question: fn(&mut Self) -> &mut bool,
    ) -> Result<(), Closing> {
        if self.is_encrypted || std::mem::replace(question(self), true) {
            Err(Closing::RepeatedQuestion)
        } else if input.len() > length {
            Err(Closing::BytesBehindQuestion)
        } else {
            Ok(())
        }
    }

    fn has_tls(&self, settings: &LoginSettings) -> bool {
        self.transport == Transport::Tcp && settings.tls != ClientTls::Disabled
    }

    fn answer_tls(&mut self, settings: &LoginSettings, out: &mut Vec<u8>) -> ClientStep {
        if self.has_tls(settings) {
            out.push(b'S');
            self.state = State::Encrypting;
            ClientStep::StartTls
        } else {
            out.push(b'N');
            ClientStep::More
        }
    }

    fn direct_tls(&mut self, settings: &LoginSettings) -> Result<ClientStep, Closing> {
        let is_first = !self.is_encrypted && !self.asked_tls && !self.asked_gss;
        if self.has_tls(settings) && is_first {
            self.state = State::Encrypting;
            Ok(ClientStep::StartDirectTls)
        } else {
            Err(Closing::UnexpectedTls)
        }
    }

    fn start(
        &mut self,
        session: &Session<'_>,
        settings: &LoginSettings,
        out: &mut Vec<u8>,
    ) -> ClientStep {
        if session.version.major != 3 {
            return self.deny(out, "old V2 protocol not supported");
        }
        let must_encrypt = settings.tls == ClientTls::Required && self.has_tls(settings);
        if must_encrypt && !self.is_encrypted {
            return self.deny(out, "SSL required");
        }
        let mut request = match settings.rules.read(session) {
            Ok(request) => request,
            Err(text) => return self.deny(out, &text),
        };
        if request.minor > MINOR || !request.unknown_options.is_empty() {
            request.minor = spoken(request.minor);
            let unknown: Vec<&[u8]> = request.unknown_options.iter().map(Vec::as_slice).collect();
            backend::negotiate(out, MAJOR + i32::from(request.minor), &unknown);
        }
        self.state = State::Started {
            user: request.user.clone(),
        };
        ClientStep::Start(Box::new(request))
    }

    /// Continues the login with what the caller knows of the user.
    pub fn admit(
        &mut self,
        admission: Admission,
        settings: &LoginSettings,
        out: &mut Vec<u8>,
    ) -> ClientStep {
        let State::Started { user } = std::mem::replace(&mut self.state, State::Done) else {
            return self.deny(out, "login out of order");
        };
        let (password, verifier) = match admission {
            Admission::Trusted => return ClientStep::Proved(Proof::default()),
            Admission::Unknown => (None, None),
            Admission::Known { password, verifier } => (Some(password), verifier),
        };
        match settings.auth_type {
            AuthType::Any => ClientStep::Proved(Proof::default()),
            AuthType::Trust if password.is_none() => {
                self.deny(out, "\"trust\" authentication failed")
            }
            AuthType::Trust => ClientStep::Proved(Proof::default()),
            AuthType::Plain => self.ask_plain(user, password, out),
            AuthType::Md5 if !matches!(password, Some(StoredPassword::Scram(_))) => {
                self.ask_md5(&user, password.as_ref(), out)
            }
            AuthType::Md5 | AuthType::Scram => {
                self.ask_scram(&user, password, verifier, settings, out)
            }
        }
    }

    /// Continues the login with the result of a slow step.
    pub fn hashed(&mut self, hashed: Hashed, out: &mut Vec<u8>) -> ClientStep {
        let state = std::mem::replace(&mut self.state, State::Done);
        match (state, hashed.0) {
            (State::Hashing(Waiting::Derive), Outcome::Derived(secret)) => {
                self.begin_scram(secret, out)
            }
            (State::Hashing(Waiting::Check { password }), Outcome::Checked(Match::Right)) => {
                ClientStep::Proved(Proof {
                    keys: None,
                    password: Some(password),
                })
            }
            _ => self.deny(out, WRONG_PASSWORD),
        }
    }

    /// Appends an error of the front-end, and ends the login.
    pub fn deny(&mut self, out: &mut Vec<u8>, text: &str) -> ClientStep {
        self.state = State::Done;
        let report = NewReport::new(Severity::Fatal, "08P01", text);
        backend::error(out, &report);
        ClientStep::Refused(Denied(text.to_owned()))
    }
}

const WRONG_PASSWORD: &str = "password authentication failed";

/// Protocol 3.0 in NegotiateProtocolVersion: PostgreSQL and its clients write the whole version
/// there.
const MAJOR: i32 = 3 << 16;

/// The newest minor version that both sides support. 3.1 was never released.
fn spoken(minor: u16) -> u16 {
    match minor.min(MINOR) {
        1 => 0,
        minor => minor,
    }
}

/// A nonce of printable characters.
pub(super) fn nonce_text(random: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u8| char::from(DIGITS[usize::from(bits & 63)]);
    let ends = random.iter().map(|byte| digit(byte >> 6));
    random.iter().map(|byte| digit(*byte)).chain(ends).collect()
}

/// Appends the end of a successful login: the parameters of the session, its key, and
/// ReadyForQuery.
pub fn welcome<'p>(
    out: &mut Vec<u8>,
    parameters: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
    process: i32,
    secret: &[u8],
) {
    backend::authentication(out, Authentication::Ok);
    for (name, value) in parameters {
        backend::parameter(out, name, value);
    }
    backend::key_data(out, process, secret);
    backend::ready_for_query(out, TransactionStatus::Idle);
}
