//! From bytes to items: what a connection does with input.

use std::io::{self, Read, Write};

use paceline::{scratch, Context, Next};

use super::{output::EndOfOutput, over, Connection};
use crate::{
    codec::{Codec, Malformed},
    dialog::{Dialog, Outcome, Progress},
    limits::Limit,
    secure::is_plain_text,
    session::{Ended, Session},
    stream::Stream,
    wire::Wire,
};

impl<C: Codec, N: Session<C>> Connection<C, N> {
    /// Handles what has come, or what is there already.
    pub(super) fn take_input<S: Stream>(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        if std::mem::take(&mut self.wants_again) {
            return self.call_again(cx);
        }
        if self.is_paused() || (self.input_ended && !self.holds_item) {
            return Ok(Next::Continue);
        }
        if self.holds_item {
            return self.handle_kept(0, cx);
        }
        let mut buffer = scratch();
        let count = cx.read(&mut buffer)?;
        self.bytes_in += count as u64;
        self.service.counters().bytes_in.add(count as u64);
        if count == 0 {
            self.input_ended(cx)
        } else {
            self.receive(&buffer[..count], cx)
        }
    }

    /// A session that goes on, here or in another level, is called before it gets the next item.
    fn note_next(&mut self, next: Next) {
        self.wants_again = matches!(next, Next::Again | Next::Move);
        if let (Next::Move, Some(link)) = (next, &self.link) {
            // No event of the source reports a move, or that there was none.
            let _ = link.handle().notify();
        }
    }

    /// The session has asked for another call, before it gets the next item.
    pub(super) fn call_again(&mut self, wire: &mut dyn Wire) -> io::Result<Next> {
        let next = self
            .call(wire, |session, cx| session.again(cx))
            .unwrap_or(Ok(Next::Continue))?;
        self.note_next(next);
        Ok(if next == Next::Continue && self.holds_item {
            Next::Again
        } else {
            next
        })
    }

    /// Bytes have come from the network.
    pub(super) fn receive(&mut self, bytes: &[u8], wire: &mut dyn Wire) -> io::Result<Next> {
        let Some(secure) = &mut self.secure else {
            return self.handle_input(bytes, wire);
        };
        let before = self.input.len();
        let received = match secure.receive(bytes, &mut self.input, wire) {
            Err(error) if is_plain_text(&error) => return Ok(self.refuse_plain_text(wire)),
            received => received?,
        };
        if received.handshake_finished {
            self.note_tls();
            let next = self.start(wire)?;
            if !matches!(next, Next::Continue | Next::Again) {
                return Ok(next);
            }
        }
        self.input_ended |= received.closed_by_peer;
        let new = self.input.len() - before;
        if new > 0 || self.input_ended {
            self.handle_kept(new, wire)
        } else {
            Ok(Next::Continue)
        }
    }

    /// The peer has ended its output.
    pub(super) fn input_ended(&mut self, wire: &mut dyn Wire) -> io::Result<Next> {
        let is_cut = self
            .secure
            .as_ref()
            .is_some_and(|secure| !secure.input_ended_properly());
        if is_cut {
            // Anyone on the way may have cut the stream: no item may end here.
            self.why = Some(Ended::Malformed(Malformed::Truncated));
            return Ok(Next::Close);
        }
        self.input_ended = true;
        self.handle_input(&[], wire)
    }

    /// Handles the items in the input that is kept and the bytes that came behind it.
    pub(super) fn handle_input(&mut self, new: &[u8], wire: &mut dyn Wire) -> io::Result<Next> {
        if !self.input.is_empty() || self.service.workers.is_some() {
            self.input.extend_from_slice(new);
            return self.handle_kept(new.len(), wire);
        }
        let (Some(dialog), Some(link)) = (&mut self.dialog, &self.link) else {
            return Ok(Next::Continue);
        };
        let ended = self.input_ended;
        let progress = over(&mut self.secure, wire, |wire| {
            dialog.handle_items(new, ended, wire, link)
        });
        self.input.extend_from_slice(&new[progress.consumed..]);
        self.conclude(progress, new.len(), wire)
    }

