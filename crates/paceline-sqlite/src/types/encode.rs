//! Values of SQLite as the text or the bytes of a type of PostgreSQL.
//!
//! A value that does not fit the described type is an error, never another value.

use rusqlite::types::ValueRef;

use super::{array, float, numeric, time, Declared, Type};
use crate::failure::Failure;

/// Appends a value that is not NULL in the form of its type.
pub(crate) fn encode(
    value: ValueRef<'_>,
    declared: Declared,
    is_binary: bool,
    output: &mut Vec<u8>,
) -> Result<(), Failure> {
    if is_binary {
        binary(value, declared, output)
    } else {
        text(value, declared, output)
    }
}

/// The type of a value in a column without a declared type.
pub(crate) fn type_of(value: ValueRef<'_>) -> Type {
    match value {
        ValueRef::Integer(_) => Type::INT8,
        ValueRef::Real(_) => Type::FLOAT8,
        ValueRef::Blob(_) => Type::BYTEA,
        ValueRef::Text(_) | ValueRef::Null => Type::TEXT,
    }
}

fn text(value: ValueRef<'_>, declared: Declared, output: &mut Vec<u8>) -> Result<(), Failure> {
    match declared.kind {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => {
            push_integer(integer(value, declared.kind)?, output);
        }
        Type::BOOL => output.push(if boolean(value)? { b't' } else { b'f' }),
        Type::FLOAT8 => {
            output.extend_from_slice(float::double(real(value, "double precision")?).as_bytes())
        }
        Type::FLOAT4 => {
            output.extend_from_slice(float::single(real(value, "real")? as f32).as_bytes());
        }
        Type::NUMERIC => output.extend_from_slice(decimal(value, declared)?.as_bytes()),
        Type::BYTEA => push_hex(bytes(value), output),
        // A text that is no moment may come from another program: it is shown as it is.
        Type::TIMESTAMPTZ => match time::timestamp(&text_of(value)) {
            Some(moment) => {
                output.extend_from_slice(time::timestamp_text(moment).as_bytes());
                output.extend_from_slice(b"+00");
            }
            None => plain(value, output),
        },
        Type::TIMESTAMP => match time::local(&text_of(value)) {
            Some(moment) => output.extend_from_slice(time::timestamp_text(moment).as_bytes()),
            None => plain(value, output),
        },
        _ => plain(value, output),
    }
    Ok(())
}

fn binary(value: ValueRef<'_>, declared: Declared, output: &mut Vec<u8>) -> Result<(), Failure> {
    match declared.kind {
        Type::INT8 => output.extend_from_slice(&integer(value, Type::INT8)?.to_be_bytes()),
        Type::INT4 => {
            let number = integer(value, Type::INT4)? as i32;
            output.extend_from_slice(&number.to_be_bytes());
        }
        Type::OID => {
            let number = integer(value, Type::OID)? as u32;
            output.extend_from_slice(&number.to_be_bytes());
        }
        Type::INT2 => {
            let number = integer(value, Type::INT2)? as i16;
            output.extend_from_slice(&number.to_be_bytes());
        }
        Type::BOOL => output.push(u8::from(boolean(value)?)),
        Type::FLOAT8 => {
            output.extend_from_slice(&real(value, "double precision")?.to_be_bytes());
        }
        Type::FLOAT4 => output.extend_from_slice(&(real(value, "real")? as f32).to_be_bytes()),
        Type::NUMERIC => {
            let text = decimal(value, declared)?;
            if !numeric::write(&text, output) {
                return Err(invalid("numeric", &text));
            }
        }
        Type::BYTEA => output.extend_from_slice(bytes(value)),
        Type::DATE => {
            let day = match text_of(value).trim() {
                "infinity" => i32::MAX.into(),
                "-infinity" => i32::MIN.into(),
                _ => moment(value, "date", time::date)?,
            };
            output.extend_from_slice(&(day as i32).to_be_bytes());
        }
        Type::TIME => {
            output.extend_from_slice(&moment(value, "time", time::time)?.to_be_bytes());
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let read = if declared.kind == Type::TIMESTAMP {
                time::local
            } else {
                time::timestamp
            };
            let micros = match text_of(value).trim() {
                "infinity" => i64::MAX,
                "-infinity" => i64::MIN,
                _ => moment(value, "timestamp", read)?,
            };
            output.extend_from_slice(&micros.to_be_bytes());
        }
        Type::UUID => {
            let text = text_of(value);
            let number = uuid(&text).ok_or_else(|| invalid("uuid", &text))?;
            output.extend_from_slice(&number.to_be_bytes());
        }
        Type::JSONB => {
            output.push(1);
            plain(value, output);
        }
        kind => match kind.element() {
            Some(element) => array::to_binary(element, &text_of(value), output)?,
            None => plain(value, output),
        },
    }
    Ok(())
}

