//! The type of all built-in codecs, and the functions that make them.

use super::dot::{Dot, DotChunks};
use super::exact::Exact;
use super::line::{Line, ManyLines};
use super::prefixed::{Order, Prefix, Prefixed};
use super::until::Until;
use super::varint::Varint;
use super::{raw as unframed, Codec, Decoded, Malformed, Message};

/// A built-in codec: made by [`raw()`], [`line()`], [`lines`], [`until()`], [`dot()`],
/// [`dot_chunks`], [`prefixed()`], [`prefixed_le`], [`varint()`] or [`exact()`].
///
/// All of them are one type, so a session can switch from one to another. None of them allocates
/// to decode, except to remove the dots that a sender has added.
///
/// A codec with a limit refuses an item at the first byte that makes it too long. While an item is
/// incomplete, its input is at most this long:
///
/// | codec | bytes |
/// |---|---|
/// | `raw` | 0 |
/// | `line`, `lines` | limit + 1 |
/// | `until` | limit + length of the delimiter - 1 |
/// | `dot`, `dot_chunks` | limit + 2 |
/// | `prefixed` | limit + width of the prefix - 1 |
/// | `varint` | limit + 9 |
/// | `exact` | length - 1 |
#[derive(Clone, Debug)]
pub struct Framing(Kind);

/// The kinds of framing.
#[derive(Clone, Debug)]
enum Kind {
    /// None.
    Raw,
    /// One line.
    Line(Line),
    /// All whole lines.
    Lines(ManyLines),
    /// Up to a delimiter.
    Until(Until),
    /// A message up to a line of one dot.
    Dot(Dot),
    /// The same in chunks.
    DotChunks(DotChunks),
    /// Behind a length of fixed width.
    Prefixed(Prefixed),
    /// Behind a varint.
    Varint(Varint),
    /// Of a known length.
    Exact(Exact),
}

/// Everything that has arrived is one item.
///
/// ```
/// use paceline_server::codec::{raw, Codec, Decoded};
///
/// let Decoded::Item { item, consumed } = raw().decode(b"any\0bytes", false)? else {
///     unreachable!("some bytes have arrived");
/// };
/// assert!(item == b"any\0bytes" && consumed == 9);
/// # Ok::<(), paceline_server::codec::Malformed>(())
/// ```
pub fn raw() -> Framing {
    Framing(Kind::Raw)
}

/// Each line is an item.
///
/// A line ends with LF; a CR before that LF belongs to the end. A CR elsewhere belongs to the line.
/// `limit` counts the bytes before the end.
///
/// `encode` appends CRLF. It refuses a payload with CR or LF.
///
/// ```
/// use paceline_server::codec::{line, Codec, Decoded, Malformed};
///
/// let mut codec = line(8);
/// let Decoded::Item { item, consumed } = codec.decode(b"HELO me\r\nMAIL", false)? else {
///     unreachable!("the first line is whole");
/// };
/// assert!(item == "HELO me" && consumed == 9);
/// assert_eq!(codec.decode(b"MAIL", false)?, Decoded::Incomplete);
/// assert_eq!(codec.decode(b"MAIL FROM", false), Err(Malformed::TooLong { limit: 8 }));
///
/// let mut output = Vec::new();
/// line(8).encode(b"250 OK", &mut output)?;
/// assert_eq!(output, b"250 OK\r\n");
/// # Ok::<(), Malformed>(())
/// ```
pub fn line(limit: usize) -> Framing {
    Framing(Kind::Line(Line::new(limit)))
}

/// All whole lines that have arrived are one item, with their ends.
///
/// [`Message::lines`] gives them without their ends. Lines end as with [`line()`], and `limit`
/// counts the bytes of each line before its end. Lines before one that is too long are an item;
/// the next call reports the error.
///
/// `encode` takes lines with their ends and appends them as they are.
///
/// ```
/// use paceline_server::codec::{lines, Codec, Decoded};
///
/// let Decoded::Item { item, consumed } = lines(80).decode(b"set a\r\nset b\r\nse", false)? else {
///     unreachable!("two lines are whole");
/// };
/// assert_eq!(item.lines().collect::<Vec<_>>(), [b"set a", b"set b"]);
/// assert_eq!(consumed, 14);
/// # Ok::<(), paceline_server::codec::Malformed>(())
/// ```
pub fn lines(limit: usize) -> Framing {
    Framing(Kind::Lines(ManyLines::new(limit)))
}

