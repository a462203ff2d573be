//! A session: the handler of one connection of a client.
//!
//! ```text
//!   Starting --[start]--> Open --[X, a fatal error]--> Over
//!
//!   ready:  input --> message by message [Open::message] --> output --> the client
//!             a statement waits for a connection   parked: no more messages, input is kept
//!             a reply waits for a sync             parked: the output is kept
//!             the client does not read             the rest of the output waits in a spool
//! ```
//!
//! A session that is parked blocks no thread. It resumes in one place:
//! [`Session::advance`].

mod block;
mod by_name;
mod control;
mod copying;
mod extended;
mod kinds;
mod lines;
mod messages;
mod output;
mod prepared;
mod run;
pub(crate) mod running;
mod script;
mod settings;
mod start;

use std::{collections::HashMap, io, net::TcpStream, sync::Arc};

use paceline::{scratch, Closed, Context, EventHandler, Interest, Next, Overdue};
use paceline_pg_wire::{backend, frontend::Request, Message};

use crate::{
    dialect::Facts,
    failure::Failure,
    server::Shared,
    store::{lane::Grant, log::Durability, Database},
};
use block::{Block, Wait, Waiting};
use copying::CopyIn;
use output::send_some;
pub(crate) use output::Output;
use prepared::{Portal, Prepared};
use running::{Key, Running};
use script::Script;
use settings::Settings;
use start::{Start, Started};

/// The context that the pool passes to a session's handler.
pub(crate) type Cx<'c> = Context<'c, TcpStream>;

/// A parked session stops reading when it has this many bytes of input.
const KEPT_INPUT: usize = 256 << 10;
/// A flush begins when this many bytes of output are in memory.
const PIECE: usize = 64 << 10;

/// One connection of a client.
pub(crate) struct Session {
    server: Arc<Shared>,
    input: Vec<u8>,
    /// The end of the consumed part of `input`.
    at: usize,
    /// Whether the session has turned its read interest off.
    is_input_off: bool,
    has_ended: bool,
    output: Output,
    stage: Stage,
    /// Whether the session is in the level of writers.
    is_among_writers: bool,
}

enum Stage {
    Starting(Start),
    Open(Box<Open>),
    Over,
}

/// A session with an authenticated client.
pub(crate) struct Open {
    server: Arc<Shared>,
    database: Arc<Database>,
    facts: Arc<Facts>,
    /// The key for cancels: valid until it is dropped.
    _key: Key,
    running: Arc<Running>,
    settings: Settings,
    block: Block,
    statements: HashMap<Vec<u8>, Arc<Prepared>>,
    portals: HashMap<Vec<u8>, Portal>,
    script: Option<Script>,
    copy: Option<CopyIn>,
    /// Whether the session drops the client's messages up to its next Sync.
    skips_to_sync: bool,
    is_over: bool,
    waiting: Option<Waiting>,
    granted: Option<Grant>,
    wait_failure: Option<Failure>,
    /// Whether the last transaction has written.
    predicts_write: bool,
    /// How often the session has waited for its client since its last write.
    waits_since_write: u32,
    /// The last commit that a reply may show.
    ticket: u64,
}

/// The outcome of a message or a statement.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// The session waits for a connection; then the same message or statement runs again.
    Parked,
    /// The client sends the data of a COPY.
    Copies,
}

/// The outcome of [`Session::flush`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    /// All output is sent.
    Empty,
    /// The client accepts no more bytes now.
    Full,
    /// The output waits for a sync.
    Parked,
    /// A sync has failed.
    Lost,
}

impl EventHandler<TcpStream> for Session {
    fn ready(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        self.gather(cx)?;
        self.advance(cx)
    }

    fn overdue(&mut self, cx: &mut Cx<'_>, _: Overdue) -> io::Result<Next> {
        match &mut self.stage {
            Stage::Open(open) if open.waiting.is_some() => {
                let failure = open.waited_too_long();
                open.end_wait(Some(failure));
                self.advance(cx)
            }
            Stage::Open(open) if open.block.is_open() => {
                let text = "terminating connection due to idle-in-transaction timeout";
                let failure = Failure::fatal("25P03", text);
                open.fail(&mut self.output, &failure);
                if self.flush(cx)? == Flush::Lost {
                    return self.end_unsynced(cx);
                }
                self.stage = Stage::Over;
                // The pool's linger time bounds how long a client may take to read this.
                Ok(Next::CloseGently)
            }
            Stage::Open(_) => Ok(Next::Continue),
            Stage::Starting(_) | Stage::Over => Ok(Next::Close),
        }
    }

