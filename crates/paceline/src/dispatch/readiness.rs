//! The readiness word: what is known of one handle, and which registration it belongs to.
//!
//! | bits | field |
//! | --- | --- |
//! | 32..64 | generation: which registration of this slot |
//! | 20 | unread: the last call of the handler left input unread, and read nothing |
//! | 19 | leaving: its handler has asked for the end and is not called any more; the rest stays |
//! | 18 | expired: what is ready has waited too long in the line, where that has a limit |
//! | 17 | greets: the handler is to be greeted, before any other call |
//! | 16 | overdue: a time of the handle may be over; its owner checks, also with kept output |
//! | 15 | over: the end of the input was read again; it is waited for no more |
//! | 14 | ended: the end of the input was read; only a hang-up or an error is waited for |
//! | 12..14 | armed: the set will report this direction (always, if it reports edges) |
//! | 11 | notified: the handler is to be called, whatever is ready |
//! | 10 | suspended: the handler is not to be called |
//! | 9 | draining: closes as soon as nothing is left to do |
//! | 8 | closing: to be closed at the next visit, whatever is ready |
//! | 7 | read while sending |
//! | 6 | sending: output is kept until the descriptor takes it |
//! | 4..6 | interest: read, write |
//! | 0..4 | ready: readable, writable, hang-up, urgent |
//!
//! An edge sets its bit whatever the interest is, so one that arrived without interest is there
//! when interest is set. A visit clears the bits that it is going to use **before** the first read:
//! cleared after "would block", an edge that came in between would be lost. All is in one word, so
//! of an edge and a change of interest the second one always sees the first.
//!
//! A set that reports **once** is silent about a descriptor after each report until it is armed
//! anew. The report clears *armed* in the step that sets the bits; the owner arms what is wanted
//! and not ready before it lets go. So a handle never rests with a direction that is wanted, not
//! ready and not armed.

use super::handler::Interest;
use crate::{
    handle_set::{Ready, Reports},
    sync::atomic::{AtomicU64, Ordering},
};

const INTEREST_SHIFT: u32 = 4;
const SENDING: u64 = 1 << 6;
const READ_WHILE_SENDING: u64 = 1 << 7;
const CLOSING: u64 = 1 << 8;
const DRAINING: u64 = 1 << 9;
const SUSPENDED: u64 = 1 << 10;
const NOTIFIED: u64 = 1 << 11;
const ARMED_SHIFT: u32 = 12;
const ARMED: u64 = 3 << ARMED_SHIFT;
const ENDED: u64 = 1 << 14;
const OVER: u64 = 1 << 15;
const OVERDUE: u64 = 1 << 16;
const GREETS: u64 = 1 << 17;
const EXPIRED: u64 = 1 << 18;
const LEAVING: u64 = 1 << 19;
const UNREAD: u64 = 1 << 20;
/// What asks for a call of the handler, whatever is ready.
const CALLS: u64 = NOTIFIED | GREETS | EXPIRED | OVERDUE;
/// What goes with a registration into another registry.
const CARRIED: u64 = 0xF
    | 3 << INTEREST_SHIFT
    | SENDING
    | READ_WHILE_SENDING
    | SUSPENDED
    | NOTIFIED
    | ENDED
    | OVER
    | GREETS
    | LEAVING;
const GENERATION_SHIFT: u32 = 32;

#[derive(Debug)]
pub(super) struct Readiness(AtomicU64);

/// The registration that was meant is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stale;

impl Readiness {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn look(&self) -> State {
        State(self.0.load(Ordering::Acquire))
    }

    /// A new registration begins in this slot. Returns its generation.
    pub(super) fn occupy(&self, interest: Interest, reports: Reports) -> u32 {
        let fresh = self.change(|state| {
            let vacant = State(state.generation_bits());
            let armed = vacant.with(ARMED, reports == Reports::Edges);
            armed.with_interest(interest)
        });
        fresh.generation()
    }

    /// The registration ends: from here on its key is stale.
    pub(super) fn retire(&self) {
        self.change(|state| State(state.generation_bits().wrapping_add(1 << GENERATION_SHIFT)));
    }

    /// The registration goes on in another registry: from here on its key is stale. Returns the
    /// state that is to go with it; `None`, and nothing is changed, if its end was asked for. One
    /// step, so every request is seen here or finds a stale key.
    pub(super) fn depart(&self) -> Option<State> {
        let mut left = State(0);
        let departed = self.try_change(|state| {
            left = state;
            if state.is_closing() {
                Err(Stale)
            } else {
                Ok(State(
                    state.generation_bits().wrapping_add(1 << GENERATION_SHIFT),
                ))
            }
        });
        departed.is_ok().then_some(left)
    }

