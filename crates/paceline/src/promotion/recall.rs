//! Until when a thread stays, and how it is recalled: made to leave its place as if its time were
//! over.
//!
//! A thread that waits for something else than the lead (a reply, say) stays in the pool meanwhile,
//! and serves. What it waits for is a question that it asks itself ([`Until::is_over`]); the thread
//! that makes the answer yes must then [recall](Call::recall) it, wherever it is:
//!
//! ```text
//!  it sleeps, as follower or standby    its word gets RECALLED, and it is woken: it asks, and
//!                                       takes itself off the list
//!  it leads, and may sleep in the set   its word has LEADS: the set must be woken
//!  it is awake                          its word gets RECALLED: it asks before it sleeps
//! ```
//!
//! Both are bits of the one word that it sleeps on. A thread about to wait in the set sets LEADS,
//! and then asks; a recalling thread has changed the answer, and then sets RECALLED. The second of
//! the two steps sees the first: so it asks in time, or the set is woken. All that a thread does
//! whose time is over, it does then too (I3, I4).
//!
//! A thread can also be **handed** something that no other is to do, an event of a handle that
//! belongs to it: its seat says so, and then it is recalled. Only the leader hands something to
//! others. So a thread that leads is handed nothing: it asks once when it has taken the lead, and
//! the set need not be woken. (A thread that handed it something before gave the lead away after
//! that: so it sees it.)

use std::sync::Arc;

use super::followers::Seat;
use crate::sync::{atomic::Ordering, Clock, Parker, Timestamp};

/// It was recalled, and has not asked since.
const RECALLED: u32 = 1 << 8;
/// It leads, and only the set's waker reaches it.
const LEADS: u32 = 1 << 9;

/// An elastic pool may let this thread go.
pub(super) const FREE: u64 = 0;
/// It does not: something belongs to it.
const KEPT: u64 = 1;
/// It has.
const GONE: u64 = 2;

/// What came of keeping a thread.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It is kept from now on.
    Begun,
    /// It was.
    Before,
    /// It is on its way out.
    Gone,
}

/// What a thread waits for.
pub(crate) struct Wanted<'s> {
    /// Whether it is there. The thread that makes that true recalls this one afterwards.
    pub(crate) is_there: &'s dyn Fn() -> bool,
}

/// When a thread's time in the pool is over: at a deadline, or when it has what it waits for.
/// (Small: it is handed on from role to role at every turn.)
#[derive(Clone, Copy)]
pub(crate) struct Until<'s> {
    deadline: Option<Timestamp>,
    wanted: Option<&'s Wanted<'s>>,
    /// Whose mailbox may be filled.
    of: Option<&'s Seat>,
}

impl<'s> Until<'s> {
    /// At `deadline`, or with the pool.
    pub(crate) fn at(deadline: Option<Timestamp>) -> Self {
        Self {
            deadline,
            wanted: None,
            of: None,
        }
    }

    /// At `deadline`, or as soon as it has what is wanted.
    pub(crate) fn recalled(deadline: Option<Timestamp>, wanted: &'s Wanted<'s>) -> Self {
        let wanted = Some(wanted);
        Self {
            wanted,
            ..Self::at(deadline)
        }
    }

    /// The same, or as soon as something was handed to this thread.
    pub(super) fn or_handed(self, seat: &'s Seat) -> Self {
        let of = Some(seat);
        Self { of, ..self }
    }

    /// Whether it is to leave its place: its time is over, or something was handed to it.
    pub(crate) fn is_over(&self, clock: &Clock) -> bool {
        self.is_late(clock) || self.is_handed()
    }

    /// Whether its time is over. Reads no clock where there is no deadline.
    #[inline]
    pub(crate) fn is_late(&self, clock: &Clock) -> bool {
        let may_end = self.deadline.is_some() || self.wanted.is_some();
        may_end && self.has_ended(clock)
    }

    /// The same, where it can be. (Apart: most threads have neither a deadline nor something to
    /// wait for.)
    #[inline(never)]
    fn has_ended(&self, clock: &Clock) -> bool {
        clock.has_passed(self.deadline) || self.is_recalled()
    }

    /// Whether it has something to do that was handed to it, and time for it.
    pub(super) fn is_handed_in_time(&self, clock: &Clock) -> bool {
        self.is_handed() && !self.is_late(clock)
    }

    fn is_handed(&self) -> bool {
        self.of.is_some_and(Seat::is_handed)
    }

    /// Whether it has what it waits for.
    pub(crate) fn is_recalled(&self) -> bool {
        self.wanted.is_some_and(|wanted| (wanted.is_there)())
    }

    /// Whether it waits for something.
    pub(crate) fn wants_something(&self) -> bool {
        self.wanted.is_some()
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// The same, but not later than `end`, if there is one.
    pub(crate) fn or_at(self, end: Option<Timestamp>) -> Self {
        let deadline = match (self.deadline, end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { deadline, ..self }
    }
}

/// How a thread that is recalled learns of it.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalled {
    /// It was woken, or is awake and will ask.
    Told,
    /// It leads: wake the set.
    WakeSet,
}

/// Reaches one thread, without a limit of time.
#[derive(Clone, Debug)]
pub(crate) struct Call(Arc<Parker>);

impl Call {
    /// Makes the thread ask whether its time is over. The caller has made it so.
    pub(crate) fn recall(&self) -> Recalled {
        let was = self.0.change(|word| word | RECALLED);
        match was & LEADS {
            0 => {
                self.0.wake();
                Recalled::Told
            }
            _ => Recalled::WakeSet,
        }
    }
}

impl Seat {
    /// Whether something waits that only this thread is to do.
    pub(crate) fn is_handed(&self) -> bool {
        self.handed.load(Ordering::Acquire)
    }

