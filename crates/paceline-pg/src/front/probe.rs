//! A connection that asks one host for its role, again and again, for as long as it lives. It has no
//! client, and is in no pool: a host without connections of clients is asked too.
//!
//! ```text
//!   Connecting -> LoggingIn -> Asked -> Idle -> Asked -> ...    a round of maintenance asks
//!   any of them -> Over        the connection has ended; a later round begins a new one
//! ```

use std::{io, io::IoSlice, sync::Arc, time::Duration};

use paceline::{scratch, Closed, Context, Group, GroupHandler, Handle, Members, Next, Overdue};

use super::{
    call::Call,
    opening::{says_down, Target},
    registers::PoolEntry,
    server_login::{LoggingIn, Progress},
    sites::Site,
    sockets::Stream,
    state::Front,
    wire::{self, Wire},
};
use crate::{
    config::Roles,
    hosts::Observed,
    login::{ServerFailure, ServerLogin},
    pg_wire::{backend::Reply, frontend, Message},
};

/// What a host is asked: whether it is a standby, its timeline as a primary, and how many
/// microseconds it is behind. A standby that has replayed all that it has received is not behind, if
/// it is connected to its primary.
const ROLE: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
     CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE ('x' || pg_catalog.substr(\
         pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int END, \
     CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN 0 \
         WHEN pg_catalog.pg_last_wal_receive_lsn() = pg_catalog.pg_last_wal_replay_lsn() \
             AND EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver) THEN 0 \
         ELSE (EXTRACT(epoch FROM pg_catalog.clock_timestamp() \
             - pg_catalog.pg_last_xact_replay_timestamp()) * 1000000)::bigint END";

/// What a host is asked that refuses [`ROLE`]: engines that speak the protocol need not have
/// PostgreSQL's functions for its log.
const RECOVERY: &str = "SELECT pg_catalog.pg_is_in_recovery()";

/// Equal hosts are only asked whether they answer.
const ALIVE: &str = "SELECT 1";

/// The longest message of an answer.
const LONGEST: usize = 1 << 16;

/// Least time for an answer, or for a login.
const LEAST_PATIENCE: Duration = Duration::from_secs(3);

/// What the hosts of a database with these roles are asked.
pub(super) fn question(roles: Roles) -> &'static str {
    match roles {
        Roles::Equal => ALIVE,
        Roles::Auto | Roles::Off => ROLE,
    }
}

/// The handler of such a connection.
struct Probe {
    front: Arc<Front>,
    pool: Arc<PoolEntry>,
    site: Arc<Site>,
    target: Target,
    log_functions: LogFunctions,
    stage: Stage,
}

/// Whether the host has PostgreSQL's functions for its log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogFunctions {
    Assumed,
    Missing,
}

enum Stage {
    Connecting(Box<ServerLogin>),
    LoggingIn(Box<LoggingIn>),
    Asking(Box<Asking>),
    Over,
}

/// A connection that is logged in.
struct Asking {
    handle: Handle,
    wire: Wire,
    input: Vec<u8>,
    waits: Waits,
    answer: Answer,
}

/// Whether an answer is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    ForAnswer,
    ForNothing,
}

/// What was read of an answer.
#[derive(Default)]
struct Answer {
    /// The columns of its row.
    row: Option<Vec<Option<String>>>,
    /// The text of an error.
    error: Option<String>,
}

/// Begins to ask this host.
///
/// # Errors
/// The connection can't be begun: why.
pub(super) fn begin(
    front: &Arc<Front>,
    pool: &Arc<PoolEntry>,
    site: &Arc<Site>,
    target: Target,
) -> Result<Group<Stream>, String> {
    let threads = front.pool().ok_or("the pooler ends")?;
    let login = ServerLogin::new(front.server_start(pool, &target));
    let probe = Probe {
        front: Arc::clone(front),
        pool: Arc::clone(pool),
        site: Arc::clone(site),
        target: target.clone(),
        log_functions: LogFunctions::Assumed,
        stage: Stage::Connecting(Box::new(login)),
    };
    let group = threads.group(probe).map_err(|why| why.to_string())?;
    let within = patience(front);
    target.connect(&group, within).map_err(|why| {
        // It has no member, and never gets one.
        let _ = group.close();
        why.to_string()
    })?;
    Ok(group)
}

