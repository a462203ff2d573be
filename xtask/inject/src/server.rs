//! The server under fault, and the one behind it: examples, each as a process of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::service::Service;
use super::Trouble;
use xtask_common::builds;
use xtask_common::run::{self, Background, Ending};
use xtask_common::workspace::{without_inherited, Form, Workspace};

/// How long it may take to listen, and to end.
const LIMIT: Duration = Duration::from_secs(10);

/// What it says when it has ended gracefully.
const FINISHED: &str = "everything was finished";

/// What it says when a handler of its own has failed in the worst way.
const PANICKED: &str = "panicked";

/// What it has to tell when it ends gracefully.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything was finished, and nothing failed.
    Clean,
    /// Everything was finished, and waits failed.
    WaitsFailed,
}

impl End {
    /// Whether its last line reports that, and nothing worse, which would be first there; a panic would have been
    /// reported before.
    fn is_told(self, said: &str) -> bool {
        let first = last_line(said).split([',', ';']).next();
        let first = first.unwrap_or_default();
        if said.contains(PANICKED) || has_cut(said) {
            return false;
        }
        match self {
            End::Clean => first.ends_with(FINISHED),
            End::WaitsFailed => first.contains(" of its threads"),
        }
    }
}

/// The threads that take turns in it.
const THREADS: &str = "4";

/// The program and how it is started.
pub(super) struct Program {
    /// Whose it is.
    pub(super) service: Service,
    /// The executable.
    pub(super) path: PathBuf,
    /// Further arguments.
    pub(super) arguments: Vec<String>,
    /// Where it writes what it has to say.
    pub(super) log: PathBuf,
}

impl Program {
    /// Whether it wakes a follower on every event, so that there is no standby.
    pub(super) fn is_eager(&self) -> bool {
        self.is_told("eager")
    }

    /// Whether an offer of the lead waits for the thread it was made to, even if that is stopped
    /// (`docs/protocol.md`: strict).
    pub(super) fn is_strict(&self) -> bool {
        let orders = ["oldest", "priority", "system"];
        self.is_eager() || orders.iter().any(|order| self.is_told(order))
    }

    /// The same, with another server behind it.
    pub(super) fn before(&self, back_end: SocketAddr) -> Program {
        let mut arguments = self.arguments.clone();
        arguments.extend(["--to".to_owned(), back_end.to_string()]);
        Program {
            service: self.service,
            path: self.path.clone(),
            arguments,
            log: self.log.clone(),
        }
    }

    /// Whether this word is among its arguments.
    fn is_told(&self, word: &str) -> bool {
        self.arguments.iter().any(|argument| argument == word)
    }
}

/// Builds an example; returns its path.
pub(super) fn build(workspace: &Workspace, service: Service) -> Result<PathBuf, String> {
    let told = workspace.log("inject-artifacts");
    let list = run::create(&told).map_err(|error| format!("could not be logged: {error}"))?;
    let mut cargo = workspace.cargo(Form::Std);
    cargo
        .args(["build", "--release", "--package", service.package()])
        .args(["--example", service.name()])
        .arg("--message-format=json-render-diagnostics")
        .stdout(list);
    builds::logged(&mut cargo, workspace)?;
    builds::executable(&run::read_log(&told)).ok_or_else(|| "cargo named no example".to_owned())
}

/// A running server. Dropping it kills it.
pub(super) struct Server {
    /// What it is.
    service: Service,
    /// The process.
    process: Background,
    /// Its number.
    pub(super) id: u32,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// Where it writes what it has to say.
    log: PathBuf,
}

