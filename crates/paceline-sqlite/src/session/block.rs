//! The transaction of a session, and the connection that it holds.
//!
//! ```text
//!   None --[BEGIN]--> Explicit          no connection yet
//!   None --[first write]--> Implicit    ends with the message, or with Sync
//!
//!   no connection --[read]--> Snapshot       a connection with a snapshot of its own
//!                 --[write]--> Writer        the lane of writers
//!                 --[read, write predicted]--> Writer
//!   Snapshot --[write]--> Upgraded           the snapshot writes, the lane is held beside it:
//!                                            40001 if another transaction has committed since
//! ```
//!
//! Outside of a transaction a read borrows a reader for the length of the call.

use super::{Cx, Open};
use crate::{
    failure::Failure,
    store::{
        lane::{Grant, Take, Turn, Waiter},
        link::Link,
    },
};
use paceline_pg_wire::TransactionStatus;

/// Whether a transaction is open, and which side has opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    None,
    /// By the server, for the statements of one message.
    Implicit,
    /// By the client.
    Explicit,
}

/// The transaction.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) kind: Kind,
    pub(super) has_failed: bool,
    pub(super) read_only: bool,
    pub(super) held: Option<Held>,
    pub(super) savepoints: Vec<String>,
    pub(super) has_written: bool,
    pub(super) has_defined: bool,
}

/// A connection that the session has.
#[derive(Debug)]
pub(super) enum Held {
    /// Until the statement ends.
    Reader(Link),
    Snapshot(Grant),
    Writer(Grant),
    Upgraded {
        snapshot: Grant,
        _lane: Grant,
    },
}

impl Held {
    pub(super) fn link(&self) -> &Link {
        match self {
            Self::Reader(link) => link,
            Self::Snapshot(grant) | Self::Writer(grant) => grant.link(),
            Self::Upgraded { snapshot, .. } => snapshot.link(),
        }
    }

    pub(super) fn holds_lane(&self) -> bool {
        matches!(self, Self::Writer(_) | Self::Upgraded { .. })
    }
}

/// The kind of access that a statement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Read,
    Write,
}

/// The wait of a session for a connection.
#[derive(Debug)]
pub(super) struct Waiting {
    waiter: Waiter,
}

/// The outcome of [`Open::poll_wait`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The statement runs again.
    Over,
    /// The session is still in the queue.
    StillWaiting,
}

impl Block {
    pub(super) fn status(&self) -> TransactionStatus {
        match self.kind {
            Kind::Explicit if self.has_failed => TransactionStatus::Failed,
            Kind::Explicit => TransactionStatus::InBlock,
            Kind::None | Kind::Implicit => TransactionStatus::Idle,
        }
    }

    pub(super) fn holds_lane(&self) -> bool {
        self.held.as_ref().is_some_and(Held::holds_lane)
    }

    pub(super) fn is_open(&self) -> bool {
        self.kind != Kind::None
    }
}

impl Open {
    /// A connection for a statement; `None` if the session is parked and the statement runs again
    /// later.
    pub(super) fn acquire(&mut self, cx: &Cx<'_>, need: Need) -> Result<Option<Held>, Failure> {
        if let Some(failure) = self.wait_failure.take() {
            return Err(failure);
        }
        if need == Need::Write {
            self.may_write()?;
        }
        match self.block.held.take() {
            Some(Held::Snapshot(snapshot)) if need == Need::Write => self.upgrade(cx, snapshot),
            Some(held) => Ok(Some(held)),
            None if self.block.kind == Kind::None && need == Need::Read => {
                self.database.reader().map(|link| Some(Held::Reader(link)))
            }
            None => self.open_block(cx, need),
        }
    }

    /// Keeps or gives back what [`acquire`](Self::acquire) has given.
    pub(super) fn put_back(&mut self, held: Held) {
        match held {
            Held::Reader(link) => self.database.give_back(link),
            held => self.block.held = Some(held),
        }
    }

    fn may_write(&self) -> Result<(), Failure> {
        if !self.database.writes() {
            return Err(
                Failure::new("25006", "cannot execute the statement during recovery")
                    .detail("This process is a standby: another one writes."),
            );
        }
        if self.block.read_only
            || self.settings.is_on("default_transaction_read_only") && !self.block.is_open()
        {
            return Err(Failure::new(
                "25006",
                "cannot execute the statement in a read-only transaction",
            ));
        }
        Ok(())
    }

