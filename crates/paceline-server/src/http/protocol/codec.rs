//! The codec of requests: heads, and bodies in pieces; and what a connection speaks that is no HTTP
//! any more.

use super::{
    chunks::{Chunks, Part},
    framing::{self, Framing},
    head::Head,
    scan::{HeadScan, Scanned},
    HeadLimits,
};
use crate::{
    codec::{Codec, Decoded, Malformed},
    websocket::{Frames, Incoming},
};

/// A body of at most this length that has come with its head belongs to the same item.
const AT_ONCE: usize = 64 * 1024;

/// Finds requests in the bytes of a connection.
#[derive(Clone, Debug)]
pub(crate) struct HttpCodec {
    limits: HeadLimits,
    expected: Expected,
}

/// What the next bytes are.
#[derive(Clone, Debug)]
enum Expected {
    Head(HeadScan),
    /// So many bytes of a body, at least one.
    Length(u64),
    Chunks(Chunks),
    /// The connection has become a WebSocket.
    Frames(Box<Frames>),
    /// The connection only sends. What the client still says is dropped.
    Nothing,
}

/// What a session gets.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a request must not cost an allocation"
)]
pub(crate) enum Item<'b> {
    /// A head, and the body if it has come with it.
    Request { head: Head<'b>, body: BodyStart<'b> },
    /// A piece of the body, perhaps an empty one.
    Data { bytes: &'b [u8], is_last: bool },
    /// What a WebSocket has got.
    Frame(Incoming),
    /// Bytes that mean nothing here.
    Dropped,
}

/// How a body begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyStart<'b> {
    /// This is all of it.
    Whole(&'b [u8]),
    /// It comes in pieces. The length is known, unless it is chunked.
    Follows { length: Option<u64> },
}

impl HttpCodec {
    pub(crate) fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            expected: Expected::Head(HeadScan::default()),
        }
    }

    /// For a connection that has become a WebSocket.
    pub(crate) fn of_frames(frames: Frames) -> Self {
        Self::expecting(Expected::Frames(Box::new(frames)))
    }

    /// For a connection that only sends from here on.
    pub(crate) fn of_nothing() -> Self {
        Self::expecting(Expected::Nothing)
    }

    fn expecting(expected: Expected) -> Self {
        Self {
            limits: HeadLimits::default(),
            expected,
        }
    }

    fn decode_head<'b>(&mut self, input: &'b [u8]) -> Result<Decoded<Item<'b>>, Malformed> {
        let Expected::Head(scan) = &mut self.expected else {
            return Ok(Decoded::Incomplete);
        };
        let Scanned::Complete(range) = scan.scan(input, &self.limits)? else {
            return Ok(Decoded::Incomplete);
        };
        let end = range.end;
        let line = scan.request_line(input).unwrap_or_default();
        let head = Head::parse(&input[range], line, &self.limits)?;
        let rest = &input[end..];
        let (body, consumed) = match framing::of(&head)? {
            Framing::Empty => (BodyStart::Whole(b""), 0),
            Framing::Length(length) => self.begin_body(length, rest),
            Framing::Chunked => {
                self.expected = Expected::Chunks(Chunks::new());
                (BodyStart::Follows { length: None }, 0)
            }
        };
        if let (BodyStart::Whole(_), Expected::Head(scan)) = (body, &mut self.expected) {
            *scan = HeadScan::default();
        }
        Ok(Decoded::Item {
            item: Item::Request { head, body },
            consumed: end + consumed,
        })
    }

    /// A body of `length` bytes begins with `rest`: all of it, if it is there.
    fn begin_body<'b>(&mut self, length: u64, rest: &'b [u8]) -> (BodyStart<'b>, usize) {
        let whole = usize::try_from(length)
            .ok()
            .filter(|length| *length <= AT_ONCE)
            .and_then(|length| rest.get(..length));
        match whole {
            Some(body) => (BodyStart::Whole(body), body.len()),
            None => {
                self.expected = Expected::Length(length);
                let length = Some(length);
                (BodyStart::Follows { length }, 0)
            }
        }
    }

    /// Some of the `left` bytes of a body.
    fn decode_length<'b>(&mut self, left: u64, input: &'b [u8]) -> Decoded<Item<'b>> {
        if input.is_empty() {
            return Decoded::Incomplete;
        }
        let count = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
        let left = left - count as u64;
        self.expected = if left == 0 {
            Expected::Head(HeadScan::default())
        } else {
            Expected::Length(left)
        };
        Decoded::Item {
            item: Item::Data {
                bytes: &input[..count],
                is_last: left == 0,
            },
            consumed: count,
        }
    }

    fn decode_chunks<'b>(&mut self, input: &'b [u8]) -> Result<Decoded<Item<'b>>, Malformed> {
        let Expected::Chunks(chunks) = &mut self.expected else {
            return Ok(Decoded::Incomplete);
        };
        let Some((part, consumed)) = chunks.decode(input)? else {
            return Ok(Decoded::Incomplete);
        };
        let (bytes, is_last) = match part {
            Part::Data(bytes) => (bytes, false),
            Part::End => (&b""[..], true),
        };
        if is_last {
            self.expected = Expected::Head(HeadScan::default());
        }
        let item = Item::Data { bytes, is_last };
        Ok(Decoded::Item { item, consumed })
    }

    fn decode_frame<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Item<'b>>, Malformed> {
        let Expected::Frames(frames) = &mut self.expected else {
            return Ok(Decoded::Incomplete);
        };
        Ok(match frames.decode(input, ended)? {
            Decoded::Item { item, consumed } => Decoded::Item {
                item: Item::Frame(item),
                consumed,
            },
            Decoded::Incomplete => Decoded::Incomplete,
        })
    }

    /// How many bytes of an unfinished head were looked at.
    #[cfg(test)]
    pub(super) fn scanned(&self) -> usize {
        match &self.expected {
            Expected::Head(scan) => scan.scanned(),
            _ => 0,
        }
    }
}

impl Codec for HttpCodec {
    type Item<'b> = Item<'b>;

    fn decode<'b>(&mut self, input: &'b [u8], ended: bool) -> Result<Decoded<Item<'b>>, Malformed> {
        let decoded = match &self.expected {
            Expected::Head(_) => self.decode_head(input)?,
            Expected::Length(left) => {
                let left = *left;
                self.decode_length(left, input)
            }
            Expected::Chunks(_) => self.decode_chunks(input)?,
            Expected::Frames(_) => return self.decode_frame(input, ended),
            Expected::Nothing if input.is_empty() => Decoded::Incomplete,
            Expected::Nothing => Decoded::Item {
                item: Item::Dropped,
                consumed: input.len(),
            },
        };
        let is_cut = ended && (!input.is_empty() || self.is_within_message());
        match decoded {
            Decoded::Incomplete if is_cut => Err(Malformed::Truncated),
            decoded => Ok(decoded),
        }
    }

    fn is_within_message(&self) -> bool {
        match &self.expected {
            Expected::Head(_) | Expected::Nothing => false,
            Expected::Length(_) | Expected::Chunks(_) => true,
            Expected::Frames(frames) => frames.is_within_message(),
        }
    }

    /// A head has a time; a body or a message may be long, and only has to move on.
    fn is_streaming(&self) -> bool {
        self.is_within_message()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of ten thousand idle connections has a codec.
    #[test]
    fn a_codec_is_small() {
        assert!(size_of::<HttpCodec>() <= 32, "{}", size_of::<HttpCodec>());
    }
}
