//! The turn in a concurrent set: all threads wait there at once, and the system chooses which of
//! them gets an event.
//!
//! The roles are the same, with nothing to give away: every thread may lead at once, and to promote
//! is only to say that this thread handles an event now. So no thread is reported as leader, and no
//! follower sleeps anywhere but in the set.

use std::io;

use super::{Claimed, Follower, Leader, Led, Place, Processing, Seated, Waited};
use crate::{
    dispatch::{Claim, Dispatched, Duty, Found, Recall},
    observe::Role,
    sync::Timestamp,
};

/// Everyone may wait, whose time is not over, until the pool's is.
#[cold]
pub(super) fn lead(place: Place<'_>) -> Led<'_> {
    if place.is_late() {
        return Led::TimedOut;
    }
    if is_over(&place) {
        Led::Closing
    } else {
        Led::Leader(Leader { place })
    }
}

/// Waits for one event, among other threads that do. A woken thread checks for every reason before
/// it gives up: a wake reaches one thread only.
#[cold]
pub(super) fn wait(leader: Leader<'_>, until: Option<Timestamp>) -> io::Result<Waited<'_>> {
    let Leader { place } = leader;
    let shared = place.shared;
    while !is_over(&place) {
        match shared.registry.next_for_anyone(until)? {
            Found::Handle(claim) => {
                return Ok(Waited::Claimed(Claimed { claim, place }));
            }
            Found::Nothing if shared.clock.has_passed(until) => break,
            Found::Nothing | Found::LookAgain => {}
        }
    }
    Ok(Waited::Nothing(follower(place)))
}

/// There is no thread to promote: others wait already.
#[cold]
pub(super) fn promote<'p>(mut claim: Claim<'p>, place: Place<'p>) -> Processing<'p> {
    let (shared, start) = (place.shared, place.shared.clock.now());
    if shared.lead.is_observed() {
        shared.tell_event(&place.seat, &mut claim, start);
        let thread = place.seat.index();
        shared.observers.tell_first(thread, Role::Processing);
    }
    Processing {
        claim,
        running: None,
        start,
        place,
    }
}

/// Calls the handler, gives the handle back, and does what was left for afterwards.
#[cold]
pub(super) fn run(processing: Processing<'_>) -> Follower<'_> {
    let Processing {
        claim,
        start,
        place,
        ..
    } = processing;
    let shared = place.shared;
    let duty = OneOfMany(&place);
    let mut afterwards = claim.afterwards();
    let Dispatched { claim, end } = claim.dispatch(&shared.clock, start, &duty, &mut afterwards);
    if let Some(claim) = claim {
        claim.release_for_anyone(&afterwards);
    }
    if !afterwards.is_empty() {
        place.run_afterwards(afterwards, &duty, end);
    }
    place.tell(Role::Follower);
    follower(place)
}

fn follower(place: Place<'_>) -> Follower<'_> {
    Follower { place }
}

/// Whether no thread shall wait any more. A thread that finds out wakes the next.
fn is_over(place: &Place<'_>) -> bool {
    let is_over = place.shared.is_over();
    if is_over {
        place.shared.registry.end_waits();
    }
    is_over
}

/// A thread whose handler may block as it likes: others wait already.
struct OneOfMany<'t>(&'t Place<'t>);

impl OneOfMany<'_> {
    /// Shows to the board and to observers whether this thread is away.
    fn show(&self, role: Role) {
        let Seated { shared, seat, .. } = &**self.0;
        if let Some(row) = seat.row() {
            row.set_away(role, shared.clock.now());
        }
        shared.report_away(seat, role == Role::Away);
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
        Some(self.0.shared.clock.now())
    }
}
