//! A server on a simulation, and clients that read answers.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use paceline::{
    simulated::{SimPeer, Simulation},
    SetKind,
};
use paceline_server::{
    http::{HttpServer, Router},
    Inlet, Listen, Server,
};

/// A test that expects too much shall not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How many threads the servers have.
pub(crate) const THREADS: usize = 2;

/// What the handlers have done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    pub(crate) fn note(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A server whose clients are in memory.
pub(crate) struct Site {
    pub(crate) world: Simulation,
    pub(crate) inlet: Inlet,
    pub(crate) server: Server,
    threads: usize,
}

impl Site {
    pub(crate) fn new<A: Send + Sync + 'static>(router: Router<A>) -> Self {
        Self::with(router, |server| server)
    }

    /// With other settings.
    pub(crate) fn with<A: Send + Sync + 'static>(
        router: Router<A>,
        change: impl FnOnce(HttpServer<A>) -> HttpServer<A>,
    ) -> Self {
        Self::with_threads(THREADS, router, change)
    }

    pub(crate) fn with_threads<A: Send + Sync + 'static>(
        threads: usize,
        router: Router<A>,
        change: impl FnOnce(HttpServer<A>) -> HttpServer<A>,
    ) -> Self {
        let world = Simulation::new(11);
        let inlet = Inlet::new(&world);
        let set = SetKind::Simulated(world.clone());
        let server = HttpServer::new(Listen::simulated(&inlet), router)
            .threads(threads)
            .pool(|pool| pool.handle_set(set));
        Self {
            server: change(server).start().expect("a server in memory starts"),
            world,
            inlet,
            threads,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.inlet.connect())
    }

    /// A client that has sent this.
    pub(crate) fn client_with(&self, bytes: impl AsRef<[u8]>) -> Client {
        let client = self.client();
        client.peer.send(bytes.as_ref());
        client
    }

    /// Waits until everything that the client has sent is read, and every thread sleeps.
    pub(crate) fn settle(&self, client: &Client) {
        wait(|| client.peer.is_read_by_pool());
        self.rest();
    }

    /// Moves the clock when every thread of the pool sleeps: then all that was sent is handled.
    pub(crate) fn pass(&self, time: Duration) {
        self.rest();
        self.world.clock().advance(time);
    }

    /// Waits until every thread of the pool sleeps.
    pub(crate) fn rest(&self) {
        wait(|| self.world.clock().asleep() >= self.threads);
    }
}

/// Waits until `holds`.
pub(crate) fn wait(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < PATIENCE,
            "what was waited for did not come"
        );
        thread::yield_now();
    }
}

/// A client of a test.
pub(crate) struct Client {
    pub(crate) peer: SimPeer,
    buffer: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of the first header with this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}

impl Client {
    pub(crate) fn new(peer: SimPeer) -> Self {
        Self {
            peer,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        self.peer.send(bytes.as_ref());
    }

    /// Whether the server has sent something that was not taken.
    pub(crate) fn has_output(&mut self) -> bool {
        self.buffer.extend(self.peer.received());
        !self.buffer.is_empty()
    }

    /// The next answer; `None` if the connection is closed before a whole one.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        self.answer_to("GET")
    }

    /// The next answer to a request with this method.
    pub(crate) fn answer_to(&mut self, method: &str) -> Option<Answer> {
        let end = loop {
            let end = self
                .buffer
                .windows(4)
                .position(|window| window == b"\r\n\r\n");
            match end {
                Some(end) => break end + 4,
                None => self.fill()?,
            }
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).expect("a head is text");
        let status = head[9..12].parse().expect("a status is a number");
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if method == "HEAD" || status < 200 || matches!(status, 204 | 304) {
            return Some(answer);
        }
        answer.body = if answer.field("transfer-encoding") == Some("chunked") {
            self.chunks()?
        } else if let Some(length) = answer.field("content-length") {
            self.take(length.parse().expect("a length is a number"))?
        } else {
            self.rest()
        };
        Some(answer)
    }

    /// Everything until the connection is closed.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill().is_some() {}
        std::mem::take(&mut self.buffer)
    }

    /// The statuses of all answers until the connection is closed.
    pub(crate) fn statuses(&mut self) -> Vec<u16> {
        let answers = std::iter::from_fn(|| self.answer());
        let statuses = answers.map(|answer| answer.status).collect();
        self.peer.wait_closed();
        assert_eq!(self.buffer, b"", "half an answer");
        statuses
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            self.fill()?;
        }
        Some(self.buffer.drain(..count).collect())
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line = self.take(end + 2)?;
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.fill()?;
        }
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).expect("a size is a number");
            body.extend(self.take(size)?);
            assert_eq!(self.line()?, "");
            if size == 0 {
                return Some(body);
            }
        }
    }

    /// Waits for bytes; `None` at the end of the server's output, which this client answers with
    /// its own end.
    fn fill(&mut self) -> Option<()> {
        let start = Instant::now();
        loop {
            // Before the look at what was sent: nothing is sent after the end.
            let has_ended = self.peer.is_output_ended();
            let received = self.peer.received();
            if !received.is_empty() {
                self.buffer.extend(received);
                return Some(());
            }
            if has_ended {
                self.peer.finish();
                return None;
            }
            assert!(start.elapsed() < PATIENCE, "the server sends nothing");
            thread::yield_now();
        }
    }
}

/// A router that answers every path, and notes the calls.
pub(crate) fn noting(calls: &Calls) -> Router<Calls> {
    let mut router = Router::new(calls.clone());
    for method in ["GET", "POST", "PUT"] {
        for path in ["/", "/{*path}"] {
            router = router.route(method, path, |calls, req| {
                let length = req.bytes().map_or(0, |body| body.len());
                calls.note(format!("{} {} {length}", req.method(), req.path()));
                "ok"
            });
        }
    }
    router
}
