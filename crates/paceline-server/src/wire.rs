//! The seam between a session and what carries its output: the pool, TLS, or an engine that
//! collects it.

use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
};

use paceline::{Context, HandlerKind, Level, Next, Piece};

use crate::stream::Stream;

/// What became of a part of a file.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSent {
    /// The system has taken so many bytes: none, if the file ends here.
    Some(usize),
    /// The system takes nothing now. What is written instead is kept.
    Nothing,
    /// Bytes of files must be written here.
    Unsupported,
}

/// What a [`Peer`](crate::Peer) writes to, and the thread that runs its session.
pub(crate) trait Wire {
    /// Sends all of `pieces`, or keeps them, or takes none.
    fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()>;

    /// Sends all of `slices`, or keeps a copy, or takes none.
    fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()>;

    /// Has the system send bytes of a file, from `offset` on, which it moves. Nothing is kept, and
    /// nothing may be kept before.
    fn send_file(&mut self, file: &File, offset: &mut u64, count: usize) -> io::Result<FileSent> {
        let _ = (file, offset, count);
        Ok(FileSent::Unsupported)
    }

    /// How many bytes are kept.
    fn unsent(&self) -> usize;

    /// How many more bytes may be kept.
    fn room(&self) -> usize;

    /// Runs `block`, which may block.
    fn blocking(&mut self, block: &mut dyn FnMut());

    /// Another thread shall lead: the rest takes long.
    fn wake_follower(&self);

    /// The rest of the call is of this kind.
    fn begin_kind(&mut self, kind: &HandlerKind);

    /// Moves the connection to another level when the call ends with what this returns.
    fn move_to(&mut self, level: &Level) -> io::Result<Next>;
}

impl<S: Stream> Wire for Context<'_, S>
where
    for<'s> &'s S: Read + Write,
{
    fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()> {
        Context::send_all(self, pieces)
    }

    fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        match slices {
            [one] => self.write_all(one),
            several => self.write_all_vectored(several),
        }
    }

    fn send_file(&mut self, file: &File, offset: &mut u64, count: usize) -> io::Result<FileSent> {
        // The disk may take its time.
        Context::wake_follower(self);
        match self.try_write(|stream| stream.send_file(file, offset, count)) {
            Ok(count) => Ok(FileSent::Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(FileSent::Nothing),
            Err(error) => Err(error),
        }
    }

    fn unsent(&self) -> usize {
        Context::unsent(self)
    }

    fn room(&self) -> usize {
        self.output_room()
    }

    fn blocking(&mut self, block: &mut dyn FnMut()) {
        Context::blocking(self, block);
    }

    fn wake_follower(&self) {
        Context::wake_follower(self);
    }

    fn begin_kind(&mut self, kind: &HandlerKind) {
        Context::begin_kind(self, kind);
    }

    fn move_to(&mut self, level: &Level) -> io::Result<Next> {
        Context::move_to(self, level)
    }
}
