//! `auth_query`: the secret of a user is asked for on a server connection.
//!
//! No thread waits. The login asks the book for a server as a session does, and goes on when the
//! server has answered:
//!
//! ```text
//!   begin_auth_query -> ask -> (wait) -> auth_server_given -> send -> replies -> secret_found
//! ```

use std::{io::IoSlice, sync::Arc};

use paceline::scratch;

use super::{
    login::{Asked, Stage},
    Arrival, Session, State,
};
use crate::{
    config::CONSOLE,
    front::{
        call::Call,
        registers::{Lookup, PoolEntry},
        server::{Server, Taken},
        wire,
    },
    log::Level,
    login::StoredPassword,
    pg_wire::{
        backend::Reply,
        frontend::{self, Target},
        Message,
    },
    pools::{Ask, Refusal},
    protocol::{ClientHalf, Mode, Output, Relay, RelaySettings, Release, Values},
};

/// The query for the secret of one user.
pub(super) struct AuthQuery {
    pool: Arc<PoolEntry>,
    server: Option<(Arc<Server>, Arrival)>,
    half: ClientHalf,
    settings: RelaySettings,
    /// What the server has answered.
    replies: Vec<u8>,
}

/// The longest answer.
const LONGEST: usize = 1 << 20;

/// What the server has answered.
enum Answer {
    /// The user, and its secret.
    Found(Vec<u8>, Option<Vec<u8>>),
    NotFound,
    Failed(String),
}

impl Session {
    /// Where the secret of the user is asked for; `None`: nowhere.
    ///
    /// # Errors
    /// The text for the client.
    pub(super) fn auth_query_for(&self, asked: &Asked) -> Result<Option<Arc<PoolEntry>>, String> {
        let live = self.front.live();
        let settings = live.settings();
        let config = asked.database.as_ref().map(|database| database.config());
        let own = config.as_deref();
        let auth_user = own.and_then(|config| config.auth_user.as_deref());
        let auth_user = auth_user.unwrap_or(&settings.auth_user);
        if auth_user.is_empty() {
            return Ok(None);
        }
        let name = own.and_then(|config| config.auth_dbname.as_ref());
        let name = name.unwrap_or(&settings.auth_dbname).as_str();
        if name == CONSOLE {
            let text = "cannot use the reserved \"pgbouncer\" database as an auth_dbname";
            return Err(self.config_error(text));
        }
        let database = if name.is_empty() {
            asked.database.clone()
        } else {
            match self.front.database(name) {
                Lookup::Known(database) | Lookup::Registered(database) => Some(database),
                Lookup::Unknown => {
                    let text = format!("authentication database \"{name}\" is not configured");
                    return Err(self.config_error(&text));
                }
            }
        };
        let Some(database) = database else {
            return Ok(None);
        };
        if self.front.is_disabled(&database) {
            let name = &database.name;
            return Err(format!("authentication database \"{name}\" is disabled"));
        }
        Ok(self.front.pool_of(&database, auth_user))
    }

    /// The log has the reason; the client only that there is one.
    fn config_error(&self, text: &str) -> String {
        self.front
            .note_client(Level::Error, &self.client, format_args!("{text}"));
        "bouncer config error".to_owned()
    }

    /// Asks the book for a server of this pool.
    pub(super) fn begin_auth_query(&mut self, pool: Arc<PoolEntry>, call: &mut Call<'_, '_, '_>) {
        let State::Login(login) = &mut self.state else {
            return;
        };
        let Some(id) = login.asked().map(|asked| asked.id) else {
            return;
        };
        login.stage = Stage::Secret(Box::new(AuthQuery {
            settings: RelaySettings::new(Mode::Transaction),
            pool: Arc::clone(&pool),
            server: None,
            half: ClientHalf::new(Values::new(), true),
            replies: Vec::new(),
        }));
        let pool_id = pool.id;
        let (asked, orders) = self
            .front
            .with_book(|book, now, orders| book.ask(id, pool_id, now, orders));
        match asked {
            Ask::Server { connection, .. } => {
                self.auth_server_given(connection, Arrival::Coming, call);
            }
            Ask::Waiting => {}
            Ask::Refused(Refusal::Gone) => {
                self.front.carry_out(orders);
                return self.begin_auth_query_again(&pool, call);
            }
            Ask::Refused(refusal) => {
                self.refuse(refusal.code(), &refusal.to_string(), call);
            }
        }
        self.front.carry_out(orders);
    }

