//! Simple queries: a text of several statements, answered up to one `ReadyForQuery`.

use std::{collections::VecDeque, sync::Arc};

use paceline_pg_wire::{backend, TransactionStatus};

use super::{
    block::{self, Held, Need},
    prepared::one_statement,
    run::{Ran, Run, Sink},
    Cx, Open, Output, Progress,
};
use crate::{
    dialect::{control::Control, Facts, Kind, Source, Statement},
    failure::Failure,
    store::{link::Link, violation},
};

/// The remaining statements of a text.
#[derive(Debug)]
pub(super) struct Script {
    statements: VecDeque<(String, Statement)>,
    /// Whether the text has more than one statement.
    is_several: bool,
    is_empty: bool,
}

impl Script {
    /// Reads the whole text before any of it runs.
    fn read(sql: &str, facts: &Facts) -> Result<Self, Failure> {
        let statements: Result<VecDeque<_>, Failure> = Source::split(sql)?
            .iter()
            .map(|source| Ok((source.sql().to_owned(), Statement::of(source, facts)?)))
            .collect();
        let statements = statements?;
        Ok(Self {
            is_several: statements.len() > 1,
            is_empty: statements.is_empty(),
            statements,
        })
    }
}

impl Open {
    /// Begins a text; [`resume`](Self::resume) runs its statements.
    pub(super) fn query(&mut self, sql: &[u8], output: &mut Output) {
        // A new simple query destroys the portal without a name.
        self.portals.remove(&b""[..]);
        let script = super::utf8(sql).and_then(|sql| Script::read(sql, &self.facts()));
        match script {
            Ok(script) => self.script = Some(script),
            Err(failure) => {
                self.fail(output, &failure);
                self.ready(output);
            }
        }
    }

    /// Runs the remaining statements of the text.
    pub(super) fn resume(&mut self, cx: &mut Cx<'_>, output: &mut Output) -> Progress {
        while let Some(mut script) = self.script.take() {
            let Some((original, statement)) = script.statements.pop_front() else {
                self.end_script(&script, output);
                return Progress::Done;
            };
            let is_last = script.statements.is_empty();
            let result = self.one(
                cx,
                output,
                &original,
                &statement,
                is_last && !script.is_several,
            );
            match result {
                Ok(Progress::Done) => self.script = Some(script),
                Ok(Progress::Parked) => {
                    script.statements.push_front((original, statement));
                    self.script = Some(script);
                    return Progress::Parked;
                }
                Ok(Progress::Copies) => {
                    self.script = Some(script);
                    return Progress::Copies;
                }
                Err(failure) => {
                    self.fail(output, &failure);
                    if !failure.is_fatal() {
                        self.ready(output);
                    }
                    return Progress::Done;
                }
            }
        }
        Progress::Done
    }

    fn end_script(&mut self, script: &Script, output: &mut Output) {
        if script.is_empty {
            backend::empty_query(output.spool.end());
        }
        if let Err(failure) = self.end_implicit() {
            self.fail(output, &failure);
        }
        self.ready(output);
    }

    /// Commits what the server has begun for the statements of one message.
    pub(super) fn end_implicit(&mut self) -> Result<(), Failure> {
        match self.block.kind {
            block::Kind::Implicit => self.commit(),
            block::Kind::None | block::Kind::Explicit => Ok(()),
        }
    }

    fn one(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        original: &str,
        statement: &Statement,
        is_alone: bool,
    ) -> Result<Progress, Failure> {
        // An earlier statement of the message may have made the table of this one.
        let again = if !is_alone && self.block.has_defined {
            self.with_facts(|facts| one_statement(original, facts))?
        } else {
            None
        };
        let statement = again.as_ref().unwrap_or(statement);
        self.may_run(statement)?;
        let tag = |rows, changes| statement.tag.text(rows, changes);
        let (sql, need) = match &statement.kind {
            Kind::Control(control @ Control::Execute { .. }) => {
                let progress = self.control(cx, output, control, "")?;
                if progress == Progress::Done {
                    self.finish_alone(is_alone)?;
                }
                return Ok(progress);
            }
            Kind::Control(control) => {
                return self.control(cx, output, control, &tag(0, 0));
            }
            Kind::Copy(copy) => return self.begin_copy(cx, output, copy, false),
            Kind::Several(all) => {
                let Some(held) = self.acquire(cx, Need::Write)? else {
                    return Ok(Progress::Parked);
                };
                self.several(held, all)?;
                self.finish_alone(is_alone)?;
                backend::command_complete(output.spool.end(), tag(0, 0).as_bytes());
                return Ok(Progress::Done);
            }
            Kind::Catalogue(sql) => {
                let ran = self.with_catalogue(|open, link| {
                    open.run_simple(link, sql, original, true, output, cx)
                })?;
                self.apply_settings(&ran)?;
                backend::command_complete(output.spool.end(), tag(ran.rows, 0).as_bytes());
                return Ok(Progress::Done);
            }
            Kind::Rows(sql) => (sql, Need::Read),
            Kind::Locks(sql) | Kind::Write(sql) | Kind::Define(sql) => (sql, Need::Write),
        };
        let Some(held) = self.acquire(cx, need)? else {
            return Ok(Progress::Parked);
        };
        let has_results = statement.has_results();
        let result = self.run_simple(held.link(), sql, original, has_results, output, cx);
        self.put_back(held);
        let ran = result?;
        self.note(statement, need);
        self.apply_settings(&ran)?;
        self.finish_alone(is_alone)?;
        backend::command_complete(output.spool.end(), tag(ran.rows, ran.changes).as_bytes());
        Ok(Progress::Done)
    }

