//! This program in the part of a server or of a client: a child process that ends with its parent.
//!
//! A variable of the environment holds the role. The arguments make a test program run its test
//! `program`, which calls [`play`]; any other program ignores them.

use std::{
    env,
    io::{self, Read},
    path::PathBuf,
    process::{exit, Command, ExitCode, Stdio},
    thread,
};

use paceline_pg::front::{self, Start};

use crate::faults;

/// Names the role to the child process.
const VARIABLE: &str = "PACELINE_TRIAL_ROLE";

/// Between the words of a role.
const SEPARATOR: char = '\n';

/// A child process that plays this role. Its input must be kept open: the process ends with it.
///
/// # Errors
/// If the path of this program is unknown.
pub fn command(words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["--exact", "program", "--nocapture"])
        .env(VARIABLE, words.join(&SEPARATOR.to_string()))
        .stdin(Stdio::piped());
    Ok(command)
}

/// Plays the role that this process was started for. `None`: it was started for none.
#[must_use]
pub fn play() -> Option<ExitCode> {
    let role = env::var(VARIABLE).ok()?;
    thread::spawn(end_with_input);
    let words: Vec<&str> = role.split(SEPARATOR).collect();
    Some(match words[..] {
        ["front", file] => serve_front(file.into()),
        ["back", ref options @ ..] => paceline_sqlite::cli::run(options.iter().copied()),
        ["victim", ref words @ ..] => faults::play_victim(words),
        _ => ExitCode::from(2),
    })
}

fn serve_front(file: PathBuf) -> ExitCode {
    let start = Start {
        user: None,
        file,
        is_quiet: true,
        verbosity: 0,
    };
    match front::run(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("front: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The parent keeps the input open for as long as it lives.
fn end_with_input() {
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
    exit(1);
}