    /// Handles the items in the input that is kept, whose last `new` bytes have just come.
    pub(super) fn handle_kept(&mut self, new: usize, wire: &mut dyn Wire) -> io::Result<Next> {
        if self.service.workers.is_some() {
            return self.hand_over(new, wire);
        }
        let (Some(dialog), Some(link)) = (&mut self.dialog, &self.link) else {
            return Ok(Next::Continue);
        };
        let (input, ended) = (&self.input, self.input_ended);
        let progress = over(&mut self.secure, wire, |wire| {
            dialog.handle_items(input, ended, wire, link)
        });
        forget(&mut self.input, progress.consumed);
        self.conclude(progress, new, wire)
    }

    /// What follows from the handling of `new` bytes and those before them.
    pub(super) fn conclude(
        &mut self,
        progress: Progress<C>,
        new: usize,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        self.items += progress.items;
        self.service.counters().items.add(progress.items);
        self.apply(&progress.changes);
        self.holds_item = false;
        match progress.outcome {
            Outcome::Incomplete if self.input_ended => self.last_item_ended(wire),
            Outcome::Incomplete => {
                self.note_rest(new, progress.ended_message);
                Ok(Next::Continue)
            }
            Outcome::Paused => {
                self.times.item_ended();
                self.holds_item = !self.input.is_empty() || self.input_ended;
                Ok(if self.holds_item && !self.is_paused() {
                    Next::Again
                } else {
                    Next::Continue
                })
            }
            Outcome::Decided(next) => {
                self.note_next(next);
                self.holds_item = !self.input.is_empty() || self.input_ended;
                self.times.item_ended();
                Ok(next)
            }
            Outcome::StartTls => self.start_tls(progress.changes, wire),
            Outcome::Malformed(why) => self.refuse_malformed(why, wire),
            Outcome::Failed(error) => Err(error),
            Outcome::Panicked(message) => {
                self.why = Some(Ended::Panicked(message));
                Ok(Next::Close)
            }
        }
    }

    /// The rest of the input is a part of an item, or nothing.
    fn note_rest(&mut self, new: usize, is_new: bool) {
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        if self.is_between_messages() {
            self.times.item_ended();
        } else {
            let now = self.service.now();
            if self.dialog.as_ref().is_some_and(Dialog::is_streaming) {
                self.times.stream_grew(now, new, is_new);
            } else {
                self.times.item_grew(now, new, is_new);
            }
        }
    }

    /// Whether the peer has begun neither an item nor a message of several items.
    pub(super) fn is_between_messages(&self) -> bool {
        let is_within = |dialog: &Dialog<C, N>| dialog.is_within_message();
        self.input.is_empty() && !self.dialog.as_ref().is_some_and(is_within)
    }

    /// The peer sends nothing more, and every item was handled.
    pub(super) fn last_item_ended(&mut self, wire: &mut dyn Wire) -> io::Result<Next> {
        self.times.item_ended();
        let next = self
            .call(wire, |session, cx| session.ended(cx))
            .unwrap_or(Ok(Next::Close))?;
        if self.end_of_output == EndOfOutput::Ended {
            return Ok(Next::Close);
        }
        if matches!(next, Next::Close | Next::CloseGently) {
            self.why = Some(Ended::ByPeer);
        }
        self.wants_again = next == Next::Again;
        Ok(next)
    }

    /// The peer speaks plain text, and gets its last word in plain text.
    fn refuse_plain_text(&mut self, wire: &mut dyn Wire) -> Next {
        self.secure = None;
        self.call(wire, |session, cx| session.not_tls(cx));
        let why = Malformed::Invalid("plain text instead of TLS");
        self.why = Some(Ended::Malformed(why));
        Next::CloseGently
    }

    pub(super) fn refuse_malformed(
        &mut self,
        why: Malformed,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        if why.is_too_long() {
            self.service.counters().met(Limit::ItemSize);
        }
        self.call(wire, |session, cx| session.malformed(why, cx));
        self.why = Some(Ended::Malformed(why));
        Ok(Next::CloseGently)
    }
}

/// Removes the first `count` bytes, and the memory of an empty buffer.
pub(super) fn forget(input: &mut Vec<u8>, count: usize) {
    input.drain(..count);
    if input.is_empty() {
        *input = Vec::new();
    }
}
