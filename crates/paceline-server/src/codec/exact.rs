//! Items of a known length, such as the data behind a line that announced it.

use super::{check_length, unfinished, Decoded, Malformed, Message};

/// Items of one length.
#[derive(Clone, Debug)]
pub(super) struct Exact {
    /// At least one.
    length: usize,
}

impl Exact {
    /// For items of `length` bytes.
    pub(super) fn new(length: usize) -> Self {
        assert!(length > 0, "an item has at least one byte");
        Exact { length }
    }

    /// Takes the first `length` bytes.
    pub(super) fn decode<'b>(
        &self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        match input.get(..self.length) {
            Some(item) => Ok(Decoded::Item {
                item: Message::whole(item),
                consumed: self.length,
            }),
            None => unfinished(input, ended),
        }
    }

    /// Appends the payload, which has the right length.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        check_length(payload.len(), self.length)?;
        if payload.len() < self.length {
            return Err(Malformed::Invalid("the payload is too short"));
        }
        output.extend_from_slice(payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a memcached `set` has the length that its line announced, whatever is in it.
    #[test]
    fn an_item_has_the_announced_length() {
        let codec = Exact::new(4);
        assert_eq!(codec.decode(b"a\r\n", false), Ok(Decoded::Incomplete));
        let item = Message::whole(b"a\r\nb".as_slice());
        let found = Decoded::Item { item, consumed: 4 };
        assert_eq!(codec.decode(b"a\r\nb\r\n", false), Ok(found));
        assert_eq!(codec.decode(b"a\r\n", true), Err(Malformed::Truncated));
        assert_eq!(codec.decode(b"", true), Ok(Decoded::Incomplete));
    }

    /// A reply of another length would shift all that follow.
    #[test]
    fn a_payload_of_another_length_is_refused() {
        let codec = Exact::new(2);
        let mut output = Vec::new();
        let short = codec.append(b"a", &mut output);
        assert!(matches!(short, Err(Malformed::Invalid(_))));
        let long = codec.append(b"abc", &mut output);
        assert_eq!(long, Err(Malformed::TooLong { limit: 2 }));
        assert_eq!(codec.append(b"ab", &mut output), Ok(()));
        assert_eq!(output, b"ab");
    }

    /// Items without a byte would come without end.
    #[test]
    #[should_panic(expected = "at least one byte")]
    fn an_item_is_not_empty() {
        let _ = Exact::new(0);
    }
}
