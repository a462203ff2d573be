//! Why a relay ends: the client broke the protocol, or the server did.

use paceline_pg_wire::{Malformed, NewReport, Severity};
use std::{error, fmt};

use super::Loss;

/// The client broke the protocol: both its connection and the server's are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A message is malformed, or too long to be kept.
    Malformed(Malformed),
    /// A message of a type that a client does not send here.
    Type(u8),
    /// A message is longer than `max_packet_size`.
    LongMessage,
    /// A simple query, which `disable_pqexec` refuses.
    SimpleQuery,
    /// The Parse of a named statement is longer than the limit.
    LongStatement,
    /// The client has more prepared statements than it may.
    ManyStatements,
    /// The names in a message are longer than the limit.
    LongNames,
}

/// The server connection is unusable, and its client can't continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// A message is malformed, or too long to be kept.
    Malformed(Malformed),
    /// The model of the server does not expect a message of this type.
    Unexpected(u8),
    /// A message is longer than `max_packet_size`.
    LongMessage,
    /// The server refused a parameter that the client wants.
    Parameter,
    /// A transaction block was opened in statement mode.
    Block,
}

impl Violation {
    /// What the client gets before its connection is closed.
    #[must_use]
    pub fn report(&self) -> NewReport {
        let code = match self {
            Self::LongMessage | Self::LongStatement | Self::LongNames | Self::ManyStatements => {
                "54000"
            }
            Self::Malformed(_) | Self::Type(_) | Self::SimpleQuery => "08P01",
        };
        NewReport::new(Severity::Fatal, code, self.to_string())
    }
}

impl Broken {
    /// What the client gets before its connection is closed. `loss` is that of the server:
    /// [`ServerHalf::loss`](super::ServerHalf::loss).
    #[must_use]
    pub fn report(&self, loss: Loss) -> NewReport {
        if loss == Loss::Unknown {
            let text = format!("{self}: it is unknown whether the transaction was committed");
            return NewReport::new(Severity::Fatal, "08007", text);
        }
        let code = match self {
            Self::Malformed(_) | Self::Unexpected(_) => "08006",
            Self::LongMessage => "54000",
            Self::Parameter => "22023",
            Self::Block => "08P01",
        };
        NewReport::new(Severity::Fatal, code, self.to_string())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => why.fmt(f),
            Self::Type(tag) => write!(f, "unexpected message type 0x{tag:02X} of the client"),
            Self::LongMessage => f.write_str("a message is longer than max_packet_size"),
            Self::SimpleQuery => f.write_str("PQexec disallowed"),
            Self::LongStatement => f.write_str("a prepared statement is too long"),
            Self::ManyStatements => f.write_str("too many prepared statements"),
            Self::LongNames => f.write_str("the names in a message are too long"),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "the server sent an {why}"),
            Self::Unexpected(tag) => write!(f, "unexpected message type 0x{tag:02X} of the server"),
            Self::LongMessage => {
                f.write_str("a message of the server is longer than max_packet_size")
            }
            Self::Parameter => f.write_str("invalid server parameter"),
            Self::Block => f.write_str("transaction blocks not allowed in statement pooling mode"),
        }
    }
}

impl error::Error for Violation {}
impl error::Error for Broken {}

impl From<Malformed> for Violation {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl From<Malformed> for Broken {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}
