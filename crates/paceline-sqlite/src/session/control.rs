//! Statements that concern the session.

use std::sync::Arc;

use paceline_pg_wire::{backend, NewReport, Severity};

use super::{
    block::{Kind, Need},
    prepared::{one_statement, Portal, Prepared, Progress as Ran},
    run::Shape,
    Cx, Open, Output, Progress,
};
use crate::{
    dialect::{
        control::{Control, Count, Mode},
        source::quote_name,
    },
    failure::Failure,
    types::Declared,
};

impl Control {
    /// Whether it runs in a transaction that has failed.
    pub(super) fn ends_failed(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }
}

impl Open {
    /// Runs a control statement, and sends its `CommandComplete`.
    pub(super) fn control(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        control: &Control,
        tag: &str,
    ) -> Result<Progress, Failure> {
        let mut tag = tag.to_owned();
        match control {
            Control::Begin(mode) => self.begin(*mode, output),
            Control::Commit if self.block.has_failed => {
                self.roll_back();
                tag = "ROLLBACK".to_owned();
            }
            Control::Commit => {
                if let Progress::Parked = self.fill_held(cx)? {
                    return Ok(Progress::Parked);
                }
                self.commit_block(output)?;
            }
            Control::Rollback => {
                self.warn_without_block(output);
                self.roll_back();
            }
            Control::Savepoint(name) => return self.savepoint(cx, output, name),
            Control::Release(name) => self.release(name)?,
            Control::RollbackTo(name) => self.roll_back_to(name)?,
            Control::SetTransaction(mode) => self.set_mode(*mode),
            Control::Set {
                name,
                value,
                is_local,
            } => {
                self.set(name, value.as_deref(), *is_local)?;
            }
            Control::Show(name) => self.show(output, name)?,
            Control::ResetAll => self.settings.reset_all(),
            Control::DiscardAll => self.discard()?,
            Control::Deallocate(name) => self.deallocate(name.as_deref())?,
            Control::Prepare { name, types, query } => self.prepare_by_name(name, types, query)?,
            Control::Execute { name, values } => {
                return self.execute_by_name(cx, output, name, values, None);
            }
            Control::Declare {
                name,
                query,
                is_held,
            } => {
                if let Progress::Parked = self.declare(cx, name, query, *is_held)? {
                    return Ok(Progress::Parked);
                }
            }
            Control::Fetch { name, count, moves } => {
                return self.fetch(cx, output, name, *count, *moves);
            }
            Control::Close(None) => self.portals.clear(),
            Control::Close(Some(name)) => {
                let closed = self.portals.remove(name.as_bytes());
                closed.ok_or_else(|| no_cursor(name))?;
            }
            Control::Lock => {
                let Some(held) = self.acquire(cx, Need::Write)? else {
                    return Ok(Progress::Parked);
                };
                self.put_back(held);
            }
            Control::Checkpoint => self.checkpoint()?,
            Control::Nothing => {}
        }
        backend::command_complete(output.spool.end(), tag.as_bytes());
        Ok(Progress::Done)
    }

    fn begin(&mut self, mode: Mode, output: &mut Output) {
        if self.block.kind == Kind::Explicit {
            warn(
                output,
                "25001",
                "there is already a transaction in progress",
            );
        }
        if !self.block.is_open() {
            self.block.read_only = self.settings.is_on("default_transaction_read_only");
        }
        self.block.kind = Kind::Explicit;
        self.set_mode(mode);
    }

    fn set_mode(&mut self, mode: Mode) {
        if let Some(read_only) = mode.read_only {
            self.block.read_only = read_only;
        }
    }

    fn commit_block(&mut self, output: &mut Output) -> Result<(), Failure> {
        self.warn_without_block(output);
        self.commit()
    }

    fn warn_without_block(&self, output: &mut Output) {
        if self.block.kind != Kind::Explicit {
            warn(output, "25P01", "there is no transaction in progress");
        }
    }

    fn savepoint(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        name: &str,
    ) -> Result<Progress, Failure> {
        self.must_be_in_block("SAVEPOINT")?;
        let Some(held) = self.acquire(cx, Need::Read)? else {
            return Ok(Progress::Parked);
        };
        let result = held
            .link()
            .batch(&format!("SAVEPOINT {}", quote_name(name)));
        self.put_back(held);
        result?;
        self.block.savepoints.push(name.to_owned());
        backend::command_complete(output.spool.end(), b"SAVEPOINT");
        Ok(Progress::Done)
    }

