//! How a registration goes on in another registry, with all that it has.
//!
//! ```text
//!  1. here:  idle or busy with its own handler: it is owned
//!  2. there: a slot is occupied, and the set watches: owned too
//!  3. here:  the key goes stale, unless its end was asked for
//!     there: what is ready is reported from now on
//!  4. here:  out of the set
//!  5. there: its word takes over what the other one knew; `moved` is called
//!  6. there: let go: it is visited, armed, or idle
//!  7. here:  the slot is vacant
//! ```
//!
//! Until step 3 nothing has changed here: a refusal there leaves it where it is. Step 3 is one
//! change of the readiness word, so a request by the old key either came before it and goes along,
//! or finds a stale key. An edge that arrives between 2 and 4 is reported in both sets: here it is
//! stale, there it counts. Before 6 the source is in this set no more, so its descriptor may be
//! closed there at once.

use std::{
    io,
    os::fd::RawFd,
    sync::{atomic::Ordering::Relaxed, Weak},
    time::Duration,
};

use super::{
    super::{
        entry::Entry,
        handle::{Handle, HandleId, Key},
        handler::Interest,
        readiness::{Stale, State},
        slot::Owned,
    },
    refusal, Refusal, Registry,
};
use crate::{sync::atomic::Ordering, timer::TimeLimits};

/// What came of an attempt to move a handle ([`Handle::move_to`]).
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// It goes on there, under this key. The old one is stale.
    Moved(Handle),
    /// Its handler runs, or waits for its turn. Nothing has changed; ask again, or let the handler
    /// move it.
    Busy,
}

/// A registration that departs: what goes with it.
struct Transfer {
    entry: Box<dyn Entry>,
    /// What its word said.
    left: State,
    /// Its idle time-out, and how far away its deadline is.
    idle: Option<Duration>,
    deadline: Option<Duration>,
    priority: u8,
}

const ENDS: &str = "it is closed already";

impl Registry {
    /// Moves a registration that no thread has.
    pub(in crate::dispatch) fn move_to(&self, key: Key, to: &Self) -> Result<Move, Refusal> {
        use io::ErrorKind::{InvalidInput, NotFound};
        let slot = self.slot_of(key).map_err(|Stale| refusal(NotFound, ENDS))?;
        if slot.group().is_some() {
            return Err(refusal(InvalidInput, "it is a member of a group"));
        }
        if std::ptr::eq(self, to) {
            return Ok(Move::Moved(self.handle(key)));
        }
        let Some(owned) = self.slots.try_own(key.index) else {
            return Ok(Move::Busy);
        };
        if owned.key() != key {
            // It has ended, and the slot has a new one.
            self.let_go(owned);
            return Err(refusal(NotFound, ENDS));
        }
        match self.hand_over(owned, to) {
            Ok(handle) => Ok(Move::Moved(handle)),
            Err((owned, why)) => {
                self.let_go(owned);
                Err(why)
            }
        }
    }

