//! Functions of PostgreSQL that SQLite does not have.

use std::{
    fs::File,
    io::Read,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use paceline_pg_wire::auth::md5;
use regex_lite::Regex;
use rusqlite::{
    functions::{Context, FunctionFlags},
    types::{Value, ValueRef},
    Connection, Error, Result,
};

use super::casts;
use crate::types::parameter;

pub(super) const PURE: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_DETERMINISTIC)
    .union(FunctionFlags::SQLITE_INNOCUOUS);
const CHANGING: FunctionFlags = FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_INNOCUOUS);

/// Registers the functions on a connection. `is_stopped` ends a `pg_sleep`.
pub(super) fn register(connection: &Connection, is_stopped: Arc<AtomicBool>) -> Result<()> {
    operators(connection)?;
    casts::register(connection)?;
    texts(connection)?;
    super::texts::register(connection)?;
    super::numbers::register(connection)?;
    super::arrays::register(connection)?;
    lengths(connection)?;
    connection.create_scalar_function("gen_random_uuid", 0, CHANGING, |_| random_uuid())?;
    connection.create_scalar_function("pg_sleep", 1, CHANGING, move |cx| {
        sleep(cx.get(0)?, &is_stopped)
    })?;
    connection.create_scalar_function("greatest", -1, PURE, |cx| extreme(cx, 1))?;
    connection.create_scalar_function("least", -1, PURE, |cx| extreme(cx, -1))?;
    Ok(())
}

fn operators(connection: &Connection) -> Result<()> {
    // `value REGEXP pattern` calls `regexp(pattern, value)`.
    connection.create_scalar_function("regexp", 2, PURE, |cx| {
        let Some(value) = text(cx, 1)? else {
            return Ok(None);
        };
        let compile = |pattern: ValueRef<'_>| {
            let pattern = pattern.as_str().map_err(|error| user(error.to_string()))?;
            Regex::new(pattern)
                .map_err(|error| user(format!("invalid regular expression: {error}")))
        };
        if cx.get_raw(0) == ValueRef::Null {
            return Ok(None);
        }
        let regex = cx.get_or_create_aux(0, compile)?;
        Ok(Some(regex.is_match(&value)))
    })?;
    // `value MATCH pattern`: what ILIKE becomes.
    connection.create_scalar_function("match", 2, PURE, |cx| match (text(cx, 0)?, text(cx, 1)?) {
        (Some(pattern), Some(value)) => Ok(Some(is_like(
            &pattern.to_lowercase(),
            &value.to_lowercase(),
        ))),
        _ => Ok(None),
    })
}

fn texts(connection: &Connection) -> Result<()> {
    let pure = |name: &str, count: i32, apply: fn(&Context<'_>) -> Result<Option<String>>| {
        connection.create_scalar_function(name, count, PURE, apply)
    };
    pure("md5", 1, |cx| {
        Ok(text(cx, 0)?.map(|value| md5::stored(b"", value.as_bytes())[3..].to_owned()))
    })?;
    pure("repeat", 2, |cx| {
        let (value, count) = (text(cx, 0)?, cx.get::<Option<i64>>(1)?);
        let (Some(value), Some(count)) = (value, count) else {
            return Ok(None);
        };
        let count = usize::try_from(count).unwrap_or(0);
        if value.len().saturating_mul(count) > 64 << 20 {
            return Err(user("the text is too large"));
        }
        Ok(Some(value.repeat(count)))
    })?;
    pure("left", 2, |cx| {
        part(cx, |length, count| 0..from_end(length, count))
    })?;
    pure("right", 2, |cx| {
        part(cx, |length, count| length - from_end(length, count)..length)
    })?;
    pure("reverse", 1, |cx| {
        Ok(text(cx, 0)?.map(|value| value.chars().rev().collect()))
    })?;
    pure("btrim", 1, |cx| {
        Ok(text(cx, 0)?.map(|value| value.trim_matches(' ').to_owned()))
    })?;
    pure("quote_literal", 1, |cx| {
        Ok(text(cx, 0)?.map(|value| crate::dialect::source::quote_text(&value)))
    })?;
    pure("quote_ident", 1, |cx| {
        Ok(text(cx, 0)?.map(|value| crate::dialect::source::quote_name(&value)))
    })?;
    pure("split_part", 3, |cx| match (text(cx, 0)?, text(cx, 1)?) {
        (Some(value), Some(by)) if !by.is_empty() => {
            let place = usize::try_from(cx.get::<i64>(2)? - 1).unwrap_or(usize::MAX);
            Ok(Some(
                value
                    .split(by.as_str())
                    .nth(place)
                    .unwrap_or_default()
                    .to_owned(),
            ))
        }
        _ => Ok(None),
    })
}

fn lengths(connection: &Connection) -> Result<()> {
    for name in ["char_length", "character_length"] {
        connection.create_scalar_function(name, 1, PURE, |cx| {
            Ok(text(cx, 0)?.map(|value| value.chars().count() as i64))
        })?;
    }
    connection.create_scalar_function("strpos", 2, PURE, |cx| match (text(cx, 0)?, text(cx, 1)?) {
        (Some(value), Some(part)) => {
            let before = value
                .find(&part)
                .map(|at| value[..at].chars().count() as i64 + 1);
            Ok(Some(before.unwrap_or(0)))
        }
        _ => Ok(None),
    })
}

/// The part of the first argument that `range` selects, from the number of characters and the
/// second argument.
fn part(
    cx: &Context<'_>,
    range: fn(usize, i64) -> std::ops::Range<usize>,
) -> Result<Option<String>> {
    let (Some(value), Some(count)) = (text(cx, 0)?, cx.get::<Option<i64>>(1)?) else {
        return Ok(None);
    };
    let chars: Vec<char> = value.chars().collect();
    Ok(Some(chars[range(chars.len(), count)].iter().collect()))
}

