//! Concurrent handles: several threads may use them at once (the paper's concurrent handle; UDP,
//! for one).
//!
//! ```text
//!   a byte stream:  claim, promote, call the handler, put the handle back
//!   here:           claim, promote, put the handle back, call the handler
//! ```
//!
//! A visit owns the handle only for the moment in which it takes its share: what is ready. A thread
//! that finds something puts the readiness back at once, so the next leader claims the same handle,
//! and calls the same handler (`&self`) at the same time.
//!
//! In a concurrent set the kernel reports to the next thread as soon as the first has received
//! something: see [`Share::owe`].
//!
//! A thread that finds nothing, and had not taken the readiness out of the word before, does that
//! and tries once more: what arrives later is an edge. The word belongs to a registration, not to a
//! thread, so each such step compares the generation.
//!
//! The registration ends when the last thread has left: that thread calls `closed`.

use std::{
    fmt, io,
    os::fd::RawFd,
    sync::{Arc, Weak},
};

use super::{
    claim::Duty,
    context::{Afterwards, Origin},
    entry::{Done, Ending, Entry, Undone, Verdict},
    handle::{Handle, HandleId, Key},
    handler::{Closed, Next},
    item_source::Ticket,
    kind::{HandlerKind, Kind},
    overdue::judge,
    readiness::Readiness,
    readiness_guard::{explained, is_refusal, ReadinessGuard},
    registry::{End, Registry},
};
use crate::{
    handle_set::Ready,
    sync::{lock, Mutex},
    unwind::caught,
};

/// The application's service for a handle that several threads may use at once.
///
/// A closure `Fn(&mut ConcurrentContext<'_, S>) -> io::Result<Next>` is one too.
pub trait ConcurrentHandler<S>: Send + Sync + 'static {
    /// Something that the handle is interested in may be done now. Other threads may be called for
    /// the same at the same time, so what was there may be gone: "would block" is nothing special.
    ///
    /// # Errors
    /// As of [`EventHandler::ready`](super::EventHandler::ready): an error closes the handle,
    /// "would block" of the lent source does not.
    fn ready(&self, cx: &mut ConcurrentContext<'_, S>) -> io::Result<Next>;

    /// The kind of its calls, if it is not that of its type: see
    /// [`Pool::handler_kind`](crate::Pool::handler_kind). Asked once.
    fn kind(&self) -> Option<HandlerKind> {
        None
    }

    /// The handle is closed, and no thread uses it any more. Called exactly once.
    fn closed(&self, why: Closed) {
        let _ = why;
    }
}

impl<S, F> ConcurrentHandler<S> for F
where
    F: Fn(&mut ConcurrentContext<'_, S>) -> io::Result<Next> + Send + Sync + 'static,
{
    fn ready(&self, cx: &mut ConcurrentContext<'_, S>) -> io::Result<Next> {
        self(cx)
    }
}

/// What a [`ConcurrentHandler`] gets: the source, which others may be using too.
pub struct ConcurrentContext<'c, S> {
    source: &'c S,
    registry: &'c Registry,
    key: Key,
    pub(super) duty: &'c dyn Duty,
    watched: &'c Watched,
    notified: bool,
    /// The readiness that was taken out of the word, and did not run dry.
    claimed: Ready,
    /// The last operation on the source returned "would block".
    refused: bool,
}

impl<S> fmt::Debug for ConcurrentContext<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrentContext")
            .field("handle", &HandleId::new(self.key))
            .field("notified", &self.notified)
            .finish_non_exhaustive()
    }
}

