//! A claimed handle: what one thread does with it, and how it gives it back.

use std::{fmt, io};

use super::{
    context::{Afterwards, Origin},
    entry::{Called, Done, Entry, Verdict},
    errand::{nobody_returns, Errand, Recall, Returned},
    handle::{Handle, HandleId, Key},
    handler::Closed,
    kind::Pace,
    line::Line,
    readiness::{Readiness, State},
    readiness_guard::ReadinessGuard,
    registry::{Registry, Remains},
    slot::Owned,
};
use crate::{
    observe::Subject,
    sync::{Clock, Timestamp},
};

/// What a handler may report to the pool while it runs, through its context.
pub(crate) trait Duty {
    /// This thread is about to block.
    fn go_away(&self);
    /// It is back.
    fn come_back(&self);
    /// The rest will take long.
    fn call_for_help(&self);
    /// The time, where this thread knows it.
    fn now(&self) -> Option<Timestamp> {
        None
    }
    /// The rest of the call is of a kind that usually is so.
    fn expect(&self, _: Pace) {}
    /// How this thread is reached while it is on an errand.
    fn recall(&self) -> io::Result<Recall> {
        Err(nobody_returns())
    }
    /// Runs `block`, which gets the question whether the pool is closed. When it is, `wake` is
    /// called.
    fn until_closed(&self, _: &Recall, block: &mut dyn FnMut(&dyn Fn() -> bool)) {
        block(&|| false);
    }
    /// Serves the pool until the errand is done, its time is over, or the pool is shut down.
    fn go(&self, _: &Errand<'_>, _: &dyn Fn() -> bool) -> io::Result<Returned> {
        Err(nobody_returns())
    }
}

impl dyn Duty + '_ {
    /// Runs `block`, which may block, while this thread is away.
    pub(super) fn blocking<R>(&self, block: impl FnOnce() -> R) -> R {
        self.go_away();
        let _back = ComeBack(self);
        block()
    }
}

/// Comes back from blocking, also by a panic.
struct ComeBack<'d>(&'d (dyn Duty + 'd));

impl Drop for ComeBack<'_> {
    fn drop(&mut self) {
        self.0.come_back();
    }
}

/// What a dispatch left.
#[must_use]
pub(crate) struct Dispatched<'r> {
    /// The handle, still owned, unless that was its end.
    pub(crate) claim: Option<Claim<'r>>,
    /// When all that was done.
    pub(crate) end: Timestamp,
}

impl<'r> Dispatched<'r> {
    /// Carries a verdict out that is more than to keep the handle. What that takes is not the next
    /// handler's time.
    #[cold]
    #[inline(never)]
    fn after(
        verdict: Verdict,
        registry: &'r Registry,
        owned: Owned<'r>,
        clock: &Clock,
        afterwards: &mut Afterwards,
    ) -> Self {
        let end = |owned, why| {
            registry.end(owned, why);
            None
        };
        let stays = match verdict {
            Verdict::Keep => Some(owned),
            Verdict::Finished => end(owned, Closed::Finished),
            Verdict::Close(why) => end(owned, *why),
            Verdict::Panicked(panic) => {
                registry.drop_afterwards(afterwards);
                match registry.judge_panic(afterwards.of, *panic) {
                    None => Some(owned),
                    Some(why) => end(owned, why),
                }
            }
            Verdict::Move => registry.send_away(owned),
            Verdict::CloseByForce => {
                registry.end_by_force(owned);
                None
            }
        };
        Self {
            claim: stays.map(|owned| Claim::new(registry, owned)),
            end: clock.now(),
        }
    }
}

/// One handle, owned by this thread, with something to be done.
///
/// Dropped without being dispatched, it is put back with everything that is ready.
#[must_use]
pub(crate) struct Claim<'r> {
    registry: &'r Registry,
    /// `None` once it has been let go.
    owned: Option<Owned<'r>>,
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handle = self.owned.as_ref().map(|owned| HandleId::new(owned.key()));
        f.debug_tuple("Claim").field(&handle).finish()
    }
}

impl<'r> Claim<'r> {
    pub(super) fn new(registry: &'r Registry, owned: Owned<'r>) -> Self {
        Self {
            registry,
            owned: Some(owned),
        }
    }

    /// How calls of its handler's kind usually are.
    #[inline(always)]
    pub(crate) fn pace(&mut self) -> Pace {
        let pace_of = |entry: &mut Option<Box<dyn Entry>>| {
            let entry = entry.as_ref();
            entry.map_or(Pace::Short, |entry| entry.kind().pace())
        };
        let owned = self.owned.as_mut();
        owned.map_or(Pace::Short, |owned| owned.with_entry(pace_of))
    }

    /// Whether it is this handle's.
    pub(crate) fn is_of(&self, handle: &Handle) -> bool {
        let key = self.owned.as_ref().map(Owned::key);
        key.is_some() && handle.key_in(self.registry) == key
    }

    /// Whose event it is, for observers.
    #[inline]
    pub(crate) fn subject(&mut self) -> Subject {
        let owned = self.owned.as_mut();
        let owned = owned.expect("a claim owns until it lets go");
        let handle = HandleId::new(owned.key());
        let handler = owned.with_entry(|entry| entry.as_ref().map_or(0, |it| it.kind().name()));
        Subject { handle, handler }
    }

    /// What its handler leaves to be done afterwards: nothing yet.
    pub(crate) fn afterwards(&self) -> Afterwards {
        Afterwards::nothing(self.owned().key())
    }