/// The length of the part: a negative `count` leaves out that many characters.
fn from_end(length: usize, count: i64) -> usize {
    let asked = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        length.saturating_sub(asked)
    } else {
        asked.min(length)
    }
}

fn extreme(cx: &Context<'_>, sign: i32) -> Result<Value> {
    let mut best: Option<Value> = None;
    for index in 0..cx.len() {
        let value: Value = cx.get(index)?;
        let is_better = match (&best, &value) {
            (_, Value::Null) => false,
            (None, _) => true,
            (Some(best), value) => compare(value, best) == sign,
        };
        if is_better {
            best = Some(value);
        }
    }
    Ok(best.unwrap_or(Value::Null))
}

fn compare(left: &Value, right: &Value) -> i32 {
    let number = |value: &Value| match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Real(number) => Some(*number),
        _ => None,
    };
    let ordering = match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => left.cmp(right),
        (Value::Text(left), Value::Text(right)) => left.cmp(right),
        (Value::Blob(left), Value::Blob(right)) => left.cmp(right),
        _ => match (number(left), number(right)) {
            (Some(left), Some(right)) => left.total_cmp(&right),
            (left, right) => right.is_some().cmp(&left.is_some()),
        },
    };
    ordering as i32
}

/// An argument as a text.
pub(super) fn text(cx: &Context<'_>, index: usize) -> Result<Option<String>> {
    Ok(match cx.get_raw(index) {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    })
}

pub(super) fn user(text: impl Into<String>) -> Error {
    Error::UserFunctionError(text.into().into())
}

/// Sixteen bytes of the system's randomness.
pub(crate) fn random() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn random_uuid() -> Result<String> {
    let bytes = random().map_err(|error| user(format!("no random numbers: {error}")))?;
    let number = u128::from_be_bytes(bytes);
    // Version 4, variant 1.
    let number = number & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
    Ok(parameter::uuid_text(number))
}

/// Waits in short pieces, so that it can be stopped.
fn sleep(seconds: f64, is_stopped: &AtomicBool) -> Result<Option<String>> {
    let length = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    let start = Instant::now();
    while let Some(rest) = length
        .checked_sub(start.elapsed())
        .filter(|rest| !rest.is_zero())
    {
        if is_stopped.load(Ordering::SeqCst) {
            return Err(user("the sleep was stopped"));
        }
        thread::sleep(rest.min(Duration::from_millis(5)));
    }
    Ok(Some(String::new()))
}

/// `LIKE` with `%`, `_` and backslashes, over characters.
fn is_like(pattern: &str, value: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let value: Vec<char> = value.chars().collect();
    let (mut at, mut of, mut star) = (0, 0, None);
    while of < value.len() {
        let (char, width) = match pattern.get(at) {
            Some('\\') if at + 1 < pattern.len() => (Some(pattern[at + 1]), 2),
            char => (char.copied(), 1),
        };
        let is_plain = width == 2;
        if char == Some('%') && !is_plain {
            star = Some((at + 1, of));
            at += 1;
        } else if char == Some(value[of]) || char == Some('_') && !is_plain {
            at += width;
            of += 1;
        } else if let Some((behind, from)) = star {
            at = behind;
            of = from + 1;
            star = Some((behind, from + 1));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|char| *char == '%')
}

/// PostgreSQL's `{a,"b c",NULL}` as a JSON array. Any other text is returned unchanged.
pub(super) fn json_array(text: &str) -> String {
    let text = text.trim();
    let Some(inner) = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    else {
        return text.to_owned();
    };
    let mut items = Vec::new();
    let (mut item, mut is_quoted, mut was_quoted) = (String::new(), false, false);
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => item.extend(chars.next()),
            '"' => {
                is_quoted = !is_quoted;
                was_quoted = true;
            }
            ',' if !is_quoted => {
                items.push(json_item(&std::mem::take(&mut item), was_quoted));
                was_quoted = false;
            }
            other => item.push(other),
        }
    }
    if !item.is_empty() || was_quoted {
        items.push(json_item(&item, was_quoted));
    }
    format!("[{}]", items.join(","))
}

fn json_item(item: &str, was_quoted: bool) -> String {
    if !was_quoted && item.eq_ignore_ascii_case("null") {
        return "null".to_owned();
    }
    let is_number = item
        .parse::<i64>()
        .is_ok_and(|number| number.to_string() == item);
    if !was_quoted && is_number {
        return item.to_owned();
    }
    json_text(item)
}

/// A text as JSON.
pub(super) fn json_text(text: &str) -> String {
    let escape = |char: char| match char {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        char if (char as u32) < 0x20 => format!("\\u{:04x}", char as u32),
        char => char.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_has_two_wildcards() {
        for (pattern, value, is) in [
            ("a%c", "abbc", true),
            ("a%c", "abbd", false),
            ("a_c", "abc", true),
            ("a\\%", "a%", true),
            ("a\\%", "ab", false),
            ("%", "", true),
            ("%b%", "abc", true),
        ] {
            assert_eq!(is_like(pattern, value), is, "{pattern} {value}");
        }
    }

    #[test]
    fn arrays_become_json() {
        assert_eq!(
            json_array("{1,a,NULL,\"NULL\",\"x \\\"y\"}"),
            r#"[1,"a",null,"NULL","x \"y"]"#
        );
        assert_eq!(json_array("{}"), "[]");
    }
}
