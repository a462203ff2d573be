//! No framing: everything that has arrived is one item.

use super::{Decoded, Message};

/// Delivers the whole input.
pub(super) fn decode(input: &[u8]) -> Decoded<Message<'_>> {
    if input.is_empty() {
        return Decoded::Incomplete;
    }
    Decoded::Item {
        item: Message::whole(input),
        consumed: input.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tunnel forwards bytes as they are: each read is an item, and nothing is ever left over.
    #[test]
    fn each_read_is_an_item() {
        let read = decode(b"a\nb");
        assert!(matches!(read, Decoded::Item { item, consumed: 3 } if item == "a\nb"));
        assert_eq!(decode(b""), Decoded::Incomplete);
    }
}
