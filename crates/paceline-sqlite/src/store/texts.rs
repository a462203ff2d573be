//! Functions of texts and of moments that SQLite does not have.

use rusqlite::{
    functions::Context,
    types::{Value, ValueRef},
    Connection, Result,
};

use super::functions::{text, user, PURE};
use crate::types::moment::{self, Moment};

/// Registers the functions.
pub(super) fn register(connection: &Connection) -> Result<()> {
    connection.create_scalar_function("chr", 1, PURE, |cx| {
        let code = cx.get::<Option<u32>>(0)?;
        let char = |code: u32| {
            let char = char::from_u32(code).filter(|char| *char != '\0');
            char.map(String::from)
                .ok_or_else(|| user("requested character is out of range"))
        };
        code.map(char).transpose()
    })?;
    connection.create_scalar_function("ascii", 1, PURE, |cx| {
        let first = text(cx, 0)?.map(|text| text.chars().next());
        Ok(first.map(|char| char.map_or(0, u32::from)))
    })?;
    connection.create_scalar_function("initcap", 1, PURE, |cx| {
        Ok(text(cx, 0)?.map(|text| initcap(&text)))
    })?;
    for (name, side) in [("lpad", Side::Left), ("rpad", Side::Right)] {
        connection.create_scalar_function(name, -1, PURE, move |cx| pad(cx, side))?;
    }
    connection.create_scalar_function("starts_with", 2, PURE, |cx| {
        let (text, prefix) = (text(cx, 0)?, text(cx, 1)?);
        Ok(text
            .zip(prefix)
            .map(|(text, prefix)| text.starts_with(&prefix)))
    })?;
    connection.create_scalar_function("pg_position", 2, PURE, |cx| {
        let (part, text) = (text(cx, 0)?, text(cx, 1)?);
        Ok(part.zip(text).map(|(part, text)| {
            let before = text.find(&part).map(|at| text[..at].chars().count());
            before.map_or(0, |before| before as i64 + 1)
        }))
    })?;
    connection.create_scalar_function("pg_extract", 2, PURE, extract)?;
    connection.create_scalar_function("date_part", 2, PURE, extract)?;
    connection.create_scalar_function("date_trunc", 2, PURE, truncate)
}

#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

fn pad(cx: &Context<'_>, side: Side) -> Result<Option<String>> {
    let (Some(value), Some(length)) = (text(cx, 0)?, cx.get::<Option<i64>>(1)?) else {
        return Ok(None);
    };
    let fill = match cx.len() {
        2 => Some(" ".to_owned()),
        _ => text(cx, 2)?,
    };
    let Some(fill) = fill else {
        return Ok(None);
    };
    let length = usize::try_from(length).unwrap_or(0);
    if length > 64 << 20 {
        return Err(user("the text is too large"));
    }
    let own = value.chars().count();
    let missing = length.saturating_sub(own);
    let fill: String = fill.chars().cycle().take(missing).collect();
    Ok(Some(match side {
        _ if missing == 0 => value.chars().take(length).collect(),
        Side::Left => fill + &value,
        Side::Right => value + &fill,
    }))
}

fn initcap(text: &str) -> String {
    let mut is_inside = false;
    let mut result = String::with_capacity(text.len());
    for char in text.chars() {
        if is_inside {
            result.extend(char.to_lowercase());
        } else {
            result.extend(char.to_uppercase());
        }
        is_inside = char.is_alphanumeric();
    }
    result
}

/// The moment in an argument; `None` is NULL.
fn moment_of(cx: &Context<'_>, index: usize) -> Result<Option<(String, Moment)>> {
    let Some(text) = text(cx, index)? else {
        return Ok(None);
    };
    match Moment::read(&text) {
        Some(moment) => Ok(Some((text, moment))),
        None => Err(user(format!(
            "invalid input syntax for type timestamp: \"{text}\""
        ))),
    }
}

fn extract(cx: &Context<'_>) -> Result<Value> {
    let (Some(field), Some((_, moment))) = (text(cx, 0)?, moment_of(cx, 1)?) else {
        return Ok(Value::Null);
    };
    match moment.field(&field) {
        Some(moment::Field::Whole(number)) => Ok(Value::Integer(number)),
        Some(moment::Field::Seconds(number)) => Ok(Value::Real(number)),
        None => Err(user(format!(
            "unit \"{field}\" not recognized for type timestamp"
        ))),
    }
}

fn truncate(cx: &Context<'_>) -> Result<Value> {
    let (Some(unit), Some((_, moment))) = (text(cx, 0)?, moment_of(cx, 1)?) else {
        return Ok(Value::Null);
    };
    if cx.get_raw(1) == ValueRef::Null {
        return Ok(Value::Null);
    }
    let truncated = moment.truncated(&unit);
    truncated
        .map(Value::Text)
        .ok_or_else(|| user(format!("unit \"{unit}\" not recognized for type timestamp")))
}
