//! What a command is: a row of the table in `main.rs`.

use std::{ffi::OsString, process::ExitCode};

/// A command of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// The word that names it.
    pub(crate) name: &'static str,
    /// What it does, in one line.
    pub(crate) summary: &'static str,
    /// Runs it with the arguments behind its name.
    pub(crate) run: fn(Vec<OsString>) -> Result<ExitCode, Mistake>,
}

/// What is wrong with the command line.
#[derive(Debug)]
pub(crate) struct Mistake(pub(crate) String);

impl From<lexopt::Error> for Mistake {
    fn from(error: lexopt::Error) -> Self {
        Self(error.to_string())
    }
}
