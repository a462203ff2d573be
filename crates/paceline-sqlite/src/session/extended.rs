//! The extended protocol: Parse, Bind, Describe, Execute, Close, up to Sync.

use std::sync::{atomic::Ordering, Arc};

use paceline_pg_wire::{
    backend,
    frontend::{Bind, Parse, Target},
};

use super::{
    block::Need,
    by_name::reformat,
    prepared::{Portal, Prepared, Progress as Ran},
    run::{self, Run},
    Cx, Open, Output, Progress,
};
use crate::{
    dialect::{control::Control, Kind, Statement, Tag},
    failure::Failure,
};

impl Open {
    pub(super) fn parse(&mut self, parse: &Parse<'_>, output: &mut Output) -> Result<(), Failure> {
        if !parse.statement.is_empty() {
            self.check_name(parse.statement)?;
        }
        let types: Vec<u32> = parse.types.iter().collect();
        let prepared = self.prepare(super::utf8(parse.query)?, &types)?;
        if let Some(statement) = &prepared.statement {
            self.may_run(statement)?;
        }
        self.statements
            .insert(parse.statement.to_vec(), Arc::new(prepared));
        backend::parse_complete(output.spool.end());
        Ok(())
    }

    /// Checks that a statement of this name may be added.
    pub(super) fn check_name(&self, name: &[u8]) -> Result<(), Failure> {
        if self.statements.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            let text = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::new("42P05", text));
        }
        if self.statements.len() >= self.server.limits.statements {
            let text = "too many prepared statements in the session";
            return Err(Failure::new("53400", text));
        }
        Ok(())
    }

    pub(super) fn bind(&mut self, bind: &Bind<'_>, output: &mut Output) -> Result<(), Failure> {
        let prepared = self.statement(bind.statement)?;
        if let Some(statement) = &prepared.statement {
            self.may_run(statement)?;
        }
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            let name = String::from_utf8_lossy(bind.portal);
            return Err(Failure::new(
                "42P03",
                format!("portal \"{name}\" already exists"),
            ));
        }
        self.check_portals()?;
        let given = bind.values.len();
        let wanted = prepared.parameters.len();
        let is_count = |count: usize, of: usize| count <= 1 || count == of;
        if given != wanted || !is_count(bind.formats.len(), given) {
            let text = format!(
                "bind message supplies {given} parameters, \
                 but the prepared statement requires {wanted}"
            );
            return Err(Failure::new("08P01", text));
        }
        let mut values = Vec::with_capacity(given);
        for (index, value) in bind.values.iter().enumerate() {
            let parameter = prepared.parameters[index];
            values.push(parameter.decode(value, bind.formats.is_binary(index))?);
        }
        if bind.results.len() > 1 && bind.results.len() != prepared.shapes.len() {
            return Err(Failure::new(
                "08P01",
                "bind message has the wrong number of result formats",
            ));
        }
        let formats = (0..bind.results.len()).map(|index| bind.results.is_binary(index));
        let portal = Portal {
            values,
            formats: formats.collect(),
            ..Portal::new(prepared)
        };
        self.portals.insert(bind.portal.to_vec(), portal);
        backend::bind_complete(output.spool.end());
        Ok(())
    }

    pub(super) fn describe(
        &mut self,
        cx: &mut Cx<'_>,
        target: Target<'_>,
        output: &mut Output,
    ) -> Result<Progress, Failure> {
        match target {
            Target::Statement(name) => {
                let prepared = self.statement(name)?;
                prepared.is_described.store(true, Ordering::Relaxed);
                let types = prepared
                    .parameters
                    .iter()
                    .map(|parameter| parameter.described().0);
                backend::parameter_types(output.spool.end(), &types.collect::<Vec<_>>());
                describe(output, &prepared.shapes, &[]);
                Ok(Progress::Done)
            }
            Target::Portal(name) => self.describe_portal(cx, name, output),
        }
    }

    /// Describes a portal. Where only the rows show the types of a read, it runs now.
    fn describe_portal(
        &mut self,
        cx: &mut Cx<'_>,
        name: &[u8],
        output: &mut Output,
    ) -> Result<Progress, Failure> {
        let mut portal = self.take_portal(name)?;
        let shapes = portal.prepared.shapes_to_run();
        let is_unknown = shapes.iter().any(|shape| shape.declared.is_none());
        let reads = portal.prepared.need == Need::Read;
        let result = if is_unknown && reads {
            self.fill(cx, &mut portal)
        } else {
            Ok(Progress::Done)
        };
        if let Ok(Progress::Done) = result {
            let shapes = portal
                .described
                .get_or_insert_with(|| portal.prepared.shapes_to_run());
            describe(output, shapes, &portal.formats);
        }
        self.portals.insert(name.to_vec(), portal);
        result
    }

    pub(super) fn execute(
        &mut self,
        cx: &mut Cx<'_>,
        name: &[u8],
        rows: i32,
        output: &mut Output,
    ) -> Result<Progress, Failure> {
        let mut portal = self.take_portal(name)?;
        let result = self.execute_portal(cx, &mut portal, rows, output);
        // The end of a transaction destroys all portals, this one included.
        let ended = matches!(&portal.prepared.statement, Some(statement)
            if matches!(&statement.kind, Kind::Control(control) if control.ends_failed()));
        if !ended {
            self.portals.insert(name.to_vec(), portal);
        }
        result
    }

    fn execute_portal(
        &mut self,
        cx: &mut Cx<'_>,
        portal: &mut Portal,
        rows: i32,
        output: &mut Output,
    ) -> Result<Progress, Failure> {
        let prepared = Arc::clone(&portal.prepared);
        let Some(statement) = &prepared.statement else {
            backend::empty_query(output.spool.end());
            return Ok(Progress::Done);
        };
        self.may_run(statement)?;
        match &statement.kind {
            Kind::Control(Control::Execute { name, values }) => {
                return self.execute_by_name(cx, output, name, values, Some(&portal.formats));
            }
            Kind::Control(control) => {
                let tag = statement.tag.text(0, 0);
                let formats = &portal.formats;
                return self.control_without_description(cx, output, control, &tag, formats);
            }
            Kind::Copy(copy) => return self.begin_copy(cx, output, copy, true),
            Kind::Several(all) => {
                let Some(held) = self.acquire(cx, Need::Write)? else {
                    return Ok(Progress::Parked);
                };
                self.several(held, all)?;
                backend::command_complete(output.spool.end(), statement.tag.text(0, 0).as_bytes());
                return Ok(Progress::Done);
            }
            _ => {}
        }
        let has_rows = !prepared.shapes.is_empty();
        if matches!(portal.progress, Ran::Ready) && !(has_rows && rows > 0) {
            return self.run_through(cx, portal, output);
        }
        if let Progress::Parked = self.fill(cx, portal)? {
            return Ok(Progress::Parked);
        }
        let most = if rows > 0 { rows as u64 } else { u64::MAX };
        let count = portal.pop(output, most, false)?;
        match &portal.progress {
            Ran::Rows(spool) if !spool.is_empty() => backend::portal_suspended(output.spool.end()),
            _ => {
                let tag = match &statement.tag {
                    Tag::Changes(word) => format!("{word} {count}"),
                    tag => tag.text(count, 0),
                };
                backend::command_complete(output.spool.end(), tag.as_bytes());
            }
        }
        Ok(Progress::Done)
    }

    /// Runs a portal to its end, with its rows sent as they come.
    fn run_through(
        &mut self,
        cx: &mut Cx<'_>,
        portal: &mut Portal,
        output: &mut Output,
    ) -> Result<Progress, Failure> {
        let prepared = Arc::clone(&portal.prepared);
        let statement = prepared
            .statement
            .as_ref()
            .expect("an empty one does not run");
        let described = portal
            .described
            .get_or_insert_with(|| prepared.shapes_to_run());
        let (mut rows, mut changes) = (0, 0);
        let ran = {
            let described = described.clone();
            self.run_prepared(cx, &prepared, portal, Some(&described), output)?
        };
        let Some(ran) = ran else {
            return Ok(Progress::Parked);
        };
        self.apply_settings(&ran)?;
        rows += ran.rows;
        changes += ran.changes;
        portal.progress = Ran::Done;
        self.note(statement, prepared.need);
        let tag = statement.tag.text(rows, changes);
        backend::command_complete(output.spool.end(), tag.as_bytes());
        Ok(Progress::Done)
    }

    /// Runs a portal to its end, with its rows kept in it.
    pub(super) fn fill(
        &mut self,
        cx: &mut Cx<'_>,
        portal: &mut Portal,
    ) -> Result<Progress, Failure> {
        if !matches!(portal.progress, Ran::Ready) {
            return Ok(Progress::Done);
        }
        let prepared = Arc::clone(&portal.prepared);
        let Some(statement) = &prepared.statement else {
            return Ok(Progress::Done);
        };
        let mut kept = Output::kept(self.server.spool());
        let described = portal
            .described
            .clone()
            .unwrap_or_else(|| prepared.shapes_to_run());
        let Some(ran) = self.run_prepared(cx, &prepared, portal, Some(&described), &mut kept)?
        else {
            return Ok(Progress::Parked);
        };
        self.note(statement, prepared.need);
        self.apply_settings(&ran)?;
        portal.described = Some(if ran.shapes.is_empty() {
            described
        } else {
            ran.shapes
        });
        portal.progress = Ran::Rows(kept.spool);
        Ok(Progress::Done)
    }

    /// Runs the statement of a portal; `None` if the session is parked. Without a description of
    /// its results it sends one.
    pub(super) fn run_prepared(
        &mut self,
        cx: &mut Cx<'_>,
        prepared: &Prepared,
        portal: &Portal,
        described: Option<&[run::Shape]>,
        output: &mut Output,
    ) -> Result<Option<run::Ran>, Failure> {
        let sql = prepared.sql().unwrap_or_default();
        let go =
            |open: &Self, link: &crate::store::link::Link, cx: &mut Cx<'_>, output: &mut Output| {
                let schema = open.database.schema();
                if open.block.has_defined || prepared.schema.load(Ordering::Relaxed) != schema {
                    link.read_schema(schema)?;
                    check_result(link, prepared)?;
                    prepared.schema.store(schema, Ordering::Relaxed);
                }
                let run = Run {
                    link,
                    sql,
                    original: &prepared.original,
                    is_cached: true,
                    values: &portal.values,
                    formats: &portal.formats,
                    described,
                    settings: &open.settings,
                    has_results: prepared
                        .statement
                        .as_ref()
                        .is_none_or(Statement::has_results),
                };
                open.run_on(link, cx, output, |sink| {
                    sink.announces = described.is_none();
                    run.run(sink)
                })
            };
        if matches!(
            prepared.statement.as_ref().map(|statement| &statement.kind),
            Some(Kind::Catalogue(_))
        ) {
            return self
                .with_catalogue(|open, link| go(open, link, cx, output))
                .map(Some);
        }
        let Some(held) = self.acquire(cx, prepared.need)? else {
            return Ok(None);
        };
        let result = go(self, held.link(), cx, output);
        self.put_back(held);
        result.map(Some)
    }

    pub(super) fn close(&mut self, target: Target<'_>, output: &mut Output) {
        match target {
            Target::Statement(name) => drop(self.statements.remove(name)),
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        backend::close_complete(output.spool.end());
    }

    pub(super) fn sync(&mut self, output: &mut Output) {
        self.skips_to_sync = false;
        if let Err(failure) = self.end_implicit() {
            self.fail(output, &failure);
        }
        if !self.block.is_open() {
            self.drop_portals();
        }
        self.ready(output);
    }

    pub(super) fn statement(&self, name: &[u8]) -> Result<Arc<Prepared>, Failure> {
        let found = self.statements.get(name).cloned();
        found.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            let text = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            Failure::new("26000", text)
        })
    }

    fn take_portal(&mut self, name: &[u8]) -> Result<Portal, Failure> {
        self.portals.remove(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Failure::new("34000", format!("portal \"{name}\" does not exist"))
        })
    }

    pub(super) fn check_portals(&self) -> Result<(), Failure> {
        if self.portals.len() < self.server.limits.portals {
            return Ok(());
        }
        Err(Failure::new(
            "53400",
            "too many open portals in the session",
        ))
    }

    /// Runs a control statement without its row description, which Describe has sent, and with its
    /// results in these formats.
    fn control_without_description(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        control: &Control,
        tag: &str,
        formats: &[bool],
    ) -> Result<Progress, Failure> {
        let mut all = Output::kept(self.server.spool());
        let progress = self.control(cx, &mut all, control, tag)?;
        let shapes = self.shapes_of_control(control);
        let mut message = Vec::new();
        while all.spool.pop_message(&mut message)? {
            match message[0] {
                b'T' => {}
                b'D' => reformat(&message, &shapes, formats, output.spool.end())?,
                _ => output.spool.end().extend_from_slice(&message),
            }
            message.clear();
            output.spool.settle()?;
        }
        Ok(progress)
    }
}

/// Checks that the results still have the described types.
fn check_result(link: &crate::store::link::Link, prepared: &Prepared) -> Result<(), Failure> {
    // A cached statement would still have the old columns.
    let statement = link
        .connection
        .prepare(prepared.sql().unwrap_or_default())?;
    let now = run::shapes(link, &statement, &prepared.original);
    let types = |shapes: &[run::Shape]| -> Vec<_> {
        shapes
            .iter()
            .map(|shape| {
                (
                    shape.name.clone(),
                    shape.declared.map(|declared| declared.kind),
                )
            })
            .collect()
    };
    if types(&now) == types(&prepared.shapes) {
        Ok(())
    } else {
        Err(run::changed())
    }
}

fn describe(output: &mut Output, shapes: &[run::Shape], formats: &[bool]) {
    if shapes.is_empty() {
        backend::no_data(output.spool.end());
    } else {
        run::describe(output.spool.end(), shapes, formats);
    }
}
