//! A running demo, what it prints, and its page.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

/// How long anything in a test may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A running demo. It is killed when this is dropped.
pub(crate) struct Demo {
    child: Child,
    lines: Receiver<String>,
    /// What it has printed so far.
    pub(crate) text: String,
    pub(crate) port: u16,
    page: u16,
    folder: PathBuf,
}

/// The program with these arguments.
pub(crate) fn paceline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A folder that does not exist.
pub(crate) fn new_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("paceline-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

impl Demo {
    /// Starts a demo with a folder of its own, and waits until it serves.
    pub(crate) fn start(name: &str, options: &[&str]) -> Self {
        let folder = new_folder(name);
        let text = folder.to_str().expect("a name").to_owned();
        Self::start_in(folder, &[&["--data", &*text], options].concat())
    }

    /// Starts a demo that makes a folder for its data, below one of the test's, and waits until it
    /// serves.
    pub(crate) fn start_without_folder(name: &str, options: &[&str]) -> Self {
        let folder = new_folder(name);
        fs::create_dir_all(&folder).expect("a folder");
        Self::start_in(folder, options)
    }

    fn start_in(folder: PathBuf, options: &[&str]) -> Self {
        let (port, page) = (free_port(), free_port());
        let mut command = paceline(&["demo"]);
        command.args([
            "--port",
            &port.to_string(),
            "--page-port",
            &page.to_string(),
        ]);
        command.args(options);
        // Where a demo without `--data` makes its folder.
        if folder.is_dir() {
            command.env("TMPDIR", &folder);
        }
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the demo starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut demo = Self {
            child,
            lines,
            text: String::new(),
            port,
            page,
            folder,
        };
        demo.wait_for("Ctrl-C ends all of it.");
        demo
    }

    /// The process of the server with this name.
    pub(crate) fn process(&self, name: &str) -> u32 {
        let processes = self.processes();
        let found = processes.iter().find(|(server, _)| server == name);
        found.expect("the server").1
    }

    /// The first number in the first row that the front-end answers.
    pub(crate) fn ask(&self, database: &str, sql: &str) -> String {
        let url = format!("postgres://demo@127.0.0.1:{}/{database}", self.port);
        let target = url.parse().expect("a URL");
        let session = paceline_check::client::Session::open(&target, Default::default(), LIMIT);
        let answer = session.expect("a session").query(sql);
        let answer = answer.expect("an answer");
        answer.text(0, 0).unwrap_or_default().to_owned()
    }

    /// The folder of the test.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits for a line with this text, and gives it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let Ok(line) = line else {
                panic!("`{text}` was not printed:\n{}", self.text);
            };
            self.text += &line;
            self.text.push('\n');
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits until each of these texts was printed, in any order.
    pub(crate) fn wait_for_all(&mut self, texts: &[&str]) {
        for text in texts {
            if !self.text.contains(text) {
                self.wait_for(text);
            }
        }
    }

    /// Waits for the end, and reads what was printed until then.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                break status;
            }
            assert!(
                Instant::now() < end,
                "the demo does not end:\n{}",
                self.text
            );
            thread::sleep(Duration::from_millis(20));
        };
        while let Ok(line) = self.lines.recv_timeout(LIMIT) {
            self.text += &line;
            self.text.push('\n');
        }
        status
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(self.child.id(), signal);
    }

    /// The process of each server, by name.
    pub(crate) fn processes(&self) -> Vec<(String, u32)> {
        let lines = self.text.lines().filter(|line| line.contains(" process "));
        lines
            .filter_map(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                Some((words.get(1)?.to_string(), words.last()?.parse().ok()?))
            })
            .collect()
    }

    /// The state that the page shows.
    pub(crate) fn state(&self) -> serde_json::Value {
        let answer = self.request("GET /state", "");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }

    /// Makes a fault by the page.
    pub(crate) fn fault(&self, server: &str, fault: &str) {
        let form = format!("server={server}&fault={fault}");
        let answer = self.request("POST /fault", &form);
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }

    /// What the page answers to a request with this start and this form.
    pub(crate) fn request(&self, start: &str, form: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.page)).expect("the page");
        let request = format!(
            "{start} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\nx-paceline: 1\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
            self.page,
            form.len()
        );
        stream
            .write_all(request.as_bytes())
            .expect("the page reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Its servers end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn kill(process: u32, signal: &str) {
    let killed = Command::new("kill")
        .args([signal, &process.to_string()])
        .status();
    assert!(killed.expect("kill starts").success());
}

/// Waits until a process has ended, also if its parent does not ask for its status.
pub(crate) fn wait_for_end_of(process: u32) {
    let is_alive = || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    wait_until("the process has ended", || !is_alive());
}

/// Waits for a condition, with a generous limit.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "it did not happen: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