    /// Something does, or nothing any more. A caller that sets it to true recalls the thread
    /// afterwards.
    pub(crate) fn set_handed(&self, handed: bool) {
        self.handed.store(handed, Ordering::Release);
    }

    /// Something belongs to this thread: an elastic pool does not let it go any more, unless it
    /// has.
    pub(crate) fn keep(&self) -> Keeping {
        match self.change_tenure(FREE, KEPT) {
            Ok(_) => Keeping::Begun,
            Err(GONE) => Keeping::Gone,
            Err(_) => Keeping::Before,
        }
    }

    /// Nothing does, after all.
    pub(crate) fn keep_no_more(&self) {
        let _ = self.change_tenure(KEPT, FREE);
    }

    /// The pool lets it go, unless something belongs to it.
    pub(super) fn let_go(&self) -> bool {
        self.change_tenure(FREE, GONE).is_ok()
    }

    /// It was let go, and stays after all.
    pub(super) fn come_back(&self) {
        let _ = self.change_tenure(GONE, FREE);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.tenure.load(Ordering::Acquire) == KEPT
    }

    fn change_tenure(&self, from: u64, to: u64) -> Result<u64, u64> {
        let (done, not) = (Ordering::AcqRel, Ordering::Acquire);
        self.tenure.compare_exchange(from, to, done, not)
    }

    pub(crate) fn call(&self) -> Call {
        Call(Arc::clone(self.parker()))
    }

    /// This thread leads, and may wait in the set from now on: or it has what it waits for.
    pub(crate) fn may_wait(&self, until: Until<'_>) -> bool {
        self.parker().change(|word| word & !RECALLED | LEADS);
        !until.is_recalled()
    }

    /// Sleeps, on no list, until its time is over.
    pub(crate) fn sleep(&self, clock: &Clock, until: Until<'_>) {
        let nothing = || {
            self.parker().take();
            None::<()>
        };
        doze(clock, self.parker(), nothing, until);
    }

    /// It does not wait in the set any more. (A recall that came too late for the set is no news:
    /// it asks anyway.)
    pub(crate) fn waits_no_more(&self) {
        self.parker().change(|word| word & !(RECALLED | LEADS));
    }
}

/// Sleeps on `parker` until `take` finds a message, or until `until`; a sleep that ends early
/// changes nothing.
pub(super) fn doze<M>(
    clock: &Clock,
    parker: &Arc<Parker>,
    take: impl Fn() -> Option<M>,
    until: Until<'_>,
) -> Option<M> {
    loop {
        let message = take();
        if message.is_some() || until.is_over(clock) {
            return message;
        }
        clock.sleep(parker, until.deadline());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use super::{super::followers::Message, *};

    /// Two recall a thread that is about to sleep: it does not, as if one had.
    #[test]
    fn recalled_twice_is_recalled() {
        let seat = Seat::new(0, 0);
        for _ in 0..2 {
            assert_eq!(seat.call().recall(), Recalled::Told);
        }
        assert_ne!(seat.parker().take(), 0, "it would sleep");
    }

    /// A leader is reached by the set's waker, from when it may wait until it does not any more,
    /// however often it waits. A recall that came before is used up by the question; a message is
    /// not.
    #[test]
    fn who_leads_is_reached_in_the_set() {
        let seat = Seat::new(0, 0);
        assert_eq!(seat.call().recall(), Recalled::Told);
        for _ in 0..2 {
            assert!(seat.may_wait(Until::at(None)));
            assert_eq!(seat.parker().change(|word| word), LEADS);
        }
        assert_eq!(seat.call().recall(), Recalled::WakeSet);
        seat.waits_no_more();
        assert_eq!(seat.parker().take(), 0);
        seat.post(Message::Lead);
        seat.waits_no_more();
        assert_eq!(seat.take_message(), Some(Message::Lead));
    }

    /// A thread that sleeps on no list does so until its time is over, whatever messages it gets
    /// meanwhile.
    #[test]
    fn it_sleeps_until_its_time_is_over() {
        let (seat, clock) = (Seat::new(0, 0), Clock::monotonic());
        let deadline = Some(clock.now().after(Duration::from_millis(20)));
        assert_eq!(seat.call().recall(), Recalled::Told);
        seat.sleep(&clock, Until::at(deadline));
        assert!(clock.has_passed(deadline));
    }

    /// It does not wait for what is there.
    #[test]
    fn what_is_there_is_not_waited_for() {
        let (seat, is_there) = (Seat::new(0, 0), &|| true);
        let wanted = Wanted { is_there };
        assert!(!seat.may_wait(Until::recalled(None, &wanted)));
    }

    /// An elastic pool lets a thread go, or keeps it: not one after the other, unless it is kept no
    /// more.
    #[test]
    fn kept_or_gone() {
        let seat = Seat::new(0, 0);
        assert_eq!(seat.keep(), Keeping::Begun);
        assert_eq!(seat.keep(), Keeping::Before);
        assert!(!seat.let_go());
        seat.keep_no_more();
        assert!(seat.let_go());
        seat.keep_no_more();
        assert_eq!(seat.keep(), Keeping::Gone);
    }
}
