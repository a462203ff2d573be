//! Registrations without a descriptor: posted work, and timers. A task has a slot, an owner and a
//! turn in the line like any handle; it is called for a notification, from the thread that posts it
//! or from the leader that finds its time over.

use std::{
    fmt, io,
    sync::{
        // A number that orders nothing.
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
    time::Duration,
};

use super::{
    claim::Duty,
    context::{Afterwards, Origin},
    entry::{Called, Done, Ending, Entry, Undone, Verdict},
    kind::Kind,
    readiness_guard::ReadinessGuard,
    registry::End,
};
use crate::{sync::Timestamp, unwind::caught};

/// What posted work, timers and handlers of items get: how to announce to the pool what is coming.
pub struct TaskContext<'c> {
    pub(super) duty: &'c dyn Duty,
}

impl<'c> TaskContext<'c> {
    pub(super) fn new(duty: &'c dyn Duty) -> Self {
        Self { duty }
    }
}

impl TaskContext<'_> {
    /// Runs `block`, which may block: see [`Context::blocking`](crate::Context::blocking).
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        self.duty.blocking(block)
    }

    /// Says that the rest will take long: see
    /// [`Context::wake_follower`](crate::Context::wake_follower).
    pub fn wake_follower(&self) {
        self.duty.call_for_help();
    }
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}

/// What a periodic timer gets.
#[derive(Debug)]
pub struct TickContext<'c> {
    task: TaskContext<'c>,
    missed: u64,
    period: Duration,
    next: NextTick,
}

/// When a periodic timer is called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextTick {
    /// At the next point of its row.
    AsBefore,
    /// A new row begins now.
    Anew,
    Never,
}

impl TickContext<'_> {
    /// How many ticks have passed without a call since the last one began: that took too long, or
    /// no thread was free.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The time between two ticks.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Changes the time between two ticks; the next one comes so long after the end of this call.
    ///
    /// # Errors
    /// `InvalidInput` if it is zero.
    pub fn set_period(&mut self, period: Duration) -> io::Result<()> {
        self.period = judged(period)?;
        if self.next == NextTick::AsBefore {
            self.next = NextTick::Anew;
        }
        Ok(())
    }

    /// This was the last tick.
    pub fn stop(&mut self) {
        self.next = NextTick::Never;
    }

    /// As [`TaskContext::blocking`].
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        self.task.blocking(block)
    }

    /// As [`TaskContext::wake_follower`].
    pub fn wake_follower(&self) {
        self.task.wake_follower();
    }
}

/// A timer that never rests is refused.
pub(super) fn judged(period: Duration) -> io::Result<Duration> {
    if period.is_zero() {
        let text = "a period of zero: the timer would never rest";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(period)
}

/// How many posts wait to be done, and how many may.
#[derive(Debug)]
pub(super) struct Posts {
    waiting: AtomicUsize,
    limit: usize,
}

impl Posts {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        let waiting = AtomicUsize::new(0);
        Arc::new(Self { waiting, limit })
    }

    /// A place for one more, if there is room.
    pub(super) fn admit(self: &Arc<Self>) -> io::Result<Ticket> {
        let one_more = |waiting: usize| (waiting < self.limit).then_some(waiting + 1);
        let admitted = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        match admitted {
            Ok(_) => Ok(Ticket(Arc::clone(self))),
            Err(waiting) => {
                let text = format!("post: {waiting} wait already, as many as may");
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, text))
            }
        }
    }
}

