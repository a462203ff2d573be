//! Accepting connections, done for you.

use std::{
    fs::File,
    io,
    marker::PhantomData,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    dispatch::{
        caught, Context, EventHandler, GroupHandler, Handle, Interest, Next, Registry, Rejected,
    },
    observe::Counters,
};

/// How many connections are accepted before other handles have their turn.
const BATCH: usize = 16;

/// How many connections may wait to be accepted.
const BACKLOG: libc::c_int = 4096;

/// How long to pause when a connection can be neither accepted nor refused.
const PAUSE: Duration = Duration::from_millis(1);

/// A listening socket in a pool. Dropping it changes nothing; [`close`](Handle::close) its handle to
/// stop listening.
#[derive(Clone, Debug)]
pub struct Listener {
    handle: Handle,
    address: SocketAddr,
}

impl Listener {
    /// The address that clients connect to, with the port that the system chose if it was zero.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Its handle in the pool.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

pub(super) fn listen<R, A, F, H>(
    address: A,
    make: F,
    registry: &Arc<Registry>,
    counters: &Arc<Counters>,
) -> io::Result<Listener>
where
    A: ToSocketAddrs,
    F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
    H: 'static,
    R: Admission<TcpStream, H>,
{
    let addresses: Vec<_> = address
        .to_socket_addrs()
        .map_err(|error| io::Error::new(error.kind(), format!("listen: {error}")))?
        .collect();
    let listener = TcpListener::bind(&*addresses).map_err(|error| {
        let text = format!("listen on {addresses:?}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    raise_backlog(&listener);
    Ok(listen_on::<R, _, _>(listener, make, registry, counters)?)
}

pub(super) fn listen_on<R, F, H>(
    listener: TcpListener,
    make: F,
    registry: &Arc<Registry>,
    counters: &Arc<Counters>,
) -> Result<Listener, Rejected<(TcpListener, F)>>
where
    F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
    H: 'static,
    R: Admission<TcpStream, H>,
{
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => {
            let error = io::Error::new(error.kind(), format!("listen: {error}"));
            return Err(Rejected::new((listener, make), error));
        }
    };
    let handle = register::<R, _, _, _>(listener, make, registry, counters)?;
    Ok(Listener { handle, address })
}

/// Lets more connections wait to be accepted than std does (128): who finds the queue full tries again
/// after a second. The system has a limit of its own.
fn raise_backlog(listener: &TcpListener) {
    // SAFETY: no pointer is passed; the descriptor is open as long as `listener` lives.
    unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
}

pub(super) fn listen_unix<F, H>(
    path: &Path,
    mut make: F,
    registry: &Arc<Registry>,
    counters: &Arc<Counters>,
) -> io::Result<Handle>
where
    F: FnMut(&UnixStream) -> Option<H> + Send + 'static,
    H: EventHandler<UnixStream>,
{
    let listener = UnixListener::bind(path).map_err(|error| {
        let text = format!("listen on {}: {error}", path.display());
        io::Error::new(error.kind(), text)
    })?;
    Ok(register::<Alone, _, _, _>(
        listener,
        move |stream, ()| make(stream),
        registry,
        counters,
    )?)
}

fn register<R, L, F, H>(
    listener: L,
    make: F,
    registry: &Arc<Registry>,
    counters: &Arc<Counters>,
) -> Result<Handle, Rejected<(L, F)>>
where
    L: Listening,
    F: FnMut(&L::Stream, L::Peer) -> Option<H> + Send + 'static,
    H: 'static,
    R: Admission<L::Stream, H>,
{
    let acceptor = Acceptor {
        make,
        admission: PhantomData::<fn() -> R>,
        registry: Arc::downgrade(registry),
        counters: Arc::clone(counters),
        spare: Spare::new(),
    };
    let registered = registry.register(listener, Interest::READ, acceptor);
    registered.map_err(|rejected| {
        let (listener, acceptor) = rejected.value;
        Rejected::new((listener, acceptor.make), rejected.error)
    })
}

/// The handler of a listening socket.
struct Acceptor<R, F> {
    make: F,
    /// How.
    admission: PhantomData<fn() -> R>,
    registry: Weak<Registry>,
    counters: Arc<Counters>,
    spare: Spare,
}

/// How a connection that was accepted is registered with what was made for it.
pub(super) trait Admission<S, H>: Send + 'static {
    fn take_on(handler: H, stream: S, registry: &Registry) -> io::Result<()>;
}

/// With a handler of its own.
pub(super) struct Alone;

impl<S, H> Admission<S, H> for Alone
where
    S: AsRawFd + Send + 'static,
    H: EventHandler<S>,
{
    fn take_on(handler: H, stream: S, registry: &Registry) -> io::Result<()> {
        registry.register(stream, Interest::READ, handler)?;
        Ok(())
    }
}

/// As the first member of a group.
pub(super) struct FirstMember;

impl<S, H> Admission<S, H> for FirstMember
where
    S: AsRawFd + Send + 'static,
    H: GroupHandler<S>,
{
    fn take_on(handler: H, stream: S, registry: &Registry) -> io::Result<()> {
        let group = registry.group(handler)?;
        let registered = group.register(stream, Interest::READ);
        registered.map_err(|rejected| {
            // Nobody else knows of it.
            let _ = group.close();
            rejected.error
        })?;
        Ok(())
    }
}

/// A listening socket of any family.
trait Listening: AsRawFd + Send + 'static {
    type Stream: AsRawFd + Send + 'static;
    type Peer;

    fn accept_one(&self) -> io::Result<(Self::Stream, Self::Peer)>;
}

impl Listening for TcpListener {
    type Stream = TcpStream;
    type Peer = SocketAddr;

