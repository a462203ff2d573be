//! The settings that the relays of one pool share.

use std::sync::Arc;

use paceline_pg_wire::Header;

use super::{Statements, Tracked, Violation};

/// How long a client keeps a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Until the client leaves.
    Session,
    /// Until the end of each transaction.
    Transaction,
    /// Until the end of each statement: transaction blocks are refused.
    Statement,
}

/// The settings that the relays of one pool share.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// How long a client keeps a server connection.
    pub mode: Mode,
    /// How many statements a server connection keeps; zero: names of statements pass unchanged,
    /// as they do in session mode.
    pub max_prepared_statements: usize,
    /// The longest message that is kept whole: the Parse of a named statement. Others pass in
    /// pieces.
    pub longest_statement: usize,
    /// The longest message that passes, with its header. The sides of a longer one are closed.
    pub longest_message: usize,
    /// Whether simple queries are refused (`disable_pqexec`).
    pub refuses_queries: bool,
    /// Whether a commit that did not wait for its standby is reported as unknown (08007).
    pub strict_commit: bool,
    /// The statements of the pool's clients.
    pub statements: Arc<Statements>,
    /// The parameters that follow a client.
    pub tracked: Arc<Tracked>,
}

impl RelaySettings {
    /// Settings with the usual limits: 200 statements for each server connection, of at most
    /// 16 MiB each.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            max_prepared_statements: 200,
            longest_statement: 16 << 20,
            longest_message: usize::MAX,
            refuses_queries: false,
            strict_commit: false,
            statements: Arc::default(),
            tracked: Arc::default(),
        }
    }

    /// Whether each server connection has names of its own for statements.
    #[must_use]
    pub fn renames(&self) -> bool {
        self.max_prepared_statements > 0 && self.mode != Mode::Session
    }

    /// Why a client may not send the message with this header.
    #[must_use]
    pub fn violation(&self, header: Header) -> Option<Violation> {
        if header.message() > self.longest_message {
            Some(Violation::LongMessage)
        } else if header.tag == b'Q' && self.refuses_queries {
            Some(Violation::SimpleQuery)
        } else {
            None
        }
    }
}
