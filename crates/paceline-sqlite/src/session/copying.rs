//! `COPY`: rows in and out of a table, as lines of text or CSV.

use paceline_pg_wire::backend::{self, CopyDirection};
use rusqlite::types::Value;

use super::{
    block::Need,
    lines::{self, Reader},
    run, Cx, Open, Output, Progress,
};
use crate::{
    dialect::{
        copy::{Copy, Direction, Format},
        source::quote_name,
    },
    failure::Failure,
    store::{columns, link::Link, violation},
    types::{encode, parameter::Parameter, Declared},
};

/// A copy into a table that is in progress.
#[derive(Debug)]
pub(super) struct CopyIn {
    sql: String,
    parameters: Vec<Parameter>,
    reader: Reader,
    rows: u64,
    /// Whether it was begun by Execute: then Sync ends it, not `ReadyForQuery`.
    pub(super) is_extended: bool,
}

/// The least bytes of data that are inserted at once.
const PIECE: usize = 32 << 10;

impl Open {
    pub(super) fn begin_copy(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        copy: &Copy,
        is_extended: bool,
    ) -> Result<Progress, Failure> {
        match &copy.direction {
            Direction::In { table, columns } => {
                self.copy_in(cx, output, table, columns, &copy.format, is_extended)
            }
            Direction::Out { query } => self.copy_out(cx, output, query, &copy.format),
        }
    }

    fn copy_in(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        table: &str,
        columns: &[String],
        format: &Format,
        is_extended: bool,
    ) -> Result<Progress, Failure> {
        let Some(held) = self.acquire(cx, Need::Write)? else {
            return Ok(Progress::Parked);
        };
        let found = columns_of(held.link(), table, columns);
        self.put_back(held);
        let found = found?;
        let names: Vec<_> = found.iter().map(|(name, _)| quote_name(name)).collect();
        let marks: Vec<_> = (1..=found.len())
            .map(|number| format!("?{number}"))
            .collect();
        self.copy = Some(CopyIn {
            sql: format!(
                "INSERT INTO {} ({}) VALUES ({})",
                quote_name(table),
                names.join(", "),
                marks.join(", ")
            ),
            parameters: found
                .iter()
                .map(|(_, declared)| Parameter::Typed(declared.kind))
                .collect(),
            reader: Reader::new(format.clone()),
            rows: 0,
            is_extended,
        });
        backend::copy(output.spool.end(), CopyDirection::In, false, found.len());
        Ok(Progress::Copies)
    }

    /// Takes a piece of data.
    pub(super) fn copy_data(&mut self, data: &[u8]) -> Result<(), Failure> {
        let Some(copy) = &mut self.copy else {
            return Ok(()); // The copy has failed: what is still on its way is dropped.
        };
        copy.reader.push(data);
        if copy.reader.pending() >= PIECE {
            self.apply(false)?;
        }
        Ok(())
    }

    /// Takes the end of the data.
    pub(super) fn copy_done(&mut self, output: &mut Output) -> Result<(), Failure> {
        self.apply(true)?;
        if let Some(copy) = self.copy.take() {
            backend::command_complete(output.spool.end(), format!("COPY {}", copy.rows).as_bytes());
        }
        Ok(())
    }

    /// Inserts the complete rows so far.
    fn apply(&mut self, is_end: bool) -> Result<(), Failure> {
        let Some(mut copy) = self.copy.take() else {
            return Ok(());
        };
        let held = self
            .block
            .held
            .take()
            .ok_or_else(|| Failure::new("XX000", "the copy has no transaction"))?;
        let link = held.link();
        link.begin(self.settings.time("statement_timeout"));
        self.running.start(link.stopper());
        let result = copy.insert(link, is_end);
        self.running.end();
        let result = result.map_err(|failure| {
            let failure = run::explain(link, failure);
            violation::describe(link, &copy.sql, &[], failure)
        });
        self.block.held = Some(held);
        self.block.has_written = true;
        self.copy = Some(copy);
        result
    }

