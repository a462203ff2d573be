//! What the built-in codecs deliver: bytes, borrowed from the input where that is possible.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::str;

use memchr::memchr;

use super::Malformed;

/// An item of a built-in codec: its payload, without the bytes that frame it.
///
/// It dereferences to `[u8]`, and compares with everything that has bytes.
///
/// ```
/// use paceline_server::codec::{line, Codec, Decoded};
///
/// let Decoded::Item { item, .. } = line(80).decode(b"quit\r\n", false)? else {
///     unreachable!("the line is whole");
/// };
/// assert!(item == "quit");
/// assert_eq!(item.len(), 4);
/// # Ok::<(), paceline_server::codec::Malformed>(())
/// ```
#[derive(Clone)]
pub struct Message<'b> {
    /// The payload: owned only if it differs from the input.
    bytes: Cow<'b, [u8]>,
    /// Whether the message ends with these bytes.
    last: bool,
}

impl<'b> Message<'b> {
    /// A message in one piece.
    pub(super) fn whole(bytes: impl Into<Cow<'b, [u8]>>) -> Self {
        Message {
            bytes: bytes.into(),
            last: true,
        }
    }

    /// A piece of a message that has more pieces.
    pub(super) fn chunk(bytes: impl Into<Cow<'b, [u8]>>) -> Self {
        Message {
            bytes: bytes.into(),
            last: false,
        }
    }

    /// The payload as text.
    ///
    /// # Errors
    /// [`Malformed::NotUtf8`] if the payload is not UTF-8.
    pub fn as_str(&self) -> Result<&str, Malformed> {
        str::from_utf8(self).map_err(|_| Malformed::NotUtf8)
    }

    /// The lines of the payload, each without its LF and without a CR before that LF.
    ///
    /// ```
    /// use paceline_server::codec::{lines, Codec, Decoded};
    ///
    /// let Decoded::Item { item, .. } = lines(80).decode(b"MAIL\r\nRCPT\nDA", false)? else {
    ///     unreachable!("two lines are whole");
    /// };
    /// assert_eq!(item.lines().collect::<Vec<_>>(), [b"MAIL", b"RCPT"]);
    /// # Ok::<(), paceline_server::codec::Malformed>(())
    /// ```
    pub fn lines(&self) -> Lines<'_> {
        Lines { rest: self }
    }

    /// Whether the message ends with this item. It is false only for a chunk of
    /// [`dot_chunks`](super::dot_chunks) that more chunks follow.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// The same message, with a copy of the payload if it is borrowed.
    pub fn into_owned(self) -> Message<'static> {
        Message {
            last: self.last,
            bytes: Cow::Owned(self.into_vec()),
        }
    }

    /// The payload, copied if it is borrowed.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes.into_owned()
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Message<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Compares the payload alone.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Message<'_> {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Message<'_> {}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("bytes", &format_args!("b\"{}\"", self.escape_ascii()))
            .field("last", &self.last)
            .finish()
    }
}

/// The lines of a [`Message`]: see [`Message::lines`].
#[derive(Clone, Debug)]
pub struct Lines<'m> {
    /// What follows the last line.
    rest: &'m [u8],
}

impl<'m> Iterator for Lines<'m> {
    type Item = &'m [u8];

    fn next(&mut self) -> Option<&'m [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(without_end(line))
    }
}

/// A line without its LF and without a CR before that LF.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let Some(content) = line.strip_suffix(b"\n") else {
        return line;
    };
    content.strip_suffix(b"\r").unwrap_or(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<&[u8]> {
        Lines { rest: bytes }.collect()
    }

    /// A session reads the lines of a mail: empty lines count, the end of the last one does not.
    #[test]
    fn lines_have_no_ends() {
        assert_eq!(lines(b""), [b""; 0]);
        assert_eq!(lines(b"\r\n\n"), [b"", b""]);
        assert_eq!(lines(b"a\r\nb\nc"), [b"a", b"b", b"c"]);
    }

    /// Only the CR directly before the LF belongs to the end of a line.
    #[test]
    fn a_carriage_return_elsewhere_stays() {
        assert_eq!(lines(b"a\r\r\n\rb\r"), [&b"a\r"[..], b"\rb\r"]);
    }

    /// A log shows what a peer has sent: control bytes must not reach the terminal.
    #[test]
    fn debug_escapes_the_payload() {
        let message = Message::chunk(&b"\x1b[2J\"\r\n\xff"[..]);
        assert_eq!(
            format!("{message:?}"),
            r#"Message { bytes: b"\x1b[2J\"\r\n\xff", last: false }"#
        );
    }

    /// A session keeps a message beyond the call: the copy says the same as the original.
    #[test]
    fn an_owned_message_says_the_same() {
        let chunk = Message::chunk(&b"part"[..]);
        let owned = chunk.clone().into_owned();
        assert_eq!(owned, chunk);
        assert!(!owned.is_last());
        assert_eq!(owned.into_vec(), b"part");
        assert!(Message::whole(&b""[..]).is_last());
    }

    /// Text with a byte that is not UTF-8 is an error of the item, not a panic.
    #[test]
    fn text_must_be_utf8() {
        assert_eq!(Message::whole("grün".as_bytes()).as_str(), Ok("grün"));
        let bad = Message::whole(&b"\xff"[..]);
        assert_eq!(bad.as_str(), Err(Malformed::NotUtf8));
    }
}
