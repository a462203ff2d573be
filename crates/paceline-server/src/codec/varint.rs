//! Items behind their length as a base-128 varint, as protobuf writes delimited messages.

use super::prefixed::payload;
use super::{check_length, unfinished, Decoded, Malformed, Message};

/// The most bytes of a length: nine carry seven bits, the tenth carries one.
const MOST_BYTES: usize = 10;

/// Items behind a varint.
#[derive(Clone, Debug)]
pub(super) struct Varint {
    /// The longest payload.
    limit: usize,
    /// What has been read of the length.
    prefix: Length,
}

/// A length, read byte by byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Length {
    /// The bits read so far.
    value: u64,
    /// In how many bytes they came.
    bytes: usize,
    /// Whether the last byte was one of them.
    is_whole: bool,
}

impl Varint {
    /// For payloads of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        let prefix = Length::default();
        Varint { limit, prefix }
    }

    /// Takes the payload that the length announces.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        let Some(length) = self.read_prefix(input)? else {
            return unfinished(input, ended);
        };
        let Some(decoded) = payload(input, self.prefix.bytes, length) else {
            return unfinished(input, ended);
        };
        self.prefix = Length::default();
        Ok(decoded)
    }

    /// The length of the payload, once its prefix is whole.
    fn read_prefix(&mut self, input: &[u8]) -> Result<Option<usize>, Malformed> {
        while !self.prefix.is_whole {
            let Some(&byte) = input.get(self.prefix.bytes) else {
                return Ok(None);
            };
            self.prefix.push(byte)?;
        }
        let length = usize::try_from(self.prefix.value).unwrap_or(usize::MAX);
        check_length(length, self.limit)?;
        Ok(Some(length))
    }

    /// Appends the length and the payload.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        check_length(payload.len(), self.limit)?;
        let mut rest = payload.len();
        while rest > 0x7f {
            output.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        output.push(rest as u8);
        output.extend_from_slice(payload);
        Ok(())
    }
}

impl Length {
    /// Adds the next byte. Each length has one form only, so that two readers of the same bytes
    /// can't disagree about it.
    fn push(&mut self, byte: u8) -> Result<(), Malformed> {
        let is_tenth = self.bytes + 1 == MOST_BYTES;
        if is_tenth && byte > 1 {
            return Err(Malformed::Invalid("the length has more than 64 bits"));
        }
        if byte == 0 && self.bytes > 0 {
            return Err(Malformed::Invalid("the length has needless bytes"));
        }
        self.value |= u64::from(byte & 0x7f) << (7 * self.bytes);
        self.bytes += 1;
        self.is_whole = byte & 0x80 == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(payload: &[u8], consumed: usize) -> Result<Decoded<Message<'_>>, Malformed> {
        let item = Message::whole(payload);
        Ok(Decoded::Item { item, consumed })
    }

    fn first(input: &[u8]) -> Result<Decoded<Message<'_>>, Malformed> {
        Varint::new(300).decode(input, false)
    }

    /// Short items have one byte of length, longer ones two.
    #[test]
    fn a_varint_announces_its_payload() {
        assert_eq!(first(b"\x02abc"), item(b"ab", 3));
        assert_eq!(first(b"\0"), item(b"", 1));
        let mut long = b"\xac\x02".to_vec();
        long.extend_from_slice(&[b'x'; 300]);
        assert_eq!(first(&long), item(&[b'x'; 300], 302));
    }

    /// Two parsers that disagree about a length disagree about all that follows.
    #[test]
    fn a_length_has_one_form() {
        let needless = Err(Malformed::Invalid("the length has needless bytes"));
        assert_eq!(first(b"\x82\0"), needless);
        assert_eq!(first(b"\x80\0"), needless);
        let wide = Err(Malformed::Invalid("the length has more than 64 bits"));
        assert_eq!(first(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), wide);
        assert_eq!(first(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81"), wide);
        assert_eq!(first(&[0x80; 9]), Ok(Decoded::Incomplete));
    }

    /// A peer announces more than fits: it is refused before the server waits for the payload.
    #[test]
    fn a_long_payload_is_refused_by_its_prefix() {
        let long = Err(Malformed::TooLong { limit: 300 });
        assert_eq!(first(b"\xad\x02"), long);
        assert_eq!(first(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), long);
    }

    /// A payload arrives byte by byte: each byte of its length is read once.
    #[test]
    fn a_prefix_is_read_once() {
        let mut input = b"\x81\x01".to_vec();
        input.extend_from_slice(&[b'x'; 129]);
        let mut codec = Varint::new(300);
        for length in 0..input.len() {
            let answer = codec.decode(&input[..length], false);
            assert_eq!(answer, Ok(Decoded::Incomplete));
            assert_eq!(codec.prefix.bytes, length.min(2));
        }
        assert_eq!(codec.decode(&input, true), item(&[b'x'; 129], 131));
        assert_eq!(codec.prefix, Length::default());
    }

    /// The input may end between two items only.
    #[test]
    fn a_partial_item_is_truncated() {
        let truncated = Err(Malformed::Truncated);
        assert_eq!(Varint::new(300).decode(b"\x81", true), truncated);
        assert_eq!(Varint::new(300).decode(b"\x02a", true), truncated);
        assert_eq!(Varint::new(300).decode(b"", true), Ok(Decoded::Incomplete));
    }

    /// The codec reads the lengths that it writes, at each change of their width.
    #[test]
    fn an_encoded_length_is_the_shortest() {
        for (length, prefix) in [
            (0, &b"\0"[..]),
            (127, b"\x7f"),
            (128, b"\x80\x01"),
            (300, b"\xac\x02"),
        ] {
            let mut output = Vec::new();
            let answer = Varint::new(300).append(&vec![0; length], &mut output);
            assert_eq!(answer, Ok(()));
            assert_eq!(&output[..prefix.len()], prefix);
            assert_eq!(output.len(), prefix.len() + length);
        }
        let long = Err(Malformed::TooLong { limit: 300 });
        assert_eq!(Varint::new(300).append(&[0; 301], &mut Vec::new()), long);
    }
}
