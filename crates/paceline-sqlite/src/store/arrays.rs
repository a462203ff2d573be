//! `array_agg`, and the names of types.

use rusqlite::{
    functions::{Aggregate, Context, FunctionFlags},
    types::ValueRef,
    Connection, Result,
};

use super::functions::{text, PURE};
use crate::types::{array, Type};

/// Registers the functions.
pub(super) fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_aggregate_function("array_agg", 1, flags, Collect)?;
    connection.create_scalar_function("to_regtype", 1, PURE, |cx| {
        Ok(text(cx, 0)?
            .and_then(|name| Type::named(&name))
            .map(|declared| declared.kind.0))
    })?;
    connection.create_scalar_function("pg_regtype", 1, PURE, |cx| {
        let text = text(cx, 0)?;
        Ok(text.and_then(|text| match text.parse::<u32>() {
            Ok(number) => Some(number),
            Err(_) => Type::named(&text).map(|declared| declared.kind.0),
        }))
    })?;
    connection.create_scalar_function("pg_advisory_unlock_all", 0, PURE, |_| Ok(""))
}

/// Collects the values of `array_agg`.
struct Collect;

impl Aggregate<Vec<Option<String>>, Option<String>> for Collect {
    fn init(&self, _: &mut Context<'_>) -> Result<Vec<Option<String>>> {
        Ok(Vec::new())
    }

    fn step(&self, cx: &mut Context<'_>, all: &mut Vec<Option<String>>) -> Result<()> {
        let is_null = cx.get_raw(0) == ValueRef::Null;
        all.push(if is_null { None } else { text(cx, 0)? });
        Ok(())
    }

    /// The array of no rows is NULL.
    fn finalize(
        &self,
        _: &mut Context<'_>,
        all: Option<Vec<Option<String>>>,
    ) -> Result<Option<String>> {
        Ok(all.filter(|all| !all.is_empty()).map(array::of_texts))
    }
}
