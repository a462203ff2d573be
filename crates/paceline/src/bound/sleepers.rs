//! The line of callers that sleep until their reply is there, in the order of their arrival. It
//! belongs to the leader.
//!
//! Newcomers are pushed onto the lead word; the leader takes them from there into the line. A
//! caller that gives up stays in the line, and is taken out when it is found awake.

use super::{
    calls::Calls,
    lead::LeadWord,
    slot::{Slot, NONE, NOT_IN_LINE},
    wire_order::WireOrder,
    word::Unlisted,
};
use crate::sync::atomic::Ordering::Relaxed;

/// Which sleeper leads next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elect {
    /// The one that has slept longest. Where replies come in the order of requests, it is the one
    /// whose reply comes next: if they come one by one, every thread reads its own, and none is
    /// handed over. (What comes together is read together.)
    #[default]
    Oldest,
    /// The one that went to sleep last: warm caches.
    Newest,
    /// The one whose reply comes next, where the protocol knows that (it has no ids); else the
    /// oldest.
    NextReply,
}

/// The line. Its links are in the slots.
pub(super) struct Sleepers {
    first: u32,
    last: u32,
    length: usize,
    /// The length of the line at which callers that gave up are taken out.
    sweep_at: usize,
}

/// A line is not swept before it is this long.
const SHORT: usize = 64;

impl Sleepers {
    pub(super) fn new() -> Self {
        Self {
            first: NONE,
            last: NONE,
            length: 0,
            sweep_at: SHORT,
        }
    }

    /// Takes the newcomers into the line.
    pub(super) fn take_newcomers(&mut self, lead: &LeadWord, calls: &Calls) {
        let head = lead.take_newcomers();
        calls.slots.oldest_first(
            head,
            |slot| &slot.line.behind,
            |index| self.line_up(calls, index),
        );
        if self.length > self.sweep_at {
            self.sweep(calls);
        }
    }

    /// Takes slot `index` out of the line, if it is there and its caller does not sleep. (The first
    /// caller may have left, and another call may sleep in its slot, listed already: that one
    /// stays, at the end.)
    pub(super) fn remove_if_awake(&mut self, calls: &Calls, index: u32) {
        let slot = calls.slots.at(index);
        if is_in_line(slot) {
            // First out of the line: once it is not listed any more, its caller may use the links.
            self.unlink(calls, slot);
            self.line_up(calls, index);
        }
    }

    /// Elects a sleeper: it has the lead, and is out of the line. It is to be woken.
    pub(super) fn elect(&mut self, calls: &Calls, order: &WireOrder, how: Elect) -> Option<u32> {
        if let (Elect::NextReply, Some(key)) = (how, order.first()) {
            let slot = calls.slots.at(key.index);
            if is_in_line(slot) && self.try_elect(calls, key.index) {
                return Some(key.index);
            }
        }
        while self.first != NONE {
            let index = match how {
                Elect::Newest => self.last,
                Elect::Oldest | Elect::NextReply => self.first,
            };
            if self.try_elect(calls, index) {
                return Some(index);
            }
        }
        None
    }

    /// Elects this sleeper, which wants to read its reply by itself. `false`: it has given up.
    #[must_use]
    pub(super) fn elect_reader(&mut self, calls: &Calls, index: u32) -> bool {
        let slot = calls.slots.at(index);
        is_in_line(slot) && self.try_elect(calls, index)
    }

    /// Takes every caller out of the line, sleeping ones too: they get their outcome elsewhere.
    pub(super) fn clear(&mut self, calls: &Calls) {
        while self.first != NONE {
            let index = self.first;
            let slot = calls.slots.at(index);
            self.unlink(calls, slot);
            calls.vacate(index, slot.word.unlist());
        }
    }

    /// A slot that is listed, and not in the line: if its caller sleeps, it is appended. It may
    /// have its outcome already.
    fn line_up(&mut self, calls: &Calls, index: u32) {
        match calls.slots.at(index).word.unlist_if_awake() {
            Unlisted::Sleeps => self.push(calls, index),
            Unlisted::Gone(left) => calls.vacate(index, left),
        }
    }

    fn try_elect(&mut self, calls: &Calls, index: u32) -> bool {
        let slot = calls.slots.at(index);
        self.unlink(calls, slot);
        match slot.word.elect() {
            Unlisted::Sleeps => true,
            Unlisted::Gone(left) => {
                calls.vacate(index, left);
                false
            }
        }
    }

    /// Takes out the callers that gave up. The longer the line is then, the later the next time.
    fn sweep(&mut self, calls: &Calls) {
        let mut at = self.first;
        while at != NONE {
            let slot = calls.slots.at(at);
            let next = slot.line.behind.load(Relaxed);
            if !slot.word.look().phase().is_asleep() {
                self.remove_if_awake(calls, at);
            }
            at = next;
        }
        self.sweep_at = SHORT.max(2 * self.length);
    }

    fn push(&mut self, calls: &Calls, index: u32) {
        let line = &calls.slots.at(index).line;
        line.before.store(self.last, Relaxed);
        line.behind.store(NONE, Relaxed);
        match self.last {
            NONE => self.first = index,
            last => calls.slots.at(last).line.behind.store(index, Relaxed),
        }
        self.last = index;
        self.length += 1;
    }

    fn unlink(&mut self, calls: &Calls, slot: &Slot) {
        let before = slot.line.before.load(Relaxed);
        let behind = slot.line.behind.load(Relaxed);
        match before {
            NONE => self.first = behind,
            before => calls.slots.at(before).line.behind.store(behind, Relaxed),
        }
        match behind {
            NONE => self.last = before,
            behind => calls.slots.at(behind).line.before.store(before, Relaxed),
        }
        slot.line.before.store(NOT_IN_LINE, Relaxed);
        self.length -= 1;
    }
}

fn is_in_line(slot: &Slot) -> bool {
    slot.line.before.load(Relaxed) != NOT_IN_LINE
}
