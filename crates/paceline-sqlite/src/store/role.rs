//! Which of several processes on one folder writes: the one that has the lock of a file.
//!
//! The lock ends with its process, however that ends. It says nothing about a dead disk.

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
        role.try_to_write()?;
        Ok(role)
    }

    /// Whether this process writes.
    pub(crate) fn writes(&self) -> bool {
        self.writes.load(Ordering::Acquire)
    }

    /// Takes the lock if no process has it. Returns whether this process writes now.
    pub(crate) fn try_to_write(&self) -> io::Result<bool> {
        if self.writes() {
            return Ok(true);
        }
        match self.file.try_lock() {
            Ok(()) => {
                self.writes.store(true, Ordering::Release);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
