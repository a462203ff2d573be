//! Callers lead in turns: a caller that finds the lead open reads for all callers until its own
//! reply is there.
//!
//! ```text
//!                [try_lead]                  [Leading::lead]
//!   Sent ------------------------> leads ----------------------> its reply is there
//!    |   the lead is open          ^  ^   reads for all             |
//!    |                             |  |                             | [Leading::drop]
//!    '-----> yields ---------------'  |                             v
//!            [idle_before_sleep]  |  |      |               elects the next sleeper; none: opens
//!                   .-------'  |      |
//!                   |        sleeps --' elected
//!                   |  [sleep] |
//!                   '----------'----> has its outcome: its reply, or the loss
//! ```

use super::{
    calls::Key,
    deadline::Patience,
    lead::Arrival,
    leading::Leading,
    link::Link,
    protocol::Protocol,
    word::{FellAsleep, Phase},
};
use crate::idle::Ended;

/// What a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Its whole reply.
    Data,
    /// The beginning of its reply, to read the rest by itself.
    ToRead,
}

/// The outcome of a caller's join.
#[must_use]
pub(super) enum Joined<'m, P: Protocol> {
    /// Its reply is there.
    Replied,
    /// Its reply has begun, and it has the lead, to read the rest by itself.
    Reads(Leading<'m, P>),
    /// The connection was lost.
    Lost,
    /// Its time is over.
    TimedOut,
}

/// How a caller arrives at the lead: it leads, or its call has an outcome already.
type Arrived<'m, P> = Result<Leading<'m, P>, Joined<'m, P>>;

impl<P: Protocol> Link<P> {
    /// Waits, leading or asleep, until the call has an outcome or its time is over.
    pub(super) fn join(&self, key: Key, wants: Wants, patience: Patience<'_>) -> Joined<'_, P> {
        loop {
            if let Some(told) = self.told(key) {
                return told;
            }
            let leading = match self.arrive(key, wants, patience) {
                Ok(leading) => leading,
                Err(told) => return told,
            };
            // Only a leader that hands the lead to a reader comes back.
            if let Some(told) = leading.lead(key, wants, patience) {
                return told;
            }
        }
    }

    /// The outcome that the call has already. A caller with an outcome touches nothing else.
    pub(super) fn told(&self, key: Key) -> Option<Joined<'_, P>> {
        match self.calls.slot(key).word.look().phase() {
            Phase::Replied => Some(Joined::Replied),
            Phase::Lost => Some(Joined::Lost),
            Phase::Expected | Phase::Asleep | Phase::AsleepToRead | Phase::Elected => None,
        }
    }

    /// Whether the call has an outcome.
    pub(super) fn is_told(&self, key: Key) -> bool {
        self.told(key).is_some()
    }

    /// Takes the lead, or sleeps until there is something.
    fn arrive(&self, key: Key, wants: Wants, patience: Patience<'_>) -> Arrived<'_, P> {
        if let Some(arrived) = self.try_lead(key) {
            return arrived;
        }
        if patience.is_over(&self.clock) {
            return Err(Joined::TimedOut);
        }
        // The leader must know that this caller sleeps and reads by itself, or it reads the reply
        // for it.
        if wants == Wants::Data {
            if let Some(arrived) = self.idle_before_sleep(key, patience) {
                return arrived;
            }
        }
        let slot = self.calls.slot(key);
        let phase = match wants {
            Wants::Data => Phase::Asleep,
            Wants::ToRead => Phase::AsleepToRead,
        };
        match slot.word.fall_asleep(phase) {
            FellAsleep::Listed => self.sleep(key, patience),
            FellAsleep::Not => Err(self.told(key).unwrap_or(Joined::Lost)),
            FellAsleep::Unlisted => match self.lead.take_or_push(key.index, slot) {
                Arrival::Follows => self.sleep(key, patience),
                Arrival::Leads => {
                    slot.word.stay_awake();
                    Ok(Leading::new(self))
                }
                Arrival::Lost => {
                    slot.word.stay_awake();
                    Err(self.told(key).unwrap_or(Joined::Lost))
                }
            },
        }
    }

    /// Takes the lead, if it is open. `None`: another caller leads.
    fn try_lead(&self, key: Key) -> Option<Arrived<'_, P>> {
        match self.lead.take() {
            Arrival::Leads => Some(Ok(Leading::new(self))),
            Arrival::Lost => Some(Err(self.told(key).unwrap_or(Joined::Lost))),
            Arrival::Follows => None,
        }
    }

    /// Yields, where that has paid: meanwhile the leader may read this reply, or leave. Then no
    /// caller has to sleep, and none has to be woken.
    fn idle_before_sleep(&self, key: Key, patience: Patience<'_>) -> Option<Arrived<'_, P>> {
        let (policy, counters) = (&self.caller_idle, &self.calls.counters);
        let mut idle = policy.begin(true, &self.clock, patience.deadline());
        // It has polled already: its call has no outcome, and another caller leads.
        let _ = idle.note_nothing(policy, &self.clock);
        while !idle.may_sleep() {
            let arrived = self.told(key).map(Err).or_else(|| self.try_lead(key));
            if arrived.is_some() {
                let _ = idle.note_found(policy);
                counters.looks_found.add(1);
                return arrived;
            }
            if idle.note_nothing(policy, &self.clock) != Ended::Nothing {
                counters.looks_vain.add(1);
            }
        }
        None
    }

    /// Sleeps in the line, until it has an outcome, is elected, or its time is over.
    pub(super) fn sleep(&self, key: Key, patience: Patience<'_>) -> Arrived<'_, P> {
        let slot = self.calls.slot(key);
        loop {
            // First the message, then the word: a thread that changes the word leaves its message
            // after the change.
            slot.parker.take();
            match slot.word.look().phase() {
                Phase::Elected => {
                    slot.word.wake_up();
                    return Ok(Leading::new(self));
                }
                Phase::Asleep | Phase::AsleepToRead => {}
                Phase::Expected | Phase::Replied | Phase::Lost => {
                    return Err(self.told(key).unwrap_or(Joined::Lost));
                }
            }
            if patience.is_over(&self.clock) {
                if slot.word.withdraw() {
                    return Err(Joined::TimedOut);
                }
                continue;
            }
            self.clock.sleep(&slot.parker, patience.deadline());
        }
    }
}