    /// The book has removed the pool since it was found, because it was not used.
    fn begin_auth_query_again(&mut self, gone: &PoolEntry, call: &mut Call<'_, '_, '_>) {
        match self.front.pool_after(gone) {
            Some(pool) => self.begin_auth_query(pool, call),
            None => self.refused(&Refusal::Gone, call),
        }
    }

    /// The connection of a server that was to answer the query has ended before it was asked: another
    /// server is.
    pub(super) fn ask_for_secret_again(&mut self, call: &mut Call<'_, '_, '_>) {
        let pool = match self.login().map(|login| &login.stage) {
            Some(Stage::Secret(query)) => Arc::clone(&query.pool),
            _ => return,
        };
        self.begin_auth_query(pool, call);
    }

    /// The book has given a server for the query.
    pub(super) fn auth_server_given(
        &mut self,
        server: Arc<Server>,
        arrival: Arrival,
        call: &mut Call<'_, '_, '_>,
    ) {
        self.front.note_assigned(&server, &self.client);
        let query = match self.login().map(|login| &mut login.stage) {
            Some(Stage::Secret(query)) => query,
            _ => return self.decline(&server, arrival, call),
        };
        let arrival = match arrival {
            Arrival::Here => Arrival::Here,
            Arrival::Coming => match server.take(call) {
                Taken::Here => Arrival::Here,
                Taken::Coming => Arrival::Coming,
                // Its end is reported to the book by the group that it was in.
                Taken::Gone => return self.ask_for_secret_again(call),
            },
        };
        query.server = Some((server, arrival));
        if arrival == Arrival::Here {
            self.send_auth_query(call);
        }
    }

    /// Whether the call is for the server of the query.
    pub(super) fn auth_server(&self) -> Option<&Arc<Server>> {
        match &self.state {
            State::Login(login) => match &login.stage {
                Stage::Secret(query) => query.server.as_ref().map(|(server, _)| server),
                _ => None,
            },
            _ => None,
        }
    }

    /// The server of the query is here.
    pub(super) fn auth_server_joined(&mut self, call: &mut Call<'_, '_, '_>) {
        if let State::Login(login) = &mut self.state {
            if let Stage::Secret(query) = &mut login.stage {
                if let Some((_, arrival @ Arrival::Coming)) = &mut query.server {
                    *arrival = Arrival::Here;
                    self.send_auth_query(call);
                }
            }
        }
    }

    fn send_auth_query(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Login(login) = &mut self.state else {
            return;
        };
        let Some((user, sql)) = login.asked().map(|asked| {
            let config = asked.database.as_ref().map(|database| database.config());
            let own = config.as_ref().and_then(|config| config.auth_query.clone());
            let live = self.front.live();
            let sql = own.map_or_else(|| live.settings().auth_query.clone(), |own| own.into());
            (asked.request.user.clone(), sql)
        }) else {
            return;
        };
        let Stage::Secret(query) = &mut login.stage else {
            return;
        };
        let Some((server, _)) = &query.server else {
            return;
        };
        let request = request(&sql, user.as_bytes());
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        let mut core = server.core();
        let mut relay = Relay {
            client: &mut query.half,
            server: &mut core.half,
            settings: &query.settings,
        };
        let mut out = Output {
            to_server: &mut to_server,
            to_client: &mut to_client,
        };
        let Ok(passed) = relay.from_client(&request, &mut out) else {
            return;
        };
        let slices = [
            IoSlice::new(&request[..passed.direct]),
            IoSlice::new(&to_server),
        ];
        let wire = &mut core.wire;
        // If that fails, the server's own end follows.
        let _ = call.with(server.handle(), |cx| wire.send(cx, &slices));
    }

    /// The server of the query has answered something.
    pub(super) fn auth_server_ready(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Login(login) = &mut self.state else {
            return;
        };
        let Stage::Secret(query) = &mut login.stage else {
            return;
        };
        let Some((server, Arrival::Here)) = query.server.clone() else {
            return;
        };
        let mut buffer = scratch();
        let mut core = server.core();
        let parts = &mut *core;
        let (wire, input) = (&mut parts.wire, &mut parts.input);
        let arrived = call.with(server.handle(), |cx| wire.receive(cx, &mut buffer, input));
        match arrived {
            Ok(wire::Arrival::InBuffer(count)) => input.extend_from_slice(&buffer[..count]),
            Ok(wire::Arrival::InInput) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Ok(wire::Arrival::End) | Err(_) => {
                drop(core);
                return self.auth_server_lost(call);
            }
        }
        let bytes = std::mem::take(input);
        let mut to_server = Vec::new();
        let before = query.replies.len();
        let mut out = Vec::new();
        let mut relay = Relay {
            client: &mut query.half,
            server: &mut parts.half,
            settings: &query.settings,
        };
        let passed = relay.from_server(
            &bytes,
            &mut Output {
                to_server: &mut to_server,
                to_client: &mut out,
            },
        );
        let passed = match passed {
            Ok(passed) if !passed.has_ended && before + bytes.len() < LONGEST => passed,
            _ => {
                drop(core);
                return self.auth_server_lost(call);
            }
        };
        query.replies.extend_from_slice(&bytes[..passed.direct]);
        query.replies.extend_from_slice(&out);
        parts.input.extend_from_slice(&bytes[passed.consumed..]);
        drop(core);
        if passed.release == Release::Allowed {
            self.auth_query_done(call);
        }
    }

