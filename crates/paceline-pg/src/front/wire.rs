//! The bytes of one connection, in plain text or under TLS.
//!
//! Output is written to the descriptor at once. What it does not take is kept by the pool, which
//! sends it later; the caller stops reading from the other side meanwhile.

use std::io::{self, IoSlice};

use paceline::Context;
use paceline_server::tls::{TlsConnection, TlsInfo};

use super::sockets::Stream;

/// How the bytes of a connection travel.
#[derive(Debug, Default)]
pub(crate) enum Wire {
    #[default]
    Plain,
    Tls(Box<TlsConnection>),
}

/// What a receive has brought.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// So many bytes at the start of the buffer.
    InBuffer(usize),
    /// Bytes at the end of the kept input: possibly none, if TLS talked to itself.
    InInput,
    /// The end of the stream.
    End,
}

impl Wire {
    /// Receives once. Plain text arrives in `buffer`, unless `input` has an unfinished rest: then,
    /// and under TLS, it is appended to `input`.
    ///
    /// # Errors
    /// What the system or TLS said; "would block" if there is nothing.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context<'_, Stream>,
        buffer: &mut [u8],
        input: &mut Vec<u8>,
    ) -> io::Result<Arrival> {
        let count = cx.read(buffer)?;
        match (count, self) {
            (0, _) => Ok(Arrival::End),
            (count, Self::Plain) if input.is_empty() => Ok(Arrival::InBuffer(count)),
            (count, Self::Plain) => {
                input.extend_from_slice(&buffer[..count]);
                Ok(Arrival::InInput)
            }
            (count, tls) => tls.decrypt(cx, &buffer[..count], input),
        }
    }

    /// Takes bytes of TLS that were received already; the plain text is appended to `input`.
    ///
    /// # Errors
    /// What the system or TLS said. Without TLS the bytes are not for it.
    pub(crate) fn decrypt(
        &mut self,
        cx: &mut Context<'_, Stream>,
        ciphertext: &[u8],
        input: &mut Vec<u8>,
    ) -> io::Result<Arrival> {
        match self {
            Self::Plain => Err(io::ErrorKind::InvalidInput.into()),
            Self::Tls(tls) => decrypt(tls, cx, ciphertext, input),
        }
    }

    /// Sends all of `slices`, in this order.
    ///
    /// # Errors
    /// What the system or TLS said; never "would block".
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_, Stream>,
        slices: &[IoSlice<'_>],
    ) -> io::Result<()> {
        match (self, slices) {
            (Self::Plain, [one]) => cx.write_all(one),
            (Self::Plain, several) => cx.write_all_vectored(several),
            (Self::Tls(tls), slices) => {
                let mut records = Vec::new();
                tls.send(slices, &mut records)?;
                cx.send(records).map_err(Into::into)
            }
        }
    }

    /// Says under TLS that nothing more is sent.
    pub(crate) fn close(&mut self, cx: &mut Context<'_, Stream>) {
        if let Self::Tls(tls) = self {
            tls.close_notify();
            // The connection closes: nothing can be done about a failure.
            let _ = flush(tls, cx);
        }
    }

    /// Begins TLS: sends what the protocol has to say first.
    pub(crate) fn begin_tls(
        &mut self,
        tls: TlsConnection,
        cx: &mut Context<'_, Stream>,
    ) -> io::Result<()> {
        let mut tls = Box::new(tls);
        flush(&mut tls, cx)?;
        *self = Self::Tls(tls);
        Ok(())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_handshaking())
    }

    /// What TLS has agreed on; `None` in plain text.
    pub(crate) fn tls_info(&self) -> Option<TlsInfo> {
        match self {
            Self::Plain => None,
            Self::Tls(tls) => Some(tls.info()),
        }
    }
}

fn decrypt(
    tls: &mut TlsConnection,
    cx: &mut Context<'_, Stream>,
    ciphertext: &[u8],
    input: &mut Vec<u8>,
) -> io::Result<Arrival> {
    if tls.is_handshaking() {
        // Public keys take long.
        cx.wake_follower();
    }
    let before = input.len();
    let received = tls.receive(ciphertext, input);
    flush(tls, cx)?;
    let received = received?;
    if received.closed_by_peer && input.len() == before {
        return Ok(Arrival::End);
    }
    Ok(Arrival::InInput)
}

fn flush(tls: &mut TlsConnection, cx: &mut Context<'_, Stream>) -> io::Result<()> {
    let mut output = Vec::new();
    tls.take_output(&mut output);
    if output.is_empty() {
        return Ok(());
    }
    cx.send(output).map_err(Into::into)
}