    /// Goes on with the state that another word returned when the registration departed there.
    pub(super) fn carry_on(&self, left: State) {
        self.0.fetch_or(left.0 & CARRIED, Ordering::AcqRel);
    }

    /// What is ready has waited too long, as found by the thread that takes it off the line. What
    /// is only waited for to send what was kept has no age.
    pub(super) fn expire(&self) {
        self.change(|state| state.with(EXPIRED, state.may_call()));
    }

    /// The set reported the registration `generation`. The generation is compared in the step that
    /// sets the bits, so a late event never reaches the slot's next owner (H3).
    pub(super) fn report(
        &self,
        generation: u32,
        ready: Ready,
        reports: Reports,
    ) -> Result<State, Stale> {
        self.change_of(generation, |state| {
            let state = State(state.0 | u64::from(ready.bits()));
            match reports {
                Reports::Edges => state,
                Reports::Once => state.with(ARMED, false),
            }
        })
    }

    /// Notes that the owner is about to arm `directions`: before it does, for the report may come
    /// at once. Returns all that the set shall report; after the end of the input that is no input.
    pub(super) fn arm(&self, directions: Ready) -> Ready {
        let bits = u64::from(directions.bits()) << ARMED_SHIFT;
        let state = State(self.0.fetch_or(bits, Ordering::AcqRel) | bits);
        state.without_ended(state.armed())
    }

    /// What was armed in these directions counts no more: if they are awaited, they are to be armed
    /// in the set.
    pub(super) fn disarm(&self, generation: u32, directions: Ready) -> Result<State, Stale> {
        let bits = u64::from(directions.bits()) << ARMED_SHIFT & ARMED;
        self.change_of(generation, |state| state.with(bits, false))
    }

    /// The end of the input was read.
    pub(super) fn end_input(&self) {
        self.change(|state| state.with(OVER, state.0 & ENDED != 0).with(ENDED, true));
    }

    pub(super) fn set_suspended(&self, generation: u32, suspended: bool) -> Result<State, Stale> {
        self.change_of(generation, |state| {
            if state.is_leaving() {
                state
            } else {
                state.with(SUSPENDED, suspended)
            }
        })
    }

    /// The handler of this registration is to be called.
    pub(super) fn notify(&self, generation: u32) -> Result<State, Stale> {
        self.change_of(generation, |state| state.with(NOTIFIED, true))
    }

    /// The handler is to be greeted: a call of its own, before all others. The caller owns the
    /// registration, or its group.
    pub(super) fn greet(&self) {
        self.0.fetch_or(GREETS, Ordering::AcqRel);
    }

    /// Puts the calls back that `seen` had, and that could not be made.
    pub(super) fn restore_calls(&self, seen: State) {
        let calls = seen.0 & (NOTIFIED | GREETS | OVERDUE);
        self.0.fetch_or(calls, Ordering::AcqRel);
    }

    /// The same after the handler was called because a time is over: that call was made.
    pub(super) fn restore_other_calls(&self, seen: State) {
        let calls = seen.0 & (NOTIFIED | GREETS);
        self.0.fetch_or(calls, Ordering::AcqRel);
    }

    /// The owner wants to be called again.
    pub(super) fn notify_self(&self) {
        self.0.fetch_or(NOTIFIED, Ordering::AcqRel);
    }

    pub(super) fn set_interest(&self, generation: u32, interest: Interest) -> Result<State, Stale> {
        self.change_of(generation, |state| {
            if state.is_leaving() {
                state
            } else {
                state.with_interest(interest)
            }
        })
    }

    /// Asks for the end of the registration. Returns the state before the change: the first caller
    /// sees it open.
    pub(super) fn request_close(&self, generation: u32) -> Result<State, Stale> {
        let mut before = State(0);
        self.change_of(generation, |state| {
            before = state;
            State(state.0 | CLOSING)
        })?;
        Ok(before)
    }

    /// A time of the registration may be over: its owner is to look.
    pub(super) fn note_overdue(&self, generation: u32) -> Result<State, Stale> {
        self.change_of(generation, |state| state.with(OVERDUE, true))
    }

    /// Its handler has asked for its end and is not called any more. From here on only `interest`
    /// counts, and a suspension changes nothing. The caller owns the registration, or its group.
    pub(super) fn leave(&self, interest: Interest) {
        self.change(|state| {
            let left = state.with(LEAVING, true).with(SUSPENDED, false);
            left.with_interest(interest)
        });
    }

    /// Whatever is registered here shall end when nothing is left to do.
    pub(super) fn drain(&self) -> State {
        self.change(|state| State(state.0 | DRAINING))
    }

