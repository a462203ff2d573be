//! Accepting connections, done for you.

use std::{
    fs::File,
    io,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use crate::{
    dispatch::{
        caught, Context, EventHandler, GroupHandler, Handle, Interest, Next, Registry, Rejected,
    },
    handle_set::{is_readable, Source},
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

pub(super) fn listen<A, F, H>(
    address: A,
    make: F,
    take_on: TakeOn<TcpStream, H>,
    to: TakenOnBy,
    door: Door<'_>,
) -> io::Result<Listener>
where
    A: ToSocketAddrs,
    F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
    H: 'static,
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
    Ok(listen_on(listener, make, take_on, to, door)?)
}

pub(super) fn listen_on<F, H>(
    listener: TcpListener,
    make: F,
    take_on: TakeOn<TcpStream, H>,
    to: TakenOnBy,
    door: Door<'_>,
) -> Result<Listener, Rejected<(TcpListener, F)>>
where
    F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
    H: 'static,
{
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => {
            let error = io::Error::new(error.kind(), format!("listen: {error}"));
            return Err(Rejected::new((listener, make), error));
        }
    };
    let handle = register(listener, make, take_on, to, door)?;
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
    to: TakenOnBy,
    door: Door<'_>,
) -> io::Result<Handle>
where
    F: FnMut(&UnixStream) -> Option<H> + Send + 'static,
    H: EventHandler<UnixStream>,
{
    let listener = UnixListener::bind(path).map_err(|error| {
        let text = format!("listen on {}: {error}", path.display());
        io::Error::new(error.kind(), text)
    })?;
    Ok(register(
        listener,
        move |stream, ()| make(stream),
        alone,
        to,
        door,
    )?)
}

fn register<L, F, H>(
    listener: L,
    make: F,
    take_on: TakeOn<L::Stream, H>,
    to: TakenOnBy,
    (registry, counters): Door<'_>,
) -> Result<Handle, Rejected<(L, F)>>
where
    L: Listening,
    F: FnMut(&L::Stream, L::Peer) -> Option<H> + Send + 'static,
    H: 'static,
{
    let acceptor = Acceptor {
        make,
        take_on,
        to,
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
struct Acceptor<F, S, H> {
    make: F,
    take_on: TakeOn<S, H>,
    to: TakenOnBy,
    counters: Arc<Counters>,
    spare: Spare,
}

/// Where a listener is, and who counts.
type Door<'r> = (&'r Registry, &'r Arc<Counters>);

/// The registry for the next connection, if there is one.
pub(crate) type TakenOnBy = Box<dyn Fn() -> Option<Arc<Registry>> + Send>;

/// Always this one.
pub(super) fn here(registry: &Arc<Registry>) -> TakenOnBy {
    let registry: Weak<Registry> = Arc::downgrade(registry);
    Box::new(move || registry.upgrade())
}

/// Registers a connection that was accepted with what was made for it.
type TakeOn<S, H> = fn(H, S, &Registry) -> io::Result<()>;

/// With a handler of its own.
pub(super) fn alone<S, H>(handler: H, stream: S, registry: &Registry) -> io::Result<()>
where
    S: Source,
    H: EventHandler<S>,
{
    registry.register_accepted(stream, handler)?;
    Ok(())
}

/// As the first member of a group.
pub(super) fn as_first_member<S, H>(handler: H, stream: S, registry: &Registry) -> io::Result<()>
where
    S: Source,
    H: GroupHandler<S>,
{
    let group = registry.group(handler)?;
    group.register_accepted(stream).map_err(|rejected| {
        // Nobody else knows of it.
        let _ = group.close();
        rejected.error
    })?;
    Ok(())
}

/// A listening socket of any family.
trait Listening: AsFd + Source {
    type Stream: Source;
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

impl<L, F, H> EventHandler<L> for Acceptor<F, L::Stream, H>
where
    L: Listening,
    F: FnMut(&L::Stream, L::Peer) -> Option<H> + Send + 'static,
    H: 'static,
{
    fn ready(&mut self, cx: &mut Context<'_, L>) -> io::Result<Next> {
        for _ in 0..BATCH {
            match cx.try_read(L::accept_one) {
                Ok((stream, peer)) => self.admit(cx, stream, peer),
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

    /// Who has waited long to be accepted is accepted all the same.
    fn expired(&mut self, cx: &mut Context<'_, L>, _: Duration) -> io::Result<Next> {
        self.ready(cx)
    }
}

impl<F, S, H> Acceptor<F, S, H> {
    /// Registers a connection with what is made for it. A maker that panics refuses this connection
    /// and no other.
    fn admit<L>(&mut self, cx: &Context<'_, L>, stream: S, peer: L::Peer)
    where
        L: Listening<Stream = S>,
        F: FnMut(&L::Stream, L::Peer) -> Option<H>,
    {
        self.counters.accepted.one_more();
        let made = caught(|| (self.make)(&stream, peer)).unwrap_or_else(|panic| {
            cx.tell_panic(&panic);
            None
        });
        // What is refused is counted before its peer is told: before it is dropped.
        let Some((handler, registry)) = made.zip((self.to)()) else {
            return self.counters.refused.one_more();
        };
        let taken = caught(|| {
            let taken = (self.take_on)(handler, stream, &registry);
            if taken.is_err() {
                self.counters.refused.one_more();
            }
            // What was not taken is dropped here, and may panic.
        });
        if let Err(panic) = &taken {
            cx.tell_panic(panic);
        }
    }

    /// The descriptor table is full: gives up the spare descriptor for long enough to accept one
    /// connection and close it, so that its peer is told and the line moves.
    ///
    /// # Errors
    /// "Would block" if nobody waits: a full table is told before an empty queue. The spare one stays where it is then: the
    /// less often it is given up, the less often somebody takes it.
    fn refuse_one<L: Listening>(&mut self, cx: &mut Context<'_, L>) -> io::Result<()> {
        cx.try_read(|listener| match is_readable(listener.as_fd().as_raw_fd()) {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })?;
        let accepted = {
            let _nobody_else_opens = GIVEN_UP.write().unwrap_or_else(PoisonError::into_inner);
            self.spare.release();
            let accepted = cx.try_read(L::accept_one).map(drop);
            self.spare = Spare::new();
            accepted
        };
        match accepted {
            // Counted when the spare one is back: who waits for the count may open what it likes.
            Ok(()) => {
                self.counters.refused.one_more();
                Ok(())
            }
            // Somebody took the descriptor first. The connection waits; so do we, for a moment.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                pause(cx);
                Ok(())
            }
            Err(nobody_waits) => Err(nobody_waits),
        }
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

/// Written while a listener has given up its spare descriptor: the pools themselves must not take it, or there would be
/// none to refuse with until another one is free, and connections would wait that long. (Whatever else opens descriptors
/// in this process may take it; then they do.)
static GIVEN_UP: RwLock<()> = RwLock::new(());

/// Opens a descriptor, which is not the spare one of a listener.
pub(super) fn beside_listeners<T>(open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _none_is_given_up = GIVEN_UP.read().unwrap_or_else(PoisonError::into_inner);
    open()
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
