//! Makes faults, again and again.

use std::{
    fmt,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{Run, LONGEST_PAUSE};

/// What makes the faults of a run.
#[derive(Clone, Copy)]
pub(super) struct Faults<'f> {
    /// How long after the end of the last one, and of what it has caused.
    pub(super) every: Duration,
    /// Makes one, and returns when it is over: whether it was made.
    pub(super) make: &'f (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fault each {:?}", self.every)
    }
}

/// Makes a fault each time its pause is over, until the clients have ended. The pause begins when
/// the clients commit again: otherwise the next fault would meet a system that is still down.
pub(super) fn make(run: &Run<'_>) {
    let Some(faults) = run.faults else {
        return;
    };
    let mut next = Instant::now() + faults.every;
    while !run.has_ended() {
        thread::sleep(LONGEST_PAUSE);
        if Instant::now() >= next {
            let before = run.statistics().committed;
            let was_made = (faults.make)();
            // A fault that had no effect because the clients are about to end is none.
            if was_made || !run.has_enough() {
                run.statistics().count_fault(was_made);
            }
            wait_for_commits(run, before);
            next = Instant::now() + faults.every;
        }
    }
}

/// Waits until the clients commit again, or have ended.
fn wait_for_commits(run: &Run<'_>, before: u64) {
    /// Some may have been under way when the fault was made.
    const ENOUGH: u64 = 50;
    while !run.has_ended() && run.statistics().committed < before + ENOUGH {
        thread::sleep(LONGEST_PAUSE);
    }
}

/// Whether the command has succeeded. Its output is the user's.
pub(super) fn shell(command: &str) -> bool {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}
