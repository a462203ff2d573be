//! The state that follows a client from server to server.

use std::sync::atomic::{AtomicU64, Ordering};

use paceline_pg_wire::{Header, Walk};

use super::{
    parameters::{self, Values},
    prepared::Names,
    Loss, Violation,
};

/// The client's side of a relay. Small while it is idle.
#[derive(Debug)]
pub struct ClientHalf {
    /// Identifies the client. Never reused.
    pub(super) id: u64,
    /// The position in the stream of the client's messages.
    pub(super) walk: Walk,
    /// How to treat the rest of a message that arrives in pieces.
    pub(super) rest: Rest,
    /// Whether bytes of the client wait for replies.
    pub(super) is_waiting: bool,
    /// The server was lost within a batch: drop all messages up to the next Sync.
    pub(super) is_skipping: bool,
    /// The server was lost within a block: the next request gets an error.
    pub(super) lost: Option<Loss>,
    /// The last refusal of the front-end, until the caller takes it for the log.
    pub(super) refusal: Option<Box<str>>,
    /// The parameters that the client wants.
    parameters: Values,
    /// Whether a server has accepted all of these values.
    is_proven: bool,
    /// The query that sets the parameters that are not tracked.
    pub(super) others: Option<Box<[u8]>>,
    /// The names of its statements, once it has some.
    pub(super) names: Option<Box<Names>>,
}

/// The outcome of [`ClientHalf::without_server`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unassigned {
    /// How many bytes are taken. The caller keeps the others.
    pub consumed: usize,
    /// The need of the client.
    pub next: Idle,
}

/// The need of a client without a server.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// More bytes: the header of a message is incomplete.
    More,
    /// A server, for the message at the start of the rest.
    NeedsServer,
    /// Nothing: it has sent Terminate.
    Terminate,
}

/// How to treat the rest of a message that arrives in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It is sent on.
    Passes,
    /// It is dropped.
    Dropped,
}

impl ClientHalf {
    /// A client that wants these parameters: its own values, and those of the welcome for the others.
    /// `is_proven` means that it has no own values, or that a server has accepted them: then it need
    /// not wait until a server has them.
    #[must_use]
    pub fn new(parameters: Values, is_proven: bool) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            // The relay has a limit of its own, which may change.
            walk: Walk::new(usize::MAX),
            rest: Rest::Passes,
            is_waiting: false,
            is_skipping: false,
            lost: None,
            refusal: None,
            parameters,
            is_proven,
            others: None,
            names: None,
        }
    }

    /// The client also wants these parameters, which are not tracked. A server that has them stays
    /// with the client, and must be reset or closed afterwards.
    #[must_use]
    pub fn with_others(mut self, others: &[(String, Vec<u8>)]) -> Self {
        if !others.is_empty() {
            self.others = Some(parameters::setting(others).into());
            self.is_proven = false;
        }
        self
    }

    /// The parameters that the client wants.
    #[must_use]
    pub fn parameters(&self) -> &Values {
        &self.parameters
    }

    /// Whether the client's stream is at the end of a message.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.walk.is_between_messages()
    }

    /// The last refusal of the front-end since the previous call, for the log.
    pub fn take_refusal(&mut self) -> Option<Box<str>> {
        self.refusal.take()
    }

    /// How many prepared statements the client has.
    #[must_use]
    pub fn prepared_statements(&self) -> usize {
        self.names.as_ref().map_or(0, |names| names.len())
    }

    /// Reads input of a client without a server. It consumes messages that a server would ignore,
    /// and Terminate needs no server.
    ///
    /// # Errors
    /// [`Violation`] if the length of a message is invalid.
    pub fn without_server(&self, input: &[u8]) -> Result<Unassigned, Violation> {
        let mut consumed = 0;
        let next = loop {
            let rest = &input[consumed..];
            match Header::first(rest)? {
                None => break Idle::More,
                Some(header) if header.tag == b'X' => break Idle::Terminate,
                // Late data of a copy that has failed; a Flush of nothing.
                Some(header)
                    if matches!(header.tag, b'd' | b'c' | b'f' | b'H')
                        && header.message() <= rest.len() =>
                {
                    consumed += header.message();
                }
                Some(_) => break Idle::NeedsServer,
            }
        };
        Ok(Unassigned { consumed, next })
    }

    pub(super) fn parameters_mut(&mut self) -> &mut Values {
        &mut self.parameters
    }

    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Takes over the values that a server has for the client.
    pub(super) fn take_over(&mut self, parameters: &Values) {
        self.parameters = parameters.clone();
        self.is_proven = true;
    }

    pub(super) fn names(&mut self) -> &mut Names {
        self.names.get_or_insert_default()
    }

    /// All provisional names are confirmed: the order of replies is unknown.
    pub(super) fn commit_names(&mut self) {
        if let Some(names) = &mut self.names {
            names.commit_all();
        }
    }

    /// The oldest provisional name is confirmed.
    pub(super) fn commit_name(&mut self) {
        if let Some(names) = &mut self.names {
            names.commit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_pg_wire::frontend as f;

    /// A client that sends Terminate must not wait for a server.
    #[test]
    fn an_idle_client_needs_a_server_only_for_requests() {
        let client = ClientHalf::new(Values::new(), true);
        let mut input = Vec::new();
        f::copy_data(&mut input, b"late");
        f::copy_done(&mut input);
        f::flush(&mut input);
        let late = input.len();
        let next = |input: &[u8]| client.without_server(input).map(|u| (u.consumed, u.next));
        assert_eq!(next(&input), Ok((late, Idle::More)));
        f::terminate(&mut input);
        assert_eq!(next(&input), Ok((late, Idle::Terminate)));
        input.truncate(late);
        f::query(&mut input, b"SELECT 1");
        assert_eq!(next(&input), Ok((late, Idle::NeedsServer)));
        assert_eq!(next(b"Q\0\0"), Ok((0, Idle::More)));
        assert!(client.without_server(b"Q\0\0\0\0").is_err());
    }
}
