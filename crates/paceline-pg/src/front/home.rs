//! The home of a server connection: the handler of its group while no client has it.
//!
//! ```text
//!   Connecting -> LoggingIn -> Open    opened: to a client that waits, or idle
//!   Open: reset query, check query, messages of an idle server, the end of the connection
//! ```
//!
//! A home lives as long as its server, also while a client has that.

use std::{
    io::{self, IoSlice},
    sync::Arc,
    time::Duration,
};

use paceline::{scratch, Closed, Context, GroupHandler, Handle, Members, Next, Overdue};

use super::{
    call::Call,
    opening::{Target, ABORTED, UNSUITABLE},
    registers::{PoolEntry, Reported},
    server::{Core, Errand, NewServer, SentOn, Server},
    server_login::{LoggingIn, Progress},
    session::Passed,
    sites::{Admission, Seat},
    sockets::{Address, Stream},
    state::Front,
    wire,
};
use crate::{
    log::Level,
    login::{ServerFailure, ServerLogin, ServerReady},
    pools::{FailureScope, LoginFailure, ServerId, ServerKey},
    protocol::{OwnOutcome, Purpose, Release, ServerHalf, Values},
};

/// The handler of a server connection that no client has.
pub(crate) struct Home {
    front: Arc<Front>,
    id: ServerId,
    number: u64,
    pool: Arc<PoolEntry>,
    target: Target,
    /// Its place at the host, if the front knows the roles of those.
    seat: Option<Arc<Seat>>,
    /// When the connection was begun.
    since: Duration,
    stage: Stage,
}

enum Stage {
    Connecting(Box<ServerLogin>),
    LoggingIn(Box<LoggingIn>),
    /// It runs the query of a new connection.
    Connected(Arc<Server>, Box<ServerReady>),
    Open(Arc<Server>),
    Over,
}

impl Home {
    pub(crate) fn new(
        front: Arc<Front>,
        id: ServerId,
        pool: Arc<PoolEntry>,
        target: Target,
        login: ServerLogin,
    ) -> Self {
        Self {
            number: front.next_number(),
            since: front.now(),
            stage: Stage::Connecting(Box::new(login)),
            seat: Seat::take(&pool.database, target.index()),
            front,
            id,
            pool,
            target,
        }
    }

    /// The connection is made.
    fn connected(&mut self, call: &mut Call<'_, '_, '_>, handle: Handle) {
        let Stage::Connecting(login) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        let local = call.with(&handle, |cx| Ok(self.target.local_address(cx.source())));
        let local = local.ok().flatten();
        let live = self.front.live();
        let _ = call.with(&handle, |cx| {
            live.tcp.apply(cx.source());
            // It may answer while it does not take its input.
            cx.read_while_sending(true);
            Ok(())
        });
        let spent = self.front.now().saturating_sub(self.since);
        let left = live.settings().server_connect_timeout.saturating_sub(spent);
        let has_limit = !live.settings().server_connect_timeout.is_zero();
        let _ = handle.set_deadline(has_limit.then_some(left.max(Duration::from_millis(1))));
        drop(live);
        self.note_new(local);
        let mut opening = LoggingIn::new(*login, handle, &self.target, local);
        let sent = opening.start(call);
        self.stage = Stage::LoggingIn(Box::new(opening));
        if sent.is_err() {
            self.fail("server conn crashed?", None, call);
        }
    }

    fn note_new(&self, local: Option<Address>) {
        if !self.front.live().settings().log_connections {
            return;
        }
        let address = self.target.address();
        let text = match local {
            Some(local) => format!("new connection to server (from {local})"),
            None => "new connection to server".to_owned(),
        };
        self.front.note_of_server(
            Level::Log,
            self.number,
            &self.pool,
            &address,
            format_args!("{text}"),
        );
    }

