//! The turn in a concurrent set: all threads wait there at once, and the system chooses which of
//! them gets an event.
//!
//! The roles are the same, with nothing to give away: every thread may lead at once, and to promote
//! is only to say that this thread handles an event now. So no thread is reported as leader, and no
//! follower sleeps anywhere but in the set.

use std::io;

use super::{Claimed, Follower, Leader, Led, Processing, ThreadState, Waited};
use crate::{
    dispatch::{Claim, Dispatched, Duty, Found, Recall},
    observe::Role,
    sync::Timestamp,
};

/// Everyone may wait, whose time is not over, until the pool's is.
#[cold]
pub(super) fn lead(state: Box<ThreadState<'_>>) -> Led<'_> {
    if state.is_late() {
        return Led::TimedOut;
    }
    if is_over(&state) {
        Led::Closing
    } else {
        Led::Leader(Leader { state })
    }
}

/// Waits for one event, among other threads that do. A woken thread checks for every reason before
/// it gives up: a wake reaches one thread only.
#[cold]
pub(super) fn wait(leader: Leader<'_>, until: Option<Timestamp>) -> io::Result<Waited<'_>> {
    let Leader { state } = leader;
    let hub = state.hub;
    while !is_over(&state) {
        match hub.registry.next_for_anyone(until)? {
            Found::Handle(claim) => {
                return Ok(Waited::Claimed(Claimed { claim, state }));
            }
            Found::Nothing if hub.clock.has_passed(until) => break,
            Found::Nothing | Found::LookAgain => {}
        }
    }
    Ok(Waited::Nothing(follower(state)))
}

/// There is no thread to promote: others wait already.
#[cold]
pub(super) fn promote<'p>(mut claim: Claim<'p>, state: Box<ThreadState<'p>>) -> Processing<'p> {
    let (hub, start) = (state.hub, state.hub.clock.now());
    if hub.lead.is_observed() {
        hub.tell_event(&state.seat, &mut claim, start);
        let thread = state.seat.index();
        hub.observers.tell_first(thread, Role::Processing);
    }
    Processing {
        claim,
        running: None,
        start,
        state,
    }
}

/// Calls the handler, gives the handle back, and does what was left for afterwards.
#[cold]
pub(super) fn run(processing: Processing<'_>) -> Follower<'_> {
    let Processing {
        claim,
        start,
        state,
        ..
    } = processing;
    let hub = state.hub;
    let duty = OneOfMany(&state);
    let mut afterwards = claim.afterwards();
    let Dispatched { claim, end } = claim.dispatch(&hub.clock, start, &duty, &mut afterwards);
    if let Some(claim) = claim {
        claim.release_for_anyone(&afterwards);
    }
    if !afterwards.is_empty() {
        state.run_afterwards(afterwards, &duty, end);
    }
    state.tell(Role::Follower);
    follower(state)
}

fn follower(state: Box<ThreadState<'_>>) -> Follower<'_> {
    Follower { state }
}

/// Whether no thread shall wait any more. A thread that finds out wakes the next.
fn is_over(state: &ThreadState<'_>) -> bool {
    let is_over = state.hub.is_over();
    if is_over {
        state.hub.registry.end_waits();
    }
    is_over
}

/// A thread whose handler may block as it likes: others wait already.
struct OneOfMany<'t>(&'t ThreadState<'t>);

impl OneOfMany<'_> {
    /// Shows to the board and to observers whether this thread is away.
    fn show(&self, role: Role) {
        let ThreadState { hub, seat, .. } = self.0;
        if let Some(row) = seat.row() {
            row.set_away(role, hub.clock.now());
        }
        hub.report_away(seat, role == Role::Away);
    }
}

impl Duty for OneOfMany<'_> {
    fn go_away(&self) {
        self.show(Role::Away);
    }

    fn come_back(&self) {
        self.show(Role::Processing);
    }

    fn call_for_help(&self) {}

    fn until_closed(&self, wake: &Recall, block: &mut dyn FnMut(&dyn Fn() -> bool)) {
        self.0.until_closed(wake, block);
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.0.hub.clock.now())
    }
}
