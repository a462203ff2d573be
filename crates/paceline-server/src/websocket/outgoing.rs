//! What a server sends: one frame for each message.

use super::{
    header::{self, Opcode, CONTROL_LIMIT},
    CloseCode,
};
use crate::codec::Malformed;

/// What a server sends as one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outgoing<'m> {
    /// A message of text.
    Text(&'m str),
    /// A message of bytes.
    Binary(&'m [u8]),
    /// Asks the client for a sign of life; at most 125 bytes.
    Ping(&'m [u8]),
    /// Answers a ping; at most 125 bytes.
    Pong(&'m [u8]),
    /// Nothing follows. `None`: without a code.
    Close(Option<&'m Close>),
}

impl<'m> Outgoing<'m> {
    /// A text if `payload` is UTF-8, and bytes otherwise.
    #[must_use]
    pub fn of(payload: &'m [u8]) -> Self {
        match std::str::from_utf8(payload) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Binary(payload),
        }
    }

    /// Appends the frame.
    ///
    /// # Errors
    /// `TooLong` for a ping or pong of more than 125 bytes: `output` is as it was.
    pub fn append(&self, output: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Text(text) => append(Opcode::Text, text.as_bytes(), output),
            Self::Binary(bytes) => append(Opcode::Binary, bytes, output),
            Self::Ping(bytes) => append_control(Opcode::Ping, bytes, output)?,
            Self::Pong(bytes) => append_control(Opcode::Pong, bytes, output)?,
            Self::Close(None) => append(Opcode::Close, &[], output),
            Self::Close(Some(close)) => append(Opcode::Close, &close.payload(), output),
        }
        Ok(())
    }

    /// The frame.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn to_vec(&self) -> Result<Vec<u8>, Malformed> {
        let mut frame = Vec::new();
        self.append(&mut frame)?;
        Ok(frame)
    }
}

fn append_control(opcode: Opcode, bytes: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
    if bytes.len() > CONTROL_LIMIT {
        return Err(Malformed::TooLong {
            limit: CONTROL_LIMIT,
        });
    }
    append(opcode, bytes, output);
    Ok(())
}

fn append(opcode: Opcode, bytes: &[u8], output: &mut Vec<u8>) {
    output.reserve(bytes.len() + 10);
    header::append(opcode, bytes.len(), output);
    output.extend_from_slice(bytes);
}

/// Why one side closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    code: CloseCode,
    reason: String,
}

impl Close {
    /// With this code, and as much of `reason` as a control frame has room for: 123 bytes.
    #[must_use]
    pub fn new(code: CloseCode, reason: &str) -> Self {
        let mut end = reason.len().min(CONTROL_LIMIT - 2);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            code,
            reason: reason[..end].to_owned(),
        }
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> CloseCode {
        self.code
    }

    /// The reason, for people.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    fn payload(&self) -> Vec<u8> {
        let mut payload = self.code.number().to_be_bytes().to_vec();
        payload.extend_from_slice(self.reason.as_bytes());
        payload
    }
}
