//! The fields of a message.

use crate::Malformed;

/// Reads the fields of a body one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'b>(&'b [u8]);

const SHORT: Malformed = Malformed::new("the message ends within a field");

impl<'b> Fields<'b> {
    pub(crate) fn new(body: &'b [u8]) -> Self {
        Self(body)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number of fields that follow. PostgreSQL sends these as 16 bits without a sign.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        self.array().map(u16::from_be_bytes).map(usize::from)
    }

    /// The bytes before the next zero byte.
    pub(crate) fn text(&mut self) -> Result<&'b [u8], Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Malformed::new("a text has no zero byte at its end"))?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    /// A value behind its length; `None` for NULL.
    pub(crate) fn value(&mut self) -> Result<Option<&'b [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length);
                let length = length.map_err(|_| Malformed::new("a value has a negative length"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }

    /// Checks that no byte is left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed::new("bytes follow the last field"))
        }
    }
}

/// Several integers of 32 bits, such as the types of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integers<'b>(&'b [u8]);

impl<'b> Integers<'b> {
    pub(crate) fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let count = fields.count()?;
        fields.bytes(4 * count).map(Self)
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + 'b {
        let chunks = self.0.chunks_exact(4);
        chunks.map(|chunk| u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
    }
}

/// How values are written: for each one, for all, or all as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats<'b>(&'b [u8]);

impl<'b> Formats<'b> {
    /// Reads as many formats as the message says; each is 0 (text) or 1 (binary).
    pub(crate) fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let count = fields.count()?;
        let formats = fields.bytes(2 * count)?;
        if formats
            .chunks_exact(2)
            .all(|format| matches!(format, [0, 0 | 1]))
        {
            Ok(Self(formats))
        } else {
            Err(Malformed::new("a format other than text and binary"))
        }
    }

    /// How many the message has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Whether the message has none: all values are text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the value at `index` is binary. One format applies to all values; none means text.
    #[must_use]
    pub fn is_binary(&self, index: usize) -> bool {
        let index = if self.len() == 1 { 0 } else { index };
        self.0.get(2 * index + 1) == Some(&1)
    }
}

/// The values of a row or of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<'b> {
    count: usize,
    bytes: &'b [u8],
}

impl<'b> Values<'b> {
    /// Reads as many values as the message says, and checks all of them.
    pub(crate) fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let count = fields.count()?;
        let start = *fields;
        for _ in 0..count {
            fields.value()?;
        }
        let length = start.0.len() - fields.0.len();
        Ok(Self {
            count,
            bytes: &start.0[..length],
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each value; `None` for NULL.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'b [u8]>> + 'b {
        let mut fields = Fields::new(self.bytes);
        // `read` has checked each of them.
        (0..self.count).map_while(move |_| fields.value().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer may send any count or length: none may reach behind the end of the message.
    #[test]
    fn a_field_ends_within_its_message() {
        assert!(Fields::new(&[0, 1]).i32().is_err());
        assert!(Fields::new(b"abc").text().is_err());
        assert!(Fields::new(&[0, 0, 0, 9, 1]).value().is_err());
        assert!(Fields::new(&[0xff, 0xff, 0xff, 0xfe]).value().is_err());
        assert!(Integers::read(&mut Fields::new(&[0xff, 0xff, 0, 0, 0, 1])).is_err());
        assert!(Formats::read(&mut Fields::new(&[0, 1, 0, 2])).is_err());
        assert!(Values::read(&mut Fields::new(&[0, 2, 0, 0, 0, 0])).is_err());
        assert!(Fields::new(b"x").end().is_err());
    }

    #[test]
    fn values_and_formats_are_read() {
        let body = [0, 3, 0, 0, 0, 1, b'a', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let mut fields = Fields::new(&body);
        let values = Values::read(&mut fields).expect("three values");
        let all: Vec<_> = values.iter().collect();
        assert_eq!(all, [Some(&b"a"[..]), None, Some(&b""[..])]);
        assert_eq!(fields.end(), Ok(()));
        let one = Formats::read(&mut Fields::new(&[0, 1, 0, 1])).expect("one format");
        assert!(one.is_binary(0) && one.is_binary(7));
        let two = Formats::read(&mut Fields::new(&[0, 2, 0, 1, 0, 0])).expect("two formats");
        assert!(two.is_binary(0) && !two.is_binary(1) && !two.is_binary(2));
    }
}