    /// Bytes of a server that is logging in.
    fn log_in(&mut self, call: &mut Call<'_, '_, '_>) {
        let Stage::LoggingIn(opening) = &mut self.stage else {
            return;
        };
        match opening.advance(&self.front, &self.target, call) {
            Progress::More => {}
            Progress::Ready(ready) => self.logged_in(ready, call),
            Progress::Refused(failure) => self.refused(&failure, call),
            Progress::Broken(reason) => self.fail(&reason, None, call),
        }
    }

    /// The server has refused the login.
    fn refused(&mut self, failure: &ServerFailure, call: &mut Call<'_, '_, '_>) {
        let severity = failure.severity.as_deref().unwrap_or("FATAL");
        let text = &failure.message;
        self.front.note_of_server(
            Level::Warning,
            self.number,
            &self.pool,
            &self.target.address(),
            format_args!("server login failed: {severity} {text}"),
        );
        self.fail(text, Some(failure), call);
    }

    /// The connection can't be used: the book decides what becomes of its clients.
    fn fail(&mut self, reason: &str, failure: Option<&ServerFailure>, call: &mut Call<'_, '_, '_>) {
        if let Stage::LoggingIn(opening) = &self.stage {
            call.close(&opening.handle.clone());
        }
        self.failed(reason, failure);
    }

    /// The same, when there is no connection.
    fn failed(&mut self, reason: &str, failure: Option<&ServerFailure>) {
        self.stage = Stage::Over;
        let age = self.front.now().saturating_sub(self.since).as_secs();
        if self.front.live().settings().log_disconnections {
            self.front.note_of_server(
                Level::Log,
                self.number,
                &self.pool,
                &self.target.address(),
                format_args!("closing because: {reason} (age={age}s)"),
            );
        }
        self.front
            .open_failed(self.id, &self.pool, &self.target, reason, failure);
    }

    /// The login is done.
    fn logged_in(&mut self, ready: Box<ServerReady>, call: &mut Call<'_, '_, '_>) {
        let Stage::LoggingIn(opening) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        let _ = opening.handle.set_deadline(None);
        if self.admission(&ready) == Admission::Refused {
            call.close(&opening.handle);
            return self.failed(UNSUITABLE, None);
        }
        let reported = self.report(&ready);
        let values = reported.values.clone();
        self.pool.set_reported(reported);
        let tls = opening.wire.tls_info();
        let tls = tls.map(|info| format!("{}/{}", info.version, info.cipher_suite));
        let server = Arc::new(Server::new(NewServer {
            id: self.id,
            number: self.number,
            pool: Arc::clone(&self.pool),
            address: opening.address,
            local: opening.local,
            connected_at: self.since,
            process: ready.key.as_ref().map_or(0, |(process, _)| *process),
            tls: tls.unwrap_or_default().into(),
            home: call.group(),
            handle: opening.handle,
            wire: opening.wire,
            half: ServerHalf::new(values),
            input: opening.input,
            seat: self.seat.clone(),
        }));
        self.front.add_server(&server);
        let connect_query = self.pool.database.config().connect_query.clone();
        self.stage = Stage::Connected(Arc::clone(&server), ready);
        match connect_query {
            Some(sql) => self.run(&server, Purpose::Connect, sql.as_bytes(), call),
            None => self.open(call),
        }
    }

    /// Whether the host has the role that the database asks for.
    fn admission(&self, ready: &ServerReady) -> Admission {
        match &self.seat {
            Some(seat) => self.front.admit(&self.pool.database, seat, ready),
            None => Admission::Granted,
        }
    }

    fn report(&self, ready: &ServerReady) -> Reported {
        let live = self.front.live();
        let mut values = Values::new();
        for (name, value) in &ready.parameters {
            if let Some(place) = live.tracked.place(name) {
                values.set(place, value);
            }
        }
        let parameters = ready.parameters.iter();
        Reported {
            parameters: parameters
                .map(|(name, value)| (name.as_slice().into(), value.as_slice().into()))
                .collect(),
            values,
        }
    }

