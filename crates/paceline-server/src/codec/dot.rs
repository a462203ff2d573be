//! Messages that end with a line of a single dot, as in SMTP, POP3 and NNTP.
//!
//! ```text
//!   from the peer   "Hi\r\n"  "..x\r\n"  ".\r\n"
//!   message         "Hi\r\n"  ".x\r\n"
//! ```
//!
//! Only CRLF ends a line here, and a CR or LF alone is an error. If a server took a bare LF for the
//! end of a line, and the server before it did not, the sequence `\n.\r\n` would let a peer smuggle
//! a second message past the first server.
//!
//! The search looks at each byte once, and at a CR once more if its LF arrives later. Lines are
//! copied only if one of them begins with a dot.

use std::borrow::Cow;
use std::mem;

use memchr::{memchr, memchr2};

use super::{check_length, unfinished, Decoded, Malformed, Message};

/// The line that ends a message.
const TERMINATOR: &[u8] = b".\r\n";

/// A message as one item.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    /// Bounds the message.
    bound: Bound,
    /// How far the input has been searched.
    scan: Scan,
}

impl Dot {
    /// For messages of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Dot {
            bound: Bound::Message(limit),
            scan: Scan::default(),
        }
    }

    /// Finds the end of the message.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        loop {
            match self.scan.step(input, self.bound)? {
                Step::Line => {}
                Step::Incomplete => return unfinished(input, ended),
                Step::Terminator { end } => {
                    let item = Message::whole(mem::take(&mut self.scan).payload(input));
                    let consumed = end;
                    return Ok(Decoded::Item { item, consumed });
                }
            }
        }
    }

    /// Appends a whole message and its terminator.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        append(payload, self.bound, output)
    }
}

/// A message in chunks of whole lines, as they arrive.
#[derive(Clone, Debug)]
pub(super) struct DotChunks {
    /// Bounds each line.
    bound: Bound,
    /// How far the input has been searched.
    scan: Scan,
    /// Whether a chunk of the message has been delivered, and not the last one.
    is_within: bool,
}

impl DotChunks {
    /// For lines of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        DotChunks {
            bound: Bound::Line(limit),
            scan: Scan::default(),
            is_within: false,
        }
    }

    /// Takes all whole lines, up to the end of the message.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        if let Some(consumed) = self.search(input)? {
            let item = Message::whole(mem::take(&mut self.scan).payload(input));
            self.is_within = false;
            return Ok(Decoded::Item { item, consumed });
        }
        let consumed = self.scan.line;
        if consumed > 0 {
            let item = Message::chunk(self.scan.payload(input));
            self.scan = self.scan.behind_lines();
            self.is_within = true;
            return Ok(Decoded::Item { item, consumed });
        }
        if ended && self.is_within {
            return Err(Malformed::Truncated);
        }
        unfinished(input, ended)
    }

    /// Whether the last chunk was not the end of its message.
    pub(super) fn is_within_message(&self) -> bool {
        self.is_within
    }

    /// Searches for the end of the terminator. A bad line is an error only if it is the first one:
    /// the lines before it are delivered, and the next call finds it again.
    fn search(&mut self, input: &[u8]) -> Result<Option<usize>, Malformed> {
        loop {
            match self.scan.step(input, self.bound) {
                Ok(Step::Line) => {}
                Ok(Step::Terminator { end }) => return Ok(Some(end)),
                Err(malformed) if self.scan.line == 0 => return Err(malformed),
                Ok(Step::Incomplete) | Err(_) => return Ok(None),
            }
        }
    }

    /// Appends a whole message and its terminator.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        append(payload, self.bound, output)
    }
}

/// What a limit counts.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// The message as it arrives: with the ends of its lines and the dots added to them, without
    /// the terminator.
    Message(usize),
    /// Each line, without its end and without the dot added to it.
    Line(usize),
}

/// A search for lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scan {
    /// Where the current line begins. All lines before it are whole and belong to the message.
    line: usize,
    /// How far the current line has been searched, from the start of the input. Between the two
    /// is neither CR nor LF.
    searched: usize,
    /// Whether a line before the current one begins with a dot.
    is_stuffed: bool,
}