impl Server {
    /// Starts it, with these variables set, and waits until it listens.
    pub(super) fn start(
        program: &Program,
        variables: &[(&str, &OsStr)],
    ) -> Result<Server, Trouble> {
        let failed = |error: io::Error| Trouble::Failed(format!("no server: {error}"));
        let mut command = Command::new(&program.path);
        without_inherited(&mut command);
        command
            .args(["--listen", "127.0.0.1:0", "--threads", THREADS])
            .args(&program.arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(run::create(&program.log).map_err(failed)?);
        let mut process = Background::start(&mut command).map_err(failed)?;
        let child = process.child().ok_or_else(gone)?;
        let (id, stdout) = (child.id(), child.stdout.take().ok_or_else(gone)?);
        let said = first_line(stdout);
        let address = said.strip_prefix("listening on ").map(str::parse);
        let Some(Ok(address)) = address else {
            let log = program.log.display();
            let why = format!("instead of its address the server said `{said}` (see {log})");
            return Err(Trouble::Failed(why));
        };
        Ok(Server {
            service: program.service,
            process,
            id,
            address,
            log: program.log.clone(),
        })
    }

    /// Asks it to end; it must, and with nothing left undone.
    pub(super) fn end(self, end: End) -> Result<(), String> {
        let ending = self.process.end("TERM", LIMIT);
        let said = run::read_log(&self.log);
        let name = self.service.name();
        match ending {
            Ending::Passed if end.is_told(&said) => Ok(()),
            Ending::Passed => Err(format!("{name} left something undone: {}", worst(&said))),
            other => Err(format!("{name} ended badly: {other:?} {}", worst(&said))),
        }
    }

    /// What the names of its pool's threads begin with.
    pub(super) fn thread_prefix(&self) -> &'static str {
        self.service.thread_prefix()
    }

    /// How many descriptors it has open.
    pub(super) fn descriptors(&self) -> io::Result<usize> {
        Ok(fs::read_dir(self.folder().join("fd"))?.count())
    }

    /// The kernel's folder about it.
    pub(super) fn folder(&self) -> PathBuf {
        Path::new("/proc").join(self.id.to_string())
    }
}

/// The report of its pool at the end of what it has said. `paceline-server` says more behind that.
fn last_line(said: &str) -> &str {
    let lines = || said.lines().rev();
    let of_pool = lines().find(|line| line.starts_with("pool main: "));
    of_pool.or_else(|| lines().next()).unwrap_or_default()
}

/// Whether a listener of `paceline-server` has cut connections at its end.
fn has_cut(said: &str) -> bool {
    let counts = said.lines().filter_map(|line| line.strip_suffix(" cut"));
    let mut counts = counts.filter_map(|line| line.rsplit(' ').next());
    counts.any(|count| count != "0")
}

/// The line that a person wants to see: of a panic, or the report.
fn worst(said: &str) -> &str {
    let panic = said.lines().find(|line| line.contains(PANICKED));
    panic.unwrap_or_else(|| last_line(said))
}

/// A process that has ended before anybody ended it.
fn gone() -> Trouble {
    Trouble::Failed("the server is gone".to_owned())
}

/// The first line that a process writes, if it arrives in time.
fn first_line(stdout: ChildStdout) -> String {
    let (lines, line) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let _read = BufReader::new(stdout).read_line(&mut text);
        let _nobody_waits = lines.send(text.trim_end().to_owned());
    });
    line.recv_timeout(LIMIT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_tells_at_its_end_is_understood() {
        let clean = "echo: everything was finished; 16 connections, 300 events\n";
        let failed = "echo: 16 errors of its threads, the first: no memory; 16 connections\n";
        let undone = "echo: 1 handle closed unfinished; an error of its threads: no memory\n";
        assert!(End::Clean.is_told(clean) && !End::WaitsFailed.is_told(clean));
        assert!(End::WaitsFailed.is_told(failed) && !End::Clean.is_told(failed));
        assert!(!End::WaitsFailed.is_told(undone) && !End::Clean.is_told(undone));
        assert!(!End::Clean.is_told("") && !End::WaitsFailed.is_told(""));
        let told_before = format!("chat: connection 7: reset, by the peer; again\n{clean}");
        assert!(End::Clean.is_told(&told_before));
        let panicked = format!("echo: a handler panicked: boom\n{clean}");
        assert!(!End::Clean.is_told(&panicked));
    }

    #[test]
    fn a_report_of_the_server_crate_is_understood() {
        let report = |cut| {
            format!(
                "127.0.0.1:7: 9 connections served, 30 items, 0 refused, 0 open at the end, {cut} cut\n\
                 pool main: everything was finished; 9 connections\nthe end took 0.010 s\n"
            )
        };
        assert!(End::Clean.is_told(&report(0)) && !End::Clean.is_told(&report(1)));
        let undone = "pool main: 1 handle closed unfinished\nthe end took 0.010 s\n";
        assert!(!End::Clean.is_told(undone));
    }
}
