//! The user's references to a pool: [`Pool`] keeps it alive, [`WeakPool`] does not.

use std::{
    fmt, io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    listen::{self, Listener, ListenerBuilder},
    Builder, Ending, PoolClock, ShutdownReport,
};
use crate::{
    dispatch::{
        ConcurrentHandler, EventHandler, Handle, HandlerKind, Interest, Registry, Rejected,
    },
    handle_set::Source,
    hub::{Hub, PoolRef},
    turn::{Follower, Left},
};

/// A pool of threads that take turns at the front of one handle set.
///
/// A server begins with [`listen`](Self::listen). [`register`](Self::register) gives the pool any
/// other source, [`connect`](Self::connect) an outgoing connection, [`post`](Self::post),
/// [`after`](Self::after) and [`every`](Self::every) work to do. [`join`](Self::join) lends it the
/// calling thread, and [`shutdown`](Self::shutdown) ends it gracefully.
///
/// Families of operations are types of their own: the settings of the pool ([`Builder`]), of a
/// listener ([`listener`](Self::listener)) and of a thread that joins
/// ([`entrance`](Self::entrance)); queues, semaphores and signals ([`sources`](Self::sources));
/// what its threads do ([`inspect`](Self::inspect)).
///
/// A clone is another reference to the same pool. When the last one is dropped, the pool is shut
/// down at once, without waiting. A handler that needs its pool holds a [`WeakPool`].
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Strong>,
}

impl Pool {
    pub(super) fn of(hub: Arc<Hub>) -> Self {
        Self {
            inner: Arc::new(Strong { hub }),
        }
    }

    /// A pool with default settings: four threads per core, the adaptive wake, newest
    /// follower first.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// To choose settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Accepts connections at `address` and registers each with the handler that `make` returns for
    /// it. `make` gets the stream and the address of the peer; with `None` it refuses the
    /// connection.
    ///
    /// This is [`listener`](Self::listener) without settings: [`ListenerBuilder::bind`].
    ///
    /// ```
    /// use std::{io::{Read, Write}, net::{Shutdown, TcpStream}};
    /// use paceline::{Context, Next, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let listener = pool.listen("127.0.0.1:0", |_stream, _peer| {
    ///     Some(|cx: &mut Context<'_, TcpStream>| {
    ///         let mut buffer = [0; 64];
    ///         let count = cx.read(&mut buffer)?;
    ///         cx.write_all(&buffer[..count])?; // sent, or kept and sent later
    ///         Ok(if count == 0 { Next::Close } else { Next::Continue })
    ///     })
    /// })?;
    ///
    /// let mut client = TcpStream::connect(listener.local_addr())?;
    /// client.write_all(b"hello")?;
    /// client.shutdown(Shutdown::Write)?;
    /// let mut answer = String::new();
    /// client.read_to_string(&mut answer)?;
    /// assert_eq!(answer, "hello");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`ListenerBuilder::bind`].
    pub fn listen<A, F, H>(&self, address: A, make: F) -> io::Result<Listener>
    where
        A: ToSocketAddrs,
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<TcpStream>,
    {
        self.listener().bind(address, make)
    }