    /// Why a handler of this registration can't ask for a move, if it can't.
    pub(in crate::dispatch) fn cannot_leave(&self, key: Key) -> Option<&'static str> {
        let slot = self.slot_of(key).ok()?;
        slot.group().map(|_| "it is a member of a group")
    }

    /// Moves a registration whose handler has asked for it, and has returned. It is still owned if
    /// it stays.
    #[cold]
    pub(in crate::dispatch) fn send_away<'r>(&self, mut owned: Owned<'r>) -> Option<Owned<'r>> {
        let key = owned.key();
        let goes_to = owned.with_entry(|entry| entry.as_mut()?.take_destination());
        let Some(goes_to) = goes_to else {
            return Some(owned);
        };
        let told = match goes_to.upgrade() {
            Some(to) if std::ptr::eq(&*to, self) => return Some(owned),
            Some(to) => self.hand_over(owned, &to),
            None => Err((owned, gone())),
        };
        let (mut owned, (kind, reason)) = told.err()?;
        let why = io::Error::new(
            kind,
            format!("move handle {}: {reason}", HandleId::new(key)),
        );
        owned.with_entry(|entry| {
            let Some(entry) = entry else {
                return;
            };
            let told = self.in_frame(Some(key), || entry.stayed(why));
            told.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        });
        Some(owned)
    }

    /// Lets an owned registration go on there; see the picture above. It is still owned if it is
    /// refused.
    fn hand_over<'r>(
        &self,
        mut owned: Owned<'r>,
        to: &Self,
    ) -> Result<Handle, (Owned<'r>, Refusal)> {
        let descriptor = owned.with_entry(|entry| {
            let entry = entry.as_ref().filter(|entry| entry.can_move())?;
            entry.descriptor()
        });
        let Some(descriptor) = descriptor else {
            let why = "several threads may use it at once";
            return Err((owned, refusal(io::ErrorKind::InvalidInput, why)));
        };
        let newcomer = match to.admit(|| to.begin(descriptor, Interest::NONE)) {
            Ok(newcomer) => newcomer,
            Err(error) => return Err((owned, (error.kind(), error.to_string()))),
        };
        let Some(left) = owned.readiness().depart() else {
            to.turn_away(newcomer, descriptor);
            return Err((owned, refusal(io::ErrorKind::NotFound, ENDS)));
        };
        let _ = self.set.remove(descriptor);
        let limits = self.timers.take(owned.times());
        let transfer = Transfer {
            entry: owned
                .with_entry(Option::take)
                .expect("what has a descriptor has an entry"),
            left,
            idle: limits.idle,
            deadline: limits.deadline.map(|at| at.since(self.now())),
            priority: owned.slot().priority.swap(0, Relaxed),
        };
        self.counters.moved.one_more();
        let handle = to.settle_in(newcomer, transfer);
        self.clear_out(owned);
        self.count_out(None);
        self.wake_drain();
        Ok(handle)
    }

    /// A registration from elsewhere goes on in this slot.
    fn settle_in(&self, newcomer: Owned<'_>, transfer: Transfer) -> Handle {
        let Transfer {
            mut entry,
            left,
            idle,
            deadline,
            priority,
        } = transfer;
        let (key, now) = (newcomer.key(), self.now());
        newcomer.readiness().carry_on(left);
        newcomer.slot().priority.store(priority, Relaxed);
        // Before its handler is called, which may give it another time. Nothing results from it
        // while the slot is owned. (A move is a use: the idle time begins anew.)
        let deadline = deadline.map(|left| now.after(left));
        self.limit_times(&newcomer, TimeLimits { deadline, idle });
        let (handle, limit) = (self.handle(key), self.limits.output_limit);
        let told = self.in_frame(Some(key), || entry.moved(limit, &self.counters, &handle));
        told.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        self.put_in_place(newcomer, entry)
    }

    /// A slot was occupied for nothing.
    fn turn_away(&self, newcomer: Owned<'_>, descriptor: RawFd) {
        let _ = self.set.remove(descriptor);
        self.empty(newcomer);
        self.live.fetch_sub(1, Ordering::AcqRel);
        self.wake_drain();
    }
}

fn gone() -> Refusal {
    refusal(
        io::ErrorKind::BrokenPipe,
        "the pool that it is to go to is gone",
    )
}

impl Handle {
    /// Moves the registration to another registry: see [`Handle::move_to`].
    pub(crate) fn move_into(&self, to: &Weak<Registry>) -> io::Result<Move> {
        let told = match (self.registry(), to.upgrade()) {
            (Some(from), Some(to)) => from.move_to(self.key(), &to),
            (Some(from), None) if from.slot_of(self.key()).is_ok() => Err(gone()),
            _ => Err(refusal(io::ErrorKind::NotFound, ENDS)),
        };
        told.map_err(|(kind, reason)| {
            io::Error::new(kind, format!("move handle {}: {reason}", self.id()))
        })
    }
}
