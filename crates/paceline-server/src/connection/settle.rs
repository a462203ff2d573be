//! What must hold when a call ends: the times, the interest, the drain.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use paceline::{Context, Interest, Next};

use super::Connection;
use crate::{
    codec::Codec,
    limits::Limit,
    link::Link,
    session::{Ended, Session},
    stream::Stream,
    times::longest_time,
    wire::Wire,
};

/// How long a connection that has said nothing yet may still speak when the server drains.
const SPEAK_BEFORE_DRAIN: Duration = Duration::from_secs(5);

impl<C: Codec, N: Session<C>> Connection<C, N> {
    /// What must hold when a call ends: the times, the drain, the end of TLS.
    pub(super) fn settle<S: Stream>(
        &mut self,
        cx: &mut Context<'_, S>,
        unsent_before: usize,
        mut next: io::Result<Next>,
    ) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        #[cfg(feature = "_tls")]
        {
            next = self.begin_tls_if_due(next, cx);
        }
        if self.service.is_draining() && goes_on(&next) {
            self.drain(cx, &mut next);
        }
        if let (Ok(Next::Close | Next::CloseGently), Some(secure)) = (&next, &mut self.secure) {
            secure.close(cx);
        }
        let unsent = cx.unsent();
        if unsent > 0 {
            self.times
                .output_kept(|| self.service.now(), unsent_before, unsent);
        }
        if matches!(next, Ok(Next::Close | Next::CloseGently)) {
            self.limit_last_output(cx, unsent);
        } else if goes_on(&next) {
            self.set_interest();
            self.set_deadline(cx, unsent);
            match next {
                Ok(Next::Continue) if self.must_go_on(unsent) => next = Ok(Next::Again),
                Ok(Next::Move) => self.ask_for_a_call(),
                _ => {}
            }
        }
        next
    }

    /// A limit of time is met.
    pub(super) fn meet(&mut self, limit: Limit, wire: &mut dyn Wire) -> io::Result<Next> {
        if self.dialog.is_none() {
            // It is the worker that takes its time.
            return Ok(Next::Continue);
        }
        self.service.counters().met(limit);
        let next = if self.is_handshaking() {
            Next::Close
        } else {
            self.call(wire, |session, cx| session.overdue(limit, cx))
                .unwrap_or(Next::Close)
        };
        if matches!(next, Next::Continue | Next::Again) {
            let limits = self.service.limits();
            self.times
                .restart(limit, self.service.now(), limits, wire.unsent());
            self.wants_again |= next == Next::Again;
            return Ok(next);
        }
        self.note_end(Ended::Limit(limit));
        if matches!(limit, Limit::WriteRate | Limit::HandshakeTime) {
            // The peer takes nothing, or understands nothing: there is no last word.
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(next)
    }

    /// Whether something is to be done that no event reports: mail is to be sent, or, when all output
    /// is sent, receipts are due.
    pub(super) fn must_go_on(&self, unsent: usize) -> bool {
        let has_receipts = unsent > 0 && !self.letters.is_empty();
        let has_mail = || {
            self.link
                .as_ref()
                .is_some_and(|link| link.mailbox().has_mail())
        };
        // Mail waits for the end of a handshake in its mailbox, which is bounded.
        let may_send = self.dialog.is_some() && !self.is_handshaking();
        has_receipts || (self.has_mail && may_send && has_mail())
    }

    /// The connection moves, and no event reports the items and the mail that it has already.
    fn ask_for_a_call(&self) {
        if let Some(link) = &self.link {
            // From its own handler: the connection is not over.
            let _ = link.handle().notify();
        }
    }

    /// Lets the pool report input only while it can be handled, and notes for how long it was not.
    pub(super) fn set_interest(&mut self) {
        let is_paused = self.is_paused();
        let is_read = self.dialog.is_some() && !is_paused && !self.input_ended;
        if is_read != self.is_read {
            self.is_read = is_read;
            let interest = if is_read {
                Interest::READ
            } else {
                Interest::NONE
            };
            if let Some(link) = &self.link {
                // From its own handler: the connection is not over.
                let _ = link.handle().set_interest(interest);
            }
        }
        match self.paused_since {
            None if is_paused => self.paused_since = Some(self.service.now()),
            Some(since) if !is_paused => {
                self.times.shift(self.service.now().saturating_sub(since));
                self.paused_since = None;
            }
            _ => {}
        }
    }

    /// The server drains: a connection with nothing left to do asks its session whether it ends.
    pub(super) fn drain(&mut self, wire: &mut dyn Wire, next: &mut io::Result<Next>) {
        if self.times.is_opening() {
            self.times
                .shorten(self.service.now().saturating_add(SPEAK_BEFORE_DRAIN));
        } else if !self.is_at_work() {
            let decided = self.call(wire, |session, cx| session.draining(cx));
            match decided.unwrap_or(Next::Continue) {
                // Not yet. What the turn ends with stays.
                Next::Continue => {}
                decided => {
                    self.wants_again = decided == Next::Again;
                    if matches!(decided, Next::Close | Next::CloseGently) {
                        self.note_end(Ended::Shutdown);
                    }
                    *next = Ok(decided);
                }
            }
        }
    }

    /// Whether an item, an answer in parts, or mail is under way.
    fn is_at_work(&self) -> bool {
        let has_mail = |link: &Arc<Link>| link.mailbox().has_mail();
        self.dialog.is_none()
            || self.holds_item
            || self.wants_again
            || !self.is_between_messages()
            || !self.letters.is_empty()
            || self.link.as_ref().is_some_and(has_mail)
    }

    /// The pool closes the connection when its output is sent, and calls the handler no more: so
    /// the peer gets as long as the least rate allows for all of it. An earlier deadline, of what
    /// the connection waited for, no longer counts.
    pub(super) fn limit_last_output<S>(&mut self, cx: &mut Context<'_, S>, unsent: usize) {
        if unsent > 0 {
            let rate = self.service.limits().least_rate;
            cx.set_deadline(rate.map(|rate| longest_time(rate, unsent as u64)));
        }
    }

    /// Sets the deadline that the pool has to know now.
    pub(super) fn set_deadline<S>(&mut self, cx: &mut Context<'_, S>, unsent: usize) {
        // A worker that has the dialog takes its own time.
        let is_here = self.dialog.is_some();
        let deadline = self
            .times
            .deadline(self.service.limits(), unsent, self.is_read)
            .filter(|_| is_here);
        if deadline != self.deadline {
            self.deadline = deadline;
            let now = || self.service.now();
            cx.set_deadline(deadline.map(|at| at.saturating_sub(now())));
        }
    }
}

/// Whether the connection goes on: "would block" means that nothing more has come.
fn goes_on(next: &io::Result<Next>) -> bool {
    match next {
        Ok(next) => matches!(next, Next::Continue | Next::Again | Next::Move),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
