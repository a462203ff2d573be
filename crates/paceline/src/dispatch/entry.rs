//! A registration's contents behind one face.

use std::{any::Any, io, os::fd::RawFd, sync::Arc};

use super::{
    channel::{Call, Channel, Destination},
    context::{Afterwards, Context, Origin},
    handle::Handle,
    handler::{Closed, EventHandler},
    kind::{Kind, Part},
    overdue::judge,
    provenance::Provenance,
    readiness_guard::ReadinessGuard,
    registry::{End, Registry},
    unread::Finding,
};
use crate::{observe::Counters, unwind::caught};

/// What the registry knows of a registration, whatever its types. The methods that have a body are
/// right for one without a descriptor (`task.rs`).
pub(super) trait Entry: Send {
    /// What the set watches, if anything.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// How long handlers of this type usually take.
    fn kind(&self) -> &Kind;

    /// Does what the claimed readiness allows: sends kept output, calls the handler.
    fn work(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
    ) -> Done;

    /// It can't go on for this reason, which its end reports.
    fn fail(&mut self, error: io::Error) {
        drop(error);
    }

    /// After a special call: what to do about input that it left, where `limit` calls in a row are
    /// too many.
    fn unread(&mut self, limit: u32) -> Finding {
        let _ = limit;
        Finding::Nothing
    }

    /// After a special call: the last part of it that was of another kind.
    fn take_part(&mut self) -> Option<Part> {
        None
    }

    /// It is about to be taken out of the set: no thread arms it any more.
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

    /// Whether input is there that its handler has not read, if its source can be asked.
    fn has_unread(&self) -> Option<bool> {
        None
    }

    /// Whether a drain that finds it with nothing to do may end it.
    fn may_end(&mut self) -> bool {
        true
    }

    /// Whether it can go on in another registry.
    fn can_move(&self) -> bool {
        false
    }

    /// Where its handler wants to go on, if it has said so.
    fn take_destination(&mut self) -> Option<Destination> {
        None
    }

    /// It goes on in another registry, with that one's limit of output and counters, under this
    /// key.
    fn moved(&mut self, output_limit: usize, counters: &Arc<Counters>, handle: &Handle) {
        let _ = (output_limit, counters, handle);
    }

    /// It could not, and stays.
    fn stayed(&mut self, why: io::Error) {
        drop(why);
    }

    /// Of a group: its members, as a `Roster` of their source's type.
    fn roster(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// It is out of its slot. Gives everything to the thread that is to end it: the caller, unless
    /// other threads still use it.
    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)>;
}

/// What is left of a registration at its end.
pub(super) trait Ending {
    /// Of a group: the pool has ended, and so do its members.
    fn dissolve(&mut self, registry: &Registry) {
        let _ = registry;
    }

    /// Where its source comes from, if that is known.
    fn provenance(&self) -> Option<&Provenance> {
        None
    }

    /// Gives the handler the reason of its end.
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
    /// So many items that were accepted and not handled.
    Items(usize),
    /// Nothing that any thread waits for.
    Nothing,
}

/// What shall become of a registration after a visit. Every event returns one: so rare parts are in
/// a box, and it is two words.
#[must_use]
#[derive(Debug)]
pub(super) enum Verdict {
    Keep,
    /// It has done what it was there for.
    Finished,
    /// The handler panicked. What was claimed for it is put back.
    #[allow(clippy::box_collection, reason = "one word, where a text is three")]
    Panicked(Box<String>),
    Close(Box<Closed>),
    /// The handler wants to go on in another registry, which its entry knows.
    Move,
    /// The pool has ended, and it was not done.
    CloseByForce,
}

impl Verdict {
    pub(super) fn close(why: Closed) -> Self {
        Self::Close(Box::new(why))
    }

    pub(super) fn panicked(panic: String) -> Self {
        Self::Panicked(Box::new(panic))
    }
}

/// What was done at a visit.
#[must_use]
#[derive(Debug)]
pub(super) struct Done {
    pub(super) verdict: Verdict,
    pub(super) called: Called,
}

