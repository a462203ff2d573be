//! The embedded back-end as a program of its own: `paceline-back --help`.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    paceline_sqlite::cli::run(env::args_os().skip(1))
}
