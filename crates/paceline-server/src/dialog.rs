//! A codec and a session: they turn input into calls, and know no connection.

use std::{any::Any, io, sync::Arc};

use paceline::Next;

use crate::{
    codec::{Codec, Decoded, Malformed},
    cork::Cork,
    link::Link,
    peer::{Changes, Peer},
    session::{Ended, Session},
    wire::Wire,
};

/// A codec and a session.
pub(crate) struct Dialog<C, N> {
    codec: C,
    session: N,
}

/// How far the input was handled.
#[must_use]
pub(crate) struct Progress<C> {
    /// So many of its bytes belong to items that were handled.
    pub(crate) consumed: usize,
    /// So many items were handled.
    pub(crate) items: u64,
    /// So many messages, of one item or of several, have ended.
    pub(crate) messages: usize,
    /// A message ended: the rest of the input, if there is any, belongs to another one.
    pub(crate) ended_message: bool,
    pub(crate) outcome: Outcome,
    pub(crate) changes: Changes<C>,
}

/// Why the handling of items stopped.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The rest of the input is no whole item.
    Incomplete,
    /// The rest may hold another item: output is kept, the input is paused, or others have their
    /// turn first.
    Paused,
    /// The session decided this: another `Next` than `Continue`.
    Decided(Next),
    /// A part of a long answer is written, and the session returned this.
    Part(Next),
    /// The session wants TLS from here on.
    StartTls,
    /// The input breaks the protocol.
    Malformed(Malformed),
    /// The session failed.
    Failed(io::Error),
    /// The session panicked with this message, on a worker.
    Panicked(String),
}

impl<C> Progress<C> {
    /// Nothing is handled yet.
    fn new(outcome: Outcome) -> Self {
        Self {
            consumed: 0,
            items: 0,
            messages: 0,
            ended_message: false,
            outcome,
            changes: Changes::default(),
        }
    }

    /// Nothing is known of the input: the session panicked.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "a panic without a text".to_owned());
        Self::new(Outcome::Panicked(message))
    }
}

impl<C: Codec, N: Session<C>> Dialog<C, N> {
    pub(crate) fn new(codec: C, session: N) -> Self {
        Self { codec, session }
    }

    pub(crate) fn into_session(self) -> N {
        self.session
    }

    /// Whether the peer has begun a message whose end has not come, and whose items so far were
    /// handled.
    pub(crate) fn is_within_message(&self) -> bool {
        self.codec.is_within_message()
    }

    /// Whether only the least rate counts for the rest of the message.
    pub(crate) fn is_streaming(&self) -> bool {
        self.codec.is_streaming()
    }

    /// Handles the items in `input`, as many as one turn may. Short replies to several of them
    /// leave together.
    pub(crate) fn handle_items(
        &mut self,
        input: &[u8],
        ended: bool,
        wire: &mut dyn Wire,
        link: &Arc<Link>,
    ) -> Progress<C> {
        let mut progress = Progress::new(Outcome::Incomplete);
        progress.outcome = Cork::over(wire, |cork| {
            let outcome = loop {
                if let Some(outcome) = self.handle_item(input, ended, cork, link, &mut progress) {
                    break outcome;
                }
            };
            match (outcome, cork.release()) {
                (Outcome::Failed(error), _) | (_, Err(error)) => Outcome::Failed(error),
                (outcome, Ok(())) => outcome,
            }
        });
        self.end_turn(wire, link, &mut progress);
        progress
    }

    /// Lets the session send what it has collected, unless it has failed.
    fn end_turn(&mut self, wire: &mut dyn Wire, link: &Arc<Link>, progress: &mut Progress<C>) {
        if progress.items == 0 || matches!(progress.outcome, Outcome::Failed(_)) {
            return;
        }
        let mut cx = Peer::new(wire, link, &self.codec, &mut progress.changes);
        if let Err(error) = self.session.turn_ended(&mut cx) {
            progress.outcome = Outcome::Failed(error);
        }
    }

    /// Handles the next item. Why no other one follows, if none does.
    fn handle_item(
        &mut self,
        input: &[u8],
        ended: bool,
        cork: &mut Cork<'_>,
        link: &Arc<Link>,
        progress: &mut Progress<C>,
    ) -> Option<Outcome> {
        let limits = link.service().limits();
        // A session may have paused its input in an item, and before the first one, in `start`.
        if cork.unsent() > 0
            || link.is_paused()
            || progress.messages >= limits.items_per_turn
            || progress.consumed >= limits.bytes_per_turn
        {
            return Some(Outcome::Paused);
        }
        let rest = &input[progress.consumed..];
        if rest.is_empty() && !ended {
            return Some(Outcome::Incomplete);
        }
        let (item, consumed) = match self.codec.decode(rest, ended) {
            Ok(Decoded::Item { item, consumed }) => (item, consumed),
            Ok(Decoded::Incomplete) => return Some(Outcome::Incomplete),
            Err(why) => return Some(Outcome::Malformed(why)),
        };
        progress.consumed += consumed.min(rest.len());
        progress.items += 1;
        cork.hold(progress.consumed < input.len());
        let mut cx = Peer::new(cork, link, &self.codec, &mut progress.changes);
        let next = self.session.handle(item, &mut cx);
        if let Some(codec) = progress.changes.codec.take() {
            self.codec = codec;
        }
        // Parts of one message count by their bytes alone: there may be many in one read.
        let has_ended = !self.codec.is_within_message();
        progress.ended_message |= has_ended;
        progress.messages += usize::from(has_ended);
        match next {
            // After the handshake the session starts anew: it is not called again before that.
            Ok(Next::Continue | Next::Again) if progress.changes.wants_tls() => {
                Some(Outcome::StartTls)
            }
            Ok(Next::Continue) => None,
            Ok(decided) => Some(Outcome::Decided(decided)),
            Err(error) => Some(Outcome::Failed(error)),
        }
    }

    /// Calls the session for the next part of a long answer.
    pub(crate) fn write_part(&mut self, wire: &mut dyn Wire, link: &Arc<Link>) -> Progress<C> {
        let (result, changes) = self.call(wire, link, |session, cx| session.again(cx));
        let outcome = result.map_or_else(Outcome::Failed, Outcome::Part);
        Progress {
            changes,
            ..Progress::new(outcome)
        }
    }

    /// Calls one of the session's other functions.
    pub(crate) fn call<R>(
        &mut self,
        wire: &mut dyn Wire,
        link: &Arc<Link>,
        function: impl FnOnce(&mut N, &mut Peer<'_, C>) -> R,
    ) -> (R, Changes<C>) {
        let mut changes = Changes::default();
        let mut cx = Peer::new(wire, link, &self.codec, &mut changes);
        let result = function(&mut self.session, &mut cx);
        if let Some(codec) = changes.codec.take() {
            self.codec = codec;
        }
        (result, changes)
    }

    pub(crate) fn closed(&mut self, why: &Ended) {
        self.session.closed(why);
    }
}
