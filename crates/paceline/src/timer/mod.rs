//! Points in time at which the leader has something to do, besides what its handle set tells.
//!
//! They are kept in a wheel (`wheel.rs`), under a lock of its own. Each belongs to a slot of the registry, which has
//! a **pin**: its node in the wheel. This room knows no handles; it gives a key back when its time has come.
//!
//! The leader sleeps until the earliest point. Who sets an earlier one must end that sleep; who sets a later one must
//! not. Both are decided without asking the leader:
//!
//! ```text
//!   who sets a point                          the leader
//!   1. changes the wheel                      1. announces its sleep (the head of the return list)
//!   2. publishes the earliest point           2. reads the earliest point
//!   3. if it is earlier than before:          3. sleeps until then
//!      nudges (the head of the return list)
//! ```
//!
//! The two change the same word, the head. If the announcement comes first, the nudge finds it and wakes the leader;
//! if the nudge comes first, the leader reads what was published before it.
//!
//! What is taken back stays published: the leader may get up once for nothing. But timers that are set and taken back
//! with every request, as deadlines are, wake nobody.
//!
//! A handle's idle time-out is lazy. A call of its handler only notes the time in the slot; when the point comes, the
//! leader finds that it is too early and sets another. So a busy handle costs one look per time-out, not one change
//! of the wheel per request.

mod wheel;

use std::time::Duration;

use self::wheel::Wheel;
use crate::sync::{
    atomic::{AtomicU32, AtomicU64, Ordering},
    lock, Clock, Mutex, Timestamp,
};

/// The wheel counts in milliseconds, as the system's waits do.
const TICK: u64 = 1_000_000;

/// No point in time, in nanoseconds.
const NEVER: u64 = u64::MAX;

/// All points in time of one registry.
#[derive(Debug)]
pub(crate) struct Timers {
    wheel: Mutex<Wheel<Due>>,
    /// When the wheel is to be turned next, in nanoseconds; changed under its lock.
    earliest: AtomicU64,
    clock: Clock,
}

/// What a point in time is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Something is to be called.
    Call,
    /// A registration ends, whatever it does.
    Deadline,
    /// A registration ends, if nothing happened there for this span.
    Idle(Duration),
}

/// Whose time has come, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) key: u64,
    pub(crate) purpose: Purpose,
}

/// The place in a slot that holds its node of the wheel.
#[derive(Debug)]
pub(crate) struct Pin(AtomicU32);

const LOOSE: u32 = u32::MAX;

impl Pin {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(LOOSE))
    }

    /// Whether its slot has, or may have had, a point in time.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != LOOSE
    }
}

/// What became of a point in time.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// It is the earliest of all: a leader that sleeps must be nudged.
    Earliest,
    /// The leader will be awake by then.
    Later,
    /// It was not set: the registration is over.
    Over,
}

/// What became of taking one back.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleared {
    /// There is none of that kind any more.
    Done,
    /// Nothing was done: the registration is over, or goes on elsewhere.
    Over,
}

impl Timers {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            wheel: Mutex::new(Wheel::new()),
            earliest: AtomicU64::new(NEVER),
            clock,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sets the point in time of a slot, instead of the one that it had. `exists` tells whether the registration that
    /// is meant is still the slot's.
    pub(crate) fn set(&self, pin: &Pin, due: Due, at: Timestamp, exists: impl Fn() -> bool) -> Set {
        let mut wheel = lock(&self.wheel);
        let (node, is_new) = match pin.0.load(Ordering::Relaxed) {
            LOOSE => {
                let node = wheel.take_node(due);
                // Its pair is in `forget`. Of the two, the second sees the first: if this is the second, it also
                // sees that the registration is over.
                pin.0.swap(node, Ordering::AcqRel);
                (node, true)
            }
            node => (node, false),
        };
        if !exists() {
            // One that was there before is the next registration's, or `forget` is about to take it.
            if is_new {
                let _ = unpin(&mut wheel, pin, node);
            }
            return Set::Over;
        }
        wheel.set(node, due, ticks_up_to(at), whole_ticks(self.now()));
        let next = next_turn(&wheel);
        // Only lowered: the leader may be asleep until an earlier one that was taken back.
        match next < self.earliest.fetch_min(next, Ordering::AcqRel) {
            true => Set::Earliest,
            false => Set::Later,
        }
    }

