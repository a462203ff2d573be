//! Items that end with a delimiter, such as the empty line behind a head.

use memchr::{memchr, memmem};

use super::{check_length, unfinished, Decoded, Malformed, Message};

/// Items that end with a delimiter.
///
/// The search is that of Knuth, Morris and Pratt: what it remembers of the input is how much of the
/// delimiter its end matches, so it looks at each byte of the input once, also if the delimiter
/// arrives in pieces.
#[derive(Clone, Debug)]
pub(super) struct Until {
    /// What ends an item: at least one byte.
    delimiter: &'static [u8],
    /// The longest item, without the delimiter.
    limit: usize,
    /// How many bytes of the input have been searched.
    searched: usize,
    /// How many bytes of the delimiter the searched bytes end with.
    matched: usize,
}

impl Until {
    /// For items of at most `limit` bytes before the delimiter.
    pub(super) fn new(delimiter: &'static [u8], limit: usize) -> Self {
        assert!(!delimiter.is_empty(), "a delimiter has at least one byte");
        Until {
            delimiter,
            limit,
            searched: 0,
            matched: 0,
        }
    }

    /// Finds the first delimiter.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        let most = self.limit.saturating_add(self.delimiter.len());
        self.search(&input[..input.len().min(most)]);
        let before = self.searched - self.matched;
        check_length(before, self.limit)?;
        if self.matched < self.delimiter.len() {
            return unfinished(input, ended);
        }
        let item = Message::whole(&input[..before]);
        let consumed = self.searched;
        *self = Until::new(self.delimiter, self.limit);
        Ok(Decoded::Item { item, consumed })
    }

    /// Searches until the delimiter matches or the input ends.
    fn search(&mut self, input: &[u8]) {
        while self.searched < input.len() && self.matched < self.delimiter.len() {
            if self.matched == 0 {
                self.skip(input);
            } else {
                self.matched = self.after(input[self.searched]);
                self.searched += 1;
            }
        }
    }

    /// Moves behind the next byte that may begin a delimiter.
    fn skip(&mut self, input: &[u8]) {
        if let Some(at) = memchr(self.delimiter[0], &input[self.searched..]) {
            self.searched += at + 1;
            self.matched = 1;
        } else {
            self.searched = input.len();
        }
    }

    /// How much of the delimiter matches once `byte` follows.
    fn after(&self, byte: u8) -> usize {
        let mut matched = self.matched;
        while matched > 0 && self.delimiter[matched] != byte {
            matched = self.shorter(matched);
        }
        if self.delimiter[matched] == byte {
            matched + 1
        } else {
            0
        }
    }

    /// The longest beginning of the delimiter that the first `matched` bytes of it also end with.
    fn shorter(&self, matched: usize) -> usize {
        let ending = &self.delimiter[..matched];
        let fits = |length: &usize| ending.ends_with(&self.delimiter[..*length]);
        (1..matched).rev().find(fits).unwrap_or(0)
    }

    /// Appends the payload and the delimiter.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        check_length(payload.len(), self.limit)?;
        let start = output.len();
        output.extend_from_slice(payload);
        output.extend_from_slice(self.delimiter);
        // A delimiter may also begin in the payload and end in the one behind it.
        if memmem::find(&output[start..], self.delimiter) == Some(payload.len()) {
            Ok(())
        } else {
            Err(Malformed::Invalid("the payload contains the delimiter"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"\r\n\r\n";

    fn item(payload: &[u8], consumed: usize) -> Result<Decoded<Message<'_>>, Malformed> {
        let item = Message::whole(payload);
        Ok(Decoded::Item { item, consumed })
    }

    /// The head of a request ends with an empty line; the body behind it stays.
    #[test]
    fn an_item_ends_before_its_delimiter() {
        let mut codec = Until::new(HEAD, 20);
        assert_eq!(
            codec.decode(b"a\r\nb\r\n\r\nrest", false),
            item(b"a\r\nb", 8)
        );
        assert_eq!(codec.decode(HEAD, false), item(b"", 4));
        assert_eq!(codec.decode(b"", true), Ok(Decoded::Incomplete));
        assert_eq!(codec.decode(b"a\r\n\r", true), Err(Malformed::Truncated));
    }

    /// A delimiter that begins with its own ending is found behind a false start.
    #[test]
    fn a_false_start_hides_no_delimiter() {
        let mut codec = Until::new(b"aab", 20);
        assert_eq!(codec.decode(b"aaab", false), item(b"a", 4));
        let mut codec = Until::new(HEAD, 20);
        assert_eq!(
            codec.decode(b"\r\r\n\r\r\n\r\n", false),
            item(b"\r\r\n\r", 8)
        );
        let mut codec = Until::new(b"ababac", 20);
        assert_eq!(codec.decode(b"abababac", false), item(b"ab", 8));
    }

    /// The delimiter does not count. The first byte that can't belong to it is the error.
    #[test]
    fn a_long_item_is_refused_at_its_first_byte_too_many() {
        let long = Err(Malformed::TooLong { limit: 2 });
        let first = |input: &'static [u8]| Until::new(HEAD, 2).decode(input, false);
        assert_eq!(first(b"ab\r\n\r\n"), item(b"ab", 6));
        assert_eq!(first(b"ab\r\n\r"), Ok(Decoded::Incomplete));
        assert_eq!(first(b"ab\r\n\ra"), long);
        assert_eq!(first(b"ab\r\r"), long);
        assert_eq!(first(b"abc"), long);
        assert_eq!(first(b"abc\r\n\r\n"), long);
    }

    /// A slow peer sends byte by byte: no byte is searched again, within a delimiter neither.
    #[test]
    fn no_byte_is_searched_again() {
        let input = b"a\r\n\rb\r\n\r\n";
        let mut codec = Until::new(HEAD, 20);
        for (length, matched) in [0, 0, 1, 2, 3, 0, 1, 2, 3].into_iter().enumerate() {
            let answer = codec.decode(&input[..length], false);
            assert_eq!(answer, Ok(Decoded::Incomplete));
            assert_eq!((codec.searched, codec.matched), (length, matched));
        }
        assert_eq!(codec.decode(input, false), item(b"a\r\n\rb", 9));
    }

    /// A payload must not end its item early, alone or together with the delimiter.
    #[test]
    fn an_encoded_payload_contains_no_delimiter() {
        let codec = Until::new(HEAD, 20);
        for bad in [&b"a\r\n\r\nb"[..], b"a\r\n"] {
            assert!(codec.append(bad, &mut Vec::new()).is_err());
        }
        let mut output = b"x".to_vec();
        assert_eq!(codec.append(b"a\r\nb\r", &mut output), Ok(()));
        assert_eq!(output, b"xa\r\nb\r\r\n\r\n");
    }

    /// Without a byte to search for, each search would end at once.
    #[test]
    #[should_panic(expected = "at least one byte")]
    fn a_delimiter_is_not_empty() {
        let _ = Until::new(b"", 20);
    }
}
