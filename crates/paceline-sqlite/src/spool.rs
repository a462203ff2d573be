//! Bytes that wait: in memory, and beyond a bound in a file without a name.
//!
//! A result is written here while its statement runs, so no slow client keeps a statement, a
//! connection or a snapshot open.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

use paceline_pg_wire::Header;

use crate::failure::Failure;

/// Bytes beyond this number move to a file.
const IN_MEMORY: usize = 4 << 20;
/// The most bytes of one read from the file.
const PIECE: usize = 64 << 10;

/// A queue of bytes.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: Arc<Path>,
    /// The bytes to send next start at `at`.
    head: Vec<u8>,
    at: usize,
    file: Option<Overflow>,
    /// The bytes appended last.
    tail: Vec<u8>,
    /// The most that the file may hold.
    limit: u64,
}

#[derive(Debug)]
struct Overflow {
    file: File,
    written: u64,
    read: u64,
}

impl Spool {
    /// An empty spool. Its file, if it needs one, is in `folder` and holds at most `limit` bytes.
    pub(crate) fn new(folder: &Arc<Path>, limit: u64) -> Self {
        Self {
            folder: Arc::clone(folder),
            head: Vec::new(),
            at: 0,
            file: None,
            tail: Vec::new(),
            limit,
        }
    }

    /// The buffer to append to. The caller then calls [`settle`](Self::settle).
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// How many unsent bytes are in memory.
    pub(crate) fn in_memory(&self) -> usize {
        self.head.len() - self.at + self.tail.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_memory() == 0
            && self
                .file
                .as_ref()
                .is_none_or(|file| file.read == file.written)
    }

    /// Moves the bytes beyond `IN_MEMORY` to the file.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        if self.tail.len() < IN_MEMORY {
            return Ok(());
        }
        self.overflow().map_err(|error| of_file(&error))?;
        let written = self
            .file
            .as_ref()
            .map_or(0, |file| file.written - file.read);
        if written > self.limit {
            return Err(Failure::new(
                "53400",
                "the result is larger than the limit of results that wait",
            ));
        }
        Ok(())
    }

    fn overflow(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Overflow::new(&self.folder)?),
        };
        file.file.seek(SeekFrom::Start(file.written))?;
        file.file.write_all(&self.tail)?;
        file.written += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    /// The bytes to send next; empty at the end of the spool.
    pub(crate) fn piece(&mut self) -> Result<&[u8], Failure> {
        if self.at == self.head.len() {
            self.refill().map_err(|error| of_file(&error))?;
        }
        let end = self.head.len().min(self.at + PIECE);
        Ok(&self.head[self.at..end])
    }

    /// Drops the first `count` bytes: the caller has sent them.
    pub(crate) fn advance(&mut self, count: usize) {
        self.at += count;
    }

    /// Moves a whole message to the end of `output`, if there is one.
    pub(crate) fn pop_message(&mut self, output: &mut Vec<u8>) -> Result<bool, Failure> {
        loop {
            let rest = &self.head[self.at..];
            let header =
                Header::first(rest).map_err(|error| Failure::new("XX000", error.to_string()))?;
            if let Some(length) = header
                .map(Header::message)
                .filter(|length| *length <= rest.len())
            {
                output.extend_from_slice(&rest[..length]);
                self.at += length;
                return Ok(true);
            }
            let before = rest.len();
            self.refill().map_err(|error| of_file(&error))?;
            if self.head.len() - self.at == before {
                return Ok(false);
            }
        }
    }

    /// Adds to the head: from the file, else from the tail.
    fn refill(&mut self) -> io::Result<()> {
        self.head.drain(..self.at);
        self.at = 0;
        if let Some(file) = self.file.as_mut().filter(|file| file.read < file.written) {
            return file.read_piece(&mut self.head);
        }
        self.file = None;
        if self.head.is_empty() {
            std::mem::swap(&mut self.head, &mut self.tail);
        } else {
            self.head.append(&mut self.tail);
        }
        Ok(())
    }

    /// Frees the memory that a large result has needed.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.at = 0;
            self.head.clear();
            self.head.shrink_to(PIECE);
            self.tail.shrink_to(PIECE);
        }
    }
}

impl Overflow {
    fn new(folder: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("paceline-spool-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        fs::remove_file(&path)?;
        Ok(Self {
            file,
            written: 0,
            read: 0,
        })
    }

    fn read_piece(&mut self, head: &mut Vec<u8>) -> io::Result<()> {
        let length = (self.written - self.read).min(PIECE as u64);
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut part = (&mut self.file).take(length);
        let count = part.read_to_end(head)? as u64;
        if count < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read += count;
        Ok(())
    }
}

fn of_file(error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::StorageFull => "53100",
        _ => "58030",
    };
    Failure::new(code, format!("could not keep a result in a file: {error}"))
}

#[cfg(test)]
mod tests {
    use paceline_pg_wire::backend;

    use super::*;

    fn spool() -> Spool {
        Spool::new(&Arc::from(std::env::temp_dir().as_path()), 1 << 30)
    }

    /// The spool keeps the order of its bytes, in memory and in the file.
    #[test]
    fn the_order_is_kept_across_the_file() {
        let mut spool = spool();
        let (mut sent, mut received) = (0_u32, Vec::new());
        for round in 0..6 {
            while spool.end().len() < IN_MEMORY - 10 {
                spool.end().extend_from_slice(&sent.to_be_bytes());
                sent += 1;
            }
            for _ in 0..10 {
                spool.end().extend_from_slice(&sent.to_be_bytes());
                sent += 1;
            }
            spool.settle().expect("room");
            // The last bytes are in memory, and the others in the file.
            spool.end().extend_from_slice(&sent.to_be_bytes());
            sent += 1;
            if round % 2 == 1 {
                let piece = spool.piece().expect("a piece").to_vec();
                spool.advance(piece.len());
                received.extend_from_slice(&piece);
            }
        }
        while !spool.is_empty() {
            let piece = spool.piece().expect("a piece").to_vec();
            spool.advance(piece.len());
            received.extend_from_slice(&piece);
        }
        let numbers = received
            .chunks(4)
            .map(|chunk| u32::from_be_bytes(chunk.try_into().expect("4")));
        assert!(numbers.eq(0..sent));
    }

    #[test]
    fn messages_leave_whole() {
        let mut spool = spool();
        let large = vec![7; PIECE * 3];
        for _ in 0..40 {
            backend::copy_data(spool.end(), &large);
            spool.settle().expect("room");
        }
        let mut count = 0;
        let mut message = Vec::new();
        while spool.pop_message(&mut message).expect("a message") {
            assert_eq!(message.len(), large.len() + Header::LENGTH);
            message.clear();
            count += 1;
        }
        assert_eq!(count, 40);
    }
}
