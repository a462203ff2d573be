//! How bytes become items: the codecs.
//!
//! ```text
//!   bytes of the peer   "GET a\nGET b\nGE"
//!                        |----||----|
//!   items                 GET a  GET b     "GE" waits for more
//! ```
//!
//! A codec does no I/O and reads no clock. It gets all bytes that belong to no item yet, and says
//! where the first item ends. The server calls it again with the same bytes and more behind them,
//! so a codec may remember how far it has searched, and looks at no byte more than twice.

use std::{error, fmt, io};

mod dot;
mod exact;
mod framing;
mod line;
mod message;
mod prefixed;
mod raw;
mod until;
mod varint;

pub use framing::{
    dot, dot_chunks, exact, line, lines, prefixed, prefixed_le, raw, until, varint, Framing,
};
pub use message::{Lines, Message};
pub use prefixed::Prefix;

/// How bytes become items.
///
/// The codecs of this crate are made by [`raw()`], [`line()`], [`lines`], [`until()`], [`dot()`],
/// [`dot_chunks`], [`prefixed()`], [`prefixed_le`], [`varint()`] and [`exact()`]; all of them are of
/// the type [`Framing`]. Implement this trait for a protocol of your own.
pub trait Codec: Send + 'static {
    /// What a session gets: it may borrow from the input.
    type Item<'b>;

    /// Searches for the first item in `input`, which begins behind the last item.
    ///
    /// After [`Decoded::Incomplete`] the next call gets the same bytes from the same start, and
    /// more behind them. After [`Decoded::Item`] it gets what follows the `consumed` bytes. An item
    /// consumes at least one byte, unless `ended` is true and it is the last one.
    ///
    /// `ended` is true when the peer will send nothing more. `input` may be empty then: that is the
    /// end between two items, and `Incomplete` says that it is a proper one.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes can't be an item or its beginning. The codec is not called again.
    fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Self::Item<'b>>, Malformed>;

    /// Whether the last item was a part of a message whose end has not come yet: the time and the
    /// least rate of an item count on, and a server that drains waits for the end.
    fn is_within_message(&self) -> bool {
        false
    }

    /// Whether the rest of the message that has begun is a stream: its length says nothing about the
    /// time that it may take, so from here on only the least rate counts, and from now on.
    fn is_streaming(&self) -> bool {
        false
    }

    /// Appends `payload` to `output` in the form in which this codec reads it as one item.
    ///
    /// A codec without empty items appends nothing for an empty payload. A codec that delivers a
    /// message in several items takes the whole message here.
    ///
    /// # Errors
    /// [`Malformed`] if no item can have this payload: `output` is as it was.
    fn encode(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        output.extend_from_slice(payload);
        Ok(())
    }
}

/// What a codec has found.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<I> {
    /// The first item, and how many bytes of the input it takes, with everything that frames it.
    Item {
        /// The item.
        item: I,
        /// How many bytes it takes.
        consumed: usize,
    },
    /// No whole item yet.
    Incomplete,
}

/// Why bytes can't be an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The item has more bytes than the codec allows.
    TooLong {
        /// How many it allows.
        limit: usize,
    },
    /// The peer has ended its output within an item.
    Truncated,
    /// A text is not UTF-8.
    NotUtf8,
    /// The bytes break a rule of the protocol, which the text names.
    Invalid(&'static str),
    /// Likewise, in a protocol that has a number for it, such as a status of HTTP.
    Refused {
        /// The number.
        code: u16,
        /// The rule.
        why: &'static str,
    },
}

impl Malformed {
    /// Whether a limit of size is met: those are counted.
    pub(crate) fn is_too_long(self) -> bool {
        // Of the statuses of HTTP: content, target and fields that are too large.
        let large = |code| matches!(code, 413 | 414 | 431);
        match self {
            Self::TooLong { .. } => true,
            Self::Refused { code, .. } => large(code),
            _ => false,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { limit } => write!(f, "item is longer than {limit} bytes"),
            Self::Truncated => f.write_str("input ended within an item"),
            Self::NotUtf8 => f.write_str("text is not UTF-8"),
            Self::Invalid(why) => write!(f, "invalid item: {why}"),
            Self::Refused { code, why } => write!(f, "refused with {code}: {why}"),
        }
    }
}

impl error::Error for Malformed {}

/// Lets a session use `?`: the kind is `UnexpectedEof` for [`Malformed::Truncated`] and
/// `InvalidData` for all else.
impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> io::Error {
        let kind = match malformed {
            Malformed::Truncated => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, malformed)
    }
}

/// The answer to input without a whole item: at the end of the input, a rest is a truncated item.
fn unfinished<I>(rest: &[u8], ended: bool) -> Result<Decoded<I>, Malformed> {
    if ended && !rest.is_empty() {
        Err(Malformed::Truncated)
    } else {
        Ok(Decoded::Incomplete)
    }
}

/// Refuses a length beyond the limit.
fn check_length(length: usize, limit: usize) -> Result<(), Malformed> {
    if length > limit {
        Err(Malformed::TooLong { limit })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session returns `io::Result`, and its caller has to tell a lost connection from bad input.
    #[test]
    fn an_io_error_keeps_the_kind_and_the_text() {
        let truncated = io::Error::from(Malformed::Truncated);
        assert_eq!(truncated.kind(), io::ErrorKind::UnexpectedEof);
        let long = io::Error::from(Malformed::TooLong { limit: 4 });
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
        assert_eq!(long.to_string(), "item is longer than 4 bytes");
    }
}
