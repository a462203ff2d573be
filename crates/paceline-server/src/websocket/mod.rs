//! The WebSocket protocol (RFC 6455) without I/O and without a clock: bytes in, messages out.
//!
//! ```text
//!   request head ---> Opening::accept ---> the head of the answer, or a status that refuses
//!   client frames --> Frames -----------> Incoming: text, binary, ping, pong, close
//!   Outgoing -------> append -----------> server frames
//!   close frames ---> Closing -----------> what to send, and when to close the connection
//! ```
//!
//! A client that breaks the protocol gets a close frame with the code that [`CloseCode::of`] finds
//! for the error of the codec.

mod closing;
mod frames;
mod header;
mod opening;
mod outgoing;
#[cfg(test)]
mod tests;

pub use self::{
    closing::{Closing, Reply},
    frames::{Frames, Incoming},
    opening::{accept_key, Accepted, Opening, OriginPolicy, Refused},
    outgoing::{Close, Outgoing},
};

#[cfg(test)]
pub(crate) use self::opening::base64;
use crate::codec::Malformed;

/// Why a WebSocket closes (RFC 6455, 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server ends, or the user has left the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer has broken the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A message is of a kind that the receiver can't take.
    pub const UNSUPPORTED: Self = Self(1003);
    /// A message does not fit its kind: text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A message breaks a policy of the receiver.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message is too big for the receiver.
    pub const TOO_BIG: Self = Self(1009);
    /// The server has failed.
    pub const INTERNAL_ERROR: Self = Self(1011);

    /// The code with this number, if a close frame may carry it: 1000 to 1003, 1007 to 1014, and
    /// 3000 to 4999, which applications define.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        matches!(number, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(number))
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// The code that a client gets whose input broke the protocol like this.
    #[must_use]
    pub fn of(why: &Malformed) -> Self {
        match why {
            Malformed::TooLong { .. } => Self::TOO_BIG,
            Malformed::NotUtf8 => Self::INVALID_PAYLOAD,
            _ => Self::PROTOCOL_ERROR,
        }
    }
}
