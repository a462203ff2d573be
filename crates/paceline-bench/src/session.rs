//! A server and a client, each a process of its own, started and ended here.

use std::{
    env,
    ffi::OsStr,
    io::{self, BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    load::{self, Order},
    record::{Load, Place},
    servers::{counts::Counts, Server},
    works::Work,
};

/// The server's core if the two are apart.
pub(crate) const SERVERS_CORE: &str = "0";
/// The client's.
pub(crate) const CLIENTS_CORE: &str = "1";
/// A server that does not listen by then is given up.
pub(crate) const START: Duration = Duration::from_secs(20);
/// A client that has not ended so long after its time is given up.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// How a measurement is made, whatever the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Where the two run.
    pub(crate) place: Place,
    /// What 20 us of computation take here.
    pub(crate) steps: u32,
    /// Requests a second, for an open loop.
    pub(crate) rate: Option<f64>,
}

/// A server that is running. Dropped, it ends.
pub(crate) struct Running {
    process: Process,
    address: SocketAddr,
}

impl Running {
    /// Starts a server for a work and waits until it listens. With `count` it counts, and is slower.
    pub(crate) fn start(
        server: &Server,
        work: &Work,
        terms: Terms,
        count: bool,
    ) -> io::Result<Self> {
        let mut command = confined(terms.place, SERVERS_CORE)?;
        command.args(["serve", server.name, "--listen", "127.0.0.1:0"]);
        command.args(["--threads", &work.threads_of(server).to_string()]);
        command.args(["--steps", &terms.steps.to_string()]);
        command.args(work.announced.then_some("--announced"));
        command.args(count.then_some("--count"));
        let process = Process::start(server.name, command)?;
        let address = listening(&process)?;
        Ok(Self { process, address })
    }

    /// The server's process.
    pub(crate) fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Has a client load it for so many seconds, and returns its figures.
    pub(crate) fn load(&self, work: &Work, terms: Terms, seconds: f64) -> io::Result<Load> {
        let mut command = self.loaded(work, terms)?;
        command.args(["--warm-up", "0", "--seconds", &seconds.to_string()]);
        let limit = Duration::from_secs_f64(seconds) + GRACE;
        Process::start("the client", command)?.report(limit)
    }

    /// A client that loads it, as far as that does not depend on how long.
    fn loaded(&self, work: &Work, terms: Terms) -> io::Result<Command> {
        let mut command = confined(terms.place, CLIENTS_CORE)?;
        command.arg("load").arg(self.address.to_string());
        command.args(work.load);
        if let Some(rate) = terms.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        command.args(["--pid", &self.id().to_string()]);
        Ok(command)
    }

    /// Asks the server for its own counts.
    pub(crate) fn counts(&mut self) -> io::Result<Counts> {
        self.process.say("counts\n")?;
        let line = self.process.line(START)?;
        serde_json::from_str(&line).map_err(io::Error::from)
    }
}

/// Where a server says that it listens.
fn listening(process: &Process) -> io::Result<SocketAddr> {
    let line = process.line(START)?;
    let address = line.strip_prefix("listening on ").map(str::parse);
    match address {
        Some(Ok(address)) => Ok(address),
        _ => Err(process.said(&line, "where it listens")),
    }
}

/// A client of a server, which loads it in slices, and is silent between them. Dropped, it ends.
pub(crate) struct Client {
    process: Process,
}

impl Client {
    /// Starts one, and waits until its connections stand.
    pub(crate) fn of(server: &Running, work: &Work, terms: Terms) -> io::Result<Self> {
        Self::with(server, work, terms, &[])
    }

    /// The same, with more words for `load` than the work has.
    pub(crate) fn with(
        server: &Running,
        work: &Work,
        terms: Terms,
        more: &[String],
    ) -> io::Result<Self> {
        let mut command = server.loaded(work, terms)?;
        command.args(more).arg("--in-slices");
        let process = Process::start("the client", command)?;
        match process.line(GRACE)?.as_str() {
            load::READY => Ok(Self { process }),
            other => Err(process.said(other, "that it is ready")),
        }
    }

    /// Loads the server for a while, and returns the client's figures.
    pub(crate) fn slice(&mut self, warm_up: f64, seconds: f64) -> io::Result<Load> {
        self.process
            .say(&Order::Slice { warm_up, seconds }.line())?;
        let limit = Duration::from_secs_f64(warm_up + seconds) + GRACE;
        self.process.report(limit)
    }

    /// The last slice does not count.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        self.process.say(&Order::Forget.line())
    }

    /// What it saw in all slices that count.
    pub(crate) fn sum(mut self) -> io::Result<Load> {
        drop(self.process.stdin.take());
        self.process.report(GRACE)
    }
}

/// A process that reads orders and writes answers, line by line. Dropping this ends the process.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    /// Its end is the process's.
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Process {
    pub(crate) fn start(name: &'static str, mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| explained(&format!("start {name}"), &error))?;
        let stdin = child.stdin.take();
        let lines = lines_of(child.stdout.take());
        Ok(Self {
            name,
            child,
            stdin,
            lines,
        })
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(line.as_bytes())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    pub(crate) fn line(&self, limit: Duration) -> io::Result<String> {
        let name = self.name;
        self.lines.recv_timeout(limit).map_err(|error| {
            io::Error::other(match error {
                mpsc::RecvTimeoutError::Timeout => format!("{name} said nothing for {limit:?}"),
                mpsc::RecvTimeoutError::Disconnected => {
                    format!("{name} has ended: see its output above")
                }
            })
        })
    }

    /// It said something else than it should.
    pub(crate) fn said(&self, line: &str, instead_of: &str) -> io::Error {
        io::Error::other(format!(
            "{} said {line:?} instead of {instead_of}",
            self.name
        ))
    }

    /// What a client saw, from its next line.
    fn report(&self, limit: Duration) -> io::Result<Load> {
        let line = self.line(limit)?;
        serde_json::from_str(&line).map_err(|_| self.said(&line, "what it saw"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when its input does; if it is stuck, by force.
        drop(self.stdin.take());
        if !matches!(
            ended_within(&mut self.child, Duration::from_secs(2)),
            Ok(Some(_))
        ) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// This program, on one core if the two are apart.
pub(crate) fn confined(place: Place, core: &str) -> io::Result<Command> {
    let this = env::current_exe()?;
    Ok(match place {
        Place::Together => Command::new(this),
        Place::Apart => {
            let mut command = Command::new("taskset");
            command.args([OsStr::new("-c"), OsStr::new(core), this.as_os_str()]);
            command
        }
    })
}

/// The lines that a process writes, as they come.
fn lines_of(output: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let output = output
            .into_iter()
            .flat_map(|output| BufReader::new(output).lines());
        for line in output.map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Waits for the end of a process. (Every 20 ms: it is the measurement that must not be disturbed.)
fn ended_within(
    process: &mut Child,
    limit: Duration,
) -> io::Result<Option<std::process::ExitStatus>> {
    let until = Instant::now() + limit;
    loop {
        let ended = process.try_wait()?;
        if ended.is_some() || Instant::now() > until {
            return Ok(ended);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn explained(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