    fn owned(&self) -> &Owned<'r> {
        let owned = self.owned.as_ref();
        owned.expect("a claim owns until it lets go")
    }

    /// Calls the handler, or does what else is due. One function for each kind of duty: so each is
    /// compiled as a part of the one turn that has it. What is to be done after the handle was
    /// given back is put into `afterwards`, which stays where it is: a turn does not carry it
    /// along.
    pub(crate) fn dispatch<D: Duty>(
        mut self,
        clock: &Clock,
        start: Timestamp,
        duty: &D,
        afterwards: &mut Afterwards,
    ) -> Dispatched<'r> {
        let registry = self.registry;
        let mut owned = self.owned.take().expect("a claim owns until it lets go");
        match visit(registry, &mut owned, clock, start, duty, afterwards) {
            (Verdict::Keep, end) => Dispatched {
                claim: Some(Self::new(registry, owned)),
                end,
            },
            (other, _) => Dispatched::after(other, registry, owned, clock, afterwards),
        }
    }

    /// Gives the handle back, in a set without a lead; this thread does `afterwards` next.
    pub(crate) fn release_for_anyone(mut self, afterwards: &Afterwards) {
        if let Some(owned) = self.owned.take() {
            self.registry.let_go_for_anyone(owned, afterwards);
        }
    }

    /// Gives the handle back; this thread holds the lead, whose line that is. (Inlined: every turn
    /// has one.)
    #[inline(always)]
    pub(crate) fn release_into(mut self, line: &mut Line) -> Option<Remains<'r>> {
        let owned = self.owned.take()?;
        self.registry.let_go_into(owned, line)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            self.registry.let_go(owned);
        }
    }
}

/// Does what is due at an owned handle, and says what shall become of it, and when that was done.
fn visit<D: Duty>(
    registry: &Registry,
    owned: &mut Owned<'_>,
    clock: &Clock,
    start: Timestamp,
    duty: &D,
    afterwards: &mut Afterwards,
) -> (Verdict, Timestamp) {
    let readiness = owned.readiness();
    let guard = ReadinessGuard::claim(readiness, registry.read_budget(), registry.reports());
    let seen = guard.seen;
    if seen.is_closing() {
        let own = owned.with_entry(|entry| entry.as_mut()?.take_end());
        let verdict = match own {
            Some(why) => Verdict::close(why),
            None => registry.verdict_on_request(),
        };
        return (verdict, start);
    }
    let key = afterwards.of;
    let (verdict, end) = owned.with_entry(|entry| {
        let Some(entry) = entry else {
            return (Verdict::Keep, start);
        };
        let begun = entry.kind().begin();
        let work = |guard: ReadinessGuard<'_>| {
            let origin = Origin {
                registry: registry.weak(),
                key,
                duty,
            };
            entry.work(guard, origin, afterwards)
        };
        let done = match do_what_is_due(registry, key, guard, work) {
            Due::Done(done) => done,
            Due::Drained if registry.finds_news(entry.descriptor(), readiness) => {
                Done::without_call(Verdict::Keep)
            }
            Due::Drained if entry.may_end() => Done::without_call(Verdict::close(Closed::Shutdown)),
            Due::Drained => Done::without_call(Verdict::Keep),
        };
        publish_sending(entry.sending(), readiness, seen);
        let end = clock.now();
        // The usual case, as one question.
        if done.called == Called::Plainly {
            entry.kind().note(end.nanos_since(start), begun);
        } else if done.called == Called::Specially {
            note_special_call(registry, key, &mut **entry, (start, end));
        }
        (done.verdict, end)
    });
    owned.note_use(end);
    (verdict, end)
}

/// Notes what only some calls leave. What came before the first part of another kind is the time of
/// the handler's own.
#[cold]
#[inline(never)]
fn note_special_call(
    registry: &Registry,
    key: Key,
    entry: &mut dyn Entry,
    (start, end): (Timestamp, Timestamp),
) {
    let own_end = match entry.take_part() {
        Some(part) => part.end_all(end),
        None => end,
    };
    entry.kind().note(own_end.nanos_since(start), None);
    let finding = entry.unread(registry.unread_limit());
    registry.note_unread(key, entry.kind().name(), finding);
}

/// What was due at a visit.
#[must_use]
pub(super) enum Due {
    /// That was done.
    Done(Done),
    /// Nothing, and a drain may end it.
    Drained,
}

/// Does the `work` if something is wanted.
pub(super) fn do_what_is_due(
    registry: &Registry,
    key: Key,
    guard: ReadinessGuard<'_>,
    work: impl FnOnce(ReadinessGuard<'_>) -> Done,
) -> Due {
    let seen = guard.seen;
    if !seen.wanted().is_empty() || guard.is_notified() || guard.greets() || guard.is_overdue() {
        // The handler's own panics are caught there; this one is of its source.
        let done = registry.in_frame(Some(key), || work(guard));
        return Due::Done(done.unwrap_or_else(|panic| {
            registry.tell_panic(key, &panic);
            Done::without_call(Verdict::close(Closed::Panicked(panic)))
        }));
    }
    if seen.is_drained() && !seen.is_called() {
        return Due::Drained;
    }
    // Interest was taken away while the bits were claimed: they stay for when it comes back.
    guard.settle();
    Due::Done(Done::without_call(Verdict::Keep))
}

/// Notes in the word whether output is kept, if that has changed or may have.
#[inline]
pub(super) fn publish_sending(
    (sending, read_meanwhile): (bool, bool),
    readiness: &Readiness,
    seen: State,
) {
    if sending || seen.is_sending() {
        readiness.set_sending(sending, read_meanwhile);
    }
}
