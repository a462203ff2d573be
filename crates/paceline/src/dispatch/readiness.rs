//! The readiness word: what is known of one handle, and which registration it belongs to.
//!
//! | bits | field |
//! | --- | --- |
//! | 32..64 | generation: which registration of this slot |
//! | 9 | draining: closes as soon as nothing is left to do |
//! | 8 | closing: to be closed at the next visit, whatever is ready |
//! | 7 | read while sending |
//! | 6 | sending: output is kept until the descriptor takes it |
//! | 4..6 | interest: read, write |
//! | 0..4 | ready: readable, writable, hang-up, urgent |
//!
//! An edge sets its bit whatever the interest is, so one that came while nobody was interested is
//! there when somebody is. A visit clears the bits that it is going to use **before** the first read:
//! cleared after "would block", an edge that came in between would be lost. All is in one word, so of
//! an edge and a change of interest the second one always sees the first.

use super::handler::Interest;
use crate::{
    handle_set::Ready,
    sync::atomic::{AtomicU64, Ordering},
};

const INTEREST_SHIFT: u32 = 4;
const SENDING: u64 = 1 << 6;
const READ_WHILE_SENDING: u64 = 1 << 7;
const CLOSING: u64 = 1 << 8;
const DRAINING: u64 = 1 << 9;
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
    pub(super) fn occupy(&self, interest: Interest) -> u32 {
        let fresh = self.change(|state| State(state.generation_bits()).with_interest(interest));
        fresh.generation()
    }

    /// The registration ends: from here on its key is stale.
    pub(super) fn retire(&self) {
        self.change(|state| State(state.generation_bits().wrapping_add(1 << GENERATION_SHIFT)));
    }

    /// An edge came for the registration `generation`. The generation is compared in the step that
    /// sets the bits, so a late event never reaches the slot's next owner (H3).
    pub(super) fn edge(&self, generation: u32, ready: Ready) -> Result<State, Stale> {
        self.change_of(generation, |state| State(state.0 | u64::from(ready.bits())))
    }

    pub(super) fn set_interest(&self, generation: u32, interest: Interest) -> Result<State, Stale> {
        self.change_of(generation, |state| state.with_interest(interest))
    }

    /// Asks for the end of the registration. Told as it was before: whoever is first sees it open.
    pub(super) fn request_close(&self, generation: u32) -> Result<State, Stale> {
        let mut before = State(0);
        self.change_of(generation, |state| {
            before = state;
            State(state.0 | CLOSING)
        })?;
        Ok(before)
    }

    /// Whatever is registered here shall end when nothing is left to do.
    pub(super) fn drain(&self) -> State {
        self.change(|state| State(state.0 | DRAINING))
    }

    /// Clears `bits`: the owner is about to use them up. Returns what was known in that very step.
    pub(super) fn claim(&self, bits: Ready) -> State {
        State(self.0.fetch_and(!u64::from(bits.bits()), Ordering::AcqRel))
    }

    /// Puts back what the owner did not use up.
    pub(super) fn restore(&self, bits: Ready) {
        self.0.fetch_or(u64::from(bits.bits()), Ordering::AcqRel);
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
        self.try_change(|state| match state.generation() == generation {
            true => Ok(step(state)),
            false => Err(Stale),
        })
    }

    /// One read-modify-write; tells the new state.
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

    pub(super) fn is_draining(self) -> bool {
        self.0 & DRAINING != 0
    }

    pub(super) fn is_sending(self) -> bool {
        self.0 & SENDING != 0
    }

    /// The readiness that somebody waits for: within the interest; and while output is kept, writing
    /// comes first.
    pub(super) fn wanted(self) -> Ready {
        let interest = Ready::from_bits((self.0 >> INTEREST_SHIFT) as u8 & 3);
        let interest = match (self.is_sending(), self.0 & READ_WHILE_SENDING != 0) {
            (false, _) => interest,
            (true, false) => Ready::WRITABLE,
            (true, true) => interest | Ready::WRITABLE,
        };
        self.ready() & interest
    }

    /// Whether a thread must visit the handle.
    pub(super) fn needs_visit(self) -> bool {
        self.is_closing() || !self.wanted().is_empty() || (self.is_draining() && !self.is_sending())
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
