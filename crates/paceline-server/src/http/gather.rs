//! A body on its way into memory, or into a temporary file without a name.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    sync::Arc,
};

use rustix::fs::{Mode, OFlags};

use super::{
    protocol::KeptHead,
    request::{rewound, Given},
    router::Route,
    session::Asked,
};

/// So much of a body stays in memory.
const IN_MEMORY: usize = 64 * 1024;

/// A request whose body is on its way.
pub(super) struct Gathering {
    pub(super) head: KeptHead,
    pub(super) route: Arc<Route>,
    pub(super) asked: Asked,
    pub(super) limit: u64,
    pub(super) body: Gathered,
}

/// What has come of a body.
#[derive(Default)]
pub(super) struct Gathered {
    memory: Vec<u8>,
    /// Everything, once it is too long for memory.
    file: Option<File>,
    length: u64,
}

impl Gathered {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Whether `more` bytes will be written to a file.
    pub(super) fn spills_with(&self, more: usize) -> bool {
        self.file.is_some() || self.memory.len() + more > IN_MEMORY
    }

    /// Adds bytes: behind what is in memory, or in the file.
    pub(super) fn add(&mut self, bytes: &[u8], folder: &Path) -> io::Result<()> {
        if !self.spills_with(bytes.len()) {
            self.memory.extend_from_slice(bytes);
        } else {
            let file = match &mut self.file {
                Some(file) => file,
                None => {
                    let mut file = nameless_file(folder)?;
                    file.write_all(&std::mem::take(&mut self.memory))?;
                    self.file.insert(file)
                }
            };
            file.write_all(bytes)?;
        }
        self.length += bytes.len() as u64;
        Ok(())
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

    /// A body that outgrows its memory moves to a file as a whole, and no name is left behind.
    #[test]
    fn a_long_body_moves_to_a_file_without_a_name() {
        let folder = std::env::temp_dir().join(format!("paceline-gather-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let piece = vec![b'x'; 40_000];
        let mut body = Gathered::default();
        body.add(&piece, &folder).unwrap();
        assert!(body.file.is_none());
        body.add(&piece, &folder).unwrap();
        assert!(body.file.is_some());
        body.add(b"end", &folder).unwrap();
        let all = read(&mut body);
        assert_eq!((all.len(), &all[80_000..]), (80_003, &b"end"[..]));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        let mut fallback = unlinked_file(&folder).unwrap();
        fallback.write_all(b"a").unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }

    /// A folder that takes no file is an error, not a panic; the body in memory is kept.
    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let mut body = Gathered::default();
        body.add(b"a", Path::new("/nonexistent")).unwrap();
        assert!(body
            .add(&vec![0; IN_MEMORY], Path::new("/nonexistent"))
            .is_err());
    }
}
