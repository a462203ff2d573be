//! How a thread becomes the leader, and how it stops being it.
//!
//! ```text
//!  arriving ----> leader        [Lead::arrive]         the lead is vacant
//!  arriving ----> follower      [Lead::arrive]         it is held, or offered to another
//!  follower ----> leader        [Lead::take_offer]     it was elected and woken
//!  follower ----> out           [Lead::leave_list]     its deadline passed
//!  leader   ----> processing    [HeldLead::promote]    it claimed an event
//!  leader   ----> arriving      [HeldLead::drop]       nothing to process: time-out, error, close
//!  processing --> leader        [Running::rejoin]      the lead is vacant
//!  processing --> arriving      [Running::rejoin]      it is not
//! ```
//!
//! A *section* is: take the lock, change the list and the word, then leave the message, release the
//! lock, and only then wake. The message is left inside, so that messages to one thread have the
//! order of the word; and after the word, because its thread may be awake and acts on it at once. Who finds nobody parked takes no lock at all.

use std::{fmt, sync::Arc};

use super::{
    followers::{Followers, Message, Seat, Withdrawal},
    word::{LeadWord, Snapshot},
};
use crate::sync::{lock, Clock, Mutex, Timestamp, UnsafeCell};

/// The right to wait in one handle set, and the data `T` that belongs to whoever has it.
pub(crate) struct Lead<T> {
    word: LeadWord,
    followers: Mutex<Followers>,
    /// Only the holder of the lead touches it; the word publishes it from one to the next.
    owned: UnsafeCell<T>,
}

// SAFETY: `owned` is reached only through `HeldLead`, of which at most one exists at a time (L1), and
// the word's read-modify-writes order one holder's accesses before the next one's. So sharing a
// `Lead` moves `T` between threads (`T: Send`) and never shares it.
unsafe impl<T: Send> Sync for Lead<T> {}

/// How an attempt to lead ended.
#[must_use]
pub(crate) enum Arrival<'a, T> {
    /// This thread leads.
    Leads(HeldLead<'a, T>),
    /// The deadline passed first; the thread is on no list and was elected by nobody.
    TimedOut,
    /// The pool is closed.
    Closed,
}

/// What a promotion did.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promotion {
    /// The lead was offered to the follower with this index, and it was woken.
    HandedTo(usize),
    /// No one waits: the lead is open to the next thread that arrives.
    LeftVacant,
    /// The pool is closed: the lead is open, and no one will take it.
    Closing,
}

/// Where a thread stands after it processed an event.
#[must_use]
pub(crate) enum Rejoined<'a, T> {
    /// It took the lead: nobody had it.
    Leads(HeldLead<'a, T>),
    /// Somebody else leads or is about to.
    Follows,
}

impl<T> Lead<T> {
    /// A lead that nobody has yet.
    pub(crate) fn vacant(owned: T) -> Self {
        Self {
            word: LeadWord::vacant(),
            followers: Mutex::new(Followers::default()),
            owned: UnsafeCell::new(owned),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.look().is_closed()
    }

    /// Becomes the leader, or follows until elected; gives up at `deadline`.
    ///
    /// The deadline is looked at before every attempt: a thread past it neither takes a vacant lead
    /// nor keeps one that was offered to it (I4).
    pub(crate) fn arrive(
        &self,
        seat: &Arc<Seat>,
        clock: &Clock,
        deadline: Option<Timestamp>,
    ) -> Arrival<'_, T> {
        while !clock.has_passed(deadline) {
            let attempt = match self.take_or_park(seat) {
                Attempt::Parked => match self.follow(seat, clock, deadline) {
                    Some(Message::Lead) if clock.has_passed(deadline) => {
                        self.decline_offer();
                        return Arrival::TimedOut;
                    }
                    Some(Message::Lead) => self.take_offer(),
                    Some(Message::Close) => Attempt::Closed,
                    None => return Arrival::TimedOut,
                },
                other => other,
            };
            match attempt {
                Attempt::Took => return Arrival::Leads(HeldLead { lead: self }),
                Attempt::Closed => return Arrival::Closed,
                Attempt::Parked => {}
            }
        }
        Arrival::TimedOut
    }