    /// Takes a slot's point in time back, if `exists` and it is for one of these purposes.
    pub(crate) fn clear(
        &self,
        pin: &Pin,
        of: impl Fn(Purpose) -> bool,
        exists: impl Fn() -> bool,
    ) -> Cleared {
        let mut wheel = lock(&self.wheel);
        // Acquire: pairs with the swap in `take`. Who finds the pin loose because the time has gone along sees that the key
        // went stale before.
        let node = pin.0.load(Ordering::Acquire);
        if !exists() {
            return Cleared::Over;
        }
        match node != LOOSE && of(wheel.value(node).purpose) {
            true => unpin(&mut wheel, pin, node),
            false => Cleared::Done,
        }
    }

    /// The registration of a slot is over: so is its point in time. Before this its key went stale, and only after it
    /// the slot may be used again.
    pub(crate) fn forget(&self, pin: &Pin) {
        let node = pin.0.swap(LOOSE, Ordering::AcqRel);
        if node != LOOSE {
            lock(&self.wheel).give_back(node);
        }
    }

    /// The same, and tells what it was: its registration goes on elsewhere.
    pub(crate) fn take(&self, pin: &Pin) -> Option<(Purpose, Timestamp)> {
        let node = pin.0.swap(LOOSE, Ordering::AcqRel);
        (node != LOOSE).then(|| {
            let mut wheel = lock(&self.wheel);
            let (due, tick) = (wheel.value(node), wheel.tick(node));
            wheel.give_back(node);
            let at = Timestamp::from_nanos(tick.saturating_mul(TICK));
            (due.purpose, at)
        })
    }

    /// Until when a leader may sleep that wants to sleep until `until`. It has announced its sleep.
    pub(crate) fn limit(&self, until: Option<Timestamp>) -> Option<Timestamp> {
        match self.earliest() {
            None => until,
            Some(earliest) if self.now() >= earliest => Some(Timestamp::PAST),
            Some(earliest) => Some(until.map_or(earliest, |until| until.min(earliest))),
        }
    }

    /// Tells everything whose time has come, the time, and by how many milliseconds it is late. `due` may set another
    /// point for the same slot. Only the leader does this.
    pub(crate) fn expire(&self, mut due: impl FnMut(Due, Timestamp, u64) -> Option<Timestamp>) {
        let Some(earliest) = self.earliest() else {
            return;
        };
        let now = self.now();
        if now < earliest {
            return;
        }
        let mut wheel = lock(&self.wheel);
        let tick = whole_ticks(now);
        wheel.advance(tick, |value, at| {
            due(value, now, tick.saturating_sub(at)).map(ticks_up_to)
        });
        self.earliest.store(next_turn(&wheel), Ordering::Release);
    }

    /// When the next point in time may have come.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        match self.earliest.load(Ordering::Acquire) {
            NEVER => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }
}

/// When the wheel is to be turned next, in nanoseconds.
fn next_turn(wheel: &Wheel<Due>) -> u64 {
    wheel.next().map_or(NEVER, |tick| tick.saturating_mul(TICK))
}

/// Loosens a pin that has this node. If `forget` or `take` was faster, the node is its affair.
fn unpin(wheel: &mut Wheel<Due>, pin: &Pin, node: u32) -> Cleared {
    let loosened = pin
        .0
        .compare_exchange(node, LOOSE, Ordering::AcqRel, Ordering::Relaxed);
    match loosened {
        Ok(_) => {
            wheel.give_back(node);
            Cleared::Done
        }
        Err(_) => Cleared::Over,
    }
}

