//! One descriptor of a registration: its source, output that it did not take yet, and a call of the
//! handler with both.

use std::{
    any::TypeId,
    io,
    net::TcpStream,
    os::fd::RawFd,
    sync::{Arc, Weak},
};

use super::{
    context::{Afterwards, Context, Origin},
    entry::{Called, Done, Verdict},
    handler::{Closed, Next},
    kind::Part,
    linger::{Asker, Leaving},
    outbox::Outbox,
    overdue::Overdue,
    provenance::Provenance,
    readiness_guard::{explained, is_refusal, ReadinessGuard, Settled},
    registry::Registry,
    unread::{Finding, Row},
};
use crate::{
    handle_set::{Descriptor, Ready, Source},
    observe::Counters,
    unwind::caught,
};

pub(super) struct Channel<S> {
    /// Before its provenance, so that a connection counts until its source is dropped.
    source: S,
    provenance: Option<Box<Provenance>>,
    /// As given at registration; a source is not asked again.
    descriptor: RawFd,
    outbox: Outbox<S>,
    /// How to ask the source for its descriptor once more.
    pub(super) descriptor_of: fn(&S) -> Descriptor<'_>,
    /// How far the end has come that the handler has asked for.
    pub(super) leaving: Leaving,
    /// Calls that left input unread.
    unread: Row,
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
    /// A time is over.
    Overdue,
}

/// Another registry, in which a handler wants to go on.
pub(super) type Destination = Weak<Registry>;

impl<S: Source> Channel<S> {
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
            descriptor_of: S::descriptor,
            leaving: Leaving::No,
            unread: Row::default(),
            end: None,
        }
    }
}

