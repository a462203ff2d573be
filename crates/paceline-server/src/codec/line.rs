//! Lines: each as an item, or all that have arrived as one item.

use memchr::{memchr, memchr2};

use super::message::without_end;
use super::{check_length, unfinished, Decoded, Malformed, Message};

/// One line per item.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The longest line, without its end.
    limit: usize,
    /// How many bytes of the input contain no LF.
    searched: usize,
}

impl Line {
    /// For lines of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Line { limit, searched: 0 }
    }

    /// Finds the first line.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        let Some(consumed) = find_line(input, self.searched, self.limit)? else {
            self.searched = input.len();
            return unfinished(input, ended);
        };
        self.searched = 0;
        let item = Message::whole(without_end(&input[..consumed]));
        Ok(Decoded::Item { item, consumed })
    }

    /// Appends the payload and CRLF.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        check_length(payload.len(), self.limit)?;
        if memchr2(b'\r', b'\n', payload).is_some() {
            return Err(Malformed::Invalid("a line contains CR or LF"));
        }
        output.extend_from_slice(payload);
        output.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// All whole lines of the input as one item.
#[derive(Clone, Debug)]
pub(super) struct ManyLines {
    /// The longest line, without its end.
    limit: usize,
    /// How many bytes of the input contain no LF.
    searched: usize,
}

impl ManyLines {
    /// For lines of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        ManyLines { limit, searched: 0 }
    }

    /// Finds all whole lines.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        let consumed = self.whole_lines(input)?;
        if consumed == 0 {
            return unfinished(input, ended);
        }
        let item = Message::whole(&input[..consumed]);
        Ok(Decoded::Item { item, consumed })
    }

    /// The length of all whole lines. A bad line is an error only if it is the first one: the lines
    /// before it are delivered, and the next call finds it again.
    fn whole_lines(&mut self, input: &[u8]) -> Result<usize, Malformed> {
        let mut end = 0;
        let mut searched = self.searched;
        self.searched = 0;
        loop {
            match find_line(&input[end..], searched, self.limit) {
                Ok(Some(length)) => end += length,
                Ok(None) => {
                    self.searched = input.len() - end;
                    return Ok(end);
                }
                Err(malformed) if end == 0 => return Err(malformed),
                Err(_) => return Ok(end),
            }
            searched = 0;
        }
    }

    /// Appends the payload, which consists of lines with their ends.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut rest = payload;
        while !rest.is_empty() {
            let Some(length) = find_line(rest, 0, self.limit)? else {
                return Err(Malformed::Invalid("the last line has no end"));
            };
            rest = &rest[length..];
        }
        output.extend_from_slice(payload);
        Ok(())
    }
}

