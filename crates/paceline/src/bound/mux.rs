//! What users hold: the connection that many threads share.

use std::{
    fmt, io,
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    call::{Prepared, Reply},
    connect::Connector,
    counters::{Callers, Snapshot},
    deadline::{Deadline, Patience},
    lead::End,
    line::{Line, Socket, Stream},
    link::{Bounds, Link},
    protocol::Protocol,
    sleepers::Elect,
};
use crate::{
    dispatch::{InHandler, Registry, Rejected, Serve},
    sync::Clock,
    unwind::Contained,
};

/// One connection, many callers: a handle to it. Clones are handles to the same.
///
/// ```
/// use std::{io::{self, Read, Write}, net::{TcpListener, TcpStream}, thread, time::Duration};
/// use paceline::bound::{Builder, Header, Protocol, Whose};
///
/// /// One byte of id, one byte of body.
/// struct Tiny;
///
/// impl Protocol for Tiny {
///     type Request = u8;
///     const ID_BITS: u32 = 8;
///     fn encode(&self, request: &u8, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
///         out.extend([id as u8, *request]);
///         Ok(())
///     }
///     fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
///         let header = |id: &u8| Header { whose: Whose::Call((*id).into()), skip: 1, length: 1 };
///         Ok(bytes.first().map(header))
///     }
/// }
///
/// # fn main() -> io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// let (mut server, _) = listener.accept()?;
/// let mux = Builder::new().calls(16).build(stream, Tiny)?;
///
/// let server = thread::spawn(move || -> io::Result<()> {
///     let mut two = [0; 4];
///     server.read_exact(&mut two)?;
///     server.write_all(&[two[2], two[3] * 2, two[0], two[1] * 2]) // The second one first.
/// });
///
/// let one = mux.prepare()?.send(&10)?;              // Registered before anything is sent,
/// let other = mux.prepare()?.send(&20)?;            // so its reply is found, whenever it comes.
/// assert_eq!(one.join(Duration::from_secs(5))?[..], [20]);
/// assert_eq!(other.join(Duration::from_secs(5))?[..], [40]);
/// # server.join().unwrap()
/// # }
/// ```
///
/// It has no thread of its own. A caller that waits for a reply and finds the lead open reads for
/// all callers.
pub struct Mux<P: Protocol> {
    link: Arc<Link<P>>,
}

impl<P: Protocol> Mux<P> {
    /// Speaks `protocol` on this stream, which it makes non-blocking.
    ///
    /// # Errors
    /// What the system said. Both are given back.
    pub fn new<S: Stream>(stream: S, protocol: P) -> Result<Self, Rejected<(S, P)>> {
        Builder::new().build(stream, protocol)
    }

    /// Connects to `address`, now and at the first call after the connection was lost.
    ///
    /// # Errors
    /// It does not stand `within` that time. The protocol is given back.
    pub fn connect(
        address: SocketAddr,
        within: Duration,
        protocol: P,
    ) -> Result<Self, Rejected<P>> {
        Builder::new().connect(address, within, protocol)
    }