    fn copy_out(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        query: &str,
        format: &Format,
    ) -> Result<Progress, Failure> {
        let Some(held) = self.acquire(cx, Need::Read)? else {
            return Ok(Progress::Parked);
        };
        let link = held.link();
        let result = self.run_on(link, cx, output, |sink| {
            copy_rows(link, query, format, sink)
        });
        self.put_back(held);
        let rows = result?;
        self.has_seen();
        backend::copy_done(output.spool.end());
        backend::command_complete(output.spool.end(), format!("COPY {rows}").as_bytes());
        Ok(Progress::Done)
    }
}

impl CopyIn {
    fn insert(&mut self, link: &Link, is_end: bool) -> Result<(), Failure> {
        let mut statement = link.connection.prepare_cached(&self.sql)?;
        while let Some(fields) = self.reader.next(is_end)? {
            let line = self.rows + 1;
            if fields.len() != self.parameters.len() {
                let what = if fields.len() < self.parameters.len() {
                    "missing data for a column"
                } else {
                    "extra data after last expected column"
                };
                return Err(Failure::new("22P04", what).detail(format!("COPY, line {line}")));
            }
            for (index, (field, parameter)) in fields.iter().zip(&self.parameters).enumerate() {
                let value: Value = parameter
                    .decode(field.as_deref(), false)
                    .map_err(|failure| failure.detail(format!("COPY, line {line}")))?;
                statement.raw_bind_parameter(index + 1, value)?;
            }
            statement.raw_execute()?;
            self.rows += 1;
        }
        Ok(())
    }
}

/// The columns that are copied, with their types.
fn columns_of(
    link: &Link,
    table: &str,
    columns: &[String],
) -> Result<Vec<(String, Declared)>, Failure> {
    let sql = "SELECT name FROM pragma_table_info(?1)";
    let mut statement = link.connection.prepare_cached(sql)?;
    let rows = statement.query_map([table], |row| {
        let name: String = row.get(0)?;
        let declared = columns::of_table(link, table, &name);
        Ok((name, declared.unwrap_or(Declared::TEXT)))
    })?;
    let all: Vec<(String, Declared)> = rows.collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Err(Failure::new(
            "42P01",
            format!("relation \"{table}\" does not exist"),
        ));
    }
    if columns.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.cloned().ok_or_else(|| {
            let text = format!("column \"{name}\" of relation \"{table}\" does not exist");
            Failure::new("42703", text)
        })
    };
    columns.iter().map(find).collect()
}

/// Writes the rows of a query as lines.
fn copy_rows(
    link: &Link,
    query: &str,
    format: &Format,
    sink: &mut run::Sink<'_>,
) -> Result<u64, Failure> {
    let mut statement = link.connection.prepare(query)?;
    let shapes = run::shapes(link, &statement, query);
    backend::copy(sink.spool.end(), CopyDirection::Out, false, shapes.len());
    if format.header {
        let names: Vec<_> = shapes
            .iter()
            .map(|shape| Some(shape.name.as_bytes()))
            .collect();
        let mut line = Vec::new();
        lines::write(&names, format, &mut line);
        backend::copy_data(sink.spool.end(), &line);
    }
    let mut rows = statement.raw_query();
    let mut count = 0;
    let (mut line, mut values) = (Vec::new(), vec![Vec::new(); shapes.len()]);
    while let Some(row) = rows
        .next()
        .map_err(|error| run::explain(link, error.into()))?
    {
        let mut fields = Vec::with_capacity(shapes.len());
        for (index, value) in values.iter_mut().enumerate() {
            value.clear();
            let found = row.get_ref(index)?;
            let is_null = found == rusqlite::types::ValueRef::Null;
            let kind = shapes[index].declared;
            let kind = kind.unwrap_or_else(|| Declared::plain(encode::type_of(found)));
            if !is_null {
                encode::encode(found, kind, false, value)?;
            }
            fields.push((!is_null).then_some(&**value));
        }
        line.clear();
        lines::write(&fields, format, &mut line);
        backend::copy_data(sink.spool.end(), &line);
        count += 1;
        if sink.spool.in_memory() >= PIECE {
            (sink.relieve)(sink.spool)?;
            sink.spool.settle()?;
        }
    }
    Ok(count)
}
