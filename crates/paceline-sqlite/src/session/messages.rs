//! The messages of an open session, and its deadlines.

use std::{sync::Arc, time::Duration};

use paceline_pg_wire::frontend::Request;

use super::{Cx, Open, Output, Progress};
use crate::{dialect::Facts, failure::Failure};

/// How many waits for the client a session without writes stays in the level of writers.
const WAITS_AMONG_WRITERS: u32 = 64;

impl Open {
    /// Carries out a message.
    pub(super) fn message(
        &mut self,
        cx: &mut Cx<'_>,
        request: Request<'_>,
        output: &mut Output,
    ) -> Progress {
        if self.copy.is_some() {
            return self.message_in_copy(request, output);
        }
        if self.skips_to_sync && request != Request::Sync {
            return Progress::Done;
        }
        let result = match request {
            Request::Query(sql) => {
                self.query(sql, output);
                Ok(Progress::Done)
            }
            Request::Parse(parse) => self.parse(&parse, output).map(|()| Progress::Done),
            Request::Bind(bind) => self.bind(&bind, output).map(|()| Progress::Done),
            Request::Describe(target) => self.describe(cx, target, output),
            Request::Execute { portal, rows } => self.execute(cx, portal, rows, output),
            Request::Close(target) => {
                self.close(target, output);
                Ok(Progress::Done)
            }
            Request::Sync => {
                self.sync(output);
                Ok(Progress::Done)
            }
            // `Session::advance` flushes anyway when it has read all input.
            Request::Flush => Ok(Progress::Done),
            // The client sent these before it received the error of its COPY.
            Request::CopyData(_) | Request::CopyDone | Request::CopyFail(_) => Ok(Progress::Done),
            Request::FunctionCall => {
                let failure = Failure::unsupported("function calls are not supported");
                self.fail(output, &failure);
                self.ready(output);
                return Progress::Done;
            }
            _ => Err(Failure::fatal("08P01", "unexpected message")),
        };
        result.unwrap_or_else(|failure| {
            self.skips_to_sync = true;
            self.fail(output, &failure);
            Progress::Done
        })
    }

    /// Carries out a message during COPY FROM, which ignores Flush and Sync.
    pub(super) fn message_in_copy(
        &mut self,
        request: Request<'_>,
        output: &mut Output,
    ) -> Progress {
        let is_extended = self.copy.as_ref().is_some_and(|copy| copy.is_extended);
        let result = match request {
            Request::CopyData(data) => self.copy_data(data),
            Request::CopyDone => self.copy_done(output),
            Request::CopyFail(reason) => {
                let reason = String::from_utf8_lossy(reason);
                Err(Failure::new(
                    "57014",
                    format!("COPY from stdin failed: {reason}"),
                ))
            }
            Request::Flush | Request::Sync => Ok(()),
            _ => Err(Failure::fatal(
                "08P01",
                "unexpected message while rows are copied in",
            )),
        };
        if let Err(failure) = result {
            self.fail(output, &failure);
            if is_extended {
                self.skips_to_sync = true;
            } else if !failure.is_fatal() {
                self.ready(output);
            }
        }
        Progress::Done
    }

    /// Whether the session belongs to the level of writers. It stays there for
    /// `WAITS_AMONG_WRITERS` waits after its last write.
    pub(super) fn belongs_to_writers(&mut self) -> bool {
        if self.predicts_write || self.block.holds_lane() {
            self.waits_since_write = 0;
            return true;
        }
        self.waits_since_write = self.waits_since_write.saturating_add(1);
        self.waits_since_write < WAITS_AMONG_WRITERS
    }

    /// The error of a session that has waited too long for a connection.
    pub(super) fn waited_too_long(&self) -> Failure {
        let limit = self.wait_limit();
        if self.settings.time("statement_timeout") == Some(limit) {
            return Failure::new("57014", "canceling statement due to statement timeout");
        }
        Failure::new("55P03", "canceling statement due to lock timeout")
            .detail("Another transaction has the lane of writers.")
    }

    fn wait_limit(&self) -> Duration {
        let own = ["statement_timeout", "lock_timeout"].map(|name| self.settings.time(name));
        let limits = own.into_iter().flatten();
        limits
            .min()
            .unwrap_or(Duration::MAX)
            .min(self.server.limits.lane_wait)
    }

    /// How long the session may stay as it is: parked, or idle in a transaction; `None`: for ever.
    pub(super) fn longest_wait(&self) -> Option<Duration> {
        if self.waiting.is_some() {
            return Some(self.wait_limit());
        }
        if !self.block.is_open() {
            return None;
        }
        let limits = &self.server.limits;
        let limit = if self.block.holds_lane() {
            limits.idle_writer
        } else {
            limits.idle_reader
        };
        let own = self.settings.time("idle_in_transaction_session_timeout");
        Some(own.map_or(limit, |own| own.min(limit)))
    }

    pub(super) fn facts(&mut self) -> Arc<Facts> {
        let is_standby = !self.database.writes();
        if self.facts.is_standby != is_standby {
            Arc::make_mut(&mut self.facts).is_standby = is_standby;
        }
        Arc::clone(&self.facts)
    }
}