    /// To choose settings of a listener: how many connections it may have, what it says to those
    /// that it refuses, how long they may be idle. It listens at a TCP port, at a Unix socket, or
    /// on a socket that listens already.
    ///
    /// ```
    /// use std::{net::TcpStream, time::Duration};
    /// use paceline::{Context, Next, Pool};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let listener = pool
    ///     .listener()
    ///     .max_connections(10_000)
    ///     .refusal("too many connections\n")
    ///     .idle_timeout(Duration::from_secs(60))
    ///     .bind("127.0.0.1:0", |_, _| {
    ///         Some(|cx: &mut Context<'_, TcpStream>| {
    ///             let mut buffer = [0; 64];
    ///             let count = cx.read(&mut buffer)?;
    ///             cx.write_all(&buffer[..count])?;
    ///             Ok(if count == 0 { Next::Close } else { Next::Continue })
    ///         })
    ///     })?;
    /// assert_eq!(listener.connections(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn listener(&self) -> ListenerBuilder<'_> {
        ListenerBuilder::new(self, listen::here(self.registry()))
    }

    /// Gives `source` to the pool, which makes it non-blocking and calls `handler` for what happens
    /// there. Anything with a descriptor that can be waited for will do.
    ///
    /// The pool owns the source from here on: it lends it to the handler, and drops it after
    /// [`EventHandler::closed`] returned.
    ///
    /// A [`Source`] is everything that implements [`AsFd`](std::os::fd::AsFd): it keeps its
    /// descriptor open for as long as it lives. A [`TcpStream`] must be one: a short read of it
    /// counts as having emptied it. (Safe code can make a `TcpStream` of another socket; wrap such
    /// a one in a type of your own.)
    ///
    /// The close of a socket with SO_LINGER waits for its peer, also where the socket is
    /// non-blocking. While the pool runs, that blocks the thread that drops the source, as a
    /// handler that sleeps does: leave the option off, and let the handler end with
    /// [`Next::CloseGently`](crate::Next::CloseGently). (A [`shutdown`](Self::shutdown) turns the
    /// option off.)
    ///
    /// # Errors
    /// Returns source and handler. `AlreadyExists` if the descriptor is registered already,
    /// `PermissionDenied` if it can't be waited for (a regular file), `BrokenPipe` if the pool is
    /// shutting down, `QuotaExceeded` if every slot is taken. Otherwise the error of the system (a
    /// closed descriptor has no kind of its own): the source of the error
    /// ([`Error::source`](std::error::Error::source)) is that one, with its number.
    pub fn register<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source,
        H: EventHandler<S>,
    {
        self.hub().registry.register(source, interest, handler)
    }

    /// As [`register`](Self::register), for a source that several threads may use at once without
    /// damage: one that takes and gives whole records, as a UDP socket does.
    ///
    /// The handle is not kept from others while its handler runs: with ten datagrams waiting,
    /// several threads receive them at once. There is no order among them.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_concurrent<S, H>(
        &self,
        source: S,
        interest: Interest,
        handler: H,
    ) -> Result<Handle, Rejected<(S, H)>>
    where
        S: Source + Sync,
        H: ConcurrentHandler<S>,
    {
        let registry = &self.hub().registry;
        registry.register_concurrent(source, interest, handler)
    }

    /// Lends the calling thread to the pool until it is shut down; returns at once if it is. It
    /// does not wait for a [`shutdown`](Self::shutdown) that runs elsewhere to return.
    ///
    /// # Errors
    /// `Deadlock` if this thread is inside a handler of the same pool, `QuotaExceeded` if too many
    /// threads are in the pool. Otherwise the error of the wait itself.
    pub fn join(&self) -> io::Result<()> {
        self.entrance().join().map(drop)
    }

    /// As [`join`](Self::join), for at most `time`: see
    /// [`Entrance::timeout`](crate::Entrance::timeout).
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_timeout(&self, time: Duration) -> io::Result<Left> {
        self.entrance().timeout(time).join()
    }

    /// Makes the calling thread a follower, to go through the roles by hand: see
    /// [`turn`](crate::turn). [`entrance`](Self::entrance) gives it a priority, or a time.
    ///
    /// # Errors
    /// `BrokenPipe` if the pool is shut down, `Deadlock` if this thread is inside a handler of the
    /// same pool, `QuotaExceeded` if too many threads are in the pool.
    pub fn enter(&self) -> io::Result<Follower<'_>> {
        self.entrance().enter()
    }

    /// The kind of calls with this name, such as that of a route: for
    /// [`Context::begin_kind`](crate::Context::begin_kind) and [`EventHandler::kind`]. The same
    /// name gives the same kind. A name stays in memory as long as the process: take a kind for
    /// each route, not for each path.
    ///
    /// ```
    /// # use std::{io::{Read, Write}, os::unix::net::UnixStream, thread, time::Duration};
    /// # use paceline::{Context, Interest, Next, Pace, Pool};
    /// # let pool = Pool::builder().threads(2).build()?;
    /// # let (source, mut peer) = UnixStream::pair()?;
    /// let page = pool.handler_kind("GET /page");
    /// let report = pool.handler_kind("GET /report").blocks(); // known from the start
    /// assert_eq!((page.pace(), report.pace()), (Pace::Short, Pace::Blocking));
    /// let handler = move |cx: &mut Context<'_, UnixStream>| {
    ///     let mut request = [0];
    ///     cx.read(&mut request)?;
    ///     if request == *b"r" {
    ///         cx.begin_kind(&report); // another thread is woken now
    ///         thread::sleep(Duration::from_millis(1));
    ///     } else {
    ///         cx.begin_kind(&page);
    ///     }
    ///     cx.write_all(b".")?;
    ///     Ok(Next::Continue)
    /// };
    /// # pool.register(source, Interest::READ, handler)?;
    /// # peer.write_all(b"pr")?;
    /// # peer.read_exact(&mut [0; 2])?;
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn handler_kind(&self, name: &str) -> HandlerKind {
        self.hub().registry.handler_kind(name)
    }

    /// Ends the pool, from anywhere, also from a handler, and says what was left undone.
    ///
    /// Listeners and idle handles close at once, the others as soon as what is ready was handled
    /// and kept output sent. What is left shortly before `within` has passed is closed and listed;
    /// threads that are still in a handler then are left alone and listed. A shutdown that is
    /// called from a handler does not wait for that handler. The calling thread calls `closed` of
    /// what is left.
    ///
    /// From the beginning of a shutdown on, no close of a socket waits for its peer: the pool turns
    /// SO_LINGER off, and the kernel goes on sending what it has. (A linger time of zero, which
    /// asks for a reset, stays. The option belongs to the socket, so a duplicate of the descriptor
    /// loses it, too.)
    pub fn shutdown(&self, within: Duration) -> ShutdownReport {
        self.hub().shutdown(within)
    }

    /// The first step of a shutdown: no registration and no thread is accepted from here on.
    /// Several pools that end together all begin before the first of them is waited for.
    pub(crate) fn begin_shutdown(&self, within: Duration) -> Ending {
        self.hub().begin_shutdown(within)
    }

    /// The others.
    pub(crate) fn finish_shutdown(&self, ending: &Ending) -> ShutdownReport {
        self.hub().finish_shutdown(ending)
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.hub().registry
    }

    /// The clock by which this pool measures its times.
    #[must_use]
    pub fn clock(&self) -> PoolClock {
        PoolClock::new(self.hub().clock.clone())
    }

    /// A handle that does not keep the pool alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakPool {
        WeakPool(Arc::downgrade(&self.inner))
    }

    /// For threads that visit it.
    pub(crate) fn pool_ref(&self) -> PoolRef {
        PoolRef::new(self.hub())
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.inner.hub
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("lead", &self.hub().lead)
            .field("handles", &self.hub().registry.live())
            .finish_non_exhaustive()
    }
}

/// A handle to a [`Pool`] that does not keep it alive: for handlers, which the pool owns.
#[derive(Clone, Debug)]
pub struct WeakPool(Weak<Strong>);

impl WeakPool {
    /// The pool, if it still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Pool> {
        self.0.upgrade().map(|inner| Pool { inner })
    }
}

/// What the user's handles to a pool share; the pool's threads do not have it.
#[derive(Debug)]
struct Strong {
    hub: Arc<Hub>,
}

impl Drop for Strong {
    fn drop(&mut self) {
        let _ = self.hub.shutdown(Duration::ZERO);
    }
}
