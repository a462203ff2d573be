//! The pool: joins promotion, handle set and dispatch, and owns the threads.
//!
//! It is the only room that knows all the others. What a thread does in it is told in `turn.rs`; how it
//! is built in `builder.rs`, who is in it in `crew.rs`, its own threads in `threads.rs`, how it ends in `shutdown.rs`,
//! what it tells about itself in `observation.rs`. What it can be given: any source (here), listeners (`listen.rs`),
//! outgoing connections (`connect.rs`), groups (`groups.rs`), posts and timers (`tasks.rs`), queues and semaphores
//! (`sources.rs`).

mod attach;
mod builder;
mod connect;
mod crew;
mod groups;
mod listen;
#[cfg(all(test, loom))]
mod models;
mod monitor;
mod observation;
mod set_kind;
mod shutdown;
mod sources;
mod tasks;
mod threads;
mod visits;
mod watch;

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

pub use self::{
    builder::Builder,
    listen::Listener,
    observation::Observation,
    set_kind::SetKind,
    shutdown::{ShutdownReport, Unfinished},
    tasks::{Timer, TimerGuard},
    threads::Threads,
};
use crate::{
    dispatch::{
        ConcurrentHandler, EventHandler, Handle, HandlerKind, Interest, Line, Registry, Rejected,
    },
    handle_set::Source,
    observe::{Counters, Observers},
    promotion::Lead,
    sync::{thread, Clock, Looks, Mutex, Timestamp},
    turn::{self, Follower, LeaderSpin, Left, Spins},
};
use crew::Crew;
pub(crate) use crew::Membership;
pub(crate) use listen::TakenOnBy;
use monitor::Monitor;
pub(crate) use shutdown::Ending;
use threads::Outfit;
pub(crate) use visits::{Visitor, Visits};
use watch::Watch;

/// A pool of threads that take turns at the front of one handle set.
///
/// Cloning it gives another handle to the same pool. When the last one is dropped the pool is shut
/// down at once, without waiting; see [`shutdown`](Self::shutdown) for the orderly way. Handlers that
/// need their pool hold a [`WeakPool`].
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Strong>,
}

impl Pool {
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

