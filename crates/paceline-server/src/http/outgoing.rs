//! An answer on its way: its head, and its body in parts, each when the client has taken the last.

use std::{
    cell::RefCell,
    io::{self, IoSlice, Read},
    os::unix::fs::FileExt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::StatusCode;
use paceline::Next;

use super::{
    content::Source,
    protocol::{BodyLength, HttpCodec, Persistence, ResponseHead, Version},
    session::Asked,
    Content, Response,
};
use crate::{peer::Peer, wire::FileSent};

/// A body of at most this length is copied behind its head.
const SHORT: usize = 16 * 1024;
/// How much is sent before the answers of one turn are complete.
pub(super) const FULL: usize = 16 * 1024;
/// One part of a long body.
const PART: usize = 64 * 1024;
/// The line of a chunk's size, and the ends of chunks.
const BESIDE_PART: usize = 16;
/// So much of a file the system may send in one call.
const FILE_PART: usize = 256 * 1024;
/// So many parts before other connections have their turn.
const PARTS_PER_TURN: usize = 4;
/// The size of a chunk, written with a fixed width, and its line end.
const SIZE_LINE: usize = 7;

/// The body of an answer on its way.
pub(super) struct Outgoing {
    content: Content,
    /// What was read of it, and is not sent.
    part: Vec<u8>,
    /// So much of the bytes, or of the part, is sent.
    at: usize,
    /// How much is to come, if that is known.
    left: Option<u64>,
    /// The content has said that it has no further part.
    has_ended: bool,
    is_chunked: bool,
    persistence: Persistence,
}

/// What became of a turn of a file.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileTurn {
    /// The system has sent some of it.
    Sent,
    /// Output is kept that comes before it.
    Kept,
    /// A part must be written: there is no file, or the system takes nothing. What is written then
    /// is kept, and its end calls for the rest.
    Write,
}

/// Appends an answer to `output`. What is left of it, if it is long.
pub(super) fn begin(
    response: Response,
    asked: Asked,
    persistence: Persistence,
    output: &mut Vec<u8>,
) -> Option<Box<Outgoing>> {
    let length = body_length(&response, asked);
    // Without a length and without chunks, only the end of the connection ends the body.
    let persistence = match length {
        BodyLength::UntilClose => Persistence::Closed,
        _ => persistence,
    };
    write_head(&response, asked, length, persistence, output);
    if asked.is_head || length == BodyLength::Nothing || length == BodyLength::Known(0) {
        return None;
    }
    if response.content.is_bytes() && response.content.bytes().len() <= SHORT {
        output.extend_from_slice(response.content.bytes());
        return None;
    }
    Some(Box::new(Outgoing {
        left: response.content.length(),
        has_ended: false,
        content: response.content,
        part: Vec::new(),
        at: 0,
        is_chunked: length == BodyLength::Chunked,
        persistence,
    }))
}

/// Appends the head of an answer behind which the connection is no HTTP any more.
pub(super) fn begin_upgrade(response: &Response, asked: Asked, output: &mut Vec<u8>) {
    let persistence = if response.closes {
        Persistence::Closed
    } else {
        Persistence::Kept
    };
    write_head(response, asked, BodyLength::UntilClose, persistence, output);
}

fn write_head(
    response: &Response,
    asked: Asked,
    length: BodyLength,
    persistence: Persistence,
    output: &mut Vec<u8>,
) {
    DATE.with_borrow_mut(|date| {
        ResponseHead {
            status: response.status,
            version: asked.version,
            length,
            persistence,
            date: date.now(),
            content_type: response.content_type.as_ref(),
            fields: &response.fields,
        }
        .write(output);
    });
}

fn body_length(response: &Response, asked: Asked) -> BodyLength {
    match (response.status, response.content.length()) {
        (StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED, _) => BodyLength::Nothing,
        (StatusCode::RESET_CONTENT, _) => BodyLength::Known(0),
        (_, Some(length)) => BodyLength::Known(length),
        (_, None) if asked.version == Version::Http11 => BodyLength::Chunked,
        (_, None) => BodyLength::UntilClose,
    }
}

impl Outgoing {
    pub(super) fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Sends `output` and further parts. `Continue` says that all of it is sent or kept.
    ///
    /// # Errors
    /// The content fails, or has fewer bytes than it said: the connection is cut, so that the
    /// client does not take the part for the whole.
    pub(super) fn pump(
        &mut self,
        output: &mut Vec<u8>,
        cx: &mut Peer<'_, HttpCodec>,
    ) -> io::Result<Next> {
        for turn in 0..PARTS_PER_TURN {
            let has_room = turn == 0 || cx.output_room() > output.len() + PART;
            if cx.unsent() > 0 || !has_room {
                flush(output, cx)?;
                return Ok(Next::Again);
            }
            match self.send_file(output, cx)? {
                FileTurn::Sent => continue,
                FileTurn::Kept => return Ok(Next::Again),
                FileTurn::Write => {}
            }
            if self.is_at_end(cx)? {
                if self.is_chunked {
                    output.extend_from_slice(b"0\r\n\r\n");
                }
                flush(output, cx)?;
                return Ok(Next::Continue);
            }
            self.send_part(output, cx)?;
        }
        Ok(Next::Again)
    }

