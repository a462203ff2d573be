//! The handler of a listening socket.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    refusal::{Refusal, Spare},
    socket::ListenerSocket,
};
use crate::{
    dispatch::{
        Accepted, Context, EventHandler, GroupHandler, Handle, Next, OpenConnections, Provenance,
        Registry, Vacancy,
    },
    handle_set::{is_readable, Source},
    observe::Counters,
    unwind::caught,
};

/// How many connections are accepted before other handles have their turn.
const BATCH: usize = 16;

/// How long to pause when a connection can be neither accepted nor refused.
const PAUSE: Duration = Duration::from_millis(1);

/// The handler of a listening socket.
pub(super) struct Acceptor<F, S, H> {
    pub(super) make: F,
    pub(super) take_on: TakeOn<S, H>,
    pub(super) to: TakenOnBy,
    pub(super) open: Arc<OpenConnections>,
    pub(super) refusal: Refusal,
    pub(super) idle_timeout: Option<Option<Duration>>,
    pub(super) counters: Arc<Counters>,
    pub(super) spare: Spare,
}

/// The registry for the next connection, if there is one.
pub(crate) type TakenOnBy = Box<dyn Fn() -> Option<Arc<Registry>> + Send>;

/// Always this one.
pub(in crate::pool) fn here(registry: &Arc<Registry>) -> TakenOnBy {
    let registry: Weak<Registry> = Arc::downgrade(registry);
    Box::new(move || registry.upgrade())
}

/// Registers a connection that was accepted with what was made for it. Otherwise it returns the
/// stream, and the handler if nothing else has that.
pub(super) type TakeOn<S, H> = fn(S, H, Accepted, &Registry) -> Result<(), (S, Option<H>)>;

/// With a handler of its own.
pub(super) fn alone<S, H>(
    stream: S,
    handler: H,
    accepted: Accepted,
    registry: &Registry,
) -> Result<(), (S, Option<H>)>
where
    S: Source,
    H: EventHandler<S>,
{
    match registry.register_accepted(stream, handler, accepted) {
        Ok(_) => Ok(()),
        Err(rejected) => {
            let (stream, handler) = rejected.value;
            Err((stream, Some(handler)))
        }
    }
}

/// As the first member of a group.
pub(super) fn as_first_member<S, H>(
    stream: S,
    handler: H,
    accepted: Accepted,
    registry: &Registry,
) -> Result<(), (S, Option<H>)>
where
    S: Source,
    H: GroupHandler<S>,
{
    let group = match registry.group(handler) {
        Ok(group) => group,
        Err(rejected) => return Err((stream, Some(rejected.value))),
    };
    group
        .register_accepted(stream, accepted)
        .map_err(|rejected| {
            // The group has no other user.
            let _ = group.close();
            (rejected.value, None)
        })?;
    Ok(())
}

impl<L, F, H> EventHandler<L> for Acceptor<F, L::Stream, H>
where
    L: ListenerSocket,
    F: FnMut(&L::Stream, L::Address) -> Option<H> + Send + 'static,
    H: 'static,
{
    fn ready(&mut self, cx: &mut Context<'_, L>) -> io::Result<Next> {
        for _ in 0..BATCH {
            if self.waits_for_place(cx) {
                break;
            }
            match cx.try_read(L::accept_one) {
                Ok((stream, peer)) => self.receive(cx, stream, peer),
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

    /// A connection that has waited long in the backlog is accepted like any other.
    fn expired(&mut self, cx: &mut Context<'_, L>, _: Duration) -> io::Result<Next> {
        self.ready(cx)
    }

    fn moved(&mut self, listener: &Handle) {
        self.open.move_to(listener);
    }
}

impl<F, S: AsFd, H> Acceptor<F, S, H> {
    /// Whether all places are taken, and the next connections wait until one is free.
    fn waits_for_place<L>(&self, cx: &Context<'_, L>) -> bool {
        !self.refusal.is_said()
            && self.open.is_full()
            && self.open.wait_for_place(cx.handle()) == Vacancy::Awaited
    }

    /// A connection was accepted.
    fn receive<L>(&mut self, cx: &Context<'_, L>, stream: S, peer: L::Address)
    where
        L: ListenerSocket<Stream = S>,
        F: FnMut(&L::Stream, L::Address) -> Option<H>,
    {
        self.counters.accepted.one_more();
        if self.open.is_full() {
            return self.refuse(&stream);
        }
        let accepted = self.accepted(L::ip(&peer));
        let made = caught(|| (self.make)(&stream, peer)).unwrap_or_else(|panic| {
            cx.tell_panic(&panic);
            None
        });
        match made {
            Some(handler) => self.admit(cx, stream, handler, accepted),
            None => {
                self.note_refused();
                // A connection counts until its source is dropped.
                drop(stream);
                drop(accepted);
            }
        }
    }

    /// It takes a place.
    fn accepted(&self, peer: Option<SocketAddr>) -> Accepted {
        let place = self.open.admit(&self.counters);
        Accepted {
            provenance: Provenance::accepted(peer, place),
            idle_timeout: self.idle_timeout,
        }
    }

    /// Registers a connection with what was made for it.
    fn admit<L>(&self, cx: &Context<'_, L>, stream: S, handler: H, accepted: Accepted)
    where
        L: ListenerSocket<Stream = S>,
    {
        let take_on = || match (self.to)() {
            Some(registry) => (self.take_on)(stream, handler, accepted, &registry),
            None => Err((stream, Some(handler))),
        };
        match caught(take_on) {
            Ok(Ok(())) => {}
            Ok(Err((stream, handler))) => {
                self.refuse(&stream);
                drop(stream);
                // It may panic.
                caught(|| drop(handler)).unwrap_or_else(|panic| cx.tell_panic(&panic));
            }
            Err(panic) => {
                self.note_refused();
                cx.tell_panic(&panic);
            }
        }
    }

    fn note_refused(&self) {
        self.open.note_refused();
        self.counters.refused.one_more();
    }

    /// The caller drops the stream. A refused connection is counted before its peer can know.
    fn refuse(&self, stream: &impl AsFd) {
        self.note_refused();
        self.refusal.close(stream);
    }

    /// The descriptor table is full: gives up the spare descriptor for long enough to accept one
    /// connection and close it, so that its peer knows and the next one is first.
    ///
    /// # Errors
    /// "Would block" if no connection waits: the system reports a full table before an empty
    /// backlog. The spare one stays where it is then: the less often it is given up, the less often
    /// another thread takes it.
    fn refuse_one<L: ListenerSocket>(&mut self, cx: &mut Context<'_, L>) -> io::Result<()> {
        cx.try_read(|listener| {
            if is_readable(listener.as_fd().as_raw_fd()) {
                Ok(())
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            }
        })?;
        let refusal = &self.refusal;
        let accepted = self.spare.instead(|| {
            let accepted = cx.try_read(L::accept_one);
            accepted.map(|(stream, _)| refusal.close(&stream))
        });
        match accepted {
            // Counted when the spare one is back: a caller that waits for the count may open what
            // it likes.
            Ok(()) => {
                self.note_refused();
                Ok(())
            }
            // Another thread took the descriptor first. The connection waits; so does this thread,
            // for a moment.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                pause(cx);
                Ok(())
            }
            Err(nobody_waits) => Err(nobody_waits),
        }
    }
}

/// Pauses when a connection can be neither accepted nor refused; then other handles have their
/// turn.
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
