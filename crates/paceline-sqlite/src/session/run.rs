//! Runs a statement of SQLite, and writes its rows.

use std::time::Duration;

use paceline_pg_wire::backend::{self, Column, RowWriter};
use rusqlite::{types::Value, Row, Statement};

use super::{kinds, settings::Settings};
use crate::{
    dialect::{
        infer::{self, Guess},
        results, Source,
    },
    failure::Failure,
    spool::Spool,
    store::{asked::Change, catalogue, columns, link::Link, violation},
    types::{encode, Declared},
};

/// A column of results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) name: String,
    /// `None` until the first row shows it.
    pub(super) declared: Option<Declared>,
}

impl Shape {
    fn declared(&self) -> Declared {
        self.declared.unwrap_or(Declared::TEXT)
    }
}

/// A statement that is about to run.
pub(super) struct Run<'r> {
    pub(super) link: &'r Link,
    /// SQLite's text.
    pub(super) sql: &'r str,
    /// The client's text, for types that SQLite does not know.
    pub(super) original: &'r str,
    /// Whether the statement is kept compiled.
    pub(super) is_cached: bool,
    pub(super) values: &'r [Value],
    /// Whether the results are binary: for each, for all, or none.
    pub(super) formats: &'r [bool],
    /// The description of the results that the client has; `None`: it gets one now.
    pub(super) described: Option<&'r [Shape]>,
    pub(super) settings: &'r Settings,
}

/// The results of a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    pub(super) rows: u64,
    pub(super) changes: u64,
    /// The description that the client got.
    pub(super) shapes: Vec<Shape>,
    /// The settings that the statement has changed.
    pub(super) settings: Vec<Change>,
}

/// Where rows are written.
pub(super) struct Sink<'s> {
    pub(super) spool: &'s mut Spool,
    /// Whether the description of the columns is sent here.
    pub(super) announces: bool,
    /// Sends as much as the client accepts. `run` calls it after each piece of rows.
    pub(super) relieve: &'s mut dyn FnMut(&mut Spool) -> Result<(), Failure>,
}

/// How many bytes of rows are collected before a send.
pub(super) const PIECE: usize = 32 << 10;

impl Run<'_> {
    /// Runs it to its end.
    pub(super) fn run(&self, sink: &mut Sink<'_>) -> Result<Ran, Failure> {
        let (mut cached, mut plain);
        let statement: &mut Statement<'_> = if self.is_cached {
            cached = self.link.connection.prepare_cached(self.sql)?;
            &mut cached
        } else {
            plain = self.link.connection.prepare(self.sql)?;
            &mut plain
        };
        self.bind(statement)?;
        let asks = asks_settings(self.original);
        if asks {
            self.link.lend_settings(self.settings.all());
        }
        let mut result = self.step(statement, sink);
        if let (true, Ok(ran)) = (asks, &mut result) {
            ran.settings = self.link.changed_settings();
        }
        result.map_err(|failure| {
            let failure = explain(self.link, failure);
            violation::describe(self.link, self.original, self.values, failure)
        })
    }

    fn bind(&self, statement: &mut Statement<'_>) -> Result<(), Failure> {
        let count = statement.parameter_count();
        if count > self.values.len() {
            let number = self.values.len() + 1;
            return Err(Failure::new(
                "42P02",
                format!("there is no parameter ${number}"),
            ));
        }
        for (index, value) in self.values.iter().take(count).enumerate() {
            statement.raw_bind_parameter(index + 1, value)?;
        }
        Ok(())
    }

    fn step(&self, statement: &mut Statement<'_>, sink: &mut Sink<'_>) -> Result<Ran, Failure> {
        if statement.column_count() == 0 {
            statement.raw_execute()?;
            return Ok(Ran {
                changes: self.link.connection.changes(),
                ..Ran::default()
            });
        }
        let mut shapes = self.shapes(statement)?;
        let mut rows = statement.raw_query();
        let mut first = rows.next()?;
        settle(&mut shapes, first);
        if sink.announces {
            describe(sink.spool.end(), &shapes, self.formats);
        }
        let mut count = 0;
        while let Some(row) = first {
            self.write(row, &shapes, sink.spool.end())?;
            count += 1;
            if sink.spool.in_memory() >= PIECE {
                (sink.relieve)(sink.spool)?;
                sink.spool.settle()?;
            }
            first = rows.next()?;
        }
        drop(rows);
        Ok(Ran {
            rows: count,
            changes: self.link.connection.changes(),
            shapes,
            settings: Vec::new(),
        })
    }

    fn shapes(&self, statement: &Statement<'_>) -> Result<Vec<Shape>, Failure> {
        let Some(described) = self.described else {
            return Ok(shapes(self.link, statement, self.original));
        };
        if described.len() != statement.column_count() {
            return Err(changed());
        }
        Ok(described.to_vec())
    }

    fn write(&self, row: &Row<'_>, shapes: &[Shape], output: &mut Vec<u8>) -> Result<(), Failure> {
        let mut writer = RowWriter::begin(output, shapes.len());
        for (index, shape) in shapes.iter().enumerate() {
            let value = row.get_ref(index)?;
            if value == rusqlite::types::ValueRef::Null {
                writer.null();
                continue;
            }
            let is_binary = is_binary(self.formats, index);
            writer.value(|bytes| encode::encode(value, shape.declared(), is_binary, bytes))?;
        }
        writer.finish();
        Ok(())
    }
}

