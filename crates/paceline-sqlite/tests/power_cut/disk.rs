//! A disk that loses its power: what is durable, and what may or may not have been written.
//!
//! A file has the content that is durable, and the writes since. A sync that has ended makes durable
//! what was written before it began. Names are durable only after a sync of the folder. A loss of power
//! keeps what is durable and any part of the rest.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use crate::{chance::Chance, trace::Record};

/// The name of the folder in its trace.
const FOLDER: &str = ".";

/// The files of a folder.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// By their numbers: an inode may be used again for another file.
    files: Vec<File>,
    /// The file of each inode.
    inodes: HashMap<u64, usize>,
    folder: Option<u64>,
    /// The names as processes see them.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names that are not durable.
    changes: Vec<(String, Option<usize>)>,
    /// For each sync that has begun, by inode and number: how many changes it covers.
    syncs: HashMap<(u64, u64), usize>,
    /// Changes of names that are durable.
    names_made: usize,
}

#[derive(Debug, Default)]
struct File {
    durable: Vec<u8>,
    changes: Vec<Change>,
    /// How many changes are in `durable`.
    made: usize,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

/// What remains of writes that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing.
    Dropped,
    /// A random half, whole calls.
    Calls,
    /// A random half, in sectors of so many bytes.
    Sectors(usize),
}

impl Disk {
    /// The call of this record is made.
    pub(crate) fn apply(&mut self, record: &Record) {
        match record {
            Record::Open { inode, name } if name == FOLDER => self.folder = Some(*inode),
            Record::Open { inode, name } => self.open(*inode, name),
            Record::Write {
                inode,
                offset,
                bytes,
            } => {
                let (offset, bytes) = (*offset, bytes.clone());
                self.file(*inode)
                    .changes
                    .push(Change::Write { offset, bytes });
            }
            Record::Truncate { inode, length } => {
                let length = *length;
                self.file(*inode).changes.push(Change::Truncate { length });
            }
            Record::SyncBegins { inode, number } => {
                let covered = self.changes_of(*inode);
                self.syncs.insert((*inode, *number), covered);
            }
            Record::SyncEnds { inode, number } => self.sync_ends(*inode, *number),
            Record::Unlink { name } => {
                if self.names.remove(name).is_some() {
                    self.changes.push((name.clone(), None));
                }
            }
            Record::Send { .. } => {}
        }
    }

    fn open(&mut self, inode: u64, name: &str) {
        let known = self.inodes.get(&inode);
        if known.is_some() && known == self.names.get(name) {
            return;
        }
        let number = self.files.len();
        self.files.push(File::default());
        self.inodes.insert(inode, number);
        self.names.insert(name.to_owned(), number);
        self.changes.push((name.to_owned(), Some(number)));
    }

    fn file(&mut self, inode: u64) -> &mut File {
        &mut self.files[self.inodes[&inode]]
    }

    /// How many changes there were since the beginning.
    fn changes_of(&mut self, inode: u64) -> usize {
        if self.folder == Some(inode) {
            return self.names_made + self.changes.len();
        }
        let file = self.file(inode);
        file.made + file.changes.len()
    }

    fn sync_ends(&mut self, inode: u64, number: u64) {
        let covered = self.syncs.remove(&(inode, number)).expect("it began");
        if self.folder != Some(inode) {
            self.file(inode).make_durable(covered);
            return;
        }
        let count = covered.saturating_sub(self.names_made);
        for (name, file) in self.changes.drain(..count) {
            rename(&mut self.durable_names, name, file);
        }
        self.names_made += count;
    }

    /// Writes what a loss of power may leave into a folder.
    pub(crate) fn write_image(&self, rest: Rest, chance: &mut Chance, folder: &Path) {
        let mut names = self.durable_names.clone();
        for (name, file) in &self.changes {
            if rest != Rest::Dropped && chance.is_heads() {
                rename(&mut names, name.clone(), *file);
            }
        }
        for (name, file) in names {
            let content = self.files[file].left(rest, chance);
            fs::write(folder.join(name), content).expect("room for an image");
        }
    }
}

fn rename(names: &mut BTreeMap<String, usize>, name: String, file: Option<usize>) {
    match file {
        Some(file) => names.insert(name, file),
        None => names.remove(&name),
    };
}

impl File {
    /// The first `covered` changes are durable.
    fn make_durable(&mut self, covered: usize) {
        let count = covered.saturating_sub(self.made);
        for change in self.changes.drain(..count) {
            change.apply(&mut self.durable);
        }
        self.made += count;
    }

    /// The content after a loss of power.
    fn left(&self, rest: Rest, chance: &mut Chance) -> Vec<u8> {
        let mut content = self.durable.clone();
        let pieces = self.changes.iter().flat_map(|change| change.pieces(rest));
        for piece in pieces {
            if chance.is_heads() {
                piece.apply(&mut content);
            }
        }
        content
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Truncate { length } => content.resize(*length, 0),
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*offset..end].copy_from_slice(bytes);
            }
        }
    }

    /// The parts that a loss of power keeps or drops as a whole.
    fn pieces(&self, rest: Rest) -> Vec<Self> {
        match (self, rest) {
            (_, Rest::Dropped) => Vec::new(),
            (Self::Write { offset, bytes }, Rest::Sectors(size)) => sectors(*offset, bytes, size),
            _ => vec![self.clone()],
        }
    }
}

/// A write, divided where sectors begin.
fn sectors(mut offset: usize, mut bytes: &[u8], size: usize) -> Vec<Change> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(bytes.len().min(size - offset % size));
        pieces.push(Change::Write {
            offset,
            bytes: piece.to_vec(),
        });
        offset += piece.len();
        bytes = rest;
    }
    pieces
}

/// The rules of the disk, on a story of a few calls.
#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let write = |offset: usize, text: &[u8]| Record::Write {
        inode: 7,
        offset,
        bytes: text.to_vec(),
    };
    let mut disk = Disk::default();
    let mut chance = Chance::new(1);
    let name = "bank.sqlite".to_owned();
    for record in [
        Record::Open { inode: 7, name },
        write(0, b"old"),
        Record::SyncBegins {
            inode: 7,
            number: 0,
        },
        write(0, b"new"),
        Record::SyncEnds {
            inode: 7,
            number: 0,
        },
    ] {
        disk.apply(&record);
    }
    let file = &disk.files[0];
    assert_eq!(file.left(Rest::Dropped, &mut chance), b"old");
    assert!(disk.durable_names.is_empty(), "the folder was not synced");
    let outcomes = (0..64).map(|_| file.left(Rest::Sectors(2), &mut chance));
    let outcomes: std::collections::BTreeSet<_> = outcomes.collect();
    let expected = ["new", "ned", "olw", "old"].map(|text| text.as_bytes().to_vec());
    assert_eq!(outcomes, expected.into_iter().collect());
}
