//! What an application holds of a registration: a key that goes stale, never astray.

use std::{
    fmt,
    hash::{Hash, Hasher},
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    handler::Interest,
    readiness::Stale,
    registry::{NotWaited, Registry},
};
pub(super) use crate::key::{HandleId, Key};
use crate::sync::thread::ThreadId;

/// A key to one registration, to ask things of it from anywhere. Cheap to clone; it may outlive the
/// registration, and the pool.
///
/// Everything here may be called from any thread, from the handle's own handler and from another's.
/// While a handler runs, a change is recorded and takes effect when the handler returns.
#[derive(Clone)]
pub struct Handle {
    registry: Weak<Registry>,
    key: Key,
}

impl Handle {
    pub(super) fn new(registry: Weak<Registry>, key: Key) -> Self {
        Self { registry, key }
    }

    /// Changes what the handle waits for. Readiness that came before is not lost.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn set_interest(&self, interest: Interest) -> io::Result<()> {
        self.ask("set_interest", |registry| {
            registry.set_interest(self.key, interest)
        })
    }

    /// Lets the handler be called no more until [`resume`](Self::resume), whatever happens (a call
    /// that is being made right now is made). What comes meanwhile is remembered, and kept output
    /// is sent.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn suspend(&self) -> io::Result<()> {
        self.ask("suspend", |registry| registry.set_suspended(self.key, true))
    }

    /// Lets the handler be called again, at once if something came meanwhile.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn resume(&self) -> io::Result<()> {
        self.ask("resume", |registry| registry.set_suspended(self.key, false))
    }

    /// Has the handler called once, whatever is ready: to announce that something was put where it
    /// looks. Several notifications before that call are one. Like input it waits while the handle
    /// is suspended, and while output is kept. No handler runs inside this call. If the
    /// registration ends before that call, there is none.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn notify(&self) -> io::Result<()> {
        self.ask("notify", |registry| registry.notify(self.key))
    }

    /// Its rank in a pool whose line is ordered by that
    /// ([`QueueOrder::Priority`](crate::QueueOrder::Priority)): higher ones are served first. Zero
    /// at first; in another pool it changes nothing. It holds from the next time that the handle is
    /// lined up, and goes with it to another level.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn set_priority(&self, priority: u8) -> io::Result<()> {
        self.ask("set_priority", |registry| {
            registry.set_priority(self.key, priority)
        })
    }

    /// Lets the handler be called by one of these threads, and by no other: for a state that stays
    /// on its thread, or a session that shall. Unpinned, as it is at first, a handle belongs to any
    /// thread.
    ///
    /// The leader that gets an event hands it to one of these threads, unless it is one itself: to
    /// one that sleeps, else to the first of them that ends what it does. That thread serves it
    /// before it leads again. So it costs a wake where another handle's event costs none; a pool
    /// without such handles pays next to nothing. An elastic pool keeps these threads.
    ///
    /// When none of them is in the pool any more, any thread may have it ([`Snapshot::strayed`]);
    /// when one comes back, it is that one's again. So is it while such a thread waits in
    /// [`Pool::shutdown`], which it called from a handler.
    ///
    /// It holds from the next event on: a call that was begun is made where it is. To be sure of
    /// the first, register it without interest, pin it, and then [set its
    /// interest](Self::set_interest). Any thread may call `closed`. It does not go with the handle
    /// to another level, whose threads are others.
    ///
    /// **Hazards.** An event waits for its thread, although other threads are free: behind a
    /// handler that takes long, and for as long as that thread waits with [`Serve::Nothing`]. (With
    /// the others it is served meanwhile.) So does the end of the handle while an event of it
    /// waits, and the drain of a pool. Time that it waits there counts for no age limit. A handler
    /// on such a thread that waits for work of a handle pinned to the same thread waits for ever.
    ///
    /// ```
    /// # use std::{io::Write, os::unix::net::UnixStream, sync::mpsc, thread};
    /// # use paceline::{Context, Interest, Next, Pool};
    /// let pool = Pool::builder().threads(4).build()?;
    /// let (source, mut peer) = UnixStream::pair()?;
    /// let (sender, receiver) = mpsc::channel();
    /// let handler = move |cx: &mut Context<'_, UnixStream>| {
    ///     let mut buffer = [0; 16];
    ///     while cx.read(&mut buffer).is_ok_and(|count| count > 0) {}
    ///     sender.send(thread::current().id()).ok();
    ///     Ok(Next::Continue)
    /// };
    /// let handle = pool.register(source, Interest::NONE, handler)?;
    /// let third = pool.inspect().thread_ids()[2];
    /// handle.pin_to(&[third])?;
    /// handle.set_interest(Interest::READ)?;
    /// peer.write_all(b"hello")?;
    /// assert_eq!(receiver.recv()?, third);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Snapshot::strayed`]: crate::observe::Snapshot::strayed
    /// [`Pool::shutdown`]: crate::Pool::shutdown
    /// [`Serve::Nothing`]: super::Serve::Nothing
    ///
    /// # Errors
    /// `NotFound` if the registration is over. `InvalidInput` if no thread is named, or one that is
    /// not in this pool ([`Inspect::thread_ids`](crate::Inspect::thread_ids)). `Unsupported` for a
    /// member of a group, for a handle that several threads use at once, and in a pool that can't
    /// name a thread: with a concurrent set, in the system's order, or with leaders that roam.
    /// Nothing is changed then.
    pub fn pin_to(&self, threads: &[ThreadId]) -> io::Result<()> {
        self.settle("pin_to", |registry| registry.pin_to(self.key, threads))
    }

    /// Lets the handler be called by the thread that called it last, for `span` after that call
    /// began, if that thread is free: if it sleeps when the event arrives, or leads. Otherwise the
    /// leader calls it, and is its thread from then on. So what that thread has in its caches may
    /// still be there, and nothing waits for it. It takes the place of [`pin_to`](Self::pin_to),
    /// and holds from the next call on.
    ///
    /// # Errors
    /// As [`pin_to`](Self::pin_to).
    pub fn prefer_last_thread(&self, span: Duration) -> io::Result<()> {
        self.settle("prefer_last_thread", |registry| {
            registry.stick(self.key, span)
        })
    }

    /// Lets any thread have it, as at first.
    ///
    /// # Errors
    /// As [`pin_to`](Self::pin_to).
    pub fn unpin(&self) -> io::Result<()> {
        self.settle("unpin", |registry| registry.unpin(self.key))
    }

    /// Sets the idle time-out of the handle: when its handler was not called for `idle`, nor any
    /// kept output sent, the pool calls [`EventHandler::overdue`](super::EventHandler::overdue),
    /// which by default closes the handle ([`Closed::TimedOut`](super::Closed::TimedOut)). `None`:
    /// it may be idle for ever, as it is at first (unless a listener has accepted it:
    /// [`Builder::idle_timeout`](crate::Builder::idle_timeout)). The time begins anew with this
    /// call and with the end of every call of the handler. A handle whose handler runs, or that is
    /// suspended, is not idle. It is measured in milliseconds, and costs a busy handle next to
    /// nothing. A peer that does a little now and then keeps its handle: see
    /// [`set_deadline`](Self::set_deadline).
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn set_timeout(&self, idle: Option<Duration>) -> io::Result<()> {
        self.ask("set_timeout", |registry| {
            registry.set_timeout(self.key, idle)
        })
    }

    /// Sets the deadline of the handle, `within` from now; `None`: it has none, as at first. Unlike
    /// the [idle time-out](Self::set_timeout) nothing that happens at the handle puts it off, so a
    /// peer that sends or reads a byte now and then does not outlive it. When it passes, the pool
    /// calls [`EventHandler::overdue`](super::EventHandler::overdue), which by default closes the
    /// handle.
    ///
    /// That call is also made while output is kept and while the handle has no interest. If the
    /// handler runs when the deadline passes, the call comes after that. While the handle is
    /// suspended the deadline goes on, and the call waits until the handle is resumed. The deadline
    /// goes with the handle to another group or level. It is measured in milliseconds, rounded up.
    /// A handler that sets one for each request uses
    /// [`Context::set_deadline`](super::Context::set_deadline), which takes no lock.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn set_deadline(&self, within: Option<Duration>) -> io::Result<()> {
        self.ask("set_deadline", |registry| {
            registry.set_deadline(self.key, within)
        })
    }

    /// Ends the registration: no event is dispatched after this returns (one that is being handled
    /// right now is handled to its end). The handler's [`closed`](super::EventHandler::closed) is
    /// called once: by this very call if the handle is idle, else by the thread that has it. So do
    /// not hold a lock here that the other handler's `closed` takes. A member of a group is always
    /// ended by a thread that leads.
    ///
    /// Called inside of `closed`, or of a destructor that runs at an end, it does not nest: this
    /// thread calls the other handler's `closed` as soon as the one that runs now is over. So
    /// handles may close each other in a chain of any length. To wait inside of `closed` for
    /// another handle's end, use [`close_and_wait`](Self::close_and_wait).
    ///
    /// # Errors
    /// `NotFound` if the registration is over, or its end was asked for already.
    pub fn close(&self) -> io::Result<()> {
        self.ask("close", |registry| registry.close(self.key))
    }

    /// As [`close`](Self::close), and returns after `closed` returned and handler and source are
    /// dropped, by whichever thread; also if another caller had asked for the end before.
    ///
    /// It may block: inside a handler, wrap it in [`Context::blocking`](super::Context::blocking).
    /// A handle that waits for its turn is ended by a thread that leads, so handlers that wait for
    /// each other's end, or on the only thread of a pool, wait for ever. Inside of `closed` it
    /// nests: each takes a part of the stack.
    ///
    /// # Errors
    /// `NotFound` if the registration is over. `Deadlock` from the handle's own handler, or its
    /// group's, or from a hook that is called for it: it can't end before they return. Nothing is
    /// closed then.
    pub fn close_and_wait(&self) -> io::Result<()> {
        let registry = self.registry.upgrade();
        match registry.map(|registry| registry.close_and_wait(self.key)) {
            Some(Ok(())) => Ok(()),
            None | Some(Err(NotWaited::Stale)) => Err(self.stale("close_and_wait")),
            Some(Err(NotWaited::InOwnHandler)) => {
                let id = self.id();
                let text = format!(
                    "close_and_wait: handle {id} can't end before its own handler or hook returns"
                );
                Err(io::Error::new(io::ErrorKind::Deadlock, text))
            }
        }
    }

    /// The name of this registration in reports.
    #[must_use]
    pub fn id(&self) -> HandleId {
        HandleId::new(self.key)
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn registry(&self) -> Option<Arc<Registry>> {
        self.registry.upgrade()
    }

    /// Its key, if it is of this registry.
    pub(super) fn key_in(&self, registry: &Registry) -> Option<Key> {
        std::ptr::eq(self.registry.as_ptr(), registry).then_some(self.key)
    }

    /// Asks something of the registration, if it is still there.
    fn ask(
        &self,
        attempted: &str,
        request: impl FnOnce(&Registry) -> Result<(), Stale>,
    ) -> io::Result<()> {
        match self.registry.upgrade().map(|registry| request(&registry)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.stale(attempted)),
        }
    }

    /// Sets which threads the registration belongs to.
    fn settle(
        &self,
        attempted: &str,
        request: impl FnOnce(&Registry) -> Result<(), (io::ErrorKind, String)>,
    ) -> io::Result<()> {
        let Some(registry) = self.registry.upgrade() else {
            return Err(self.stale(attempted));
        };
        request(&registry).map_err(|(kind, reason)| {
            let text = format!("{attempted}: handle {}: {reason}", self.id());
            io::Error::new(kind, text)
        })
    }

    fn stale(&self, attempted: &str) -> io::Error {
        let text = format!("{attempted}: handle {} is closed already", self.id());
        io::Error::new(io::ErrorKind::NotFound, text)
    }
}

/// The same registration of the same pool.
impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && Weak::ptr_eq(&self.registry, &other.registry)
    }
}

impl Eq for Handle {}

impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.id()).finish()
    }
}
