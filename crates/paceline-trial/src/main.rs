//! The program `paceline-trial`: faults in each state of a session.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use paceline_trial::{faults, role};

fn main() -> ExitCode {
    // A server or a client of another process of this program.
    role::play().unwrap_or_else(|| faults::main(std::env::args_os().skip(1)))
}