    /// Clears `bits`: the owner is about to use them up. Returns what was known in that very step.
    /// It also clears *unread*: [`restore_unread`](Self::restore_unread) sets it again at the end
    /// of a call that reads nothing, so the bit lives from one call to the next and no longer.
    pub(super) fn claim(&self, bits: Ready) -> State {
        let bits = u64::from(bits.bits()) | UNREAD;
        State(self.0.fetch_and(!bits, Ordering::AcqRel))
    }

    /// Likewise, with the calls of the handler that `look` allows.
    pub(super) fn claim_calls(&self, bits: Ready, look: State) -> State {
        let bits = u64::from(bits.bits()) | look.allowed_calls() | UNREAD;
        State(self.0.fetch_and(!bits, Ordering::AcqRel))
    }

    /// A thread that does not own this registration got, or is about to get, "would block".
    pub(super) fn clear(&self, generation: u32, bits: Ready) -> Result<State, Stale> {
        self.change_of(generation, |state| State(state.0 & !u64::from(bits.bits())))
    }

    /// And found something.
    pub(super) fn set(&self, generation: u32, bits: Ready) -> Result<State, Stale> {
        self.change_of(generation, |state| State(state.0 | u64::from(bits.bits())))
    }

    /// Puts back what the owner did not use up.
    pub(super) fn restore(&self, bits: Ready) {
        self.0.fetch_or(u64::from(bits.bits()), Ordering::AcqRel);
    }

    /// The same, after a call of the handler that left input unread and read nothing.
    pub(super) fn restore_unread(&self, bits: Ready) {
        let bits = u64::from(bits.bits()) | UNREAD;
        self.0.fetch_or(bits, Ordering::AcqRel);
    }

    /// Notes whether output is kept, and whether the handler wants to read meanwhile.
    pub(super) fn set_sending(&self, sending: bool, read_meanwhile: bool) {
        self.change(|state| {
            state
                .with(SENDING, sending)
                .with(READ_WHILE_SENDING, read_meanwhile)
        });
    }

    fn change(&self, mut step: impl FnMut(State) -> State) -> State {
        self.try_change(|state| Ok(step(state)))
            .unwrap_or_else(|Stale| unreachable!("this step does not compare generations"))
    }

    fn change_of(
        &self,
        generation: u32,
        mut step: impl FnMut(State) -> State,
    ) -> Result<State, Stale> {
        self.try_change(|state| {
            if state.generation() == generation {
                Ok(step(state))
            } else {
                Err(Stale)
            }
        })
    }

    /// One read-modify-write; returns the new state.
    fn try_change(
        &self,
        mut step: impl FnMut(State) -> Result<State, Stale>,
    ) -> Result<State, Stale> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let next = step(State(seen))?;
            match self
                .0
                .compare_exchange_weak(seen, next.0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(next),
                Err(newer) => seen = newer,
            }
        }
    }
}

/// What the word said at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct State(u64);

impl State {
    pub(super) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    pub(super) fn ready(self) -> Ready {
        Ready::from_bits(self.0 as u8)
    }

    pub(super) fn is_closing(self) -> bool {
        self.0 & CLOSING != 0
    }

    /// Whether something waits for the handler, though it may not be called now: input, a
    /// notification, a greeting. Whether input is there is known from the set, unless the source
    /// was asked (`unread`).
    pub(super) fn has_unhandled(self, unread: Option<bool>) -> bool {
        let interest = Ready::from_bits((self.0 >> INTEREST_SHIFT) as u8 & 3);
        let readable = unread.unwrap_or_else(|| self.ready().has(Ready::READABLE));
        let input = readable && interest.has(Ready::READABLE);
        !self.is_leaving() && (input || self.0 & (NOTIFIED | GREETS) != 0)
    }

    /// Whether its handler has asked for its end.
    pub(super) fn is_leaving(self) -> bool {
        self.0 & LEAVING != 0
    }

    /// Whether the last call of the handler left input unread, and read nothing.
    pub(super) fn left_unread(self) -> bool {
        self.0 & UNREAD != 0
    }

    pub(super) fn is_suspended(self) -> bool {
        self.0 & SUSPENDED != 0
    }

    pub(super) fn is_sending(self) -> bool {
        self.0 & SENDING != 0
    }

    /// Whether the handler may be called now: not while it is suspended, nor while output is kept,
    /// unless it wants to read meanwhile.
    #[inline]
    pub(super) fn may_call(self) -> bool {
        self.0 & (SUSPENDED | SENDING) == 0 || self.may_call_meanwhile()
    }