    fn stayed(&mut self, _: io::Error) {
        self.is_among_writers = !self.is_among_writers;
    }

    fn closed(&mut self, _: Closed) {
        // Dropping `Open` rolls back, leaves the queue, and passes the lane on.
        self.stage = Stage::Over;
    }
}

impl Session {
    pub(crate) fn new(server: &Arc<Shared>) -> Self {
        Self {
            server: Arc::clone(server),
            input: Vec::new(),
            at: 0,
            is_input_off: false,
            has_ended: false,
            output: Output::new(server.spool()),
            stage: Stage::Starting(Start::default()),
            is_among_writers: false,
        }
    }

    /// Reads the available input.
    fn gather(&mut self, cx: &mut Cx<'_>) -> io::Result<()> {
        let kept = self.input.len() - self.at;
        if self.is_parked() && kept >= KEPT_INPUT {
            if !self.is_input_off {
                cx.handle().set_interest(Interest::NONE)?;
                self.is_input_off = true;
            }
            return Ok(());
        }
        let mut buffer = scratch();
        match cx.read(&mut buffer) {
            Ok(0) => self.has_ended = true,
            Ok(count) => {
                self.input.drain(..self.at);
                self.at = 0;
                self.input.extend_from_slice(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn is_parked(&self) -> bool {
        match &self.stage {
            Stage::Open(open) => open.waiting.is_some() || !self.output.spool.is_empty(),
            Stage::Starting(_) | Stage::Over => false,
        }
    }

    /// Resumes the session, until it must wait for its client or for another session.
    fn advance(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        if let Stage::Open(open) = &mut self.stage {
            if open.poll_wait() == Wait::StillWaiting {
                if self.has_ended {
                    return Ok(Next::Close);
                }
                return self.flush_while_parked(cx);
            }
        }
        loop {
            if cx.unsent() > 0 {
                return Ok(Next::Again);
            }
            let is_full = self.output.spool.in_memory() >= PIECE;
            let step = if is_full {
                Step::Starved
            } else {
                self.step(cx)?
            };
            if step == Step::Advanced {
                continue;
            }
            if step == Step::Parked {
                self.prepare_to_wait(cx)?;
                return self.flush_while_parked(cx);
            }
            match self.flush(cx)? {
                Flush::Empty => {}
                Flush::Full => {
                    // A client that does not read must not hold the lane for ever.
                    self.set_deadline(cx);
                    return Ok(Next::Again);
                }
                Flush::Parked => return Ok(Next::Continue),
                Flush::Lost => return self.end_unsynced(cx),
            }
            if step == Step::Over {
                return Ok(Next::CloseGently);
            }
            if is_full {
                continue;
            }
            if self.has_ended {
                // `closed` rolls back an open transaction.
                return Ok(Next::Close);
            }
            self.prepare_to_wait(cx)?;
            return Ok(self.change_level(cx));
        }
    }

    /// Moves the session to the level of writers after a write, and back when it has only read for
    /// a while. The session is in no queue now, so no queue holds the handle that the move ends.
    fn change_level(&mut self, cx: &mut Cx<'_>) -> Next {
        let Stage::Open(open) = &mut self.stage else {
            return Next::Continue;
        };
        let writes = open.belongs_to_writers();
        if writes == self.is_among_writers {
            return Next::Continue;
        }
        let level = self.server.level(writes);
        match level.map(|level| cx.move_to(level)) {
            Some(Ok(next)) => {
                self.is_among_writers = writes;
                next
            }
            // The shutdown has closed that level, and closes this one too.
            Some(Err(_)) | None => Next::Continue,
        }
    }

    /// Sends earlier replies of a session that waits for a connection.
    fn flush_while_parked(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        match self.flush(cx)? {
            Flush::Full => Ok(Next::Again),
            Flush::Empty | Flush::Parked => Ok(Next::Continue),
            Flush::Lost => self.end_unsynced(cx),
        }
    }

    /// Carries out the next message, or resumes the last one.
    fn step(&mut self, cx: &mut Cx<'_>) -> io::Result<Step> {
        match &mut self.stage {
            Stage::Over => Ok(Step::Over),
            Stage::Starting(_) => self.step_of_start(),
            Stage::Open(open) => {
                if open.script.is_some() && open.copy.is_none() {
                    return Ok(match open.resume(cx, &mut self.output) {
                        Progress::Parked => Step::Parked,
                        Progress::Done | Progress::Copies => Step::Advanced,
                    });
                }
                if open.is_over {
                    self.stage = Stage::Over;
                    return Ok(Step::Over);
                }
                let limit = self.server.limits.message;
                let input = &self.input[self.at..];
                let (message, length) = match Message::first(input, limit) {
                    Ok(Some(found)) => found,
                    Ok(None) => return Ok(Step::Starved),
                    Err(error) => return Ok(self.refuse(&error.to_string())),
                };
                let request = match Request::read(message) {
                    Ok(request) => request,
                    Err(error) => return Ok(self.refuse(&error.to_string())),
                };
                if request == Request::Terminate {
                    self.stage = Stage::Over;
                    return Ok(Step::Over);
                }
                match open.message(cx, request, &mut self.output) {
                    Progress::Parked => Ok(Step::Parked),
                    Progress::Done | Progress::Copies => {
                        self.at += length;
                        Ok(Step::Advanced)
                    }
                }
            }
        }
    }

    fn step_of_start(&mut self) -> io::Result<Step> {
        let Stage::Starting(start) = &mut self.stage else {
            return Ok(Step::Advanced);
        };
        let input = &self.input[self.at..];
        match start.step(&self.server, input, self.output.spool.end()) {
            Started::NeedsMore => Ok(Step::Starved),
            Started::Took(length) => {
                self.at += length;
                Ok(Step::Advanced)
            }
            Started::Open(open, length) => {
                self.at += length;
                self.stage = Stage::Open(open);
                Ok(Step::Advanced)
            }
            Started::Refused => {
                self.stage = Stage::Over;
                Ok(Step::Over)
            }
        }
    }

    /// Ends the session, because the client has broken the protocol.
    fn refuse(&mut self, why: &str) -> Step {
        let failure = Failure::fatal("08P01", format!("invalid message: {why}"));
        backend::error(self.output.spool.end(), &failure.report());
        self.stage = Stage::Over;
        Step::Over
    }

    /// Sends replies, once every commit that they may show is durable.
    fn flush(&mut self, cx: &mut Cx<'_>) -> io::Result<Flush> {
        if self.output.spool.is_empty() {
            return Ok(Flush::Empty);
        }
        if let Stage::Open(open) = &self.stage {
            let log = &open.database.log;
            let ticket = self.output.ticket.max(open.ticket);
            loop {
                match log.wait(ticket, || cx.handle()) {
                    Durability::Durable => break,
                    Durability::MustSync => cx.blocking(|| log.sync()),
                    Durability::Parked => return Ok(Flush::Parked),
                    Durability::Failed => return Ok(Flush::Lost),
                }
            }
        }
        send_some(&mut self.output.spool, cx)
            .map_err(|failure| io::Error::other(failure.message))?;
        if !self.output.spool.is_empty() {
            return Ok(Flush::Full);
        }
        self.output.spool.shrink();
        Ok(Flush::Empty)
    }

    /// Ends the session after a failed sync: whether its commits are durable is unknown, and no
    /// later sync can decide it.
    fn end_unsynced(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        let failure = match &self.stage {
            Stage::Open(open) => open.database.log.failure(),
            Stage::Starting(_) | Stage::Over => None,
        };
        self.stage = Stage::Over;
        let mut bytes = Vec::new();
        if let Some(failure) = failure {
            backend::error(&mut bytes, &failure.report());
            self.server.log_is_lost(&failure);
        }
        self.output = Output::new(self.server.spool());
        cx.write_all(&bytes)?;
        Ok(Next::CloseGently)
    }

    /// Frees input memory, and sets interest and deadline for a wait.
    fn prepare_to_wait(&mut self, cx: &mut Cx<'_>) -> io::Result<()> {
        if self.at == self.input.len() {
            self.input.clear();
            self.input.shrink_to(PIECE);
            self.at = 0;
        }
        if self.is_input_off && !self.is_parked() {
            cx.handle().set_interest(Interest::READ)?;
            self.is_input_off = false;
        }
        self.set_deadline(cx);
        Ok(())
    }

    /// Sets the deadline of the present wait.
    fn set_deadline(&self, cx: &mut Cx<'_>) {
        let limit = match &self.stage {
            Stage::Starting(start) => start.deadline_at_first_wait(&self.server),
            Stage::Open(open) => Some(open.longest_wait()),
            Stage::Over => None,
        };
        if let Some(limit) = limit {
            cx.set_deadline(limit);
        }
    }
}

/// The outcome of [`Session::step`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A message or a statement is done.
    Advanced,
    /// The input has no complete message.
    Starved,
    /// The session waits for a connection.
    Parked,
    /// The connection ends when all output is sent.
    Over,
}

fn utf8(bytes: &[u8]) -> Result<&str, Failure> {
    let text = std::str::from_utf8(bytes);
    text.map_err(|_| Failure::new("22021", "invalid byte sequence for encoding \"UTF8\""))
}