    /// Closes for ever: nobody takes the lead any more, and every follower is told to go. The holder
    /// of the lead finds out when it looks; whoever closes must make it look.
    pub(crate) fn close(&self) {
        let dismissed = {
            let mut followers = lock(&self.followers);
            self.word
                .update(|word| (word.with_closed().with_parked(false), ()));
            followers.dismiss()
        };
        dismissed.iter().for_each(|seat| seat.wake());
    }

    /// Takes a vacant lead at once, else enlists as a follower.
    fn take_or_park(&self, seat: &Arc<Seat>) -> Attempt {
        match self.word.update(Self::take_if_vacant) {
            Attempt::Parked => self.park(seat),
            at_once => at_once,
        }
    }

    fn take_if_vacant(word: Snapshot) -> (Snapshot, Attempt) {
        match word {
            _ if word.is_closed() => (word, Attempt::Closed),
            _ if word.is_vacant() => (word.taken(), Attempt::Took),
            _ => (word, Attempt::Parked),
        }
    }

    /// The section of a thread that found the lead taken: looks once more, and enlists.
    #[cold]
    fn park(&self, seat: &Arc<Seat>) -> Attempt {
        let mut followers = lock(&self.followers);
        let attempt = self.word.update(|word| {
            let (next, attempt) = Self::take_if_vacant(word);
            let parked = matches!(attempt, Attempt::Parked);
            (next.with_parked(parked || next.is_parked()), attempt)
        });
        if let Attempt::Parked = attempt {
            followers.push(seat);
        }
        attempt
    }

    /// Sleeps until there is a message, or until `deadline`: then nobody will send one.
    fn follow(
        &self,
        seat: &Arc<Seat>,
        clock: &Clock,
        deadline: Option<Timestamp>,
    ) -> Option<Message> {
        loop {
            clock.sleep(seat.parker(), deadline);
            if let Some(message) = seat.message() {
                return Some(message);
            }
            if clock.has_passed(deadline) {
                return self.leave_list(seat);
            }
        }
    }

    /// The section of a follower whose deadline passed. A message that came first must be obeyed.
    fn leave_list(&self, seat: &Arc<Seat>) -> Option<Message> {
        let mut followers = lock(&self.followers);
        match followers.withdraw(seat) {
            Withdrawal::TooLate(message) => Some(message),
            Withdrawal::Done => {
                let parked = !followers.is_empty();
                self.word.update(|word| (word.with_parked(parked), ()));
                None
            }
        }
    }

    /// The elected thread takes what was offered to it.
    fn take_offer(&self) -> Attempt {
        self.word.update(|word| {
            debug_assert!(
                word.is_elected(),
                "who is told to lead is elected: {word:?}"
            );
            let word = word.with_elect(false);
            if word.is_open() {
                Self::take_if_vacant(word)
            } else {
                // Somebody led meanwhile (TAO's bug 173): arrive again like everyone else.
                (word, Attempt::Parked)
            }
        })
    }

    /// The section of an elected thread that may not lead any more: passes the offer on.
    fn decline_offer(&self) {
        let next = {
            let mut followers = lock(&self.followers);
            let next = followers.pop_best();
            let parked = !followers.is_empty();
            self.word
                .update(|word| (word.with_elect(next.is_some()).with_parked(parked), ()));
            next.inspect(|seat| seat.post(Message::Lead))
        };
        if let Some(seat) = next {
            seat.wake();
        }
    }

