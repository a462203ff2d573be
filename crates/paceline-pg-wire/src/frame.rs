//! Where messages begin and end in a stream of bytes.

use crate::Malformed;

/// The first five bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the message.
    pub tag: u8,
    /// How many bytes follow the header.
    pub body: usize,
}

impl Header {
    /// How many bytes a header has.
    pub const LENGTH: usize = 5;

    /// The header at the start of `input`; `None` if it is not whole.
    ///
    /// # Errors
    /// [`Malformed`] if the length of the message can't be.
    pub fn first(input: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some((&[tag, a, b, c, d], _)) = input.split_first_chunk() else {
            return Ok(None);
        };
        // The length counts itself, but not the tag.
        let length = i32::from_be_bytes([a, b, c, d]);
        let body = length
            .checked_sub(4)
            .and_then(|body| usize::try_from(body).ok());
        match body {
            Some(body) => Ok(Some(Self { tag, body })),
            None => Err(Malformed::new("the length of a message is less than 4")),
        }
    }

    /// The length of the message with its header.
    #[must_use]
    pub fn message(self) -> usize {
        Self::LENGTH + self.body
    }
}

/// A whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// Its type.
    pub tag: u8,
    /// What follows the header.
    pub body: &'b [u8],
}

impl<'b> Message<'b> {
    /// The message at the start of `input`, and its length with the header; `None` if it is not
    /// whole.
    ///
    /// # Errors
    /// [`Malformed`] if the message is longer than `limit`, or its length can't be.
    pub fn first(input: &'b [u8], limit: usize) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(header) = Header::first(input)? else {
            return Ok(None);
        };
        if header.message() > limit {
            return Err(TOO_LONG);
        }
        let body = input.get(Header::LENGTH..header.message());
        let tag = header.tag;
        Ok(body.map(|body| (Self { tag, body }, header.message())))
    }
}

const TOO_LONG: Malformed = Malformed::new("the message is longer than the limit");

/// How much of a message a reader needs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All of it at once.
    Whole,
    /// This many bytes of its body at once, or all of it if it is shorter; then any pieces.
    First(usize),
    /// Pieces of any size: the reader passes the bytes on.
    Pieces,
}

/// A part of a stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'b> {
    /// A whole message.
    Message(Message<'b>),
    /// The start of a message that arrives in pieces, with its header.
    Begin {
        /// Its header.
        header: Header,
        /// Its bytes so far, with the header.
        bytes: &'b [u8],
    },
    /// The next bytes of a message that arrives in pieces.
    More {
        /// These bytes.
        bytes: &'b [u8],
        /// Whether the message ends here.
        is_last: bool,
    },
    /// The rest of the input is no whole message: call again with the same bytes and more behind
    /// them.
    Incomplete,
}

/// Walks over a stream of messages. Its only state is the remaining length of the present one.
///
/// ```
/// use paceline_pg_wire::{Need, Step, Walk};
///
/// let mut walk = Walk::new(1 << 20);
/// // The last two bytes of this data row have not arrived: its start is passed on at once.
/// let row = b"D\0\0\0\x0aabcd";
/// let (step, length) = walk.step(row, |_| Need::Pieces)?;
/// assert!(matches!(step, Step::Begin { bytes, .. } if bytes == row) && length == 9);
/// let (step, length) = walk.step(b"efZ\0\0\0\x05I", |_| Need::Whole)?;
/// assert!(matches!(step, Step::More { bytes: b"ef", is_last: true }) && length == 2);
/// assert!(walk.is_between_messages());
/// # Ok::<(), paceline_pg_wire::Malformed>(())
/// ```
#[derive(Clone, Debug)]
pub struct Walk {
    /// The longest message that a reader may need as a whole.
    limit: usize,
    /// The remaining bytes of the present message.
    rest: usize,
}

