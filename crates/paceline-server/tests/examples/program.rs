//! Examples and tools as processes: started, waited for, ended.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    mem,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc, Arc, Mutex, OnceLock,
    },
    thread,
    time::{Duration, Instant},
};

/// Only a hang reaches it.
pub(super) const BOUND: Duration = Duration::from_secs(25);

/// The path of an example, up to date: `cargo test --test NAME` does not build them.
pub(super) fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).join(name)
}

/// Builds all examples into the folder that this test comes from.
fn build() -> PathBuf {
    let me = env::current_exe().unwrap();
    let profile = me.parent().and_then(Path::parent).unwrap();
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", "paceline-server"])
        .args(["--examples", "--target-dir"])
        .arg(profile.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // The folder of a profile has its name, but for that of the usual one.
    let name = profile.file_name().unwrap();
    if name != "debug" {
        command.arg("--profile").arg(name);
    }
    // What cargo has set for this test. The build script of `ring` would run again because of it.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    assert!(
        command.status().unwrap().success(),
        "the examples do not build"
    );
    profile.join("examples")
}

/// A command that its system ends after a minute, even if this process ends first.
pub(super) fn bounded(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program.as_ref());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A running program. Dropping it kills it.
pub(super) struct Program {
    child: Option<Child>,
    lines: mpsc::Receiver<String>,
    errors: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Program {
    /// Starts `command`, and reads its output.
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map(|line| sender.send(line)).all(|sent| sent.is_ok());
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&errors);
        let reader = thread::spawn(move || {
            let mut lines = BufReader::new(&mut stderr);
            let mut line = Vec::new();
            while lines
                .read_until(b'\n', &mut line)
                .is_ok_and(|count| count > 0)
            {
                kept.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self {
            child: Some(child),
            lines,
            errors,
            reader: Some(reader),
        }
    }

    /// The next line of its output, without its end.
    pub(super) fn line(&self) -> String {
        let line = self.lines.recv_timeout(BOUND);
        line.unwrap_or_else(|why| panic!("the program prints no further line: {why}"))
    }

    /// What it reads.
    pub(super) fn stdin(&mut self) -> ChildStdin {
        let child = self.child.as_mut().unwrap();
        child.stdin.take().expect("its input is piped")
    }

    /// The program itself, which `timeout` has started; `None` if it has ended.
    fn id(&self) -> Option<u32> {
        let id = self.child.as_ref()?.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        children.trim().parse().ok()
    }

    /// Waits, within the bound, until it has ended. Its status, the rest of its lines, its errors.
    pub(super) fn wait(mut self) -> Ended {
        let mut child = self.child.take().unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > BOUND {
                let _ = child.kill();
                panic!("the program does not end");
            }
            thread::sleep(Duration::from_millis(1));
        };
        let lines: Vec<_> = self.lines.iter().collect();
        Ended {
            code: status.code(),
            lines,
            errors: self.take_errors(),
        }
    }

    fn take_errors(&mut self) -> String {
        self.reader.take().unwrap().join().unwrap();
        mem::take(&mut self.errors.lock().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(id) = self.id() {
            // `timeout` ends with its program.
            signal("KILL", id);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

/// What a program has left.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) lines: Vec<String>,
    pub(super) errors: String,
}

/// A running example that listens.
pub(super) struct Server {
    program: Program,
    pub(super) address: SocketAddr,
}

impl Server {
    /// Starts an example at a port that the system chooses, and waits until it listens.
    pub(super) fn start(name: &str, args: &[&str]) -> Self {
        Self::run(
            bounded(example(name))
                .args(["--listen", "127.0.0.1:0"])
                .args(args),
        )
    }

    /// The same with a command that becomes the example.
    pub(super) fn run(command: &mut Command) -> Self {
        let program = Program::start(command);
        let line = program.line();
        let address = line.strip_prefix("listening on ");
        let address = address.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("instead of its address: {line:?}"));
        Self { program, address }
    }

    /// The next line of its output.
    pub(super) fn line(&self) -> String {
        self.program.line()
    }

    pub(super) fn port(&self) -> String {
        self.address.port().to_string()
    }

    pub(super) fn connect(&self) -> TcpStream {
        bound(TcpStream::connect(self.address).unwrap())
    }

    /// How many bytes of memory it has in use.
    pub(super) fn memory(&self) -> usize {
        let path = format!("/proc/{}/smaps_rollup", self.program.id().unwrap());
        let sizes = fs::read_to_string(path).unwrap();
        let line = sizes.lines().find(|line| line.starts_with("Rss:")).unwrap();
        let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024
    }

    /// How many threads it has.
    pub(super) fn threads(&self) -> usize {
        let path = format!("/proc/{}/task", self.program.id().unwrap());
        fs::read_dir(path).unwrap().count()
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, name: &str) {
        signal(name, self.program.id().expect("the program runs"));
    }

    /// Waits until its errors have this text.
    pub(super) fn wait_for_error(&self, text: &str) {
        let start = Instant::now();
        while !self.program.errors.lock().unwrap().contains(text) {
            assert!(start.elapsed() < BOUND, "it never says {text:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it has ended by itself.
    pub(super) fn wait(self) -> Ended {
        self.program.wait()
    }

    /// Ends it gracefully, and expects a report in which nothing is cut.
    pub(super) fn end(self) -> Ended {
        self.signal("TERM");
        let ended = self.wait();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.errors.contains("connections served"), "{ended:?}");
        assert!(ended.errors.contains(", 0 cut"), "{ended:?}");
        ended
    }
}

/// The same stream, which waits no longer than the bound.
pub(super) fn bound(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.set_write_timeout(Some(BOUND)).unwrap();
    stream
}

/// Everything that comes until the end.
pub(super) fn read_all(stream: &mut impl Read) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Sends a signal to a process of ours.
fn signal(name: &str, id: u32) {
    // It may have ended.
    let _ = Command::new("kill")
        .args(["-s", name, &id.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Runs `command` to its end.
pub(super) fn run(command: &mut Command) -> Ended {
    Program::start(command).wait()
}

/// Runs an example to its end.
pub(super) fn run_example(name: &str, args: &[&str]) -> Ended {
    run(bounded(example(name)).args(args))
}

/// Runs `command` with this input.
pub(super) fn run_with_input(command: &mut Command, input: &[u8]) -> Ended {
    let mut program = Program::start(command.stdin(Stdio::piped()));
    program.stdin().write_all(input).unwrap();
    program.wait()
}

/// A tool that others have written; `None`, and a line about it, if it is not installed.
pub(super) fn tool(name: &str, question: &str) -> Option<Command> {
    let answered: Result<Output, _> = Command::new(name)
        .arg(question)
        .stdin(Stdio::null())
        .output();
    if answered.is_err() {
        println!("skipped: {name} is not installed");
        return None;
    }
    Some(bounded(name))
}

/// Python with one of the scripts beside this file.
pub(super) fn python(script: &str) -> Option<Command> {
    let mut command = tool("python3", "--version")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples");
    command.arg(folder.join(script));
    Some(command)
}

/// A folder of its own, removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-examples-{}-{number}", std::process::id());
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as text.
    pub(super) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// The files in a folder of it.
    pub(super) fn list(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join(folder)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
