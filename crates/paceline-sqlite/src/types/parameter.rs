//! Values that a client sends, as values of SQLite.

use rusqlite::types::Value;

use super::{array, encode, numeric, time, Type};
use crate::failure::Failure;

/// The type of a parameter, and where it is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// The client has declared it, or the statement shows it.
    Typed(Type),
    /// Neither. It is described as text, and a text that is a number is bound as one: SQLite would
    /// otherwise compare a number with a text.
    Untyped,
}

impl Parameter {
    /// As it is described to the client.
    pub(crate) fn described(self) -> Type {
        match self {
            Self::Typed(kind) => kind,
            Self::Untyped => Type::TEXT,
        }
    }

    /// The value in these bytes.
    pub(crate) fn decode(self, bytes: Option<&[u8]>, is_binary: bool) -> Result<Value, Failure> {
        let Some(bytes) = bytes else {
            return Ok(Value::Null);
        };
        match self {
            Self::Typed(kind) if is_binary => of_binary(kind, bytes),
            Self::Typed(kind) => of_text(kind, utf8(bytes)?),
            Self::Untyped => Ok(untyped(utf8(bytes)?)),
        }
    }
}

pub(super) fn of_text(kind: Type, text: &str) -> Result<Value, Failure> {
    let trimmed = text.trim();
    Ok(match kind {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => Value::Integer(integer(kind, trimmed)?),
        Type::BOOL => {
            let value = boolean(trimmed).ok_or_else(|| encode::invalid("boolean", text))?;
            Value::Integer(i64::from(value))
        }
        Type::FLOAT4 | Type::FLOAT8 => {
            let number = trimmed.parse();
            Value::Real(number.map_err(|_| encode::invalid("double precision", text))?)
        }
        Type::NUMERIC => decimal(trimmed).ok_or_else(|| encode::invalid("numeric", text))?,
        Type::BYTEA => Value::Blob(bytea(text)?),
        Type::UNKNOWN => untyped(text),
        kind => Value::Text(normal(kind, text)?),
    })
}

/// The text of a value in the one form that compares and sorts as the value does.
pub(crate) fn normal(kind: Type, text: &str) -> Result<String, Failure> {
    let trimmed = text.trim();
    let is_endless = matches!(trimmed, "infinity" | "-infinity");
    let wrong = |name: &str| Failure {
        code: "22007",
        ..encode::invalid(name, text)
    };
    match kind {
        Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ if is_endless => Ok(trimmed.to_owned()),
        Type::DATE => {
            let day = trimmed.split([' ', 'T']).next().and_then(time::date);
            day.map(time::date_text).ok_or_else(|| wrong("date"))
        }
        Type::TIME => {
            let clock = time::time(trimmed).map(time::time_text);
            clock.ok_or_else(|| wrong("time"))
        }
        Type::TIMESTAMP => {
            let moment = time::local(trimmed).map(time::timestamp_text);
            moment.ok_or_else(|| wrong("timestamp"))
        }
        Type::TIMESTAMPTZ => {
            let moment = time::timestamp(trimmed).map(time::timestamp_text);
            moment.ok_or_else(|| wrong("timestamp with time zone"))
        }
        Type::UUID => {
            let number = encode::uuid(trimmed).map(uuid_text);
            number.ok_or_else(|| encode::invalid("uuid", text))
        }
        kind => match kind.element() {
            Some(element) => array::normal(element, text),
            None => Ok(text.to_owned()),
        },
    }
}

