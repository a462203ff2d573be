//! Output that a worker collects.

use std::io::{self, IoSlice};

use paceline::{HandlerKind, Level, Next, OutputLimit, Piece};

use crate::wire::Wire;

/// Output that a worker collects: the connection sends it when it gets its dialog back.
pub(super) struct Collected {
    pub(super) pieces: Vec<Piece>,
    /// How many bytes may be collected.
    limit: usize,
    /// How many more.
    room: usize,
}

/// A worker that has collected so much shall give it to the connection, which sends it.
const PART: usize = 64 * 1024;

impl Collected {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            pieces: Vec::new(),
            limit,
            room: limit,
        }
    }

    fn take(&mut self, bytes: usize) -> io::Result<()> {
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                Ok(())
            }
            None => {
                let limit = OutputLimit {
                    limit: self.limit,
                    kept: self.limit - self.room,
                    attempted: bytes,
                };
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, limit))
            }
        }
    }
}

impl Wire for Collected {
    fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()> {
        self.take(pieces.iter().map(Piece::len).sum())?;
        self.pieces.extend(pieces.iter_mut().map(std::mem::take));
        Ok(())
    }

    fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let slices: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
        self.send_all(&mut [slices.concat().into()])
    }

    /// The peer is not asked before the worker is done. But a session that writes a long answer in
    /// parts has to find out when a part is long enough, also under a low limit.
    fn unsent(&self) -> usize {
        let collected = self.limit - self.room;
        if collected >= PART.min(self.limit / 4) {
            collected
        } else {
            0
        }
    }

    fn room(&self) -> usize {
        self.room
    }

    /// A worker may block: it leads no one.
    fn blocking(&mut self, block: &mut dyn FnMut()) {
        block();
    }

    fn wake_follower(&self) {}

    fn begin_kind(&mut self, _: &HandlerKind) {}

    fn move_to(&mut self, level: &Level) -> io::Result<Next> {
        let text = format!(
            "move to level {}: a worker runs the session that asks",
            level.name()
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}
