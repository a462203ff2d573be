//! The checker as a program of its own: `cargo run -p paceline-check --example check -- --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    paceline_check::command::main(std::env::args_os().skip(1))
}
