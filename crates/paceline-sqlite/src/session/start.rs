//! The start of a session: what the client asks for, and its authentication.

use std::{collections::HashMap, sync::Arc, time::Duration};

use paceline_pg_wire::{
    auth::{md5, scram},
    backend::{self, Authentication},
    frontend::{read_password, Request, SaslInitial},
    startup::{self, Startup},
    Message, TransactionStatus,
};

use super::{block::Block, running::Running, settings::Settings, Open};
use crate::{
    dialect::{Facts, Schema},
    failure::Failure,
    server::{Shared, Stored},
    store::{random, Database},
};

/// The progress of a start.
#[derive(Default)]
pub(super) struct Start {
    state: State,
    has_waited: std::cell::Cell<bool>,
}

#[derive(Default)]
enum State {
    #[default]
    First,
    /// The client authenticates itself.
    Proves(Box<SessionRequest>, Proof),
    Over,
}

/// The session that the client asks for.
struct SessionRequest {
    user: String,
    database: Arc<Database>,
    settings: Settings,
}

enum Proof {
    Md5 { stored: String, salt: [u8; 4] },
    Scram(scram::Secret),
    Answer(scram::Server),
}

/// The outcome of a step of the start.
pub(super) enum Started {
    NeedsMore,
    /// The step has consumed this many bytes.
    Took(usize),
    Open(Box<Open>, usize),
    /// The connection ends when the output has left.
    Refused,
}

impl Start {
    /// The deadline for the whole start, at the first call; `None` leaves that deadline in place.
    pub(super) fn deadline_at_first_wait(&self, server: &Shared) -> Option<Option<Duration>> {
        (!self.has_waited.replace(true)).then_some(Some(server.limits.start))
    }

