//! HTTP/1.1 without I/O and without a clock: bytes in, requests or refusals out (RFC 9110, 9112).
//!
//! ```text
//!   bytes --> HeadScan      where the head ends; line ends, folds, limits
//!               |
//!             Head::parse   request line, target, fields       every doubt is a Refusal:
//!               |                                              a status, and the end of the
//!             framing       how long the body is               connection
//!               |
//!             Chunks        the chunked body
//! ```
//!
//! Two parties that disagree about where a request ends let an attacker hide a second request in
//! the first one. So nothing doubtful is repaired or passed over here.

mod authority;
mod bytes;
mod chunks;
mod codec;
mod framing;
mod head;
mod refusal;
mod response_head;
mod scan;
mod target;
#[cfg(test)]
mod tests;
mod trial;

pub(super) use self::{
    codec::{BodyStart, HttpCodec, Item},
    head::{Head, KeptHead, Version},
    refusal::Refusal,
    response_head::{BodyLength, Persistence, ResponseHead},
};
// A tool of tests, which are outside of this crate.
#[doc(hidden)]
pub use self::trial::{Trial, TrialRequest};

/// The limits of a head. Narrow numbers, because each connection has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadLimits {
    head: u16,
    target: u16,
    fields: u16,
}

impl HeadLimits {
    /// Bytes of the request line and all fields, with their ends, at most 65,535; bytes of the
    /// request-target; fields.
    pub(crate) fn new(head: usize, target: usize, fields: usize) -> Self {
        let narrow = |limit| u16::try_from(limit).unwrap_or(u16::MAX);
        Self {
            head: narrow(head),
            target: narrow(target),
            fields: narrow(fields),
        }
    }

    fn head(self) -> usize {
        usize::from(self.head)
    }

    fn target(self) -> usize {
        usize::from(self.target)
    }
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self::new(16 * 1024, 8 * 1024, 100)
    }
}
