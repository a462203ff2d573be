//! The 64 bytes of a request, and what the client remembers of it until the reply is there.
//!
//! ```text
//!  byte   0      1 .. 5       5 .. 13     13 .. 64
//!       | task | connection | sequence | the same marks in every request |
//! ```
//!
//! As a line (`Form::Lines`) it is text of the same length:
//!
//! ```text
//!  byte   0      1 .. 9          9 .. 25         25 .. 62   62, 63
//!       | task | connection    | sequence      | marks    | CR LF |
//!       | 0..3 | 8 hex digits  | 16 hex digits |
//! ```
//!
//! The reply has to be the same 64 bytes, on the same connection, in the order of the requests. Connection and
//! sequence make every request of a run unlike the others, so that a reply that is wrong, doubled, or came to the
//! wrong connection is distinguished from the right one.

use std::iter;

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

/// How requests and replies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Form {
    /// 64 bytes each.
    #[default]
    Frames,
    /// Lines. A reply may end with LF alone, as the lines of some servers do.
    Lines,
}

/// The length of a line without its end.
const TEXT: usize = REQUEST - 2;

impl Form {
    /// The bytes of request number `sequence` of `connection`.
    pub(super) fn bytes_of(self, task: Task, connection: usize, sequence: u64) -> [u8; REQUEST] {
        match self {
            Form::Frames => bytes_of(task, connection, sequence),
            Form::Lines => line_of(task, connection, sequence),
        }
    }

    /// The whole replies at the front of `bytes`, one after the other.
    pub(super) fn replies(self, mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        iter::from_fn(move || {
            let (reply, rest) = bytes.split_at(self.reply_length(bytes)?);
            bytes = rest;
            Some(reply)
        })
    }

    /// The length of the first reply, if it is whole. Every right reply has the same length but for a CR, so that it
    /// is not searched for; a wrong one makes those behind it wrong too.
    fn reply_length(self, bytes: &[u8]) -> Option<usize> {
        match (self, bytes.get(TEXT)) {
            (Form::Lines, Some(b'\n')) => Some(TEXT + 1),
            _ => (bytes.len() >= REQUEST).then_some(REQUEST),
        }
    }

    /// Whether this is the reply to that request.
    pub(super) fn is_reply(self, reply: &[u8], request: &[u8; REQUEST]) -> bool {
        match (self, reply.len()) {
            (Form::Lines, length) if length == TEXT + 1 => {
                reply[..TEXT] == request[..TEXT] && reply[TEXT] == b'\n'
            }
            _ => reply == request,
        }
    }
}

/// A request as a line.
fn line_of(task: Task, connection: usize, sequence: u64) -> [u8; REQUEST] {
    let mut bytes = [b'-'; REQUEST];
    bytes[0] = b'0' + task.byte();
    write_hex(&mut bytes[1..9], connection as u64);
    write_hex(&mut bytes[9..25], sequence);
    bytes[TEXT..].copy_from_slice(b"\r\n");
    bytes
}

/// Fills `digits` with the last hexadecimal digits of a number.
fn write_hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
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
    fn no_two_lines_are_alike() {
        let mut seen = HashSet::new();
        for connection in [0, 1, 255, 256, 19_999] {
            for sequence in [0, 1, 256, 1 << 32] {
                for task in Task::ALL {
                    let bytes = Form::Lines.bytes_of(task, connection, sequence);
                    assert_eq!(Task::of_line(&bytes), task);
                    assert!(bytes.is_ascii() && bytes.ends_with(b"\r\n"));
                    assert_eq!(bytes.iter().position(|&byte| byte == b'\n'), Some(63));
                    assert!(seen.insert(bytes));
                }
            }
        }
    }

    /// Servers end their lines in one of two ways, and their replies come in any pieces.
    #[test]
    fn a_line_is_right_with_either_end_and_wrong_otherwise() {
        let request = Form::Lines.bytes_of(Task::Nothing, 7, 11);
        let short = [&request[..TEXT], b"\n"].concat();
        for reply in [&request[..], &short] {
            let twice = [reply, reply, &reply[..9]].concat();
            let replies: Vec<_> = Form::Lines.replies(&twice).collect();
            assert_eq!(replies, [reply, reply]);
            assert!(Form::Lines.is_reply(reply, &request));
            for place in 0..reply.len() {
                let mut wrong = reply.to_vec();
                wrong[place] ^= 1;
                assert!(!Form::Lines.is_reply(&wrong, &request), "{place}");
            }
        }
        assert!(!Form::Frames.is_reply(&short, &request));
    }

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
