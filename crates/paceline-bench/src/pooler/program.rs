//! The poolers: programs that read a pgbouncer.ini.

use std::{
    env, fs,
    fs::File,
    io,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    cluster::{free_port, Account, Scratch},
    pgbench::Bench,
    works::Work,
};

/// A pooler that does not listen by then is given up.
const START: Duration = Duration::from_secs(20);
/// How often a start is asked about.
const ASK: Duration = Duration::from_millis(20);
/// How long system calls are counted.
const COUNTED: u32 = 2;

/// A pooler that may be started.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: String,
    path: PathBuf,
    /// Further lines of its configuration.
    settings: &'static str,
}

impl Program {
    /// What it says of its version.
    pub(super) fn version(&self) -> io::Result<String> {
        let output = Command::new(&self.path).arg("--version").output();
        let output = output.map_err(|error| self.unusable(&error))?;
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(said
            .lines()
            .next()
            .unwrap_or("it says no version")
            .to_owned())
    }

    fn unusable(&self, error: &io::Error) -> io::Error {
        let text = format!("run {} ({}): {error}", self.name, self.path.display());
        io::Error::new(error.kind(), text)
    }
}

/// Ours with one thread and with two, and the peers.
pub(super) fn all(paceline: Option<&Path>, peers: &[String]) -> io::Result<Vec<Program>> {
    let ours = match paceline {
        Some(path) => path.to_owned(),
        None => env::current_exe()?.with_file_name("paceline"),
    };
    if !ours.exists() {
        let text = format!(
            "{} does not exist: cargo build --release -p paceline-cli",
            ours.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let one = |name: &str, settings| Program {
        name: name.to_owned(),
        path: ours.clone(),
        settings,
    };
    let mut programs = vec![
        one("paceline", "threads = 1\n"),
        one("paceline-2", "threads = 2\n"),
    ];
    for peer in peers {
        let (name, path) = peer.split_once('=').ok_or_else(|| {
            let text = format!("--peer {peer}: it has the form NAME=PROGRAM");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        programs.push(Program {
            name: name.to_owned(),
            path: found(path),
            settings: "",
        });
    }
    Ok(programs)
}

/// Debian puts PgBouncer where users' paths do not lead.
fn found(program: &str) -> PathBuf {
    let elsewhere = Path::new("/usr/sbin").join(program);
    if !program.contains('/') && elsewhere.exists() {
        elsewhere
    } else {
        PathBuf::from(program)
    }
}

/// A pooler that is running. Dropped, it ends.
pub(super) struct Pooler {
    program: Program,
    process: Child,
    port: u16,
    scratch: Scratch,
}

impl Pooler {
    /// Starts it before the back-end at `back_end`, and waits until it listens.
    pub(super) fn start(program: &Program, back_end: u16, servers: u32) -> io::Result<Self> {
        let port = free_port()?;
        let scratch = Scratch::new(&format!("{}-{port}", program.name))?;
        let folder = scratch.path().display();
        let users = scratch.path().join("users.txt");
        fs::write(&users, "\"bench\" \"\"\n")?;
        let ini = scratch.path().join("pooler.ini");
        let text = format!(
            "[databases]\nbench = host=127.0.0.1 port={back_end} dbname=bench\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir = {folder}\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {servers}\nmin_pool_size = {servers}\nmax_client_conn = 30000\n\
             max_prepared_statements = 200\nlogfile = {folder}/log\nlog_connections = 0\n\
             log_disconnections = 0\n{}",
            users.display(),
            program.settings
        );
        fs::write(&ini, text)?;
        let mut command = Command::new(&program.path);
        command.arg("--quiet").arg(&ini).stdin(Stdio::null());
        command
            .stdout(Stdio::null())
            .stderr(File::create(scratch.path().join("stderr"))?);
        Account::apply(&mut command)?;
        let process = command.spawn().map_err(|error| program.unusable(&error))?;
        let mut pooler = Self {
            program: program.clone(),
            process,
            port,
            scratch,
        };
        pooler.wait_for_port()?;
        Ok(pooler)
    }

    fn wait_for_port(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.process.try_wait()?;
            if ended.is_some() || start.elapsed() > START {
                let said =
                    fs::read_to_string(self.scratch.path().join("stderr")).unwrap_or_default();
                let logged =
                    fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
                let text = format!("{} does not listen: {said}{logged}", self.program.name);
                return Err(io::Error::other(text));
            }
            thread::sleep(ASK);
        }
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.program.name
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// How many system calls it makes for a transaction, by strace; none if there is no strace.
    ///
    /// strace slows a program down, so that more is ready at each wait: the true number is higher rather than lower.
    pub(super) fn system_calls(&self, work: &Work) -> io::Result<Option<f64>> {
        let summary = self.scratch.path().join("calls");
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-c", "-o"])
            .arg(&summary)
            .args(["-p", &self.id().to_string()])
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut strace) = strace else {
            return Ok(None);
        };
        let loaded = Bench::of(work, self.port, COUNTED).run();
        let pid = rustix::process::Pid::from_child(&strace);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        strace.wait()?;
        let calls = total_of(&fs::read_to_string(&summary)?);
        Ok(calls.map(|calls| calls / loaded.map_or(f64::NAN, |loaded| loaded.transactions as f64)))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number of calls in the last line of strace's summary.
fn total_of(summary: &str) -> Option<f64> {
    let line = summary
        .lines()
        .find(|line| line.trim_end().ends_with(" total"))?;
    // time, seconds, microseconds per call, calls: as of strace 6 the third has a number as well.
    let mut words = line.split_whitespace().rev().skip(1);
    let (last, before) = (words.next()?, words.next()?);
    // With errors there is one more number behind the calls.
    let has_errors = line.split_whitespace().count() > 5;
    let calls = if has_errors { before } else { last };
    calls.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_summary_is_found() {
        let with = "% time     seconds  usecs/call     calls    errors syscall\n\
            100.00    0.003000           2      1500        20 total\n";
        let without = "100.00    0.003000           2      1500           total\n";
        assert_eq!(total_of(with), Some(1500.0));
        assert_eq!(total_of(without), Some(1500.0));
        assert_eq!(total_of("nothing"), None);
    }

    #[test]
    fn a_peer_without_a_program_is_refused() {
        let error = all(Some(Path::new("/bin/true")), &["name".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("NAME=PROGRAM"), "{error}");
    }
}
