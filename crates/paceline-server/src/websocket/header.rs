//! The header of a frame: two to fourteen bytes.
//!
//! ```text
//!   byte 0   FIN | RSV1 RSV2 RSV3 | opcode (4 bits)
//!   byte 1   MASK | length (7 bits); 126: two more bytes, 127: eight more
//!   then     the longer length, then the mask (4 bytes) if MASK is set
//! ```

use crate::codec::Malformed;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn of(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The most bytes of a control frame's payload.
pub(super) const CONTROL_LIMIT: usize = 125;

/// The header of a client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) opcode: Opcode,
    pub(super) is_final: bool,
    pub(super) mask: [u8; 4],
    pub(super) length: u64,
    /// How many bytes the header takes.
    pub(super) size: usize,
}

impl Header {
    /// The header at the start of `input`; `None` if it has not come whole. What is wrong is found
    /// at the first byte that shows it.
    pub(super) fn read(input: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(&first) = input.first() else {
            return Ok(None);
        };
        let opcode = check_first(first)?;
        let Some(&second) = input.get(1) else {
            return Ok(None);
        };
        if second & 0x80 == 0 {
            return Err(Malformed::Invalid("a client's frame is not masked"));
        }
        let short = second & 0x7f;
        if opcode.is_control() && usize::from(short) > CONTROL_LIMIT {
            return Err(Malformed::Invalid(
                "a control frame is longer than 125 bytes",
            ));
        }
        let Some((length, size)) = read_length(short, &input[2..])? else {
            return Ok(None);
        };
        let start = 2 + size;
        let Some(mask) = input.get(start..start + 4) else {
            return Ok(None);
        };
        Ok(Some(Self {
            opcode,
            is_final: first & 0x80 != 0,
            mask: [mask[0], mask[1], mask[2], mask[3]],
            length,
            size: start + 4,
        }))
    }
}

fn check_first(first: u8) -> Result<Opcode, Malformed> {
    if first & 0x70 != 0 {
        return Err(Malformed::Invalid("a reserved bit is set"));
    }
    let opcode = Opcode::of(first & 0x0f).ok_or(Malformed::Invalid("an opcode is reserved"))?;
    if opcode.is_control() && first & 0x80 == 0 {
        return Err(Malformed::Invalid("a control frame is fragmented"));
    }
    Ok(opcode)
}

/// The length, and how many bytes it takes behind the second one.
fn read_length(short: u8, rest: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    match short {
        126 => {
            let Some(bytes) = rest.first_chunk::<2>() else {
                return Ok(None);
            };
            let length = u64::from(u16::from_be_bytes(*bytes));
            check_is_shortest(length >= 126)?;
            Ok(Some((length, 2)))
        }
        127 => {
            let Some(bytes) = rest.first_chunk::<8>() else {
                return Ok(None);
            };
            let length = u64::from_be_bytes(*bytes);
            check_is_shortest(length > u64::from(u16::MAX))?;
            if length >> 63 != 0 {
                return Err(Malformed::Invalid("the highest bit of a length is set"));
            }
            Ok(Some((length, 8)))
        }
        short => Ok(Some((u64::from(short), 0))),
    }
}

fn check_is_shortest(is_shortest: bool) -> Result<(), Malformed> {
    if is_shortest {
        Ok(())
    } else {
        Err(Malformed::Invalid("a length is not in its shortest form"))
    }
}

/// Appends the header of a server's frame, which is final and not masked.
pub(super) fn append(opcode: Opcode, length: usize, output: &mut Vec<u8>) {
    output.push(0x80 | opcode.bits());
    match length {
        0..=125 => output.push(length as u8),
        126..=0xffff => {
            output.push(126);
            output.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            output.push(127);
            output.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}