    fn accept_one(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept()
    }
}

impl Listening for UnixListener {
    type Stream = UnixStream;
    type Peer = ();

    fn accept_one(&self) -> io::Result<(UnixStream, ())> {
        self.accept().map(|(stream, _)| (stream, ()))
    }
}

impl<R, L, F, H> EventHandler<L> for Acceptor<R, F>
where
    L: Listening,
    F: FnMut(&L::Stream, L::Peer) -> Option<H> + Send + 'static,
    H: 'static,
    R: Admission<L::Stream, H>,
{
    fn ready(&mut self, cx: &mut Context<'_, L>) -> io::Result<Next> {
        for _ in 0..BATCH {
            match cx.try_read(L::accept_one) {
                Ok((stream, peer)) => self.admit::<L, H>(cx, stream, peer),
                Err(error) => match Failure::of(&error) {
                    Failure::OfOneConnection => self.counters.aborted.one_more(),
                    Failure::NoDescriptor => self.refuse_one(cx)?,
                    Failure::NoMemory => return Ok(pause(cx)),
                    Failure::Lasting => return Err(error),
                },
            }
        }
        Ok(Next::Continue)
    }
}

impl<R, F> Acceptor<R, F> {
    /// Registers a connection with a handler of its own. A maker that panics refuses this connection
    /// and no other.
    fn admit<L, H>(&mut self, cx: &Context<'_, L>, stream: L::Stream, peer: L::Peer)
    where
        L: Listening,
        F: FnMut(&L::Stream, L::Peer) -> Option<H>,
        R: Admission<L::Stream, H>,
    {
        self.counters.accepted.one_more();
        let made = caught(|| (self.make)(&stream, peer)).unwrap_or_else(|panic| {
            cx.tell_panic(&panic);
            None
        });
        let admitted = made
            .zip(self.registry.upgrade())
            .map(|(handler, registry)| {
                // What is refused is dropped here, and may panic too.
                caught(|| R::take_on(handler, stream, &registry).is_ok())
            });
        if let Some(Err(panic)) = &admitted {
            cx.tell_panic(panic);
        }
        if !matches!(admitted, Some(Ok(true))) {
            self.counters.refused.one_more();
        }
    }

    /// The descriptor table is full: gives up the spare descriptor for long enough to accept one
    /// connection and close it, so that its peer is told and the line moves.
    ///
    /// # Errors
    /// "Would block" if nobody waits: a full table is told before an empty queue.
    fn refuse_one<L: Listening>(&mut self, cx: &mut Context<'_, L>) -> io::Result<()> {
        self.spare.release();
        let accepted = cx.try_read(L::accept_one);
        let told = match accepted {
            Ok(refused) => {
                drop(refused);
                self.counters.refused.one_more();
                Ok(())
            }
            // Somebody took the descriptor first. The connection waits; so do we, for a moment.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                pause(cx);
                Ok(())
            }
            Err(nobody_waits) => Err(nobody_waits),
        };
        self.spare = Spare::new();
        told
    }
}

/// Pauses when a connection can be neither accepted nor refused; then it is the others' turn.
fn pause<L>(cx: &mut Context<'_, L>) -> Next {
    cx.blocking(|| std::thread::sleep(PAUSE));
    Next::Continue
}

/// What a failed accept says about the listener.
enum Failure {
    /// The connection is gone; the next one may be fine (accept(2) lists these).
    OfOneConnection,
    NoDescriptor,
    NoMemory,
    /// Also "would block", which the pool understands.
    Lasting,
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Self::NoDescriptor,
            Some(libc::ENOMEM | libc::ENOBUFS) => Self::NoMemory,
            Some(
                libc::ECONNABORTED
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH,
            ) => Self::OfOneConnection,
            _ => Self::Lasting,
        }
    }
}

/// A descriptor held back for the moment when there are no others.
struct Spare(Option<File>);

impl Spare {
    fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    fn release(&mut self) {
        self.0 = None;
    }
}
