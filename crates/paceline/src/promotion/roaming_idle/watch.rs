//! The watch of the idle list: what it sees, and what it remembers from one look to the next.

use std::{sync::Arc, time::Duration};

use super::RoamingIdle;
use crate::{
    promotion::{
        lead::Lead,
        standby::{CALM, LONG_OPEN, LOOKS_UNTIL_CALM, LOOKS_UNTIL_DEEP},
        word::{Snapshot, Standby},
    },
    sync::{atomic::Ordering, Clock, Parker, Timestamp},
};

/// What the watch remembers of a lead.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::promotion) struct Seen {
    sequence: Option<u64>,
    /// How often it was held and the same.
    unchanged: u32,
}

/// What the watch sees of a lead: the further down, the sooner it looks again.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::promotion) enum Glance {
    /// It is held for long, and the thread that opens it rouses the watch.
    Rests,
    /// Anything else.
    Moves,
    /// It is open for long, but its opener lacks only the core of the watch.
    Excused,
    /// It is open, and no thread will take it.
    Blind,
}

/// All that the watch remembers.
pub(in crate::promotion) struct Outlook {
    sets: Vec<Seen>,
    /// Looks in a row that found nothing to do.
    pub(super) calm: u32,
    /// When it looks next; `None`: when it is roused.
    pub(super) due: Option<Timestamp>,
}

impl<T> RoamingIdle<T> {
    /// A new one, which looks at that time.
    pub(super) fn outlook(&self, due: Timestamp) -> Outlook {
        Outlook {
            sets: vec![Seen::default(); self.leads.len()],
            calm: 0,
            due: Some(due),
        }
    }

    /// A thread has just opened a lead: the watch checks after a tick, if it was not to check
    /// before that.
    pub(super) fn look_soon(&self, outlook: Option<Outlook>) -> Outlook {
        let now = self.clock.now();
        let next = now.after(self.tick);
        self.outlook(match outlook {
            // It was appointed before that.
            None => now,
            Some(outlook) => outlook.due.map_or(next, |due| due.min(next)),
        })
    }

    /// One look of the watch at all leads. The set because of which it goes, if it does.
    pub(super) fn look(&self, parker: &Arc<Parker>, outlook: &mut Outlook) -> Option<usize> {
        let (now, mut most) = (self.clock.now(), Glance::Rests);
        for (set, (lead, clock)) in self.leads.iter().enumerate() {
            match lead.glance(&mut outlook.sets[set], clock.now()) {
                // If it may not go it was sent elsewhere, and finds that on its parker.
                Glance::Blind => return self.leave_for(parker, set).then_some(set),
                seen => most = most.max(seen),
            }
        }
        outlook.calm = outlook.calm.saturating_add(1);
        let pause = match most {
            Glance::Rests => None,
            Glance::Excused => Some(self.tick / LONG_OPEN),
            Glance::Moves | Glance::Blind => Some(outlook.pause(self.tick)),
        };
        outlook.due = pause.map(|pause| now.after(pause));
        None
    }
}

impl Outlook {
    /// An early return from a sleep is no look.
    pub(super) fn is_due(&self, clock: &Clock) -> bool {
        self.due.is_some_and(|due| clock.now() >= due)
    }

    /// How long until the next look.
    pub(super) fn pause(&self, tick: Duration) -> Duration {
        if self.calm >= LOOKS_UNTIL_CALM {
            tick.saturating_mul(CALM)
        } else {
            tick
        }
    }
}

impl<T> Lead<T> {
    /// The watch looks at this lead.
    pub(in crate::promotion) fn glance(&self, seen: &mut Seen, now: Timestamp) -> Glance {
        // First the epoch: see `look_after`.
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.counters.ticks.one_more();
        // A step, though it changes nothing: of it and an opening the second sees the first.
        let word = self.word.update(|word| (word, word));
        let same = seen.sequence.replace(word.sequence()) == Some(word.sequence());
        seen.unchanged = if same { seen.unchanged + 1 } else { 0 };
        match word.is_open() {
            _ if word.is_closed() => Glance::Rests,
            false if seen.unchanged >= LOOKS_UNTIL_DEEP => self.mark(word),
            true if same || self.is_open_for_long(word, now) => self.see_to_it(word),
            _ => Glance::Moves,
        }
    }

    /// The lead is open for long. If a thread is in the set, it takes care of that.
    fn see_to_it(&self, word: Snapshot) -> Glance {
        match word.standby() {
            _ if word.is_elected() => Glance::Moves,
            Standby::Ticking => Glance::Moves,
            _ if word.is_parked() => {
                self.elect_anyone();
                Glance::Moves
            }
            _ if self.opener.is_excused(word) => Glance::Excused,
            _ => Glance::Blind,
        }
    }

    /// The lead is held for long, and no other thread is in the set: the thread that opens it shall
    /// rouse the watch.
    pub(super) fn mark(&self, seen: Snapshot) -> Glance {
        self.word.update(|word| {
            let is_same = word.sequence() == seen.sequence() && !word.is_closed();
            match word.standby() {
                Standby::None | Standby::Marked if is_same && !word.is_parked() => {
                    (word.with_standby(Standby::Marked), Glance::Rests)
                }
                _ => (word, Glance::Moves),
            }
        })
    }
}
