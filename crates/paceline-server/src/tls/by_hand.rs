//! TLS for programs that move the bytes of their connections themselves.

use std::{
    fmt,
    io::{self, IoSlice},
};

use super::{layer::TlsLayer, Tls, TlsClient, TlsInfo};

/// The TLS protocol of one connection, without I/O: ciphertext is passed in and out.
///
/// ```
/// # fn shake(tls: &paceline_server::tls::Tls, hello: &[u8]) -> std::io::Result<Vec<u8>> {
/// use paceline_server::tls::TlsConnection;
///
/// let mut connection = TlsConnection::server(tls)?;
/// let (mut plaintext, mut to_peer) = (Vec::new(), Vec::new());
/// let received = connection.receive(hello, &mut plaintext);
/// connection.take_output(&mut to_peer); // also after an error: an alert
/// received?;
/// # Ok(to_peer)
/// # }
/// ```
pub struct TlsConnection(TlsLayer);

/// What a call of [`TlsConnection::receive`] has changed.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsReceived {
    /// The handshake ended with these bytes.
    pub handshake_finished: bool,
    /// The peer has said that it sends nothing more.
    pub closed_by_peer: bool,
}

impl TlsConnection {
    /// The server's side.
    ///
    /// # Errors
    /// The settings can't be used.
    pub fn server(tls: &Tls) -> io::Result<Self> {
        TlsLayer::server(tls).map(Self)
    }

    /// The client's side, for the server of this name or address.
    ///
    /// # Errors
    /// `InvalidInput` if `name` can't be the name of a server.
    pub fn client(tls: &TlsClient, name: &str) -> io::Result<Self> {
        TlsLayer::client(tls, name).map(Self)
    }

    /// Decrypts `ciphertext`, and appends what it holds to `plaintext`. The protocol may have
    /// something to send afterwards: [`take_output`](Self::take_output).
    ///
    /// # Errors
    /// The peer breaks the protocol, or is not trusted. An alert for it is in the output.
    pub fn receive(
        &mut self,
        ciphertext: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> io::Result<TlsReceived> {
        let received = self.0.receive(ciphertext, plaintext)?;
        Ok(TlsReceived {
            handshake_finished: received.handshake_finished,
            closed_by_peer: received.closed_by_peer,
        })
    }

    /// Encrypts `slices`, and appends the records to `output`.
    ///
    /// # Errors
    /// The peer must get new keys, which the protocol can't make.
    pub fn send(&mut self, slices: &[IoSlice<'_>], output: &mut Vec<u8>) -> io::Result<()> {
        self.0.send(slices, output)
    }

    /// Appends what the protocol has to send to `output`.
    pub fn take_output(&mut self, output: &mut Vec<u8>) {
        self.0.take_output(output);
    }

    /// Says that nothing more is sent: in the output afterwards.
    pub fn close_notify(&mut self) {
        self.0.close_notify();
    }

    /// Whether the handshake goes on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// What the handshake has agreed on.
    #[must_use]
    pub fn info(&self) -> TlsInfo {
        self.0.info()
    }
}

impl fmt::Debug for TlsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnection").finish_non_exhaustive()
    }
}