    /// The connection may serve clients.
    fn open(&mut self, call: &mut Call<'_, '_, '_>) {
        let Stage::Connected(server, ready) = std::mem::replace(&mut self.stage, Stage::Over)
        else {
            return;
        };
        self.stage = Stage::Open(Arc::clone(&server));
        let host = self.front.host_number(&self.target);
        let key = ready.key.map(|(process, secret)| ServerKey {
            process,
            secret: secret.into(),
            host,
        });
        let (id, connection) = (server.id, Arc::clone(&server));
        let (given, orders) = self
            .front
            .with_book(|book, now, orders| book.opened(id, connection, key, now, orders));
        if self.front.pass_on(&server, given, call) == Passed::NotTaken {
            self.front.give_back(&server, call);
        }
        self.front.carry_out(orders);
        self.front.judge(&server);
    }

    /// Runs a query of the front-end.
    fn run(&self, server: &Arc<Server>, purpose: Purpose, sql: &[u8], call: &mut Call<'_, '_, '_>) {
        let mut core = server.core();
        if core.half.may_release() != Release::Allowed {
            drop(core);
            return self.front.close_server(server, "unclean server", call);
        }
        let mut out = Vec::new();
        core.half.begin_own(purpose, sql, &mut out);
        let wire = &mut core.wire;
        let sent = call.with(server.handle(), |cx| wire.send(cx, &[IoSlice::new(&out)]));
        drop(core);
        if sent.is_err() {
            self.front
                .close_server(server, "server conn crashed?", call);
        }
    }

    /// The server is here, and something may be to be done with it.
    fn attend(&mut self, call: &mut Call<'_, '_, '_>) {
        let Stage::Open(server) = &self.stage else {
            return;
        };
        let server = Arc::clone(server);
        match server.send_on(call) {
            Ok(SentOn::Moved | SentOn::NotHere) => return,
            Ok(SentOn::NotWanted) => {}
            // The client that wanted it has left.
            Err(_) => return self.front.give_back(&server, call),
        }
        if !call.has(server.handle()) {
            return;
        }
        let terms = self.pool.terms();
        let errand = std::mem::replace(&mut server.core().errand, Errand::None);
        match errand {
            Errand::None => {}
            Errand::GiveBack => self.front.give_back(&server, call),
            Errand::Reset => match &terms.reset {
                Some(sql) => self.run(&server, Purpose::Reset, sql, call),
                None => self.front.give_back(&server, call),
            },
            Errand::Check => self.run(&server, Purpose::Check, &terms.check, call),
        }
    }

    /// Bytes of a server that no client has.
    fn idle_input(&mut self, call: &mut Call<'_, '_, '_>) {
        let (Stage::Open(server) | Stage::Connected(server, _)) = &self.stage else {
            return;
        };
        let server = Arc::clone(server);
        let mut buffer = scratch();
        let mut core = server.core();
        let Core {
            wire, input, half, ..
        } = &mut *core;
        let arrived = call.with(server.handle(), |cx| wire.receive(cx, &mut buffer, input));
        match arrived {
            Ok(wire::Arrival::InBuffer(count)) => input.extend_from_slice(&buffer[..count]),
            Ok(wire::Arrival::InInput) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(wire::Arrival::End) | Err(_) => {
                drop(core);
                return self
                    .front
                    .close_server(&server, "server conn crashed?", call);
            }
        }
        let tracked = &self.front.live().tracked;
        let alone = half.alone(tracked, input);
        if let Ok(alone) = &alone {
            input.drain(..alone.consumed);
        }
        if input.is_empty() {
            *input = Vec::new();
        }
        drop(core);
        match alone.map(|alone| alone.outcome) {
            Ok(None) => {}
            Ok(Some(outcome)) => self.own_query_done(&server, outcome, call),
            Err(broken) => {
                let text = format!("{broken}");
                self.front.close_server(&server, &text, call);
            }
        }
    }

