//! One descriptor of a registration: its source, output that it did not take yet, and a call of the handler with both.

use std::{
    any::TypeId,
    io,
    net::TcpStream,
    os::fd::RawFd,
    sync::{Arc, Weak},
};

use super::{
    context::{explained, is_refusal, Afterwards, Context, Lent, Origin},
    entry::{Done, Verdict},
    handler::{Closed, Next},
    provenance::Provenance,
    registry::Registry,
    unwind::caught,
};
use crate::{handle_set::Ready, observe::Counters};

pub(super) struct Channel<S> {
    /// Before its provenance, so that a connection counts until its source is dropped.
    source: S,
    provenance: Option<Box<Provenance>>,
    /// As it was told at registration; a source is not asked again.
    descriptor: RawFd,
    outbox: Outbox<S>,
    /// The handler asked for the end; only kept output holds it up.
    finishing: bool,
    /// How it is to end, when its end was asked for. In a box, because it is rare.
    end: Option<Box<Closed>>,
}

/// What a handler is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It is there: before everything else.
    Greet,
    /// Something may be done.
    Ready,
}

/// Another registry, in which a handler wants to go on.
pub(super) type Destination = Weak<Registry>;

impl<S: 'static> Channel<S> {
    pub(super) fn new(
        source: S,
        provenance: Option<Box<Provenance>>,
        descriptor: RawFd,
        output_limit: usize,
    ) -> Self {
        Self {
            source,
            provenance,
            descriptor,
            outbox: Outbox::new(output_limit),
            finishing: false,
            end: None,
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    pub(super) fn into_source(self) -> (S, Option<Box<Provenance>>) {
        (self.source, self.provenance)
    }

    /// Where its source comes from, if that is known.
    pub(super) fn provenance(&self) -> Option<&Provenance> {
        self.provenance.as_deref()
    }

    /// It goes on in a pool with this limit of output, and counts there.
    pub(super) fn settle_in(&mut self, output_limit: usize, counters: &Arc<Counters>) {
        self.outbox.limit = output_limit;
        if let Some(provenance) = &mut self.provenance {
            provenance.count_in(counters);
        }
    }

    /// Where its handler wants to go on, if it has said so.
    pub(super) fn take_destination(&mut self) -> Option<Destination> {
        self.outbox.goes_to.take()
    }

    /// How much output is kept.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Whether output is kept, and whether input shall be dispatched meanwhile.
    pub(super) fn sending(&self) -> (bool, bool) {
        (!self.outbox.is_empty(), self.outbox.read_meanwhile)
    }

    /// It can't go on for this reason: to be told at its end.
    pub(super) fn fail(&mut self, error: io::Error) {
        self.end = Some(Box::new(Closed::Failed(error)));
    }

    /// It has done what it was there for: likewise.
    pub(super) fn end_as_finished(&mut self) {
        self.end = Some(Box::new(Closed::Finished));
    }

    pub(super) fn take_end(&mut self) -> Option<Closed> {
        self.end.take().map(|end| *end)
    }

    /// It is to be closed when all is sent. The handler is not called any more.
    pub(super) fn finish(&mut self) {
        self.finishing = true;
        self.outbox.read_meanwhile = false;
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.finishing
    }

    /// Does what the claimed readiness allows: sends kept output, and makes the `call`.
    pub(super) fn work(
        &mut self,
        mut lent: Lent<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        call: impl FnOnce(&mut Context<'_, S>, Call) -> io::Result<Next>,
    ) -> Done {
        lent.set_tcp(Self::is_tcp());
        if !self.outbox.is_empty() {
            if let Err(error) = self.outbox.flush(&self.source, &mut lent) {
                return Done::without_call(Verdict::close(Closed::Failed(error)));
            }
        }
        match self.due_call(&lent) {
            Some(what) => Done {
                verdict: self.call(lent, origin, afterwards, |cx| call(cx, what), what),
                called: true,
            },
            None => {
                lent.settle();
                Done::without_call(self.finished())
            }
        }
    }

    /// Lends the source to somebody for whom nothing was claimed. A panic goes on, when what was used is put back.
    pub(super) fn lend<R>(
        &mut self,
        mut lent: Lent<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        using: impl FnOnce(&mut Context<'_, S>) -> R,
    ) -> R {
        lent.set_tcp(Self::is_tcp());
        let mut cx = self.context(lent, origin, afterwards);
        match caught(|| using(&mut cx)) {
            Ok(told) => {
                cx.lent.settle();
                told
            }
            Err(panic) => {
                cx.lent.settle_after_panic();
                std::panic::resume_unwind(Box::new(panic))
            }
        }
    }

    fn context<'c>(
        &'c mut self,
        lent: Lent<'c>,
        origin: Origin<'c>,
        afterwards: &'c mut Afterwards,
    ) -> Context<'c, S> {
        Context {
            source: &self.source,
            outbox: &mut self.outbox,
            lent,
            origin,
            afterwards,
        }
    }

    /// What the handler is to be called for, if it is. Room for output that was only waited for to send what was kept is
    /// not its affair.
    fn due_call(&self, lent: &Lent<'_>) -> Option<Call> {
        let for_handler = match lent.seen.is_sending() {
            true => Ready::READABLE,
            false => Ready::READABLE | Ready::WRITABLE,
        };
        let is_ready = lent.seen.may_call() && lent.taken.has(for_handler);
        match self.finishing {
            true => None,
            false if lent.greets() => Some(Call::Greet),
            false => (is_ready || lent.is_notified()).then_some(Call::Ready),
        }
    }

    /// Calls the handler and judges what it said.
    fn call(
        &mut self,
        lent: Lent<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        call: impl FnOnce(&mut Context<'_, S>) -> io::Result<Next>,
        what: Call,
    ) -> Verdict {
        let mut cx = self.context(lent, origin, afterwards);
        let told = match caught(|| call(&mut cx)) {
            Ok(told) => told,
            Err(panic) => {
                cx.lent.settle_after_panic();
                return Verdict::panicked(panic);
            }
        };
        // The usual case, as one question.
        if matches!((&told, what), (Ok(Next::Continue), Call::Ready)) {
            cx.lent.settle();
            return Verdict::Keep;
        }
        let refused = cx.lent.refused;
        match told {
            Ok(Next::Again) => cx.lent.settle_and_ask_again(),
            // What it was notified of is another call.
            _ if cx.lent.greets() && cx.lent.is_notified() => cx.lent.settle_and_ask_again(),
            _ => cx.lent.settle(),
        }
        match told {
            Ok(Next::Continue | Next::Again) => Verdict::Keep,
            Ok(Next::Move) => Verdict::Move,
            Ok(Next::Close) => {
                self.finish();
                self.finished()
            }
            Err(error) if refused && is_refusal(&error) => Verdict::Keep,
            Err(error) => Verdict::close(Closed::Failed(explained(error))),
        }
    }

    /// Closes now, if it is finishing and nothing is kept.
    fn finished(&self) -> Verdict {
        match self.finishing && self.outbox.is_empty() {
            true => Verdict::Finished,
            false => Verdict::Keep,
        }
    }

    fn is_tcp() -> bool {
        TypeId::of::<S>() == TypeId::of::<TcpStream>()
    }
}

/// Output that the descriptor did not take yet, bounded.
pub(super) struct Outbox<S> {
    kept: Vec<u8>,
    /// How much of `kept` is sent already.
    sent: usize,
    pub(super) limit: usize,
    pub(super) read_meanwhile: bool,
    /// Where the handler wants to go on.
    pub(super) goes_to: Option<Destination>,
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
            goes_to: None,
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
