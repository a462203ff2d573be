//! TLS on one connection, without I/O: bytes of the network come in and go out as arguments.

use std::io::{self, IoSlice, Read, Write};

use rustls::{
    pki_types::ServerName, ClientConnection, Connection, IoState, ProtocolVersion, ServerConnection,
};

use super::{records::Records, Tls, TlsClient, TlsFailure, TlsInfo};

/// The first byte of a record that belongs to a handshake.
const HANDSHAKE_RECORD: u8 = 22;

/// How many bytes of plain text a record carries at most.
const RECORD: usize = 16 * 1024;

/// The header of a record, in the setting that limits how long a record is.
const HEADER: usize = 5;

/// A record has fewer bytes than this around its plain text.
const OVERHEAD: usize = 64;

/// The TLS protocol of one connection.
pub(crate) struct TlsLayer {
    connection: Connection,
    /// How many bytes of plain text a record carries at most.
    record: usize,
    /// The records that come in.
    records: Records,
    /// Nothing has been received yet.
    is_untouched: bool,
    end: EndOfInput,
}

/// How far the peer's output has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOfInput {
    /// It may send more. If its stream ends here, somebody may have cut it.
    Open,
    /// It has said that it sends nothing more.
    Closed,
}

/// What a call of [`TlsLayer::receive`] has changed.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) handshake_finished: bool,
    pub(crate) closed_by_peer: bool,
}

impl TlsLayer {
    pub(crate) fn server(tls: &Tls) -> io::Result<Self> {
        let config = tls.config();
        let record = config.max_fragment_size;
        let connection = ServerConnection::new(config).map_err(failed)?;
        Ok(Self::new(connection.into(), record))
    }