    /// A statement that is alone in its message is committed before its `CommandComplete` is sent.
    fn finish_alone(&mut self, is_alone: bool) -> Result<(), Failure> {
        if is_alone {
            self.end_implicit()
        } else {
            Ok(())
        }
    }

    /// The next reply may show every commit so far, so it must wait until those are durable. A
    /// transaction that holds the lane waits only at its end: all other writers wait for it.
    pub(super) fn has_seen(&mut self) {
        if !self.block.holds_lane() {
            self.ticket = self.ticket.max(self.database.log.seen());
        }
    }

    /// Records the effects of a statement for the end of its transaction.
    pub(super) fn note(&mut self, statement: &Statement, need: Need) {
        self.has_seen();
        if need == Need::Write {
            self.block.has_written = true;
            self.block.has_defined |= matches!(statement.kind, Kind::Define(_) | Kind::Several(_));
        }
    }

    fn run_simple(
        &self,
        link: &Link,
        sql: &str,
        original: &str,
        has_results: bool,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<Ran, Failure> {
        let run = Run {
            link,
            sql,
            original,
            is_cached: false,
            values: &[],
            formats: &[],
            described: None,
            settings: &self.settings,
            has_results,
        };
        self.run_on(link, cx, output, |sink| run.run(sink))
    }

    /// Applies the settings that a statement has changed by `set_config`.
    pub(super) fn apply_settings(&mut self, ran: &Ran) -> Result<(), Failure> {
        for change in &ran.settings {
            self.set(&change.name, Some(&change.value), change.is_local)?;
        }
        Ok(())
    }

    /// Calls `run` on a connection, such that a cancel or a time limit can stop it.
    pub(super) fn run_on<R>(
        &self,
        link: &Link,
        cx: &mut Cx<'_>,
        output: &mut Output,
        run: impl FnOnce(&mut Sink<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        link.begin(self.settings.time("statement_timeout"));
        self.running.start(link.stopper());
        let log = &self.database.log;
        let (ticket, is_kept) = (self.ticket, output.is_kept);
        let mut relieve = |spool: &mut crate::spool::Spool| {
            // Rows that a loss of power could undo stay in the spool until the statement ends.
            if !is_kept && log.is_durable(ticket.max(log.seen())) {
                super::send_some(spool, cx)?;
            }
            Ok(())
        };
        let mut sink = Sink {
            spool: &mut output.spool,
            announces: true,
            relieve: &mut relieve,
        };
        let result = run(&mut sink);
        self.running.end();
        result
    }

    /// Calls `run` on the connection with the catalogue.
    pub(super) fn with_catalogue<R>(
        &mut self,
        run: impl FnOnce(&mut Self, &Link) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let database = Arc::clone(&self.database);
        let mut slot = database.catalogue(&self.facts.user);
        let link = match slot.take() {
            Some(link) => link,
            None => database.open_catalogue()?,
        };
        let result = run(self, &link);
        *slot = Some(link);
        result
    }

    /// Runs statements that have no results.
    pub(super) fn several(&mut self, held: Held, all: &[String]) -> Result<(), Failure> {
        let link = held.link();
        link.begin(self.settings.time("statement_timeout"));
        self.running.start(link.stopper());
        let run = |sql: &String| {
            let result = link.batch(sql);
            result.map_err(|failure| violation::describe(link, sql, &[], failure))
        };
        let result = all.iter().try_for_each(run);
        self.running.end();
        let result = result.map_err(|failure| super::run::explain(held.link(), failure));
        self.put_back(held);
        result?;
        self.block.has_written = true;
        self.block.has_defined = true;
        Ok(())
    }

    /// In a failed transaction only its end runs.
    pub(super) fn may_run(&self, statement: &Statement) -> Result<(), Failure> {
        let ends = matches!(&statement.kind, Kind::Control(control) if control.ends_failed());
        if self.block.status() == TransactionStatus::Failed && !ends {
            let text =
                "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Failure::new("25P02", text));
        }
        Ok(())
    }

    /// Sends `ReadyForQuery`.
    pub(super) fn ready(&mut self, output: &mut Output) {
        self.settings.set_standby(!self.database.writes());
        for (name, value) in self.settings.take_unreported() {
            backend::parameter(output.spool.end(), name.as_bytes(), value.as_bytes());
        }
        output.ticket = output.ticket.max(self.ticket);
        backend::ready_for_query(output.spool.end(), self.block.status());
    }

    /// Sends an error, which fails the transaction, and ends the session if it is fatal.
    pub(super) fn fail(&mut self, output: &mut Output, failure: &Failure) {
        self.script = None;
        self.fail_block(failure);
        output.ticket = output.ticket.max(self.ticket);
        backend::error(output.spool.end(), &failure.report());
        if failure.is_fatal() {
            self.roll_back();
            self.is_over = true;
        }
    }
}