/// Rounded up: nothing is due before its time.
fn ticks_up_to(at: Timestamp) -> u64 {
    at.to_nanos().div_ceil(TICK)
}

fn whole_ticks(now: Timestamp) -> u64 {
    now.to_nanos() / TICK
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::VirtualClock;

    const SOON: Duration = Duration::from_millis(5);

    fn timers() -> (Timers, Arc<VirtualClock>) {
        let clock = Arc::new(VirtualClock::new());
        (Timers::new(Clock::Virtual(Arc::clone(&clock))), clock)
    }

    fn set(timers: &Timers, pin: &Pin, after: Duration, exists: bool) -> Set {
        let due = Due {
            key: 7,
            purpose: Purpose::Call,
        };
        timers.set(pin, due, timers.now().after(after), || exists)
    }

    fn expired(timers: &Timers) -> usize {
        let mut count = 0;
        timers.expire(|_, _, _| {
            count += 1;
            None
        });
        count
    }

    /// Who sets the earliest point nudges, and nobody else; a leader sleeps until then, or not at all.
    #[test]
    fn the_earliest_counts() {
        let (timers, clock) = timers();
        let pins = [(); 3].map(|()| Pin::new());
        assert_eq!(timers.limit(None), None);
        assert_eq!(set(&timers, &pins[0], 2 * SOON, true), Set::Earliest);
        assert_eq!(set(&timers, &pins[1], 3 * SOON, true), Set::Later);
        assert_eq!(set(&timers, &pins[2], SOON, true), Set::Earliest);
        let soon = timers.now().after(SOON);
        assert_eq!(timers.limit(None), Some(soon));
        let now = Some(timers.now());
        assert_eq!(timers.limit(now), now, "it wants to be up before");
        clock.advance(SOON);
        assert_eq!(timers.limit(None), Some(Timestamp::PAST));
        assert_eq!(expired(&timers), 1);
    }

    /// Of a registration that is over nothing is left: nobody is woken for it, and its node is used again.
    #[test]
    fn what_is_over_is_forgotten() {
        let (timers, clock) = timers();
        let pin = Pin::new();
        assert_eq!(set(&timers, &pin, SOON, true), Set::Earliest);
        timers.forget(&pin);
        assert!(!pin.is_set());
        assert_eq!(set(&timers, &pin, SOON, false), Set::Over);
        assert!(!pin.is_set());
        assert_eq!(
            set(&timers, &Pin::new(), 2 * SOON, true),
            Set::Later,
            "no wake"
        );
        clock.advance(SOON);
        assert_eq!(expired(&timers), 0);
        assert_eq!(timers.limit(None), Some(timers.now().after(SOON)));
    }

    /// Who is late, and means a registration that is over, takes nothing from the slot's next one.
    #[test]
    fn late_comers_leave_the_next_ones_time() {
        let (timers, clock) = timers();
        let pin = Pin::new();
        assert_eq!(set(&timers, &pin, SOON, true), Set::Earliest);
        assert_eq!(set(&timers, &pin, SOON, false), Set::Over);
        clock.advance(SOON);
        assert_eq!(expired(&timers), 1);
    }

    /// Who means another registration takes nothing back.
    #[test]
    fn only_its_own_is_taken_back() {
        let (timers, _) = timers();
        let pin = Pin::new();
        let _ = set(&timers, &pin, SOON, true);
        assert_eq!(timers.clear(&pin, |_| true, || false), Cleared::Over);
        assert!(pin.is_set());
        let is_deadline = |purpose| purpose == Purpose::Deadline;
        assert_eq!(timers.clear(&pin, is_deadline, || true), Cleared::Done);
        assert!(pin.is_set());
        assert_eq!(timers.clear(&pin, |_| true, || true), Cleared::Done);
        assert!(!pin.is_set());
        // Its registration has gone elsewhere, with its time.
        assert_eq!(timers.clear(&pin, |_| true, || false), Cleared::Over);
    }
}
