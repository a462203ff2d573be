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
    /// How long after the end of the last one.
    pub(super) every: Duration,
    /// Makes one, and returns when it is over: whether it was made.
    pub(super) make: &'f (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fault each {:?}", self.every)
    }
}

/// Makes a fault each time its pause is over, until the clients have ended.
pub(super) fn make(run: &Run<'_>) {
    let Some(faults) = run.faults else {
        return;
    };
    let mut next = Instant::now() + faults.every;
    while !run.has_ended() {
        thread::sleep(LONGEST_PAUSE);
        if Instant::now() >= next {
            let was_made = (faults.make)();
            run.statistics().count_fault(was_made);
            next = Instant::now() + faults.every;
        }
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