    /// Registers a call: the first of three steps. If the connection was lost, and it is known how
    /// to make another one, that is done first; threads that come meanwhile wait for the same
    /// attempt.
    ///
    /// # Errors
    /// There is no connection; or `QuotaExceeded`: so many calls are under way already (see
    /// [`Builder::calls`]). A call that was dropped counts until its reply is read, where replies
    /// come in order; with ids it gives way as long as there are other ids (see
    /// [`Protocol::ID_BITS`]). Before it refuses, this reads what has come, unless another thread
    /// does.
    pub fn prepare(&self) -> io::Result<Prepared<'_, P>> {
        self.link.ensure_connected(Patience::until(None))?;
        self.register()
    }

    /// Registers a call on the connection that there is.
    fn register(&self) -> io::Result<Prepared<'_, P>> {
        match self.link.register() {
            Some(key) => Ok(Prepared::new(&self.link, key)),
            None => Err(self.link.no_place()),
        }
    }

    /// Registers, sends and joins.
    ///
    /// # Errors
    /// Those of the three steps. A call whose time is over is forgotten. If the connection was lost
    /// and another thread makes it anew, this waits for that until the deadline (`TimedOut`). A
    /// thread that makes it itself is bound by what makes connections (see
    /// [`connect`](Self::connect)).
    pub fn call(
        &self,
        request: &P::Request,
        deadline: impl Into<Deadline>,
    ) -> io::Result<Reply<'_, P>> {
        let deadline = deadline.into().fixed();
        if self.is_lost() {
            let until = deadline.on(&self.link.clock);
            self.link.ensure_connected(Patience::until(until))?;
        }
        Ok(self.register()?.send(request)?.join(deadline)?)
    }

    /// As [`call`](Self::call), inside a handler: its thread serves its pool while it waits
    /// ([`Serve::Chain`]), if that pool reads this connection
    /// ([`Pool::attach`](crate::Pool::attach)). If none does, and while a lost connection is made
    /// anew, the thread is away meanwhile, as in [`Context::blocking`](crate::Context::blocking).
    ///
    /// # Errors
    /// As [`call`](Self::call), and those of [`Sent::join_in`](super::Sent::join_in): then the
    /// request was sent.
    pub fn call_in(
        &self,
        cx: &mut impl InHandler,
        request: &P::Request,
        deadline: impl Into<Deadline>,
    ) -> io::Result<Reply<'_, P>> {
        let deadline = deadline.into().fixed();
        if self.is_lost() {
            let until = deadline.on(&self.link.clock);
            self.link.connect_in(cx, until)?;
        }
        let call = self.register()?.send(request)?;
        Ok(call.join_in(cx, deadline, Serve::Chain)?)
    }

    pub(crate) fn attach(&self, registry: &Weak<Registry>) -> io::Result<()> {
        self.link.attach(registry)
    }

    /// Takes another stream in place of the lost one. Callers that waited on the old one got an
    /// error; none of them is moved to the new one.
    ///
    /// # Errors
    /// The stream is given back. `AlreadyExists`: there is a connection, or one is being made.
    /// `NotConnected`: this was closed for good. Or what the system said.
    pub fn reconnect<S: Stream>(&self, stream: S) -> Result<(), Rejected<S>> {
        let socket = match Socket::new(stream) {
            Ok(socket) => Arc::new(socket),
            Err((stream, error)) => return Err(Rejected::new(stream, attempted(&error))),
        };
        let line = Arc::clone(&socket) as Arc<dyn Line>;
        if let Err(line) = self.link.reconnect(line) {
            drop(line);
            let kind = if self.link.is_closed() {
                io::ErrorKind::NotConnected
            } else {
                io::ErrorKind::AlreadyExists
            };
            let stream = Arc::into_inner(socket).expect("nobody else has it");
            let text = "take another connection: there is one, or this was closed";
            return Err(Rejected::new(
                stream.into_stream(),
                io::Error::new(kind, text),
            ));
        }
        self.link.calls.counters.reconnects.add(1);
        Ok(())
    }

    /// Ends the connection for good. Every waiting caller gets an error.
    pub fn close(&self) {
        let error = io::Error::new(io::ErrorKind::NotConnected, "it was closed");
        self.link.end(End::Closed, "close", &error);
    }

    /// Whether the connection is known to be lost or closed: an end that no thread has read yet is
    /// not known.
    pub fn is_lost(&self) -> bool {
        self.link.is_lost()
    }

    /// Counters since it was made.
    pub fn snapshot(&self) -> Snapshot {
        self.link.calls.counters.snapshot()
    }

    /// The callers that use it at this moment. It reads the word of every call.
    pub fn callers(&self) -> Callers {
        self.link.callers()
    }

    /// What it speaks.
    pub fn protocol(&self) -> &P {
        &self.link.protocol
    }
}

impl<P: Protocol> Clone for Mux<P> {
    fn clone(&self) -> Self {
        Self {
            link: Arc::clone(&self.link),
        }
    }
}

impl<P: Protocol> fmt::Debug for Mux<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mux")
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// Makes a [`Mux`] with settings of its own.
#[derive(Clone, Debug)]
pub struct Builder {
    calls: u32,
    unsent: usize,
    longest_reply: usize,
    elect: Elect,
    leader_spin: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            calls: 1024,
            unsent: 1024 * 1024,
            longest_reply: 16 * 1024 * 1024,
            elect: Elect::Oldest,
            leader_spin: Duration::ZERO,
        }
    }
}

impl Builder {
    /// The settings if nothing is said.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many calls are under way at once (1024 if nothing is said). They take a part of
    /// the id's bits; at least one must be left. The fewer are left, the fewer calls may be dropped
    /// before the peer has answered them: `1 << ID_BITS` ids in all are used, and each only once
    /// until it is answered ([`Protocol::ID_BITS`]).
    pub fn calls(mut self, most: u32) -> Self {
        self.calls = most;
        self
    }

    /// At most so many bytes are kept that the socket does not take (1 MiB if nothing is said).
    pub fn unsent(mut self, most: usize) -> Self {
        self.unsent = most;
        self
    }

