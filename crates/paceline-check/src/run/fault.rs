//! Runs the command that makes faults, again and again.

use std::{
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use super::{Run, LONGEST_PAUSE};

/// Runs the command each time its pause is over, until the clients have ended.
pub(super) fn make(run: &Run<'_>) {
    let Some((command, every)) = &run.options.fault else {
        return;
    };
    let mut next = Instant::now() + *every;
    while !run.has_ended() {
        thread::sleep(LONGEST_PAUSE);
        if Instant::now() >= next {
            let succeeded = shell(command);
            run.statistics().count_fault(succeeded);
            next = Instant::now() + *every;
        }
    }
}

/// Whether the command has succeeded. Its output is the user's.
fn shell(command: &str) -> bool {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}
