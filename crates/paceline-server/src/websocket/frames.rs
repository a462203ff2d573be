//! The frames of a client become messages.
//!
//! Payload is unmasked, checked and copied into the message as it comes, and the input keeps at
//! most one header or one control frame. So a message takes its own memory once, and each byte is
//! looked at once, or twice where a character is cut.

use super::{
    header::{Header, Opcode},
    outgoing::{Close, Outgoing},
    CloseCode,
};
use crate::codec::{Codec, Decoded, Malformed};

/// The frames of one client: the [`Codec`] of a WebSocket after its opening.
///
/// ```
/// use paceline_server::{codec::{Codec, Decoded}, websocket::{Frames, Incoming}};
///
/// let mut frames = Frames::default();
/// let input = [0x81, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2];
/// let decoded = frames.decode(&input, false)?;
/// assert_eq!(decoded, Decoded::Item { item: Incoming::Text("hi".into()), consumed: 8 });
/// # Ok::<_, paceline_server::codec::Malformed>(())
/// ```
#[derive(Clone, Debug)]
pub struct Frames {
    message_limit: usize,
    fragment_limit: usize,
    /// The kind of the message that has begun.
    kind: Option<Kind>,
    /// The data frame whose payload has not come whole.
    frame: Option<Payload>,
    /// The message so far.
    message: Vec<u8>,
    /// So many bytes of a text are known to be UTF-8.
    checked: usize,
    /// So many frames of the message have begun.
    fragments: usize,
    /// A close frame has come: what follows it is ignored.
    is_over: bool,
}

/// What a client has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming {
    /// A message of text.
    Text(String),
    /// A message of bytes.
    Binary(Vec<u8>),
    /// It wants a [`Pong`](Outgoing::Pong) with the same bytes.
    Ping(Vec<u8>),
    /// The answer to a ping, or an unasked sign of life.
    Pong(Vec<u8>),
    /// It sends nothing more. `None`: without a code.
    Close(Option<Close>),
    /// Bytes that complete no message: a part of one, or what follows a close. Nothing is to be
    /// done.
    Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
}

/// What is left of a data frame.
#[derive(Clone, Copy, Debug)]
struct Payload {
    left: u64,
    /// The mask, beginning with the byte for the next byte of payload.
    mask: [u8; 4],
    is_final: bool,
}

impl Default for Frames {
    /// Messages of at most 1 MiB, in at most 4,096 frames.
    fn default() -> Self {
        Self {
            message_limit: 1 << 20,
            fragment_limit: 4096,
            kind: None,
            frame: None,
            message: Vec::new(),
            checked: 0,
            fragments: 0,
            is_over: false,
        }
    }
}

impl Frames {
    /// The most bytes of one message. Default: 1 MiB.
    #[must_use]
    pub fn message_limit(mut self, bytes: usize) -> Self {
        self.message_limit = bytes;
        self
    }

    /// The most frames of one message. Default: 4,096.
    #[must_use]
    pub fn fragment_limit(mut self, frames: usize) -> Self {
        self.fragment_limit = frames;
        self
    }

    /// A frame begins.
    fn begin(&mut self, header: Header, input: &[u8]) -> Result<Decoded<Incoming>, Malformed> {
        if header.opcode.is_control() {
            return self.control(header, input);
        }
        self.begin_data(header)?;
        self.frame = Some(Payload {
            left: header.length,
            mask: header.mask,
            is_final: header.is_final,
        });
        let (item, consumed) = self.take_payload(&input[header.size..])?;
        Ok(Decoded::Item {
            item,
            consumed: header.size + consumed,
        })
    }

    /// A data frame begins: it must begin a message, or continue one.
    fn begin_data(&mut self, header: Header) -> Result<(), Malformed> {
        let begun = match header.opcode {
            Opcode::Text => Some(Kind::Text),
            Opcode::Binary => Some(Kind::Binary),
            _ => None,
        };
        match (self.kind, begun) {
            (None, Some(kind)) => self.kind = Some(kind),
            (Some(_), None) => {}
            (None, None) => return Err(Malformed::Invalid("no message is there to continue")),
            (Some(_), Some(_)) => {
                return Err(Malformed::Invalid("a message begins within another"))
            }
        }
        self.fragments += 1;
        let room = (self.message_limit - self.message.len()) as u64;
        if header.length > room || self.fragments > self.fragment_limit {
            return Err(Malformed::TooLong {
                limit: self.message_limit,
            });
        }
        Ok(())
    }

