//! Short replies of one turn leave by one write.
//!
//! ```text
//!   "a\nb\nc\n" -> Session -> "A" held, "B" held, "C" -> one write "ABC"
//! ```
//!
//! A client that sends several requests at once gets their replies at once: a system call for each
//! of them costs more than the session itself. Replies are held only while further input of the
//! connection waits for the session in the same turn, and never while the session is in
//! [`Peer::blocking`](crate::Peer::blocking).

use std::{
    fs::File,
    io::{self, IoSlice},
};

use paceline::{HandlerKind, Level, Next, Piece};

use crate::{
    spare::{self, SHORT},
    wire::{FileSent, Wire},
};

/// A wire that may hold short output back.
pub(crate) struct Cork<'w> {
    wire: &'w mut dyn Wire,
    held: &'w mut Vec<u8>,
    /// Further output follows soon.
    is_in: bool,
    /// Held output could not be sent before a call that has no result.
    failed: Option<io::Error>,
}

impl<'w> Cork<'w> {
    /// Calls `with` with a cork over `wire`. What `with` leaves in the cork is sent behind it, also
    /// if `with` panics.
    pub(crate) fn over<R>(wire: &mut dyn Wire, with: impl FnOnce(&mut Cork<'_>) -> R) -> R {
        spare::with_held(|held| {
            with(&mut Cork {
                wire,
                held,
                is_in: false,
                failed: None,
            })
        })
    }

    /// Says whether further output follows soon.
    pub(crate) fn hold(&mut self, more_follows: bool) {
        self.is_in = more_follows;
    }

    /// Sends what is held.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.held.is_empty() {
            return Ok(());
        }
        let sent = self.wire.write_slices(&[IoSlice::new(self.held)]);
        self.held.clear();
        sent
    }

    /// Whether `bytes` more bytes are to be held. The wire has room for all that is held, so that
    /// no held reply can fail for want of it.
    fn takes(&self, bytes: usize) -> bool {
        let all = self.held.len() + bytes;
        let is_wanted = self.is_in || !self.held.is_empty();
        is_wanted && self.failed.is_none() && all <= SHORT && all <= self.wire.room()
    }
}

impl Drop for Cork<'_> {
    fn drop(&mut self) {
        // The turn has its result, or a panic closes the connection behind what it has answered.
        let _ = self.release();
    }
}

