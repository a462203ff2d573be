//! Errors and warnings about configuration files, with their lines.

use std::{fmt, io, sync::Arc};

/// An error or a warning about a line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the command line or `%include` names it.
    pub file: Arc<str>,
    /// The line, counted from one.
    pub line: u32,
    /// The key, with the entry that has it: `pool_mode`, `[databases] p1: host`.
    pub key: Box<str>,
    /// The error or the warning.
    pub reason: Reason,
}

/// The reason of an error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The line is neither a section nor a key with its value.
    Syntax(&'static str),
    /// This program does not know the section.
    UnknownSection,
    /// This program does not know the key.
    UnknownKey,
    /// The key does not accept the value: the value, and the expected form.
    BadValue(Box<str>, Box<str>),
    /// This program lacks the feature, and ignoring the key would be unsafe.
    Refused(&'static str),
    /// The section `[pgbouncer]` is repeated.
    Repeated,
    /// The key is accepted and has no effect.
    NoEffect(&'static str),
}

impl Problem {
    pub(super) fn new(file: &Arc<str>, line: u32, key: &str, reason: Reason) -> Self {
        Self {
            file: Arc::clone(file),
            line,
            key: key.into(),
            reason,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(what) => write!(f, "syntax error: {what}"),
            Self::UnknownSection => f.write_str("unknown section"),
            Self::UnknownKey => f.write_str("unknown parameter"),
            Self::BadValue(value, rule) => write!(f, "invalid value \"{value}\": {rule}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Repeated => f.write_str(
                "the section is repeated: keys above it still hold, PgBouncer would reset them",
            ),
            Self::NoEffect(why) => write!(f, "has no effect: {why}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            key,
            reason,
        } = self;
        if key.is_empty() {
            write!(f, "{file}:{line}: {reason}")
        } else {
            write!(f, "{file}:{line}: {key}: {reason}")
        }
    }
}

/// The error of a load.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be read: its name, and the operating system's error.
    Read(Box<str>, io::Error),
    /// A line is wrong.
    Line(Box<Problem>),
    /// The file has no section `[pgbouncer]`.
    NoMainSection(Box<str>),
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Line(Box::new(problem))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(file, error) => write!(f, "could not read \"{file}\": {error}"),
            Self::Line(problem) => problem.fmt(f),
            Self::NoMainSection(file) => write!(f, "{file}: the section [pgbouncer] is missing"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, error) => Some(error),
            Self::Line(_) | Self::NoMainSection(_) => None,
        }
    }
}
