//! A viewer without a browser: HTTP by hand.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// Longer than any test takes: what waits for so long hangs.
const HANG: Duration = Duration::from_secs(30);

pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < HANG, "it hangs");
        thread::sleep(Duration::from_millis(5));
    }
}

/// All of the answer to a request.
pub(crate) fn request(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    request(
        address,
        &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n"),
    )
}

/// The first number with this key in a report.
pub(crate) fn number_in(report: &str, key: &str) -> u64 {
    let key = format!("\"{key}\":");
    let (_, rest) = report
        .split_once(&key)
        .unwrap_or_else(|| panic!("{key} in {report}"));
    let end = rest
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().unwrap()
}

/// A stream of reports.
pub(crate) struct Viewer(BufReader<TcpStream>);

impl Viewer {
    pub(crate) fn enter(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let head = format!("GET /events HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).unwrap();
        (count > 0).then_some(line)
    }

    pub(crate) fn next_report(&mut self) -> String {
        loop {
            let line = self.next_line().expect("the stream goes on");
            if let Some(report) = line.strip_prefix("data: ") {
                return report.trim_end().to_owned();
            }
        }
    }

    /// The first report with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let since = Instant::now();
        loop {
            let report = self.next_report();
            if report.contains(text) {
                return report;
            }
            assert!(since.elapsed() < HANG, "{text} never comes: {report}");
        }
    }

    /// Whether the stream ends, after reports that were on their way.
    pub(crate) fn has_ended(&mut self) -> bool {
        let since = Instant::now();
        while since.elapsed() < HANG {
            if self.next_line().is_none() {
                return true;
            }
        }
        false
    }
}
