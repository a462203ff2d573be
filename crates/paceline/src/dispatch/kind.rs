//! How long handlers take, by their type, and whether they sleep: probabilities, not means.
//!
//! A mean is spoiled by rare sleepers. What counts is whether a call of this kind is *usually* long
//! enough to be worth a wake: `p` moves by 1/32 of the way to one after a long call, to zero after
//! a short one. Of kinds that are long some calls are asked whether they slept: behind one that
//! computes, another thread is of use only while there is room (`promotion/policy.rs`).

use std::{
    any::{type_name, TypeId},
    collections::HashMap,
    // Estimates order nothing; a lost update is a slightly worse estimate.
    sync::{
        atomic::{AtomicU32, AtomicU64, Ordering},
        Arc,
    },
};

use crate::{
    observe::number_of,
    sync::{lock, voluntary_switches, Mutex, Timestamp},
};

/// A call longer than this, in nanoseconds, is worth a wake-up: about what a wake-up costs.
const LONG: u64 = 15_000;

/// Instead of that: no call is long.
const NEVER: u64 = u64::MAX;

/// Or each.
const ALWAYS: u64 = 0;

/// One, as a fixed-point number.
const ONE: u32 = 1 << 16;

/// By which part of the way the estimate moves.
const WEIGHT: u32 = 32;

/// One call in so many of a long kind is asked whether it slept: that takes two system calls. A
/// prime, so that calls which alternate are not always asked in the same phase.
const SAMPLE: u32 = 31;

/// By which part of the way that estimate moves.
const SAMPLE_WEIGHT: u32 = 8;

/// How a call of some kind usually is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pace {
    /// Not worth a wake.
    Short,
    /// Long, and it keeps its core.
    Computing,
    /// Long, and it sleeps.
    Blocking,
}

/// What is known of one type of handler.
#[derive(Debug)]
pub(super) struct Kind {
    /// The probability that a call is long.
    long: AtomicU32,
    /// The probability that a long call sleeps.
    sleeps: AtomicU32,
    /// How many calls there were while it was long.
    calls: AtomicU32,
    /// From how many nanoseconds on a call is long: [`LONG`] and one, or what makes all calls one
    /// or the other.
    long_from: AtomicU64,
    /// The number of its name.
    name: u32,
}

impl Default for Kind {
    /// Short until it is known better; and what turns out to be long is taken to sleep until it is
    /// known better.
    fn default() -> Self {
        Self {
            long: AtomicU32::new(0),
            sleeps: AtomicU32::new(ONE),
            calls: AtomicU32::new(0),
            long_from: AtomicU64::new(LONG + 1),
            name: 0,
        }
    }
}

impl Kind {
    fn named(name: u32) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// It is so from now on, and learns nothing more.
    fn fix(&self, pace: Pace) {
        let (long, sleeps, long_from) = match pace {
            Pace::Short => (0, ONE, NEVER),
            Pace::Computing => (ONE, 0, ALWAYS),
            Pace::Blocking => (ONE, ONE, ALWAYS),
        };
        self.long_from.store(long_from, Ordering::Relaxed);
        self.long.store(long, Ordering::Relaxed);
        self.sleeps.store(sleeps, Ordering::Relaxed);
    }

    fn is_fixed(&self) -> bool {
        matches!(self.long_from.load(Ordering::Relaxed), NEVER | ALWAYS)
    }

    /// The number of its type's name, for observers.
    pub(super) fn name(&self) -> u32 {
        self.name
    }

    /// How more than half of the last calls were; of a long kind's, whether more than an eighth
    /// slept.
    pub(super) fn pace(&self) -> Pace {
        if !self.is_long() {
            Pace::Short
        } else if self.sleeps.load(Ordering::Relaxed) > ONE / 8 {
            Pace::Blocking
        } else {
            Pace::Computing
        }
    }

    fn is_long(&self) -> bool {
        self.long.load(Ordering::Relaxed) > ONE / 2
    }

    /// Before a call: the thread's voluntary switches, if this call is to be asked.
    pub(super) fn begin(&self) -> Option<u64> {
        if !self.is_long() {
            return None;
        }
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        match calls % SAMPLE {
            0 => voluntary_switches(),
            _ => None,
        }
    }

