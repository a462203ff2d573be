//! TLS with a client: asked for by an SSLRequest, or begun without a question.
//!
//! ```text
//!   SSLRequest ---> S ---> handshake          its next bytes are TLS's
//!   a first byte of TLS ---> handshake        these bytes are TLS's; it must name the protocol
//! ```

use paceline_server::tls::TlsConnection;

use super::{relay::Progress, Session};
use crate::front::{call::Call, tls, wire::Wire};

/// How a client has begun TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsStart {
    /// By an SSLRequest, or not yet.
    Asked,
    /// Without a question: TLS must name PostgreSQL's protocol, so that the bytes are meant for us.
    Direct,
}

/// What became of the handshake of TLS.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// It is done, or goes on, or there is none.
    Good,
    /// It is done, and does not name the protocol although it must.
    Nameless,
}

impl Session {
    /// Begins the handshake.
    pub(super) fn begin_tls(&mut self, call: &mut Call<'_, '_, '_>) {
        let live = self.front.live();
        let Some(tls) = &live.client_tls.tls else {
            return self.leave("TLS is off", call);
        };
        let connection = match TlsConnection::server(tls) {
            Ok(connection) => connection,
            Err(error) => return self.leave(&error.to_string(), call),
        };
        let Some(handle) = self.handle.clone() else {
            return;
        };
        let wire = &mut self.wire;
        let begun = call.with(&handle, |cx| wire.begin_tls(connection, cx));
        if let Err(error) = begun {
            self.leave(&tls::explained(&error), call);
        }
    }

    /// The bytes that have begun TLS without a question are its own.
    pub(super) fn first_ciphertext(
        &mut self,
        bytes: &[u8],
        call: &mut Call<'_, '_, '_>,
    ) -> Progress {
        if let (Wire::Tls(_), Some(handle)) = (&self.wire, self.handle.clone()) {
            let (wire, input) = (&mut self.wire, &mut self.input);
            let fed = call.with(&handle, |cx| wire.decrypt(cx, bytes, input));
            if let Err(error) = fed {
                self.client_failed(&error, call);
            }
        }
        Progress::Took(bytes.len())
    }

    /// The handshake of TLS may be done.
    pub(super) fn note_handshake(&mut self, was_handshaking: bool) -> Handshake {
        if !was_handshaking || self.wire.is_handshaking() {
            return Handshake::Good;
        }
        let Some(info) = self.wire.tls_info() else {
            return Handshake::Good;
        };
        let shown = format!("{}/{}", info.version, info.cipher_suite);
        self.client.facts().tls = self.front.commons.text(&shown);
        let Some(login) = self.login() else {
            return Handshake::Good;
        };
        login.machine.tls_started();
        match (login.tls_start, info.alpn.as_deref()) {
            (TlsStart::Direct, None) => Handshake::Nameless,
            // TLS accepts no other name than ours.
            _ => Handshake::Good,
        }
    }
}