/// Each item ends with `delimiter`, which is not part of it.
///
/// `limit` counts the bytes before the delimiter. `encode` refuses a payload that would end early
/// because it contains the delimiter, or because its end and the delimiter together do.
///
/// ```
/// use paceline_server::codec::{until, Codec, Decoded};
///
/// let mut codec = until(b"\r\n\r\n", 16384);
/// let input = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nbody";
/// let Decoded::Item { item, consumed } = codec.decode(input, false)? else {
///     unreachable!("the head is whole");
/// };
/// assert!(item == "GET / HTTP/1.1\r\nhost: a");
/// assert_eq!(&input[consumed..], b"body");
/// # Ok::<(), paceline_server::codec::Malformed>(())
/// ```
///
/// # Panics
/// If the delimiter is empty.
pub fn until(delimiter: &'static [u8], limit: usize) -> Framing {
    Framing(Kind::Until(Until::new(delimiter, limit)))
}

/// Each item is a message that ends with a line of a single dot, as in SMTP.
///
/// The item is the message with the CRLF of its last line, without the terminator `.\r\n`, and
/// without the dots that the sender has added to lines that begin with one. It borrows from the
/// input if there are none. `limit` counts the message as it arrives, with added dots and without
/// the terminator.
///
/// Only CRLF ends a line. A CR or LF alone is an error, so a peer can't smuggle a terminator
/// through a server that is less strict. `encode` is as strict: each line of the payload must end
/// with CRLF.
///
/// ```
/// use paceline_server::codec::{dot, Codec, Decoded};
///
/// let mut codec = dot(1 << 20);
/// let Decoded::Item { item, consumed } = codec.decode(b"Hi\r\n..x\r\n.\r\nQUIT", false)? else {
///     unreachable!("the message is whole");
/// };
/// assert!(item == "Hi\r\n.x\r\n" && consumed == 12);
/// assert!(codec.decode(b"Hi\n.\r\n", false).is_err());
///
/// let mut output = Vec::new();
/// dot(1 << 20).encode(b".x\r\n", &mut output)?;
/// assert_eq!(output, b"..x\r\n.\r\n");
/// # Ok::<(), paceline_server::codec::Malformed>(())
/// ```
pub fn dot(limit: usize) -> Framing {
    Framing(Kind::Dot(Dot::new(limit)))
}

/// Like [`dot()`], but the whole lines that have arrived are an item: a chunk of the message.
///
/// The last chunk of a message, which may be empty, is the one whose [`Message::is_last`] is true.
/// A message may have any length. `limit` counts the bytes of each line, without its CRLF and
/// without an added dot. Chunks before a bad line are items; the next call reports the error.
///
/// `encode` takes a whole message.
///
/// ```
/// use paceline_server::codec::{dot_chunks, Codec, Decoded};
///
/// let mut codec = dot_chunks(998);
/// let mut mail = Vec::new();
/// for input in [b"Hi\r\nyou".as_slice(), b"you\r\n.\r\n"] {
///     let Decoded::Item { item, .. } = codec.decode(input, false)? else {
///         unreachable!("a line is whole");
///     };
///     mail.extend_from_slice(&item);
///     assert_eq!(item.is_last(), input.ends_with(b".\r\n"));
/// }
/// assert_eq!(mail, b"Hi\r\nyou\r\n");
/// # Ok::<(), paceline_server::codec::Malformed>(())
/// ```
pub fn dot_chunks(limit: usize) -> Framing {
    Framing(Kind::DotChunks(DotChunks::new(limit)))
}

/// Each item follows its length, an integer of the type `T` in network order.
///
/// `limit` counts the payload; it is at most the largest `T`. A length beyond it is an error as
/// soon as the prefix has arrived.
///
/// ```
/// use paceline_server::codec::{prefixed, Codec, Decoded, Malformed};
///
/// let mut codec = prefixed::<u32>(1 << 20);
/// let Decoded::Item { item, consumed } = codec.decode(b"\0\0\0\x02hi\0\0", false)? else {
///     unreachable!("the first item is whole");
/// };
/// assert!(item == "hi" && consumed == 6);
///
/// let huge = codec.decode(b"\xff\xff\xff\xff", false);
/// assert_eq!(huge, Err(Malformed::TooLong { limit: 1 << 20 }));
/// # Ok::<(), Malformed>(())
/// ```
pub fn prefixed<T: Prefix>(limit: usize) -> Framing {
    Framing(Kind::Prefixed(Prefixed::new::<T>(Order::Big, limit)))
}

/// Like [`prefixed()`], with the least significant byte of the length first.
///
/// ```
/// use paceline_server::codec::{prefixed_le, Codec};
///
/// let mut output = Vec::new();
/// prefixed_le::<u16>(1024).encode(b"hi", &mut output)?;
/// assert_eq!(output, b"\x02\0hi");
/// # Ok::<(), paceline_server::codec::Malformed>(())
/// ```
pub fn prefixed_le<T: Prefix>(limit: usize) -> Framing {
    Framing(Kind::Prefixed(Prefixed::new::<T>(Order::Little, limit)))
}

