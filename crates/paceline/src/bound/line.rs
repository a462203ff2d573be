//! The connection itself: bytes in, bytes out, and a wait that others can end.

use std::{
    io::{self, IoSlice, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use super::outbound::Sink;
use crate::{
    handle_set::{poll_two, set_nonblocking, Ready},
    sync::{patience, Clock, Timestamp},
    unwind::Contained,
};

/// A byte stream with a descriptor that can be read and written through a shared reference: TCP and
/// Unix sockets, and whatever else is like them.
pub trait Stream: AsFd + Send + Sync + 'static {
    /// Reads some bytes.
    ///
    /// # Errors
    /// What the system said; `WouldBlock` if there is nothing to be read now.
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Writes some of these bytes.
    ///
    /// # Errors
    /// What the system said; `WouldBlock` if nothing can be written now.
    fn write_some(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl<S> Stream for S
where
    S: AsFd + Send + Sync + 'static,
    for<'s> &'s S: Read + Write,
{
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(into)
    }

    fn write_some(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self).write_vectored(bytes)
    }
}

/// What the driver needs of a connection. None of it blocks but the wait.
pub(super) trait Line: Sink {
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Waits until there is something to read, or (if `for_room`) it can be written, or a thread
    /// calls [`wake`](Self::wake), or `until` has passed. An interrupted wait ends early.
    fn wait(&self, for_room: bool, clock: &Clock, until: Option<Timestamp>) -> io::Result<Ready>;

    /// Ends the current or the next wait.
    fn wake(&self);

    /// Another descriptor of the same connection, for a pool.
    fn descriptor(&self) -> io::Result<OwnedFd>;
}

/// A socket, and a pair of others to end a wait.
pub(super) struct Socket<S> {
    /// Any thread may drop the last reference: a caller, the leader while it holds the lead, a
    /// thread of a pool.
    stream: Contained<S>,
    waker: UnixStream,
    woken: UnixStream,
}

impl<S: Stream> Socket<S> {
    /// Makes `stream` non-blocking.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn new(stream: S) -> Result<Self, (S, io::Error)> {
        let prepared = set_nonblocking(stream.as_fd().as_raw_fd()).and_then(|()| {
            let (waker, woken) = UnixStream::pair()?;
            waker.set_nonblocking(true)?;
            woken.set_nonblocking(true)?;
            Ok((waker, woken))
        });
        match prepared {
            Ok((waker, woken)) => Ok(Self {
                stream: Contained::new(stream),
                waker,
                woken,
            }),
            Err(error) => Err((stream, error)),
        }
    }
}

impl<S> Socket<S> {
    pub(super) fn into_stream(self) -> S {
        self.stream.into_inner()
    }
}

impl<S: Stream> Sink for Socket<S> {
    fn write(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_some(bytes)
    }
}

impl<S: Stream> Line for Socket<S> {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read_some(into)
    }

    fn wait(&self, for_room: bool, clock: &Clock, until: Option<Timestamp>) -> io::Result<Ready> {
        let awaited = if for_room {
            Ready::READABLE | Ready::WRITABLE
        } else {
            Ready::READABLE
        };
        let timeout = patience(until.map(|until| until.since(clock.now())));
        let stream = self.stream.as_fd().as_raw_fd();
        let (ready, woken) = poll_two((stream, awaited), self.woken.as_raw_fd(), timeout)?;
        if woken {
            let mut bytes = [0; 64];
            while matches!((&self.woken).read(&mut bytes), Ok(count) if count == bytes.len()) {}
        }
        Ok(ready)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.stream.as_fd().try_clone_to_owned()
    }

    fn wake(&self) {
        // Full is as good as written: the wait that is to end has not read it yet.
        let _ = (&self.waker).write(&[1]);
    }
}
