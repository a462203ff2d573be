//! The embedded back-end as a program: `cargo run --release -p paceline-sqlite --example back -- --help`.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    paceline_sqlite::cli::run(env::args_os().skip(1))
}
