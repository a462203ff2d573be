//! The lead of a connection: the right to read it, and the callers that sleep while another caller
//! reads for them.
//!
//! | bits | field | meaning |
//! | --- | --- | --- |
//! | 37 | closed | for good; never cleared |
//! | 36 | lost | no connection, no caller joins; if held, its callers get their outcome |
//! | 35 | broken | the connection is over: the leader gives every caller its outcome |
//! | 34 | look | the leader is to look around before it waits on |
//! | 33 | waits | the leader is in its wait, or on the way |
//! | 32 | held | a caller leads |
//! | 0..32 | newcomers | a stack of slots whose callers go to sleep; the one that came last |
//!
//! One word says whether a caller leads and which callers sleep. A caller that finds the lead open
//! takes it; one that finds it held pushes itself, in the same step, and sleeps. A leader that
//! leaves opens the lead only if, in that step, no caller was pushed; else it elects one, and the
//! lead stays *held* on its behalf. So while the lead is open no caller sleeps (B3), and no other
//! caller can take the lead between the election and the wake-up.

use super::slot::{Slot, NONE};
use crate::sync::atomic::{AtomicU64, Ordering};

const NEWCOMERS: u64 = NONE as u64;
const HELD: u64 = 1 << 32;
const WAITS: u64 = 1 << 33;
const LOOK: u64 = 1 << 34;
const BROKEN: u64 = 1 << 35;
const LOST: u64 = 1 << 36;
const CLOSED: u64 = 1 << 37;

/// What became of a caller that joins.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It leads.
    Leads,
    /// Another caller leads.
    Follows,
    /// There is nothing to lead.
    Lost,
}

/// What became of the attempt to leave.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// The lead is open.
    Open,
    /// Not yet: a caller was pushed, or the connection is over.
    NotYet,
}

/// What a thread that calls the leader does next.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The leader is in its wait: wake it there.
    Kick,
    /// The present leader, or the next one, checks for the call.
    Quiet,
    /// The lead was open: it is the caller's now.
    Leads,
}

/// What became of the attempt to connect anew.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revival {
    /// The lead is held, and no other thread reads or leads.
    Begun,
    /// The callers of the lost connection do not all have their outcome yet.
    NotYet,
    /// There is a connection, or it is closed for good.
    Refused,
}

#[derive(Debug)]
pub(super) struct LeadWord(AtomicU64);

impl LeadWord {
    /// There is no connection yet.
    pub(super) fn lost() -> Self {
        Self(AtomicU64::new(NEWCOMERS | LOST))
    }

    /// Takes the lead, if it is open.
    pub(super) fn take(&self) -> Arrival {
        self.update(|seen| match seen & (HELD | LOST) {
            0 => (seen | HELD, Arrival::Leads),
            HELD => (seen, Arrival::Follows),
            _ => (seen, Arrival::Lost),
        })
    }

    /// The same, but if another caller leads, slot `index` becomes one of the newcomers.
    pub(super) fn take_or_push(&self, index: u32, slot: &Slot) -> Arrival {
        self.update(|seen| match seen & (HELD | LOST) {
            0 => (seen | HELD, Arrival::Leads),
            HELD => {
                slot.line.behind.store(seen as u32, Ordering::Relaxed);
                let next = seen & !NEWCOMERS | u64::from(index);
                (next, Arrival::Follows)
            }
            _ => (seen, Arrival::Lost),
        })
    }

    /// Of the leader: takes all newcomers. The one that came last; the others hang behind it.
    pub(super) fn take_newcomers(&self) -> u32 {
        if self.0.load(Ordering::Relaxed) as u32 == NONE {
            return NONE;
        }
        self.update(|seen| (seen | NEWCOMERS, seen as u32))
    }

    /// Of the leader: opens the lead, unless a caller was pushed.
    pub(super) fn leave(&self) -> Leave {
        self.update(|seen| match seen & (NEWCOMERS | BROKEN) {
            NEWCOMERS => (seen & !(HELD | LOOK), Leave::Open),
            _ => (seen, Leave::NotYet),
        })
    }

    /// Of the leader: it is about to wait. `false`: it is to look around first.
    #[must_use]
    pub(super) fn begin_wait(&self) -> bool {
        self.update(|seen| match seen & LOOK {
            0 => (seen | WAITS, true),
            _ => (seen & !LOOK, false),
        })
    }

    /// Of the leader: it has waited.
    pub(super) fn end_wait(&self) {
        self.update(|seen| (seen & !(WAITS | LOOK), ()));
    }

    /// There is work for the leader. If the lead is open, the next leader checks anyway.
    pub(super) fn call_leader(&self) -> Call {
        self.update(|seen| match seen & (HELD | WAITS | LOOK) {
            0 => (seen, Call::Quiet),
            calm if calm == HELD | WAITS => (seen | LOOK, Call::Kick),
            _ => (seen | LOOK, Call::Quiet),
        })
    }

    /// The connection is over. The present or the called leader gives every caller its outcome.
    pub(super) fn break_off(&self, end: End) -> Call {
        let closed = match end {
            End::Lost => 0,
            End::Closed => CLOSED,
        };
        self.update(|seen| {
            let next = seen | closed;
            match (seen & LOST != 0, seen & (HELD | WAITS | LOOK)) {
                (true, _) => (next, Call::Quiet),
                (false, 0) => (next | HELD | BROKEN, Call::Leads),
                (false, calm) if calm == HELD | WAITS => (next | BROKEN | LOOK, Call::Kick),
                (false, _) => (next | BROKEN | LOOK, Call::Quiet),
            }
        })
    }

    /// Of the leader of a broken connection: no caller leads or sleeps here from now on. The lead
    /// is kept until every caller has its outcome.
    pub(super) fn mark_lost(&self) {
        self.update(|seen| (seen & !(LOOK | BROKEN) | LOST, ()));
    }

    /// Of the leader of a lost connection: every caller has its outcome.
    pub(super) fn leave_lost(&self) {
        self.update(|seen| (seen & !HELD, ()));
    }

    /// Takes the lead of what is lost, to connect anew.
    pub(super) fn take_lost(&self) -> Revival {
        self.update(|seen| match seen & (HELD | LOST | CLOSED) {
            LOST => (seen | HELD, Revival::Begun),
            busy if busy == HELD | LOST => (seen, Revival::NotYet),
            _ => (seen, Revival::Refused),
        })
    }

    /// Of the thread that took the lead of a lost connection: there is a connection again, and its
    /// lead is open. If it was closed meanwhile, the lead stays with this thread, and the
    /// connection is broken.
    pub(super) fn revive(&self) -> Call {
        self.update(|seen| match seen & CLOSED {
            0 => (seen & !(HELD | LOST | LOOK | BROKEN), Call::Quiet),
            _ => (seen & !LOST | BROKEN, Call::Leads),
        })
    }

    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire) & HELD != 0
    }

    pub(super) fn waits(&self) -> bool {
        self.0.load(Ordering::Acquire) & WAITS != 0
    }

    pub(super) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Acquire) & BROKEN != 0
    }

    pub(super) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Acquire) & LOST != 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Acquire and Release on every change: what belongs to the leader, and the links of newcomers,
    /// are passed on by it, and a change by a third thread may stand between the two.
    fn update<R>(&self, mut step: impl FnMut(u64) -> (u64, R)) -> R {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (next, told) = step(seen);
            match self
                .0
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return told,
                Err(newer) => seen = newer,
            }
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Another may follow.
    Lost,
    /// For good.
    Closed,
}
