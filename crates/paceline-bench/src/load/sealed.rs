//! TLS on one connection of the client, without I/O: bytes come in and go out as arguments.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use rustls::{ClientConfig, ClientConnection};

use crate::tls;

/// The client's side of TLS.
#[derive(Debug)]
pub(crate) struct Sealed(ClientConnection);

impl Sealed {
    /// Nothing was sent yet: the handshake begins with the first request.
    pub(crate) fn new(config: &Arc<ClientConfig>) -> io::Result<Self> {
        let connection = ClientConnection::new(Arc::clone(config), tls::name()?);
        connection.map(Self).map_err(io::Error::other)
    }

    /// Replaces requests by what is to be sent for them. Until the handshake is done they wait inside.
    pub(crate) fn seal(&mut self, requests: &mut Vec<u8>) -> io::Result<()> {
        self.0.writer().write_all(requests)?;
        requests.clear();
        self.take_output(requests)
    }

    /// Takes what was received, appends what it holds to `replies`, and what is to be sent to `output`.
    ///
    /// # Errors
    /// The server breaks the protocol, or is not the one that was expected.
    pub(crate) fn open(
        &mut self,
        mut received: &[u8],
        replies: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        while !received.is_empty() {
            self.0.read_tls(&mut received)?;
            let state = self.0.process_new_packets().map_err(io::Error::other)?;
            let count = state.plaintext_bytes_to_read();
            let before = replies.len();
            replies.resize(before + count, 0);
            self.0.reader().read_exact(&mut replies[before..])?;
        }
        self.take_output(output)
    }

    /// Appends the end of the connection to `output`.
    pub(crate) fn end(&mut self, output: &mut Vec<u8>) {
        self.0.send_close_notify();
        // A vector takes everything.
        let _ = self.take_output(output);
    }

    fn take_output(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(output)?;
        }
        Ok(())
    }
}
