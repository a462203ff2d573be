//! One measurement: a server and a client, each a process of its own, started and ended here.

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
    record::{Load, Place},
    servers::{counts::Counts, Server},
    works::Work,
};

/// The server's core if the two are apart.
const SERVERS_CORE: &str = "0";
/// The client's.
const CLIENTS_CORE: &str = "1";
/// A server that does not listen by then is given up.
const START: Duration = Duration::from_secs(20);
/// A client that has not ended so long after its time is given up.
const GRACE: Duration = Duration::from_secs(60);

/// How a measurement is made, whatever the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Where the two run.
    pub(crate) place: Place,
    /// How long is measured.
    pub(crate) seconds: f64,
    /// What 20 us of computation take here.
    pub(crate) steps: u32,
    /// How long the load runs before that.
    pub(crate) warm_up: f64,
    /// Requests a second, where the work wants to be told.
    pub(crate) rate: Option<f64>,
}

/// A server that is running. Dropped, it ends.
pub(crate) struct Running {
    process: Child,
    /// Its end is the server's.
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
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
        command.args(work.told.then_some("--told"));
        command.args(count.then_some("--count"));
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| explained(&format!("start {}", server.name), &error))?;
        let stdin = process.stdin.take();
        let lines = lines_of(process.stdout.take());
        let mut running = Self {
            process,
            stdin,
            lines,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        running.address = running.listening(server.name)?;
        Ok(running)
    }

    /// The server's process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Has a client load it, and tells what that saw.
    pub(crate) fn load(&self, work: &Work, terms: Terms) -> io::Result<Load> {
        let mut command = confined(terms.place, CLIENTS_CORE)?;
        command.arg("load").arg(self.address.to_string());
        command.args(work.load);
        if let Some(rate) = terms.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        command.args(["--warm-up", &terms.warm_up.to_string()]);
        command.args(["--seconds", &terms.seconds.to_string()]);
        command.args(["--pid", &self.id().to_string()]);
        let limit = Duration::from_secs_f64(terms.seconds) + GRACE;
        let told = finished(command, limit)?;
        serde_json::from_str(&told)
            .map_err(|error| explained("read what the client told", &error.into()))
    }

    /// Asks the server for its own counts.
    pub(crate) fn counts(&mut self) -> io::Result<Counts> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(b"counts\n")?;
        let line = self.lines.recv_timeout(START).map_err(io::Error::other)?;
        serde_json::from_str(&line).map_err(io::Error::from)
    }

    fn listening(&self, name: &str) -> io::Result<SocketAddr> {
        let line = self.lines.recv_timeout(START).map_err(|_| {
            io::Error::other(format!("{name} did not start: what it said stands above"))
        })?;
        let address = line.strip_prefix("listening on ").map(str::parse);
        match address {
            Some(Ok(address)) => Ok(address),
            _ => Err(io::Error::other(format!(
                "{name} said {line:?} instead of where it listens"
            ))),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends when its input does; if it is stuck, by force.
        drop(self.stdin.take());
        if !matches!(
            ended_within(&mut self.process, Duration::from_secs(2)),
            Ok(Some(_))
        ) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// This program, on one core if the two are apart.
fn confined(place: Place, core: &str) -> io::Result<Command> {
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

/// Runs a command that prints one line, for at most `limit`.
fn finished(mut command: Command, limit: Duration) -> io::Result<String> {
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = lines_of(process.stdout.take());
    let Some(ended) = ended_within(&mut process, limit)? else {
        process.kill()?;
        process.wait()?;
        return Err(io::Error::other("the client did not end in time"));
    };
    match lines.recv() {
        Ok(line) if ended.success() => Ok(line),
        _ => Err(io::Error::other(format!("the client failed ({ended})"))),
    }
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
