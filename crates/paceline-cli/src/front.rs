//! `paceline front FILE.ini`: the pooler.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use lexopt::prelude::{Long, Short, Value, ValueExt};
use paceline_pg::front::{self, Start, StartError};

use crate::command::{Command, Mistake};

pub(crate) const COMMAND: Command = Command {
    name: "front",
    summary: "the PostgreSQL pooler: reads pgbouncer.ini",
    run,
};

const HELP: &str = "\
The PostgreSQL pooler: shares few server connections between many clients.

usage: paceline front [OPTIONS] FILE.ini

  -q, --quiet       log to the file alone, not to standard error
  -v, --verbose     log more; may be repeated
  -u, --user=USER   run as this user, if started as root
  -h, --help        this text

FILE.ini is a pgbouncer.ini. SIGHUP reloads it. SIGTERM waits until all clients have disconnected,
SIGINT until all transactions have ended. A second signal, or SIGQUIT, ends the program at once.";

fn run(arguments: Vec<OsString>) -> Result<ExitCode, Mistake> {
    let mut options = lexopt::Parser::from_args(arguments);
    let (mut file, mut is_quiet, mut verbosity, mut user) = (None, false, 0, None);
    while let Some(argument) = options.next()? {
        match argument {
            Short('h') | Long("help") => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            Short('q') | Long("quiet") => is_quiet = true,
            Short('v') | Long("verbose") => verbosity += 1,
            Short('u') | Long("user") => user = Some(options.value()?.string()?),
            Value(path) if file.is_none() => file = Some(PathBuf::from(path)),
            other => return Err(other.unexpected().into()),
        }
    }
    let file = file.ok_or_else(|| Mistake("front: name a configuration file".to_owned()))?;
    Ok(serve(Start {
        file,
        is_quiet,
        verbosity,
        user,
    }))
}

/// Serves until a signal or the console ends it.
pub(crate) fn serve(start: Start) -> ExitCode {
    match front::run(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Prints each line of the error.
pub(crate) fn failed(error: &StartError) -> ExitCode {
    for line in error.to_string().lines() {
        eprintln!("paceline: {line}");
    }
    ExitCode::FAILURE
}