/// What a search has found.
enum Step {
    /// One more line of the message.
    Line,
    /// The terminator.
    Terminator {
        /// Where it ends.
        end: usize,
    },
    /// Neither of them is whole.
    Incomplete,
}

impl Scan {
    /// Searches for the end of the current line.
    ///
    /// An error leaves `self` as it was, or at the byte that causes the error.
    fn step(&mut self, input: &[u8], bound: Bound) -> Result<Step, Malformed> {
        // A line that fits, and the terminator, end within this window.
        let window = &input[..input.len().min(bound.window(self.line))];
        if let Some(at) = memchr2(b'\r', b'\n', &window[self.searched..]) {
            self.searched += at;
            return self.end_of_line(window, bound);
        }
        self.searched = window.len();
        bound.check(window, self.line)?;
        Ok(Step::Incomplete)
    }

    /// Judges the CR or LF at `searched`.
    ///
    /// Each call checks the bound before it refuses a later byte, so that the error does not depend
    /// on how the input was split.
    fn end_of_line(&mut self, input: &[u8], bound: Bound) -> Result<Step, Malformed> {
        let at = self.searched;
        match &input[at..] {
            [b'\r', b'\n', ..] => self.end_line(&input[..at + 2], bound),
            [b'\r'] => {
                bound.check(input, self.line)?;
                Ok(Step::Incomplete)
            }
            [b'\r', ..] => {
                bound.check(&input[..=at], self.line)?;
                Err(Malformed::Invalid(
                    "CR without LF in a dot-terminated message",
                ))
            }
            _ => {
                bound.check(&input[..at], self.line)?;
                Err(Malformed::Invalid(
                    "LF without CR in a dot-terminated message",
                ))
            }
        }
    }

    /// Ends the current line at the end of `lines`.
    fn end_line(&mut self, lines: &[u8], bound: Bound) -> Result<Step, Malformed> {
        let line = &lines[self.line..];
        if line == TERMINATOR {
            return Ok(Step::Terminator { end: lines.len() });
        }
        bound.check(lines, self.line)?;
        self.is_stuffed |= line.starts_with(b".");
        self.line = lines.len();
        self.searched = lines.len();
        Ok(Step::Line)
    }

    /// The search that continues behind the whole lines.
    fn behind_lines(&self) -> Scan {
        Scan {
            searched: self.searched - self.line,
            ..Scan::default()
        }
    }

    /// The payload of all whole lines.
    fn payload<'b>(&self, input: &'b [u8]) -> Cow<'b, [u8]> {
        let lines = &input[..self.line];
        if self.is_stuffed {
            Cow::Owned(unstuffed(lines))
        } else {
            Cow::Borrowed(lines)
        }
    }
}

impl Bound {
    /// The most bytes to search for the end of the line that begins at `line`.
    fn window(self, line: usize) -> usize {
        match self {
            Bound::Message(limit) => limit.saturating_add(TERMINATOR.len()),
            // One dot, the line and its end.
            Bound::Line(limit) => line.saturating_add(limit).saturating_add(3),
        }
    }

    /// Checks an input whose last line, whole or not, begins at `line`.
    fn check(self, input: &[u8], line: usize) -> Result<(), Malformed> {
        let last = &input[line..];
        if TERMINATOR.starts_with(last) {
            return Ok(());
        }
        match self {
            Bound::Message(limit) => check_length(input.len(), limit),
            Bound::Line(limit) => check_length(content_length(last), limit),
        }
    }
}

/// How many bytes of a line a limit counts: not a leading dot, and no part of its end.
fn content_length(line: &[u8]) -> usize {
    let line = line.strip_prefix(b".").unwrap_or(line);
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line).len()
}

/// Whole lines, each without its leading dot.
fn unstuffed(lines: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(lines.len());
    for line in split_lines(lines) {
        payload.extend_from_slice(line.strip_prefix(b".").unwrap_or(line));
    }
    payload
}

/// Appends a message with a dot before each line that begins with one, and its terminator.
fn append(payload: &[u8], bound: Bound, output: &mut Vec<u8>) -> Result<(), Malformed> {
    let start = output.len();
    for line in split_lines(payload) {
        check_line(line)?;
        let line_start = output.len() - start;
        if line.starts_with(b".") {
            output.push(b'.');
        }
        output.extend_from_slice(line);
        bound.check(&output[start..], line_start)?;
    }
    output.extend_from_slice(TERMINATOR);
    Ok(())
}

