//! What is known of this machine.

use std::{fs, process::Command, thread};

use crate::record::Machine;

/// This machine, as far as `/proc` describes it.
pub(crate) fn this_machine() -> Machine {
    Machine {
        processor: processor().unwrap_or_else(unknown),
        cores: thread::available_parallelism().map_or(1, usize::from),
        kernel: first_line("uname", &["-sr"]).unwrap_or_else(unknown),
        compiler: first_line("rustc", &["--version"]).unwrap_or_else(unknown),
    }
}

/// The commit in this folder, and today's date, if git reports them.
pub(crate) fn this_source() -> String {
    let commit = first_line("git", &["describe", "--always", "--dirty"]);
    let date = first_line("date", &["-u", "+%F"]);
    let (commit, date) = (commit.unwrap_or_else(unknown), date.unwrap_or_else(unknown));
    format!("{commit}, {date}")
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn first_line(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}
