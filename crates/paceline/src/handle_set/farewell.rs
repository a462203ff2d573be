//! The end of a connection that is not cut off: the output ends, and what the peer still sends is
//! read and dropped.
//!
//! To close a socket with unread input resets the connection, and the peer may lose the last
//! answer.

use std::{io, mem::MaybeUninit, net::Shutdown, os::fd::BorrowedFd};

use socket2::{SockRef, Type};

use super::{source::Kind, Descriptor};

/// One read drops so many bytes at most.
const SCRAP: usize = 16 * 1024;

impl Descriptor<'_> {
    /// Ends the output: the peer reads its end after everything that was sent.
    ///
    /// # Errors
    /// `Unsupported` if it is no stream socket; otherwise what the system said.
    pub(crate) fn end_output(self) -> io::Result<()> {
        match self.kind() {
            Kind::System(descriptor) => end_stream(descriptor),
            Kind::Simulated(stream) => stream.end_output(),
            Kind::Number(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether input is there to be read; `None` if the system does not say.
    pub(crate) fn has_input(self) -> Option<bool> {
        match self.kind() {
            Kind::System(descriptor) => peek(descriptor),
            Kind::Simulated(stream) => Some(stream.has_input()),
            Kind::Number(_) => None,
        }
    }

    /// Reads up to `room` bytes and drops them. `Ok(0)` is the end of the input.
    ///
    /// # Errors
    /// "Would block" if there is nothing now; otherwise what the system said.
    pub(crate) fn discard(self, room: usize) -> io::Result<usize> {
        match self.kind() {
            Kind::System(descriptor) => {
                let mut scrap = [MaybeUninit::uninit(); SCRAP];
                let scrap = &mut scrap[..room.min(SCRAP)];
                SockRef::from(&descriptor).recv_with_flags(scrap, libc::MSG_DONTWAIT)
            }
            Kind::Simulated(stream) => stream.discard(room),
            Kind::Number(_) => Ok(0),
        }
    }
}

fn peek(descriptor: BorrowedFd<'_>) -> Option<bool> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let mut byte = [MaybeUninit::uninit()];
    match SockRef::from(&descriptor).recv_with_flags(&mut byte, flags) {
        Ok(count) => Some(count > 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(false),
        Err(_) => None,
    }
}

fn end_stream(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let socket = SockRef::from(&descriptor);
    if socket.r#type()? != Type::STREAM {
        return Err(io::ErrorKind::Unsupported.into());
    }
    socket.shutdown(Shutdown::Write)
}
