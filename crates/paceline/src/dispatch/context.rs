//! What a handler gets: its source on loan, and what the pool knows about it.

mod stream;

use std::{
    fmt,
    io::{self, Read},
    sync::Weak,
    time::Duration,
};

use super::{
    claim::Duty,
    concurrent::Share,
    handle::{Handle, HandleId, Key},
    handler::Next,
    kind::HandlerKind,
    outbox::Outbox,
    readiness_guard::ReadinessGuard,
    registry::Registry,
    task::TaskContext,
};
use crate::handle_set::Ready;

/// The lent source, and what is known of its readiness, for one call of a handler.
///
/// The source is lent in a way that knows whether it **ran dry**. Only then does the pool wait for
/// the next edge; a handler that stops earlier is called again after the others had their turn. So
/// edge-triggered readiness is never lost, whatever a handler does.
///
/// ```
/// use std::{io, net::TcpStream};
/// use paceline::{Context, Next};
///
/// /// A handler that sends everything back.
/// fn echo(cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
///     let mut buffer = [0; 4096];
///     let count = cx.read(&mut buffer)?; // what is there, never waiting
///     cx.write_all(&buffer[..count])?; // the pool keeps what the peer does not take now
///     Ok(if count == 0 { Next::Close } else { Next::Continue })
/// }
/// ```
pub struct Context<'c, S> {
    pub(super) source: &'c S,
    pub(super) outbox: &'c mut Outbox<S>,
    pub(super) guard: ReadinessGuard<'c>,
    pub(super) origin: Origin<'c>,
    pub(super) afterwards: &'c mut Afterwards,
}

impl<S> Context<'_, S> {
    /// Whether input, the end of the stream or an error is waiting.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.guard.known.has(Ready::READABLE)
    }

    /// Whether there is room for output.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.guard.known.has(Ready::WRITABLE)
    }

    /// Whether the peer has stopped sending, or an error is pending.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        self.guard.known.has(Ready::HANG_UP)
    }

    /// Whether this call was asked for: by [`Handle::notify`] or [`Next::Again`].
    #[must_use]
    pub fn is_notified(&self) -> bool {
        self.guard.is_notified()
    }

    /// This handle, to be kept or given to others.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Weak::clone(self.origin.registry), self.origin.key)
    }

    /// The source itself, for its addresses and options.
    ///
    /// What is read or written directly does not count as running dry: the handler will be called
    /// again. Use [`try_read`](Self::try_read) or [`try_write`](Self::try_write) for operations
    /// that may block.
    #[must_use]
    pub fn source(&self) -> &S {
        self.source
    }

    /// Does an input operation on the source. "Would block" means that it ran dry.
    ///
    /// # Errors
    /// Whatever `operation` returns; an interrupted one is repeated.
    pub fn try_read<R>(&mut self, operation: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        self.guard
            .attempt(Ready::READABLE, self.source, operation)
            .map_err(|error| self.guard.refusal(error))
            .inspect(|_| self.guard.note_read())
    }

    /// Does an output operation on the source. "Would block" means that it can take no more now.
    ///
    /// # Errors
    /// Whatever `operation` returns; an interrupted one is repeated.
    pub fn try_write<R>(&mut self, operation: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        self.guard
            .attempt(Ready::WRITABLE, self.source, operation)
            .map_err(|error| self.guard.refusal(error))
            .inspect(|_| self.guard.note_written())
    }

    /// Runs `block`, which may block: until it returns, this thread does not count as running, and
    /// if the lead has been open since this call of the handler began, the pool wakes a follower to
    /// lead. A blocking call without it costs a tick of the pool, or a few: see
    /// [`Builder::tick`](crate::Builder::tick).
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        self.origin.duty.blocking(block)
    }

    /// Says that the rest of this call will take long: if the lead has been open since it began,
    /// the pool wakes a follower to lead.
    pub fn wake_follower(&self) {
        self.origin.duty.call_for_help();
    }

    /// Says that the rest of this call is of this kind: for a handler that serves requests of
    /// several kinds, as soon as it knows which one this is. If calls of the kind usually block, or
    /// compute for long and there is a core, another thread is woken to lead, as
    /// [`wake_follower`](Self::wake_follower) does. How long the rest takes is learnt of the kind,
    /// and not of the handler's type. Said again, it begins another part.
    ///
    /// It costs two readings of the clock, and one allocation for the first one of a handle. See
    /// [`Pool::handler_kind`](crate::Pool::handler_kind), which has an example.
    pub fn begin_kind(&mut self, kind: &HandlerKind) {
        let duty = self.origin.duty;
        // What was before ends before another thread is woken, and the new part begins after that.
        let Some(before) = duty.now() else { return };
        duty.expect(kind.pace());
        let since = duty.now().unwrap_or(before);
        let last = self.outbox.part.take();
        let own_end = last.map_or(before, |part| part.end_all(before));
        self.outbox.part.put(kind.begin_part(own_end, since));
        self.guard.note_part();
    }

    /// Lets the handle go on in another registry when the handler returns what this gives.
    pub(crate) fn go_to(&mut self, to: &Weak<Registry>) -> io::Result<Next> {
        use io::ErrorKind::{BrokenPipe, InvalidInput};
        let here = self.origin.registry.upgrade();
        let refusal = match here.and_then(|here| here.cannot_leave(self.origin.key)) {
            Some(why) => Some((InvalidInput, why)),
            None => match to.upgrade() {
                None => Some((BrokenPipe, "the pool that it is to go to is gone")),
                Some(to) if !to.is_accepting() => {
                    Some((BrokenPipe, "the pool that it is to go to is shutting down"))
                }
                Some(_) => None,
            },
        };
        if let Some((kind, why)) = refusal {
            let handle = HandleId::new(self.origin.key);
            return Err(io::Error::new(kind, format!("move handle {handle}: {why}")));
        }
        self.outbox.goes_to = Some(Weak::clone(to));
        Ok(Next::Move)
    }

    /// How long what is ready has waited, if that was too long; counts it.
    pub(super) fn age(&self) -> Duration {
        let registry = self.origin.registry.upgrade();
        registry.map_or(Duration::ZERO, |it| it.note_expired(self.origin.key))
    }

    /// The context of a handler that is called for an item.
    pub(crate) fn as_task(&mut self) -> TaskContext<'_> {
        TaskContext::new(self.origin.duty)
    }

    /// The thread that runs this handler.
    pub(super) fn on_duty(&self) -> &dyn Duty {
        self.origin.duty
    }

    /// Reports a panic of user code that was caught on behalf of this handle.
    pub(crate) fn tell_panic(&self, panic: &str) {
        if let Some(registry) = self.origin.registry.upgrade() {
            // This is inside the frame that has the handle.
            registry.tell_panic_in(None, self.origin.key, panic);
        }
    }

    /// Runs `work` on this thread after [`ready`](super::EventHandler::ready) has returned and the
    /// pool has released the handle. From then on another thread may handle the next event of this
    /// handle. The pool runs several pieces of work in the order in which they were given, and
    /// drops them if the handler panics.
    ///
    /// The work may [block](TaskContext::blocking), or wait for a reply and serve the pool
    /// meanwhile ([`InHandler`](super::InHandler)).
    pub fn after_release(&mut self, work: impl FnOnce(&mut TaskContext<'_>) + 'static) {
        self.afterwards.work.push(Box::new(work));
    }

    /// How many bytes of output are kept because the descriptor did not take them yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// How many more bytes of output may be kept now: a write of so many is taken whole.
    #[must_use]
    pub fn output_room(&self) -> usize {
        self.outbox.room()
    }

    /// Whether to dispatch input also while output is kept. Usually it is not, so that a peer which
    /// does not read can't make us keep more and more.
    pub fn read_while_sending(&mut self, on: bool) {
        self.outbox.read_meanwhile = on;
    }
}

