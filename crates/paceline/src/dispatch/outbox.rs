//! Kept output: what the descriptor did not take yet, and the limit of it.
//!
//! An outbox is a queue of pieces in the order of sending. Bytes that a handler lends are copied,
//! into a piece that grows. A [`Piece`] that a handler gives is kept as it is, without a copy. The
//! limit counts bytes that are not sent. An outbox with nothing to send has no memory of its own.

use std::{
    collections::VecDeque,
    error, fmt,
    io::{self, IoSlice},
    ops::Range,
    sync::Arc,
};

use super::{channel::Destination, kind::RoomForPart, readiness_guard::ReadinessGuard};

/// A given piece shorter than this is copied: so the limit of bytes limits the number of pieces
/// too.
const SMALL: usize = 1024;

/// How many slices one system call gets.
const BATCH: usize = 16;

/// Writes several slices to a source.
pub(super) type WriteSlices<S> = fn(&S, &[IoSlice<'_>]) -> io::Result<usize>;

/// Output that the descriptor did not take yet, bounded.
pub(super) struct Outbox<S> {
    /// `None` while everything is sent.
    kept: Option<Box<Kept<S>>>,
    pub(super) limit: usize,
    pub(super) read_meanwhile: bool,
    /// Where the handler wants to go on.
    pub(super) goes_to: Option<Destination>,
    /// The part of the call that goes on, if that is of another kind than the handler.
    pub(super) part: RoomForPart,
}

impl<S> Outbox<S> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            kept: None,
            limit,
            read_meanwhile: false,
            goes_to: None,
            part: RoomForPart::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_none()
    }

    /// How many more bytes may be kept.
    pub(super) fn room(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    /// Whether `more` bytes may be kept.
    ///
    /// # Errors
    /// [`OutputLimit`] if they may not.
    #[inline]
    pub(super) fn admit(&self, more: usize) -> io::Result<()> {
        let kept = self.len();
        if kept.saturating_add(more) > self.limit {
            return Err(OutputLimit::error(self.limit, kept, more));
        }
        Ok(())
    }

    /// Keeps a copy of `bytes` behind what is kept already.
    #[inline]
    pub(super) fn keep(&mut self, bytes: &[u8], write: WriteSlices<S>) {
        if !bytes.is_empty() {
            self.keep_copy(bytes, write);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_copy(&mut self, bytes: &[u8], write: WriteSlices<S>) {
        self.kept_with(write).copy(bytes);
    }

    /// Keeps a piece behind what is kept already.
    pub(super) fn keep_piece(&mut self, piece: Piece, write: WriteSlices<S>) {
        if !piece.is_empty() {
            self.kept_with(write).take(piece);
        }
    }

    /// Sends what the descriptor takes now. The memory is given back when all is sent.
    pub(super) fn flush(&mut self, source: &S, guard: &mut ReadinessGuard<'_>) -> io::Result<()> {
        let Some(kept) = &mut self.kept else {
            return Ok(());
        };
        let sent = send_slices(guard, source, kept.slices(), kept.write)?;
        kept.forget(sent);
        if kept.bytes == 0 {
            self.kept = None;
        }
        Ok(())
    }

    fn kept_with(&mut self, write: WriteSlices<S>) -> &mut Kept<S> {
        self.kept.get_or_insert_with(|| Box::new(Kept::new(write)))
    }
}

/// Pieces that wait for room. No piece is empty.
struct Kept<S> {
    pieces: VecDeque<Piece>,
    /// How many bytes all pieces have.
    bytes: usize,
    /// The last piece is a copy, to which more can be appended.
    grows: bool,
    write: WriteSlices<S>,
}

impl<S> Kept<S> {
    fn new(write: WriteSlices<S>) -> Self {
        Self {
            pieces: VecDeque::new(),
            bytes: 0,
            grows: false,
            write,
        }
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Piece::as_ref)
    }

    fn take(&mut self, piece: Piece) {
        if piece.is_worth_keeping() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
            self.grows = false;
        } else {
            self.copy(piece.as_ref());
        }
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        let tail = self.pieces.back_mut().filter(|_| self.grows);
        match tail.and_then(Piece::copied) {
            Some(tail) => tail.append(bytes),
            None => self.pieces.push_back(bytes.to_vec().into()),
        }
        self.grows = true;
    }

    /// The first `count` bytes are sent.
    fn forget(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(first) = self.pieces.front_mut() {
            count -= first.skip(count);
            if !first.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
    }
}

/// Bytes that a handler gives to the pool to be sent: see [`Context::send`](crate::Context::send).
///
/// It is made of a `Vec<u8>`, a `String`, a `Box<[u8]>`, an `Arc<[u8]>` that others share, or of
/// bytes that live as long as the program. What the descriptor does not take at once is kept
/// without a copy, unless it is short or its vector is more than half empty.
///
/// ```
/// use std::sync::Arc;
/// use paceline::Piece;
///
/// let page: Arc<[u8]> = Arc::from(*b"a page that many connections get");
/// let middle = Piece::from(page).part(2..6);
/// assert_eq!(middle.as_ref(), b"page");
/// ```
#[derive(Default)]
pub struct Piece {
    bytes: Bytes,
    /// What of it is to be sent.
    rest: Range<usize>,
}

enum Bytes {
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
    Static(&'static [u8]),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Static(&[])
    }
}

impl Piece {
    fn new(bytes: Bytes) -> Self {
        let rest = 0..bytes.as_slice().len();
        Self { bytes, rest }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// A part of it, without a copy.
    ///
    /// # Panics
    /// If it has fewer bytes than `range.end`, or `range` ends before it starts.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        assert!(
            start <= end && end <= self.len(),
            "part {start}..{end} of a piece of {} bytes",
            self.len()
        );
        let from = self.rest.start;
        Self {
            bytes: self.bytes,
            rest: from + start..from + end,
        }
    }

    /// Whether it is kept as it is: a copy costs more than an entry in the queue, and not half of
    /// its memory.
    fn is_worth_keeping(&self) -> bool {
        let memory = match &self.bytes {
            Bytes::Owned(bytes) => bytes.capacity(),
            Bytes::Shared(_) | Bytes::Static(_) => 0,
        };
        self.len() >= SMALL && memory / 2 <= self.len()
    }

    /// Skips up to `count` bytes. How many it skipped.
    pub(super) fn skip(&mut self, count: usize) -> usize {
        let skipped = count.min(self.len());
        self.rest.start += skipped;
        skipped
    }

    /// Itself, if its memory is its own.
    fn copied(&mut self) -> Option<Copied<'_>> {
        match &mut self.bytes {
            Bytes::Owned(bytes) => Some(Copied {
                bytes,
                rest: &mut self.rest,
            }),
            Bytes::Shared(_) | Bytes::Static(_) => None,
        }
    }
}