    /// Makes a HELD lead open: offered to the newest follower, or vacant if there is none.
    ///
    /// `and` is what else changes in the same step. Only the holder of the lead calls this.
    fn open(&self, and: impl Fn(Snapshot) -> Snapshot) -> Promotion {
        let vacated = self.word.update(|word| match word {
            _ if word.is_parked() => (word, None),
            _ if word.is_closed() => (and(word.opened()), Some(Promotion::Closing)),
            _ => (and(word.opened()), Some(Promotion::LeftVacant)),
        });
        vacated.unwrap_or_else(|| self.offer(and))
    }

    /// The section of a leader that has followers: offers the lead to the newest and wakes it.
    #[cold]
    fn offer(&self, and: impl Fn(Snapshot) -> Snapshot) -> Promotion {
        let mut followers = lock(&self.followers);
        // Between the look at *parked* and the lock the last follower may have left, or all were
        // dismissed: then there is nobody to wake.
        let elected = followers.pop_best();
        let parked = !followers.is_empty();
        let closed = self.word.update(|word| {
            let next = and(word.opened()).with_parked(parked);
            (next.with_elect(elected.is_some()), next.is_closed())
        });
        let elected = elected.inspect(|seat| seat.post(Message::Lead));
        drop(followers);
        match elected {
            Some(seat) => {
                seat.wake();
                Promotion::HandedTo(seat.index())
            }
            None if closed => Promotion::Closing,
            None => Promotion::LeftVacant,
        }
    }
}

impl<T> fmt::Debug for Lead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead")
            .field("word", &self.word.look())
            .field("followers", &lock(&self.followers).len())
            .finish_non_exhaustive()
    }
}

/// What came of one attempt to take the lead.
enum Attempt {
    Took,
    /// Not now. After `park` the thread is on the list; before, it has yet to go there.
    Parked,
    Closed,
}

/// The lead, held: the right to wait. At most one exists per [`Lead`] (L1).
///
/// Dropping it gives the lead back, so that no path out of the pool can lose it (E1, E2, E17).
#[must_use]
pub(crate) struct HeldLead<'a, T> {
    lead: &'a Lead<T>,
}

impl<'a, T> HeldLead<'a, T> {
    /// Uses the data that belongs to the leader.
    pub(crate) fn with_owned<R>(&mut self, using: impl FnOnce(&mut T) -> R) -> R {
        self.lead.owned.with_mut(|owned| {
            // SAFETY: this is the one `HeldLead`, borrowed exclusively, so no other reference to the
            // data exists; the pointer is valid as long as the `Lead` lives, which `'a` ensures.
            using(unsafe { &mut *owned })
        })
    }

    /// Gives the lead away before processing: leader -> processing.
    pub(crate) fn promote(self) -> (Running<'a, T>, Promotion) {
        let lead = self.lead;
        std::mem::forget(self);
        let promotion = lead.open(Snapshot::one_more_running);
        (Running { lead }, promotion)
    }
}

impl<T> Drop for HeldLead<'_, T> {
    fn drop(&mut self) {
        let _ = self.lead.open(|word| word);
    }
}

/// A thread that processes an event, as the lead word counts it.
#[must_use]
pub(crate) struct Running<'a, T> {
    lead: &'a Lead<T>,
}

impl<'a, T> Running<'a, T> {
    /// Done processing: takes the lead if it is vacant, without a lock and without a system call.
    pub(crate) fn rejoin(self) -> Rejoined<'a, T> {
        let lead = self.lead;
        std::mem::forget(self);
        let attempt = lead
            .word
            .update(|word| Lead::<T>::take_if_vacant(word.one_less_running()));
        match attempt {
            Attempt::Took => Rejoined::Leads(HeldLead { lead }),
            Attempt::Parked | Attempt::Closed => Rejoined::Follows,
        }
    }
}

impl<T> Drop for Running<'_, T> {
    /// Leaves the pool while processing. No successor need be elected: under `Eager` a lead that is
    /// open and not on offer has no follower asleep (I3).
    fn drop(&mut self) {
        self.lead.word.update(|word| (word.one_less_running(), ()));
    }
}
