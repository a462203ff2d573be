//! Values of keys: how each type is read and shown.

use std::{fmt::Display, str::FromStr, time::Duration};

/// A type that a key can have.
pub(super) trait Value: Sized {
    /// Reads a value; the error names the expected form.
    fn read(text: &str) -> Result<Self, String>;
    /// The value as `SHOW CONFIG` prints it.
    fn show(&self) -> String;
}

impl Value for String {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

/// A number as C's `strtol` reads it: decimal, `0x` hexadecimal, or octal behind a zero.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (digits, 10),
    };
    // `from_str_radix` would take a second sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain
        .then(|| i64::from_str_radix(digits, radix).ok())?
        .map(|number| sign * number)
}

macro_rules! unsigned {
    ($($type:ty)+) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                let number = integer(text).and_then(|number| number.try_into().ok());
                number.ok_or_else(|| format!("expected a number from 0 to {}", Self::MAX))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

unsigned! { u16 u32 }

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        let number = integer(text).map(|number| number != 0);
        number.ok_or_else(|| "expected 0 or 1".to_owned())
    }

    fn show(&self) -> String {
        u8::from(*self).to_string()
    }
}

/// The longest time: a hundred years and more.
const LONGEST: f64 = 4e9;

impl Value for Duration {
    fn read(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
        let seconds = text
            .bytes()
            .all(plain)
            .then(|| f64::from_str(text).ok())
            .flatten();
        let seconds = seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds));
        let micros = seconds.map(|seconds| Self::from_micros((seconds * 1e6) as u64));
        micros.ok_or_else(|| "expected a number of seconds, such as 2.5".to_owned())
    }

    fn show(&self) -> String {
        self.as_secs_f64().to_string()
    }
}

impl<T: Value> Value for Option<T> {
    fn read(text: &str) -> Result<Self, String> {
        T::read(text).map(Some)
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

impl Value for Box<str> {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// The rights of a file, written in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(
    /// The bits.
    pub u32,
);

impl Value for Mode {
    fn read(text: &str) -> Result<Self, String> {
        let number = integer(text).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|bits| *bits <= 0o7777);
        number
            .map(Self)
            .ok_or_else(|| "expected the rights of a file, such as 0700".to_owned())
    }

    fn show(&self) -> String {
        format!("{:04o}", self.0)
    }
}

/// Several names with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<Box<str>>);

impl Names {
    /// Whether exactly this name is in the list.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|listed| listed == name)
    }

    /// As [`contains`](Self::contains), without regard to the case of letters.
    #[must_use]
    pub fn contains_any_case(&self, name: &str) -> bool {
        self.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }

    /// Each name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Value for Names {
    fn read(text: &str) -> Result<Self, String> {
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        Ok(Self(names.map(Into::into).collect()))
    }

    fn show(&self) -> String {
        self.0.join(", ")
    }
}

/// Which versions of TLS are allowed. There is nothing below 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsVersions {
    /// Version 1.2.
    pub v1_2: bool,
    /// Version 1.3.
    pub v1_3: bool,
}

impl TlsVersions {
    const ALL: Self = Self {
        v1_2: true,
        v1_3: true,
    };

    fn add(self, word: &str) -> Result<Self, String> {
        match word {
            "secure" | "default" | "all" | "legacy" => Ok(Self::ALL),
            "tlsv1.2" => Ok(Self { v1_2: true, ..self }),
            "tlsv1.3" => Ok(Self { v1_3: true, ..self }),
            "tlsv1.0" | "tlsv1.1" => Err("TLS before version 1.2 is refused".to_owned()),
            _ => Err("expected secure, all, or a list of tlsv1.2 and tlsv1.3".to_owned()),
        }
    }
}

impl Value for TlsVersions {
    fn read(text: &str) -> Result<Self, String> {
        let text = text.to_ascii_lowercase();
        let words = text.split([',', ':', ' ']).filter(|word| !word.is_empty());
        let none = Self {
            v1_2: false,
            v1_3: false,
        };
        let all = words.clone().try_fold(none, Self::add)?;
        // An empty value asks for the default.
        Ok(if all == none { Self::ALL } else { all })
    }

    fn show(&self) -> String {
        match (self.v1_2, self.v1_3) {
            (true, false) => "tlsv1.2".to_owned(),
            (false, true) => "tlsv1.3".to_owned(),
            _ => "secure".to_owned(),
        }
    }
}

/// Refuses a value outside of `range`.
pub(super) fn within<T: PartialOrd + Display>(
    value: &T,
    range: std::ops::RangeInclusive<T>,
) -> Result<(), String> {
    if range.contains(value) {
        Ok(())
    } else {
        let (first, last) = (range.start(), range.end());
        Err(format!("expected a number from {first} to {last}"))
    }
}

/// A password. `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<str>);

impl Password {
    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

impl Value for Password {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(text.into()))
    }

    fn show(&self) -> String {
        "********".to_owned()
    }
}

/// The name of a database where `auth_query` runs.
///
/// An entry of `[databases]` may name the console, as in PgBouncer: its logins are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthDatabase(Box<str>);

impl AuthDatabase {
    /// The name; empty if it is unset.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for AuthDatabase {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(text.into()))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// Refuses the console: it has no secrets of users.
pub(super) fn not_console(database: &AuthDatabase) -> Result<(), String> {
    let AuthDatabase(name) = database;
    if **name == *super::CONSOLE {
        Err(format!(
            "cannot use the reserved \"{name}\" database as an auth_dbname"
        ))
    } else {
        Ok(())
    }
}
