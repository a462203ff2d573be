//! What a client takes along from server to server.

use std::sync::atomic::{AtomicU64, Ordering};

use paceline_pg_wire::Walk;

use super::{parameters::Values, prepared::Names, Loss};

/// The client's side of a relay. Small while it is idle.
#[derive(Debug)]
pub struct ClientHalf {
    /// Tells clients apart. Never used twice.
    pub(super) id: u64,
    /// Where the stream of the client's messages is.
    pub(super) walk: Walk,
    /// What becomes of the rest of a message that comes in pieces.
    pub(super) rest: Rest,
    /// Whether bytes of the client wait for replies.
    pub(super) is_waiting: bool,
    /// Everything up to the next Sync is dropped: the server was lost within a batch.
    pub(super) is_skipping: bool,
    /// The server was lost within a block: the next request gets an error.
    pub(super) lost: Option<Loss>,
    /// What the front-end has refused since the caller last asked, for the log.
    pub(super) refusal: Option<Box<str>>,
    /// The parameters that the client wants.
    parameters: Values,
    /// Whether a server has accepted all of these values.
    is_proven: bool,
    /// The names of its statements, once it has some.
    pub(super) names: Option<Box<Names>>,
}

/// What becomes of the rest of a message that comes in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It is sent on.
    Passes,
    /// It is dropped.
    Dropped,
}

impl ClientHalf {
    /// A client that wants these parameters: the values of the welcome, and in place of some the
    /// client's own. `is_proven` says that it has none of its own, or that a server has accepted
    /// them: then it need not wait until a server has them.
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
            names: None,
        }
    }

    /// The parameters that the client wants.
    #[must_use]
    pub fn parameters(&self) -> &Values {
        &self.parameters
    }

    /// Whether no message of the client was taken in part.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.walk.is_between_messages()
    }

    /// What the front-end itself has refused since the last call, for the log.
    pub fn take_refusal(&mut self) -> Option<Box<str>> {
        self.refusal.take()
    }

    /// How many prepared statements the client has.
    #[must_use]
    pub fn prepared_statements(&self) -> usize {
        self.names.as_ref().map_or(0, |names| names.len())
    }

    pub(super) fn parameters_mut(&mut self) -> &mut Values {
        &mut self.parameters
    }

    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// A server has these values for the client.
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
