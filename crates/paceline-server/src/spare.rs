//! Buffers of the thread, for bytes that are needed during one call: a short reply needs no memory of its own.
//!
//! ```text
//!   payload --frame--> FRAMED (--hold--> HELD) --encrypt--> RECORDS --> the system takes them, or the pool keeps a copy
//!   ciphertext --decrypt--> PLAINTEXT --> items; an unfinished rest goes to its connection
//! ```
//!
//! Each purpose has a buffer, because they are used at the same time. A call inside another one with the same purpose,
//! such as one in [`Peer::blocking`](crate::Peer::blocking), gets a buffer of its own.

use std::{cell::Cell, thread::LocalKey};

/// Longer output is handed over to the pool as a whole, which then keeps it without a copy.
pub(crate) const SHORT: usize = 4 * 1024;

/// The capacity of a new buffer: a short reply with its frame and its records fits.
const FIRST: usize = SHORT + 512;

/// A buffer that has grown beyond this is not kept.
const MOST: usize = 64 * 1024;

thread_local! {
    static FRAMED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static HELD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    #[cfg(feature = "_tls")]
    static RECORDS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static PLAINTEXT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `with` with an empty buffer for a framed reply.
pub(crate) fn with_framed<R>(with: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    lend(&FRAMED, with)
}

/// Calls `with` with an empty buffer for replies that leave together.
pub(crate) fn with_held<R>(with: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    lend(&HELD, with)
}

/// Calls `with` with an empty buffer for TLS records.
#[cfg(feature = "_tls")]
pub(crate) fn with_records<R>(with: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    lend(&RECORDS, with)
}

/// Calls `with` with an empty buffer for what TLS records hold.
pub(crate) fn with_plaintext<R>(with: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    lend(&PLAINTEXT, with)
}

fn lend<R>(spare: &'static LocalKey<Cell<Vec<u8>>>, with: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    // A thread that ends has no buffers any more.
    let mut buffer = spare.try_with(Cell::take).unwrap_or_default();
    if buffer.capacity() == 0 {
        buffer.reserve(FIRST);
    }
    let result = with(&mut buffer);
    if buffer.capacity() <= MOST {
        buffer.clear();
        let _ = spare.try_with(|spare| spare.set(buffer));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> usize {
        let buffer = FRAMED.take();
        let capacity = buffer.capacity();
        FRAMED.set(buffer);
        capacity
    }

    /// A reply must not begin with the bytes of the one before, and one long reply must not hold its memory for ever.
    #[test]
    fn a_buffer_is_lent_empty_and_kept_if_it_is_small() {
        with_framed(|buffer| buffer.extend_from_slice(b"one"));
        assert_eq!(kept(), FIRST);
        with_framed(|buffer| {
            assert_eq!(buffer, b"");
            with_framed(|inner| inner.push(1));
            assert_eq!(buffer, b"");
            buffer.resize(MOST + 1, 0);
        });
        assert!(kept() <= FIRST);
    }
}
