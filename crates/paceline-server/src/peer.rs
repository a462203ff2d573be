//! What a session gets beside an item: the peer at the other end of its connection.

use std::{
    fmt,
    fs::File,
    io::{self, IoSlice, Write},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use paceline::{Handle, HandlerKind, Level, Next, Piece};

use crate::{
    codec::{Codec, Framing},
    encoding::Encoding,
    link::{ConnectionId, Link},
    remote::Remote,
    spare,
    wire::{FileSent, Wire},
};

/// The other end of a connection, for one call of its [`Session`](crate::Session).
///
/// It is a [`std::io::Write`]: output is sent, or kept up to the
/// [limit](paceline::Builder::output_limit) of the pool. While output is kept the session gets no
/// further item, so a peer that does not read can't make the server keep more and more.
pub struct Peer<'p, C: Codec = Framing> {
    wire: &'p mut dyn Wire,
    link: &'p Arc<Link>,
    codec: &'p C,
    changes: &'p mut Changes<C>,
}

/// What a session wants to be changed after its call.
pub(crate) struct Changes<C> {
    pub(crate) codec: Option<C>,
    pub(crate) deadline: Option<Option<Duration>>,
    #[cfg(feature = "_tls")]
    pub(crate) start_tls: Option<crate::tls::Tls>,
}

impl<C> Default for Changes<C> {
    fn default() -> Self {
        Self {
            codec: None,
            deadline: None,
            #[cfg(feature = "_tls")]
            start_tls: None,
        }
    }
}

impl<C> Changes<C> {
    /// Whether the session wants TLS from here on.
    pub(crate) fn wants_tls(&self) -> bool {
        #[cfg(feature = "_tls")]
        return self.start_tls.is_some();
        #[cfg(not(feature = "_tls"))]
        return false;
    }
}

impl<'p, C: Codec> Peer<'p, C> {
    pub(crate) fn new(
        wire: &'p mut dyn Wire,
        link: &'p Arc<Link>,
        codec: &'p C,
        changes: &'p mut Changes<C>,
    ) -> Self {
        Self {
            wire,
            link,
            codec,
            changes,
        }
    }

    /// Sends `payload` as one item of this connection's codec: with its line end, its length, its
    /// final dot.
    ///
    /// # Errors
    /// `InvalidInput` if no item can have this payload. Otherwise as [`send`](Self::send).
    pub fn reply(&mut self, payload: impl AsRef<[u8]>) -> io::Result<()> {
        let payload = payload.as_ref();
        if payload.len() <= spare::SHORT {
            return spare::with_framed(|framed| {
                self.encode(payload, framed)?;
                self.write_all(framed)
            });
        }
        let mut framed = Vec::with_capacity(payload.len() + 8);
        self.encode(payload, &mut framed)?;
        self.send(framed)
    }

    fn encode(&self, payload: &[u8], framed: &mut Vec<u8>) -> io::Result<()> {
        let encoded = self.codec.encode(payload, framed);
        encoded.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    /// Sends a piece as it is: a `Vec<u8>`, a `String`, an `Arc<[u8]>`, a `&'static str`. What the
    /// peer does not take now is kept without a copy.
    ///
    /// # Errors
    /// [`OutputLimit`](paceline::OutputLimit) if more would be kept than the pool allows: nothing
    /// of the piece was taken. Otherwise the error of the connection.
    pub fn send(&mut self, piece: impl Into<Piece>) -> io::Result<()> {
        self.wire.send_all(&mut [piece.into()])
    }

    /// Sends several pieces in this order, by one system call if the peer takes them.
    ///
    /// # Errors
    /// As [`send`](Self::send); `pieces` are as they were.
    pub fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()> {
        self.wire.send_all(pieces)
    }

    /// Sends bytes that the session keeps: what the peer does not take now is copied.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_slices(&[IoSlice::new(bytes)])
    }