    /// Gives `source` to the pool, which makes it non-blocking and calls `handler` for what happens
    /// there. Anything with a descriptor that can be waited for will do.
    ///
    /// The pool owns the source from here on: it lends it to the handler, and drops it after
    /// [`EventHandler::closed`] was told.
    ///
    /// A [`Source`] is everything that implements [`AsFd`](std::os::fd::AsFd): it keeps its descriptor
    /// open for as long as it lives. A [`TcpStream`] must be one: a short read of it counts as having
    /// emptied it. (Safe code can make a `TcpStream` of another socket; wrap such a one in a type of
    /// your own.)
    ///
    /// # Errors
    /// Gives source and handler back if the descriptor is closed, can't be waited for (a regular file)
    /// or is registered already, or if the pool is shutting down.
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
        self.shared().registry.register(source, interest, handler)
    }

    /// As [`register`](Self::register), for a source that several threads may use at once without damage: one that takes
    /// and gives whole records, as a UDP socket does.
    ///
    /// The handle is not kept from others while its handler runs: with ten datagrams waiting, several threads receive
    /// them at once. There is no order among them.
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
        let registry = &self.shared().registry;
        registry.register_concurrent(source, interest, handler)
    }

    /// Accepts connections at `address` and registers each with the handler that `make` gives for it;
    /// `None` refuses the connection.
    ///
    /// Connections that are gone already, and a full descriptor table, do not stop it: what can't be
    /// served is accepted and closed, and counted.
    ///
    /// # Errors
    /// What binding to the address or registering the listener said.
    pub fn listen<A, F, H>(&self, address: A, make: F) -> io::Result<Listener>
    where
        A: ToSocketAddrs,
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<TcpStream>,
    {
        let here = listen::here(self.registry());
        self.listen_for(address, make, here)
    }

    /// The same; connections are given to this registry, or that.
    pub(crate) fn listen_for<A, F, H>(
        &self,
        address: A,
        make: F,
        to: TakenOnBy,
    ) -> io::Result<Listener>
    where
        A: ToSocketAddrs,
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<TcpStream>,
    {
        let shared = self.shared();
        let door = (&*shared.registry, &shared.counters);
        listen::listen(address, make, listen::alone, to, door)
    }

    /// As [`listen`](Self::listen), with a socket that listens already: one with options of its own, or one
    /// that was handed down.
    ///
    /// # Errors
    /// Gives back what it was given if the socket has no address, or as [`register`](Self::register).
    pub fn listen_on<F, H>(
        &self,
        listener: TcpListener,
        make: F,
    ) -> Result<Listener, Rejected<(TcpListener, F)>>
    where
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<TcpStream>,
    {
        let here = listen::here(self.registry());
        self.listen_on_for(listener, make, here)
    }

    /// The same; connections are given to this registry, or that.
    pub(crate) fn listen_on_for<F, H>(
        &self,
        listener: TcpListener,
        make: F,
        to: TakenOnBy,
    ) -> Result<Listener, Rejected<(TcpListener, F)>>
    where
        F: FnMut(&TcpStream, SocketAddr) -> Option<H> + Send + 'static,
        H: EventHandler<TcpStream>,
    {
        let shared = self.shared();
        let door = (&*shared.registry, &shared.counters);
        listen::listen_on(listener, make, listen::alone, to, door)
    }

    /// As [`listen`](Self::listen), at a path in the file system, which must not exist yet. It stays there
    /// when the handle is closed.
    ///
    /// # Errors
    /// What binding to the path or registering the listener said.
    pub fn listen_unix<F, H>(&self, path: impl AsRef<Path>, make: F) -> io::Result<Handle>
    where
        F: FnMut(&UnixStream) -> Option<H> + Send + 'static,
        H: EventHandler<UnixStream>,
    {
        let shared = self.shared();
        let here = listen::here(self.registry());
        let door = (&*shared.registry, &shared.counters);
        listen::listen_unix(path.as_ref(), make, here, door)
    }

    /// Lends the calling thread to the pool until it is shut down; returns at once if it is. It does not
    /// wait for a [`shutdown`](Self::shutdown) that runs elsewhere to return.
    ///
    /// # Errors
    /// What the wait itself said, or that this thread is inside one of the pool's own handlers.
    pub fn join(&self) -> io::Result<()> {
        self.shared().join(None).map(drop)
    }

    /// Lends the calling thread to the pool for `time`: one deadline for the whole call, in whatever
    /// role. It is looked at between roles; a handler is never interrupted.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_timeout(&self, time: Duration) -> io::Result<Left> {
        let shared = self.shared();
        shared.join(Some(shared.clock.now().after(time)))
    }

    /// Makes the calling thread a follower, to go through the roles by hand: see [`turn`].
    ///
    /// # Errors
    /// If the pool is shut down, or if this thread is inside one of the pool's own handlers.
    pub fn enter(&self) -> io::Result<Follower<'_>> {
        self.shared().enter(None, 0)
    }

    /// As [`enter`](Self::enter), with a priority for [`Order::Priority`](crate::Order::Priority).
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn enter_with(&self, priority: u8) -> io::Result<Follower<'_>> {
        self.shared().enter(None, priority)
    }

    /// As [`enter`](Self::enter), for at most `time`.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn enter_timeout(&self, time: Duration) -> io::Result<Follower<'_>> {
        let shared = self.shared();
        shared.enter(Some(shared.clock.now().after(time)), 0)
    }

    /// The threads that are in the pool now, its own and those that joined, in the order of entering: for
    /// [`Handle::pin_to`], which has an example.
    #[must_use]
    pub fn thread_ids(&self) -> Vec<thread::ThreadId> {
        self.shared().crew.thread_ids()
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
    /// let report = pool.handler_kind("GET /report").blocks(); // known from the start; others are learnt
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
        self.shared().registry.handler_kind(name)
    }

    /// Ends the pool, from anywhere, also from a handler, and says what was left undone.
    ///
    /// Listeners and idle handles close at once, the others as soon as what is ready was handled and
    /// kept output sent. What is left shortly before `within` has passed is closed and listed;
    /// threads that are still in a handler then are left alone and listed. A shutdown that is called
    /// from a handler does not wait for that handler. `closed` of what is left is told by the calling
    /// thread.
    ///
    /// From the beginning of a shutdown on, no close of a socket waits for its peer: the pool turns SO_LINGER off, and the
    /// kernel goes on sending what it has. (A linger time of zero, which asks for a reset, stays. The option belongs to the
    /// socket, so a duplicate of the descriptor loses it, too.)
    pub fn shutdown(&self, within: Duration) -> ShutdownReport {
        self.shared().shutdown(within)
    }

    /// The first step of a shutdown: nothing and nobody new from here on. Several pools that end together all begin before
    /// the first of them is waited for.
    pub(crate) fn begin_shutdown(&self, within: Duration) -> Ending {
        self.shared().begin_shutdown(within)
    }

    /// The others.
    pub(crate) fn finish_shutdown(&self, ending: &Ending) -> ShutdownReport {
        self.shared().finish_shutdown(ending)
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.shared().registry
    }

    /// A handle that does not keep the pool alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakPool {
        WeakPool(Arc::downgrade(&self.inner))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("lead", &self.shared().lead)
            .field("handles", &self.shared().registry.live())
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

