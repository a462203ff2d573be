//! The readiness that is lent to one visit: what was claimed for it, and what it used up.

use std::io::{self, IoSlice};

use super::{
    outbox::total,
    readiness::{Readiness, State},
};
use crate::handle_set::{Ready, Reports};

/// The last operation said "would block".
const REFUSED: u8 = 1;
/// An input operation succeeded.
const READ: u8 = 2;

/// The end of the input was read.
const INPUT_ENDED: u8 = 1;
/// A part of the call is of another kind than the handler.
const PARTED: u8 = 2;

/// The readiness of one visit: what was claimed for it, and what was used up.
pub(super) struct ReadinessGuard<'v> {
    pub(super) readiness: &'v Readiness,
    /// What the word said in the step that claimed.
    pub(super) seen: State,
    /// What was ready then, and in later steps that claimed more.
    pub(super) known: Ready,
    /// The bits that were cleared in the word for this visit.
    pub(super) taken: Ready,
    /// What says how the handler is to be called was claimed too.
    pub(super) called: bool,
    /// The directions that ran dry.
    dry: Ready,
    /// What else is to be settled: [`INPUT_ENDED`] and [`PARTED`].
    besides: u8,
    /// How much this visit may still read.
    pub(super) budget: usize,
    /// How the operations on the lent source went: [`REFUSED`] and [`READ`].
    went: u8,
    /// The source is a TCP stream: a short read means that it is empty.
    is_tcp: bool,
    reports: Reports,
}

impl<'v> ReadinessGuard<'v> {
    /// Claims everything that is wanted.
    #[inline]
    pub(super) fn claim(readiness: &'v Readiness, budget: usize, reports: Reports) -> Self {
        let look = readiness.look();
        let (wanted, called) = (look.wanted(), look.is_called());
        let seen = if called {
            readiness.claim_calls(wanted, look)
        } else {
            readiness.claim(wanted)
        };
        // It may have been suspended since the look: what counts is the step that claimed.
        if called && seen.is_suspended() {
            readiness.restore_calls(seen);
        }
        Self {
            called,
            besides: 0,
            reports,
            readiness,
            seen,
            known: seen.ready(),
            taken: seen.ready() & wanted,
            dry: Ready::NONE,
            budget,
            went: 0,
            is_tcp: false,
        }
    }

    /// Claims nothing: for a user of a source that this visit is not for.
    pub(super) fn aside(readiness: &'v Readiness, budget: usize, reports: Reports) -> Self {
        let seen = readiness.look();
        Self {
            called: false,
            besides: 0,
            reports,
            readiness,
            seen,
            known: seen.ready(),
            taken: Ready::NONE,
            dry: Ready::NONE,
            budget,
            went: 0,
            is_tcp: false,
        }
    }

    /// The handler is to be called, whatever is ready.
    pub(super) fn is_notified(&self) -> bool {
        self.called && self.seen.is_notified()
    }

    /// It is to be greeted.
    #[inline]
    pub(super) fn greets(&self) -> bool {
        self.called && self.seen.greets()
    }

    pub(super) fn set_tcp(&mut self, is_tcp: bool) {
        self.is_tcp = is_tcp;
    }

