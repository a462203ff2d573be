//! The outcomes of the transitions of a lead.

use super::held::HeldLead;

/// How an attempt to lead ended.
#[must_use]
pub(crate) enum Arrival<'a, T> {
    /// This thread leads.
    Leads(HeldLead<'a, T>),
    /// Its time is over, or the pool lets it go; it is on no list, and was not elected.
    TimedOut,
    /// Something was handed to it, that is to be done first; it is on no list and was not elected.
    Handed,
    /// The pool is closed.
    Closed,
}

/// What a promotion did.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promotion {
    /// A follower was elected and woken; its index, unless the system picks.
    Elected(Option<usize>),
    /// The lead was left open: watched, or with a wake on its way, or no follower is asleep.
    LeftOpen,
    /// The same, and a standby was woken to watch it.
    Watched,
    /// It was left open, and no follower is asleep: an elastic pool can call a thread.
    Alone,
    /// The pool is closed: the lead is open, and no one will take it.
    Closing,
}

/// What came of one attempt to take the lead.
#[must_use]
pub(super) enum Attempt {
    Took,
    /// On the list, to sleep.
    Parked,
    /// The standby from now on.
    StandsBy,
    /// Another thread must be elected first.
    Elect,
    /// Elected, but another thread leads: arrive again.
    Overtaken,
    TimedOut,
    /// Parked for long, and off the list; another thread sleeps.
    Idle,
    /// The same, but no other sleeps: a promotion may have relied on this one. Arrive again.
    Needed,
    Closed,
}