    fn own_query_done(
        &mut self,
        server: &Arc<Server>,
        outcome: OwnOutcome,
        call: &mut Call<'_, '_, '_>,
    ) {
        match outcome {
            OwnOutcome::Done(Purpose::Connect) => self.open(call),
            OwnOutcome::Failed(Purpose::Connect) => {
                // As PgBouncer: the connection is used all the same.
                self.open(call);
            }
            OwnOutcome::Done(Purpose::Reset | Purpose::Check) => {
                self.front.give_back(server, call);
            }
            OwnOutcome::Failed(Purpose::Reset) => {
                self.front.close_server(server, "reset query failed", call);
            }
            OwnOutcome::Failed(_) => self.front.close_server(server, "test query failed", call),
            OwnOutcome::Done(_) => {}
        }
    }
}

impl GroupHandler<Stream> for Home {
    fn joined(
        &mut self,
        cx: &mut Context<'_, Stream>,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let handle = cx.handle();
        let mut call = Call::for_member(cx, members);
        match &self.stage {
            Stage::Connecting(_) => self.connected(&mut call, handle),
            Stage::Open(_) => self.attend(&mut call),
            _ => {}
        }
        Ok(call.next())
    }

    fn ready(
        &mut self,
        cx: &mut Context<'_, Stream>,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let mut call = Call::for_member(cx, members);
        match &self.stage {
            Stage::LoggingIn(_) => self.log_in(&mut call),
            Stage::Open(_) | Stage::Connected(..) => self.idle_input(&mut call),
            Stage::Connecting(_) => {}
            Stage::Over => call.finish_subject(),
        }
        Ok(call.next())
    }

    fn notified(&mut self, members: &mut Members<'_, Stream>) {
        let mut call = Call::for_group(members);
        self.attend(&mut call);
        if let Stage::Open(server) = &self.stage {
            if !self.front.has_server(server.id) && call.members().is_empty() {
                // Its server has ended elsewhere: nothing comes home any more.
                self.stage = Stage::Over;
                let _ = call.group().close();
            }
        }
    }

    fn overdue(
        &mut self,
        cx: &mut Context<'_, Stream>,
        _what: Overdue,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let mut call = Call::for_member(cx, members);
        if let Stage::LoggingIn(_) = &self.stage {
            self.fail("connect timeout", None, &mut call);
        }
        Ok(call.next())
    }

    fn closed(&mut self, _member: &Handle, why: Closed, _members: &mut Members<'_, Stream>) {
        match &self.stage {
            Stage::Connecting(_) => {
                let reason = match why {
                    Closed::TimedOut => "connect timeout",
                    Closed::Requested => ABORTED,
                    _ => "connect failed",
                };
                self.failed(reason, None);
            }
            Stage::LoggingIn(_) => {
                let reason = match why {
                    Closed::TimedOut => "connect timeout",
                    Closed::Requested => ABORTED,
                    _ => "server conn crashed?",
                };
                self.failed(reason, None);
            }
            Stage::Open(server) | Stage::Connected(server, _) => {
                let server = Arc::clone(server);
                self.front.server_gone(&server, "server conn crashed?");
                self.stage = Stage::Over;
            }
            Stage::Over => {}
        }
    }

    fn deserted(&mut self) -> Next {
        match &self.stage {
            Stage::Open(server) if self.front.has_server(server.id) => Next::Continue,
            _ => Next::Close,
        }
    }
}

/// What the clients of a pool learn of a failed login.
pub(crate) fn login_failure(reason: &str, failure: Option<&ServerFailure>) -> LoginFailure {
    match failure {
        Some(failure) => LoginFailure {
            code: failure.code.as_deref().map(Arc::from),
            message: Arc::from(failure.message.as_str()),
            scope: if failure.is_temporary() {
                FailureScope::Temporary
            } else {
                FailureScope::Refused
            },
        },
        None => LoginFailure {
            code: None,
            message: Arc::from(reason),
            scope: FailureScope::Temporary,
        },
    }
}
