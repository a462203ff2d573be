//! Memory for the checkers, and for systems without shared memory of this kind: one process, and
//! nothing to pass on.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use crate::sync::atomic::AtomicU64;

/// Words that no other process shares.
pub(super) struct Map(Vec<AtomicU64>);

impl Map {
    #[cfg(all(test, loom))]
    pub(super) fn of_words(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn create(_words: usize) -> io::Result<(Self, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn open(_memory: OwnedFd, _most: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

pub(super) fn send(_over: &UnixStream, _memory: &OwnedFd) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn receive(_over: &UnixStream) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}