    /// After it: `took` in nanoseconds, and what [`begin`](Self::begin) returned.
    pub(super) fn note(&self, took: u64, begun: Option<u64>) {
        let is_long = took >= self.long_from.load(Ordering::Relaxed);
        step(&self.long, is_long, WEIGHT);
        if let (Some(before), true) = (begun, is_long) {
            if self.is_fixed() {
                return;
            }
            let slept = voluntary_switches() != Some(before);
            step(&self.sleeps, slept, SAMPLE_WEIGHT);
        }
    }
}

/// Moves a probability by a part of the way to one, or to zero.
fn step(probability: &AtomicU32, holds: bool, weight: u32) {
    let p = probability.load(Ordering::Relaxed);
    let next = if holds {
        p + (ONE - p) / weight
    } else {
        p - p / weight
    };
    if next != p {
        probability.store(next, Ordering::Relaxed);
    }
}

/// A kind of calls, such as those for one route of a server: made by
/// [`Pool::handler_kind`](crate::Pool::handler_kind).
///
/// A pool learns of each type of handler whether its calls are short, compute for long, or sleep,
/// and wakes another thread where that pays. A handler that serves requests of several kinds has
/// one type for all of them. It gives the kind of a request to
/// [`Context::begin_kind`](crate::Context::begin_kind), and of a whole connection in
/// [`EventHandler::kind`](crate::EventHandler::kind). Cloning it gives the same kind.
#[derive(Clone, Debug)]
pub struct HandlerKind(Arc<Kind>);

impl HandlerKind {
    /// How calls of this kind usually are, so far. A kind is short at first.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.0.pace()
    }

    /// Its calls sleep: a lock, a file, a database. The pool learns nothing more of it.
    #[must_use]
    pub fn blocks(self) -> Self {
        self.fixed(Pace::Blocking)
    }

    /// Its calls are as said. The pool learns nothing more of it.
    #[must_use]
    pub fn fixed(self, pace: Pace) -> Self {
        self.0.fix(pace);
        self
    }

    /// A part of a call begins; the time of the handler's own kind ended at `own_end`.
    pub(super) fn begin_part(&self, own_end: Timestamp, since: Timestamp) -> Part {
        Part {
            begun: self.0.begin(),
            kind: Arc::clone(&self.0),
            own_end,
            since,
        }
    }

    pub(super) fn into_inner(self) -> Arc<Kind> {
        self.0
    }
}

/// A part of a call that is of another kind than its handler, and goes on until the next part or
/// the end of the call.
#[derive(Debug)]
pub(super) struct Part {
    kind: Arc<Kind>,
    /// When the first part began.
    own_end: Timestamp,
    since: Timestamp,
    begun: Option<u64>,
}

impl Part {
    /// It ends now. When the first part of the call began.
    pub(super) fn end_all(self, now: Timestamp) -> Timestamp {
        self.kind.note(now.nanos_since(self.since), self.begun);
        self.own_end
    }
}

/// Room for a part. A handle has the memory for one from its first part on, and keeps it.
#[derive(Debug, Default)]
pub(super) struct RoomForPart(Option<Box<Option<Part>>>);

impl RoomForPart {
    pub(super) fn is_taken(&self) -> bool {
        self.0.as_ref().is_some_and(|part| part.is_some())
    }

    pub(super) fn put(&mut self, part: Part) {
        **self.0.get_or_insert_default() = Some(part);
    }

    pub(super) fn take(&mut self) -> Option<Part> {
        self.0.as_mut()?.take()
    }
}

/// The kinds of one registry.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<HashMap<Which, Arc<Kind>>>);

#[derive(Debug, PartialEq, Eq, Hash)]
enum Which {
    Type(TypeId),
    /// By the number of its name.
    Named(u32),
}