    /// Sends several slices in this order; what the peer does not take now is copied.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn write_all_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.wire.write_slices(slices)
    }

    /// Has the system send bytes of a file: see [`Wire::send_file`].
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn send_file(
        &mut self,
        file: &File,
        offset: &mut u64,
        count: usize,
    ) -> io::Result<FileSent> {
        self.wire.send_file(file, offset, count)
    }

    /// Sends formatted text: what `write!(cx, ..)` calls.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        match text.as_str() {
            Some(text) => self.write_all(text.as_bytes()),
            None => self.send(fmt::format(text)),
        }
    }

    /// How many bytes are kept because the peer has not taken them yet. A worker of the half-sync
    /// engine collects output: there, all that it has collected in this call, from 64 KiB on or from
    /// a quarter of a lower [limit](paceline::Builder::output_limit).
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.wire.unsent()
    }

    /// How many more bytes may be kept: a write of so many is taken whole.
    #[must_use]
    pub fn output_room(&self) -> usize {
        self.wire.room()
    }

    /// Whether the server drains: the connection closes as soon as it is between two items.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.link.service().is_draining()
    }

    /// The number of this connection, which no other connection of this process ever has.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.link.id()
    }

    /// The address of the peer.
    #[must_use]
    pub fn address(&self) -> &PeerAddress {
        self.link.address()
    }

    /// The pool's handle of this connection, for [`Handle::pin_to`] and its like.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.link.handle()
    }

    /// The connection as other sessions and threads may have it: to send to it, to pause it, to close
    /// it.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote::new(self.link)
    }

    /// The connection itself, for rooms.
    pub(crate) fn link(&self) -> &Arc<Link> {
        self.link
    }

    /// Gets the messages of rooms, and what is sent to its [`Remote`], in this form from now on: also
    /// those that wait already. Default: [`Encoding::Raw`].
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.link.set_encoding(encoding);
    }

    /// Decodes with `codec` from the next byte on: what has come behind this item goes to it too.
    pub fn switch(&mut self, codec: C) {
        self.changes.codec = Some(codec);
    }

    /// Continues with TLS: the output so far goes in plain text, and the peer's next bytes begin
    /// the handshake when this call has returned [`Next::Continue`].
    /// [`Session::start`](crate::Session::start) is called again when the handshake is done.
    ///
    /// If the peer has sent anything behind this item, the connection fails: an attacker may have
    /// put it there.
    ///
    /// # Errors
    /// `AlreadyExists` if the connection has TLS already.
    #[cfg(feature = "_tls")]
    pub fn start_tls(&mut self, tls: &crate::tls::Tls) -> io::Result<()> {
        if self.link.tls().is_some() {
            let text = "start TLS: the connection has TLS already";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        self.changes.start_tls = Some(tls.clone());
        Ok(())
    }

    /// What the TLS handshake has agreed on; `None` if the connection has no TLS.
    #[cfg(feature = "_tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&crate::tls::TlsInfo> {
        self.link.tls()
    }

    /// Calls `with` as a session of another codec, in which the connection speaks within its own. What
    /// `with` wants to be changed is for the caller.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn speaking<D: Codec, R>(
        &mut self,
        codec: &D,
        with: impl FnOnce(&mut Peer<'_, D>) -> R,
    ) -> (R, Changes<D>) {
        let mut changes = Changes::default();
        let mut peer = Peer::new(&mut *self.wire, self.link, codec, &mut changes);
        let result = with(&mut peer);
        (result, changes)
    }

    /// Sets the session's own deadline, `within` from now; `None`: it has none. When it passes,
    /// [`Session::overdue`](crate::Session::overdue) is called with
    /// [`Limit::Deadline`](crate::Limit::Deadline).
    pub fn set_deadline(&mut self, within: impl Into<Option<Duration>>) {
        self.changes.deadline = Some(within.into());
    }

    /// Runs `block`, which may block: another thread leads meanwhile.
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        let (mut block, mut result) = (Some(block), None);
        self.wire
            .blocking(&mut || result = block.take().map(|block| block()));
        result.expect("a wire runs what it is given")
    }

    /// Says that the rest of this call takes long: another thread leads meanwhile.
    pub fn wake_follower(&self) {
        self.wire.wake_follower();
    }

    /// Says that the rest of this call is of this kind: see
    /// [`Pool::handler_kind`](paceline::Pool::handler_kind).
    pub fn begin_kind(&mut self, kind: &HandlerKind) {
        self.wire.begin_kind(kind);
    }

    /// Moves the connection to another service level: return what this gives.
    ///
    /// # Errors
    /// As [`Context::move_to`](paceline::Context::move_to).
    pub fn move_to(&mut self, level: &Level) -> io::Result<Next> {
        self.wire.move_to(level)
    }
}

impl<C: Codec> Write for Peer<'_, C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Peer::write_all(self, bytes)?;
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_all_vectored(slices)?;
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Peer::write_all(self, bytes)
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        Peer::write_fmt(self, text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<C: Codec> fmt::Debug for Peer<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("id", &self.id())
            .field("address", self.address())
            .field("unsent", &self.unsent())
            .finish_non_exhaustive()
    }
}

/// The address of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerAddress {
    /// A TCP connection.
    Ip(SocketAddr),
    /// A Unix socket. Its peers seldom have an address.
    Unix,
    /// A stream of a [simulation](paceline::simulated).
    Simulated,
}

impl PeerAddress {
    /// The address, if the peer has one of the Internet.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            _ => None,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
            Self::Simulated => f.write_str("simulated"),
        }
    }
}