    fn auth_query_done(&mut self, call: &mut Call<'_, '_, '_>) {
        let State::Login(login) = &mut self.state else {
            return;
        };
        let Stage::Secret(query) = std::mem::replace(&mut login.stage, Stage::Talking) else {
            return;
        };
        let user = login.asked().map(|asked| asked.request.user.clone());
        let user = user.unwrap_or_default();
        if let Some((server, _)) = &query.server {
            self.front.give_back(server, call);
        }
        match read(&query.replies) {
            Answer::Failed(text) => {
                let front = &self.front;
                front.note_client(
                    Level::Warning,
                    &self.client,
                    format_args!("auth_query failed: {text}"),
                );
                self.refuse("08P01", "bouncer config error", call);
            }
            // As PgBouncer: there is no pretence of a password here.
            Answer::NotFound => self.refuse("08P01", "no such user", call),
            Answer::Found(name, _) if name != user.as_bytes() => {
                self.refuse("08P01", "bouncer config error", call);
            }
            // A user without a secret can't log in by one.
            Answer::Found(_, secret) => {
                let stored = StoredPassword::read(&secret.unwrap_or_default());
                self.secret_found(Some(stored), call);
            }
        }
    }

    /// The connection of the query has ended.
    pub(super) fn auth_server_lost(&mut self, call: &mut Call<'_, '_, '_>) {
        if let Some(server) = self.auth_server().cloned() {
            self.front
                .close_server(&server, "server conn crashed?", call);
        }
        self.refuse("08P01", "server conn crashed?", call);
    }

    /// The connection of this server has ended. `is_given`: it was on its way here.
    pub(super) fn auth_server_gone(
        &mut self,
        number: u64,
        is_given: bool,
        call: &mut Call<'_, '_, '_>,
    ) {
        let asked = match self.login().map(|login| &login.stage) {
            Some(Stage::Secret(query)) => query.server.as_ref(),
            _ => return,
        };
        match asked {
            Some((server, Arrival::Here)) if server.number == number => {
                self.refuse("08P01", "server conn crashed?", call);
            }
            Some((server, Arrival::Coming)) if server.number == number => {
                self.ask_for_secret_again(call);
            }
            _ if is_given => self.ask_for_secret_again(call),
            _ => {}
        }
    }

    /// The session ends while the query runs.
    pub(super) fn end_auth_query(&mut self, query: AuthQuery, call: &mut Call<'_, '_, '_>) {
        if let Some((server, arrival)) = query.server {
            match arrival {
                Arrival::Coming => self.front.abandon(&server),
                Arrival::Here => {
                    self.front
                        .close_server(&server, "client disconnected during auth_query", call);
                }
            }
        }
        drop(query.pool);
    }
}

/// The query with the user's name as its parameter.
fn request(sql: &str, user: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frontend::parse(&mut bytes, b"", sql.as_bytes(), &[]);
    frontend::bind(&mut bytes, b"", b"", &[Some(user)]);
    frontend::describe(&mut bytes, Target::Portal(b""));
    frontend::execute(&mut bytes, b"", 1);
    frontend::sync(&mut bytes);
    bytes
}

/// Reads what the server has answered.
fn read(mut replies: &[u8]) -> Answer {
    let mut answer = Answer::NotFound;
    while let Ok(Some((message, length))) = Message::first(replies, LONGEST) {
        match Reply::read(message) {
            Ok(Reply::Row(values)) => {
                let mut values = values.iter();
                let mut next = || values.next().flatten().map(<[u8]>::to_vec);
                let name = next().unwrap_or_default();
                answer = Answer::Found(name, next());
            }
            Ok(Reply::Error(report)) => {
                let text = String::from_utf8_lossy(report.message()).into_owned();
                return Answer::Failed(text);
            }
            Ok(_) => {}
            Err(malformed) => return Answer::Failed(malformed.to_string()),
        }
        replies = &replies[length..];
    }
    answer
}
