//! What becomes of connections that are not served.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    net::Shutdown,
    os::fd::AsFd,
    sync::{PoisonError, RwLock},
};

use socket2::SockRef;

/// How often, and how much at a time, is read of what a refused peer has sent.
const DISCARDS: usize = 16;
const DISCARDED: usize = 4096;

/// What a listener says to connections that it refuses, if it says anything.
#[derive(Debug, Default)]
pub(super) struct Refusal(Option<Vec<u8>>);

impl Refusal {
    pub(super) fn new(text: Option<Vec<u8>>) -> Self {
        Self(text)
    }

    /// Whether connections beyond the bound are accepted and refused. Otherwise they wait.
    pub(super) fn is_said(&self) -> bool {
        self.0.is_some()
    }

    /// Closes a connection, with the text. It never waits for the peer, so an error is none of
    /// ours.
    pub(super) fn close(&self, stream: impl AsFd) {
        if let Some(text) = &self.0 {
            let socket = SockRef::from(&stream);
            let _ = socket.send_with_flags(text, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            let _ = socket.shutdown(Shutdown::Write);
            discard(&socket);
        }
    }
}

/// Reads what has come: the system resets a connection that is closed with unread input, and the
/// peer may lose the text.
fn discard(socket: &SockRef<'_>) {
    let mut buffer = [MaybeUninit::uninit(); DISCARDED];
    for _ in 0..DISCARDS {
        match socket.recv_with_flags(&mut buffer, libc::MSG_DONTWAIT) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Written while a listener has given up its spare descriptor: the pools themselves must not take
/// it, or there would be none to refuse with until another one is free, and connections would wait
/// that long. (Whatever else opens descriptors in this process may take it; then they do.)
static GIVEN_UP: RwLock<()> = RwLock::new(());

/// Opens a descriptor, which is not the spare one of a listener.
pub(in crate::pool) fn beside_listeners<T>(open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _none_is_given_up = GIVEN_UP.read().unwrap_or_else(PoisonError::into_inner);
    open()
}

/// A descriptor held back for the moment when there are no others.
#[derive(Debug)]
pub(super) struct Spare(Option<File>);

impl Spare {
    pub(super) fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Gives the descriptor up while `open` opens, uses and closes another one.
    pub(super) fn instead<R>(&mut self, open: impl FnOnce() -> R) -> R {
        let _nobody_else_opens = GIVEN_UP.write().unwrap_or_else(PoisonError::into_inner);
        self.0 = None;
        let done = open();
        *self = Self::new();
        done
    }
}
