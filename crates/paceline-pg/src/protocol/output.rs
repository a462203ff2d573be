//! The output of a relay. Bytes that pass unchanged stay in the caller's input.

/// Collects bytes for both sides.
///
/// A call returns how many bytes at the start of its input pass unchanged (`direct`). The caller
/// sends these from its own buffer, and what was appended here behind them.
#[derive(Debug)]
pub struct Output<'v> {
    /// Bytes for the server.
    pub to_server: &'v mut Vec<u8>,
    /// Bytes for the client.
    pub to_client: &'v mut Vec<u8>,
}

/// One direction of one call: takes the input from its start to its end.
#[derive(Debug)]
pub(super) struct Stream<'i, 'v> {
    input: &'i [u8],
    /// How many bytes of the input are taken.
    taken: usize,
    /// How many bytes at the start of the input pass unchanged.
    direct: usize,
    /// Whether bytes were due before the input: then nothing can be direct.
    is_behind: bool,
    /// What is sent behind the direct bytes.
    copied: &'v mut Vec<u8>,
}

impl<'i, 'v> Stream<'i, 'v> {
    pub(super) fn new(input: &'i [u8], copied: &'v mut Vec<u8>) -> Self {
        Self {
            input,
            taken: 0,
            direct: 0,
            is_behind: !copied.is_empty(),
            copied,
        }
    }

    /// The bytes that are not taken yet.
    pub(super) fn rest(&self) -> &'i [u8] {
        &self.input[self.taken..]
    }

    /// Takes the next bytes, and sends them as they are.
    pub(super) fn pass(&mut self, count: usize) {
        if !self.is_behind && self.copied.is_empty() && self.direct == self.taken {
            self.direct += count;
        } else {
            let bytes = &self.input[self.taken..self.taken + count];
            self.copied.extend_from_slice(bytes);
        }
        self.taken += count;
    }

    /// Takes the next bytes, and sends nothing.
    pub(super) fn skip(&mut self, count: usize) {
        self.taken += count;
    }

    /// The buffer for bytes that are sent here and are not in the input.
    pub(super) fn insert(&mut self) -> &mut Vec<u8> {
        self.copied
    }

    /// Copies the direct bytes before the other output, for a call that can't report their number.
    pub(super) fn copy_direct(&mut self) {
        let direct = &self.input[..std::mem::take(&mut self.direct)];
        self.copied.splice(0..0, direct.iter().copied());
        self.is_behind = true;
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn direct(&self) -> usize {
        self.direct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output is the input without the skipped bytes, with the inserted ones in their place.
    #[test]
    fn direct_bytes_come_before_copied_ones() {
        let mut copied = Vec::new();
        let mut stream = Stream::new(b"aabbccdd", &mut copied);
        stream.pass(2);
        stream.skip(2);
        assert_eq!((stream.direct(), stream.taken()), (2, 4));
        stream.pass(2);
        stream.insert().push(b'!');
        stream.pass(2);
        assert_eq!((stream.direct(), stream.taken()), (2, 8));
        stream.copy_direct();
        assert_eq!(stream.direct(), 0);
        assert_eq!(copied, b"aacc!dd");
    }

    /// Bytes that the caller still has to send come first.
    #[test]
    fn nothing_is_direct_behind_other_bytes() {
        let mut copied = b"SET".to_vec();
        let mut stream = Stream::new(b"aa", &mut copied);
        stream.pass(2);
        assert_eq!(stream.direct(), 0);
        assert_eq!(copied, b"SETaa");
    }
}
