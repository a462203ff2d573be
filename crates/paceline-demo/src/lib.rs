//! The whole transaction system in one command: back-ends, a front-end, clients that keep books, a
//! page that shows all of it, and a fault.
//!
//! ```text
//!   system --> tiers      child processes: the back-ends, then the front-end; started again when they end
//!          --> load       clients with books, and readings that compare the system with the books
//!          --> page       what all of these show, and buttons for faults
//!          --> journal    what has happened
//!   matrix --> tiers       each tier is broken in each way, one row after the other
//! ```
//!
//! The demo knows the other programs by their command lines and by PostgreSQL's protocol alone. It
//! uses no module of theirs.
#![forbid(unsafe_code)]

/// Prints a line. A reader that has closed the pipe is no reason to end.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod drain;
mod ending;
mod folder;
pub mod guard;
mod journal;
mod load;
pub mod matrix;
mod options;
mod page;
mod ports;
mod report;
mod system;
mod tiers;

use std::{ffi::OsString, process::ExitCode, time::Duration};

pub use options::{is_option, HELP};

/// The user of all sessions.
const USER: &str = "demo";

/// Runs the demo with the arguments that follow its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match options::parse(arguments) {
        Ok(Some(options)) => options,
        Ok(None) => {
            say!("{}", HELP.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("paceline demo: {error}\nTry `paceline demo --help`.");
            return ExitCode::from(2);
        }
    };
    match system::run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("paceline demo: {error}");
            ExitCode::from(2)
        }
    }
}

/// Reads a time from the command line.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let time = time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("`{text}` is no number of seconds above zero"))
}