impl<S> ConcurrentContext<'_, S> {
    /// The source itself. What is read directly does not count as running dry: see
    /// [`try_read`](Self::try_read).
    #[must_use]
    pub fn source(&self) -> &S {
        self.source
    }

    /// This handle, to be kept or given to others.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Weak::clone(self.registry.weak()), self.key)
    }

    /// Whether this call was asked for: see [`Context::is_notified`](super::Context::is_notified).
    #[must_use]
    pub fn is_notified(&self) -> bool {
        self.notified
    }

    /// Does an input operation on the source. "Would block" means that nothing is there now.
    ///
    /// # Errors
    /// Whatever `operation` returns; an interrupted one is repeated.
    pub fn try_read<R>(&mut self, operation: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        self.attempt(Ready::READABLE, operation)
    }

    /// Does an output operation on the source. "Would block" means that it takes nothing now.
    ///
    /// # Errors
    /// Whatever `operation` returns; an interrupted one is repeated.
    pub fn try_write<R>(&mut self, operation: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        self.attempt(Ready::WRITABLE, operation)
    }

    /// Runs `block`, which may block: see [`Context::blocking`](super::Context::blocking).
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        self.duty.blocking(block)
    }

    /// Says that the rest will take long: see
    /// [`Context::wake_follower`](super::Context::wake_follower).
    pub fn wake_follower(&self) {
        self.duty.call_for_help();
    }

    /// Does `operation`; finds out whether `direction` ran dry. The readiness is taken out of the
    /// word before the attempt that decides: what comes later sets it anew. If that attempt brings
    /// something, it is put back, for the others.
    fn attempt<R>(
        &mut self,
        direction: Ready,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match operation(self.source) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.claimed.has(direction) {
                        self.claimed = self.claimed.without(direction);
                        self.pay(direction);
                        self.refused = true;
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    self.registry.clear_ready(self.key, direction);
                    self.claimed |= direction;
                }
                told => {
                    self.put_back(direction);
                    self.refused = false;
                    return told;
                }
            }
        }
    }
}

impl<S> ConcurrentContext<'_, S> {
    /// Puts back what was claimed and did not run dry.
    fn put_back(&mut self, directions: Ready) {
        let back = self.claimed & directions;
        if !back.is_empty() {
            if self.registry.is_open() {
                self.pay(back)
            } else {
                self.registry.restore_ready(self.key, back)
            }
            self.claimed = self.claimed.without(back);
        }
    }

    /// Has a concurrent set report what is there now.
    fn pay(&self, directions: Ready) {
        if self.registry.is_open() {
            self.registry.pay(self.key, self.watched, directions);
        }
    }
}

impl<S> Drop for ConcurrentContext<'_, S> {
    /// Also if the handler panics.
    fn drop(&mut self) {
        self.put_back(Ready::READABLE | Ready::WRITABLE);
    }
}

/// The descriptor of a concurrent handle, while its registration is in the set. A thread that arms
/// it without owning the handle holds this lock: after the end the number might be another
/// registration's.
type Watched = Mutex<Option<RawFd>>;

/// Source and handler, shared by all threads that use them at the same time.
struct Common<S, H> {
    source: S,
    handler: H,
    watched: Watched,
    kind: Arc<Kind>,
    /// How the handler wants it to end.
    wish: Mutex<Option<Closed>>,
    /// How it ends: known once it is out of its slot.
    end: Mutex<Option<End>>,
}

/// A concurrent handle, for a thread that uses it.
pub(super) trait Shared: Send + Sync {
    fn kind(&self) -> &Kind;

    /// Calls the handler. How it wants to go on, or why not.
    fn call(&self, share: &Share, registry: &Registry, duty: &dyn Duty) -> Result<Next, Closed>;

    /// How the handler wants the registration to end. Gives it back if another thread had a wish
    /// before.
    fn wish(&self, why: Closed) -> Option<Closed>;

    /// This thread does not use it any more. The last one gets everything, and how it ends.
    fn leave(self: Arc<Self>) -> Option<(Box<dyn Ending>, End)>;
}

impl<S, H> Shared for Common<S, H>
where
    S: Send + Sync + 'static,
    H: ConcurrentHandler<S>,
{
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn call(&self, share: &Share, registry: &Registry, duty: &dyn Duty) -> Result<Next, Closed> {
        let mut cx = ConcurrentContext {
            source: &self.source,
            registry,
            key: share.of,
            duty,
            watched: &self.watched,
            notified: share.notified,
            claimed: share.claimed,
            refused: false,
        };
        match self.handler.ready(&mut cx) {
            Ok(Next::Close | Next::CloseGently) => Err(Closed::Finished),
            Ok(next) => Ok(next),
            Err(error) if cx.refused && is_refusal(&error) => Ok(Next::Continue),
            Err(error) => Err(Closed::Failed(explained(error))),
        }
    }

    fn wish(&self, why: Closed) -> Option<Closed> {
        let mut wish = lock(&self.wish);
        match *wish {
            Some(_) => Some(why),
            None => {
                *wish = Some(why);
                None
            }
        }
    }

    fn leave(self: Arc<Self>) -> Option<(Box<dyn Ending>, End)> {
        let all = Arc::into_inner(self)?;
        let end = lock(&all.end).take();
        // The last thread leaves after the registration has left its slot.
        Some((Box::new(all), end?))
    }
}

