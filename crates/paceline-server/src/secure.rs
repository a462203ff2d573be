//! TLS between a connection and its session.

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use paceline::{HandlerKind, Level, Next, Piece};

use crate::{
    service::{HandshakePlace, Service},
    spare,
    tls::{EndOfInput, Received, Tls, TlsClient, TlsFailure, TlsInfo, TlsLayer},
    wire::Wire,
};

/// The TLS layer of a connection, and its place among the handshakes.
pub(crate) struct Secure {
    layer: TlsLayer,
    place: Place,
}

/// The place of a connection among the handshakes of its service.
enum Place {
    /// The client has not sent a byte: it costs nothing yet, and the limit of silence ends it.
    AtFirstByte,
    Taken {
        _place: HandshakePlace,
    },
    /// The handshake is done, or this side is the client.
    NotNeeded,
}

impl Secure {
    pub(crate) fn server(tls: &Tls) -> io::Result<Self> {
        Ok(Self {
            layer: TlsLayer::server(tls)?,
            place: Place::AtFirstByte,
        })
    }

    pub(crate) fn client(tls: &TlsClient, name: &str) -> io::Result<Self> {
        Ok(Self {
            layer: TlsLayer::client(tls, name)?,
            place: Place::NotNeeded,
        })
    }

    /// The first bytes have come: takes a place among the handshakes, if it has none. Whether there
    /// was one.
    pub(crate) fn ensure_place(&mut self, service: &Arc<Service>) -> bool {
        if matches!(self.place, Place::AtFirstByte) {
            let Some(place) = service.begin_handshake() else {
                return false;
            };
            self.place = Place::Taken { _place: place };
        }
        true
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
            self.place = Place::NotNeeded;
        }
        Ok(received)
    }

    /// Whether the peer has said that it sends nothing more.
    pub(crate) fn input_ended_properly(&self) -> bool {
        self.layer.end_of_input() == EndOfInput::Closed
    }

    /// How many bytes of a record have come that is not whole.
    pub(crate) fn partial_record(&self) -> usize {
        self.layer.partial_record()
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
    fn encrypt(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let needed = self.secure.layer.sealed(bytes);
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
            self.encrypt(&mut [IoSlice::new(piece.as_ref())])?;
        } else {
            let slices = pieces.iter().map(|piece| IoSlice::new(piece.as_ref()));
            self.encrypt(&mut slices.collect::<Vec<_>>())?;
        }
        pieces.fill_with(Piece::default);
        Ok(())
    }

    fn write_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        if let [slice] = slices {
            return self.encrypt(&mut [IoSlice::new(slice)]);
        }
        let mut slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        self.encrypt(&mut slices)
    }

    fn unsent(&self) -> usize {
        self.wire.unsent()
    }

    fn room(&self) -> usize {
        self.secure.layer.fitting(self.wire.room())
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
