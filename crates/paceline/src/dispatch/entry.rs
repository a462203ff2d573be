//! A registration's contents behind one face: source, handler and kept output.

use std::{any::TypeId, io, net::TcpStream, os::fd::RawFd, sync::Arc};

use super::{
    context::{explained, is_refusal, Afterwards, Context, Lent, Origin},
    handler::{Closed, EventHandler, Next},
    kind::Kind,
    registry::End,
    unwind::caught,
};
use crate::handle_set::Ready;

/// What the registry knows of a registration, whatever its types. The methods that have a body are right for one without a
/// descriptor (`task.rs`).
pub(super) trait Entry: Send {
    /// What the set watches, if anything.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// How long handlers of this type usually take.
    fn kind(&self) -> &Kind;

    /// Does what the claimed readiness allows: sends kept output, calls the handler.
    fn work(&mut self, lent: Lent<'_>, origin: Origin<'_>, afterwards: &mut Afterwards) -> Done;

    /// It can't go on for this reason: to be told at its end.
    fn fail(&mut self, error: io::Error) {
        drop(error);
    }

    /// It is about to be taken out of the set: nobody arms it any more.
    fn leave_set(&self) {}

    /// How it wants to end, if it does.
    fn take_end(&mut self) -> Option<Closed> {
        None
    }

    /// Whether output is kept, and whether input shall be dispatched meanwhile.
    fn sending(&self) -> (bool, bool) {
        (false, false)
    }

    /// What is lost if it ends now.
    fn undone(&self) -> Undone;

    /// It is out of its slot. Gives everything to whoever is to end it: the caller, unless others still use it.
    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)>;
}

/// What is left of a registration at its end.
pub(super) trait Ending: Send {
    /// Tells the handler that this is the end.
    fn closed(&mut self, why: Closed) {
        drop(why);
    }

    /// Drops handler and source, in this order, each of which may panic.
    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2];
}

/// What is lost with a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    /// So many bytes of output that are kept.
    Output(usize),
    /// Posted work that was not done.
    Post,
    /// A timer that was not called.
    Timer,
    /// Nothing that anybody waits for.
    Nothing,
}

/// What shall become of a registration after a visit.
#[must_use]
#[derive(Debug)]
pub(super) enum Verdict {
    Keep,
    /// The handler panicked. What was claimed for it is put back.
    Panicked(String),
    Close(Closed),
    /// The pool has ended, and it was not done.
    CloseByForce,
}

/// What was done at a visit.
#[must_use]
#[derive(Debug)]
pub(super) struct Done {
    pub(super) verdict: Verdict,
    /// Whether the handler was called.
    pub(super) called: bool,
}

impl Done {
    pub(super) fn without_call(verdict: Verdict) -> Self {
        Self {
            verdict,
            called: false,
        }
    }
}

pub(super) struct Registered<S, H> {
    pub(super) source: S,
    pub(super) handler: H,
    /// As it was told at registration; a source is not asked again.
    descriptor: RawFd,
    outbox: Outbox<S>,
    /// The handler is to be told first that it is connected.
    greets: bool,
    /// The handler asked for the end; only kept output holds it up.
    finishing: bool,
    failure: Option<io::Error>,
    kind: Arc<Kind>,
}

impl<S: 'static, H> Registered<S, H> {
    pub(super) fn new(
        source: S,
        descriptor: RawFd,
        handler: H,
        output_limit: usize,
        kind: Arc<Kind>,
    ) -> Self {
        Self {
            source,
            handler,
            descriptor,
            outbox: Outbox::new(output_limit),
            greets: false,
            finishing: false,
            failure: None,
            kind,
        }
    }

    /// The handler is to be called before anything has happened.
    pub(super) fn greet(&mut self) {
        self.greets = true;
    }

    fn is_tcp() -> bool {
        TypeId::of::<S>() == TypeId::of::<TcpStream>()
    }
}

