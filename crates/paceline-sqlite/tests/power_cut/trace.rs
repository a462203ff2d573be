//! What a server asked of the disk and sent to its clients, in one order.
//!
//! The library `record.c` writes it. Each life of a server has a trace of its own; a kill may cut the
//! last record, and then the call of that record was not made.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{Folder, Process};

/// One call of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A file of the folder was opened, and made if it did not exist. `.` is the folder.
    Open {
        inode: u64,
        name: String,
    },
    Write {
        inode: u64,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        inode: u64,
        length: usize,
    },
    SyncBegins {
        inode: u64,
        number: u64,
    },
    SyncEnds {
        inode: u64,
        number: u64,
    },
    Unlink {
        name: String,
    },
    Send {
        acknowledged: Vec<Acknowledged>,
    },
}

impl Record {
    /// Whether a client learns of a commit by it.
    pub(crate) fn acknowledges(&self) -> bool {
        matches!(self, Self::Send { acknowledged } if !acknowledged.is_empty())
    }

    /// For a server that promises nothing.
    pub(crate) fn forget_acknowledged(&mut self) {
        if let Self::Send { acknowledged } = self {
            acknowledged.clear();
        }
    }
}

/// What a reply has shown to a client: the commits of a writer up to this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) writer: i64,
    pub(crate) number: i64,
}

/// A recorded server has a folder for its files, and one for the traces and the library.
pub(crate) struct Recorder {
    data: Folder,
    own: Folder,
    library: PathBuf,
    lives: usize,
}

impl Recorder {
    /// `None`, and a visible line, where there is no C compiler.
    pub(crate) fn new() -> Option<Self> {
        let (data, own) = (Folder::new(), Folder::new());
        let library = own.path().join("record.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/power_cut/record.c");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(compiler)
            .args([
                "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
            ])
            .args([library.as_os_str(), source.as_ref(), "-ldl".as_ref()])
            .output();
        let Ok(output) = output else {
            eprintln!("SKIPPED: the loss of power needs a C compiler, `cc` or $CC");
            return None;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "record.c: {errors}");
        Some(Self {
            data,
            own,
            library,
            lives: 0,
        })
    }

    /// Starts a server whose calls are recorded.
    pub(crate) fn start(&mut self, options: &[&str]) -> Process {
        let path = self.data.path();
        let mut command = Process::command(path, options);
        command
            .env("LD_PRELOAD", &self.library)
            .env("PACELINE_FOLDER", path)
            .env("PACELINE_TRACE", self.trace(self.lives));
        self.lives += 1;
        Process::run(command)
    }

    /// The records of all lives so far.
    pub(crate) fn records(&self) -> Vec<Record> {
        let traces = (0..self.lives).map(|life| fs::read(self.trace(life)).expect("a trace"));
        traces.flat_map(|trace| parse(&trace)).collect()
    }

    fn trace(&self, life: usize) -> PathBuf {
        self.own.path().join(format!("trace.{life}"))
    }

    /// Where images are made.
    pub(crate) fn image(&self) -> Image {
        let path = self.own.path().join("image");
        fs::create_dir_all(&path).expect("a folder");
        Image(path)
    }
}

/// The folder of one image, removed when it is dropped.
pub(crate) struct Image(PathBuf);

impl Image {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("the image is removed");
    }
}

/// The bytes of a record before its data.
const HEAD: usize = 32;

fn parse(mut trace: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while trace.len() >= HEAD {
        let word = |at: usize| {
            let bytes = trace[8 * at..8 * at + 8].try_into();
            u64::from_ne_bytes(bytes.expect("eight bytes"))
        };
        let words = [word(0), word(1), word(2)];
        let end = HEAD + size(word(3));
        let Some(bytes) = trace.get(HEAD..end) else {
            break;
        };
        records.push(record(words, bytes));
        trace = &trace[end..];
    }
    records
}

fn record([kind, inode, offset]: [u64; 3], bytes: &[u8]) -> Record {
    let name = || String::from_utf8(bytes.to_vec()).expect("a name");
    match kind {
        1 => Record::Open {
            inode,
            name: name(),
        },
        2 => Record::Write {
            inode,
            offset: size(offset),
            bytes: bytes.to_vec(),
        },
        3 => Record::Truncate {
            inode,
            length: size(offset),
        },
        4 => Record::SyncBegins {
            inode,
            number: offset,
        },
        5 => Record::SyncEnds {
            inode,
            number: offset,
        },
        6 => Record::Unlink { name: name() },
        7 => Record::Send {
            acknowledged: acknowledged(bytes),
        },
        _ => panic!("a record of kind {kind}"),
    }
}

fn size(word: u64) -> usize {
    usize::try_from(word).expect("a machine of 64 bits")
}

/// The values `ack WRITER NUMBER` among the rows of a reply.
fn acknowledged(bytes: &[u8]) -> Vec<Acknowledged> {
    const MARK: &[u8] = b"ack ";
    let starts = bytes.windows(MARK.len()).enumerate();
    let starts = starts.filter(|(_, window)| *window == MARK);
    starts
        .filter_map(|(at, _)| {
            let (writer, rest) = number(&bytes[at + MARK.len()..])?;
            let (number, _) = number(rest.strip_prefix(b" ")?)?;
            Some(Acknowledged { writer, number })
        })
        .collect()
}

/// A number and what follows it. At the end of the bytes there may be more digits in the next piece.
fn number(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()?;
    Some((number, &bytes[end..]))
}