/// How long a host may take for an answer.
fn patience(front: &Front) -> Duration {
    let period = front.live().settings().host_check_period;
    (period * 3).max(LEAST_PATIENCE)
}

impl Probe {
    fn connected(&mut self, call: &mut Call<'_, '_, '_>, handle: Handle) {
        let Stage::Connecting(login) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        // If that fails, the connection has ended, and `closed` follows.
        let _ = handle.set_deadline(Some(patience(&self.front)));
        let mut opening = LoggingIn::new(*login, handle, &self.target, None);
        let sent = opening.start(call);
        self.stage = Stage::LoggingIn(Box::new(opening));
        if sent.is_err() {
            self.end("the connection has ended", call);
        }
    }

    fn log_in(&mut self, call: &mut Call<'_, '_, '_>) {
        let Stage::LoggingIn(opening) = &mut self.stage else {
            return;
        };
        match opening.advance(&self.front, &self.target, call) {
            Progress::More => {}
            Progress::Ready(_) => self.logged_in(call),
            Progress::Refused(failure) => self.refused(&failure, call),
            Progress::Broken(reason) => self.end(&reason, call),
        }
    }

    fn logged_in(&mut self, call: &mut Call<'_, '_, '_>) {
        let Stage::LoggingIn(opening) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        self.stage = Stage::Asking(Box::new(Asking {
            handle: opening.handle,
            wire: opening.wire,
            input: opening.input,
            waits: Waits::ForNothing,
            answer: Answer::default(),
        }));
        self.ask(call);
    }

    /// A host that refuses this user may serve others: that says nothing of it.
    fn refused(&mut self, failure: &ServerFailure, call: &mut Call<'_, '_, '_>) {
        if says_down(failure) {
            return self.end(&failure.message, call);
        }
        let name = &self.pool.database.name;
        self.front.note(
            crate::log::Level::Warning,
            format_args!(
                "host {} of database {name} can't be probed: {}",
                self.target, failure.message
            ),
        );
        let _ = self.over(call);
        self.site.skip_probe(self.target.index(), self.front.now());
    }

    fn question(&self) -> &'static str {
        match (self.site.question(), self.log_functions) {
            (ROLE, LogFunctions::Missing) => RECOVERY,
            (question, _) => question,
        }
    }

    fn ask(&mut self, call: &mut Call<'_, '_, '_>) {
        let question = self.question();
        let Stage::Asking(asking) = &mut self.stage else {
            return;
        };
        if asking.waits == Waits::ForAnswer {
            return;
        }
        asking.waits = Waits::ForAnswer;
        asking.answer = Answer::default();
        let mut out = Vec::new();
        frontend::query(&mut out, question.as_bytes());
        let _ = asking.handle.set_deadline(Some(patience(&self.front)));
        let wire = &mut asking.wire;
        let sent = call.with(&asking.handle, |cx| wire.send(cx, &[IoSlice::new(&out)]));
        if sent.is_err() {
            self.end("the connection has ended", call);
        }
    }

    fn receive(&mut self, call: &mut Call<'_, '_, '_>) {
        let Stage::Asking(asking) = &mut self.stage else {
            return;
        };
        let mut buffer = scratch();
        let (wire, input) = (&mut asking.wire, &mut asking.input);
        match call.with(&asking.handle, |cx| wire.receive(cx, &mut buffer, input)) {
            Ok(wire::Arrival::InBuffer(count)) => input.extend_from_slice(&buffer[..count]),
            Ok(wire::Arrival::InInput) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(wire::Arrival::End) | Err(_) => return self.end("the connection has ended", call),
        }
        match asking.read() {
            Ok(None) => {}
            Ok(Some(answer)) => self.answered(&answer, call),
            Err(why) => self.end(&why, call),
        }
    }

    fn answered(&mut self, answer: &Answer, call: &mut Call<'_, '_, '_>) {
        let seen = match (&answer.row, &answer.error) {
            (Some(row), None) => seen(&self.site, row),
            // It answers, so it is not down: a simpler question follows.
            (_, Some(_)) if self.question() == ROLE => {
                self.log_functions = LogFunctions::Missing;
                return self.ask(call);
            }
            (_, error) => {
                let why = error
                    .as_deref()
                    .unwrap_or("the answer has no row")
                    .to_owned();
                return self.end(&why, call);
            }
        };
        self.tell(seen, "a probe");
    }

    fn tell(&self, seen: Observed, why: &str) {
        let (database, host) = (&self.pool.database, self.target.index());
        self.front.observe(database, &self.site, host, seen, why);
    }

    /// The connection is of no use: closes it. What it was.
    fn over(&mut self, call: &mut Call<'_, '_, '_>) -> Stage {
        let before = std::mem::replace(&mut self.stage, Stage::Over);
        match &before {
            Stage::LoggingIn(opening) => call.close(&opening.handle),
            Stage::Asking(asking) => call.close(&asking.handle),
            Stage::Connecting(_) | Stage::Over => {}
        }
        self.site.probe_ended(self.target.index());
        before
    }

    /// The connection has ended, or is to end. An idle one says only that the host must be asked
    /// again.
    fn end(&mut self, why: &str, call: &mut Call<'_, '_, '_>) {
        let before = self.over(call);
        self.report_end(&before, why);
    }

    fn report_end(&self, before: &Stage, why: &str) {
        let seen = match before {
            Stage::Over => return,
            Stage::Asking(asking) if asking.waits == Waits::ForNothing => Observed::Doubtful,
            _ => Observed::NoAnswer,
        };
        self.tell(seen, why);
        if seen == Observed::Doubtful {
            // Another thread may have marked the host as being asked, and then have notified this
            // connection, which can't ask any more: without this the host is never asked again.
            let (site, now) = (&self.site, self.front.now());
            site.ask_anew(self.target.index(), now);
            self.front.probe_hosts(&self.pool.database);
        }
    }
}

