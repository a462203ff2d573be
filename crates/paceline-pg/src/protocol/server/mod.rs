//! One server connection: the model of what the server does, its statements and parameters.

pub(crate) mod model;
mod own;
mod tally;

use paceline_pg_wire::{Header, TransactionStatus, Walk};

pub use own::{Alone, OwnOutcome, Purpose};

use self::model::{Fate, Model};
use super::{keyword::Class, parameters::Values, prepared::OnServer, Tracked};

/// The server's side of a relay.
#[derive(Debug)]
pub struct ServerHalf {
    pub(super) model: Model,
    /// Where the stream of the server's messages is.
    pub(super) walk: Walk,
    /// The message that arrives in pieces.
    pub(super) partial: Option<Partial>,
    /// The parameters as the server has reported them.
    pub(super) parameters: Values,
    pub(super) statements: OnServer,
    pub(super) unnamed: Unnamed,
    /// The worst class of the statements bound since the last `Z`.
    pub(super) bound: Option<Class>,
    pub(super) own: own::Own,
    /// The server's last message, if it announced its end.
    pub(super) farewell: Option<Box<[u8]>>,
    /// Whether the client has got an error for a commit that did not wait for its standby: the
    /// other replies up to `Z` are swallowed.
    pub(super) is_unreplicated: bool,
    /// What the client wanted before its transaction, if that has changed a parameter.
    pub(super) before: Option<Values>,
    /// Whether the server has said that it takes no writes: its role may have changed.
    pub(super) is_doubtful: bool,
    /// The loss when the server was found to be broken.
    pub(super) broken: Option<Loss>,
    /// Whether batches of several clients may be outstanding.
    pub(super) is_shared: bool,
    /// Whether it has parameters of a client that are not tracked: only a reset removes them.
    pub(super) is_altered: bool,
    /// Whether a Flush was sent because of too many outstanding messages.
    pub(super) is_flushed: bool,
}

/// The statement without a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unnamed {
    /// The client that has parsed it: no other may use it.
    pub(super) client: u64,
    /// Its class.
    pub(super) class: Class,
}

/// A message of the server that arrives in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial {
    pub(super) tag: u8,
    pub(super) fate: Fate,
    /// The class of an error.
    pub(super) error: ErrorClass,
}

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// A time-out or a conflict: it may have come between two messages.
    Interrupt,
    /// The results of a prepared statement have changed.
    PlanChanged,
    /// The server does not have the statement.
    NoStatement,
    /// It takes no writes.
    ReadOnly,
    /// Nothing more.
    Other,
}

impl ErrorClass {
    /// By the SQLSTATE.
    pub(super) fn of(code: &[u8]) -> Self {
        match code {
            b"57014" | b"40001" | b"40P01" => Self::Interrupt,
            b"0A000" => Self::PlanChanged,
            b"26000" => Self::NoStatement,
            b"25006" => Self::ReadOnly,
            _ => Self::Other,
        }
    }
}

/// Whether a server connection may serve another client.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It is at a proven boundary.
    Allowed,
    /// It is not, or the mode keeps it with its client.
    Held,
    /// It stays with its client until that leaves, and is closed then.
    Pinned,
}

impl Release {
    /// Not free for another client, for the time being.
    pub(super) fn held(self) -> Self {
        match self {
            Self::Allowed => Self::Held,
            other => other,
        }
    }
}

/// The fate of the work in flight at the loss of a server connection. Ordered: the worst last.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Nothing was sent since the last `Z`, and no transaction was open: another server may serve
    /// the client.
    Nothing,
    /// The transaction is rolled back (08006).
    RolledBack,
    /// The outcome is unknown (08007).
    Unknown,
}

impl ServerHalf {
    /// A server connection after its login, with the parameters that it has reported.
    #[must_use]
    pub fn new(parameters: Values) -> Self {
        Self {
            model: Model::new(),
            walk: Walk::new(LONGEST_REPLY),
            partial: None,
            parameters,
            statements: OnServer::default(),
            unnamed: Unnamed {
                client: 0,
                class: Class::MayCommit,
            },
            bound: None,
            own: own::Own::default(),
            farewell: None,
            is_unreplicated: false,
            before: None,
            is_doubtful: false,
            broken: None,
            is_shared: false,
            is_altered: false,
            is_flushed: false,
        }
    }

    /// Whether the server may serve another client, as far as the server is concerned: the mode
    /// and the client's side are not considered.
    pub fn may_release(&self) -> Release {
        if self.model.is_pinned() || self.farewell.is_some() {
            Release::Pinned
        } else if self.model.is_at_boundary() && self.walk.is_between_messages() {
            Release::Allowed
        } else {
            Release::Held
        }
    }

    /// Several clients share the server from now on, or no more. It is at a boundary.
    pub fn set_shared(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// The replies to the oldest batch: how many bytes there are up to the end of its `Z`, or all
    /// bytes if that has not come.
    #[must_use]
    pub fn up_to_ready(&self, input: &[u8]) -> usize {
        let mut at = self.walk.rest().min(input.len());
        while let Ok(Some(header)) = Header::first(&input[at..]) {
            at = input.len().min(at + header.message());
            if header.tag == b'Z' {
                return at;
            }
        }
        input.len()
    }

    /// Whether the server has parameters of a client that no other client may find.
    #[must_use]
    pub fn is_altered(&self) -> bool {
        self.is_altered
    }

    /// The transaction status in the server's last `Z`.
    #[must_use]
    pub fn status(&self) -> TransactionStatus {
        self.model.status()
    }

    /// Whether replies are due.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.model.is_settled()
    }

    /// Whether a query of the front-end runs: cancels are ignored meanwhile.
    #[must_use]
    pub fn is_own_query_running(&self) -> bool {
        self.own.is_running()
    }

    /// The loss if the connection ended now. For a broken server: the loss then.
    pub fn loss(&self) -> Loss {
        match self.broken {
            Some(loss) => loss,
            None if self.model.is_pinned() => Loss::Unknown,
            None => self.model.loss(),
        }
    }

    /// The server's last message, unchanged, if it announced its end (`FATAL`). No client has got
    /// it yet.
    #[must_use]
    pub fn farewell(&self) -> Option<&[u8]> {
        self.farewell.as_deref()
    }

    /// The parameters as the server has reported them.
    #[must_use]
    pub fn parameters(&self) -> &Values {
        &self.parameters
    }

    /// How many prepared statements the front-end has on the server.
    #[must_use]
    pub fn prepared_statements(&self) -> usize {
        self.statements.len()
    }

    /// Whether the server has said since the last call that it takes no writes (25006).
    #[must_use]
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_doubtful)
    }

    /// Takes over a parameter. Its place, if it is tracked.
    pub(super) fn report(&mut self, tracked: &Tracked, name: &[u8], value: &[u8]) -> Option<usize> {
        let place = tracked.place(name)?;
        self.parameters.set(place, value);
        Some(place)
    }
}

/// The longest message of a server that is kept whole: a tag, a parameter.
const LONGEST_REPLY: usize = 1 << 20;