/// Each item follows its length as a varint, as protobuf delimits messages.
///
/// The length has seven bits in each byte, the least significant first. Each length has one form:
/// needless bytes are an error, and so are lengths of more than 64 bits. `limit` counts the
/// payload.
///
/// ```
/// use paceline_server::codec::{varint, Codec, Malformed};
///
/// let mut output = Vec::new();
/// varint(1024).encode(&[7; 300], &mut output)?;
/// assert_eq!(output[..3], [0xac, 0x02, 7]);
///
/// let needless = varint(1024).decode(b"\x80\0", false);
/// assert!(matches!(needless, Err(Malformed::Invalid(_))));
/// # Ok::<(), Malformed>(())
/// ```
pub fn varint(limit: usize) -> Framing {
    Framing(Kind::Varint(Varint::new(limit)))
}

/// Each item has `length` bytes: fixed records, or data behind a line that announced its length.
///
/// A session that takes the length from its peer checks it first: `length` is the limit, too.
/// `encode` refuses a payload of another length.
///
/// ```
/// use std::io;
/// use paceline_server::{codec::{exact, line, Message}, Next, Peer, Session};
///
/// /// `PUT 5`, a line break, and five bytes.
/// #[derive(Default)]
/// struct Store { data: Vec<u8>, is_data: bool }
///
/// impl Session for Store {
///     fn handle(&mut self, item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
///         if std::mem::take(&mut self.is_data) {
///             self.data = item.into_vec();
///             cx.switch(line(80));
///         } else if let Some(length) = item.as_str()?.strip_prefix("PUT ") {
///             let length = length.parse().unwrap_or(0);
///             if !(1..=1 << 20).contains(&length) {
///                 cx.reply("bad length")?;
///                 return Ok(Next::CloseGently);
///             }
///             self.is_data = true;
///             cx.switch(exact(length));
///         }
///         Ok(Next::Continue)
///     }
/// }
/// ```
///
/// # Panics
/// If the length is zero.
pub fn exact(length: usize) -> Framing {
    Framing(Kind::Exact(Exact::new(length)))
}

impl Codec for Framing {
    type Item<'b> = Message<'b>;

    fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        match &mut self.0 {
            Kind::Raw => Ok(unframed::decode(input)),
            Kind::Line(line) => line.decode(input, ended),
            Kind::Lines(lines) => lines.decode(input, ended),
            Kind::Until(until) => until.decode(input, ended),
            Kind::Dot(dot) => dot.decode(input, ended),
            Kind::DotChunks(chunks) => chunks.decode(input, ended),
            Kind::Prefixed(prefixed) => prefixed.decode(input, ended),
            Kind::Varint(varint) => varint.decode(input, ended),
            Kind::Exact(exact) => exact.decode(input, ended),
        }
    }

    fn is_within_message(&self) -> bool {
        match &self.0 {
            Kind::DotChunks(chunks) => chunks.is_within_message(),
            _ => false,
        }
    }

    fn encode(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        let start = output.len();
        let appended = self.0.append(payload, output);
        if appended.is_err() {
            output.truncate(start);
        }
        appended
    }
}

impl Kind {
    /// Appends the payload with its frame. After an error, a part of it may be in the output.
    fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Kind::Raw => {
                output.extend_from_slice(payload);
                Ok(())
            }
            Kind::Line(line) => line.append(payload, output),
            Kind::Lines(lines) => lines.append(payload, output),
            Kind::Until(until) => until.append(payload, output),
            Kind::Dot(dot) => dot.append(payload, output),
            Kind::DotChunks(chunks) => chunks.append(payload, output),
            Kind::Prefixed(prefixed) => prefixed.append(payload, output),
            Kind::Varint(varint) => varint.append(payload, output),
            Kind::Exact(exact) => exact.append(payload, output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply is appended to others: if one of them is refused, the others stay as they are.
    #[test]
    fn a_refused_payload_leaves_the_output() {
        for codec in [
            line(4),
            lines(4),
            until(b";", 4),
            dot(8),
            dot_chunks(4),
            exact(4),
        ] {
            let mut output = b"250 OK".to_vec();
            for bad in [&b".\r\n;\n\r"[..], b"a;\r\ntoo long"] {
                assert!(codec.encode(bad, &mut output).is_err(), "{codec:?}");
                assert_eq!(output, b"250 OK");
            }
        }
    }

    /// Each of ten thousand idle connections has a codec.
    #[test]
    fn a_codec_is_small() {
        assert!(size_of::<Framing>() <= 48, "{}", size_of::<Framing>());
    }
}
