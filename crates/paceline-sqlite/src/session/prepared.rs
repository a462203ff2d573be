//! Statements that a client has prepared, and its portals.

use std::sync::{
    atomic::{AtomicBool, AtomicU64, Ordering},
    Arc,
};

use rusqlite::types::Value;

use super::{
    block::{Held, Need},
    run::{self, Shape},
    Open, Output,
};
use crate::{
    dialect::{infer, Facts, Kind, Source, Statement},
    failure::Failure,
    spool::Spool,
    types::{parameter::Parameter, Declared, Type},
};

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The client's text.
    pub(super) original: String,
    /// `None` for an empty text.
    pub(super) statement: Option<Statement>,
    pub(super) parameters: Vec<Parameter>,
    /// Its columns, if it returns rows.
    pub(super) shapes: Vec<Shape>,
    pub(super) need: Need,
    /// Whether the client has the description of the statement: it is kept, also where the rows
    /// would show another type than text.
    pub(super) is_described: AtomicBool,
    /// The schema that it was prepared for.
    pub(super) schema: AtomicU64,
}

/// A statement with its values.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) prepared: Arc<Prepared>,
    pub(super) values: Vec<Value>,
    pub(super) formats: Vec<bool>,
    /// The description of the results that the client has.
    pub(super) described: Option<Vec<Shape>>,
    /// Whether it outlives its transaction: a cursor `WITH HOLD`.
    pub(super) is_held: bool,
    pub(super) progress: Progress,
}

/// How far a portal has run.
#[derive(Debug)]
pub(super) enum Progress {
    /// It has not run.
    Ready,
    /// It has run, and these rows are unsent.
    Rows(Spool),
    /// It has run to its end.
    Done,
}

impl Prepared {
    /// The description of the results for a run.
    pub(super) fn shapes_to_run(&self) -> Vec<Shape> {
        let mut shapes = self.shapes.clone();
        if self.is_described.load(Ordering::Relaxed) {
            for shape in &mut shapes {
                shape.declared.get_or_insert(Declared::TEXT);
            }
        }
        shapes
    }

    /// SQLite's text, for a statement that is one of SQLite's.
    pub(super) fn sql(&self) -> Option<&str> {
        match &self.statement.as_ref()?.kind {
            Kind::Rows(sql) | Kind::Locks(sql) | Kind::Write(sql) | Kind::Catalogue(sql) => {
                Some(sql)
            }
            Kind::Define(sql) => Some(sql),
            Kind::Several(_) | Kind::Control(_) | Kind::Copy(_) => None,
        }
    }
}

/// The one statement of a text; `None` for an empty text.
pub(super) fn one_statement(sql: &str, facts: &Facts) -> Result<Option<Statement>, Failure> {
    let mut sources = Source::split(sql)?;
    if sources.len() > 1 {
        let text = "cannot insert multiple commands into a prepared statement";
        return Err(Failure::new("42601", text));
    }
    sources
        .pop()
        .map(|source| Statement::of(&source, facts))
        .transpose()
}

impl Open {
    /// Prepares a statement: SQLite compiles it, and its types are found.
    pub(super) fn prepare(&mut self, sql: &str, types: &[u32]) -> Result<Prepared, Failure> {
        let statement = self.with_facts(|facts| one_statement(sql, facts))?;
        let need = match statement.as_ref().map(|statement| &statement.kind) {
            Some(Kind::Locks(_) | Kind::Write(_) | Kind::Define(_) | Kind::Several(_)) => {
                Need::Write
            }
            _ => Need::Read,
        };
        let mut prepared = Prepared {
            original: sql.to_owned(),
            statement,
            parameters: Vec::new(),
            shapes: Vec::new(),
            need,
            is_described: AtomicBool::new(false),
            schema: AtomicU64::new(self.database.schema()),
        };
        match prepared.statement.as_ref().map(|statement| &statement.kind) {
            Some(Kind::Rows(_) | Kind::Locks(_) | Kind::Write(_)) => {
                let held = match self.block.held.take() {
                    Some(held) => held,
                    None => Held::Reader(self.database.reader()?),
                };
                let result = compile(&mut prepared, held.link(), types);
                self.put_back(held);
                result?;
            }
            Some(Kind::Catalogue(_)) => {
                self.with_catalogue(|_, link| compile(&mut prepared, link, types))?;
            }
            Some(Kind::Control(control)) => prepared.shapes = self.shapes_of_control(control),
            _ => {}
        }
        Ok(prepared)
    }
}

/// Compiles a statement, and collects the types that SQLite and the tokens show.
fn compile(
    prepared: &mut Prepared,
    link: &crate::store::link::Link,
    types: &[u32],
) -> Result<(), Failure> {
    link.read_schema(prepared.schema.load(Ordering::Relaxed))?;
    let sql = prepared.sql().unwrap_or_default().to_owned();
    let statement = link.connection.prepare_cached(&sql)?;
    if !statement.readonly() {
        prepared.need = Need::Write;
    }
    prepared.shapes = run::shapes(link, &statement, &prepared.original);
    let count = statement.parameter_count().max(types.len());
    drop(statement);
    if count == 0 {
        if prepared.need == Need::Read {
            run::probe(link, &sql, &mut prepared.shapes);
        }
        return Ok(());
    }
    let source = Source::split(&prepared.original)?.remove(0);
    let (guesses, tables) = (infer::parameters(&source), infer::tables(&source));
    let parameter = |index: usize| match types.get(index) {
        Some(705) => Parameter::Untyped,
        Some(oid) if *oid != 0 => Parameter::Typed(Type(*oid)),
        _ => {
            let guess = guesses.get(index).unwrap_or(&infer::Guess::Unknown);
            let found = run::resolve(link, &tables, guess);
            found.map_or(Parameter::Untyped, |declared| {
                Parameter::Typed(declared.kind)
            })
        }
    };
    prepared.parameters = (0..count).map(parameter).collect();
    Ok(())
}

impl Portal {
    /// Moves rows that wait to the output, or drops them. Returns how many.
    pub(super) fn pop(
        &mut self,
        output: &mut Output,
        most: u64,
        drops: bool,
    ) -> Result<u64, Failure> {
        let Progress::Rows(spool) = &mut self.progress else {
            return Ok(0);
        };
        let (mut count, mut dropped) = (0, Vec::new());
        while count < most {
            let target = if drops {
                &mut dropped
            } else {
                output.spool.end()
            };
            if !spool.pop_message(target)? {
                break;
            }
            count += 1;
            dropped.clear();
            output.spool.settle()?;
        }
        Ok(count)
    }
}