    /// Takes what has come of the data frame. The message, if it is whole; and how many bytes it
    /// took.
    fn take_payload(&mut self, input: &[u8]) -> Result<(Incoming, usize), Malformed> {
        let Some(mut frame) = self.frame.take() else {
            return Ok((Incoming::Part, 0));
        };
        let left = usize::try_from(frame.left).unwrap_or(usize::MAX);
        let count = left.min(input.len());
        let start = self.message.len();
        self.message.extend_from_slice(&input[..count]);
        unmask(&mut self.message[start..], frame.mask);
        frame.mask.rotate_left(count % 4);
        frame.left -= count as u64;
        if self.kind == Some(Kind::Text) {
            self.check_text()?;
        }
        let is_whole = frame.left == 0;
        if !is_whole {
            self.frame = Some(frame);
        }
        if is_whole && frame.is_final {
            Ok((self.end_message()?, count))
        } else {
            Ok((Incoming::Part, count))
        }
    }

    /// Checks the bytes of a text that are not known to be UTF-8. A character that is cut is fine
    /// so far.
    fn check_text(&mut self) -> Result<(), Malformed> {
        match std::str::from_utf8(&self.message[self.checked..]) {
            Ok(_) => self.checked = self.message.len(),
            Err(error) if error.error_len().is_some() => return Err(Malformed::NotUtf8),
            Err(error) => self.checked += error.valid_up_to(),
        }
        Ok(())
    }

    fn end_message(&mut self) -> Result<Incoming, Malformed> {
        let (message, kind) = (std::mem::take(&mut self.message), self.kind.take());
        (self.checked, self.fragments) = (0, 0);
        if kind == Some(Kind::Binary) {
            return Ok(Incoming::Binary(message));
        }
        // The end may have cut a character.
        let text = String::from_utf8(message).map_err(|_| Malformed::NotUtf8)?;
        Ok(Incoming::Text(text))
    }

    /// A control frame, which may come between the frames of a message.
    fn control(&mut self, header: Header, input: &[u8]) -> Result<Decoded<Incoming>, Malformed> {
        let consumed = header.size + header.length as usize;
        let Some(masked) = input.get(header.size..consumed) else {
            return Ok(Decoded::Incomplete);
        };
        let mut payload = masked.to_vec();
        unmask(&mut payload, header.mask);
        let item = match header.opcode {
            Opcode::Ping => Incoming::Ping(payload),
            Opcode::Pong => Incoming::Pong(payload),
            _ => {
                self.is_over = true;
                Incoming::Close(read_close(&payload)?)
            }
        };
        Ok(Decoded::Item { item, consumed })
    }
}

impl Codec for Frames {
    type Item<'b> = Incoming;

    fn decode(&mut self, input: &[u8], ended: bool) -> Result<Decoded<Incoming>, Malformed> {
        if self.is_over && !input.is_empty() {
            return Ok(Decoded::Item {
                item: Incoming::Part,
                consumed: input.len(),
            });
        }
        let decoded = if self.frame.is_some() && !input.is_empty() {
            let (item, consumed) = self.take_payload(input)?;
            Decoded::Item { item, consumed }
        } else {
            match Header::read(input)? {
                Some(header) => self.begin(header, input)?,
                None => Decoded::Incomplete,
            }
        };
        let is_cut = !input.is_empty() || self.is_within_message();
        if ended && is_cut && decoded == Decoded::Incomplete {
            return Err(Malformed::Truncated);
        }
        Ok(decoded)
    }

    fn is_within_message(&self) -> bool {
        self.kind.is_some()
    }

    /// Appends `payload` as one frame: text if it is UTF-8, and bytes otherwise.
    fn encode(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        Outgoing::of(payload).append(output)
    }
}

/// The code and the reason in a close frame.
fn read_close(payload: &[u8]) -> Result<Option<Close>, Malformed> {
    let Some((number, reason)) = payload.split_first_chunk::<2>() else {
        return match payload {
            [] => Ok(None),
            _ => Err(Malformed::Invalid("a close frame has half a code")),
        };
    };
    let code = CloseCode::new(u16::from_be_bytes(*number));
    let code = code.ok_or(Malformed::Invalid("a close frame has no valid code"))?;
    let reason = std::str::from_utf8(reason).map_err(|_| Malformed::NotUtf8)?;
    Ok(Some(Close::new(code, reason)))
}

/// Takes the mask off, eight bytes at a time.
fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut chunks = payload.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        let unmasked = u64::from_ne_bytes(bytes) ^ word;
        chunk.copy_from_slice(&unmasked.to_ne_bytes());
    }
    let rest = chunks.into_remainder().iter_mut();
    rest.zip(mask.iter().cycle())
        .for_each(|(byte, key)| *byte ^= key);
}
