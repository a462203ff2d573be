//! The program `paceline`.
//!
//! ```text
//!   main -> pgbouncer   `paceline [-d|-R|-q|-v|-u USER|-V|-h] FILE.ini`: PgBouncer's own command line
//!        -> COMMANDS    `paceline front FILE.ini`, `paceline check ...`: one row for each
//!        -> DEMO        without arguments, or with options of the demo alone
//! ```

#![forbid(unsafe_code)]

mod command;
mod front;
mod pgbouncer;
mod system;

use std::{ffi::OsString, process::ExitCode};

use command::{Command, Mistake};

/// Every command, in the order in which the help shows them.
const COMMANDS: &[Command] = &[
    system::DEMO,
    front::COMMAND,
    system::BACK,
    system::CHECK,
    system::GUARD,
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    paceline_demo::guard::end_with_parent();
    match dispatch(arguments) {
        Ok(code) => code,
        Err(Mistake(text)) => {
            eprintln!("paceline: {text}\nTry `paceline --help`.");
            ExitCode::from(2)
        }
    }
}

/// Runs the command that the first argument names. Nothing, or an option of the demo, is the demo;
/// anything else is PgBouncer's command line.
fn dispatch(mut arguments: Vec<OsString>) -> Result<ExitCode, Mistake> {
    let first = arguments.first().and_then(|first| first.to_str());
    let command = COMMANDS.iter().find(|command| Some(command.name) == first);
    match command {
        None if arguments.is_empty() || first.is_some_and(paceline_demo::is_option) => {
            (system::DEMO.run)(arguments)
        }
        Some(command) => {
            arguments.remove(0);
            (command.run)(arguments)
        }
        None if first == Some("help") => {
            pgbouncer::print_help(COMMANDS);
            Ok(ExitCode::SUCCESS)
        }
        None => pgbouncer::run(arguments, COMMANDS),
    }
}
