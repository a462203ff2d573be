//! What a connection sends besides answers: the mail of rooms and other connections, and the end of
//! its output.

use std::io::{self, Read, Write};

use paceline::{Context, Next};

use super::{over, Connection};
use crate::{codec::Codec, mailbox::Mail, session::Session, stream::Stream, wire::Wire};

/// Whether a connection sends more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOfOutput {
    Open,
    /// It ends when all output is sent.
    Due,
    Ended,
}

/// What the mail has come to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivered {
    All,
    /// The rest waits until the output is sent.
    Kept,
    Call,
    EndOfOutput,
    Close,
}

impl<C: Codec, N: Session<C>> Connection<C, N> {
    /// Sends what is in the mailbox. What the turn ends with, if that ends it.
    pub(super) fn sort_mail<S: Stream>(
        &mut self,
        cx: &mut Context<'_, S>,
    ) -> io::Result<Option<Next>>
    where
        for<'s> &'s S: Read + Write,
    {
        if self.end_of_output == EndOfOutput::Due {
            return self.end_output(cx).map(Some);
        }
        match self.deliver(cx)? {
            Delivered::All => Ok(None),
            Delivered::Kept => Ok(Some(Next::Again)),
            Delivered::Call => self.call_notified(cx).map(Some),
            Delivered::Close => Ok(Some(Next::CloseGently)),
            Delivered::EndOfOutput => {
                self.end_of_output = EndOfOutput::Due;
                if let Some(secure) = &mut self.secure {
                    secure.close(cx);
                }
                self.end_output(cx).map(Some)
            }
        }
    }

    /// Other code has asked for a call of the session.
    fn call_notified(&mut self, wire: &mut dyn Wire) -> io::Result<Next> {
        let next = self
            .call(wire, |session, cx| session.notified(cx))
            .unwrap_or(Ok(Next::Continue))?;
        self.wants_again |= next == Next::Again;
        Ok(match next {
            // There may be more mail, and input that was there before.
            Next::Continue => Next::Again,
            next => next,
        })
    }

    /// Ends the output, if all of it is sent.
    pub(super) fn end_output<S: Stream>(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        if cx.unsent() > 0 {
            return Ok(Next::Again);
        }
        cx.source().end_output()?;
        self.end_of_output = EndOfOutput::Ended;
        if self.input_ended && !self.holds_item {
            return Ok(Next::Close);
        }
        Ok(Next::Again)
    }

    /// Sends letters until the peer takes no more.
    fn deliver(&mut self, wire: &mut dyn Wire) -> io::Result<Delivered> {
        let Some(link) = &self.link else {
            return Ok(Delivered::All);
        };
        while wire.unsent() == 0 {
            let letter = match link.mailbox().take() {
                Some(Mail::Letter(letter)) => letter,
                Some(Mail::Call) => return Ok(Delivered::Call),
                Some(Mail::EndOfOutput) => return Ok(Delivered::EndOfOutput),
                Some(Mail::Close) => return Ok(Delivered::Close),
                None => {
                    self.has_mail = false;
                    return Ok(Delivered::All);
                }
            };
            let piece = letter.piece(link.encoding());
            over(&mut self.secure, wire, |wire| wire.send_all(&mut [piece]))?;
            if wire.unsent() == 0 {
                letter.reached();
            } else {
                self.letters.push(letter);
            }
        }
        Ok(Delivered::Kept)
    }
}
