//! SQL's `PREPARE` and `EXECUTE`. Their statements are those of the protocol's Parse: both kinds
//! share their names, as in PostgreSQL.

use std::sync::Arc;

use paceline_pg_wire::{
    backend::{self, Reply, RowWriter},
    Message,
};
use rusqlite::types::{Value, ValueRef};

use super::{
    prepared::{one_statement, Portal, Prepared},
    run::{self, Shape},
    Cx, Open, Output, Progress,
};
use crate::{
    dialect::Kind,
    failure::Failure,
    store::link::Link,
    types::{encode, parameter::Parameter, Declared, Type},
};

impl Open {
    pub(super) fn prepare_by_name(
        &mut self,
        name: &str,
        types: &[Type],
        query: &str,
    ) -> Result<(), Failure> {
        self.check_name(name.as_bytes())?;
        let types: Vec<u32> = types.iter().map(|kind| kind.0).collect();
        let prepared = self.prepare(query, &types)?;
        self.statements
            .insert(name.as_bytes().to_vec(), Arc::new(prepared));
        Ok(())
    }

    /// Runs a prepared statement. Without formats the client has no description of the results, and
    /// gets one here.
    pub(super) fn execute_by_name(
        &mut self,
        cx: &mut Cx<'_>,
        output: &mut Output,
        name: &str,
        values: &[String],
        formats: Option<&[bool]>,
    ) -> Result<Progress, Failure> {
        let prepared = self.statement(name.as_bytes())?;
        let Some(statement) = prepared.statement.clone() else {
            backend::empty_query(output.spool.end());
            return Ok(Progress::Done);
        };
        let portal = Portal {
            values: self.evaluate(name, values, &prepared)?,
            formats: formats.unwrap_or_default().to_vec(),
            ..Portal::new(Arc::clone(&prepared))
        };
        let described = formats.map(|_| &*prepared.shapes);
        let Some(ran) = self.run_prepared(cx, &prepared, &portal, described, output)? else {
            return Ok(Progress::Parked);
        };
        self.note(&statement, prepared.need);
        let tag = statement.tag.text(ran.rows, ran.changes);
        backend::command_complete(output.spool.end(), tag.as_bytes());
        Ok(Progress::Done)
    }

    /// The values of the expressions, as values of the statement's parameters.
    fn evaluate(
        &mut self,
        name: &str,
        values: &[String],
        prepared: &Prepared,
    ) -> Result<Vec<Value>, Failure> {
        let (given, wanted) = (values.len(), prepared.parameters.len());
        if given != wanted {
            let text = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {wanted} parameters but got {given}.");
            return Err(Failure::new("42601", text).detail(detail));
        }
        if given == 0 {
            return Ok(Vec::new());
        }
        let list = format!("SELECT {}", values.join(", "));
        let statement = one_statement(&list, &self.facts())?;
        let Some(Kind::Rows(sql)) = statement.map(|statement| statement.kind) else {
            return Err(Failure::unsupported(
                "EXECUTE with values from the catalogue is not supported",
            ));
        };
        let reader = self.database.reader()?;
        let result = one_row(&reader, &list, &sql, &prepared.parameters);
        self.database.give_back(reader);
        result
    }
}

fn one_row(
    link: &Link,
    original: &str,
    sql: &str,
    parameters: &[Parameter],
) -> Result<Vec<Value>, Failure> {
    let mut statement = link.connection.prepare(sql)?;
    if statement.column_count() != parameters.len() {
        return Err(Failure::new(
            "42601",
            "EXECUTE needs one value per parameter",
        ));
    }
    let shapes = run::shapes(link, &statement, original);
    let mut rows = statement.query([])?;
    let row = rows.next()?;
    let row = row.ok_or_else(|| Failure::new("42601", "EXECUTE needs one value per parameter"))?;
    let value = |(index, parameter): (usize, &Parameter)| {
        convert(row.get_ref(index)?, shapes[index].declared, *parameter)
    };
    parameters.iter().enumerate().map(value).collect()
}

/// A value as one of the parameter's type, by way of its text.
fn convert(
    value: ValueRef<'_>,
    declared: Option<Declared>,
    parameter: Parameter,
) -> Result<Value, Failure> {
    if value == ValueRef::Null || parameter == Parameter::Untyped {
        return Ok(value.try_into().unwrap_or(Value::Null));
    }
    let declared = declared.unwrap_or_else(|| Declared::plain(encode::type_of(value)));
    let mut text = Vec::new();
    encode::encode(value, declared, false, &mut text)?;
    parameter.decode(Some(&text), false)
}

/// Appends a row whose values are texts, with its values in these formats.
pub(super) fn reformat(
    message: &[u8],
    shapes: &[Shape],
    formats: &[bool],
    output: &mut Vec<u8>,
) -> Result<(), Failure> {
    let body = &message[paceline_pg_wire::Header::LENGTH..];
    let reply = Reply::read(Message { tag: b'D', body });
    let Ok(Reply::Row(values)) = reply else {
        return Err(Failure::new("XX000", "a row of a cursor can't be read"));
    };
    let mut writer = RowWriter::begin(output, shapes.len());
    for (index, (value, shape)) in values.iter().zip(shapes).enumerate() {
        let Some(text) = value else {
            writer.null();
            continue;
        };
        if !run::is_binary(formats, index) {
            writer.value(|bytes| bytes.extend_from_slice(text));
            continue;
        }
        let declared = shape.declared.unwrap_or(Declared::TEXT);
        let value = Parameter::Typed(declared.kind).decode(Some(text), false)?;
        writer.value(|bytes| encode::encode(ValueRef::from(&value), declared, true, bytes))?;
    }
    writer.finish();
    Ok(())
}
