//! An incoming message: into a file of a maildir, or into a summary.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::support::attempted;

/// Where messages go.
pub(crate) enum Store {
    /// A file for each, in this folder.
    Maildir { folder: PathBuf, host: String },
    /// A line for each, on standard output.
    Summary,
}

impl Store {
    /// Makes the folders of a maildir, if they are not there.
    pub(crate) fn maildir(folder: &Path, host: &str) -> io::Result<Self> {
        for name in ["tmp", "new", "cur"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(attempted(format!("make {}", path.display())))?;
        }
        Ok(Self::Maildir {
            folder: folder.to_owned(),
            host: host.to_owned(),
        })
    }

    /// A message begins, with these fields before those of the client.
    pub(crate) fn begin(&self, fields: &str) -> io::Result<Incoming> {
        let file = match self {
            Self::Maildir { folder, host } => Some(Draft::create(folder, host)?),
            Self::Summary => None,
        };
        let mut incoming = Incoming {
            file,
            head: Vec::new(),
            bytes: 0,
        };
        if let Some(draft) = &mut incoming.file {
            draft.file.write_all(fields.as_bytes())?;
        }
        Ok(incoming)
    }
}

/// The summary shows the subject if it is in so many bytes.
const HEAD: usize = 16 * 1024;

/// A message that is not whole yet. Dropping it removes its file.
pub(crate) struct Incoming {
    file: Option<Draft>,
    head: Vec<u8>,
    bytes: usize,
}

impl Incoming {
    /// Appends lines, without the dots that the client has added.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.bytes += lines.len();
        let rest = HEAD.saturating_sub(self.head.len());
        self.head.extend_from_slice(&lines[..lines.len().min(rest)]);
        match &mut self.file {
            Some(draft) => draft.file.write_all(lines),
            None => Ok(()),
        }
    }

    /// How many bytes the client has sent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The message is whole: files it, so that a loss of power can't lose it. The name of its file, or
    /// nothing.
    pub(crate) fn finish(mut self, envelope: &str) -> io::Result<String> {
        match self.file.take() {
            Some(draft) => draft.file_away(),
            None => {
                let subject = subject(&self.head);
                println!("mail {envelope}: {} bytes, subject {subject:?}", self.bytes);
                Ok(String::new())
            }
        }
    }
}

/// A file in `tmp`, until it is whole and in `new`.
struct Draft {
    file: File,
    folder: PathBuf,
    name: String,
    is_filed: bool,
}

impl Draft {
    /// The name has the time, this process and a number, so no two messages of a host have the same.
    fn create(folder: &Path, host: &str) -> io::Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (seconds, micros, process) = (now.as_secs(), now.subsec_micros(), process::id());
        let name = format!("{seconds}.M{micros}P{process}Q{number}.{host}");
        let path = folder.join("tmp").join(&name);
        let file = File::create_new(&path);
        Ok(Self {
            file: file.map_err(attempted(format!("make {}", path.display())))?,
            folder: folder.to_owned(),
            name,
            is_filed: false,
        })
    }

    fn file_away(mut self) -> io::Result<String> {
        let path = self.path();
        let moved = self.file.sync_all().and_then(|()| {
            let new = self.folder.join("new");
            fs::rename(&path, new.join(&self.name))?;
            self.is_filed = true;
            File::open(new)?.sync_all()
        });
        moved.map_err(attempted(format!("file {}", path.display())))?;
        Ok(self.name.clone())
    }

    fn path(&self) -> PathBuf {
        self.folder.join("tmp").join(&self.name)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_filed {
            // What can't be removed is found in `tmp` later: no reader takes it for a mail.
            let _ = fs::remove_file(self.path());
        }
    }
}

/// The first line of the subject.
fn subject(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let fields = text.lines().take_while(|line| !line.is_empty());
    let subject = fields
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("subject"));
    subject.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}