impl Asking {
    /// Reads what was received. The answer, if that is complete.
    fn read(&mut self) -> Result<Option<Answer>, String> {
        let mut complete = None;
        loop {
            let first = Message::first(&self.input, LONGEST).map_err(|why| why.to_string())?;
            let Some((message, length)) = first else {
                return Ok(complete);
            };
            match Reply::read(message).map_err(|why| why.to_string())? {
                Reply::Row(values) => {
                    let text =
                        |value: Option<&[u8]>| Some(String::from_utf8_lossy(value?).into_owned());
                    self.answer.row = Some(values.iter().map(text).collect());
                }
                Reply::Error(report) => {
                    let text = String::from_utf8_lossy(report.message());
                    self.answer.error = Some(text.into_owned());
                }
                Reply::Ready(_) => {
                    complete = Some(std::mem::take(&mut self.answer));
                    self.waits = Waits::ForNothing;
                    let _ = self.handle.set_deadline(None);
                }
                _ => {}
            }
            self.input.drain(..length);
        }
    }
}

/// What a row of an answer says.
fn seen(site: &Site, row: &[Option<String>]) -> Observed {
    let column = |number: usize| row.get(number).and_then(Option::as_deref);
    let lag = column(2).and_then(|text| text.parse().ok());
    Observed::Answer {
        role: site.role(column(0) == Some("t")),
        timeline: column(1).and_then(|text| text.parse().ok()),
        lag: lag.map(Duration::from_micros),
    }
}

impl GroupHandler<Stream> for Probe {
    fn joined(
        &mut self,
        cx: &mut Context<'_, Stream>,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let handle = cx.handle();
        let mut call = Call::for_member(cx, members);
        self.connected(&mut call, handle);
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
            Stage::Asking(_) => self.receive(&mut call),
            Stage::Connecting(_) => {}
            Stage::Over => call.finish_subject(),
        }
        Ok(call.next())
    }

    fn notified(&mut self, members: &mut Members<'_, Stream>) {
        let mut call = Call::for_group(members);
        self.ask(&mut call);
    }

    fn overdue(
        &mut self,
        cx: &mut Context<'_, Stream>,
        _what: Overdue,
        members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        let mut call = Call::for_member(cx, members);
        self.end("no answer in time", &mut call);
        Ok(call.next())
    }

    fn closed(&mut self, _member: &Handle, why: Closed, _members: &mut Members<'_, Stream>) {
        let before = std::mem::replace(&mut self.stage, Stage::Over);
        if let Stage::Over = before {
            return;
        }
        self.site.probe_ended(self.target.index());
        match why {
            // The pooler has ended it.
            Closed::Requested | Closed::Shutdown => {}
            Closed::TimedOut => self.report_end(&before, "no answer in time"),
            _ => self.report_end(&before, "it refuses connections"),
        }
    }
}