/// One of the posts that wait. It is given up when the work begins, or is dropped.
#[derive(Debug)]
pub(super) struct Ticket(Arc<Posts>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Work that is done once: posted, or when its time has come.
pub(super) struct Once<F> {
    work: Option<F>,
    /// `None` for a timer.
    ticket: Option<Ticket>,
    undone: Undone,
    kind: Arc<Kind>,
}

impl<F> Once<F> {
    pub(super) fn posted(work: F, ticket: Ticket, kind: Arc<Kind>) -> Self {
        Self {
            work: Some(work),
            ticket: Some(ticket),
            undone: Undone::Post,
            kind,
        }
    }

    pub(super) fn timer(work: F, kind: Arc<Kind>) -> Self {
        Self {
            work: Some(work),
            ticket: None,
            undone: Undone::Timer,
            kind,
        }
    }
}

impl<F> Entry for Once<F>
where
    F: FnOnce(&mut TaskContext<'_>) + Send + 'static,
{
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn work(&mut self, guard: ReadinessGuard<'_>, origin: Origin<'_>, _: &mut Afterwards) -> Done {
        drop(self.ticket.take());
        self.undone = Undone::Nothing;
        let Some(work) = self.work.take() else {
            // It panicked, and panics keep: there is nothing to keep.
            guard.settle();
            return Done::without_call(Verdict::Finished);
        };
        let mut cx = TaskContext::new(origin.duty);
        let verdict = match caught(|| work(&mut cx)) {
            Ok(()) => {
                guard.settle();
                Verdict::Finished
            }
            Err(panic) => {
                guard.settle_after_panic();
                Verdict::panicked(panic)
            }
        };
        Done {
            verdict,
            called: Called::Plainly,
        }
    }

    fn undone(&self) -> Undone {
        self.undone
    }

    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)> {
        Some((self, end))
    }
}

impl<F: Send> Ending for Once<F> {
    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        [caught(|| drop(self.work)), Ok(())]
    }
}

/// Work that is done again and again.
pub(super) struct Every<F> {
    work: F,
    period: Duration,
    /// The point in time of the next call.
    next: Timestamp,
    /// Ticks that went by since the last call.
    missed: u64,
    kind: Arc<Kind>,
}

impl<F> Every<F> {
    pub(super) fn new(work: F, period: Duration, next: Timestamp, kind: Arc<Kind>) -> Self {
        Self {
            work,
            period,
            next,
            missed: 0,
            kind,
        }
    }

    /// Goes on to the last point of the row that has passed; returns how many lie between.
    fn skip_to(&mut self, now: Timestamp) -> u64 {
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        let passed = now.nanos_since(self.next) / period;
        let ahead = Duration::from_nanos(passed.saturating_mul(period));
        self.next = self.next.after(ahead);
        passed
    }

    /// When it is called next, after a call that ended now.
    fn schedule(&mut self, next: NextTick, now: Timestamp) {
        match next {
            NextTick::Anew => {
                self.missed = 0;
                self.next = now;
            }
            _ => self.missed = self.skip_to(now),
        }
        self.next = self.next.after(self.period);
    }
}

impl<F> Entry for Every<F>
where
    F: FnMut(&mut TickContext<'_>) + Send + 'static,
{
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn work(&mut self, guard: ReadinessGuard<'_>, origin: Origin<'_>, _: &mut Afterwards) -> Done {
        let Some(registry) = origin.registry.upgrade() else {
            return Done::without_call(Verdict::Keep);
        };
        let missed = self.missed + self.skip_to(registry.now());
        registry.note_missed(missed);
        let mut cx = TickContext {
            task: TaskContext::new(origin.duty),
            missed,
            period: self.period,
            next: NextTick::AsBefore,
        };
        let work = &mut self.work;
        let told = caught(|| work(&mut cx));
        // A handler that panicked does not decide.
        let next = match told {
            Ok(()) => cx.next,
            Err(_) => NextTick::AsBefore,
        };
        if told.is_ok() {
            self.period = cx.period;
        }
        guard.settle();
        if next != NextTick::Never {
            self.schedule(next, registry.now());
            // If the timer was cancelled meanwhile there is no other time.
            let _ = registry.call_at(origin.key, self.next);
        }
        let verdict = match told {
            Err(panic) => Verdict::panicked(panic),
            Ok(()) if next == NextTick::Never => Verdict::Finished,
            Ok(()) => Verdict::Keep,
        };
        Done {
            verdict,
            called: Called::Plainly,
        }
    }

    /// It goes on for ever: its end is no loss.
    fn undone(&self) -> Undone {
        Undone::Nothing
    }

    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)> {
        Some((self, end))
    }
}

impl<F: Send> Ending for Every<F> {
    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        [caught(|| drop(self.work)), Ok(())]
    }
}