impl Wire for Cork<'_> {
    fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()> {
        let bytes = pieces.iter().map(|piece| piece.as_ref().len()).sum();
        if !self.takes(bytes) {
            self.release()?;
            return self.wire.send_all(pieces);
        }
        for piece in pieces {
            self.held.extend_from_slice(std::mem::take(piece).as_ref());
        }
        Ok(())
    }

    fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if !self.takes(bytes) {
            self.release()?;
            return self.wire.write_slices(slices);
        }
        for slice in slices {
            self.held.extend_from_slice(slice);
        }
        Ok(())
    }

    fn send_file(&mut self, file: &File, offset: &mut u64, count: usize) -> io::Result<FileSent> {
        self.release()?;
        if self.wire.unsent() > 0 {
            return Ok(FileSent::Nothing);
        }
        self.wire.send_file(file, offset, count)
    }

    fn unsent(&self) -> usize {
        self.wire.unsent()
    }

    fn room(&self) -> usize {
        self.wire.room().saturating_sub(self.held.len())
    }

    fn blocking(&mut self, block: &mut dyn FnMut()) {
        if let Err(error) = self.release() {
            self.failed = Some(error);
        }
        self.wire.blocking(block);
    }

    fn wake_follower(&self) {
        self.wire.wake_follower();
    }

    fn begin_kind(&mut self, kind: &HandlerKind) {
        self.wire.begin_kind(kind);
    }

    fn move_to(&mut self, level: &Level) -> io::Result<Next> {
        self.wire.move_to(level)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, AssertUnwindSafe};

    use super::*;

    /// Notes each write.
    #[derive(Default)]
    struct Notes {
        writes: Vec<Vec<u8>>,
        room: usize,
        fails: bool,
    }

    impl Notes {
        fn note(&mut self, bytes: Vec<u8>) -> io::Result<()> {
            if self.fails {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.writes.push(bytes);
            Ok(())
        }
    }

    impl Wire for Notes {
        fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()> {
            let all: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).collect();
            self.note(all.concat())
        }

        fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
            let all: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
            self.note(all.concat())
        }

        fn unsent(&self) -> usize {
            0
        }

        fn room(&self) -> usize {
            self.room
        }

        fn blocking(&mut self, block: &mut dyn FnMut()) {
            self.writes.push(b"blocking".to_vec());
            block();
        }

        fn wake_follower(&self) {}

        fn begin_kind(&mut self, _: &HandlerKind) {}

        fn move_to(&mut self, _: &Level) -> io::Result<Next> {
            Ok(Next::Move)
        }
    }

    fn roomy() -> Notes {
        Notes {
            room: 1 << 20,
            ..Notes::default()
        }
    }

    fn write(cork: &mut Cork<'_>, bytes: &[u8]) -> io::Result<()> {
        cork.write_slices(&[IoSlice::new(bytes)])
    }

    /// A server made a system call for each of sixteen requests that came at once. Replies leave
    /// together, in their order, and a long one does not wait.
    #[test]
    fn short_replies_leave_together() {
        let mut notes = roomy();
        Cork::over(&mut notes, |cork| {
            write(cork, b"alone").unwrap();
            cork.hold(true);
            write(cork, b"a").unwrap();
            cork.send_all(&mut [b"b".to_vec().into(), "c".to_owned().into()])
                .unwrap();
            write(cork, &[b'x'; SHORT]).unwrap();
            write(cork, b"d").unwrap();
            cork.hold(false);
            write(cork, b"e").unwrap();
            cork.release().unwrap();
            write(cork, b"f").unwrap();
        });
        let long = vec![b'x'; SHORT];
        let expected: [&[u8]; 5] = [b"alone", b"abc", &long, b"de", b"f"];
        assert_eq!(notes.writes, expected);
    }

    /// A session that blocks for its next answer must not hold back those that it has given.
    #[test]
    fn replies_leave_before_the_session_blocks() {
        let mut notes = roomy();
        Cork::over(&mut notes, |cork| {
            cork.hold(true);
            write(cork, b"a").unwrap();
            cork.blocking(&mut || {});
            write(cork, b"b").unwrap();
        });
        assert_eq!(notes.writes, [&b"a"[..], b"blocking", b"b"]);
    }

    /// A panic in one item must not take the replies to those before it.
    #[test]
    fn replies_before_a_panic_leave() {
        let mut notes = roomy();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            Cork::over(&mut notes, |cork| {
                cork.hold(true);
                write(cork, b"a").unwrap();
                panic!("the second item");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(notes.writes, [b"a"]);
    }

    /// A reply that was accepted must not fail later for want of room.
    #[test]
    fn no_more_is_held_than_there_is_room_for() {
        let mut notes = Notes {
            room: 3,
            ..Notes::default()
        };
        Cork::over(&mut notes, |cork| {
            cork.hold(true);
            write(cork, b"ab").unwrap();
            assert_eq!(cork.room(), 1);
            write(cork, b"cd").unwrap();
        });
        assert_eq!(notes.writes, [b"ab", b"cd"]);
    }

    /// A connection that breaks while the session blocks is reported with the next write.
    #[test]
    fn a_failure_before_blocking_is_reported() {
        let mut notes = roomy();
        notes.fails = true;
        let ended = Cork::over(&mut notes, |cork| {
            cork.hold(true);
            write(cork, b"a").unwrap();
            cork.blocking(&mut || {});
            write(cork, b"b")
        });
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