/// Refuses a line whose end is not CRLF.
fn check_line(line: &[u8]) -> Result<(), Malformed> {
    let content = line.strip_suffix(b"\r\n");
    let content = content.ok_or(Malformed::Invalid("a line of the payload lacks CRLF"))?;
    if memchr(b'\r', content).is_some() {
        return Err(Malformed::Invalid("a line of the payload contains CR"));
    }
    Ok(())
}

/// Splits behind each LF.
fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer<'b> = Result<Decoded<Message<'b>>, Malformed>;

    fn item(payload: &[u8], consumed: usize) -> Answer<'_> {
        let item = Message::whole(payload);
        Ok(Decoded::Item { item, consumed })
    }

    fn first(input: &[u8]) -> Answer<'_> {
        Dot::new(40).decode(input, false)
    }

    /// A mail ends with a line of one dot, which may be its first line.
    #[test]
    fn a_message_ends_with_a_dot() {
        assert_eq!(first(b"Hi\r\nyou\r\n.\r\nQUIT"), item(b"Hi\r\nyou\r\n", 12));
        assert_eq!(first(b".\r\n"), item(b"", 3));
        assert_eq!(first(b"Hi\r\n.\r"), Ok(Decoded::Incomplete));
        assert_eq!(first(b"Hi.\r\n"), Ok(Decoded::Incomplete));
    }

    /// The sender puts a dot before each line that begins with one: the session does not see it.
    #[test]
    fn added_dots_are_removed() {
        assert_eq!(
            first(b"..\r\n...\r\n.a\r\n.\r\n"),
            item(b".\r\n..\r\na\r\n", 16)
        );
        let mut output = Vec::new();
        let payload = b".\r\n..\r\na.\r\n";
        assert_eq!(Dot::new(40).append(payload, &mut output), Ok(()));
        assert_eq!(output, b"..\r\n...\r\na.\r\n.\r\n");
        assert_eq!(first(&output), item(payload, output.len()));
    }

    /// In 2023 servers could be made to see two mails where others saw one, by a terminator without
    /// CR or without LF. Here each of these sequences is an error.
    #[test]
    fn no_message_is_smuggled() {
        for bad in [
            &b"a\n.\n"[..],
            b"a\n.\r\n",
            b"a\r\n.\n",
            b"a\r.\r\n",
            b"a\r.\r",
            b"a\r\n.\rb",
            b"a\r\n.\r\r\n",
            b"a\r\n\n.\r\n",
            b"\n",
        ] {
            assert!(matches!(first(bad), Err(Malformed::Invalid(_))), "{bad:?}");
            let chunk = DotChunks::new(40).decode(bad, false);
            let is_ended = matches!(&chunk, Ok(Decoded::Item { item, .. }) if item.is_last());
            assert!(!is_ended, "{bad:?}");
        }
    }

    /// The limit counts the message as it arrives, and the first byte too many is the error: only
    /// a terminator may follow.
    #[test]
    fn a_long_message_is_refused_at_its_first_byte_too_many() {
        let long = Err(Malformed::TooLong { limit: 4 });
        let first = |input: &'static [u8]| Dot::new(4).decode(input, false);
        assert_eq!(first(b"ab\r\n.\r\n"), item(b"ab\r\n", 7));
        assert_eq!(first(b"ab\r\n.\r"), Ok(Decoded::Incomplete));
        assert_eq!(first(b"a\r\n.\r\n"), item(b"a\r\n", 6));
        assert_eq!(first(b"ab\r\n.a"), long);
        assert_eq!(first(b"ab\r\na"), long);
        assert_eq!(first(b"abc\r\n"), long);
        assert_eq!(
            first(b"abcd\n"),
            Err(Malformed::Invalid(
                "LF without CR in a dot-terminated message"
            ))
        );
        assert_eq!(first(b"abcde\n"), long);
    }

    /// A slow peer sends byte by byte: only a CR is looked at again, when its LF arrives.
    #[test]
    fn no_byte_is_searched_again() {
        let input = b"a\r\n..b\r\n.\r\n";
        let mut codec = Dot::new(40);
        for length in 0..input.len() {
            let answer = codec.decode(&input[..length], false);
            assert_eq!(answer, Ok(Decoded::Incomplete));
            let is_cr = input[..length].ends_with(b"\r");
            assert_eq!(codec.scan.searched, length - usize::from(is_cr));
        }
        assert_eq!(
            codec.decode(input, false),
            item(b"a\r\n.b\r\n", input.len())
        );
        assert_eq!(codec.scan, Scan::default());
    }

    /// A large mail goes to a file as it arrives: each call gets the whole lines so far.
    #[test]
    fn a_message_arrives_in_chunks() {
        let mut codec = DotChunks::new(40);
        let Ok(Decoded::Item {
            item: chunk,
            consumed: 7,
        }) = codec.decode(b"a\r\n.b\r\n.\r", false)
        else {
            panic!("two lines are whole");
        };
        assert_eq!((&chunk[..], chunk.is_last()), (&b"a\r\nb\r\n"[..], false));
        assert_eq!(codec.scan.searched, 1);
        let Ok(Decoded::Item {
            item: chunk,
            consumed: 6,
        }) = codec.decode(b"c\r\n.\r\n", false)
        else {
            panic!("the message is whole");
        };
        assert_eq!((&chunk[..], chunk.is_last()), (&b"c\r\n"[..], true));
        assert_eq!(codec.decode(b"", true), Ok(Decoded::Incomplete));
    }

    /// A connection is lost between two chunks: the message must not pass for a whole one.
    #[test]
    fn a_message_without_terminator_is_truncated() {
        let mut codec = DotChunks::new(40);
        assert!(codec.decode(b"a\r\n", false).is_ok());
        assert_eq!(codec.decode(b"", true), Err(Malformed::Truncated));
        assert_eq!(
            Dot::new(40).decode(b"a\r\n", true),
            Err(Malformed::Truncated)
        );
    }

    /// In chunks a message has no limit, but each line has. Good lines before a bad one arrive.
    #[test]
    fn a_line_of_a_chunk_has_a_limit() {
        let long = Err(Malformed::TooLong { limit: 2 });
        let decode = |input: &'static [u8]| DotChunks::new(2).decode(input, false);
        assert_eq!(decode(b"ab\r"), Ok(Decoded::Incomplete));
        assert_eq!(decode(b".ab\r"), Ok(Decoded::Incomplete));
        assert_eq!(decode(b"abc"), long);
        assert_eq!(decode(b".abc"), long);
        let mut codec = DotChunks::new(2);
        let answer = codec.decode(b"ab\r\nabc", false);
        assert!(matches!(answer, Ok(Decoded::Item { consumed: 4, .. })));
        assert_eq!(codec.decode(b"abc", false), long);
    }

    /// Copying a mail costs time and memory: one without added dots is borrowed.
    #[test]
    fn only_added_dots_cost_a_copy() {
        let decode = |input: &'static [u8]| match Dot::new(40).decode(input, false) {
            Ok(Decoded::Item { item, .. }) => item.as_ptr() == input.as_ptr(),
            _ => false,
        };
        assert!(decode(b"a.\r\n.\r\n"));
        assert!(!decode(b"..\r\n.\r\n"));
    }

    /// A payload with other ends of lines would arrive as something else, or as an error.
    #[test]
    fn an_encoded_payload_has_whole_lines() {
        let codec = Dot::new(5);
        for bad in [&b"a"[..], b"a\n", b"a\r", b"\ra\r\n", b"a\r\nb"] {
            let answer = codec.append(bad, &mut Vec::new());
            assert!(matches!(answer, Err(Malformed::Invalid(_))), "{bad:?}");
        }
        let long = Err(Malformed::TooLong { limit: 5 });
        assert_eq!(codec.append(b"abcd\r\n", &mut Vec::new()), long);
        assert_eq!(codec.append(b".ab\r\n", &mut Vec::new()), long);
        assert_eq!(codec.append(b"abc\r\n", &mut Vec::new()), Ok(()));
    }
}
