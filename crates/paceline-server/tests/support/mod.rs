//! What the tests share: a bound on every wait, a server on virtual time, sessions that note their
//! calls, and a look at the metrics and the access log.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]

pub mod actor;
pub mod process;
#[cfg(feature = "_tls")]
pub mod tls;
pub mod world;

use std::{
    env,
    io::{self, Write},
    panic,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use paceline_server::{Limit, Server};

/// Longer than anything here takes on the slowest machine; only a hang reaches it.
const LONG: Duration = Duration::from_secs(20);

/// How long a test may wait: `PACELINE_PATIENCE` seconds where that is set, for tests that shall
/// hang.
pub fn patience() -> Duration {
    let seconds = env::var("PACELINE_PATIENCE").ok();
    let seconds = seconds.map(|text| text.parse().expect("a number of seconds"));
    seconds.map_or(LONG, Duration::from_secs)
}

/// Runs a test's body, and fails if it hangs.
pub fn bounded<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = body();
        let _ = done.send(());
        result
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(3 * patience()) {
        panic!("the test hangs");
    }
    let joined = thread.join();
    joined.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Waits, within the bound, until `holds`.
#[track_caller]
pub fn wait_until(holds: impl FnMut() -> bool) {
    wait_until_or(holds, || "what was waited for never came".to_owned());
}

/// The same, and says what there is instead.
#[track_caller]
pub fn wait_until_or(mut holds: impl FnMut() -> bool, instead: impl Fn() -> String) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < patience(), "{}", instead());
        pause();
    }
}

/// Lets other threads run.
pub fn pause() {
    thread::sleep(Duration::from_micros(20));
}

/// The value of a metric of one service.
pub fn metric(server: &Server, name: &str, labels: &str) -> u64 {
    let text = server.open_metrics();
    let start = format!("{name}{{{labels}}} ");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    let value = lines.next().unwrap_or_else(|| panic!("{start} in\n{text}"));
    assert_eq!(lines.next(), None, "{start} is there once");
    value.parse().expect("a number")
}

/// How often a limit was met at the service `name`.
pub fn times_met(server: &Server, name: &str, limit: Limit) -> u64 {
    let labels = format!("service=\"{name}\",limit=\"{limit}\"");
    metric(server, "paceline_server_limit_total", &labels)
}

/// How many connections of the service `name` ended for this reason.
pub fn times_ended(server: &Server, name: &str, reason: &str) -> u64 {
    let labels = format!("service=\"{name}\",reason=\"{reason}\"");
    metric(server, "paceline_server_ended_total", &labels)
}

/// A writer whose text a test reads.
#[derive(Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("text")
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder for one test, which is removed at its end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-server-{}-{number}", std::process::id());
        let path = env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Marsaglia's xorshift: the same numbers for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// The name of a test as the test program knows it: `module` is the test's `module_path!()`.
pub fn name_of(module: &str, test: &str) -> String {
    let inside = module.split_once("::").map_or("", |(_, inside)| inside);
    format!("{inside}::{test}")
}

/// A client on a real socket.
pub struct Client<S>(pub S);

/// A client of a TCP address.
pub fn client(address: std::net::SocketAddr) -> Client<std::net::TcpStream> {
    let stream = std::net::TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(patience())).unwrap();
    Client(stream)
}

impl<S: Write + io::Read> Client<S> {
    /// Sends, and waits for exactly this answer.
    pub fn ask(&mut self, text: impl AsRef<[u8]>, answer: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).unwrap();
        self.expect(answer);
    }

    /// Waits for exactly these bytes.
    pub fn expect(&mut self, answer: impl AsRef<[u8]>) {
        let answer = answer.as_ref();
        let mut got = vec![0; answer.len()];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(answer)
        );
    }

    /// Everything until the server ends its output.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        String::from_utf8(rest).expect("text")
    }
}
