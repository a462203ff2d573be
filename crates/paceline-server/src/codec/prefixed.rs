//! Items behind their length, which has a fixed width.

use super::{check_length, unfinished, Decoded, Malformed, Message};

/// The integers that [`prefixed()`](super::prefixed()) and [`prefixed_le`](super::prefixed_le) take
/// as a prefix: `u8`, `u16` and `u32`.
pub trait Prefix: sealed::Width {}

impl Prefix for u8 {}
impl Prefix for u16 {}
impl Prefix for u32 {}

/// Keeps other crates from adding a prefix.
mod sealed {
    /// How many bytes the prefix has.
    pub trait Width {
        /// At most four.
        const BYTES: usize;
    }

    impl Width for u8 {
        const BYTES: usize = 1;
    }
    impl Width for u16 {
        const BYTES: usize = 2;
    }
    impl Width for u32 {
        const BYTES: usize = 4;
    }
}

/// Which byte of a prefix is the first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// The most significant one.
    Big,
    /// The least significant one.
    Little,
}

/// Items behind a length of fixed width.
#[derive(Clone, Debug)]
pub(super) struct Prefixed {
    /// How many bytes the prefix has.
    width: usize,
    /// In which order.
    order: Order,
    /// The longest payload, at most the largest length the prefix can express.
    limit: usize,
    /// The length of the payload, once the prefix has arrived.
    length: Option<usize>,
}

impl Prefixed {
    /// For payloads of at most `limit` bytes.
    pub(super) fn new<T: Prefix>(order: Order, limit: usize) -> Self {
        let largest = u32::MAX >> (32 - 8 * T::BYTES);
        Prefixed {
            width: T::BYTES,
            order,
            limit: limit.min(usize::try_from(largest).unwrap_or(usize::MAX)),
            length: None,
        }
    }

    /// Takes the payload that the prefix announces.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        ended: bool,
    ) -> Result<Decoded<Message<'b>>, Malformed> {
        if self.length.is_none() && input.len() >= self.width {
            self.length = Some(self.read(&input[..self.width])?);
        }
        let Some(decoded) = self.length.and_then(|it| payload(input, self.width, it)) else {
            return unfinished(input, ended);
        };
        self.length = None;
        Ok(decoded)
    }

    /// The length that a prefix announces.
    fn read(&self, prefix: &[u8]) -> Result<usize, Malformed> {
        let push = |length: u32, byte: &u8| length << 8 | u32::from(*byte);
        let length = match self.order {
            Order::Big => prefix.iter().fold(0, push),
            Order::Little => prefix.iter().rev().fold(0, push),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        check_length(length, self.limit)?;
        Ok(length)
    }

    /// Appends the length and the payload.
    pub(super) fn append(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        check_length(payload.len(), self.limit)?;
        let length = payload.len() as u64;
        match self.order {
            Order::Big => output.extend_from_slice(&length.to_be_bytes()[8 - self.width..]),
            Order::Little => output.extend_from_slice(&length.to_le_bytes()[..self.width]),
        }
        output.extend_from_slice(payload);
        Ok(())
    }
}

/// The item behind a prefix of `width` bytes, if all `length` bytes of it have arrived.
pub(super) fn payload(input: &[u8], width: usize, length: usize) -> Option<Decoded<Message<'_>>> {
    let payload = input[width..].get(..length)?;
    Some(Decoded::Item {
        item: Message::whole(payload),
        consumed: width + length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(payload: &[u8], consumed: usize) -> Result<Decoded<Message<'_>>, Malformed> {
        let item = Message::whole(payload);
        Ok(Decoded::Item { item, consumed })
    }

    fn big<T: Prefix>(limit: usize) -> Prefixed {
        Prefixed::new::<T>(Order::Big, limit)
    }

    /// The same payload behind a length of each width, in both orders.
    #[test]
    fn a_prefix_announces_its_payload() {
        assert_eq!(big::<u8>(9).decode(b"\x02abc", false), item(b"ab", 3));
        assert_eq!(big::<u16>(9).decode(b"\0\x02abc", false), item(b"ab", 4));
        assert_eq!(big::<u32>(9).decode(b"\0\0\0\x02ab", false), item(b"ab", 6));
        let mut little = Prefixed::new::<u32>(Order::Little, 9);
        assert_eq!(little.decode(b"\x02\0\0\0ab", false), item(b"ab", 6));
        assert_eq!(little.decode(b"\0\0\0\0", false), item(b"", 4));
    }

    /// A peer announces four gigabytes: it is refused before the server waits for one of them.
    #[test]
    fn a_long_payload_is_refused_by_its_prefix() {
        let long = Err(Malformed::TooLong { limit: 9 });
        assert_eq!(big::<u32>(9).decode(b"\xff\xff\xff\xff", false), long);
        assert_eq!(big::<u32>(9).decode(b"\0\0\0\x0a", false), long);
        let mut little = Prefixed::new::<u16>(Order::Little, 9);
        assert_eq!(little.decode(b"\x09\x01", false), long);
        assert_eq!(
            big::<u32>(9).decode(b"\0\0\0", false),
            Ok(Decoded::Incomplete)
        );
    }

    /// A payload arrives byte by byte: the prefix is read once.
    #[test]
    fn a_prefix_is_read_once() {
        let input = b"\0\x03abc";
        let mut codec = big::<u16>(9);
        for length in 0..input.len() {
            let answer = codec.decode(&input[..length], false);
            assert_eq!(answer, Ok(Decoded::Incomplete));
            assert_eq!(codec.length, (length >= 2).then_some(3));
        }
        assert_eq!(codec.decode(input, true), item(b"abc", 5));
        assert_eq!(codec.length, None);
    }

    /// The input may end between two items only.
    #[test]
    fn a_partial_item_is_truncated() {
        let truncated = Err(Malformed::Truncated);
        assert_eq!(big::<u16>(9).decode(b"\0", true), truncated);
        assert_eq!(big::<u16>(9).decode(b"\0\x02a", true), truncated);
        assert_eq!(big::<u16>(9).decode(b"", true), Ok(Decoded::Incomplete));
    }

    /// A limit beyond what the prefix can express must not lead to a length that is cut off.
    #[test]
    fn the_prefix_bounds_the_limit() {
        let codec = big::<u8>(1000);
        let mut output = Vec::new();
        assert_eq!(codec.append(&[0; 255], &mut output), Ok(()));
        assert_eq!(output[0], 255);
        let long = Err(Malformed::TooLong { limit: 255 });
        assert_eq!(codec.append(&[0; 256], &mut output), long);
        assert_eq!(big::<u32>(usize::MAX).limit, 0xffff_ffff);
    }

    /// The prefix has its width and its order in the output, too.
    #[test]
    fn an_encoded_item_has_its_prefix() {
        let mut output = Vec::new();
        let payload = [b'x'; 0x102];
        big::<u32>(999).append(&payload, &mut output).unwrap();
        assert_eq!(output[..5], *b"\0\0\x01\x02x");
        output.clear();
        let little = Prefixed::new::<u16>(Order::Little, 999);
        little.append(&payload, &mut output).unwrap();
        assert_eq!(output[..3], *b"\x02\x01x");
    }
}
