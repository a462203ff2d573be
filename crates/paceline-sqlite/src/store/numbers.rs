//! Functions of numbers that this build of SQLite does not have.

use rusqlite::{
    functions::Context,
    types::{Value, ValueRef},
    Connection, Result,
};

use super::functions::{user, PURE};

/// Registers the functions.
pub(super) fn register(connection: &Connection) -> Result<()> {
    let rounding: [(&str, fn(f64) -> f64); 4] = [
        ("floor", f64::floor),
        ("ceil", f64::ceil),
        ("ceiling", f64::ceil),
        ("trunc", f64::trunc),
    ];
    for (name, round) in rounding {
        connection.create_scalar_function(name, 1, PURE, move |cx| {
            Ok(match cx.get_raw(0) {
                ValueRef::Real(number) => Value::Real(round(number)),
                _ => cx.get(0)?,
            })
        })?;
    }
    let real: [(&str, fn(f64) -> f64); 4] = [
        ("exp", f64::exp),
        ("ln", f64::ln),
        ("cbrt", f64::cbrt),
        ("degrees", f64::to_degrees),
    ];
    for (name, apply) in real {
        connection.create_scalar_function(name, 1, PURE, move |cx| {
            Ok(cx.get::<Option<f64>>(0)?.map(apply))
        })?;
    }
    connection.create_scalar_function("sqrt", 1, PURE, |cx| match cx.get::<Option<f64>>(0)? {
        Some(number) if number < 0.0 => Err(user("cannot take square root of a negative number")),
        number => Ok(number.map(f64::sqrt)),
    })?;
    for name in ["power", "pow"] {
        connection.create_scalar_function(name, 2, PURE, |cx| {
            let (base, exponent) = (cx.get::<Option<f64>>(0)?, cx.get::<Option<f64>>(1)?);
            Ok(base
                .zip(exponent)
                .map(|(base, exponent)| base.powf(exponent)))
        })?;
    }
    connection.create_scalar_function("mod", 2, PURE, remainder)
}

/// The remainder has the sign of the first number.
fn remainder(cx: &Context<'_>) -> Result<Value> {
    Ok(match (cx.get_raw(0), cx.get_raw(1)) {
        (ValueRef::Null, _) | (_, ValueRef::Null) => Value::Null,
        (ValueRef::Integer(_), ValueRef::Integer(0)) => return Err(user("division by zero")),
        (ValueRef::Integer(left), ValueRef::Integer(right)) => {
            Value::Integer(left.wrapping_rem(right))
        }
        _ => {
            let (left, right) = (cx.get::<f64>(0)?, cx.get::<f64>(1)?);
            if right == 0.0 {
                return Err(user("division by zero"));
            }
            Value::Real(left % right)
        }
    })
}
