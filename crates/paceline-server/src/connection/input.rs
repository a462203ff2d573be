//! From bytes to items: what a connection does with input.

use std::io::{self, Read, Write};

use paceline::{scratch, Context, Next};

use super::{output::EndOfOutput, over, Connection};
use crate::{
    codec::{Codec, Malformed},
    dialog::{Dialog, Outcome, Progress},
    engine::Work,
    limits::Limit,
    secure::is_plain_text,
    session::{Ended, Session},
    spare,
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
    }

    /// The session has asked for another call, before it gets the next item.
    pub(super) fn call_again(&mut self, wire: &mut dyn Wire) -> io::Result<Next> {
        if self.service.workers.is_some() {
            return self.hand_over(Work::Part, 0, wire);
        }
        let next = self
            .call(wire, |session, cx| session.again(cx))
            .unwrap_or(Ok(Next::Continue))?;
        Ok(self.part_written(next))
    }

    /// The session has written a part of a long answer.
    fn part_written(&mut self, next: Next) -> Next {
        self.note_next(next);
        if next == Next::Continue && self.holds_item {
            Next::Again
        } else {
            next
        }
    }

    /// Bytes have come from the network.
    pub(super) fn receive(&mut self, bytes: &[u8], wire: &mut dyn Wire) -> io::Result<Next> {
        if self.secure.is_none() {
            return self.handle_input(bytes, bytes.len(), wire);
        }
        spare::with_plaintext(|plaintext| self.receive_sealed(bytes, plaintext, wire))
    }

    /// The same with TLS. `plaintext` is empty.
    fn receive_sealed(
        &mut self,
        bytes: &[u8],
        plaintext: &mut Vec<u8>,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        let Some(secure) = &mut self.secure else {
            return Ok(Next::Continue);
        };
        if !secure.ensure_place(&self.service) {
            return Ok(self.refuse_handshake());
        }
        let received = match secure.receive(bytes, plaintext, wire) {
            Err(error) if is_plain_text(&error) => return Ok(self.refuse_plain_text(wire)),
            received => received?,
        };
        if received.handshake_finished {
            self.note_tls();
            let next = self.start(wire)?;
            if next != Next::Continue {
                // The session gets no item before it says so.
                self.input.extend_from_slice(plaintext);
                self.input_ended |= received.closed_by_peer;
                self.holds_item = !self.input.is_empty() || self.input_ended;
                return Ok(next);
            }
        }
        self.input_ended |= received.closed_by_peer;
        if !plaintext.is_empty() || self.input_ended {
            self.handle_input(plaintext, bytes.len(), wire)
        } else {
            self.note_records(bytes.len());
            Ok(Next::Continue)
        }
    }

    /// `new` bytes of TLS records have come, and no plain text of them yet.
    fn note_records(&mut self, new: usize) {
        if self.is_handshaking() {
            return;
        }
        if !self.is_between_messages() {
            self.note_growth(new, false);
        } else if !self.times.is_opening() {
            // These were records of the protocol itself.
            self.times.item_ended();
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
            self.note_end(Ended::Malformed(Malformed::Truncated));
            return Ok(Next::Close);
        }
        self.input_ended = true;
        self.handle_input(&[], 0, wire)
    }

    /// Handles the items in the input that is kept and in `bytes`, which came behind it: as `new`
    /// bytes of the network.
    pub(super) fn handle_input(
        &mut self,
        bytes: &[u8],
        new: usize,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        if !self.input.is_empty() || self.service.workers.is_some() {
            self.input.extend_from_slice(bytes);
            return self.handle_kept(new, wire);
        }
        let (Some(dialog), Some(link)) = (&mut self.dialog, &self.link) else {
            return Ok(Next::Continue);
        };
        let ended = self.input_ended;
        let progress = over(&mut self.secure, wire, |wire| {
            dialog.handle_items(bytes, ended, wire, link)
        });
        self.input.extend_from_slice(&bytes[progress.consumed..]);
        self.conclude(progress, new, wire)
    }

    /// Handles the items in the input that is kept, of which `new` bytes of the network have just
    /// come.
    pub(super) fn handle_kept(&mut self, new: usize, wire: &mut dyn Wire) -> io::Result<Next> {
        if self.service.workers.is_some() {
            return self.hand_over(Work::Items, new, wire);
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
        let held_item = std::mem::take(&mut self.holds_item);
        match progress.outcome {
            Outcome::Part(next) => {
                // No item was handled.
                self.holds_item = held_item;
                Ok(self.part_written(next))
            }
            Outcome::Incomplete if self.input_ended => self.last_item_ended(wire),
            Outcome::Incomplete => {
                self.note_rest(new, progress.ended_message);
                Ok(Next::Continue)
            }
            Outcome::Paused => {
                self.note_items(progress.ended_message);
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
                self.note_items(progress.ended_message);
                Ok(next)
            }
            Outcome::StartTls => Ok(Next::Continue),
            Outcome::Malformed(why) => self.refuse_malformed(why, wire),
            Outcome::Failed(error) => Err(error),
            Outcome::Panicked(message) => {
                self.note_end(Ended::Panicked(message));
                Ok(Next::Close)
            }
        }
    }

    /// Items were handled, and the rest of the input is not known yet. The time of a message in
    /// several items goes on.
    fn note_items(&mut self, ended_message: bool) {
        if ended_message {
            self.times.item_ended();
        }
    }

    /// `bytes` more bytes of an item have come, which is not whole.
    fn note_growth(&mut self, bytes: usize, is_new: bool) {
        let now = self.service.now();
        if self.dialog.as_ref().is_some_and(Dialog::is_streaming) {
            self.times.stream_grew(now, bytes, is_new);
        } else {
            self.times.item_grew(now, bytes, is_new);
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
            let bytes = if is_new { self.begun() } else { new };
            self.note_growth(bytes, is_new);
        }
    }

    /// How many bytes of an item have come, or of a TLS record that carries it.
    fn begun(&self) -> usize {
        let record = self.secure.as_ref().map(|secure| secure.partial_record());
        self.input.len() + record.unwrap_or(0)
    }

    /// Whether the peer has begun neither an item nor a message of several items.
    pub(super) fn is_between_messages(&self) -> bool {
        let is_within = |dialog: &Dialog<C, N>| dialog.is_within_message();
        self.begun() == 0 && !self.dialog.as_ref().is_some_and(is_within)
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
            self.note_end(Ended::ByPeer);
        }
        self.wants_again = next == Next::Again;
        Ok(next)
    }

    /// The peer speaks plain text, and gets its last word in plain text.
    fn refuse_plain_text(&mut self, wire: &mut dyn Wire) -> Next {
        self.secure = None;
        let next = self.call(wire, |session, cx| session.not_tls(cx));
        let why = Malformed::Invalid("plain text instead of TLS");
        self.note_end(Ended::Malformed(why));
        match next {
            Some(Next::CloseGently) => Next::CloseGently,
            _ => Next::Close,
        }
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
        self.note_end(Ended::Malformed(why));
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
