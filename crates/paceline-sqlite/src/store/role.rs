//! Decides which of several processes on one folder writes: the one that holds a file lock.
//!
//! The kernel releases the lock when its process ends for any reason. A failed disk is not covered.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// The role of this process.
///
/// ```text
///   Standby --[try_to_lock]--> Locked      no other process writes any more
///   Locked  --[serve]--------> Writer      what the last writer has left in the log is durable
/// ```
///
/// Sessions write, and report that they do, only as `Writer`.
#[derive(Debug)]
pub(crate) struct Role {
    file: File,
    is_locked: AtomicBool,
    writes: AtomicBool,
}

/// The outcome of an attempt to become the writer.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeOver {
    /// This process holds the lock.
    Writer,
    /// Another process holds the lock.
    Standby,
}

impl Role {
    /// Opens the file of the lock in the folder, and tries to take it.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let path = folder.join("paceline.lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let role = Self {
            file: options.open(path)?,
            is_locked: AtomicBool::new(false),
            writes: AtomicBool::new(false),
        };
        let _: TakeOver = role.try_to_lock()?;
        Ok(role)
    }

    /// Whether this process holds the lock. It may still have to recover the logs.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Acquire)
    }

    /// Makes this process the writer, after all logs are recovered and durable.
    pub(crate) fn serve(&self) {
        // Pairs with the load in `writes`: a session that sees the new role finds durable logs.
        self.writes.store(true, Ordering::Release);
    }

    /// Whether this process writes.
    pub(crate) fn writes(&self) -> bool {
        self.writes.load(Ordering::Acquire)
    }

    /// Takes the lock if no process has it.
    pub(crate) fn try_to_lock(&self) -> io::Result<TakeOver> {
        if self.is_locked() {
            return Ok(TakeOver::Writer);
        }
        match self.file.try_lock() {
            Ok(()) => {
                self.is_locked.store(true, Ordering::Release);
                Ok(TakeOver::Writer)
            }
            Err(TryLockError::WouldBlock) => Ok(TakeOver::Standby),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
