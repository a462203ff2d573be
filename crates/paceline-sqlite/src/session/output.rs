//! The replies of a session on their way to the client.

use super::Cx;
use crate::{failure::Failure, spool::Spool};

/// Unsent replies.
#[derive(Debug)]
pub(crate) struct Output {
    pub(super) spool: Spool,
    /// The session sends them when this commit is durable.
    pub(super) ticket: u64,
    /// Whether these are rows of a portal, which stay until they are fetched.
    pub(super) is_kept: bool,
}

impl Output {
    pub(super) fn new(spool: Spool) -> Self {
        Self {
            spool,
            ticket: 0,
            is_kept: false,
        }
    }

    /// The rows of a portal.
    pub(super) fn kept(spool: Spool) -> Self {
        Self {
            is_kept: true,
            ..Self::new(spool)
        }
    }
}

/// Sends as much as the client accepts now.
pub(super) fn send_some(spool: &mut Spool, cx: &mut Cx<'_>) -> Result<(), Failure> {
    while cx.unsent() == 0 {
        let piece = spool.piece()?;
        if piece.is_empty() {
            break;
        }
        cx.write_all(piece).map_err(|error| {
            Failure::fatal("08006", format!("could not send to the client: {error}"))
        })?;
        let count = piece.len();
        spool.advance(count);
    }
    Ok(())
}