impl Walk {
    /// Messages that are needed whole may have `limit` bytes. Others may have any length.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, rest: 0 }
    }

    /// The next part of the stream, and how many bytes of `input` it takes. It calls
    /// `need` at the start of each message, and again after [`Incomplete`](Step::Incomplete).
    ///
    /// # Errors
    /// [`Malformed`] if the length of a message can't be, or if it is needed whole and too long.
    pub fn step<'b>(
        &mut self,
        input: &'b [u8],
        need: impl FnOnce(Header) -> Need,
    ) -> Result<(Step<'b>, usize), Malformed> {
        if self.rest > 0 {
            return Ok(self.continue_message(input));
        }
        let Some(header) = Header::first(input)? else {
            return Ok((Step::Incomplete, 0));
        };
        let body = input.get(Header::LENGTH..header.message());
        match (need(header), body) {
            (Need::Whole, _) if header.message() > self.limit => Err(TOO_LONG),
            (_, Some(body)) => {
                let tag = header.tag;
                Ok((Step::Message(Message { tag, body }), header.message()))
            }
            (Need::Whole, None) => Ok((Step::Incomplete, 0)),
            (Need::First(least), None) if input.len() - Header::LENGTH < least => {
                Ok((Step::Incomplete, 0))
            }
            (Need::First(_) | Need::Pieces, None) => {
                self.rest = header.message() - input.len();
                let bytes = input;
                Ok((Step::Begin { header, bytes }, bytes.len()))
            }
        }
    }

    /// Takes the next bytes of the present message.
    fn continue_message<'b>(&mut self, input: &'b [u8]) -> (Step<'b>, usize) {
        if input.is_empty() {
            return (Step::Incomplete, 0);
        }
        let bytes = &input[..input.len().min(self.rest)];
        self.rest -= bytes.len();
        let is_last = self.rest == 0;
        (Step::More { bytes, is_last }, bytes.len())
    }

    /// How many bytes of the present message are to come.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.rest
    }

    /// Whether the stream is at the end of a message.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.rest == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length of less than 4 would make a reader walk backwards, or for ever.
    #[test]
    fn a_length_that_can_not_be_is_refused() {
        for length in [[0, 0, 0, 3], [0, 0, 0, 0], [0xff; 4], [0x80, 0, 0, 0]] {
            let input = [&b"Q"[..], &length].concat();
            assert!(Header::first(&input).is_err(), "{length:?}");
        }
        let header = Header { tag: b'S', body: 0 };
        assert_eq!(Header::first(b"S\0\0\0\x04"), Ok(Some(header)));
    }

    /// A reader that needs a whole message must not wait for more than it may keep.
    #[test]
    fn only_what_is_needed_whole_has_a_limit() {
        let input = b"Q\0\0\x10\0abc";
        let mut walk = Walk::new(100);
        assert_eq!(walk.step(input, |_| Need::Whole), Err(TOO_LONG));
        let all = [&b"Q\0\0\0\x65"[..], &[b'x'; 97]].concat();
        assert_eq!(walk.step(&all, |_| Need::Whole), Err(TOO_LONG));
        let (step, length) = walk.step(input, |_| Need::Pieces).expect("it may be long");
        assert!(matches!(step, Step::Begin { .. }) && length == input.len());
        assert!(!walk.is_between_messages());
    }

    /// A reader that needs the names at the start of a message gets them in one piece.
    #[test]
    fn the_first_bytes_of_a_long_message_come_at_once() {
        let input = b"B\0\0\x10\0portal\0name\0values";
        let mut walk = Walk::new(100);
        let step = walk.step(&input[..16], |_| Need::First(12));
        assert_eq!(step, Ok((Step::Incomplete, 0)));
        let (step, length) = walk
            .step(&input[..17], |_| Need::First(12))
            .expect("it is good");
        assert!(matches!(step, Step::Begin { .. }) && length == 17);
        let mut walk = Walk::new(100);
        let short = b"S\0\0\0\x04";
        let (step, _) = walk.step(short, |_| Need::First(12)).expect("it is good");
        assert!(matches!(step, Step::Message(_)));
    }

    /// Every way to cut a stream gives the same messages.
    #[test]
    fn a_stream_may_be_cut_anywhere() {
        let stream = b"D\0\0\0\x08abcdZ\0\0\0\x05ID\0\0\0\x04";
        for cut in 0..=stream.len() {
            let mut walk = Walk::new(100);
            let (mut passed, mut seen) = (Vec::new(), Vec::new());
            let mut input = Vec::new();
            for piece in [&stream[..cut], &stream[cut..]] {
                input.extend_from_slice(piece);
                loop {
                    let need = |header: Header| match header.tag {
                        b'D' => Need::Pieces,
                        _ => Need::Whole,
                    };
                    let (step, length) = walk.step(&input, need).expect("a good stream");
                    match step {
                        Step::Message(message) => seen.push(message.tag),
                        Step::Begin { header, .. } => seen.push(header.tag),
                        Step::More { .. } => {}
                        Step::Incomplete => break,
                    }
                    passed.extend(input.drain(..length));
                }
            }
            assert_eq!(
                (passed.as_slice(), seen.as_slice()),
                (&stream[..], &b"DZD"[..])
            );
        }
    }
}