    /// A longer reply or message of the peer is taken for nonsense, and ends the connection (16 MiB
    /// if nothing is said).
    pub fn longest_reply(mut self, most: usize) -> Self {
        self.longest_reply = most;
        self
    }

    /// Which of the threads that sleep leads next.
    pub fn elect(mut self, elect: Elect) -> Self {
        self.elect = elect;
        self
    }

    /// Before the leader sleeps it looks again and again for so long (default: zero; where many
    /// replies come at once it looks twice in any case). It pays where the reply of a single caller
    /// comes within some ten microseconds, and a processor is there to be used for that.
    pub fn leader_spin(mut self, span: Duration) -> Self {
        self.leader_spin = span;
        self
    }

    /// Speaks `protocol` on this stream, which it makes non-blocking.
    ///
    /// # Errors
    /// What the system said, or `InvalidInput` if the settings can't be. Both are given back.
    pub fn build<S: Stream, P: Protocol>(
        self,
        stream: S,
        protocol: P,
    ) -> Result<Mux<P>, Rejected<(S, P)>> {
        let link = match self.link(protocol, None) {
            Ok(link) => link,
            Err((protocol, error)) => return Err(Rejected::new((stream, protocol), error)),
        };
        match Socket::new(stream) {
            Ok(socket) => {
                let begun = link.begin(Arc::new(socket));
                debug_assert!(begun.is_ok(), "it is new");
                Ok(Mux {
                    link: Arc::new(link),
                })
            }
            Err((stream, error)) => {
                let protocol = link.protocol.into_inner();
                Err(Rejected::new((stream, protocol), attempted(&error)))
            }
        }
    }

    /// Connects to `address`, now and after each loss.
    ///
    /// # Errors
    /// As [`Mux::connect`].
    pub fn connect<P: Protocol>(
        self,
        address: SocketAddr,
        within: Duration,
        protocol: P,
    ) -> Result<Mux<P>, Rejected<P>> {
        let connect = move || {
            let stream = TcpStream::connect_timeout(&address, within).map_err(|error| {
                io::Error::new(error.kind(), format!("connect to {address}: {error}"))
            })?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        self.connect_with(connect, protocol)
    }

    /// Connects to the Unix socket at `path`, now and after each loss.
    ///
    /// # Errors
    /// As [`connect_with`](Self::connect_with).
    pub fn connect_unix<P: Protocol>(
        self,
        path: impl Into<PathBuf>,
        protocol: P,
    ) -> Result<Mux<P>, Rejected<P>> {
        let path = path.into();
        let connect = move || {
            UnixStream::connect(&path).map_err(|error| {
                let path = path.display();
                io::Error::new(error.kind(), format!("connect to {path}: {error}"))
            })
        };
        self.connect_with(connect, protocol)
    }

    /// Connects as `connect` does, now and after each loss.
    ///
    /// # Errors
    /// What `connect` said, or `InvalidInput` if the settings can't be. The protocol is given back.
    pub fn connect_with<S: Stream, P: Protocol>(
        self,
        connect: impl Fn() -> io::Result<S> + Send + Sync + 'static,
        protocol: P,
    ) -> Result<Mux<P>, Rejected<P>> {
        let connect = Contained::new(connect);
        let connector: Connector = Box::new(move || {
            let socket = Socket::new(connect()?).map_err(|(_, error)| attempted(&error))?;
            Ok(Arc::new(socket) as Arc<dyn Line>)
        });
        let link = match self.link(protocol, Some(connector)) {
            Ok(link) => link,
            Err((protocol, error)) => return Err(Rejected::new(protocol, error)),
        };
        match link.connect_first() {
            Ok(()) => Ok(Mux {
                link: Arc::new(link),
            }),
            Err(error) => Err(Rejected::new(link.protocol.into_inner(), error)),
        }
    }

    fn link<P: Protocol>(
        self,
        protocol: P,
        connector: Option<Connector>,
    ) -> Result<Link<P>, (P, io::Error)> {
        let bounds = Bounds {
            calls: self.calls,
            unsent: self.unsent,
            longest_reply: self.longest_reply,
            elect: self.elect,
            leader_spin: self.leader_spin,
        };
        let mut link = Link::new(protocol, Clock::monotonic(), &bounds)?;
        link.connecting.connector = connector;
        Ok(link)
    }
}

fn attempted(error: &io::Error) -> io::Error {
    let text = format!("prepare a connection: {error}");
    io::Error::new(error.kind(), text)
}
