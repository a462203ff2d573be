//! TLS between a connection and its session.

use std::io::{self, IoSlice};

use paceline::{HandlerKind, Level, Next, Piece};

use crate::{
    service::HandshakePlace,
    spare,
    tls::{EndOfInput, Received, Tls, TlsClient, TlsFailure, TlsInfo, TlsLayer},
    wire::Wire,
};

/// The TLS layer of a connection, and its place among the handshakes.
pub(crate) struct Secure {
    layer: TlsLayer,
    /// Given back when the handshake is done.
    place: Option<HandshakePlace>,
}

/// The record layer adds fewer bytes than this to a write, and to each full record of it.
const OVERHEAD: usize = 128;
const RECORD: usize = 16 * 1024;

impl Secure {
    pub(crate) fn server(tls: &Tls, place: HandshakePlace) -> io::Result<Self> {
        Ok(Self {
            layer: TlsLayer::server(tls)?,
            place: Some(place),
        })
    }

    pub(crate) fn client(tls: &TlsClient, name: &str) -> io::Result<Self> {
        Ok(Self {
            layer: TlsLayer::client(tls, name)?,
            place: None,
        })
    }

    /// Decrypts `ciphertext`, and sends what the protocol answers to it.
    pub(crate) fn receive(
        &mut self,
        ciphertext: &[u8],
        plaintext: &mut Vec<u8>,
        wire: &mut dyn Wire,
    ) -> io::Result<Received> {
        let received = self.layer.receive(ciphertext, plaintext);
        let flushed = self.flush(wire);
        let received = received?;
        flushed?;
        if received.handshake_finished {
            self.place = None;
        }
        Ok(received)
    }

    /// Whether the peer has said that it sends nothing more.
    pub(crate) fn input_ended_properly(&self) -> bool {
        self.layer.end_of_input() == EndOfInput::Closed
    }

    /// What the handshake has agreed on.
    pub(crate) fn info(&self) -> TlsInfo {
        self.layer.info()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.layer.is_handshaking()
    }

    /// Sends what the protocol has to say.
    pub(crate) fn flush(&mut self, wire: &mut dyn Wire) -> io::Result<()> {
        let mut output = Vec::new();
        self.layer.take_output(&mut output);
        if output.is_empty() {
            Ok(())
        } else {
            wire.send_all(&mut [output.into()])
        }
    }

    /// Calls `with` with a wire that encrypts.
    pub(crate) fn over<R>(
        &mut self,
        wire: &mut dyn Wire,
        with: impl FnOnce(&mut dyn Wire) -> R,
    ) -> R {
        with(&mut SecureWire { secure: self, wire })
    }

    /// Says that nothing more is sent.
    pub(crate) fn close(&mut self, wire: &mut dyn Wire) {
        self.layer.close_notify();
        // The connection closes: there is no one else to be told.
        let _ = self.flush(wire);
    }
}

/// Whether the failure is a peer that speaks plain text.
pub(crate) fn is_plain_text(error: &io::Error) -> bool {
    let failure = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(failure, Some(TlsFailure::NotTls { .. }))
}

/// What a session writes to, encrypted.
struct SecureWire<'w> {
    secure: &'w mut Secure,
    wire: &'w mut dyn Wire,
}

impl SecureWire<'_> {
    /// Encrypts and sends all slices, if there is room for them: otherwise nothing is encrypted,
    /// because the peer must get every record.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let needed = bytes + (bytes / RECORD + 1) * OVERHEAD;
        if needed > self.wire.room() {
            // The wire refuses so many bytes, and names its limit.
            return self.wire.write_slices(&[IoSlice::new(&vec![0; needed])]);
        }
        if needed <= spare::SHORT {
            return spare::with_records(|output| {
                self.secure.layer.send(slices, output)?;
                self.wire.write_slices(&[IoSlice::new(output)])
            });
        }
        let mut output = Vec::with_capacity(needed);
        self.secure.layer.send(slices, &mut output)?;
        self.wire.send_all(&mut [output.into()])
    }
}

impl Wire for SecureWire<'_> {
    fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()> {
        if let [piece] = &*pieces {
            self.encrypt(&[IoSlice::new(piece.as_ref())])?;
        } else {
            let slices = pieces.iter().map(|piece| IoSlice::new(piece.as_ref()));
            self.encrypt(&slices.collect::<Vec<_>>())?;
        }
        pieces.fill_with(Piece::default);
        Ok(())
    }

    fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.encrypt(slices)
    }

    fn unsent(&self) -> usize {
        self.wire.unsent()
    }

    fn room(&self) -> usize {
        let room = self.wire.room();
        room.saturating_sub((room / RECORD + 1) * OVERHEAD)
    }

    fn blocking(&mut self, block: &mut dyn FnMut()) {
        self.wire.blocking(block);
    }

    fn wake_follower(&self) {
        self.wire.wake_follower();
    }

    fn begin_kind(&mut self, kind: &HandlerKind) {
        self.wire.begin_kind(kind);
    }

    fn move_to(&mut self, level: &Level) -> io::Result<Next> {
        self.wire.move_to(level)
    }
}