impl<S> Context<'_, S>
where
    for<'s> &'s S: Read,
{
    /// Reads what is there. `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// "Would block" if there is nothing more now, or if this call has read its share (64 KiB by
    /// default): then the handler is called again after the others had their turn. Let `?` pass it
    /// on. `InvalidInput` if `buffer` is empty: its `Ok(0)` would look like the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            let text =
                "read into an empty buffer: nothing would be told from the end of the stream";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if self.guard.budget == 0 {
            return Err(self.guard.refuse());
        }
        let room = buffer.len().min(self.guard.budget);
        let count = self.try_read(|mut source| source.read(&mut buffer[..room]))?;
        self.guard.budget -= count.min(self.guard.budget);
        if self.guard.is_dry_after(count, room) {
            self.guard.mark_dry(Ready::READABLE);
            // What was not claimed is read again, by the visit that it is for.
            let is_mine = self.guard.taken.has(Ready::READABLE);
            let has_ended = count == 0 && self.is_hung_up() && is_mine;
            self.guard.note_input_ended(has_ended);
        }
        Ok(count)
    }
}

impl<S> fmt::Debug for Context<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("handle", &HandleId::new(self.origin.key))
            .field("ready", &self.guard.known)
            .field("unsent", &self.outbox.len())
            .finish_non_exhaustive()
    }
}

/// Work for after the handle was given back.
pub(super) type Work = Box<dyn FnOnce(&mut TaskContext<'_>)>;

/// What a handler wants to be done after its handle was given back.
pub(crate) struct Afterwards {
    /// Whose handler it was.
    pub(super) of: Key,
    /// Of a concurrent handle: what was taken from it.
    pub(super) share: Option<Share>,
    pub(super) work: Vec<Work>,
}

impl Afterwards {
    pub(super) fn nothing(of: Key) -> Self {
        Self {
            of,
            share: None,
            work: Vec::new(),
        }
    }

    /// Whether there is nothing to do, nor to drop: a turn forgets it then (see
    /// `Registry::drop_afterwards`, which empties it).
    pub(crate) fn is_empty(&self) -> bool {
        self.work.capacity() == 0 && self.share.is_none()
    }

    /// Whether the handler itself is yet to be called: that of a concurrent handle.
    pub(crate) fn has_the_call(&self) -> bool {
        self.share.is_some()
    }
}

/// Which registration a visit is for, and on whose behalf; a handle is made of it only on demand.
#[derive(Clone, Copy)]
pub(super) struct Origin<'c> {
    pub(super) registry: &'c Weak<Registry>,
    pub(super) key: Key,
    pub(super) duty: &'c dyn Duty,
}
