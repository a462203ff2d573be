//! A server of a small benchmark: this program itself with another verb, a process of its own.

use std::{
    env,
    io::{self, BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// A server that says where it listens, and ends with its input. Dropped, it ends.
pub(crate) struct Answering {
    process: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Answering {
    /// Starts it, and waits until it listens.
    pub(crate) fn start<'a>(args: impl IntoIterator<Item = &'a str>) -> io::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take();
        let mut answering = Self {
            process,
            address: String::new(),
        };
        let mut line = String::new();
        BufReader::new(stdout.ok_or(io::ErrorKind::BrokenPipe)?).read_line(&mut line)?;
        if line.trim().is_empty() {
            return Err(io::Error::other(
                "the server did not start: see its output above",
            ));
        }
        answering.address = line.trim().to_owned();
        Ok(answering)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // Its standard input ends, and so does it; if not, it is ended.
        drop(self.process.stdin.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