    /// # Errors
    /// `InvalidInput` if `name` can't be the name of a server.
    pub(crate) fn client(tls: &TlsClient, name: &str) -> io::Result<Self> {
        let server = ServerName::try_from(name.to_owned()).map_err(|why| {
            let text = format!("begin TLS with {name:?}: {why}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let connection = ClientConnection::new(tls.config.clone(), server).map_err(failed)?;
        Ok(Self::new(connection.into(), tls.config.max_fragment_size))
    }

    fn new(mut connection: Connection, longest_record: Option<usize>) -> Self {
        let record = longest_record.map_or(RECORD, |longest| longest.saturating_sub(HEADER));
        // The caller has checked that there is room: see `SecureWire::encrypt`.
        connection.set_buffer_limit(None);
        Self {
            connection,
            record: record.clamp(1, RECORD),
            records: Records::default(),
            is_untouched: true,
            end: EndOfInput::Open,
        }
    }

    /// Decrypts `ciphertext`, and appends what it holds to `plaintext`.
    ///
    /// # Errors
    /// The peer breaks the protocol, or is not trusted. An alert for it is in the output.
    pub(crate) fn receive(
        &mut self,
        mut ciphertext: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> io::Result<Received> {
        let was_handshaking = self.is_handshaking();
        self.ensure_tls(ciphertext)?;
        self.records.follow(ciphertext);
        while !ciphertext.is_empty() && self.end == EndOfInput::Open {
            self.connection.read_tls(&mut ciphertext)?;
            let state = self.connection.process_new_packets().map_err(failed)?;
            self.take_plaintext(&state, plaintext)?;
            if state.peer_has_closed() {
                self.end = EndOfInput::Closed;
            }
        }
        Ok(Received {
            handshake_finished: was_handshaking && !self.is_handshaking(),
            closed_by_peer: self.end == EndOfInput::Closed,
        })
    }

    /// A peer that speaks another protocol is found by its first byte.
    fn ensure_tls(&mut self, ciphertext: &[u8]) -> io::Result<()> {
        if let (true, Some(&first)) = (self.is_untouched, ciphertext.first()) {
            self.is_untouched = false;
            if first != HANDSHAKE_RECORD {
                return Err(TlsFailure::NotTls { first }.into());
            }
        }
        Ok(())
    }

    fn take_plaintext(&mut self, state: &IoState, plaintext: &mut Vec<u8>) -> io::Result<()> {
        let count = state.plaintext_bytes_to_read();
        if count > 0 {
            let before = plaintext.len();
            plaintext.resize(before + count, 0);
            self.connection
                .reader()
                .read_exact(&mut plaintext[before..])?;
        }
        Ok(())
    }

    /// Encrypts `slices`, and appends the records to `output`.
    ///
    /// # Errors
    /// The peer must get new keys, which the protocol can't make.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>], output: &mut Vec<u8>) -> io::Result<()> {
        // Slices share records: see `sealed`. But records are taken out between the batches, so that
        // rustls keeps no second copy of all.
        let chunks = slices.iter().flat_map(|slice| slice.chunks(RECORD));
        let (mut batch, mut length) = (Vec::new(), 0);
        for chunk in chunks {
            batch.push(IoSlice::new(chunk));
            length += chunk.len();
            if length >= RECORD {
                self.send_batch(&batch, length, output)?;
                batch.clear();
                length = 0;
            }
        }
        self.send_batch(&batch, length, output)
    }

    fn send_batch(
        &mut self,
        batch: &[IoSlice<'_>],
        length: usize,
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        if self.connection.writer().write_vectored(batch)? < length {
            // It has no limit: see `new`.
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.take_output(output);
        Ok(())
    }

    /// How many bytes the records of `bytes` bytes of plain text have at most. Each batch may end with
    /// a record that is not full, and has one full record at least: so each record counts twice. One
    /// more may bring new keys.
    pub(crate) fn sealed(&self, bytes: usize) -> usize {
        let records = 2 * (bytes / self.record) + 2;
        bytes + records * OVERHEAD
    }

    /// For how many bytes of plain text there is room: [`sealed`](Self::sealed), the other way round.
    pub(crate) fn fitting(&self, room: usize) -> usize {
        let full = self.record + 2 * OVERHEAD;
        let room = room.saturating_sub(2 * OVERHEAD);
        room / full * self.record + (room % full).saturating_sub(2 * OVERHEAD)
    }

    /// How many bytes of a record have come that is not whole.
    pub(crate) fn partial_record(&self) -> usize {
        match self.end {
            EndOfInput::Open => self.records.partial(),
            // What comes behind the end is nothing.
            EndOfInput::Closed => 0,
        }
    }

    /// Appends what the protocol has to send to `output`.
    pub(crate) fn take_output(&mut self, output: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // A vector takes everything.
            if self.connection.write_tls(output).is_err() {
                return;
            }
        }
    }

    pub(crate) fn close_notify(&mut self) {
        self.connection.send_close_notify();
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) fn end_of_input(&self) -> EndOfInput {
        self.end
    }

    fn cipher_suite(&self) -> String {
        let suite = self.connection.negotiated_cipher_suite();
        let name = suite.and_then(|suite| suite.suite().as_str());
        shown(name.unwrap_or("unknown"))
    }

    /// What the handshake has agreed on.
    pub(crate) fn info(&self) -> TlsInfo {
        let server_name = match &self.connection {
            Connection::Server(server) => server.server_name().map(str::to_owned),
            Connection::Client(_) => None,
        };
        TlsInfo {
            server_name,
            alpn: self.connection.alpn_protocol().map(<[u8]>::to_vec),
            version: match self.connection.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "unknown",
            },
            cipher_suite: self.cipher_suite(),
        }
    }
}

/// The names of TLS 1.3 differ from OpenSSL's by their first part.
fn shown(suite: &str) -> String {
    suite.replacen("TLS13_", "TLS_", 1)
}

/// Refuses what came in plain text behind the command that begins TLS.
pub(crate) fn ensure_no_plaintext(rest: &[u8]) -> io::Result<()> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(TlsFailure::PlaintextLeft { bytes: rest.len() }.into())
    }
}

fn failed(error: rustls::Error) -> io::Error {
    TlsFailure::Protocol(error).into()
}
