//! A child process: its start, its end, and signals to it.
//!
//! A child has a process group of its own, so that Ctrl-C reaches this program alone, which then
//! ends its children in order. A child holds the read end of a pipe as its input. The system closes
//! the write end when this program ends, however it ends, and the child follows: see
//! [`crate::guard`].

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{kill_process, Pid, Signal};

/// How a child is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Variables of its environment, beside those of this program.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Where its output is appended.
    pub(crate) log: PathBuf,
}

/// A running child.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// Where the part of the log begins that is of this child.
    log_start: u64,
}

impl Launch {
    /// Starts the child.
    pub(crate) fn start(&self) -> io::Result<Process> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let log_start = log.metadata()?.len();
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.variables.iter().cloned())
            .env(crate::guard::VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(Process {
            child,
            log: self.log.clone(),
            log_start,
        })
    }
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the child has ended; `None` while it runs.
    pub(crate) fn ending(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten();
        status.map(described)
    }

    /// What the child has written at the end.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let start = usize::try_from(self.log_start).unwrap_or(0).min(text.len());
        let text = String::from_utf8_lossy(&text[start..]).into_owned();
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Sends a signal to the child, and to all its descendants if it is KILL.
    pub(crate) fn signal(&self, signal: Signal) {
        let ids = match signal {
            Signal::KILL | Signal::STOP | Signal::CONT => tree(self.id()),
            _ => vec![self.id()],
        };
        for id in ids {
            let id = i32::try_from(id).ok().and_then(Pid::from_raw);
            // A process that has ended needs no signal.
            let _ = id.map(|id| kill_process(id, signal));
        }
    }

    /// Disturbs the child and all its descendants. A shell lets them continue, also if this program
    /// has ended by then: a stopped child would not notice that.
    pub(crate) fn disturb(&self, disturbance: Disturbance) -> io::Result<Child> {
        let mut shell = Command::new("sh");
        shell.args(["-c", disturbance.script(), "sh"]);
        shell.args(tree(self.id()).iter().map(u32::to_string));
        let shell = shell.stdin(Stdio::null()).stderr(Stdio::null());
        shell.process_group(0).spawn()
    }

    /// Asks the child to end, and kills it after `limit`.
    pub(crate) fn end(&mut self, limit: Duration) -> Ended {
        // A stopped child can't end.
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if self.ending().is_some() {
                return Ended::Gracefully;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        Ended::Killed
    }
}

/// What is done to a child for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// It is stopped for three seconds.
    Stop,
    /// It runs a fifth of the time for five seconds.
    Slow,
}

impl Disturbance {
    /// The shell's script, whose arguments are processes.
    fn script(self) -> &'static str {
        match self {
            Self::Stop => "kill -STOP \"$@\"; sleep 3; kill -CONT \"$@\"",
            // One that has ended may leave others stopped.
            Self::Slow => {
                "n=0; while [ $n -lt 50 ]; do \
                 kill -STOP \"$@\"; sleep 0.08; kill -CONT \"$@\" || exit; sleep 0.02; \
                 n=$((n + 1)); done"
            }
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "is stopped for 3 s",
            Self::Slow => "runs a fifth of the time for 5 s",
        })
    }
}

/// How a child has ended that was asked to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Gracefully,
    Killed,
}

fn described(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(0)) => "has ended".to_owned(),
        (None, code) => format!("has ended with status {}", code.unwrap_or(-1)),
    }
}

/// A process and all its descendants, the process first: so it starts no further ones.
fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<_> = all_processes().collect();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(parent) = tree.get(next).copied() {
        next += 1;
        let children = parents.iter().filter(|(_, of)| *of == parent);
        tree.extend(children.map(|(id, _)| *id));
    }
    tree
}

/// Each process with its parent.
fn all_processes() -> impl Iterator<Item = (u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        Some((id, parent(&entry.path())?))
    })
}

/// The fourth field of `stat`; the second one is a name in brackets that may hold spaces.
fn parent(folder: &Path) -> Option<u32> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let log = std::env::temp_dir().join(format!("paceline-process-{}", std::process::id()));
        let launch = Launch {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            variables: Vec::new(),
            log,
        };
        launch.start().expect("a shell")
    }

    /// A database has processes of its own, and each of them could still commit.
    #[test]
    fn a_kill_reaches_the_whole_tree() {
        let mut process = shell("sleep 600 & sleep 600; true");
        let end = Instant::now() + Duration::from_secs(60);
        while tree(process.id()).len() < 3 {
            assert!(Instant::now() < end, "the shell has no children");
        }
        let all = tree(process.id());
        process.signal(Signal::KILL);
        assert_eq!(
            described(process.child.wait().expect("an end")),
            "was killed by signal 9"
        );
        let is_alive = |id: &u32| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while all.iter().any(is_alive) {
            assert!(Instant::now() < end, "a child is left");
        }
    }

    #[test]
    fn a_child_that_ignores_the_request_is_killed() {
        let mut process = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done");
        while !process.last_words().contains("ready") {
            assert_eq!(process.ending(), None);
        }
        assert_eq!(process.end(Duration::from_millis(50)), Ended::Killed);
        assert_eq!(
            shell("exit 0").end(Duration::from_secs(60)),
            Ended::Gracefully
        );
    }
}
