//! The chunked coding (RFC 9112, 7.1), by hand: sizes, extensions, data, trailers.
//!
//! ```text
//!   Size --line--> Data --all--> DataEnd --CRLF--> Size ..
//!      \--"0"----> Trailer --empty line--> end
//! ```
//!
//! Extensions and trailers are checked and dropped. What is not data is bounded: a line by its
//! length, all lines together by what small chunks are worth.

use memchr::memchr;

use super::{framing::is_token, Refusal};

/// The longest line of a chunk's size, with its extensions and its end.
const LONGEST_LINE: usize = 256;
/// So much may lines of sizes have beyond what is usual.
const MOST_OVERHEAD: usize = 16 * 1024;
/// The trailers, with their ends.
const MOST_TRAILERS: usize = 8 * 1024;
/// The most digits of a size: more would not fit into 64 bits.
const MOST_DIGITS: usize = 16;

const BARE_LF: Refusal = Refusal::bad("a line of the chunked coding ends with LF alone");
const LONG_LINE: Refusal = Refusal::bad("the line of a chunk's size is too long");
const ODD_SIZE: Refusal = Refusal::bad("the size of a chunk is no hexadecimal number");
const ODD_EXTENSION: Refusal = Refusal::bad("a chunk extension is malformed");
const OVERHEAD: Refusal = Refusal::bad("the chunks are too small for their lines");
const SPILLS: Refusal = Refusal::bad("no CRLF after the data of a chunk");
const LONG_TRAILERS: Refusal = Refusal::new(431, "the trailers are too long");
const ODD_TRAILER: Refusal = Refusal::bad("a trailer field is malformed");

/// A decoder of one body. Narrow numbers, because each connection has room for them: all of them are bounded above.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    expected: Expected,
    /// So many bytes of an unfinished line hold no LF.
    searched: u16,
    overhead: u16,
    trailers: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Size,
    /// So many bytes of data, at least one.
    Data(u64),
    DataEnd,
    Trailer,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'b> {
    /// Data of the body: none, if the bytes belong to the coding.
    Data(&'b [u8]),
    End,
}

/// A line without its CRLF, and how many bytes it takes.
type Line<'b> = Option<(&'b [u8], usize)>;

impl Chunks {
    pub(super) fn new() -> Self {
        Self {
            expected: Expected::Size,
            searched: 0,
            overhead: 0,
            trailers: 0,
        }
    }

    /// The first part in `input`, and how many bytes it takes; `None` if more bytes must come.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
    ) -> Result<Option<(Part<'b>, usize)>, Refusal> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.expected {
                Expected::Size => {
                    let Some((line, length)) = self.line(rest, LONGEST_LINE, LONG_LINE)? else {
                        break;
                    };
                    self.begin_chunk(line, length)?;
                    at += length;
                }
                Expected::Data(_) if rest.is_empty() => break,
                Expected::Data(left) => {
                    let data = self.data(rest, left);
                    at += data.len();
                    // A doubt behind the data is found by the next call, as if it came later.
                    at += self.end_data(&input[at..]).ok().flatten().unwrap_or(0);
                    return Ok(Some((Part::Data(data), at)));
                }
                Expected::DataEnd => match self.end_data(rest)? {
                    Some(length) => at += length,
                    None => break,
                },
                Expected::Trailer => {
                    let room = MOST_TRAILERS - usize::from(self.trailers);
                    let Some((line, length)) = self.line(rest, room, LONG_TRAILERS)? else {
                        break;
                    };
                    at += length;
                    self.trailers += length as u16;
                    if line.is_empty() {
                        return Ok(Some((Part::End, at)));
                    }
                    check_trailer(line)?;
                }
            }
        }
        Ok((at > 0).then_some((Part::Data(b""), at)))
    }

    /// The line that `rest` begins with, if it is whole.
    fn line<'b>(
        &mut self,
        rest: &'b [u8],
        longest: usize,
        too_long: Refusal,
    ) -> Result<Line<'b>, Refusal> {
        let searched = usize::from(self.searched);
        let found = memchr(b'\n', &rest[searched..]);
        let length = found.map_or(rest.len(), |found| searched + found + 1);
        if length > longest {
            return Err(too_long);
        }
        if found.is_none() {
            self.searched = length as u16;
            return Ok(None);
        }
        self.searched = 0;
        let line = rest[..length].strip_suffix(b"\r\n").ok_or(BARE_LF)?;
        Ok(Some((line, length)))
    }

    /// The line of a size, which takes `length` bytes.
    fn begin_chunk(&mut self, line: &[u8], length: usize) -> Result<(), Refusal> {
        let digits = line.iter().position(|byte| *byte == b';');
        let digits = digits.unwrap_or(line.len());
        let size = parse_size(&line[..digits])?;
        check_extensions(&line[digits..])?;
        self.count_overhead(length, size)?;
        self.expected = match size {
            0 => Expected::Trailer,
            size => Expected::Data(size),
        };
        Ok(())
    }

    /// A line of 16 bytes is worth nothing said, and so are twice as many bytes as the chunk has:
    /// honest chunks of one byte add nothing.
    fn count_overhead(&mut self, line: usize, size: u64) -> Result<(), Refusal> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let usual = size.saturating_mul(2).saturating_add(16);
        let overhead = (usize::from(self.overhead) + line).saturating_sub(usual);
        if overhead > MOST_OVERHEAD {
            return Err(OVERHEAD);
        }
        self.overhead = overhead as u16;
        Ok(())
    }

    /// As much of a chunk's data as is there.
    fn data<'b>(&mut self, rest: &'b [u8], left: u64) -> &'b [u8] {
        let length = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
        self.expected = match left - length as u64 {
            0 => Expected::DataEnd,
            left => Expected::Data(left),
        };
        &rest[..length]
    }

    /// The CRLF behind the data: how many bytes it takes, if it is due and there.
    fn end_data(&mut self, rest: &[u8]) -> Result<Option<usize>, Refusal> {
        match (self.expected, rest) {
            (Expected::DataEnd, [b'\r', b'\n', ..]) => {
                self.expected = Expected::Size;
                Ok(Some(2))
            }
            (Expected::DataEnd, [] | [b'\r']) => Ok(None),
            (Expected::DataEnd, _) => Err(SPILLS),
            _ => Ok(None),
        }
    }
}

/// One to sixteen hexadecimal digits, and nothing else.
fn parse_size(digits: &[u8]) -> Result<u64, Refusal> {
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return Err(ODD_SIZE);
    }
    digits.iter().try_fold(0_u64, |size, digit| {
        let digit = char::from(*digit).to_digit(16).ok_or(ODD_SIZE)?;
        Ok(size << 4 | u64::from(digit))
    })
}

/// `;name` or `;name=value`, with printable bytes.
fn check_extensions(extensions: &[u8]) -> Result<(), Refusal> {
    let Some(rest) = extensions.strip_prefix(b";") else {
        return Ok(());
    };
    let name = rest.split(|byte| b"=;".contains(byte)).next();
    let is_named = name.is_some_and(|name| is_token(name.trim_ascii()));
    if !is_named || !rest.iter().all(|byte| is_text(*byte)) {
        return Err(ODD_EXTENSION);
    }
    Ok(())
}

/// A field line like those of a head.
fn check_trailer(line: &[u8]) -> Result<(), Refusal> {
    let colon = line.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or(ODD_TRAILER)?;
    if !is_token(&line[..colon]) || !line[colon + 1..].iter().all(|byte| is_text(*byte)) {
        return Err(ODD_TRAILER);
    }
    Ok(())
}

/// Whether a field value may have this byte (RFC 9110, 5.5).
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