impl<S, H> Registered<S, H>
where
    S: Send + 'static,
    H: EventHandler<S>,
{
    /// Calls the handler and judges what it said.
    fn call(&mut self, lent: Lent<'_>, origin: Origin<'_>, afterwards: &mut Afterwards) -> Verdict {
        let mut cx = Context {
            source: &self.source,
            outbox: &mut self.outbox,
            lent,
            origin,
            afterwards,
        };
        let handler = &mut self.handler;
        let called = match std::mem::take(&mut self.greets) {
            true => caught(|| handler.connected(&mut cx)),
            false => caught(|| handler.ready(&mut cx)),
        };
        let told = match called {
            Ok(told) => told,
            Err(panic) => {
                cx.lent.settle_after_panic();
                return Verdict::Panicked(panic);
            }
        };
        let refused = cx.lent.refused;
        match told {
            Ok(Next::Again) => cx.lent.settle_and_ask_again(),
            _ => cx.lent.settle(),
        }
        match told {
            Ok(Next::Continue | Next::Again) => Verdict::Keep,
            Ok(Next::Close) => self.finish(),
            Err(error) if refused && is_refusal(&error) => Verdict::Keep,
            Err(error) => Verdict::Close(Closed::Failed(explained(error))),
        }
    }

    /// Closes now, or as soon as kept output is sent.
    fn finish(&mut self) -> Verdict {
        self.finishing = true;
        self.outbox.read_meanwhile = false;
        self.finished()
    }

    fn finished(&self) -> Verdict {
        match self.finishing && self.outbox.is_empty() {
            true => Verdict::Close(Closed::Finished),
            false => Verdict::Keep,
        }
    }
}

impl<S, H> Entry for Registered<S, H>
where
    S: Send + 'static,
    H: EventHandler<S>,
{
    fn descriptor(&self) -> Option<RawFd> {
        Some(self.descriptor)
    }

    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn work(
        &mut self,
        mut lent: Lent<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
    ) -> Done {
        lent.set_tcp(Self::is_tcp());
        if !self.outbox.is_empty() {
            if let Err(error) = self.outbox.flush(&self.source, &mut lent) {
                return Done::without_call(Verdict::Close(Closed::Failed(error)));
            }
        }
        // Room for output that was only waited for to send what was kept is not the handler's affair.
        let for_handler = match lent.seen.is_sending() {
            true => Ready::READABLE,
            false => Ready::READABLE | Ready::WRITABLE,
        };
        let for_handler = lent.may_call && lent.taken.has(for_handler);
        match (lent.notified || for_handler) && !self.finishing {
            true => Done {
                verdict: self.call(lent, origin, afterwards),
                called: true,
            },
            false => {
                lent.settle();
                Done::without_call(self.finished())
            }
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.failure = Some(error);
    }

    fn take_end(&mut self) -> Option<Closed> {
        self.failure.take().map(Closed::Failed)
    }

    fn sending(&self) -> (bool, bool) {
        (!self.outbox.is_empty(), self.outbox.read_meanwhile)
    }

    fn undone(&self) -> Undone {
        Undone::Output(self.outbox.len())
    }

    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)> {
        Some((self, end))
    }
}

impl<S, H> Ending for Registered<S, H>
where
    S: Send + 'static,
    H: EventHandler<S>,
{
    fn closed(&mut self, why: Closed) {
        self.handler.closed(why);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        // Apart: two panics in one unwinding would abort the process.
        let Self {
            source, handler, ..
        } = *self;
        [caught(|| drop(handler)), caught(|| drop(source))]
    }
}

/// Output that the descriptor did not take yet, bounded.
pub(super) struct Outbox<S> {
    kept: Vec<u8>,
    /// How much of `kept` is sent already.
    sent: usize,
    pub(super) limit: usize,
    pub(super) read_meanwhile: bool,
    /// How to write to the source; known since something was kept.
    write: fn(&S, &[u8]) -> io::Result<usize>,
}

impl<S> Outbox<S> {
    fn new(limit: usize) -> Self {
        Self {
            kept: Vec::new(),
            sent: 0,
            limit,
            read_meanwhile: false,
            write: |_, _| Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps `bytes` behind what is kept already.
    pub(super) fn keep(&mut self, bytes: &[u8], write: fn(&S, &[u8]) -> io::Result<usize>) {
        if bytes.is_empty() {
            return;
        }
        // Make room at the front first, so that no more than the limit is ever held.
        self.kept.drain(..self.sent);
        self.sent = 0;
        self.kept.extend_from_slice(bytes);
        self.write = write;
    }

    /// Sends what the descriptor takes now. The memory is given back when all is sent.
    fn flush(&mut self, source: &S, lent: &mut Lent<'_>) -> io::Result<()> {
        self.sent += lent.send(source, &self.kept[self.sent..], self.write)?;
        if !self.is_empty() {
            return Ok(());
        }
        self.kept = Vec::new();
        self.sent = 0;
        Ok(())
    }
}
