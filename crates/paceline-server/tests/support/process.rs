//! A copy of a test program that runs one test as a process of its own.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
};

use rustix::process::{kill_process, Pid, Signal};

use super::{patience, wait_until};

/// Says to a copy of the test program which test it is for.
const CHILD: &str = "PACELINE_SERVER_CHILD";

/// Whether this is the copy for the test `name`.
pub fn is_child(name: &str) -> bool {
    env::var_os(CHILD).is_some_and(|child| child == name)
}

/// A running copy. It ends with this value.
pub struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Process {
    /// Starts `test` (its whole name) in a copy that is `name`.
    pub fn start(test: &str, name: &str, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, name)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (lines, received) = mpsc::channel();
        thread::spawn(move || {
            let mut read = stderr.lines().map_while(Result::ok);
            read.try_for_each(|line| lines.send(line))
        });
        Self {
            child,
            lines: received,
        }
    }

    /// Reads one more line of its standard error, and closes the pipe.
    pub fn stop_reading(&mut self) {
        self.lines = mpsc::channel().1;
    }

    /// Waits for a line of its standard error that begins like this. The rest of that line.
    pub fn line(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(patience());
            let line = line.unwrap_or_else(|_| panic!("no line begins with {start:?}"));
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        wait_until(|| self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
