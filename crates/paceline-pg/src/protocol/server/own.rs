//! Queries of the front-end on a server connection without a client.

use paceline_pg_wire::{backend::Reply, frontend, Header, Message, Need, Step, TransactionStatus};

use super::{
    super::{keyword::Class, relay, Broken, Tracked},
    model::{Entry, Whose},
    Release, ServerHalf,
};

/// The purpose of a query of the front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It gives the server the parameters of its client.
    Parameters,
    /// It resets the session (`server_reset_query`).
    Reset,
    /// It checks that the server lives (`server_check_query`).
    Check,
    /// It prepares a new connection (`connect_query`).
    Connect,
    /// A bare Sync, which makes the server report its role.
    Probe,
}

/// The running query of the front-end.
#[derive(Debug, Default)]
pub(in super::super) struct Own {
    running: Option<Purpose>,
    has_failed: bool,
}

/// How a query of the front-end has ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnOutcome {
    /// It is done.
    Done(Purpose),
    /// The server has refused it, or it left a transaction open: the connection is unusable.
    Failed(Purpose),
}

/// The outcome of [`ServerHalf::alone`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// How many bytes are taken. The caller keeps the others.
    pub consumed: usize,
    /// The query that has ended.
    pub outcome: Option<OwnOutcome>,
}

impl Own {
    pub(in super::super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(in super::super) fn begin(&mut self, purpose: Purpose) {
        self.running = Some(purpose);
        self.has_failed = false;
    }

    pub(in super::super) fn fail(&mut self) {
        self.has_failed = true;
    }

    pub(in super::super) fn end(&mut self, status: TransactionStatus) -> Option<OwnOutcome> {
        let purpose = self.running.take()?;
        let is_good = !self.has_failed && status == TransactionStatus::Idle;
        Some(if is_good {
            OwnOutcome::Done(purpose)
        } else {
            OwnOutcome::Failed(purpose)
        })
    }
}

impl ServerHalf {
    /// Appends a query of the front-end. Its replies are swallowed.
    ///
    /// # Panics
    /// If the server is not at a boundary.
    pub fn begin_own(&mut self, purpose: Purpose, sql: &[u8], to_server: &mut Vec<u8>) {
        assert!(
            self.may_release() == Release::Allowed,
            "a query of the front-end begins at a boundary"
        );
        self.own.begin(purpose);
        frontend::query(to_server, sql);
        self.model
            .sent_query(Entry::Query(Whose::Own, Class::Inside));
    }

    /// Appends a bare Sync, which makes the server report its role. Its reply is swallowed.
    ///
    /// # Panics
    /// If the server is not at a boundary.
    pub fn begin_probe(&mut self, to_server: &mut Vec<u8>) {
        assert!(
            self.may_release() == Release::Allowed,
            "a probe begins at a boundary"
        );
        self.own.begin(Purpose::Probe);
        frontend::sync(to_server);
        self.model.sent_sync(Whose::Own);
    }

    /// Takes bytes of a server that has no client: replies to a query of the front-end, reports
    /// of parameters, notices and notifications.
    ///
    /// # Errors
    /// [`Broken`] if the server sends anything else. The server is never free again.
    pub fn alone(&mut self, tracked: &Tracked, input: &[u8]) -> Result<Alone, Broken> {
        let result = self.alone_steps(tracked, input);
        if result.is_err() {
            self.model.pin();
        }
        result
    }

    fn alone_steps(&mut self, tracked: &Tracked, input: &[u8]) -> Result<Alone, Broken> {
        let (mut consumed, mut outcome) = (0, None);
        loop {
            let (step, length) = self.walk.step(&input[consumed..], need_alone)?;
            match step {
                Step::Message(message) => {
                    outcome = self.alone_message(tracked, message)?.or(outcome);
                }
                Step::Begin { header, bytes } => self.alone_begin(header, bytes)?,
                Step::More { .. } => {}
                Step::Incomplete => return Ok(Alone { consumed, outcome }),
            }
            consumed += length;
        }
    }

    fn alone_message(
        &mut self,
        tracked: &Tracked,
        message: Message<'_>,
    ) -> Result<Option<OwnOutcome>, Broken> {
        match message.tag {
            b'N' | b'A' => {}
            b'S' => {
                if let Reply::Parameter { name, value } = Reply::read(message)? {
                    self.report(tracked, name, value);
                }
            }
            b'E' => self.alone_failed(message)?,
            b'C' => {
                self.model.fate(b'C')?;
                if relay::forgets_all(message.body) {
                    self.statements.clear();
                }
            }
            b'Z' => {
                self.model.fate(b'Z')?;
                let status = relay::status(message)?;
                self.model.ready(status);
                let outcome = self.own.end(status);
                if outcome == Some(OwnOutcome::Done(Purpose::Reset)) {
                    self.is_altered = false;
                }
                return Ok(outcome);
            }
            b'T' | b'D' | b'I' => drop(self.model.fate(message.tag)?),
            tag => return Err(Broken::Unexpected(tag)),
        }
        Ok(None)
    }

    /// A long message: rows, a notice.
    fn alone_begin(&mut self, header: Header, _bytes: &[u8]) -> Result<(), Broken> {
        match header.tag {
            b'N' | b'A' => Ok(()),
            tag => self.model.fate(tag).map(drop),
        }
    }

    fn alone_failed(&mut self, message: Message<'_>) -> Result<(), Broken> {
        if !self.model.is_own_query() || relay::is_final(message.body) {
            // An idle server announces its end.
            self.keep_farewell(message);
            return Err(Broken::Unexpected(b'E'));
        }
        self.own.fail();
        self.model.failed(false, drop);
        Ok(())
    }

    /// Keeps the last message of the server.
    pub(in super::super) fn keep_farewell(&mut self, message: Message<'_>) {
        let length = u32::try_from(message.body.len() + 4).unwrap_or(u32::MAX);
        let parts = [&[message.tag][..], &length.to_be_bytes(), message.body];
        self.farewell = Some(parts.concat().into());
    }
}

/// Rows and notices may have any length.
fn need_alone(header: Header) -> Need {
    match header.tag {
        b'D' | b'T' | b'N' | b'A' => Need::Pieces,
        _ => Need::Whole,
    }
}