    /// The same while something holds the handle up: apart, so that the usual case is one test.
    #[cold]
    #[inline(never)]
    fn may_call_meanwhile(self) -> bool {
        !self.is_suspended() && self.0 & READ_WHILE_SENDING != 0
    }

    /// The directions that are waited for: the interest, if the handler may be called; and while
    /// output is kept, writing.
    fn awaited(self) -> Ready {
        let interest = Ready::from_bits((self.0 >> INTEREST_SHIFT) as u8 & 3);
        let of_handler = if self.may_call() {
            interest
        } else {
            Ready::NONE
        };
        if self.is_sending() {
            of_handler | Ready::WRITABLE
        } else {
            of_handler
        }
    }

    /// The readiness that is waited for.
    pub(super) fn wanted(self) -> Ready {
        self.ready() & self.awaited()
    }

    /// Whether something says how the handler is to be called: notified, greeted or overdue,
    /// whatever is ready; or expired.
    pub(super) fn is_called(self) -> bool {
        self.0 & CALLS != 0 && self.0 & self.allowed_calls() != 0
    }

    /// The calls that may be made. While output is kept, that is the one because a time is over.
    fn allowed_calls(self) -> u64 {
        if self.may_call() {
            CALLS
        } else if self.is_suspended() {
            0
        } else {
            OVERDUE
        }
    }

    /// Whether a time of the handle may be over, and the handler may be called for that.
    pub(super) fn is_overdue(self) -> bool {
        self.0 & OVERDUE != 0 && !self.is_suspended()
    }

    /// Whether a visit is not for input, room or a notification alone.
    pub(super) fn is_special(self) -> bool {
        self.0 & (EXPIRED | OVERDUE) != 0
    }

    pub(super) fn is_expired(self) -> bool {
        self.0 & EXPIRED != 0
    }

    pub(super) fn is_notified(self) -> bool {
        self.0 & NOTIFIED != 0 && self.may_call()
    }

    pub(super) fn greets(self) -> bool {
        self.0 & GREETS != 0 && self.may_call()
    }

    /// What is awaited, not ready, and will not be reported.
    pub(super) fn unarmed(self) -> Ready {
        self.still_awaited().without(self.ready() | self.armed())
    }

    /// What a set would have to be armed with for all that is awaited.
    pub(super) fn reportable(self) -> Ready {
        self.without_ended(self.still_awaited())
    }

    /// Of what is `ready`, what would be reported; nothing, unless that is awaited.
    pub(super) fn of_news(self, ready: Ready) -> Ready {
        let awaited = self.still_awaited();
        if ready.has(awaited) {
            ready & (awaited | Ready::HANG_UP)
        } else {
            Ready::NONE
        }
    }

    /// What is awaited. Whose end was read twice, that input is not.
    fn still_awaited(self) -> Ready {
        if self.0 & OVER != 0 {
            self.awaited().without(Ready::READABLE)
        } else {
            self.awaited()
        }
    }

    /// Only a hang-up or an error is waited for after the end of the input.
    pub(super) fn without_ended(self, directions: Ready) -> Ready {
        if self.0 & ENDED != 0 {
            directions.without(Ready::READABLE)
        } else {
            directions
        }
    }

    /// What the set will report, or a thread owes it to arm.
    pub(super) fn armed(self) -> Ready {
        Ready::from_bits((self.0 >> ARMED_SHIFT) as u8 & 3)
    }

    /// Whether a thread must do something for the handle.
    pub(super) fn is_due(self) -> bool {
        self.is_closing() || !self.wanted().is_empty() || self.is_called() || self.is_drained()
    }

    /// Whether a drain ends it, if nothing is wanted: all is sent, and whatever has come was
    /// reported. What is about to end by itself holds the drain up.
    pub(super) fn is_drained(self) -> bool {
        self.0 & DRAINING != 0
            && !self.is_sending()
            && !self.is_leaving()
            && self.unarmed().is_empty()
    }

    /// Whether a thread must visit the handle: something is due, or it must be armed.
    pub(super) fn needs_visit(self) -> bool {
        self.is_due() || !self.unarmed().is_empty()
    }

    fn with_interest(self, interest: Interest) -> Self {
        let cleared = self.0 & !(3 << INTEREST_SHIFT);
        Self(cleared | u64::from(interest.bits()) << INTEREST_SHIFT)
    }

    fn with(self, flag: u64, set: bool) -> Self {
        Self(if set { self.0 | flag } else { self.0 & !flag })
    }

    fn generation_bits(self) -> u64 {
        self.0 >> GENERATION_SHIFT << GENERATION_SHIFT
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