    /// Gets the connection for the first statement of a transaction. If the last transaction has
    /// written, the session takes the lane at once: a snapshot would often be stale at its write.
    fn open_block(&mut self, cx: &Cx<'_>, need: Need) -> Result<Option<Held>, Failure> {
        let is_predicted = self.predicts_write && !self.block.read_only && self.database.writes();
        if need == Need::Write || is_predicted {
            let Some(grant) = self.take(cx, Need::Write)? else {
                return Ok(None);
            };
            grant.link().begin_transaction("BEGIN IMMEDIATE")?;
            if self.block.kind == Kind::None {
                self.block.kind = Kind::Implicit;
            }
            return Ok(Some(Held::Writer(grant)));
        }
        let Some(grant) = self.take(cx, Need::Read)? else {
            return Ok(None);
        };
        grant.link().begin_transaction("BEGIN")?;
        Ok(Some(Held::Snapshot(grant)))
    }

    fn upgrade(&mut self, cx: &Cx<'_>, snapshot: Grant) -> Result<Option<Held>, Failure> {
        // Predict that the next transaction of the session writes too.
        self.predicts_write = true;
        match self.take(cx, Need::Write)? {
            Some(lane) => Ok(Some(Held::Upgraded {
                snapshot,
                _lane: lane,
            })),
            None => {
                self.block.held = Some(Held::Snapshot(snapshot));
                Ok(None)
            }
        }
    }

    /// A connection of a lane, or a place in its queue.
    fn take(&mut self, cx: &Cx<'_>, need: Need) -> Result<Option<Grant>, Failure> {
        if let Some(grant) = self.granted.take() {
            return Ok(Some(grant));
        }
        let lane = match need {
            Need::Read => &self.database.snapshots,
            Need::Write => &self.database.writer,
        };
        match lane.take(|| cx.handle())? {
            Take::Granted(grant) => Ok(Some(grant)),
            Take::Parked(waiter) => {
                self.waiting = Some(Waiting { waiter });
                self.running.park(cx.handle());
                Ok(None)
            }
        }
    }

    /// Ends the wait if the session has its connection, or was cancelled.
    pub(super) fn poll_wait(&mut self) -> Wait {
        let Some(waiting) = &self.waiting else {
            return Wait::Over;
        };
        if self.running.is_cancelled() {
            let text = "canceling statement due to user request";
            self.end_wait(Some(Failure::new("57014", text)));
            return Wait::Over;
        }
        match waiting.waiter.poll() {
            Turn::Waits => return Wait::StillWaiting,
            Turn::Granted(grant) => self.granted = Some(grant),
            Turn::Lost => {}
        }
        self.end_wait(None);
        Wait::Over
    }

    /// Leaves the queue. With a failure, the statement fails when it runs again.
    pub(super) fn end_wait(&mut self, failure: Option<Failure>) {
        self.waiting = None;
        self.wait_failure = failure;
        self.running.end();
    }

    /// Commits the transaction, and passes the lane on before its commit is durable.
    pub(super) fn commit(&mut self) -> Result<(), Failure> {
        let block = std::mem::take(&mut self.block);
        let result = match &block.held {
            Some(held) if block.has_written => self.append(held),
            Some(held) => held.link().run_cached("COMMIT"),
            None => Ok(()),
        };
        self.ticket = self.ticket.max(self.database.log.seen());
        self.predicts_write = block.has_written;
        if block.has_defined && result.is_ok() {
            self.database.schema_changed();
        }
        self.ended(result.is_ok());
        result
    }

    fn append(&mut self, held: &Held) -> Result<(), Failure> {
        let link = held.link();
        link.begin(None);
        let ticket = self.database.log.begin();
        let result = link.run_cached("COMMIT");
        self.database.log.appended(ticket);
        self.ticket = self.ticket.max(ticket);
        self.server.count_commit();
        link.shorten_log();
        result
    }

    /// Rolls the transaction back.
    pub(super) fn roll_back(&mut self) {
        let block = std::mem::take(&mut self.block);
        self.predicts_write |= block.has_written;
        drop(block);
        self.has_seen();
        self.ended(false);
    }

    fn ended(&mut self, is_committed: bool) {
        self.granted = None;
        self.drop_portals();
        self.settings.transaction_ended(is_committed);
    }

    /// Marks the transaction as failed, because its statement has failed.
    pub(super) fn fail_block(&mut self, failure: &Failure) {
        self.granted = None;
        self.copy = None;
        if failure.code == "40001" {
            self.predicts_write = true;
        }
        match self.block.kind {
            Kind::None => {}
            Kind::Implicit => self.roll_back(),
            Kind::Explicit => {
                self.block.has_failed = true;
                let is_alive = |held: &Held| !held.link().connection.is_autocommit();
                let can_go_back = !self.block.savepoints.is_empty()
                    && self.block.held.as_ref().is_some_and(is_alive);
                if !can_go_back {
                    self.ticket = self.ticket.max(self.database.log.seen());
                    // Pass the lane on now: the client may take long to send its ROLLBACK.
                    self.block.held = None;
                    self.block.savepoints.clear();
                }
            }
        }
    }
}