    fn must_be_in_block(&self, what: &str) -> Result<(), Failure> {
        if self.block.kind == Kind::Explicit {
            return Ok(());
        }
        Err(Failure::new(
            "25P01",
            format!("{what} can only be used in transaction blocks"),
        ))
    }

    /// The index of the last savepoint of this name.
    fn place_of(&self, name: &str) -> Result<usize, Failure> {
        let found = self
            .block
            .savepoints
            .iter()
            .rposition(|known| known == name);
        found.ok_or_else(|| Failure::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    fn release(&mut self, name: &str) -> Result<(), Failure> {
        self.must_be_in_block("RELEASE SAVEPOINT")?;
        let place = self.place_of(name)?;
        self.on_held(&format!("RELEASE {}", quote_name(name)))?;
        self.block.savepoints.truncate(place);
        Ok(())
    }

    fn roll_back_to(&mut self, name: &str) -> Result<(), Failure> {
        self.must_be_in_block("ROLLBACK TO SAVEPOINT")?;
        let place = self.place_of(name)?;
        self.on_held(&format!("ROLLBACK TO {}", quote_name(name)))?;
        self.block.savepoints.truncate(place + 1);
        self.block.has_failed = false;
        Ok(())
    }

    fn on_held(&self, sql: &str) -> Result<(), Failure> {
        match &self.block.held {
            Some(held) => held.link().batch(sql),
            None => Ok(()),
        }
    }

    pub(super) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        is_local: bool,
    ) -> Result<(), Failure> {
        let in_block = self.block.is_open();
        self.settings.set(name, value, is_local, in_block)?;
        if name.eq_ignore_ascii_case("transaction_read_only") {
            self.block.read_only = self.settings.is_on("transaction_read_only");
        }
        Ok(())
    }

    fn show(&mut self, output: &mut Output, name: &str) -> Result<(), Failure> {
        if name == "all" {
            super::run::describe(output.spool.end(), &shapes_of_all(), &[]);
            let mut all: Vec<_> = self.settings.all().iter().collect();
            all.sort_unstable();
            for (name, value) in all {
                let row = [
                    Some(name.as_bytes()),
                    Some(value.as_bytes()),
                    Some(&b""[..]),
                ];
                backend::row(output.spool.end(), row);
            }
            return Ok(());
        }
        let value = self.settings.get(name).ok_or_else(|| {
            Failure::new(
                "42704",
                format!("unrecognized configuration parameter \"{name}\""),
            )
        })?;
        super::run::describe(output.spool.end(), &[shape(name)], &[]);
        backend::row(output.spool.end(), [Some(value.as_bytes())]);
        Ok(())
    }

    /// The columns that a control statement returns, for a Describe before its Execute.
    pub(super) fn shapes_of_control(&self, control: &Control) -> Vec<Shape> {
        match control {
            Control::Show(name) if name == "all" => shapes_of_all(),
            Control::Show(name) => vec![shape(name)],
            Control::Execute { name, .. } => {
                let prepared = self.statements.get(name.as_bytes());
                prepared.map_or_else(Vec::new, |prepared| prepared.shapes.clone())
            }
            Control::Fetch { moves: true, .. } => Vec::new(),
            Control::Fetch { name, .. } => {
                let portal = self.portals.get(name.as_bytes());
                portal.map_or_else(Vec::new, |portal| portal.prepared.shapes.clone())
            }
            _ => Vec::new(),
        }
    }

    fn discard(&mut self) -> Result<(), Failure> {
        if self.block.is_open() {
            let text = "DISCARD ALL cannot run inside a transaction block";
            return Err(Failure::new("25001", text));
        }
        self.portals.clear();
        self.statements.clear();
        self.settings.reset_all();
        Ok(())
    }

    fn deallocate(&mut self, name: Option<&str>) -> Result<(), Failure> {
        let Some(name) = name else {
            self.statements.clear();
            return Ok(());
        };
        let removed = self.statements.remove(name.as_bytes()).map(drop);
        removed.ok_or_else(|| {
            Failure::new(
                "26000",
                format!("prepared statement \"{name}\" does not exist"),
            )
        })
    }

    fn checkpoint(&self) -> Result<(), Failure> {
        let reader = self.database.reader()?;
        let result = reader.write_back(rusqlite::wal::CheckpointMode::PASSIVE);
        self.database.give_back(reader);
        result
    }

    fn declare(
        &mut self,
        cx: &mut Cx<'_>,
        name: &str,
        query: &str,
        is_held: bool,
    ) -> Result<Progress, Failure> {
        if !is_held {
            self.must_be_in_block("DECLARE CURSOR")?;
        }
        if self.portals.contains_key(name.as_bytes()) {
            return Err(Failure::new(
                "42P03",
                format!("cursor \"{name}\" already exists"),
            ));
        }
        self.check_portals()?;
        one_statement(query, &self.facts())?
            .ok_or_else(|| Failure::new("42601", "syntax error at end of input"))?;
        let prepared = self.prepare(query, &[])?;
        let mut portal = Portal {
            is_held,
            ..Portal::new(Arc::new(prepared))
        };
        // Without a block, the transaction of the cursor ends with this statement.
        if !self.block.is_open() {
            if let Progress::Parked = self.fill(cx, &mut portal)? {
                return Ok(Progress::Parked);
            }
        }
        self.portals.insert(name.as_bytes().to_vec(), portal);
        Ok(Progress::Done)
    }

    /// Runs the cursors that outlive the transaction: their rows are those of its end.
    fn fill_held(&mut self, cx: &mut Cx<'_>) -> Result<Progress, Failure> {
        let is_due = |portal: &Portal| portal.is_held && matches!(portal.progress, Ran::Ready);
        let due = self.portals.iter().filter(|(_, portal)| is_due(portal));
        let names: Vec<Vec<u8>> = due.map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(mut portal) = self.portals.remove(&name) else {
                continue;
            };
            let progress = self.fill(cx, &mut portal)?;
            self.portals.insert(name, portal);
            if progress == Progress::Parked {
                return Ok(Progress::Parked);
            }
        }
        Ok(Progress::Done)
    }

