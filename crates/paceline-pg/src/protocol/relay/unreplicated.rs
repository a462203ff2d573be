//! `strict_commit`: a commit that did not wait for its standby is reported as unknown.
//!
//! If the wait of a commit for its synchronous standby is cancelled, PostgreSQL answers with
//! success and a warning: the transaction is committed here, and may be lost with this host. The
//! warning, which the routine in it identifies, becomes the error 08007, and the other replies of
//! the batch are swallowed: a client expects nothing but `Z` after an error.

use paceline_pg_wire::{backend, Message, NewReport, Severity};

use super::{
    super::{output::Stream, server::model::Fate, Broken},
    field, Relay,
};

/// The function of PostgreSQL that waits for the standby.
const ROUTINE: &[u8] = b"SyncRepWaitForLSN";

/// The longest notice that is kept whole, to be read.
pub(super) const LONGEST_NOTICE: usize = 4096;

const TEXT: &str = "the transaction is committed on its server, and may not be on its standby";

impl Relay<'_> {
    /// Whether a notice says that a commit did not wait for its standby.
    pub(super) fn is_unreplicated(&self, message: Message<'_>) -> bool {
        self.settings.strict_commit && field(message.body, b'R') == Some(ROUTINE)
    }

    /// Takes that notice.
    pub(super) fn take_unreplicated(&mut self, length: usize, stream: &mut Stream<'_, '_>) {
        stream.skip(length);
        if !self.server.is_unreplicated {
            let report = NewReport::new(Severity::Error, "08007", TEXT);
            backend::error(stream.insert(), &report);
        }
        self.server.is_unreplicated = true;
    }

    /// What becomes of a further reply of that batch.
    pub(super) fn fate_after_unreplicated(&self, tag: u8, fate: Fate) -> Result<Fate, Broken> {
        if !self.server.is_unreplicated {
            return Ok(fate);
        }
        match tag {
            b'N' | b'A' => Ok(fate),
            // The server waits for data that the client does not send after an error.
            b'G' | b'W' => Err(Broken::Unexpected(tag)),
            _ => Ok(Fate::Swallow),
        }
    }
}
