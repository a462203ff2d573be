//! What was handed to a thread: an event of a handle that belongs to it, and that another thread
//! found.
//!
//! ```text
//!  Follower --- lead(): recalled --> Processing --- run() --> Follower --- lead() goes on
//! ```
//!
//! The leader puts it into this thread's tray (`dispatch/trays.rs`) and recalls it
//! (`promotion/recall.rs`). It is served before this thread leads: so nothing waits in a tray while
//! its thread waits for something else. This thread gives no lead away for it, for it has none; the
//! other one goes on leading. But that one may have promoted, and relied on this thread, which was
//! asleep then: so if no thread is left an elastic pool calls one more.

use std::sync::Arc;

use super::{Follower, Place, Processing};
use crate::{
    dispatch::{Asleep, Claim, Kept, Line, OwnTray, Reach, Tray},
    observe::Role,
    pool::Shared,
    promotion::{Behind, Keeping, Lead, Seat},
};

/// How one thread of a pool is reached.
struct AtSeat {
    lead: Arc<Lead<Line>>,
    seat: Arc<Seat>,
}

impl Reach for AtSeat {
    fn set_handed(&self, handed: bool) {
        self.seat.set_handed(handed);
    }

    fn recall(&self) {
        // It does not lead, for the caller does: so the set need not be woken.
        let _ = self.seat.call().recall();
    }

    fn if_asleep(&self, how: Asleep, act: &mut dyn FnMut()) -> bool {
        self.lead.if_asleep(&self.seat, how == Asleep::Anyhow, act)
    }

    fn keep(&self) -> Kept {
        match self.seat.keep() {
            Keeping::Begun => Kept::Begun,
            Keeping::Before => Kept::Before,
            Keeping::Gone => Kept::Gone,
        }
    }

    fn keep_no_more(&self) {
        self.seat.keep_no_more();
    }
}

/// A tray for a thread that enters the pool, unless no thread is handed anything there.
pub(crate) fn open_tray(shared: &Shared, seat: &Arc<Seat>) -> Option<Arc<OwnTray>> {
    if shared.registry.is_open() || shared.lead.hands_nothing().is_some() {
        return None;
    }
    let (lead, seat) = (Arc::clone(&shared.lead), Arc::clone(seat));
    let tray = Tray::new(Box::new(AtSeat { lead, seat }));
    Some(Arc::new(shared.registry.open_tray(tray)))
}

/// Handles an event that was handed to this thread, if one is still for it.
#[cold]
pub(super) fn serve(place: Place<'_>) -> Follower<'_> {
    let shared = place.shared;
    match place
        .tray
        .as_ref()
        .and_then(|tray| shared.registry.take_handed(tray))
    {
        Some(claim) => begin(place, claim).run(),
        None => Follower { place },
    }
}

/// There is no lead to give away: another thread leads, or may.
fn begin<'p>(place: Place<'p>, mut claim: Claim<'p>) -> Processing<'p> {
    let (shared, mut start) = (place.shared, place.shared.clock.now());
    if shared.lead.is_observed() {
        shared.tell_event(&place.seat, &mut claim, start);
        let thread = place.seat.index();
        shared.observers.tell_first(thread, Role::Processing);
    }
    let (running, behind) = shared.lead.run_handed(start);
    // The call for another thread is not the handler's time.
    if behind == Behind::Nobody && shared.call_one_more(start) {
        start = shared.clock.now();
        let row = place.seat.row();
        row.iter().for_each(|row| row.note_start(start));
    }
    Processing {
        claim,
        running: Some(running),
        start,
        place,
    }
}