    /// Does `operation`; finds out whether `direction` ran dry.
    ///
    /// If the direction was claimed before this attempt, an edge that comes later sets its bit
    /// anew, so "would block" is the truth. If not (a handler that writes without having waited for
    /// room), its old bit is claimed first and the operation tried once more.
    pub(super) fn attempt<S, R>(
        &mut self,
        direction: Ready,
        source: &S,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match operation(source) {
                Ok(told) => return Ok(told),
                Err(error) => self.may_try_again(direction, error)?,
            }
        }
    }

    /// An attempt failed. If another one is to be made, it is made ready for that; otherwise this
    /// is what went wrong. (Apart, so that an attempt that succeeds is short.)
    #[inline(never)]
    fn may_try_again(&mut self, direction: Ready, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock if self.taken.has(direction) => {
                self.mark_dry(direction);
                Err(error)
            }
            io::ErrorKind::WouldBlock => {
                self.known |= self.readiness.claim(direction).ready();
                self.taken |= direction;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Writes until the descriptor has taken all of `slices`, or takes no more. How many bytes it
    /// took.
    #[inline]
    pub(super) fn send<S>(
        &mut self,
        source: &S,
        slices: &mut [IoSlice<'_>],
        write: impl Fn(&S, &[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let whole = total(slices);
        if whole == 0 {
            return Ok(0);
        }
        match write(source, slices) {
            // The usual case.
            Ok(count) if count == whole => Ok(count),
            told => self.send_rest(source, slices, write, told),
        }
    }

    /// The same, when the first attempt did not take all.
    #[cold]
    #[inline(never)]
    fn send_rest<S>(
        &mut self,
        source: &S,
        mut slices: &mut [IoSlice<'_>],
        write: impl Fn(&S, &[IoSlice<'_>]) -> io::Result<usize>,
        mut told: io::Result<usize>,
    ) -> io::Result<usize> {
        let whole = total(slices);
        let mut rest = whole;
        loop {
            match told {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) if count > rest => {
                    let text = "a write told of more bytes than it was given";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Ok(count) => {
                    IoSlice::advance_slices(&mut slices, count);
                    rest -= count;
                }
                Err(error) => match self.may_try_again(Ready::WRITABLE, error) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                },
            }
            if rest == 0 {
                break;
            }
            told = write(source, slices);
        }
        Ok(whole - rest)
    }

    /// The end of the input was read, if it was.
    #[inline]
    pub(super) fn note_input_ended(&mut self, ended: bool) {
        self.besides |= u8::from(ended) * INPUT_ENDED;
    }

    /// The rest of the call is of another kind than the handler.
    pub(super) fn note_part(&mut self) {
        self.besides |= PARTED;
    }

    /// An input operation succeeded.
    #[inline]
    pub(super) fn note_read(&mut self) {
        self.went = READ;
    }

    /// An output operation succeeded.
    #[inline]
    pub(super) fn note_written(&mut self) {
        self.went &= READ;
    }

    /// An operation is refused: "would block".
    pub(super) fn refuse(&mut self) -> io::Error {
        self.went |= REFUSED;
        io::ErrorKind::WouldBlock.into()
    }

    /// Whether the last operation on the lent source said "would block".
    pub(super) fn is_refused(&self) -> bool {
        self.went & REFUSED != 0
    }

    /// Puts back what a call of the handler did not use up. Says whether it left input and read
    /// none.
    #[inline]
    pub(super) fn settle_call(self) -> Settled {
        let rest = self.taken.without(self.dry);
        if rest.has(Ready::READABLE) && self.went & READ == 0 {
            return Self::settle_unread(self.readiness, self.seen, rest);
        }
        self.settle_rest(rest)
    }

    /// Its arguments are parts of `self`, which a reference would keep in memory. Likewise
    /// [`settle_besides`](Self::settle_besides).
    #[cold]
    #[inline(never)]
    fn settle_unread(readiness: &Readiness, seen: State, rest: Ready) -> Settled {
        readiness.restore_unread(rest);
        if seen.left_unread() {
            Settled::UnreadAgain
        } else {
            Settled::Unread
        }
    }

    /// Puts back what was not used up.
    #[inline]
    pub(super) fn settle(self) {
        let rest = self.taken.without(self.dry);
        let _ = self.settle_rest(rest);
    }

    #[inline(always)]
    fn settle_rest(self, rest: Ready) -> Settled {
        if !rest.is_empty() {
            self.readiness.restore(rest);
        }
        // One question for both.
        if self.besides == 0 {
            Settled::Plainly
        } else {
            Self::settle_besides(self.readiness, self.besides)
        }
    }

    #[inline(never)]
    fn settle_besides(readiness: &Readiness, besides: u8) -> Settled {
        if besides & INPUT_ENDED != 0 {
            readiness.end_input();
        }
        if besides & PARTED != 0 {
            Settled::Parted
        } else {
            Settled::Plainly
        }
    }

    /// Puts nothing back: what was claimed belongs to another thread from here on.
    pub(super) fn hand_over(self) -> Ready {
        self.taken
    }

    /// The same, and asks for another call.
    pub(super) fn settle_and_ask_again(self) {
        self.readiness.notify_self();
        self.settle();
    }

    /// Puts everything back: what was used up is not known.
    pub(super) fn settle_after_panic(self) {
        self.readiness.restore(self.taken);
        if self.is_notified() {
            self.readiness.notify_self();
        }
    }

    pub(super) fn mark_dry(&mut self, direction: Ready) {
        self.dry |= direction;
    }

    /// Whether a read that brought `count` bytes of `room` was the last until the next edge.
    ///
    /// Nothing, after a hang-up: that is the end. Less than it could, from a TCP stream: that
    /// emptied it, unless the end of the stream, an error or an urgent mark was known, which stop a
    /// read early and bring no further edge. A set that reports once will report if there is more,
    /// when it is armed.
    pub(super) fn is_dry_after(&self, count: usize, room: usize) -> bool {
        if self.reports == Reports::Once {
            return count < room;
        }
        if count == 0 {
            return self.known.has(Ready::HANG_UP);
        }
        let special = Ready::HANG_UP | Ready::URGENT;
        count < room && self.is_tcp && self.taken.has(Ready::READABLE) && !self.known.has(special)
    }

    /// The error as the handler gets it: "would block" in the plain form that [`is_refusal`] knows.
    pub(super) fn refusal(&mut self, error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::WouldBlock {
            return self.refuse();
        }
        self.went &= READ;
        error
    }
}

/// What a call of the handler left.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Nothing, or it has read something.
    Plainly,
    /// The same, and a part of it was of another kind than the handler.
    Parted,
    /// Input, and it has read nothing.
    Unread,
    /// The same as the call before it.
    UnreadAgain,
}

impl Settled {
    pub(super) fn is_unread(self) -> bool {
        matches!(self, Self::Unread | Self::UnreadAgain)
    }
}

/// A "would block" that the lent source did not return, as an error that says what to do.
pub(super) fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let text = format!(
                "{error}: not told by the guard source, so nobody waits for it (read and write \
                 through the context, or with try_read and try_write)"
            );
            io::Error::new(io::ErrorKind::WouldBlock, text)
        }
        _ => error,
    }
}

/// Whether "would block" has the plain form that the lent source gives it. The operating system's
/// own, from somewhere else, carries a number.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        && error.raw_os_error().is_none()
        && error.get_ref().is_none()
}