impl<S: 'static> Channel<S> {
    pub(super) fn source(&self) -> &S {
        &self.source
    }

    pub(super) fn lend_descriptor(&self) -> Descriptor<'_> {
        (self.descriptor_of)(&self.source)
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

    /// Whether input is there that its handler has not read, if the source can be asked. That is
    /// the user's code.
    pub(super) fn has_unread(&self) -> Option<bool> {
        caught(|| self.lend_descriptor().has_input()).ok().flatten()
    }

    /// Whether output is kept, and whether input shall be dispatched meanwhile.
    pub(super) fn sending(&self) -> (bool, bool) {
        (!self.outbox.is_empty(), self.outbox.read_meanwhile)
    }

    /// It can't go on for this reason, which its end reports.
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
        self.leaving = Leaving::WhenSent;
        self.outbox.read_meanwhile = false;
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.leaving != Leaving::No
    }

    /// Does what the claimed readiness allows: sends kept output, and makes the `call`.
    pub(super) fn work(
        &mut self,
        mut guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        call: impl FnOnce(&mut Context<'_, S>, Call) -> io::Result<Next>,
    ) -> Done {
        guard.set_tcp(Self::is_tcp());
        if !self.outbox.is_empty() {
            if let Err(error) = self.outbox.flush(&self.source, &mut guard) {
                return Done::without_call(Verdict::close(Closed::Failed(error)));
            }
        }
        match self.due_call(&guard) {
            Some(what) => self.call(guard, origin, afterwards, |cx| call(cx, what), what),
            None if self.is_finishing() => {
                Done::without_call(self.leave(guard, origin.registry, origin.key))
            }
            None => {
                guard.settle();
                Done::without_call(Verdict::Keep)
            }
        }
    }

    /// The same when a time of the handle is over. Its handler is called for that, also while
    /// output is kept; unless it has asked for the end, or the peer has just taken some.
    #[cold]
    pub(super) fn work_overdue(
        &mut self,
        mut guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        what: Overdue,
        call: impl FnOnce(&mut Context<'_, S>) -> io::Result<Next>,
    ) -> Done {
        guard.set_tcp(Self::is_tcp());
        let kept = self.outbox.len();
        if let Err(error) = self.outbox.flush(&self.source, &mut guard) {
            return Done::without_call(Verdict::close(Closed::Failed(error)));
        }
        if what == Overdue::Idle && self.outbox.len() < kept {
            let verdict = self.leave(guard, origin.registry, origin.key);
            return Done::without_call(verdict);
        }
        if self.is_finishing() {
            guard.settle();
            return Done::without_call(self.give_up());
        }
        self.call(guard, origin, afterwards, call, Call::Overdue)
    }

    /// Lends the source to a caller for which nothing was claimed. A panic goes on, after what was
    /// used is put back.
    pub(super) fn lend<R>(
        &mut self,
        mut guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        using: impl FnOnce(&mut Context<'_, S>) -> R,
    ) -> R {
        guard.set_tcp(Self::is_tcp());
        let mut cx = self.context(guard, origin, afterwards);
        match caught(|| using(&mut cx)) {
            Ok(told) => {
                cx.guard.settle();
                self.end_part(origin);
                told
            }
            Err(panic) => {
                cx.guard.settle_after_panic();
                self.end_part(origin);
                std::panic::resume_unwind(Box::new(panic))
            }
        }
    }

    /// What was lent is given back: so ends a part of another kind that began there.
    fn end_part(&mut self, origin: Origin<'_>) {
        if let (Some(part), Some(now)) = (self.take_part(), origin.duty.now()) {
            let _ = part.end_all(now);
        }
    }

    fn context<'c>(
        &'c mut self,
        guard: ReadinessGuard<'c>,
        origin: Origin<'c>,
        afterwards: &'c mut Afterwards,
    ) -> Context<'c, S> {
        Context {
            source: &self.source,
            outbox: &mut self.outbox,
            guard,
            origin,
            afterwards,
        }
    }

    /// What the handler is to be called for, if it is. Room for output that was only waited for to
    /// send what was kept is not its affair.
    fn due_call(&self, guard: &ReadinessGuard<'_>) -> Option<Call> {
        let for_handler = if guard.seen.is_sending() {
            Ready::READABLE
        } else {
            Ready::READABLE | Ready::WRITABLE
        };
        let is_ready = guard.seen.may_call() && guard.taken.has(for_handler);
        if self.is_finishing() {
            None
        } else if guard.greets() {
            Some(Call::Greet)
        } else {
            (is_ready || guard.is_notified()).then_some(Call::Ready)
        }
    }

    /// Calls the handler and judges what it said.
    fn call(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        call: impl FnOnce(&mut Context<'_, S>) -> io::Result<Next>,
        what: Call,
    ) -> Done {
        let mut cx = self.context(guard, origin, afterwards);
        let told = match caught(|| call(&mut cx)) {
            Ok(told) => told,
            Err(panic) => {
                if what == Call::Overdue {
                    cx.guard.put_other_calls_back();
                }
                cx.guard.settle_after_panic();
                return self.called(Verdict::panicked(panic), Settled::Plainly);
            }
        };
        // The usual case, as one question.
        if matches!((&told, what), (Ok(Next::Continue), Call::Ready)) {
            let settled = cx.guard.settle_call();
            return if settled == Settled::Plainly {
                Done::plainly(Verdict::Keep)
            } else {
                self.called(Verdict::Keep, settled)
            };
        }
        let refused = cx.guard.is_refused();
        let asker = match told {
            Ok(Next::Close | Next::CloseGently) => {
                Some((Weak::clone(cx.origin.registry), cx.origin.key))
            }
            _ => None,
        };
        if what == Call::Overdue {
            cx.guard.put_other_calls_back();
        }
        // What it was notified of is another call than the greeting.
        let is_due_again = cx.guard.greets() && cx.guard.is_notified();
        let settled = if is_due_again || matches!(told, Ok(Next::Again)) {
            cx.guard.settle_and_ask_again();
            Settled::Plainly
        } else {
            cx.guard.settle_call()
        };
        let verdict = match told {
            Ok(Next::Continue | Next::Again) => Verdict::Keep,
            Ok(Next::Move) => Verdict::Move,
            Ok(next) => self.close(next, what, asker),
            Err(error) if refused && is_refusal(&error) => Verdict::Keep,
            Err(error) if what == Call::Overdue && error.kind() == io::ErrorKind::TimedOut => {
                Verdict::close(Closed::TimedOut)
            }
            Err(error) => Verdict::close(Closed::Failed(explained(error))),
        };
        self.called(verdict, settled)
    }

    /// The handler was called. (Apart from the usual case.)
    #[inline(never)]
    fn called(&mut self, verdict: Verdict, settled: Settled) -> Done {
        let goes_on = matches!(verdict, Verdict::Keep) && !self.is_finishing();
        let settled = if goes_on { settled } else { Settled::Plainly };
        self.unread.note(settled);
        let is_special = settled.is_unread() || self.outbox.part.is_taken();
        Done {
            verdict,
            called: if is_special {
                Called::Specially
            } else {
                Called::Plainly
            },
        }
    }

    /// The handler asks for the end.
    #[cold]
    fn close(&mut self, next: Next, what: Call, asker: Option<Asker>) -> Verdict {
        match asker {
            Some(asker) if next == Next::CloseGently => self.close_gently(&asker),
            Some(asker) if what == Call::Overdue => self.close_in_time(&asker),
            _ => {
                self.finish();
                self.finished()
            }
        }
    }

    /// The last part of the last call that was of another kind.
    pub(super) fn take_part(&mut self) -> Option<Part> {
        self.outbox.part.take()
    }

    /// What to do about input that the last call left.
    pub(super) fn unread(&mut self, limit: u32) -> Finding {
        self.unread.judge(limit)
    }

    /// Closes now, if it is finishing and nothing is kept.
    pub(super) fn finished(&self) -> Verdict {
        if self.leaving == Leaving::WhenSent && self.outbox.is_empty() {
            Verdict::Finished
        } else {
            Verdict::Keep
        }
    }

    fn is_tcp() -> bool {
        TypeId::of::<S>() == TypeId::of::<TcpStream>()
    }
}
