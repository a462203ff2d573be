//! Decides which of several processes on one folder writes: the one that holds a file lock.
//!
//! ```text
//!   Standby --[Role::try_to_lock]--> holds the lock --[Role::begin_to_write]--> Writer
//! ```
//!
//! Between the two steps the process opens the connections that write. A session that wrote earlier
//! would find them missing. The kernel releases the lock when its process ends for any reason. A failed disk is not covered.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// The role of this process.
#[derive(Debug)]
pub(crate) struct Role {
    file: File,
    writes: AtomicBool,
}

/// The outcome of an attempt to become the writer.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeOver {
    /// This process holds the lock.
    Writer,
    /// Another process holds it.
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
            writes: AtomicBool::new(false),
        };
        // There are no sessions yet.
        if role.try_to_lock()? == TakeOver::Writer {
            role.begin_to_write();
        }
        Ok(role)
    }

    /// Whether this process writes.
    pub(crate) fn writes(&self) -> bool {
        self.writes.load(Ordering::Acquire)
    }

    /// Takes the lock if no process has it.
    pub(crate) fn try_to_lock(&self) -> io::Result<TakeOver> {
        match self.file.try_lock() {
            Ok(()) => Ok(TakeOver::Writer),
            Err(TryLockError::WouldBlock) => Ok(TakeOver::Standby),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Sessions may write from now on. This process holds the lock.
    pub(crate) fn begin_to_write(&self) {
        self.writes.store(true, Ordering::Release);
    }
}
