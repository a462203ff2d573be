//! The 64 bytes of a request, and what the client remembers of it until the reply is there.
//!
//! ```text
//!  byte   0      1 .. 5       5 .. 13     13 .. 64
//!       | task | connection | sequence | the same marks in every request |
//! ```
//!
//! The reply has to be the same 64 bytes, on the same connection, in the order of the requests. Connection and
//! sequence make every request of a run unlike the others, so that a reply that is wrong, doubled, or came to the
//! wrong connection is told from the right one.

use super::clock::Nanos;
use crate::service::{Task, REQUEST};

/// What fills the rest of a request.
const MARK: u8 = 0xA5;

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// When it was asked, or was meant to be.
    pub(super) start: Nanos,
    /// What it asked for.
    pub(super) task: Task,
}

impl Asked {
    /// What a place holds that was never used.
    pub(super) const NEVER: Asked = Asked {
        start: 0,
        task: Task::Nothing,
    };
}

/// The bytes of request number `sequence` of `connection`.
pub(super) fn bytes_of(task: Task, connection: usize, sequence: u64) -> [u8; REQUEST] {
    let mut bytes = [MARK; REQUEST];
    bytes[0] = task.byte();
    bytes[1..5].copy_from_slice(&(connection as u32).to_le_bytes());
    bytes[5..13].copy_from_slice(&sequence.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_requests_are_alike() {
        let mut seen = HashSet::new();
        for connection in [0, 1, 255, 256, 19_999] {
            for sequence in [0, 1, 256, 1 << 32] {
                for task in Task::ALL {
                    let bytes = bytes_of(task, connection, sequence);
                    assert_eq!(Task::of(&bytes), task);
                    assert!(seen.insert(bytes));
                }
            }
        }
    }
}