pub(super) fn of_binary(kind: Type, bytes: &[u8]) -> Result<Value, Failure> {
    Ok(match kind {
        Type::INT2 => Value::Integer(i16::from_be_bytes(fixed(bytes)?).into()),
        Type::INT4 => Value::Integer(i32::from_be_bytes(fixed(bytes)?).into()),
        Type::OID => Value::Integer(u32::from_be_bytes(fixed(bytes)?).into()),
        Type::INT8 => Value::Integer(i64::from_be_bytes(fixed(bytes)?)),
        Type::BOOL => Value::Integer(i64::from(fixed::<1>(bytes)? != [0])),
        Type::FLOAT4 => Value::Real(f32::from_be_bytes(fixed(bytes)?).into()),
        Type::FLOAT8 => Value::Real(f64::from_be_bytes(fixed(bytes)?)),
        Type::NUMERIC => {
            let text = numeric::read(bytes).ok_or_else(wrong_length)?;
            decimal(&text).ok_or_else(wrong_length)?
        }
        Type::BYTEA => Value::Blob(bytes.to_vec()),
        Type::DATE => Value::Text(match i32::from_be_bytes(fixed(bytes)?) {
            i32::MAX => "infinity".to_owned(),
            i32::MIN => "-infinity".to_owned(),
            day => time::date_text(day.into()),
        }),
        Type::TIME => Value::Text(time::time_text(i64::from_be_bytes(fixed(bytes)?))),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            Value::Text(match i64::from_be_bytes(fixed(bytes)?) {
                i64::MAX => "infinity".to_owned(),
                i64::MIN => "-infinity".to_owned(),
                micros => time::timestamp_text(micros),
            })
        }
        Type::UUID => Value::Text(uuid_text(u128::from_be_bytes(fixed(bytes)?))),
        Type::JSONB => match bytes.split_first() {
            Some((1, json)) => Value::Text(utf8(json)?.to_owned()),
            _ => return Err(wrong_length()),
        },
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::CHAR => {
            Value::Text(utf8(bytes)?.to_owned())
        }
        Type::UNKNOWN => untyped(utf8(bytes)?),
        kind if kind.element().is_some() => {
            let element = kind.element().unwrap_or(Type::TEXT);
            Value::Text(array::of_binary(element, bytes)?)
        }
        Type(oid) => {
            let text = format!("binary parameters of the type with OID {oid} are not supported");
            return Err(Failure::unsupported(text));
        }
    })
}

/// A length that does not fit must never be cut or filled: the value would be another one.
fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Failure> {
    bytes.try_into().map_err(|_| wrong_length())
}

pub(super) fn wrong_length() -> Failure {
    Failure::new("22P03", "incorrect binary data format in bind parameter")
}