/// A piece that can grow.
struct Copied<'p> {
    bytes: &'p mut Vec<u8>,
    rest: &'p mut Range<usize>,
}

impl Copied<'_> {
    /// Makes room at the front first, so that no more than the limit is held.
    fn append(self, more: &[u8]) {
        self.bytes.truncate(self.rest.end);
        self.bytes.drain(..self.rest.start);
        self.bytes.extend_from_slice(more);
        *self.rest = 0..self.bytes.len();
    }
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes.as_slice()[self.rest.clone()]
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Bytes::Owned(bytes))
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Box<[u8]>> for Piece {
    fn from(bytes: Box<[u8]>) -> Self {
        bytes.into_vec().into()
    }
}

impl From<Arc<[u8]>> for Piece {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::new(Bytes::Shared(bytes))
    }
}

impl From<&'static [u8]> for Piece {
    fn from(bytes: &'static [u8]) -> Self {
        Self::new(Bytes::Static(bytes))
    }
}

impl<const N: usize> From<&'static [u8; N]> for Piece {
    fn from(bytes: &'static [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl From<&'static str> for Piece {
    fn from(text: &'static str) -> Self {
        text.as_bytes().into()
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.bytes {
            Bytes::Owned(_) => "owned",
            Bytes::Shared(_) => "shared",
            Bytes::Static(_) => "static",
        };
        let mut shown = f.debug_struct("Piece");
        shown
            .field("bytes", &self.len())
            .field("memory", &origin)
            .finish()
    }
}

/// Sends what the descriptor takes now, several slices in one system call. How many bytes it took.
pub(super) fn send_slices<'b, S>(
    guard: &mut ReadinessGuard<'_>,
    source: &S,
    slices: impl Iterator<Item = &'b [u8]>,
    write: WriteSlices<S>,
) -> io::Result<usize> {
    // A write of empty slices only takes zero bytes, which would look like a failure.
    let mut slices = slices.filter(|slice| !slice.is_empty());
    let mut sent = 0;
    loop {
        let mut batch = [IoSlice::new(&[]); BATCH];
        let filled = batch.iter_mut().zip(&mut slices);
        let filled = filled.map(|(place, slice)| *place = IoSlice::new(slice));
        let count = filled.count();
        let offered = total(&batch[..count]);
        let taken = guard.send(source, &mut batch[..count], write)?;
        sent += taken;
        if count < BATCH || taken < offered {
            return Ok(sent);
        }
    }
}

/// How many bytes these slices have. (They may overlap, so the sum may be beyond all memory.)
#[inline]
pub(super) fn total(slices: &[IoSlice<'_>]) -> usize {
    let lengths = slices.iter().map(|slice| slice.len());
    lengths.fold(0, usize::saturating_add)
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
    #[cold]
    fn error(limit: usize, kept: usize, attempted: usize) -> io::Error {
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
            "send {} bytes: {} bytes are kept already and the limit is {}",
            self.attempted, self.kept, self.limit
        )
    }
}

impl error::Error for OutputLimit {}