    /// Has the system send more of a file.
    fn send_file(
        &mut self,
        output: &mut Vec<u8>,
        cx: &mut Peer<'_, HttpCodec>,
    ) -> io::Result<FileTurn> {
        let (Source::File(file, offset, _), Some(left @ 1..)) = (&mut self.content.0, self.left)
        else {
            return Ok(FileTurn::Write);
        };
        if self.at < self.part.len() {
            return Ok(FileTurn::Write);
        }
        flush(output, cx)?;
        if cx.unsent() > 0 {
            return Ok(FileTurn::Kept);
        }
        let count = usize::try_from(left).map_or(FILE_PART, |left| left.min(FILE_PART));
        let FileSent::Some(sent @ 1..) = cx.send_file(file, offset, count)? else {
            return Ok(FileTurn::Write);
        };
        self.left = Some(left.saturating_sub(sent as u64));
        Ok(FileTurn::Sent)
    }

    /// Whether all is sent. Otherwise there is a part.
    fn is_at_end(&mut self, cx: &mut Peer<'_, HttpCodec>) -> io::Result<bool> {
        if self.left == Some(0) {
            return Ok(true);
        }
        if self.content.is_bytes() || self.at < self.part.len() {
            return Ok(false);
        }
        self.at = 0;
        self.part.clear();
        let (part, left) = (&mut self.part, self.left);
        if !self.has_ended {
            let source = &mut self.content.0;
            self.has_ended = !cx.blocking(|| next_part(source, left, part))?;
        }
        match (self.part.is_empty(), left) {
            (true, Some(left)) => {
                let text = format!("send an answer: its content ended {left} bytes early");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
            }
            (is_empty, _) => Ok(is_empty),
        }
    }

    /// Sends what is in `output`, and the next bytes behind it.
    fn send_part(&mut self, output: &mut Vec<u8>, cx: &mut Peer<'_, HttpCodec>) -> io::Result<()> {
        let bytes = if self.content.is_bytes() {
            self.content.bytes()
        } else {
            &self.part
        };
        let bytes = &bytes[self.at..];
        let room = cx.output_room().saturating_sub(output.len() + BESIDE_PART);
        let bytes = &bytes[..bytes.len().min(PART).min(room.max(1))];
        let end = if self.is_chunked {
            write_size(output, bytes.len());
            &b"\r\n"[..]
        } else {
            b""
        };
        let slices = [output.as_slice(), bytes, end].map(IoSlice::new);
        cx.write_all_vectored(&slices)?;
        self.at += bytes.len();
        self.left = self
            .left
            .map(|left| left.saturating_sub(bytes.len() as u64));
        recycle(output);
        Ok(())
    }
}

/// The line of a chunk's size.
fn write_size(output: &mut Vec<u8>, size: usize) {
    use std::io::Write;
    let before = output.len();
    // A vector takes everything.
    let _ = write!(output, "{size:05x}\r\n");
    debug_assert_eq!(output.len() - before, SIZE_LINE);
}

/// Reads the next part of a content that is no bytes, at most `left` of them. Whether there may be
/// another one.
fn next_part(source: &mut Source, left: Option<u64>, part: &mut Vec<u8>) -> io::Result<bool> {
    match source {
        Source::Reader(reader, _) => {
            let left = left.and_then(|left| usize::try_from(left).ok());
            part.resize(left.map_or(PART, |left| left.min(PART)), 0);
            let count = loop {
                match reader.read(part) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other?,
                }
            };
            part.truncate(count);
            Ok(count > 0)
        }
        Source::File(file, offset, _) => {
            let left = left.and_then(|left| usize::try_from(left).ok());
            part.resize(left.map_or(PART, |left| left.min(PART)), 0);
            let count = loop {
                match file.read_at(part, *offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other?,
                }
            };
            *offset += count as u64;
            part.truncate(count);
            Ok(count > 0)
        }
        Source::Pieces(next) => loop {
            let has_more = next(part)?;
            if !has_more || !part.is_empty() {
                return Ok(has_more);
            }
        },
        _ => Ok(false),
    }
}

/// Sends what `output` holds.
pub(super) fn flush(output: &mut Vec<u8>, cx: &mut Peer<'_, HttpCodec>) -> io::Result<()> {
    let sent = if output.is_empty() {
        Ok(())
    } else {
        cx.write_all(output)
    };
    recycle(output);
    sent
}

thread_local! {
    /// A buffer for the answers of one turn: an idle connection has none.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static DATE: RefCell<Date> = const { RefCell::new(Date { second: 0, text: String::new() }) };
}

/// Takes this thread's buffer, if `output` has no memory.
pub(super) fn prepare(output: &mut Vec<u8>) {
    if output.capacity() == 0 {
        *output = SPARE.take();
    }
}

/// Empties `output`, and gives its memory to the thread.
fn recycle(output: &mut Vec<u8>) {
    output.clear();
    if output.capacity() == 0 {
        // The thread keeps what it has.
    } else if output.capacity() <= 4 * FULL {
        SPARE.set(std::mem::take(output));
    } else {
        *output = Vec::new();
    }
}

/// The date of the present second.
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> &str {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let second = now.unwrap_or_default().as_secs();
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        &self.text
    }
}
