//! Where the head of a request ends: a search that goes on where it stopped.
//!
//! The scan looks at each byte once, also if the head arrives byte by byte. It decides what the
//! parser of the whole head must not decide: line ends, empty lines before the request, lines that
//! go on with white space, and the limits.

use std::ops::Range;

use memchr::memchr;

use super::{HeadLimits, Refusal};

/// What a request line has besides its target: the longest method that is worth reading, two
/// spaces, and the version.
const BESIDE_TARGET: usize = 64;

/// How far the search has come. Narrow numbers, because each connection has them: a head is at most
/// 65,535 bytes long, and an empty line may be before it.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadScan {
    /// So many bytes hold no further line end.
    scanned: u32,
    /// Where the present line begins.
    line: u32,
    /// Where the request line ends, without its CRLF.
    request_line_end: u32,
    /// How many lines were seen, without an empty one at the start.
    lines: u16,
    /// Where the request line begins: behind an empty line, perhaps.
    start: u8,
}

/// The length of an empty line.
const EMPTY_LINE: usize = 2;

/// What a scan has found.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// The head is these bytes, with the empty line at its end.
    Complete(Range<usize>),
    Incomplete,
}

const BARE_LF: Refusal = Refusal::bad("a line ends with LF alone");
const EMPTY_LINES: Refusal = Refusal::bad("empty lines before the request");
const FOLDED: Refusal = Refusal::bad("a field line begins with white space");
const LONG_TARGET: Refusal = Refusal::new(414, "the request-target is too long");
const LONG_HEAD: Refusal = Refusal::new(431, "the head is too long");
const MANY_FIELDS: Refusal = Refusal::new(431, "the head has too many fields");

impl HeadScan {
    /// Searches on in `input`, which begins with the bytes of the last call.
    pub(super) fn scan(&mut self, input: &[u8], limits: &HeadLimits) -> Result<Scanned, Refusal> {
        while let Some(found) = memchr(b'\n', &input[self.scanned as usize..]) {
            let lf = self.scanned as usize + found;
            // From here on these numbers are narrow.
            self.check_length(lf + 1, limits)?;
            self.scanned = lf as u32 + 1;
            if lf == self.line as usize || input[lf - 1] != b'\r' {
                return Err(BARE_LF);
            }
            if self.end_line(input, lf - 1, limits)? == Line::Last {
                return Ok(Scanned::Complete(self.start()..lf + 1));
            }
            self.line = self.scanned;
        }
        self.check_length(input.len(), limits)?;
        self.scanned = input.len() as u32;
        Ok(Scanned::Incomplete)
    }

    /// How many bytes the scan has looked at.
    #[cfg(test)]
    pub(super) fn scanned(&self) -> usize {
        self.scanned as usize
    }

    fn start(&self) -> usize {
        usize::from(self.start)
    }

    /// The request line, once it is whole.
    pub(super) fn request_line<'b>(&self, input: &'b [u8]) -> Option<&'b [u8]> {
        (self.lines > 0).then(|| &input[self.start()..self.request_line_end as usize])
    }

    /// A line whose content ends at `end`.
    fn end_line(&mut self, input: &[u8], end: usize, limits: &HeadLimits) -> Result<Line, Refusal> {
        let content = &input[self.line as usize..end];
        match (content.first(), self.lines) {
            // RFC 9112, 2.2: clients exist that send an empty line behind a body.
            (None, 0) if self.start == 0 => {
                self.start = EMPTY_LINE as u8;
                return Ok(Line::Other);
            }
            (None, 0) => return Err(EMPTY_LINES),
            (None, _) => return Ok(Line::Last),
            (Some(_), 0) => self.request_line_end = end as u32,
            (Some(b' ' | b'\t'), _) => return Err(FOLDED),
            (Some(_), fields) if fields > limits.fields => return Err(MANY_FIELDS),
            (Some(_), _) => {}
        }
        self.lines += 1;
        Ok(Line::Other)
    }

    /// Refuses a head at the first byte that makes it too long, however it arrives.
    fn check_length(&self, end: usize, limits: &HeadLimits) -> Result<(), Refusal> {
        if self.lines == 0 {
            let longest = limits.head().min(limits.target() + BESIDE_TARGET);
            return if end - self.start() > longest {
                Err(LONG_TARGET)
            } else {
                Ok(())
            };
        }
        if end - self.start() > limits.head() {
            return Err(LONG_HEAD);
        }
        Ok(())
    }
}

/// What a line of a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// The empty line at the end.
    Last,
    Other,
}