fn utf8(bytes: &[u8]) -> Result<&str, Failure> {
    if bytes.contains(&0) {
        return Err(Failure::new(
            "22021",
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    let text = std::str::from_utf8(bytes);
    text.map_err(|_| Failure::new("22021", "invalid byte sequence for encoding \"UTF8\""))
}

pub(crate) fn integer(kind: Type, text: &str) -> Result<i64, Failure> {
    let out_of_range = |name: &str| {
        Failure::new(
            "22003",
            format!("value \"{text}\" is out of range for type {name}"),
        )
    };
    let is_digits = {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let number = match text.parse::<i64>() {
        Ok(number) => number,
        Err(_) if is_digits => return Err(out_of_range("bigint")),
        Err(_) => return Err(encode::invalid("integer", text)),
    };
    match kind {
        Type::INT2 if i16::try_from(number).is_err() => Err(out_of_range("smallint")),
        Type::INT4 if i32::try_from(number).is_err() => Err(out_of_range("integer")),
        _ => Ok(number),
    }
}

/// A whole number, or the nearest real one.
pub(crate) fn decimal(text: &str) -> Option<Value> {
    match text.parse::<i64>() {
        Ok(number) => Some(Value::Integer(number)),
        Err(_) => text.parse().ok().map(Value::Real),
    }
}

/// A text that reads as a number and is written as one is that number.
fn untyped(text: &str) -> Value {
    if let Ok(number) = text.parse::<i64>() {
        if number.to_string() == text {
            return Value::Integer(number);
        }
    }
    let looks_real = text.contains('.') && text.bytes().all(|byte| b"-.0123456789".contains(&byte));
    match text.parse::<f64>() {
        Ok(number) if looks_real && format!("{number}") == text => Value::Real(number),
        _ => Value::Text(text.to_owned()),
    }
}

pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "yes" | "y" | "on" | "1" => Some(true),
        "f" | "false" | "no" | "n" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Bytes in either of PostgreSQL's forms: `\x00ff`, or with backslashes.
pub(crate) fn bytea(text: &str) -> Result<Vec<u8>, Failure> {
    let invalid = || encode::invalid("bytea", text);
    if let Some(hex) = text.strip_prefix("\\x") {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let digits: Option<Vec<u8>> = hex.bytes().map(digit).collect();
        let digits = digits
            .filter(|digits| digits.len() % 2 == 0)
            .ok_or_else(invalid)?;
        return Ok(digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect());
    }
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (b'\\', [b'\\', tail @ ..]) => {
                bytes.push(b'\\');
                rest = tail;
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            (b'\\', _) => return Err(invalid()),
            (byte, _) => bytes.push(*byte),
        }
    }
    Ok(bytes)
}

pub(crate) fn uuid_text(number: u128) -> String {
    let hex = format!("{number:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// The timestamp that is so many microseconds after 1970-01-01.
pub(crate) fn timestamp_of_unix(micros: i64) -> String {
    time::timestamp_text(micros - time::UNIX_TO_2000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untyped_number_is_bound_as_one() {
        for (text, value) in [
            ("12", Value::Integer(12)),
            ("-7", Value::Integer(-7)),
            ("1.5", Value::Real(1.5)),
            ("007", Value::Text("007".to_owned())),
            ("+1", Value::Text("+1".to_owned())),
            ("1e3", Value::Text("1e3".to_owned())),
            ("inf", Value::Text("inf".to_owned())),
        ] {
            let found = Parameter::Untyped.decode(Some(text.as_bytes()), false);
            assert_eq!(found.ok(), Some(value));
        }
    }

    /// Another server took the first bytes of a value of the wrong length, and stored it.
    #[test]
    fn a_binary_length_that_does_not_fit_is_an_error() {
        for kind in [
            Type::INT2,
            Type::INT4,
            Type::INT8,
            Type::FLOAT8,
            Type::DATE,
            Type::UUID,
        ] {
            let failure = Parameter::Typed(kind).decode(Some(&[0, 0, 1]), true);
            assert_eq!(
                failure.map_err(|failure| failure.code),
                Err("22P03"),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn texts_of_a_type_are_checked() {
        for (kind, text, code) in [
            (Type::INT4, "abc", "22P02"),
            (Type::INT4, "3000000000", "22003"),
            (Type::INT8, "99999999999999999999", "22003"),
            (Type::BOOL, "maybe", "22P02"),
            (Type::BYTEA, "\\x0", "22P02"),
            (Type::NUMERIC, "1,5", "22P02"),
            (Type::TEXT, "a\0b", "22021"),
            (Type::DATE, "2023-02-29", "22007"),
            (Type::TIMESTAMPTZ, "noon", "22007"),
            (Type::UUID, "12", "22P02"),
            (Type(1007), "1,2", "22P02"),
        ] {
            let failure = Parameter::Typed(kind).decode(Some(text.as_bytes()), false);
            assert_eq!(failure.map_err(|failure| failure.code), Err(code), "{text}");
        }
    }

    /// Texts are compared as texts: two spellings of one moment must become one text.
    #[test]
    fn moments_have_a_normal_form() {
        for (kind, text, normal_text) in [
            (
                Type::TIMESTAMPTZ,
                "2024-01-01T12:00:00+02:00",
                "2024-01-01 10:00:00",
            ),
            (
                Type::TIMESTAMP,
                "2024-01-01 12:00:00.5+02",
                "2024-01-01 12:00:00.5",
            ),
            (Type::TIMESTAMP, "2024-01-01", "2024-01-01 00:00:00"),
            (Type::DATE, "2024-1-2", "2024-01-02"),
            (Type::TIME, "1:02", "01:02:00"),
            (
                Type::UUID,
                "{A0EEBC99-9C0B4EF8BB6D6BB9BD380A11}",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            ),
        ] {
            assert_eq!(normal(kind, text).ok().as_deref(), Some(normal_text));
        }
    }

    #[test]
    fn bytes_have_two_forms() {
        assert_eq!(bytea("\\x00fF").ok(), Some(vec![0, 255]));
        assert_eq!(bytea("a\\\\b\\001").ok(), Some(b"a\\b\x01".to_vec()));
    }
}
