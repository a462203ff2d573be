//! Points in time at which the leader has something to do, besides the events of its handle set.
//!
//! They are kept in a wheel (`wheel.rs`), under a lock of its own. Each belongs to a slot of the
//! registry, which has a **pin**: its node in the wheel. This room knows no handles; it gives a key
//! back when its time has come.
//!
//! The leader sleeps until the earliest point. A thread that sets an earlier one must end that
//! sleep; one that sets a later one must not. Both are decided without asking the leader:
//!
//! ```text
//!   a setting thread                          the leader
//!   1. changes the wheel                      1. announces its sleep (the head of the return list)
//!   2. publishes the earliest point           2. reads the earliest point
//!   3. if it is earlier than before:          3. sleeps until then
//!      nudges (the head of the return list)
//! ```
//!
//! The two change the same word, the head. If the announcement comes first, the nudge finds it and
//! wakes the leader; if the nudge comes first, the leader reads what was published before it.
//!
//! What is taken back stays published: the leader may wake once for nothing. But timers that are
//! set and taken back with every request, as deadlines are, wake no thread.
//!
//! A handle's deadline and its idle time-out are lazy. They are fields of its slot (`times.rs`), at
//! which the wheel looks again. When the point comes and is too early, the leader sets another. So
//! a busy handle costs one look per time-out, not one change of the wheel per request.

mod times;
mod wheel;

use std::time::Duration;

pub(crate) use self::times::{earliest, TimeLimits, Times};
use self::{times::Look, wheel::Wheel};
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
    /// A task is to be called.
    Call,
    /// The wheel is to look at the times of a handle.
    Look,
}

/// Whose time has come, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) key: u64,
    pub(crate) purpose: Purpose,
}

/// The place in a slot that holds its node of the wheel.
#[derive(Debug)]
pub(crate) struct TimerNode(AtomicU32);

const LOOSE: u32 = u32::MAX;

