//! A body on its way into memory, or into a temporary file without a name.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    sync::Arc,
};

use rustix::fs::{Mode, OFlags};

use super::{
    memory::{Share, SharedMemory},
    protocol::KeptHead,
    request::{rewound, Given},
    router::Route,
    session::Asked,
};

/// Every body may have so much memory.
const IN_MEMORY: usize = 64 * 1024;

/// A request whose body is on its way.
pub(super) struct Gathering {
    pub(super) head: KeptHead,
    pub(super) route: Arc<Route>,
    pub(super) asked: Asked,
    pub(super) limit: u64,
    /// How long the body will be, if the client has said so.
    pub(super) expected: Option<u64>,
    pub(super) body: Gathered,
}

/// What has come of a body.
#[derive(Default)]
pub(super) struct Gathered {
    memory: Vec<u8>,
    /// Its share of the memory for long bodies.
    share: Option<Share>,
    /// How much memory it may have.
    room: usize,
    /// Everything, once it is too long for memory.
    file: Option<File>,
    length: u64,
}

/// Where the next bytes of a body will be.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Memory,
    File,
}

/// Where bodies are kept that are longer than each may be in memory.
pub(super) struct Store {
    pub(super) memory: Arc<SharedMemory>,
    /// For those that find no memory.
    pub(super) folder: PathBuf,
}

impl Gathered {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Decides where `more` bytes of a body will be, of which so many are expected in all.
    pub(super) fn place_for(&mut self, more: usize, expected: Option<u64>, store: &Store) -> Place {
        let needed = self.memory.len() + more;
        if self.file.is_some() {
            return Place::File;
        }
        if needed <= self.room.max(IN_MEMORY) {
            return Place::Memory;
        }
        let all = expected.and_then(|expected| usize::try_from(expected).ok());
        let room = all.unwrap_or(needed.saturating_mul(4)).max(needed);
        let Some(share) = store.memory.take(room) else {
            return Place::File;
        };
        self.share = Some(share);
        self.room = room;
        self.memory.reserve_exact(room - self.memory.len());
        Place::Memory
    }

    /// Adds bytes where there is place for them. Writing to the file may block.
    pub(super) fn add(&mut self, bytes: &[u8], place: Place, folder: &Path) -> io::Result<()> {
        match place {
            Place::Memory => self.memory.extend_from_slice(bytes),
            Place::File => self.file(folder)?.write_all(bytes)?,
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// The file, with everything that was in memory.
    fn file(&mut self, folder: &Path) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut file = nameless_file(folder)?;
                file.write_all(&std::mem::take(&mut self.memory))?;
                self.share = None;
                file
            }
        };
        Ok(self.file.insert(file))
    }

    /// The body for a handler.
    pub(super) fn give(&mut self) -> io::Result<Given<'_>> {
        match &mut self.file {
            None => Ok(Given::Bytes(&self.memory)),
            Some(file) => rewound(file, self.length),
        }
    }
}

/// A file that no other process can open, and that is gone with its descriptor.
fn nameless_file(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // Not every file system has such files.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => unlinked_file(folder),
        Err(error) => Err(error.into()),
    }
}

/// A file whose name is removed at once.
fn unlinked_file(folder: &Path) -> io::Result<File> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".paceline-{}-{number}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn read(body: &mut Gathered) -> Vec<u8> {
        match body.give().unwrap() {
            Given::Bytes(bytes) => bytes.to_vec(),
            Given::File(file, length) => {
                let mut all = Vec::new();
                file.read_to_end(&mut all).unwrap();
                assert_eq!(all.len() as u64, length);
                all
            }
            Given::Stream(_) => unreachable!("a gathered body is no stream"),
        }
    }

    fn store(bytes: usize, folder: &Path) -> Store {
        Store {
            memory: Arc::new(SharedMemory::new(bytes)),
            folder: folder.to_owned(),
        }
    }

    fn add(body: &mut Gathered, bytes: &[u8], store: &Store) -> io::Result<()> {
        let place = body.place_for(bytes.len(), None, store);
        body.add(bytes, place, &store.folder)
    }

    /// A body that finds no memory moves to a file as a whole, and no name is left behind.
    #[test]
    fn a_long_body_moves_to_a_file_without_a_name() {
        let folder = std::env::temp_dir().join(format!("paceline-gather-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let store = store(0, &folder);
        let piece = vec![b'x'; 40_000];
        let mut body = Gathered::default();
        add(&mut body, &piece, &store).unwrap();
        assert!(body.file.is_none());
        add(&mut body, &piece, &store).unwrap();
        assert!(body.file.is_some());
        add(&mut body, b"end", &store).unwrap();
        let all = read(&mut body);
        assert_eq!((all.len(), &all[80_000..]), (80_003, &b"end"[..]));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        let mut fallback = unlinked_file(&folder).unwrap();
        fallback.write_all(b"a").unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }

    /// Long bodies stay in memory as long as all of them together have no more than their share: many
    /// clients can't make the server take more.
    #[test]
    fn long_bodies_share_their_memory() {
        let folder = std::env::temp_dir();
        let store = store(300_000, &folder);
        let piece = vec![b'x'; 50_000];
        let long = || {
            let mut body = Gathered::default();
            for _ in 0..2 {
                let place = body.place_for(piece.len(), Some(200_000), &store);
                body.add(&piece, place, &folder).unwrap();
            }
            body
        };
        let mut first = long();
        assert!(first.file.is_none());
        let mut second = long();
        assert!(second.file.is_some());
        assert_eq!(read(&mut first), read(&mut second));
        drop(first);
        assert!(long().file.is_none());
    }

    /// A folder that takes no file is an error, not a panic; the body in memory is kept.
    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let store = store(0, Path::new("/nonexistent"));
        let mut body = Gathered::default();
        add(&mut body, b"a", &store).unwrap();
        assert!(add(&mut body, &vec![0; IN_MEMORY], &store).is_err());
        assert_eq!(body.memory, b"a");
    }
}