impl<S, H> Ending for Common<S, H>
where
    S: Send + Sync + 'static,
    H: ConcurrentHandler<S>,
{
    fn closed(&mut self, why: Closed) {
        self.handler.closed(why);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        let Self {
            source,
            handler,
            wish,
            ..
        } = *self;
        // An error that is reported to no one; if it panics when it is dropped, that is not
        // reported either.
        let _ = caught(|| drop(wish));
        [caught(|| drop(handler)), caught(|| drop(source))]
    }
}

/// What a visit takes with it from a concurrent handle.
pub(crate) struct Share {
    pub(super) of: Key,
    pub(super) common: Arc<dyn Shared>,
    /// The readiness that was taken out of the word.
    claimed: Ready,
    pub(super) notified: bool,
    /// Of a store: the item that was claimed.
    item: Ticket,
}

impl Share {
    /// One item of a store, to be handled.
    pub(super) fn of_item(of: Key, common: Arc<dyn Shared>, item: Ticket) -> Self {
        Self {
            of,
            common,
            claimed: Ready::NONE,
            notified: false,
            item,
        }
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.item
    }

    /// In a concurrent set the kernel shall report what is left to other threads once this thread
    /// has taken its part: earlier, they would try for the same record. So what was claimed counts
    /// as armed, and is armed when the handler has used it: it is **owed**, and paid by
    /// [`Registry::pay`].
    pub(super) fn owe(&self, readiness: &Readiness) {
        readiness.arm(self.claimed);
    }
}

/// The registration of a concurrent handle.
pub(super) struct Concurrent<S, H> {
    common: Arc<Common<S, H>>,
    descriptor: RawFd,
    failure: Option<io::Error>,
}

impl<S, H> Concurrent<S, H> {
    pub(super) fn new(source: S, descriptor: RawFd, handler: H, kind: Arc<Kind>) -> Self {
        let common = Arc::new(Common {
            source,
            handler,
            watched: Mutex::new(Some(descriptor)),
            kind,
            wish: Mutex::new(None),
            end: Mutex::new(None),
        });
        Self {
            common,
            descriptor,
            failure: None,
        }
    }
}

impl<S, H> Entry for Concurrent<S, H>
where
    S: Send + Sync + 'static,
    H: ConcurrentHandler<S>,
{
    fn descriptor(&self) -> Option<RawFd> {
        Some(self.descriptor)
    }

    fn kind(&self) -> &Kind {
        &self.common.kind
    }

    /// Takes what is ready. The handle is put back, and then used.
    fn work(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
    ) -> Done {
        if guard.seen.is_special() && judge(&guard, &origin, Some(self.descriptor)).is_some() {
            guard.settle();
            return Done::without_call(Verdict::close(Closed::TimedOut));
        }
        if guard.seen.may_call() && !guard.is_quiet() {
            let common = Arc::clone(&self.common);
            afterwards.share = Some(Share {
                of: origin.key,
                common,
                notified: guard.is_notified(),
                claimed: guard.hand_over(),
                item: Ticket::NONE,
            });
        } else {
            guard.settle()
        }
        Done::without_call(Verdict::Keep)
    }

    fn fail(&mut self, error: io::Error) {
        self.failure = Some(error);
    }

    fn leave_set(&self) {
        lock(&self.common.watched).take();
    }

    fn take_end(&mut self) -> Option<Closed> {
        let failure = self.failure.take().map(Closed::Failed);
        failure.or_else(|| lock(&self.common.wish).take())
    }

    fn undone(&self) -> Undone {
        Undone::Output(0)
    }

    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)> {
        *lock(&self.common.end) = Some(end);
        let common: Arc<dyn Shared> = self.common;
        common.leave()
    }
}