impl TimerNode {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(LOOSE))
    }

    /// Whether its slot has, or may have had, a point in time.
    #[cfg(all(test, not(any(loom, shuttle))))]
    fn is_set(&self) -> bool {
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

    /// Has a task called at `at`, instead of the point that it had. `exists` says whether the
    /// registration that is meant is still the slot's.
    pub(crate) fn call_at(
        &self,
        times: &Times,
        key: u64,
        at: Timestamp,
        exists: impl Fn() -> bool,
    ) -> Set {
        let mut wheel = lock(&self.wheel);
        let purpose = Purpose::Call;
        let due = Due { key, purpose };
        match pin_to(&mut wheel, &times.pin, due, exists) {
            None => Set::Over,
            Some(node) => self.wait_for(&mut wheel, node, due, at),
        }
    }

    /// Sets the deadline of a registration that the caller owns, or clears it. It takes the lock
    /// only if the wheel would look too late.
    pub(crate) fn set_own_deadline(&self, times: &Times, key: u64, at: Option<Timestamp>) -> Set {
        match times.set_deadline(at) {
            Look::InTime => Set::Later,
            Look::TooLate => self.change(times, key, |_| (), || true),
        }
    }

    /// The same under the lock, for a caller that may not own it. Times that are `fixed` stay as
    /// they are; that is asked under the lock too.
    pub(crate) fn set_deadline(
        &self,
        times: &Times,
        key: u64,
        at: Option<Timestamp>,
        exists: impl Fn() -> bool,
        fixed: impl Fn() -> bool,
    ) -> Set {
        let set = |times: &Times| {
            if !fixed() {
                let _ = times.set_deadline(at);
            }
        };
        self.change_or_clear(times, key, at.is_some(), set, exists)
    }

    /// Sets the idle time-out of a registration, or clears it.
    pub(crate) fn set_idle(
        &self,
        times: &Times,
        key: u64,
        span: Option<Duration>,
        exists: impl Fn() -> bool,
        fixed: impl Fn() -> bool,
    ) -> Set {
        let set = |times: &Times| {
            if !fixed() {
                times.set_idle(span);
            }
        };
        self.change_or_clear(times, key, span.is_some(), set, exists)
    }

    /// Sets both times of a registration that the caller owns.
    pub(crate) fn limit(&self, times: &Times, key: u64, limits: TimeLimits) -> Set {
        let set = |times: &Times| {
            let _ = times.set_deadline(limits.deadline);
            times.set_idle(limits.idle);
        };
        self.change(times, key, set, || true)
    }

    /// Clears the deadline of a registration that the caller owns, if it is this one.
    pub(crate) fn clear_own_deadline(&self, times: &Times, at: Timestamp) {
        times.clear_deadline(at);
    }

    /// The registration of a slot is over: so are its times. Before this its key went stale, and
    /// only after it the slot may be used again.
    pub(crate) fn forget(&self, times: &Times) {
        let _ = self.take(times);
    }

    /// The same, and returns what they were: the registration goes on elsewhere.
    pub(crate) fn take(&self, times: &Times) -> TimeLimits {
        let node = times.pin.0.swap(LOOSE, Ordering::AcqRel);
        if node == LOOSE {
            return TimeLimits::default();
        }
        let mut wheel = lock(&self.wheel);
        wheel.give_back(node);
        times.take()
    }

    /// Changes the times. What is loose has none, so there is nothing to clear.
    fn change_or_clear(
        &self,
        times: &Times,
        key: u64,
        sets: bool,
        change: impl FnOnce(&Times),
        exists: impl Fn() -> bool,
    ) -> Set {
        // Acquire: pairs with the swap in `take`. A pin that is loose because the times have gone
        // along shows that the key went stale before.
        let is_loose = times.pin.0.load(Ordering::Acquire) == LOOSE;
        if sets || !is_loose {
            self.change(times, key, change, exists)
        } else if exists() {
            Set::Later
        } else {
            Set::Over
        }
    }

    /// Changes the times under the lock. If the wheel would look too late, it is set.
    fn change(
        &self,
        times: &Times,
        key: u64,
        change: impl FnOnce(&Times),
        exists: impl Fn() -> bool,
    ) -> Set {
        let mut wheel = lock(&self.wheel);
        let purpose = Purpose::Look;
        let due = Due { key, purpose };
        let Some(node) = pin_to(&mut wheel, &times.pin, due, exists) else {
            return Set::Over;
        };
        change(times);
        let Some(at) = times.earlier_look() else {
            return Set::Later;
        };
        times.end_look(Some(at));
        self.wait_for(&mut wheel, node, due, at)
    }

    /// Lets a node wait for this point.
    fn wait_for(&self, wheel: &mut Wheel<Due>, node: u32, due: Due, at: Timestamp) -> Set {
        wheel.set(node, due, ticks_up_to(at), whole_ticks(self.now()));
        let next = next_turn(wheel);
        // Only lowered: the leader may be asleep until an earlier one that was taken back.
        if next < self.earliest.fetch_min(next, Ordering::AcqRel) {
            Set::Earliest
        } else {
            Set::Later
        }
    }

    /// Until when a leader may sleep that wants to sleep until `until`. It has announced its sleep.
    pub(crate) fn sleep_limit(&self, until: Option<Timestamp>) -> Option<Timestamp> {
        match self.earliest() {
            None => until,
            Some(earliest) if self.now() >= earliest => Some(Timestamp::PAST),
            Some(earliest) => Some(until.map_or(earliest, |until| until.min(earliest))),
        }
    }

    /// Passes on every slot whose time has come, the time, and by how many milliseconds it is late.
    /// `due` may set another point for the same slot. Only the leader does this.
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

/// The node of a pin; a new one if it is loose. `None` if the registration that is meant is over.
fn pin_to(
    wheel: &mut Wheel<Due>,
    pin: &TimerNode,
    due: Due,
    exists: impl Fn() -> bool,
) -> Option<u32> {
    // Acquire: as in `change_or_clear`.
    match pin.0.load(Ordering::Acquire) {
        LOOSE => {
            let node = wheel.take_node(due);
            // Its pair is in `take`. Of the two, the second sees the first: if this is the second,
            // it also sees that the registration is over.
            pin.0.swap(node, Ordering::AcqRel);
            exists().then_some(node).or_else(|| {
                unpin(wheel, pin, node);
                None
            })
        }
        // If it is over, this is the next one's, or `take` is about to take it.
        node => exists().then_some(node),
    }
}

/// Loosens a pin that has this node. If `take` was faster, the node is its affair.
fn unpin(wheel: &mut Wheel<Due>, pin: &TimerNode, node: u32) {
    let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    if pin
        .0
        .compare_exchange(node, LOOSE, success, failure)
        .is_ok()
    {
        wheel.give_back(node);
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

    fn set(timers: &Timers, times: &Times, after: Duration, exists: bool) -> Set {
        timers.call_at(times, 7, timers.now().after(after), || exists)
    }

    fn expired(timers: &Timers) -> usize {
        let mut count = 0;
        timers.expire(|_, _, _| {
            count += 1;
            None
        });
        count
    }

    /// A thread that sets the earliest point nudges, and no other does; a leader sleeps until then,
    /// or not at all.
    #[test]
    fn the_earliest_counts() {
        let (timers, clock) = timers();
        let times = [(); 3].map(|()| Times::new());
        assert_eq!(timers.sleep_limit(None), None);
        assert_eq!(set(&timers, &times[0], 2 * SOON, true), Set::Earliest);
        assert_eq!(set(&timers, &times[1], 3 * SOON, true), Set::Later);
        assert_eq!(set(&timers, &times[2], SOON, true), Set::Earliest);
        let soon = timers.now().after(SOON);
        assert_eq!(timers.sleep_limit(None), Some(soon));
        let now = Some(timers.now());
        assert_eq!(timers.sleep_limit(now), now, "it wants to be up before");
        clock.advance(SOON);
        assert_eq!(timers.sleep_limit(None), Some(Timestamp::PAST));
        assert_eq!(expired(&timers), 1);
    }

    /// Of a registration that is over nothing is left: no thread is woken for it, and its node is
    /// used again.
    #[test]
    fn what_is_over_is_forgotten() {
        let (timers, clock) = timers();
        let times = Times::new();
        assert_eq!(set(&timers, &times, SOON, true), Set::Earliest);
        timers.forget(&times);
        assert!(!times.pin.is_set());
        assert_eq!(set(&timers, &times, SOON, false), Set::Over);
        assert!(!times.pin.is_set());
        assert_eq!(
            set(&timers, &Times::new(), 2 * SOON, true),
            Set::Later,
            "no wake"
        );
        clock.advance(SOON);
        assert_eq!(expired(&timers), 0);
        assert_eq!(timers.sleep_limit(None), Some(timers.now().after(SOON)));
    }

    /// A late thread that means a registration that is over takes nothing from the slot's next one.
    #[test]
    fn late_comers_leave_the_next_ones_time() {
        let (timers, clock) = timers();
        let times = Times::new();
        assert_eq!(set(&timers, &times, SOON, true), Set::Earliest);
        assert_eq!(set(&timers, &times, SOON, false), Set::Over);
        clock.advance(SOON);
        assert_eq!(expired(&timers), 1);
    }

    /// A caller that means another registration changes nothing.
    #[test]
    fn only_its_own_is_changed() {
        let (timers, _) = timers();
        let times = Times::new();
        let at = Some(timers.now().after(SOON));
        let set = |at, exists: bool| timers.set_deadline(&times, 7, at, || exists, || false);
        assert_eq!(set(at, true), Set::Earliest);
        assert_eq!(set(None, false), Set::Over);
        assert_eq!(times.deadline(), at);
        assert_eq!(set(None, true), Set::Later);
        assert_eq!(times.deadline(), None);
        timers.forget(&times);
        // Its registration has gone elsewhere, with its times.
        assert_eq!(set(None, false), Set::Over);
    }

    /// A later deadline, and one that is cleared, change only a field: the wheel keeps the node
    /// where it waits. An earlier one sets the wheel.
    #[test]
    fn a_later_deadline_leaves_the_wheel_alone() {
        let (timers, clock) = timers();
        let times = Times::new();
        let set = |after| {
            let at = timers.now().after(after);
            timers.set_own_deadline(&times, 7, Some(at))
        };
        assert_eq!(set(10 * SOON), Set::Earliest);
        for _ in 0..5 {
            clock.advance(SOON);
            assert_eq!(timers.set_own_deadline(&times, 7, None), Set::Later);
            assert_eq!(set(10 * SOON), Set::Later);
        }
        let of_the_first = Some(Timestamp::from_nanos(50 * TICK));
        assert_eq!(timers.sleep_limit(None), of_the_first);
        assert_eq!(set(SOON), Set::Earliest);
    }
}
