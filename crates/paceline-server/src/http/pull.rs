//! Bodies that a handler pulls: the handler runs on a thread of its own, and a pipe connects it
//! with its connection.
//!
//! ```text
//!   the pool's threads: Data --> Pipe --> Request::stream : the handler's thread
//!                                Pipe <-- the answer        Remote::notify --> Session::notified
//! ```
//!
//! The connection stays with the pool: its least rate, its time-outs, TLS and drain hold as ever. A
//! full pipe pauses its input.

use std::{
    collections::VecDeque,
    io::{self, Read},
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use super::{
    app::{panicked, App, Permit},
    protocol::KeptHead,
    request::{Around, Given},
    response::{Decided, Push},
    router::{Found, Route},
    session::Asked,
    Error, Request, Response,
};
use crate::{link::ConnectionId, moment::Moment, peer::PeerAddress, remote::Remote, sync::lock};

/// So many bytes may wait in a pipe.
const ROOM: usize = 64 * 1024;

/// A request whose handler runs elsewhere.
pub(super) struct Pulling {
    pub(super) asked: Asked,
    pub(super) pipe: Arc<Pipe>,
    pub(super) has_all: bool,
    /// The peer sends nothing more.
    pub(super) input_ended: bool,
}

/// Between a connection and the thread of its handler.
pub(super) struct Pipe {
    inside: Mutex<Inside>,
    changed: Condvar,
    remote: Remote,
}

#[derive(Default)]
struct Inside {
    pieces: VecDeque<Vec<u8>>,
    /// Of the first piece, so much is read.
    at: usize,
    bytes: usize,
    has_all: bool,
    is_cut: bool,
    is_paused: bool,
    answer: Option<Response>,
}

/// What a handler needs on its thread.
pub(super) struct Pull {
    pub(super) app: Arc<App>,
    pub(super) route: Arc<Route>,
    pub(super) head: KeptHead,
    pub(super) number: u64,
    pub(super) permit: Permit,
    #[cfg(feature = "_tls")]
    pub(super) tls: Option<crate::tls::TlsInfo>,
}

impl Pipe {
    pub(super) fn new(remote: Remote) -> Self {
        Self {
            inside: Mutex::default(),
            changed: Condvar::new(),
            remote,
        }
    }

    /// A part of the body has come. A pipe that is full, or has everything, pauses the input.
    pub(super) fn push(&self, bytes: &[u8], has_all: bool) {
        let mut inside = lock(&self.inside);
        if !bytes.is_empty() {
            inside.pieces.push_back(bytes.to_vec());
            inside.bytes += bytes.len();
        }
        inside.has_all |= has_all;
        inside.is_paused = inside.has_all || inside.bytes >= ROOM;
        if inside.is_paused {
            // Under the lock: the handler's thread, which resumes, must not come before it.
            self.remote.pause_input();
        }
        drop(inside);
        self.changed.notify_all();
    }

    /// The rest of the body will not come.
    pub(super) fn cut(&self) {
        lock(&self.inside).is_cut = true;
        self.changed.notify_all();
    }

    pub(super) fn take_answer(&self) -> Option<Response> {
        lock(&self.inside).answer.take()
    }

    fn answer(&self, response: Response) {
        lock(&self.inside).answer = Some(response);
        self.remote.notify();
    }

    /// Waits for bytes, and takes some.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut inside = lock(&self.inside);
        while inside.pieces.is_empty() && !inside.has_all && !inside.is_cut {
            let waited = self.changed.wait(inside);
            inside = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if inside.is_cut {
            let text = "read the body of a request: the client is gone, or too slow";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let count = inside.take(buffer);
        // A connection that has given everything is paused until its answer.
        let must_resume = inside.is_paused && !inside.has_all && inside.bytes < ROOM / 2;
        if must_resume {
            inside.is_paused = false;
        }
        drop(inside);
        if must_resume {
            self.remote.resume_input();
        }
        Ok(count)
    }
}

impl Inside {
    /// Takes bytes of the first piece.
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let Some(first) = self.pieces.front() else {
            return 0;
        };
        let rest = &first[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        self.bytes -= count;
        if self.at == first.len() {
            self.pieces.pop_front();
            self.at = 0;
        }
        count
    }
}

impl Pull {
    /// Runs the handler on a thread of its own.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(self, pipe: &Arc<Pipe>) -> io::Result<()> {
        let pipe = Arc::clone(pipe);
        let thread = thread::Builder::new().name(format!("pull {}", self.route.name));
        thread.spawn(move || self.run(&pipe)).map(drop)
    }

    fn run(self, pipe: &Pipe) {
        let run = || self.respond(pipe);
        let response = catch_unwind(AssertUnwindSafe(run));
        let response = response.unwrap_or_else(|panic| panicked(&*panic));
        // Before the answer: the client's next request may need it.
        drop(self.permit);
        pipe.answer(response);
    }

    fn respond(&self, pipe: &Pipe) -> Response {
        let head = self.head.head();
        let Found::Route(_, params) = self.app.table.find(head.method(), head.path()) else {
            return Error::new(404, "").into_response();
        };
        let mut reader = Reader(pipe);
        let mut elsewhere = Elsewhere { pull: self, pipe };
        let mut request = Request {
            head: &head,
            params,
            body: Given::Stream(&mut reader),
            around: &mut elsewhere,
        };
        match self.app.call(&self.route, &mut request) {
            Decided::Now(response) => response,
            Decided::Push(push) => {
                let pushed = feed(push, &mut request.stream());
                let response = pushed.unwrap_or_else(Error::into_response);
                self.app.finish(&mut request, response)
            }
            Decided::Upgrade(_) => Error::new(500, "").into_response(),
        }
    }
}

/// Gives a whole stream to a `Push`.
pub(super) fn feed(mut push: Box<dyn Push>, stream: &mut impl Read) -> super::Result<Response> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return push.end(),
            count => push.piece(&buffer[..count])?,
        }
    }
}

/// The handler's end of a pipe.
struct Reader<'p>(&'p Pipe);

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.0.read(buffer)
    }
}

/// A handler that runs on no thread of the pool.
struct Elsewhere<'p> {
    pull: &'p Pull,
    pipe: &'p Pipe,
}

impl Around for Elsewhere<'_> {
    fn blocking(&mut self, block: &mut dyn FnMut()) {
        block();
    }

    fn wake_follower(&mut self) {}

    fn clock(&self) -> Moment {
        self.pipe.remote.link().service().now()
    }

    fn remote(&self) -> Remote {
        self.pipe.remote.clone()
    }

    fn address(&self) -> &PeerAddress {
        self.pipe.remote.address()
    }

    fn connection(&self) -> ConnectionId {
        self.pipe.remote.id()
    }

    fn number(&self) -> u64 {
        self.pull.number
    }

    #[cfg(feature = "_tls")]
    fn tls(&self) -> Option<&crate::tls::TlsInfo> {
        self.pull.tls.as_ref()
    }
}
