//! The examples, run as programs of their own.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{mpsc, OnceLock},
    thread,
    time::{Duration, Instant},
};

/// Only a hang reaches it.
const BOUND: Duration = Duration::from_secs(20);

/// The example `echo`, up to date.
pub fn echo() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("echo"))
}

/// Builds an example into the folder that this test comes from: `cargo test --test NAME` does not.
pub fn build(name: &str) -> PathBuf {
    let me = env::current_exe().unwrap();
    let profile = me.parent().and_then(Path::parent).unwrap();
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", "paceline"])
        .args(["--example", name, "--target-dir"])
        .arg(profile.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let built = command.status().unwrap();
    assert!(built.success(), "the example {name} does not build");
    profile.join("examples").join(name)
}

/// A running example that listens.
pub struct Server {
    /// The program itself, or what it was started by.
    process: Process,
    pub address: SocketAddr,
}

impl Server {
    /// Starts `command` and waits until it says where it listens.
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(piped(command));
        let stdout = process.child.stdout.take().unwrap();
        let (lines, line) = mpsc::channel();
        thread::spawn(move || {
            let mut text = String::new();
            let _ = BufReader::new(stdout).read_line(&mut text);
            let _ = lines.send(text);
        });
        let text = line.recv_timeout(BOUND).unwrap_or_default();
        let address = text.trim_end().strip_prefix("listening on ");
        let address = address.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("instead of its address it said: {text:?}"));
        Self { process, address }
    }

    /// A new connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.set_write_timeout(Some(BOUND)).unwrap();
        stream
    }

    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// The process that this one has started.
    pub fn child_id(&self) -> u32 {
        let id = self.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.trim().parse().unwrap()
    }

    /// Waits, within the bound, until it has ended.
    pub fn output(self) -> Output {
        self.process.output()
    }
}

/// A program that ends, with everything that it has started, when this is dropped; and also when
/// this process ends first and drops nothing, in whatever way.
pub struct Process {
    child: Child,
    guard: Guard,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let guard = Guard::new();
        let child = command.process_group(guard.group()).spawn().unwrap();
        Self { child, guard }
    }

    /// Waits, within the bound, until it has ended.
    fn output(self) -> Output {
        let Self { mut child, guard } = self;
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < BOUND, "the program does not end");
            thread::yield_now();
        }
        guard.dismiss();
        child.wait_with_output().unwrap()
    }
}

/// A shell that kills its process group, and with it whoever was started into that, as soon as its
/// input ends without a word. The other end of its input is here: it ends with this value or with
/// this process.
struct Guard {
    shell: Child,
}

impl Guard {
    fn new() -> Self {
        let shell = Command::new("sh")
            .args(["-c", "read -r word || kill -9 0"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            shell: shell.unwrap(),
        }
    }

    /// The group that it leads.
    fn group(&self) -> i32 {
        self.shell.id().try_into().unwrap()
    }

    /// There is nobody left to be killed.
    fn dismiss(mut self) {
        let mut input = self.shell.stdin.take().unwrap();
        input.write_all(b"ended\n").unwrap();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Sends a signal to a process.
pub fn signal(name: &str, id: u32) {
    let told = Command::new("kill")
        .args(["-s", name, &id.to_string()])
        .status();
    assert!(told.unwrap().success());
}

/// Runs `command` to its end, within the bound.
pub fn run(command: &mut Command) -> Output {
    Process::start(piped(command)).output()
}

/// The same command, without input and with its outputs for us.
fn piped(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

/// Sends `bytes` and expects them back.
pub fn expect_echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, bytes);
}
