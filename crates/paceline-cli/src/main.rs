//! The program `paceline`.
//!
//! ```text
//!   main -> pgbouncer   `paceline [-d|-R|-q|-v|-u USER|-V|-h] FILE.ini`: PgBouncer's own command line
//!        -> COMMANDS    `paceline front FILE.ini`, ...: one row and one module for each
//! ```

#![forbid(unsafe_code)]

mod command;
mod front;
mod pgbouncer;

use std::{ffi::OsString, process::ExitCode};

use command::{Command, Mistake};

/// Every command, in the order in which the help shows them.
const COMMANDS: &[Command] = &[front::COMMAND];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match dispatch(arguments) {
        Ok(code) => code,
        Err(Mistake(text)) => {
            eprintln!("paceline: {text}\nTry `paceline --help`.");
            ExitCode::from(2)
        }
    }
}

/// Runs the command that the first argument names. Anything else is PgBouncer's command line.
fn dispatch(mut arguments: Vec<OsString>) -> Result<ExitCode, Mistake> {
    let first = arguments.first().and_then(|first| first.to_str());
    let command = COMMANDS.iter().find(|command| Some(command.name) == first);
    match command {
        Some(command) => {
            arguments.remove(0);
            (command.run)(arguments)
        }
        None => pgbouncer::run(arguments, COMMANDS),
    }
}
