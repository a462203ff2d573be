//! A codec and a session: they turn input into calls, and know no connection.

use std::{any::Any, io, sync::Arc};

use paceline::Next;

use crate::{
    codec::{Codec, Decoded, Malformed},
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
    /// Nothing is known of the input: the session panicked.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "a panic without a text".to_owned());
        Self {
            consumed: 0,
            items: 0,
            ended_message: false,
            outcome: Outcome::Panicked(message),
            changes: Changes::default(),
        }
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

    /// Whether the session owes its peer an answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.session.is_busy()
    }

    /// Handles the items in `input`, as many as one turn may.
    pub(crate) fn handle_items(
        &mut self,
        input: &[u8],
        ended: bool,
        wire: &mut dyn Wire,
        link: &Arc<Link>,
    ) -> Progress<C> {
        let mut progress = Progress {
            consumed: 0,
            items: 0,
            ended_message: false,
            outcome: Outcome::Incomplete,
            changes: Changes::default(),
        };
        progress.outcome = self.run(input, ended, wire, link, &mut progress);
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

    fn run(
        &mut self,
        input: &[u8],
        ended: bool,
        wire: &mut dyn Wire,
        link: &Arc<Link>,
        progress: &mut Progress<C>,
    ) -> Outcome {
        let limits = link.service().limits();
        // Parts of one message count by their bytes alone: there may be many in one read.
        let mut messages = 0;
        loop {
            // A session may have paused its input in an item, and before the first one, in `start`.
            if wire.unsent() > 0
                || link.is_paused()
                || messages >= limits.items_per_turn
                || progress.consumed >= limits.bytes_per_turn
            {
                return Outcome::Paused;
            }
            let rest = &input[progress.consumed..];
            if rest.is_empty() && !ended {
                return Outcome::Incomplete;
            }
            let (item, consumed) = match self.codec.decode(rest, ended) {
                Ok(Decoded::Item { item, consumed }) => (item, consumed),
                Ok(Decoded::Incomplete) => return Outcome::Incomplete,
                Err(why) => return Outcome::Malformed(why),
            };
            progress.consumed += consumed.min(rest.len());
            progress.items += 1;
            let mut cx = Peer::new(wire, link, &self.codec, &mut progress.changes);
            let next = self.session.handle(item, &mut cx);
            if let Some(codec) = progress.changes.codec.take() {
                self.codec = codec;
            }
            let has_ended = !self.codec.is_within_message();
            progress.ended_message |= has_ended;
            messages += usize::from(has_ended);
            match next {
                Ok(Next::Continue) if progress.changes.wants_tls() => {
                    return Outcome::StartTls;
                }
                Ok(Next::Continue) => {}
                Ok(decided) => return Outcome::Decided(decided),
                Err(error) => return Outcome::Failed(error),
            }
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
