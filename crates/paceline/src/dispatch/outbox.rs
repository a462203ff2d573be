//! Kept output: what the descriptor did not take yet, and the limit of it.

use std::{error, fmt, io};

use super::{channel::Destination, lent::Lent};

/// Output that the descriptor did not take yet, bounded.
pub(super) struct Outbox<S> {
    kept: Vec<u8>,
    /// How much of `kept` is sent already.
    sent: usize,
    pub(super) limit: usize,
    pub(super) read_meanwhile: bool,
    /// Where the handler wants to go on.
    pub(super) goes_to: Option<Destination>,
    /// How to write to the source; known since something was kept.
    write: fn(&S, &[u8]) -> io::Result<usize>,
}

impl<S> Outbox<S> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            kept: Vec::new(),
            sent: 0,
            limit,
            read_meanwhile: false,
            goes_to: None,
            write: |_, _| Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps `bytes` behind what is kept already.
    pub(super) fn keep(&mut self, bytes: &[u8], write: fn(&S, &[u8]) -> io::Result<usize>) {
        if bytes.is_empty() {
            return;
        }
        // Make room at the front first, so that no more than the limit is ever held.
        self.kept.drain(..self.sent);
        self.sent = 0;
        self.kept.extend_from_slice(bytes);
        self.write = write;
    }

    /// Sends what the descriptor takes now. The memory is given back when all is sent.
    pub(super) fn flush(&mut self, source: &S, lent: &mut Lent<'_>) -> io::Result<()> {
        self.sent += lent.send(source, &self.kept[self.sent..], self.write)?;
        if !self.is_empty() {
            return Ok(());
        }
        self.kept = Vec::new();
        self.sent = 0;
        Ok(())
    }
}

/// More output would be kept than the pool allows for one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// What the pool allows.
    pub limit: usize,
    /// What was kept already.
    pub kept: usize,
    /// What was to be sent, and was not taken.
    pub attempted: usize,
}

impl OutputLimit {
    pub(super) fn error(limit: usize, kept: usize, attempted: usize) -> io::Error {
        let limit = Self {
            limit,
            kept,
            attempted,
        };
        io::Error::new(io::ErrorKind::QuotaExceeded, limit)
    }
}

impl fmt::Display for OutputLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write_all of {} bytes: {} bytes are kept already and the limit is {}",
            self.attempted, self.kept, self.limit
        )
    }
}

impl error::Error for OutputLimit {}
