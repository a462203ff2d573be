//! The body of an answer: bytes, or something that gives them in parts.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek},
    sync::Arc,
};

/// The body of an answer.
///
/// Bytes are sent as they are, and the system sends files where it can: without TLS, on a thread of the
/// pool. The other forms are asked for 64 KiB at a time, whenever the client
/// has taken the last part: a client that reads slowly holds one part, and no thread. A body whose
/// length is not known is sent in chunks.
#[derive(Default)]
pub struct Content(pub(super) Source);

/// Where the bytes are.
#[derive(Default)]
pub(super) enum Source {
    #[default]
    Empty,
    Static(&'static [u8]),
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
    /// A file, where the next byte is, and how many there are from the start.
    File(File, u64, u64),
    /// A reader, and how much it gives.
    Reader(Box<dyn Read + Send>, Option<u64>),
    Pieces(Box<Pieces>),
}

/// Appends the next part; whether there was one.
pub(super) type Pieces = dyn FnMut(&mut Vec<u8>) -> io::Result<bool> + Send;

impl Content {
    /// What `reader` gives until its end. Reading may block.
    #[must_use]
    pub fn read(reader: impl Read + Send + 'static) -> Self {
        Self(Source::Reader(Box::new(reader), None))
    }

    /// The first `length` bytes of what `reader` gives. If it has fewer, the connection is cut.
    #[must_use]
    pub fn read_exact(reader: impl Read + Send + 'static, length: u64) -> Self {
        Self(Source::Reader(Box::new(reader), Some(length)))
    }

    /// A file, from its present place to its end.
    ///
    /// # Errors
    /// Those of the file.
    pub fn file(mut file: File) -> io::Result<Self> {
        let at = file.stream_position()?;
        let length = file.metadata()?.len().saturating_sub(at);
        Ok(Self(Source::File(file, at, length)))
    }

    /// `length` bytes of a file from `start` on.
    ///
    /// # Errors
    /// Those of the file.
    pub fn part_of_file(file: File, start: u64, length: u64) -> io::Result<Self> {
        Ok(Self(Source::File(file, start, length)))
    }

    /// What `next` appends to the buffer, part by part, until it returns `false`; what it appends
    /// then is the last part. It is called when the client has taken the part before.
    ///
    /// ```
    /// use paceline_server::http::Content;
    ///
    /// let mut numbers = 0..3;
    /// let content = Content::pieces(move |part| {
    ///     let Some(number) = numbers.next() else { return Ok(false) };
    ///     part.extend_from_slice(format!("{number}\n").as_bytes());
    ///     Ok(true)
    /// });
    /// ```
    #[must_use]
    pub fn pieces(next: impl FnMut(&mut Vec<u8>) -> io::Result<bool> + Send + 'static) -> Self {
        Self(Source::Pieces(Box::new(next)))
    }

    /// Its length, if that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            Source::Reader(_, length) => *length,
            Source::File(_, _, length) => Some(*length),
            Source::Pieces(_) => None,
            _ => Some(self.bytes().len() as u64),
        }
    }

    /// All of it, if it is bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Source::Static(bytes) => bytes,
            Source::Owned(bytes) => bytes,
            Source::Shared(bytes) => bytes,
            Source::Empty | Source::File(..) | Source::Reader(..) | Source::Pieces(_) => &[],
        }
    }

    pub(super) fn is_bytes(&self) -> bool {
        !matches!(
            self.0,
            Source::File(..) | Source::Reader(..) | Source::Pieces(_)
        )
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content")
            .field("length", &self.length())
            .finish_non_exhaustive()
    }
}

impl From<&'static str> for Content {
    fn from(text: &'static str) -> Self {
        Self(Source::Static(text.as_bytes()))
    }
}

impl From<&'static [u8]> for Content {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Source::Static(bytes))
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self(Source::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Source::Owned(bytes))
    }
}

impl From<Arc<[u8]>> for Content {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(Source::Shared(bytes))
    }
}
