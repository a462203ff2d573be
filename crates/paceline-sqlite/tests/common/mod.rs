//! What several tests of this crate need: a server in a folder of its own, a client, programs.
#![allow(dead_code, reason = "each test uses some of it")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use paceline_pg_wire::{backend::Reply, startup, Message, TransactionStatus};
use paceline_sqlite::{Builder, Running, Server};
use postgres::{Client, NoTls};

/// A folder that is gone when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-sqlite-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over is in the system's folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server in this process, with a folder of its own.
pub(crate) struct World {
    pub(crate) server: Running,
    pub(crate) folder: Folder,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let folder = Folder::new();
        let builder = Server::builder(folder.path())
            .database("bank")
            .listen("127.0.0.1:0");
        let server = change(builder).start().expect("a server");
        Self { server, folder }
    }

    pub(crate) fn client(&self) -> Client {
        connect(self.server.local_addr())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }
}

pub(crate) fn url(address: SocketAddr) -> String {
    format!(
        "host=127.0.0.1 port={} user=ada dbname=bank",
        address.port()
    )
}

pub(crate) fn connect(address: SocketAddr) -> Client {
    Client::connect(&url(address), NoTls).expect("a session")
}

/// The SQLSTATE of a failed statement.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, postgres::Error>) -> String {
    let error = result.expect_err("the statement fails");
    error.code().map_or_else(
        || format!("no code: {error}"),
        |code| code.code().to_owned(),
    )
}

/// Waits until it is so, for at most a generous time.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "not in a minute: {what}"
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// The server as a process of its own.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        Self::run(Self::command(folder, options))
    }

    /// The command that starts a server, for more settings than its options.
    pub(crate) fn command(folder: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline-back"));
        command
            .args(["--listen", "127.0.0.1:0", "--data"])
            .arg(folder)
            .args(options);
        command
    }

    /// Starts a server and waits until it listens.
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let line = output.lines().next().expect("a line").expect("text");
        let address = line.split_whitespace().nth(2).expect("an address");
        Self {
            child,
            address: address.parse().expect("an address"),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its status, when it has ended by itself.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }

    /// Ends it as a loss of power would end all processes.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where a program is; `None`, and a visible line, if it is not installed.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let places = [
        "/usr/lib/postgresql/15/bin",
        "/usr/bin",
        "/bin",
        "/usr/local/bin",
    ];
    let found = places
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed (cargo xtask setup)");
    }
    found
}

/// A connection that speaks in messages.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) bytes: Vec<u8>,
}

impl Raw {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a limit");
        let mut raw = Self {
            stream,
            bytes: Vec::new(),
        };
        raw.send(&start("bank"));
        assert!(raw.tags_to_ready().ends_with('Z'));
        raw
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is sent");
    }

    /// The next message; `None` at the end of the connection.
    pub(crate) fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((message, length)) = Message::first(&self.bytes, 1 << 30).expect("good") {
                let found = (message.tag, message.body.to_vec());
                self.bytes.drain(..length);
                return Some(found);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer).expect("in time") {
                0 => return None,
                count => self.bytes.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// The types of the messages up to `ReadyForQuery`, or to the end; errors with their codes.
    pub(crate) fn tags_to_ready(&mut self) -> String {
        let mut tags = String::new();
        while let Some((tag, body)) = self.message() {
            let reply = Reply::read(Message { tag, body: &body }).expect("a reply");
            tags.push(char::from(tag));
            match reply {
                Reply::Error(report) => tags += &String::from_utf8_lossy(report.code()),
                Reply::Ready(status) => {
                    if status != TransactionStatus::Idle {
                        tags.push(char::from(status.byte()));
                    }
                    return tags;
                }
                _ => {}
            }
        }
        tags + "."
    }
}

/// The start of a session.
pub(crate) fn start(database: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let version = startup::Version { major: 3, minor: 0 };
    let parameters: [(&[u8], &[u8]); 2] = [(b"user", b"ada"), (b"database", database.as_bytes())];
    startup::session(&mut bytes, version, parameters);
    bytes
}

/// Messages that a client sends.
pub(crate) fn messages(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}
