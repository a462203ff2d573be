//! Sockets that listen, of any family.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::AsFd,
        unix::net::{self, UnixListener, UnixStream},
    },
};

use crate::{dispatch::ListenerAddress, handle_set::Source};

/// A socket that listens: a [`TcpListener`] or a [`UnixListener`]. No other type can be one.
pub trait ListenerSocket: Source + AsFd + sealed::Sealed {
    /// What it accepts.
    type Stream: Source + AsFd;
    /// The type of its own address, and of those of peers.
    type Address: Clone + fmt::Debug + Into<ListenerAddress> + Send + 'static;

    #[doc(hidden)]
    fn accept_one(&self) -> io::Result<(Self::Stream, Self::Address)>;

    #[doc(hidden)]
    fn own_address(&self) -> io::Result<Self::Address>;

    /// The address of a peer, if IP has it.
    #[doc(hidden)]
    fn ip(peer: &Self::Address) -> Option<SocketAddr>;
}

impl ListenerSocket for TcpListener {
    type Stream = TcpStream;
    type Address = SocketAddr;

    fn accept_one(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept()
    }

    fn own_address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn ip(peer: &SocketAddr) -> Option<SocketAddr> {
        Some(*peer)
    }
}

impl ListenerSocket for UnixListener {
    type Stream = UnixStream;
    type Address = net::SocketAddr;

    fn accept_one(&self) -> io::Result<(UnixStream, net::SocketAddr)> {
        self.accept()
    }

    fn own_address(&self) -> io::Result<net::SocketAddr> {
        self.local_addr()
    }

    fn ip(_: &net::SocketAddr) -> Option<SocketAddr> {
        None
    }
}

mod sealed {
    use super::{TcpListener, UnixListener};

    pub trait Sealed {}

    impl Sealed for TcpListener {}

    impl Sealed for UnixListener {}
}
