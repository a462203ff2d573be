//! How a connection begins: at once, or with a TLS handshake; and TLS that begins later.

use std::io;

use paceline::Next;

use super::Connection;
#[cfg(feature = "_tls")]
use crate::secure::Secure;
use crate::{
    codec::Codec,
    limits::Limit,
    service::Service,
    session::{Ended, Session},
    wire::Wire,
};

/// How a connection begins.
pub(crate) enum Opening {
    Plain,
    #[cfg(feature = "_tls")]
    Server(crate::tls::Tls),
    #[cfg(feature = "_tls")]
    Client(crate::tls::TlsClient, String),
}

impl Opening {
    /// How the connections of a listener begin.
    pub(crate) fn of_listener(service: &Service) -> Self {
        #[cfg(feature = "_tls")]
        if let Some(tls) = &service.tls {
            return Self::Server(tls.clone());
        }
        let _ = service;
        Self::Plain
    }
}

impl<C: Codec, N: Session<C>> Connection<C, N> {
    /// The connection stands: begins its session, or its handshake.
    pub(super) fn begin(&mut self, opening: Opening, wire: &mut dyn Wire) -> io::Result<Next> {
        match opening {
            Opening::Plain => self.start(wire),
            #[cfg(feature = "_tls")]
            opening => self.begin_handshake(&opening, wire),
        }
    }

    #[cfg(feature = "_tls")]
    pub(super) fn begin_handshake(
        &mut self,
        opening: &Opening,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        let mut secure = match opening {
            Opening::Plain => return self.start(wire),
            Opening::Client(tls, name) => Secure::client(tls, name)?,
            Opening::Server(tls) => Secure::server(tls)?,
        };
        let until = self
            .service
            .now()
            .saturating_add(self.service.limits().silent);
        self.times.open(until, Limit::HandshakeTime);
        secure.flush(wire)?;
        self.secure = Some(Box::new(secure));
        Ok(Next::Continue)
    }

    /// Too many handshakes are under way.
    pub(super) fn refuse_handshake(&mut self) -> Next {
        self.service.counters().met(Limit::Handshakes);
        self.note_end(Ended::Limit(Limit::Handshakes));
        // The client gets no answer, not even the end of TLS.
        self.secure = None;
        Next::Close
    }

    /// Begins TLS, if the session has asked for it in this call.
    #[cfg(feature = "_tls")]
    pub(super) fn begin_tls_if_due(
        &mut self,
        next: io::Result<Next>,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        match (self.tls_due.take(), next) {
            (Some(tls), Ok(next @ (Next::Continue | Next::Again | Next::Move))) => {
                // A plaintext command behind STARTTLS may have been injected on the way
                // (CVE-2011-0411).
                crate::tls::ensure_no_plaintext(&self.input)?;
                self.wants_again = false;
                let begun = self.begin_handshake(&Opening::Server(tls), wire)?;
                // The handshake goes on where the session has moved to.
                Ok(if next == Next::Move { next } else { begun })
            }
            (_, next) => next,
        }
    }

    /// Lets the session see what the handshake has agreed on.
    pub(super) fn note_tls(&self) {
        #[cfg(feature = "_tls")]
        if let (Some(link), Some(secure)) = (&self.link, &self.secure) {
            link.note_tls(secure.info());
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.secure
            .as_ref()
            .is_some_and(|secure| secure.is_handshaking())
    }
}