/// The length of the first line with its end, if the line is whole. The first `searched` bytes are
/// known to contain no LF.
fn find_line(input: &[u8], searched: usize, limit: usize) -> Result<Option<usize>, Malformed> {
    // A line that fits ends within this window.
    let window = &input[..input.len().min(limit.saturating_add(2))];
    if let Some(at) = memchr(b'\n', &window[searched..]) {
        let length = searched + at + 1;
        check_length(without_end(&input[..length]).len(), limit)?;
        return Ok(Some(length));
    }
    // A CR right behind the longest line may belong to its end.
    let may_fit = window.len() == limit.saturating_add(1) && window.ends_with(b"\r");
    if may_fit {
        return Ok(None);
    }
    check_length(window.len(), limit)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Malformed = Malformed::TooLong { limit: 4 };

    fn item(payload: &[u8], consumed: usize) -> Result<Decoded<Message<'_>>, Malformed> {
        let item = Message::whole(payload);
        Ok(Decoded::Item { item, consumed })
    }

    fn first(input: &[u8]) -> Result<Decoded<Message<'_>>, Malformed> {
        Line::new(4).decode(input, false)
    }

    /// Clients end lines with LF or CRLF: sessions get neither.
    #[test]
    fn a_line_has_no_end() {
        assert_eq!(first(b"get\nx"), item(b"get", 4));
        assert_eq!(first(b"get\r\nx"), item(b"get", 5));
        assert_eq!(first(b"\n"), item(b"", 1));
        assert_eq!(first(b"\r\r\n"), item(b"\r", 3));
    }

    /// A peer that never ends its line must not fill the memory: the first byte too many is the
    /// error, and only a CR there leaves a doubt.
    #[test]
    fn a_long_line_is_refused_at_its_first_byte_too_many() {
        assert_eq!(first(b"four\n"), item(b"four", 5));
        assert_eq!(first(b"four\r\n"), item(b"four", 6));
        assert_eq!(first(b"four"), Ok(Decoded::Incomplete));
        assert_eq!(first(b"four\r"), Ok(Decoded::Incomplete));
        assert_eq!(first(b"fiveb"), Err(LONG));
        assert_eq!(first(b"four\rx"), Err(LONG));
        assert_eq!(first(b"fiveb\n"), Err(LONG));
        assert_eq!(first(b"four\r\r\n"), Err(LONG));
    }

    /// A slow peer sends byte by byte: each search begins where the last one ended.
    #[test]
    fn no_byte_is_searched_again() {
        let input = b"abc\r\n";
        let mut codec = Line::new(4);
        for length in 0..input.len() {
            assert_eq!(
                codec.decode(&input[..length], false),
                Ok(Decoded::Incomplete)
            );
            assert_eq!(codec.searched, length);
        }
        assert_eq!(codec.decode(input, false), item(b"abc", 5));
        assert_eq!(codec.searched, 0);
    }

    /// The end of the input within a line is an error; between two lines it is none.
    #[test]
    fn a_line_without_end_is_truncated() {
        assert_eq!(Line::new(4).decode(b"ab", true), Err(Malformed::Truncated));
        assert_eq!(Line::new(4).decode(b"", true), Ok(Decoded::Incomplete));
    }

    /// A payload from elsewhere must not become two lines.
    #[test]
    fn an_encoded_line_is_one_line() {
        let mut output = Vec::new();
        for bad in [&b"a\nb"[..], b"a\r", b"\n"] {
            assert!(Line::new(4).append(bad, &mut output).is_err());
        }
        assert_eq!(Line::new(4).append(b"fiveb", &mut output), Err(LONG));
        assert_eq!(output, b"");
        assert_eq!(Line::new(4).append(b"four", &mut output), Ok(()));
        assert_eq!(output, b"four\r\n");
    }

    /// Pipelined commands arrive in one read and are handled in one call.
    #[test]
    fn all_whole_lines_are_one_item() {
        let mut codec = ManyLines::new(4);
        assert_eq!(codec.decode(b"a\r\n\nb\ncc", false), item(b"a\r\n\nb\n", 6));
        assert_eq!(codec.searched, 2);
        assert_eq!(codec.decode(b"cc", false), Ok(Decoded::Incomplete));
        assert_eq!(codec.decode(b"ccc\n", true), item(b"ccc\n", 4));
        assert_eq!(codec.decode(b"d", true), Err(Malformed::Truncated));
    }

    /// Good lines before a bad one are delivered: what arrives together must not be lost together.
    #[test]
    fn lines_before_a_long_one_are_delivered() {
        let mut codec = ManyLines::new(4);
        assert_eq!(codec.decode(b"a\nfiveb\nc\n", false), item(b"a\n", 2));
        assert_eq!(codec.decode(b"fiveb\nc\n", false), Err(LONG));
    }

    /// The payload of several lines is checked line by line.
    #[test]
    fn encoded_lines_have_their_ends() {
        let mut output = Vec::new();
        let codec = ManyLines::new(4);
        assert_eq!(codec.append(b"a\nfour\r\n", &mut output), Ok(()));
        assert_eq!(output, b"a\nfour\r\n");
        assert_eq!(codec.append(b"a\nfiveb\n", &mut output), Err(LONG));
        assert!(codec.append(b"a\nb", &mut output).is_err());
        assert_eq!(codec.append(b"", &mut output), Ok(()));
    }
}