impl Kinds {
    /// The kind of handlers of type `H`.
    pub(super) fn of<H: 'static>(&self) -> Arc<Kind> {
        self.get(Which::Type(TypeId::of::<H>()), || {
            number_of(type_name::<H>())
        })
    }

    /// The kind that a handler of type `H` wants, or that of its type.
    pub(super) fn chosen<H: 'static>(&self, wanted: Option<HandlerKind>) -> Arc<Kind> {
        wanted.map_or_else(|| self.of::<H>(), HandlerKind::into_inner)
    }

    /// The kind with this name.
    pub(super) fn named(&self, name: &str) -> HandlerKind {
        let number = number_of(name);
        HandlerKind(self.get(Which::Named(number), || number))
    }

    fn get(&self, which: Which, name: impl FnOnce() -> u32) -> Arc<Kind> {
        let mut kinds = lock(&self.0);
        let kind = kinds.entry(which);
        Arc::clone(kind.or_insert_with(|| Arc::new(Kind::named(name()))))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    /// A mean of costs would call this kind long: one call in a hundred sleeps for a second.
    #[test]
    fn rare_sleepers_do_not_make_a_kind_long() {
        let kind = Kind::default();
        for call in 0..1000 {
            let seconds = u64::from(call % 100 == 0);
            kind.note(seconds * 1_000_000_000, None);
            assert_eq!(kind.pace(), Pace::Short);
        }
    }

    /// What was learned from one handle holds for the next one with the same type of handler, and
    /// for no other.
    #[test]
    fn types_are_told_apart() {
        let kinds = Kinds::default();
        (0..32).for_each(|_| kinds.of::<u8>().note(LONG * 2, None));
        assert!(kinds.of::<u8>().is_long());
        assert!(!kinds.of::<u16>().is_long());
    }

    /// A call that is long half of the time is not usually long: in doubt no thread is woken.
    #[test]
    fn in_doubt_a_kind_is_short() {
        let kind = Kind {
            long: AtomicU32::new(ONE / 2),
            ..Kind::default()
        };
        assert_eq!(kind.pace(), Pace::Short);
    }

    /// Of a long kind more than an eighth must sleep.
    #[test]
    fn an_eighth_is_not_more_than_an_eighth() {
        let kind = Kind {
            long: AtomicU32::new(ONE),
            sleeps: AtomicU32::new(ONE / 8),
            ..Kind::default()
        };
        assert_eq!(kind.pace(), Pace::Computing);
    }

    /// A call that was not long says nothing about those that are.
    #[test]
    fn short_calls_are_not_asked() {
        let kind = Kind {
            sleeps: AtomicU32::new(0),
            ..Kind::default()
        };
        kind.note(LONG, Some(u64::MAX));
        assert_eq!(kind.sleeps.load(Ordering::Relaxed), 0);
        kind.note(LONG + 1, Some(u64::MAX));
        assert_ne!(kind.sleeps.load(Ordering::Relaxed), 0);
    }

    /// A kind whose calls are all long is known after some thirty of them, and forgotten as fast.
    #[test]
    fn the_usual_case_decides() {
        let kind = Kind::default();
        (0..32).for_each(|_| kind.note(LONG * 2, None));
        assert!(kind.is_long());
        (0..32).for_each(|_| kind.note(LONG, None));
        assert!(!kind.is_long());
    }

    /// The system distinguishes calls that take long: it counts whether the thread gave its core
    /// away itself.
    #[cfg(target_os = "linux")]
    #[test]
    fn who_sleeps_is_told_from_who_computes() {
        let kind = Kind::default();
        let call = |work: fn()| {
            let begun = kind.begin();
            work();
            kind.note(LONG * 2, begun);
        };
        let many = |work: fn()| (0..32 * SAMPLE).for_each(|_| call(work));
        many(|| {});
        assert_eq!(kind.pace(), Pace::Computing);
        many(|| thread::sleep(Duration::from_micros(1)));
        assert_eq!(kind.pace(), Pace::Blocking);
        many(|| {});
        assert_eq!(kind.pace(), Pace::Computing);
    }

    /// Nothing was asked, so nothing was learned: a pool that waits for a wake-up gets one.
    #[test]
    fn in_doubt_a_long_kind_sleeps() {
        let kind = Kind::default();
        (0..1000).for_each(|_| kind.note(LONG * 2, None));
        assert_eq!(kind.pace(), Pace::Blocking);
    }
}
