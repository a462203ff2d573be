//! Errors and warnings about configuration files, with their lines.

use std::{error, fmt, io, sync::Arc};

use super::Config;

/// An error or a warning about a line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the command line or `%include` names it; empty: no file has the key.
    pub file: Arc<str>,
    /// The line, counted from one; zero: all of the file.
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
    /// The section `[pgbouncer]` is missing.
    NoMainSection,
    /// The section `[pgbouncer]` is repeated.
    Repeated,
    /// The file that the key or the line names can't be read.
    Unreadable(Box<str>),
    /// The files or values of the key can't be used.
    Unusable(Box<str>),
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
            Self::NoMainSection => f.write_str("the section [pgbouncer] is missing"),
            Self::Unreadable(why) => write!(f, "could not be read: {why}"),
            Self::Unusable(why) => f.write_str(why),
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
        match (&**file, line) {
            ("", _) => {}
            (file, 0) => write!(f, "{file}: ")?,
            (file, line) => write!(f, "{file}:{line}: ")?,
        }
        if key.is_empty() {
            reason.fmt(f)
        } else {
            write!(f, "{key}: {reason}")
        }
    }
}

/// The errors of a configuration, and what could be read of it.
#[derive(Debug)]
pub struct Faulty {
    /// Every error, in the order of the files' lines.
    pub errors: Vec<Problem>,
    /// The rest, with its warnings: a wrong line has no effect.
    pub config: Config,
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(&self.errors, f)
    }
}

impl error::Error for Faulty {}

/// The error of a file of users or rules.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file can't be read: its name, and the operating system's error.
    Read(Box<str>, io::Error),
    /// Lines are wrong.
    Lines(Vec<Problem>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(file, error) => write!(f, "could not read \"{file}\": {error}"),
            Self::Lines(problems) => list(problems, f),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Read(_, error) => Some(error),
            Self::Lines(_) => None,
        }
    }
}

/// One line for each problem.
fn list(problems: &[Problem], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (number, problem) in problems.iter().enumerate() {
        let end = if number == 0 { "" } else { "\n" };
        write!(f, "{end}{problem}")?;
    }
    Ok(())
}