/// As the value is, without regard to a type.
fn plain(value: ValueRef<'_>, output: &mut Vec<u8>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Integer(number) => push_integer(number, output),
        ValueRef::Real(number) => output.extend_from_slice(float::double(number).as_bytes()),
        ValueRef::Text(text) => output.extend_from_slice(text),
        ValueRef::Blob(bytes) => push_hex(bytes, output),
    }
}

fn text_of(value: ValueRef<'_>) -> String {
    let mut bytes = Vec::new();
    plain(value, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn integer(value: ValueRef<'_>, kind: Type) -> Result<i64, Failure> {
    let number = match value {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Text(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok()),
        // The integer has overflowed to a real, or the value was never an integer.
        ValueRef::Real(number) => return Err(out_of_range(&float::double(number), kind)),
        _ => None,
    };
    let number = number.ok_or_else(|| invalid(name(kind), &text_of(value)))?;
    let fits = fits(number, kind);
    if fits {
        Ok(number)
    } else {
        Err(out_of_range(&number.to_string(), kind))
    }
}

/// Whether the number is in the range of the type.
pub(crate) fn fits(number: i64, kind: Type) -> bool {
    match kind {
        Type::INT2 => i16::try_from(number).is_ok(),
        Type::INT4 => i32::try_from(number).is_ok(),
        Type::OID => u32::try_from(number).is_ok(),
        _ => true,
    }
}

fn real(value: ValueRef<'_>, name: &str) -> Result<f64, Failure> {
    match value {
        ValueRef::Real(number) => Ok(number),
        ValueRef::Integer(number) => Ok(number as f64),
        _ => {
            let text = text_of(value);
            text.parse().map_err(|_| invalid(name, &text))
        }
    }
}

fn boolean(value: ValueRef<'_>) -> Result<bool, Failure> {
    match value {
        ValueRef::Integer(number) => Ok(number != 0),
        ValueRef::Real(number) => Ok(number != 0.0),
        _ => {
            let text = text_of(value);
            super::parameter::boolean(&text).ok_or_else(|| invalid("boolean", &text))
        }
    }
}

/// A number with as many digits behind the point as its column declares.
fn decimal(value: ValueRef<'_>, declared: Declared) -> Result<String, Failure> {
    match (value, declared.scale()) {
        (ValueRef::Integer(number), None | Some(0)) => Ok(number.to_string()),
        (ValueRef::Integer(number), Some(scale)) => Ok(format!("{number}.{}", "0".repeat(scale))),
        (ValueRef::Real(number), Some(scale)) => Ok(format!("{number:.scale$}")),
        (ValueRef::Real(number), None) if number.is_nan() => Ok("NaN".to_owned()),
        (ValueRef::Real(number), None) => Ok(format!("{number}")),
        _ => {
            let text = text_of(value);
            match text.trim().parse::<f64>() {
                Ok(_) => Ok(text),
                Err(_) => Err(invalid("numeric", &text)),
            }
        }
    }
}

fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes,
        _ => &[],
    }
}

fn moment(
    value: ValueRef<'_>,
    name: &str,
    read: impl FnOnce(&str) -> Option<i64>,
) -> Result<i64, Failure> {
    let text = text_of(value);
    read(&text).ok_or_else(|| invalid(name, &text))
}

pub(super) fn uuid(text: &str) -> Option<u128> {
    let digits: String = text
        .chars()
        .filter(|digit| !"-{}".contains(*digit))
        .collect();
    let is_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(&digits, 16).ok())?
}