    /// Drops the portals that end with the transaction.
    pub(super) fn drop_portals(&mut self) {
        let outlives =
            |portal: &mut Portal| portal.is_held && !matches!(portal.progress, Ran::Ready);
        self.portals.retain(|_, portal| outlives(portal));
    }

    fn fetch(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        name: &str,
        count: Count,
        moves: bool,
    ) -> Result<Progress, Failure> {
        let mut portal = self
            .portals
            .remove(name.as_bytes())
            .ok_or_else(|| no_cursor(name))?;
        let filled = self.fill(cx, &mut portal);
        let result = match filled {
            Ok(Progress::Done) => {
                if !moves {
                    let shapes = portal.described.as_deref().unwrap_or_default();
                    super::run::describe(output.spool.end(), shapes, &portal.formats);
                }
                let most = match count {
                    Count::All => u64::MAX,
                    Count::Next(count) => u64::from(count),
                };
                let rows = portal.pop(output, most, moves)?;
                let word = if moves { "MOVE" } else { "FETCH" };
                backend::command_complete(output.spool.end(), format!("{word} {rows}").as_bytes());
                Ok(Progress::Done)
            }
            other => other,
        };
        self.portals.insert(name.as_bytes().to_vec(), portal);
        result
    }
}

impl Portal {
    /// A portal without values and with results in text format.
    pub(super) fn new(prepared: Arc<Prepared>) -> Self {
        Self {
            prepared,
            values: Vec::new(),
            formats: Vec::new(),
            described: None,
            is_held: false,
            progress: Ran::Ready,
        }
    }
}

fn shape(name: &str) -> Shape {
    Shape {
        name: name.to_owned(),
        declared: Some(Declared::TEXT),
    }
}

/// The columns of `SHOW ALL`.
fn shapes_of_all() -> Vec<Shape> {
    ["name", "setting", "description"].map(shape).to_vec()
}

fn no_cursor(name: &str) -> Failure {
    Failure::new("34000", format!("cursor \"{name}\" does not exist"))
}

fn warn(output: &mut Output, code: &str, text: &str) {
    let report = NewReport::new(Severity::Warning, code, text);
    backend::notice(output.spool.end(), &report);
}
