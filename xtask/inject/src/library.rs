//! Faults from inside the server: a library of ours (`xtask/inject/faults.c`) is preloaded before libc in it. A
//! file that both sides map or write says what to spoil. Calls are counted over all threads.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::Trouble;

/// The variable that names the file.
pub(super) const VARIABLE: &str = "PACELINE_FAULTS";

/// Words in the record of one call.
const WORDS: u64 = 7;

/// The calls that can be spoilt, in the order of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Accepting a connection.
    Accept4,
    /// Adding a descriptor to the handle set.
    EpollCtl,
    /// Reading from a socket.
    Recv,
    /// Writing to a socket.
    Send,
    /// Waiting for events.
    EpollWait,
    /// Going to sleep.
    FutexSleep,
    /// Opening a connection.
    Connect,
    /// Writing to a socket, which takes one byte and a while later no more at all.
    Cut,
}

/// The number of calls.
const CALLS: u64 = 8;

/// The words of a record, in their order.
#[derive(Clone, Copy)]
enum Word {
    /// The first call that is spoilt; zero if none is.
    First,
    /// The last one.
    Last,
    /// Of so many calls between them ...
    Step,
    /// ... this many are spoilt, one behind the other.
    Run,
    /// The error; zero for doing less than was asked.
    Error,
    /// How many calls there were.
    Seen,
    /// How many were spoilt.
    Injected,
}

/// Which calls are spoilt, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spoil {
    /// The call.
    pub(super) call: Call,
    /// The error; zero for doing less than was asked.
    pub(super) error: u64,
    /// The first.
    pub(super) first: u64,
    /// The last.
    pub(super) last: u64,
    /// Of so many calls between them ...
    pub(super) step: u64,
    /// ... this many, one behind the other.
    pub(super) run: u64,
}

/// The file that controls the library.
pub(super) struct Controls {
    /// The file.
    file: File,
    /// Where it is.
    pub(super) path: PathBuf,
}

impl Controls {
    /// A new one, which spoils nothing. A server that was killed may still map the old one.
    pub(super) fn new(path: &Path) -> Result<Controls, Trouble> {
        let made = || {
            let _old = std::fs::remove_file(path);
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).open(path)?;
            file.set_len(CALLS * WORDS * 8)?;
            Ok(file)
        };
        let file = made().map_err(unreachable)?;
        let path = path.to_owned();
        Ok(Controls { file, path })
    }

    /// Begins to spoil calls, with counts from zero.
    pub(super) fn arm(&self, spoil: &Spoil) -> Result<(), Trouble> {
        let words = [
            (Word::First, 0),
            (Word::Seen, 0),
            (Word::Last, spoil.last),
            (Word::Step, spoil.step),
            (Word::Run, spoil.run),
            (Word::Error, spoil.error),
            // At last: from here on it strikes.
            (Word::First, spoil.first),
        ];
        words
            .into_iter()
            .try_for_each(|(word, value)| self.set(spoil.call, word, value))
            .map_err(unreachable)
    }

    /// Spoils no more of these calls.
    pub(super) fn disarm(&self, call: Call) -> Result<(), Trouble> {
        self.set(call, Word::First, 0).map_err(unreachable)
    }

    /// How many calls were spoilt, over all armings.
    pub(super) fn injected(&self, call: Call) -> u64 {
        let mut value = [0; 8];
        let told = self
            .file
            .read_exact_at(&mut value, at(call, Word::Injected));
        told.map_or(0, |()| u64::from_ne_bytes(value))
    }

    /// Sets a word.
    fn set(&self, call: Call, word: Word, value: u64) -> io::Result<()> {
        self.file.write_all_at(&value.to_ne_bytes(), at(call, word))
    }
}

/// The position of a word in the file.
fn at(call: Call, word: Word) -> u64 {
    8 * (WORDS * call as u64 + word as u64)
}

/// The file cannot be used.
fn unreachable(error: io::Error) -> Trouble {
    Trouble::Failed(format!("the library can't be told: {error}"))
}