fn push_hex(bytes: &[u8], output: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    output.extend_from_slice(b"\\x");
    for byte in bytes {
        output.push(DIGITS[usize::from(byte >> 4)]);
        output.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Without an allocation: most values of most rows are integers.
fn push_integer(number: i64, output: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        output.push(b'-');
    }
    output.extend_from_slice(&digits[at..]);
}

/// The name of a type of integers.
pub(crate) fn name(kind: Type) -> &'static str {
    match kind {
        Type::INT2 => "smallint",
        Type::INT8 => "bigint",
        Type::OID => "oid",
        _ => "integer",
    }
}

pub(crate) fn invalid(name: &str, text: &str) -> Failure {
    Failure::new(
        "22P02",
        format!("invalid input syntax for type {name}: \"{text}\""),
    )
}

fn out_of_range(text: &str, kind: Type) -> Failure {
    let name = name(kind);
    Failure::new(
        "22003",
        format!("value \"{text}\" is out of range for type {name}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(
        value: ValueRef<'_>,
        declared: &str,
        is_binary: bool,
    ) -> Result<Vec<u8>, &'static str> {
        let mut output = Vec::new();
        let declared = Declared::of_column(declared);
        encode(value, declared, is_binary, &mut output).map_err(|failure| failure.code)?;
        Ok(output)
    }

    #[test]
    fn texts_are_postgresqls() {
        for (value, declared, text) in [
            (
                ValueRef::Integer(i64::MIN),
                "bigint",
                "-9223372036854775808",
            ),
            (ValueRef::Integer(0), "int", "0"),
            (ValueRef::Integer(1), "bool", "t"),
            (ValueRef::Text(b"false"), "bool", "f"),
            (ValueRef::Real(1.5), "numeric(10,2)", "1.50"),
            (ValueRef::Integer(2), "numeric(10,2)", "2.00"),
            (ValueRef::Blob(&[0, 255]), "bytea", "\\x00ff"),
            (
                ValueRef::Text(b"2024-01-01 00:00:00"),
                "timestamptz",
                "2024-01-01 00:00:00+00",
            ),
        ] {
            assert_eq!(
                encoded(value, declared, false),
                Ok(text.as_bytes().to_vec())
            );
        }
    }

    /// A client that expects four bytes must not get eight, nor four wrong ones.
    #[test]
    fn what_does_not_fit_is_an_error() {
        for (value, declared, code) in [
            (ValueRef::Integer(1 << 40), "int", "22003"),
            (ValueRef::Integer(1 << 20), "smallint", "22003"),
            (ValueRef::Real(1e20), "bigint", "22003"),
            (ValueRef::Text(b"abc"), "int", "22P02"),
            (ValueRef::Text(b"abc"), "bool", "22P02"),
            (ValueRef::Text(b"abc"), "double precision", "22P02"),
            (ValueRef::Text(b"abc"), "numeric", "22P02"),
        ] {
            for is_binary in [false, true] {
                assert_eq!(encoded(value, declared, is_binary), Err(code), "{declared}");
            }
        }
        assert_eq!(
            encoded(ValueRef::Text(b"abc"), "timestamp", true),
            Err("22P02")
        );
        assert_eq!(encoded(ValueRef::Text(b"abc"), "uuid", true), Err("22P02"));
    }

    #[test]
    fn binary_is_postgresqls() {
        assert_eq!(
            encoded(ValueRef::Integer(1), "int", true),
            Ok(vec![0, 0, 0, 1])
        );
        assert_eq!(
            encoded(ValueRef::Text(b"2000-01-02"), "date", true),
            Ok(vec![0, 0, 0, 1])
        );
        let uuid = b"00000000-0000-0000-0000-0000000000ff";
        assert_eq!(
            encoded(ValueRef::Text(uuid), "uuid", true).map(|bytes| bytes[15]),
            Ok(255)
        );
        assert_eq!(
            encoded(ValueRef::Text(b"{}"), "jsonb", true),
            Ok(b"\x01{}".to_vec())
        );
    }
}