    /// Carries out the next packet.
    pub(super) fn step(
        &mut self,
        server: &Arc<Shared>,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Started {
        let result = match std::mem::take(&mut self.state) {
            State::First => self.first(server, input, output),
            State::Proves(wish, proof) => self.prove(server, *wish, proof, input, output),
            State::Over => Ok(Started::Refused),
        };
        result.unwrap_or_else(|failure| {
            self.state = State::Over;
            backend::error(output, &failure.report());
            Started::Refused
        })
    }

    fn first(
        &mut self,
        server: &Arc<Shared>,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Started, Failure> {
        let found = Startup::first(input)
            .map_err(|error| Failure::fatal("08P01", format!("invalid startup packet: {error}")))?;
        let Some((startup, length)) = found else {
            return Ok(Started::NeedsMore);
        };
        match startup {
            Startup::AskTls | Startup::AskGss => {
                output.push(b'N');
                Ok(Started::Took(length))
            }
            Startup::Tls => Ok(self.refuse()),
            Startup::Cancel(key) => {
                server.keys.cancel(key);
                Ok(self.refuse())
            }
            Startup::Session(session) => self.session(server, &session, length, output),
        }
    }

    fn refuse(&mut self) -> Started {
        self.state = State::Over;
        Started::Refused
    }

    fn session(
        &mut self,
        server: &Arc<Shared>,
        session: &startup::Session<'_>,
        length: usize,
        output: &mut Vec<u8>,
    ) -> Result<Started, Failure> {
        let version = session.version;
        if version.major != 3 {
            let text = format!(
                "unsupported frontend protocol {}.{}: server supports 3.0",
                version.major, version.minor
            );
            return Err(Failure::fatal("0A000", text));
        }
        let names = session.parameters.iter().map(|(name, _)| name);
        let unknown: Vec<_> = names.filter(|name| name.starts_with(b"_pq_.")).collect();
        if version.minor > 0 || !unknown.is_empty() {
            backend::negotiate(output, 0, &unknown);
        }
        if server.keys.count() >= server.limits.sessions {
            return Err(Failure::fatal("53300", "sorry, too many clients already"));
        }
        let wish = wish(server, &session.parameters)?;
        let Some(stored) = server.stored(&wish.user) else {
            return open(server, wish, length, output);
        };
        let proof = match stored {
            Stored::Md5(stored) => {
                let bytes = randomness()?;
                let salt = [bytes[0], bytes[1], bytes[2], bytes[3]];
                backend::authentication(output, Authentication::Md5(salt));
                Proof::Md5 { stored, salt }
            }
            Stored::Scram(secret) => {
                backend::sasl(output);
                Proof::Scram(secret)
            }
        };
        self.state = State::Proves(Box::new(wish), proof);
        Ok(Started::Took(length))
    }

    fn prove(
        &mut self,
        server: &Arc<Shared>,
        wish: SessionRequest,
        proof: Proof,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Started, Failure> {
        let malformed = || Failure::fatal("08P01", "invalid authentication message");
        let found = Message::first(input, startup::LIMIT).map_err(|_| malformed())?;
        let Some((message, length)) = found else {
            self.state = State::Proves(Box::new(wish), proof);
            return Ok(Started::NeedsMore);
        };
        let Ok(Request::Authenticate(body)) = Request::read(message) else {
            return Err(malformed());
        };
        let wrong = || {
            let text = format!("password authentication failed for user \"{}\"", wish.user);
            Failure::fatal("28P01", text)
        };
        match proof {
            Proof::Md5 { stored, salt } => {
                let given = read_password(body).map_err(|_| malformed())?;
                if !md5::is_right(&stored, salt, given) {
                    return Err(wrong());
                }
                open(server, wish, length, output)
            }
            Proof::Scram(secret) => {
                let initial = SaslInitial::read(body).map_err(|_| malformed())?;
                if initial.mechanism != scram::MECHANISM.as_bytes() {
                    return Err(malformed());
                }
                let first = initial.data.ok_or_else(malformed)?;
                let (exchange, answer) =
                    scram::Server::begin(&secret, first, &nonce()?).map_err(|_| wrong())?;
                let answer = Authentication::SaslContinue(answer.as_bytes());
                backend::authentication(output, answer);
                self.state = State::Proves(Box::new(wish), Proof::Answer(exchange));
                Ok(Started::Took(length))
            }
            Proof::Answer(exchange) => {
                let success = exchange.finish(body).map_err(|_| wrong())?;
                let last = Authentication::SaslFinal(success.message.as_bytes());
                backend::authentication(output, last);
                open(server, wish, length, output)
            }
        }
    }
}

fn wish(server: &Shared, parameters: &startup::Parameters<'_>) -> Result<SessionRequest, Failure> {
    let text = |name: &str| {
        let value = parameters
            .get(name)
            .map(|value| String::from_utf8_lossy(value).into_owned());
        value.filter(|value| !value.is_empty())
    };
    let user = text("user").ok_or_else(|| {
        Failure::fatal(
            "28000",
            "no PostgreSQL user name specified in startup packet",
        )
    })?;
    let name = text("database").unwrap_or_else(|| user.clone());
    let replicates = text("replication").is_some_and(|value| value != "false" && value != "0");
    if replicates {
        return Err(Failure::fatal("0A000", "replication is not supported"));
    }
    let database = server
        .database(&name)
        .ok_or_else(|| Failure::fatal("3D000", format!("database \"{name}\" does not exist")))?;
    let mut settings = Settings::new(&user, server.version_of_protocol());
    for (name, value) in parameters.iter() {
        let (name, value) = (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        );
        let name = name.into_owned();
        match name.as_str() {
            "user" | "database" | "replication" => {}
            "options" => options(&mut settings, &value)?,
            _ if name.starts_with("_pq_.") => {}
            _ => begin_with(&mut settings, &name, &value)?,
        }
    }
    Ok(SessionRequest {
        user,
        database,
        settings,
    })
}

fn begin_with(settings: &mut Settings, name: &str, value: &str) -> Result<(), Failure> {
    settings.begin_with(name, value).map_err(|failure| Failure {
        severity: paceline_pg_wire::Severity::Fatal,
        ..failure
    })
}

/// `-c name=value --name=value`
fn options(settings: &mut Settings, text: &str) -> Result<(), Failure> {
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(rest) => Some(rest),
            None if word == "-c" => words.next(),
            None => word.strip_prefix("-c"),
        };
        let parts = setting.and_then(|setting| setting.split_once('='));
        let (name, value) = parts.ok_or_else(|| {
            Failure::fatal(
                "42601",
                format!("invalid command-line argument for server process: {word}"),
            )
        })?;
        begin_with(settings, &name.replace('-', "_"), value)?;
    }
    Ok(())
}

/// Opens the session of an authenticated client: sends the settings, the key for cancels and
/// `ReadyForQuery`.
fn open(
    server: &Arc<Shared>,
    mut wish: SessionRequest,
    length: usize,
    output: &mut Vec<u8>,
) -> Result<Started, Failure> {
    let running = Arc::new(Running::default());
    let key = server.keys.issue(&running).map_err(no_randomness)?;
    wish.settings.set_standby(!wish.database.writes());
    backend::authentication(output, Authentication::Ok);
    for (name, value) in wish.settings.take_unreported() {
        backend::parameter(output, name.as_bytes(), value.as_bytes());
    }
    backend::key_data(output, key.process, &key.secret);
    backend::ready_for_query(output, TransactionStatus::Idle);
    let facts = Facts {
        user: wish.user,
        database: wish.database.name.clone(),
        process: key.process,
        version: server.version.clone(),
        is_standby: !wish.database.writes(),
        schema: Some(Arc::clone(&wish.database) as Arc<dyn Schema>),
    };
    server.count_session();
    let open = Open {
        server: Arc::clone(server),
        database: wish.database,
        facts: Arc::new(facts),
        _key: key,
        running,
        settings: wish.settings,
        block: Block::default(),
        statements: HashMap::new(),
        portals: HashMap::new(),
        script: None,
        copy: None,
        skips_to_sync: false,
        is_over: false,
        waiting: None,
        granted: None,
        wait_failure: None,
        predicts_write: false,
        waits_since_write: u32::MAX,
        ticket: 0,
    };
    Ok(Started::Open(Box::new(open), length))
}

fn randomness() -> Result<[u8; 16], Failure> {
    random().map_err(no_randomness)
}

fn no_randomness(error: std::io::Error) -> Failure {
    Failure::fatal("58030", format!("could not read random numbers: {error}"))
}

fn nonce() -> Result<String, Failure> {
    let bytes = randomness()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
