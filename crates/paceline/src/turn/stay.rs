//! A stay: a handler waits for something of its own, and its thread is back in the pool meanwhile.
//!
//! ```text
//!  Processing --- its handler waits ---> Follower, Leader, ... as ever
//!      ^                                                            |
//!      +-------- recalled, or its time is over ---------------------+
//! ```
//!
//! The turn is the same, one frame deeper. `promotion/recall.rs` has what ends it. A thread that
//! stays is *bound* unless it serves everything: it comes last in an election, and if it finds an
//! event that is not its own while another thread is free, it puts that back and gives the lead
//! away.

use std::{
    cell::RefCell,
    io,
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    sync::Arc,
};

use super::{Claimed, Follower, Leader, Led, ThreadState, Waited};
use crate::{
    dispatch::{nobody_returns, Duty, Errand, Line, Pace, Recall, Returned, Serve},
    observe::Role,
    promotion::{Behind, Recalled, Rejoined, Running, Until, Wanted},
    sync::Timestamp,
    unwind::abort_on_unwind,
};

/// A thread that runs a handler: what it may report to the pool, and how it can stay.
pub(super) struct OnDuty<'t, 'p> {
    pub(super) running: &'t Running<'p, Line>,
    pub(super) state: &'t ThreadState<'p>,
}

impl Duty for OnDuty<'_, '_> {
    fn go_away(&self) {
        // After this another thread may lead, and its observer's calls come in their own order.
        self.running.go_away();
        self.state.hub.report_away(&self.state.seat, true);
    }

    fn come_back(&self) {
        // It was not on the list meanwhile.
        let _ = self.running.come_back();
        self.state.hub.report_away(&self.state.seat, false);
    }

    fn call_for_help(&self) {
        self.running.call_for_help();
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.state.hub.clock.now())
    }

    fn expect(&self, pace: Pace) {
        match pace {
            Pace::Blocking => self.running.expect_sleep(),
            Pace::Short => self.running.run_on(),
            Pace::Computing => {
                self.running.run_on();
                self.running.call_for_help_if_room();
            }
        }
    }

    fn recall(&self) -> io::Result<Recall> {
        let ThreadState { hub, seat, .. } = self.state;
        if !hub.lead.can_recall() {
            return Err(nobody_returns());
        }
        Ok(Recall::new(seat.recall_by(|| {
            let (call, registry) = (seat.call(), Arc::downgrade(&hub.registry));
            Arc::new(move || {
                if call.recall() == Recalled::WakeSet {
                    registry.upgrade().iter().for_each(|it| it.wake_set());
                }
            })
        })))
    }

    fn until_closed(&self, wake: &Recall, block: &mut dyn FnMut(&dyn Fn() -> bool)) {
        self.state.until_closed(wake, block);
    }

    fn go(&self, errand: &Errand<'_>, is_done: &dyn Fn() -> bool) -> io::Result<Returned> {
        let state = self.state;
        if !state.hub.lead.can_recall() {
            return Err(nobody_returns());
        }
        state.hub.registry.check_depth()?;
        let now = state.hub.clock.now();
        let deadline = errand.within.map(|within| now.after(within));
        // The user's code: its panic comes back when this thread is where it was.
        let panicked = RefCell::new(None);
        let is_done = || {
            panicked.borrow().is_some()
                || catch_unwind(AssertUnwindSafe(is_done)).unwrap_or_else(|panic| {
                    *panicked.borrow_mut() = Some(panic);
                    true
                })
        };
        let wanted = Wanted { is_there: &is_done };
        let until = Until::recalled(deadline, &wanted).or_at(state.until.deadline());
        let returned = match errand.serve {
            Serve::Nothing => Ok(self.sleep(until)),
            Serve::Chain | Serve::Any => self.stay(errand, until, now),
        };
        match panicked.into_inner() {
            Some(panic) => resume_unwind(panic),
            None => returned,
        }
    }
}

impl OnDuty<'_, '_> {
    /// Back to the pool, and then back to the handler.
    fn stay(&self, errand: &Errand<'_>, until: Until<'_>, now: Timestamp) -> io::Result<Returned> {
        let Self { running, state } = *self;
        let rejoined = running.pause(&state.seat, now);
        let held = match rejoined {
            Rejoined::Leads(held) => Some(held),
            Rejoined::Follows | Rejoined::Surprised => None,
        };
        let was_bound = state.seat.set_bound(errand.serve != Serve::Any);
        let mut again = state.again(until);
        again.held = held;
        let follower = Follower { state: again };
        let returned = abort_on_unwind(|| stay_until_over(follower, errand, until));
        state.seat.set_bound(was_bound);
        if running.come_back() == Behind::Nobody {
            state.hub.call_one_more(state.hub.clock.now());
        }
        state.tell(Role::Processing);
        returned
    }

    /// Sleeps, away from the pool, until it is recalled or its time is over.
    fn sleep(&self, until: Until<'_>) -> Returned {
        let state = self.state;
        self.go_away();
        state.seat.sleep(&state.hub.clock, until);
        self.come_back();
        if until.is_recalled() {
            Returned::Done
        } else {
            Returned::TimedOut
        }
    }
}

impl ThreadState<'_> {
    /// Runs `block`, which gets the question whether the pool is closed. When it is, `wake` is
    /// called.
    pub(super) fn until_closed(&self, wake: &Recall, block: &mut dyn FnMut(&dyn Fn() -> bool)) {
        let lead = &self.hub.lead;
        let _reached = lead.reach(wake.function());
        block(&|| lead.is_closed());
    }
}

/// The turn of a thread that stays.
fn stay_until_over(
    mut follower: Follower<'_>,
    errand: &Errand<'_>,
    until: Until<'_>,
) -> io::Result<Returned> {
    loop {
        follower = match follower.lead() {
            Led::Leader(leader) => match wait(leader)? {
                Waited::Claimed(claimed) if !is_for_others(&claimed, errand) => {
                    claimed.promote().run()
                }
                Waited::Claimed(claimed) => pass_on(claimed),
                Waited::Nothing(follower) => follower,
            },
            Led::TimedOut if until.is_recalled() => return Ok(Returned::Done),
            Led::TimedOut => return Ok(Returned::TimedOut),
            Led::Closing => return Ok(Returned::Closing),
        };
    }
}

/// As [`Leader::wait`], and a recall ends it.
fn wait(leader: Leader<'_>) -> io::Result<Waited<'_>> {
    let seat = Arc::clone(&leader.state.seat);
    let waited = if seat.may_wait(leader.state.until) {
        leader.wait(None)
    } else {
        Ok(Waited::Nothing(leader.step_down()))
    };
    seat.waits_no_more();
    waited
}

/// Whether this event is not this thread's affair, and another can take care of it.
fn is_for_others(claimed: &Claimed<'_>, errand: &Errand<'_>) -> bool {
    errand.serve == Serve::Chain
        && !errand.is_own(&claimed.claim)
        && claimed.state.hub.lead.has_free_follower()
}

/// Puts the event back and gives the lead to a free follower.
fn pass_on(claimed: Claimed<'_>) -> Follower<'_> {
    let Claimed { claim, mut state } = claimed;
    let held = state.held.as_mut();
    let remains = held.and_then(|held| held.with_owned(|line| claim.release_into(line)));
    state.give_lead_up();
    drop(remains);
    state.hub.counters.passed_on.one_more();
    Follower { state }
}