/// Whether the handler was called.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    No,
    Plainly,
    /// And its entry knows more about the call: see [`Entry::unread`] and [`Entry::take_part`].
    Specially,
}

impl Called {
    pub(super) fn plainly_if(was_called: bool) -> Self {
        if was_called {
            Self::Plainly
        } else {
            Self::No
        }
    }
}

impl Done {
    pub(super) fn plainly(verdict: Verdict) -> Self {
        Self {
            verdict,
            called: Called::Plainly,
        }
    }

    pub(super) fn without_call(verdict: Verdict) -> Self {
        Self {
            verdict,
            called: Called::No,
        }
    }
}

/// A handle that has a handler of its own.
pub(super) struct Registered<S, H> {
    channel: Channel<S>,
    handler: H,
    kind: Arc<Kind>,
}

impl<S: 'static, H> Registered<S, H> {
    pub(super) fn new(channel: Channel<S>, handler: H, kind: Arc<Kind>) -> Self {
        Self {
            channel,
            handler,
            kind,
        }
    }
}

impl<S, H> Registered<S, H>
where
    S: Send + 'static,
    H: EventHandler<S>,
{
    /// A time of the handle may be over, or what was ready has waited too long.
    #[cold]
    #[inline(never)]
    fn work_late(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
    ) -> Done {
        let (channel, handler) = (&mut self.channel, &mut self.handler);
        if let Some(what) = judge(&guard, &origin, Some(channel.descriptor())) {
            let call = |cx: &mut Context<'_, S>| handler.overdue(cx, what);
            return channel.work_overdue(guard, origin, afterwards, what, call);
        }
        let is_expired = guard.seen.is_expired();
        channel.work(guard, origin, afterwards, |cx, call| match call {
            _ if is_expired => {
                let age = cx.age();
                handler.expired(cx, age)
            }
            Call::Greet => handler.connected(cx),
            _ => handler.ready(cx),
        })
    }
}

impl<S, H> Entry for Registered<S, H>
where
    S: Send + 'static,
    H: EventHandler<S>,
{
    fn descriptor(&self) -> Option<RawFd> {
        Some(self.channel.descriptor())
    }

    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn work(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
    ) -> Done {
        // Apart, so that the usual way does not know of it.
        if guard.seen.is_special() {
            return self.work_late(guard, origin, afterwards);
        }
        let handler = &mut self.handler;
        self.channel
            .work(guard, origin, afterwards, |cx, call| match call {
                Call::Greet => handler.connected(cx),
                _ => handler.ready(cx),
            })
    }

    fn fail(&mut self, error: io::Error) {
        self.channel.fail(error);
    }

    fn take_end(&mut self) -> Option<Closed> {
        self.channel.take_end()
    }

    fn sending(&self) -> (bool, bool) {
        self.channel.sending()
    }

    fn unread(&mut self, limit: u32) -> Finding {
        self.channel.unread(limit)
    }

    fn take_part(&mut self) -> Option<Part> {
        self.channel.take_part()
    }

    fn undone(&self) -> Undone {
        if self.channel.is_lingering() {
            Undone::Nothing
        } else {
            Undone::Output(self.channel.unsent())
        }
    }

    fn has_unread(&self) -> Option<bool> {
        self.channel.has_unread()
    }

    fn can_move(&self) -> bool {
        true
    }

    fn take_destination(&mut self) -> Option<Destination> {
        self.channel.take_destination()
    }

    fn moved(&mut self, output_limit: usize, counters: &Arc<Counters>, handle: &Handle) {
        self.channel.settle_in(output_limit, counters);
        self.handler.moved(handle);
    }

    fn stayed(&mut self, why: io::Error) {
        self.handler.stayed(why);
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
    fn provenance(&self) -> Option<&Provenance> {
        self.channel.provenance()
    }

    fn closed(&mut self, why: Closed) {
        self.handler.closed(why);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        // Apart: two panics in one unwinding would abort the process.
        let Self {
            channel, handler, ..
        } = *self;
        [caught(|| drop(handler)), caught(|| drop(channel))]
    }
}