/// Whether the statement calls `current_setting` or `set_config`.
fn asks_settings(sql: &str) -> bool {
    let has = |word: &str| {
        let mut windows = sql.as_bytes().windows(word.len());
        windows.any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
    };
    has("current_setting") || has("set_config")
}

/// The error for a result that no longer has its described type.
pub(super) fn changed() -> Failure {
    Failure::unsupported("cached plan must not change result type")
}

/// Whether the result at `index` is binary: one format applies to all.
pub(super) fn is_binary(formats: &[bool], index: usize) -> bool {
    match formats {
        [] => false,
        [all] => *all,
        each => each.get(index).copied().unwrap_or(false),
    }
}

/// Replaces SQLite's error with the reason of the stop: a limit, or a cancel.
pub(super) fn explain(link: &Link, failure: Failure) -> Failure {
    if failure.code == "40001" || failure.is_fatal() {
        return failure;
    }
    if link.is_over_limit() {
        return Failure::new("57014", "canceling statement due to statement timeout");
    }
    if link.is_stopped() {
        return Failure::new("57014", "canceling statement due to user request");
    }
    failure
}

/// Takes the types that no declaration and no token has shown from the first row.
fn settle(shapes: &mut [Shape], first: Option<&Row<'_>>) {
    for (index, shape) in shapes.iter_mut().enumerate() {
        let value = first.and_then(|row| row.get_ref(index).ok());
        if let (None, Some(value)) = (shape.declared, value) {
            shape.declared = Some(Declared::plain(encode::type_of(value)));
        }
    }
}

/// Takes the types that are still unknown from the first row of a read without parameters. A row
/// that takes longer shows nothing.
pub(super) fn probe(link: &Link, sql: &str, shapes: &mut [Shape]) {
    const LIMIT: Duration = Duration::from_millis(20);
    if shapes.iter().all(|shape| shape.declared.is_some()) {
        return;
    }
    link.begin(Some(LIMIT));
    if let Ok(mut statement) = link.connection.prepare_cached(sql) {
        let mut rows = statement.raw_query();
        // A failure shows nothing here: the run reports it.
        if let Ok(first) = rows.next() {
            settle(shapes, first);
        }
    }
    link.begin(None);
}

/// The columns of a statement, as far as declarations and tokens show their types.
pub(super) fn shapes(link: &Link, statement: &Statement<'_>, original: &str) -> Vec<Shape> {
    let names = statement.columns().enumerate();
    let mut shapes: Vec<Shape> = names
        .map(|(index, column)| Shape {
            name: column.name().to_owned(),
            declared: columns::of_result(link, statement, index),
        })
        .collect();
    if shapes.iter().all(|shape| shape.declared.is_some()) {
        return shapes;
    }
    let source = Source::split(original)
        .ok()
        .and_then(|all| all.into_iter().next());
    let Some(source) = source else {
        return shapes;
    };
    let items = results::items(&source);
    if items.len() == shapes.len() {
        let tables = infer::tables(&source);
        for (shape, item) in shapes.iter_mut().zip(items) {
            shape.declared = shape
                .declared
                .or_else(|| kinds::of_result(link, &tables, &item.hint));
            if let Some(name) = item.name {
                shape.name = name;
            }
        }
    }
    // Drivers read the types of the catalogue's columns, also out of subqueries.
    if is_catalogue(&infer::tables(&source)) {
        for shape in &mut shapes {
            shape.declared = shape
                .declared
                .or_else(|| catalogue::column_type(&shape.name));
        }
    }
    shapes
}

/// Resolves a guess with the schema; `None` if the schema does not have the column.
pub(super) fn resolve(link: &Link, tables: &[String], guess: &Guess) -> Option<Declared> {
    match guess {
        Guess::Type(kind) => Some(Declared::plain(*kind)),
        Guess::Unknown => None,
        Guess::ArrayOf(name) => {
            let of = resolve(link, tables, &Guess::Column(name.clone()))?;
            of.kind.array().map(Declared::plain)
        }
        Guess::Column(name) if is_catalogue(tables) => catalogue::column_type(name),
        Guess::Column(name) => tables
            .iter()
            .find_map(|table| columns::of_table(link, table, name)),
        Guess::Inserted(place) => columns::at_place(link, tables.first()?, *place),
    }
}

fn is_catalogue(tables: &[String]) -> bool {
    tables.iter().any(|table| table.starts_with("pg_"))
}

/// Appends the description of columns.
pub(super) fn describe(output: &mut Vec<u8>, shapes: &[Shape], formats: &[bool]) {
    let column = |(index, shape): (usize, &'_ Shape)| {
        let declared = shape.declared();
        (declared, is_binary(formats, index))
    };
    let columns: Vec<Column<'_>> = shapes
        .iter()
        .enumerate()
        .map(|(index, shape)| {
            let (declared, is_binary) = column((index, shape));
            Column {
                name: shape.name.as_bytes(),
                table: 0,
                attribute: 0,
                oid: declared.kind.0,
                size: declared.kind.size(),
                modifier: declared.modifier,
                is_binary,
            }
        })
        .collect();
    backend::row_description(output, &columns);
}
