//! What the threads of a pool report, on the cold side of the one question whether it is observed.

use super::Hub;
use crate::{dispatch::Claim, observe::Role, promotion::Seat, sync::Timestamp};

impl Hub {
    /// The calling thread, whose seat this is, has another role.
    #[cold]
    pub(crate) fn tell(&self, seat: &Seat, role: Role) {
        self.tell_at(seat, role, self.clock.now());
        self.observers.tell_first(seat.index(), role);
    }

    /// The same, since a time that is known; the caller calls the first observer.
    #[cold]
    pub(crate) fn tell_at(&self, seat: &Seat, role: Role, now: Timestamp) {
        if let Some(row) = seat.row() {
            row.set_role(role, now);
        }
        self.observers.tell_guests(seat.index(), role);
    }

    /// The handler of the calling thread, whose seat this is, blocks, or has come back. Without an
    /// observer it costs a load.
    pub(crate) fn report_away(&self, seat: &Seat, is_away: bool) {
        if self.lead.is_observed() {
            self.observers
                .tell(|it| it.away_changed(seat.index(), is_away));
        }
    }

    /// The calling thread goes to handle an event; likewise.
    #[cold]
    pub(crate) fn tell_event(&self, seat: &Seat, event: &mut Claim<'_>, now: Timestamp) {
        if let Some(row) = seat.row() {
            row.begin(event.subject(), now);
        }
        self.observers.tell_guests(seat.index(), Role::Processing);
    }
}
