//! Faults of the disk and of the clock, from inside of a server: a library of ours stands before libc
//! in its process. `spoiler.c` is its text; the system's C compiler makes it when it is needed.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

const TEXT: &str = include_str!("spoiler.c");

/// The variable that names the file of the words.
const VARIABLE: &str = "PACELINE_SPOILER";

/// The words of the file, in their order.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// So many of the next syncs fail.
    ToFail,
    /// How many have failed.
    Failed,
    /// How long each sync takes longer, in microseconds.
    Delay,
    /// How many have not failed.
    Syncs,
    /// By how many seconds the clock is wrong.
    Offset,
}

/// The number of words.
const WORDS: u64 = 5;

/// The library, and the file by which it is controlled.
#[derive(Debug)]
pub(super) struct Spoiler {
    library: PathBuf,
    controls: PathBuf,
    file: File,
}

impl Spoiler {
    /// Makes the library in this folder.
    pub(super) fn make(folder: &Path) -> io::Result<Self> {
        let (text, library) = (folder.join("spoiler.c"), folder.join("spoiler.so"));
        fs::write(&text, TEXT)?;
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O2", "-w", "-o"])
            .arg(&library);
        compiler.arg(&text).arg("-ldl");
        let output = compiler.stdin(Stdio::null()).output();
        let output = output
            .map_err(|error| io::Error::new(error.kind(), format!("starting cc: {error}")))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("cc has failed: {words}")));
        }
        let controls = folder.join("spoiler.words");
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&controls)?;
        file.set_len(8 * WORDS)?;
        Ok(Self {
            library,
            controls,
            file,
        })
    }

    /// What a server's environment needs.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("LD_PRELOAD".into(), self.library.clone().into()),
            (VARIABLE.into(), self.controls.clone().into()),
        ]
    }

    /// Lets so many of the next syncs fail with EIO.
    pub(super) fn fail_syncs(&self, count: i64) -> io::Result<()> {
        self.set(Word::ToFail, count)
    }

    /// How many syncs have failed so far.
    pub(super) fn failed_syncs(&self) -> io::Result<i64> {
        self.get(Word::Failed)
    }

    /// Lets each sync take longer.
    pub(super) fn delay_syncs(&self, by: Duration) -> io::Result<()> {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.set(Word::Delay, micros)
    }

    /// How many syncs have been made so far.
    pub(super) fn syncs(&self) -> io::Result<i64> {
        self.get(Word::Syncs)
    }

    /// Sets the clock of the day forward by so many seconds, or back.
    pub(super) fn shift_clock(&self, by: i64) -> io::Result<()> {
        self.set(Word::Offset, by)
    }

    fn set(&self, word: Word, value: i64) -> io::Result<()> {
        self.file
            .write_all_at(&value.to_ne_bytes(), 8 * word as u64)
    }

    fn get(&self, word: Word) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 8 * word as u64)?;
        Ok(i64::from_ne_bytes(bytes))
    }
}
