//! How a thread of the pool is reached by the mailbox of the handles that belong to it.

use std::sync::Arc;

use super::Hub;
use crate::{
    dispatch::{Asleep, Kept, Line, Mailbox, OwnMailbox, Reach},
    promotion::{Keeping, Lead, Seat},
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

/// A mailbox for a thread that enters the pool, unless no thread is handed anything there.
pub(crate) fn open_mailbox(hub: &Hub, seat: &Arc<Seat>) -> Option<Arc<OwnMailbox>> {
    if hub.registry.is_open() || hub.lead.hands_nothing().is_some() {
        return None;
    }
    let (lead, seat) = (Arc::clone(&hub.lead), Arc::clone(seat));
    let mailbox = Mailbox::new(Box::new(AtSeat { lead, seat }));
    Some(Arc::new(hub.registry.open_mailbox(mailbox)))
}
