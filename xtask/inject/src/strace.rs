//! Faults at the border to the kernel: strace, attached to the running server, spoils system calls.
//!
//! strace counts the calls of each thread on their own. It must be detached only while the server is at rest:
//! a call that it has begun to spoil when it is detached is not made at all and fails for no reason that
//! a kernel has. (Detached forty times in the middle of work, under EINTR alone, it broke twelve connections.)

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Trouble;
use xtask_common::run::{self, Background, Ending};

/// How long attaching and detaching may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What strace writes behind a call that it has spoilt, or held up.
const MARKS: [&str; 2] = ["(INJECTED)", "(DELAYED)"];

/// How long a server that was left alone needs to come to rest.
const SETTLE: Duration = Duration::from_millis(20);

/// An strace that is attached. Dropping it kills it, and the server continues.
pub(super) struct Attached {
    /// The process.
    strace: Background,
    /// What it writes.
    log: PathBuf,
}

impl Attached {
    /// Attaches to all threads of a process, and spoils `calls` as `tamper` says.
    pub(super) fn to(id: u32, calls: &str, tamper: &str, log: &Path) -> Result<Attached, Trouble> {
        if !run::answers("strace", &["-V"]) {
            let why = "strace is not installed (`cargo xtask setup`)";
            return Err(Trouble::Skipped(why.to_owned()));
        }
        let failed = |error| Trouble::Failed(format!("strace did not start: {error}"));
        run::create(log).map_err(failed)?;
        let mut command = Command::new("strace");
        command
            .args(["-f", "-p", &id.to_string(), "-e", "signal=none"])
            .args(["-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:{tamper}")])
            .arg("-o")
            .arg(log)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut strace = Background::start(&mut command).map_err(failed)?;
        let stderr = strace.child().and_then(|child| child.stderr.take());
        judge(stderr.map(first_line).unwrap_or_default())?;
        let log = log.to_owned();
        Ok(Attached { strace, log })
    }

    /// Detaches from a server without requests; returns how many calls were spoilt.
    pub(super) fn detach(self) -> Result<u64, Trouble> {
        thread::sleep(SETTLE);
        match self.strace.end("TERM", LIMIT) {
            Ending::TimedOut => Err(Trouble::Failed("strace did not detach".to_owned())),
            _ => Ok(spoilt(&run::read_log(&self.log))),
        }
    }
}

/// Removes a log that is not needed.
pub(super) fn forget(log: &Path) {
    // If it is not there, so much the better.
    let _removed = fs::remove_file(log);
}

/// What the first words of strace mean.
fn judge(said: String) -> Result<(), Trouble> {
    if said.contains("attached") {
        return Ok(());
    }
    Err(Trouble::of_tool("strace could not attach", &said))
}

/// The first line that strace says; the others are read and dropped, so that it never waits for us.
fn first_line(stderr: ChildStderr) -> String {
    let (lines, line) = mpsc::channel();
    thread::spawn(move || {
        for text in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _only_the_first_is_heard = lines.send(text);
        }
    });
    line.recv_timeout(LIMIT).unwrap_or_default()
}

/// The number of calls that a log marks as spoilt.
fn spoilt(log: &str) -> u64 {
    let is_marked = |line: &&str| MARKS.iter().any(|mark| line.ends_with(mark));
    log.lines().filter(is_marked).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spoilt_calls_are_counted() {
        let log = "7 accept4(6, NULL) = -1 EMFILE (Too many open files) (INJECTED)\n\
                   7 <... recvfrom resumed>, \"x\", 16, 0, NULL, NULL) = 1 (DELAYED)\n\
                   7 accept4(6, NULL) = -1 EAGAIN (Resource temporarily unavailable)\n";
        assert_eq!(spoilt(log), 2);
    }

    #[test]
    fn a_machine_that_forbids_it_is_no_failure_of_the_server() {
        let said = "strace: attach: ptrace(PTRACE_SEIZE, 7): Operation not permitted";
        assert!(matches!(judge(said.to_owned()), Err(Trouble::Skipped(_))));
        assert!(matches!(judge(String::new()), Err(Trouble::Failed(_))));
    }
}
