//! Casts, as strict as PostgreSQL's: SQLite makes a zero of a text that is no number.

use rusqlite::{
    functions::Context,
    types::{Value, ValueRef},
    Connection, Result,
};

use super::functions::{json_array, text, user, PURE};
use crate::{
    failure::Failure,
    types::{encode, parameter, Type},
};

/// Registers the functions that casts become.
pub(super) fn register(connection: &Connection) -> Result<()> {
    for (name, kind) in [
        ("pg_int2", Type::INT2),
        ("pg_int4", Type::INT4),
        ("pg_int8", Type::INT8),
    ] {
        connection.create_scalar_function(name, 1, PURE, move |cx| integer(cx, kind))?;
    }
    for (name, kind) in [
        ("pg_date", Type::DATE),
        ("pg_time", Type::TIME),
        ("pg_timestamp", Type::TIMESTAMP),
        ("pg_timestamptz", Type::TIMESTAMPTZ),
        ("pg_uuid", Type::UUID),
    ] {
        connection.create_scalar_function(name, 1, PURE, move |cx| {
            let text = text(cx, 0)?;
            text.map(|text| parameter::normal(kind, &text).map_err(failed))
                .transpose()
        })?;
    }
    connection.create_scalar_function("pg_float8", 1, PURE, float)?;
    connection.create_scalar_function("pg_numeric", 1, PURE, numeric)?;
    connection.create_scalar_function("pg_divisor", 1, PURE, divisor)?;
    others(connection)
}

/// The failure as the error of a function. [`Failure`] reads the SQLSTATE from its text.
fn failed(failure: Failure) -> rusqlite::Error {
    user(failure.message)
}

fn integer(cx: &Context<'_>, kind: Type) -> Result<Option<i64>> {
    let rounded = |number: f64| {
        let number = number.round();
        let fits = (-9.3e18..9.2e18).contains(&number);
        fits.then_some(number as i64)
    };
    let number = match cx.get_raw(0) {
        ValueRef::Null => return Ok(None),
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => rounded(number),
        ValueRef::Text(_) | ValueRef::Blob(_) => {
            let text = text(cx, 0)?.unwrap_or_default();
            return match parameter::integer(kind, text.trim()) {
                Ok(number) => Ok(Some(number)),
                Err(failure) => Err(failed(failure)),
            };
        }
    };
    let fits = |number: &i64| encode::fits(*number, kind);
    let number = number.filter(fits);
    number
        .map(Some)
        .ok_or_else(|| user(format!("{} out of range", encode::name(kind))))
}

fn float(cx: &Context<'_>) -> Result<Option<f64>> {
    match cx.get_raw(0) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number as f64)),
        ValueRef::Real(number) => Ok(Some(number)),
        _ => {
            let text = text(cx, 0)?.unwrap_or_default();
            let number = text.trim().parse().map(Some);
            number.map_err(|_| failed(encode::invalid("double precision", &text)))
        }
    }
}

fn numeric(cx: &Context<'_>) -> Result<Value> {
    match cx.get_raw(0) {
        ValueRef::Text(_) | ValueRef::Blob(_) => {
            let text = text(cx, 0)?.unwrap_or_default();
            let number = parameter::decimal(text.trim());
            number.ok_or_else(|| failed(encode::invalid("numeric", &text)))
        }
        _ => cx.get(0),
    }
}

/// What a number is divided by.
fn divisor(cx: &Context<'_>) -> Result<Value> {
    match cx.get_raw(0) {
        ValueRef::Integer(0) => Err(user("division by zero")),
        ValueRef::Real(number) if number == 0.0 => Err(user("division by zero")),
        _ => cx.get(0),
    }
}

fn others(connection: &Connection) -> Result<()> {
    connection.create_scalar_function("pg_bool", 1, PURE, |cx| match cx.get_raw(0) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number != 0)),
        _ => {
            let value = text(cx, 0)?.unwrap_or_default();
            let value = parameter::boolean(value.trim());
            value
                .map(Some)
                .ok_or_else(|| user("invalid input syntax for type boolean"))
        }
    })?;
    connection.create_scalar_function("pg_bool_text", 1, PURE, |cx| match cx.get_raw(0) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some((number != 0).to_string())),
        _ => {
            let value = text(cx, 0)?.unwrap_or_default();
            let known = parameter::boolean(value.trim());
            Ok(Some(known.map_or(value, |known| known.to_string())))
        }
    })?;
    connection.create_scalar_function("pg_bytea", 1, PURE, |cx| match cx.get_raw(0) {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Blob(bytes) => Ok(Value::Blob(bytes.to_vec())),
        _ => {
            let value = text(cx, 0)?.unwrap_or_default();
            let bytes = parameter::bytea(&value).map_err(|failure| user(failure.message))?;
            Ok(Value::Blob(bytes))
        }
    })?;
    connection.create_scalar_function("pg_array", 1, PURE, |cx| {
        Ok(text(cx, 0)?.map(|value| json_array(&value)))
    })
}
