//! Where connections come in, for the servers that are written by hand.

use std::{
    fs::File,
    io,
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{accept_with, SocketFlags},
};

/// How long to pause when a connection can be neither accepted nor turned away.
const PAUSE: Duration = Duration::from_millis(1);

/// The listening socket, and a descriptor in reserve for when there are no others.
pub(super) struct Door {
    listener: TcpListener,
    spare: Mutex<Option<File>>,
}

impl Door {
    /// Connections are taken from `listener` without waiting for them.
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let spare = Mutex::new(Some(spare()?));
        Ok(Self { listener, spare })
    }

    /// The next connection that waits, ready for use; `None` if none does. One that has gone, and a full table of
    /// descriptors, end nothing. One thread at a time asks.
    pub(super) fn next(&self) -> Option<TcpStream> {
        loop {
            match self.accept() {
                Ok(stream) => return Some(stream),
                Err(Errno::AGAIN) => return None,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.turn_away()?;
                }
                Err(_) => {}
            }
        }
    }

    fn accept(&self) -> Result<TcpStream, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let stream = TcpStream::from(accept_with(&self.listener, flags)?);
        // If it has gone already, its first read will tell.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Accepts and closes one connection, by the descriptor in reserve, so that it does not wait for ever. `None`
    /// if there is none: without a descriptor, the system does not look whether anyone waits.
    fn turn_away(&self) -> Option<()> {
        let mut reserve = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = match reserve.take() {
            Some(spare) => {
                drop(spare);
                self.accept().map(drop)
            }
            None => {
                thread::sleep(PAUSE);
                Ok(())
            }
        };
        *reserve = spare().ok();
        (accepted != Err(Errno::AGAIN)).then_some(())
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn spare() -> io::Result<File> {
    File::open("/dev/null")
}
