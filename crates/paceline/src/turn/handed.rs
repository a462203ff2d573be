//! What was handed to a thread: an event of a handle that belongs to it, and that another thread
//! found.
//!
//! ```text
//!  Follower --- lead(): recalled --> Processing --- run() --> Follower --- lead() goes on
//! ```
//!
//! The leader puts it into this thread's mailbox (`dispatch/mailboxes.rs`) and recalls it
//! (`promotion/recall.rs`). It is served before this thread leads: so nothing waits in a mailbox
//! while its thread waits for something else. This thread gives no lead away for it, for it has
//! none; the other one goes on leading. But that one may have promoted, and relied on this thread,
//! which was asleep then: so if no thread is left an elastic pool calls one more.

use super::{Follower, Processing, ThreadState};
use crate::{dispatch::Claim, observe::Role, promotion::Behind};

/// Handles an event that was handed to this thread, if one is still for it.
#[cold]
pub(super) fn serve(state: Box<ThreadState<'_>>) -> Follower<'_> {
    let hub = state.hub;
    match state
        .mailbox
        .as_ref()
        .and_then(|mailbox| hub.registry.take_handed(mailbox))
    {
        Some(claim) => begin(state, claim).run(),
        None => Follower { state },
    }
}

/// There is no lead to give away: another thread leads, or may.
fn begin<'p>(state: Box<ThreadState<'p>>, mut claim: Claim<'p>) -> Processing<'p> {
    let (hub, mut start) = (state.hub, state.hub.clock.now());
    if hub.lead.is_observed() {
        hub.tell_event(&state.seat, &mut claim, start);
        let thread = state.seat.index();
        hub.observers.tell_first(thread, Role::Processing);
    }
    let (running, behind) = hub.lead.run_handed(start);
    // The call for another thread is not the handler's time.
    if behind == Behind::Nobody && hub.call_one_more(start) {
        start = hub.clock.now();
        let row = state.seat.row();
        row.iter().for_each(|row| row.note_start(start));
    }
    Processing {
        claim,
        running: Some(running),
        start,
        state,
    }
}