/// Is told about errors of the wait on the pool's own threads, and about threads that could not be had.
type ErrorHook = Box<dyn Fn(&io::Error) + Send + Sync>;

/// What the user's handles to a pool share; the pool's threads do not have it.
#[derive(Debug)]
struct Strong {
    shared: Arc<Shared>,
}

impl Drop for Strong {
    fn drop(&mut self) {
        let _ = self.shared.shutdown(Duration::ZERO);
    }
}

/// What the threads of a pool share.
pub(crate) struct Shared {
    /// Who waits; and the line of handles that belongs to whoever does.
    pub(crate) lead: Arc<Lead<Line>>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) crew: Crew,
    /// The thread that watches for surprises.
    watch: Watch,
    /// Whether a leader that finds nothing looks again and again before it sleeps.
    pub(crate) leader_spin: LeaderSpin,
    /// Whether that pays, if it is to find out.
    pub(crate) spins: Spins,
    /// Whether a leader that finds nothing lets others run, and looks once more.
    pub(crate) looks: Looks,
    pub(crate) observers: Arc<Observers>,
    /// Who looks for stuck handlers, if anybody does.
    monitor: Option<Arc<Monitor>>,
    /// The threads that the pool spawned, by their index in the crew.
    threads: Mutex<Vec<(usize, thread::JoinHandle<()>)>>,
    /// What the pool's own threads begin with.
    outfit: Outfit,
    /// Errors of the wait on the pool's own threads, and of spawning them.
    errors: Mutex<Vec<io::Error>>,
    on_error: Option<ErrorHook>,
}

impl Shared {
    /// Whether nobody shall wait any more. The leader that finds everything drained closes the lead.
    pub(crate) fn is_over(&self) -> bool {
        if self.registry.is_drained() {
            self.lead.close();
        }
        self.lead.is_closed()
    }

    /// The same, or whether somebody observes, as one question.
    pub(crate) fn wants_attention(&self) -> bool {
        if self.registry.is_drained() {
            self.lead.close();
        }
        self.lead.wants_attention()
    }

    fn join(&self, deadline: Option<Timestamp>) -> io::Result<Left> {
        match self.lead.is_closed() {
            true => Ok(Left::Closing),
            false => turn::join(self.enter(deadline, 0)?),
        }
    }

    fn enter(&self, deadline: Option<Timestamp>, priority: u8) -> io::Result<Follower<'_>> {
        if self.registry.runs_here() {
            let text = "enter: this thread is inside a handler of the same pool";
            return Err(io::Error::new(io::ErrorKind::Deadlock, text));
        }
        if self.lead.is_closed() {
            let text = "enter: the pool is shut down";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        }
        let seat = self.crew.enlist(priority)?;
        let tray = turn::open_tray(self, &seat);
        self.name(seat.index(), thread::current().id(), tray.as_deref());
        let membership = self.crew.arrived(seat.index());
        Ok(Follower::new(self, seat, deadline, tray, Some(membership)))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("lead", &self.lead)
            .finish_non_exhaustive()
    }
}
