//! A connection to a server whose login is not done.

use std::{io, io::IoSlice, sync::Arc};

use paceline::{scratch, Handle};
use paceline_server::tls::TlsConnection;

use super::{
    call::Call,
    opening::Target,
    sockets::Address,
    state::Front,
    tls,
    wire::{self, Wire},
};
use crate::login::{ServerFailure, ServerLogin, ServerReady, ServerStep};

/// A connection whose login is not done.
pub(super) struct LoggingIn {
    login: ServerLogin,
    pub(super) handle: Handle,
    pub(super) wire: Wire,
    pub(super) input: Vec<u8>,
    pub(super) address: Address,
    pub(super) local: Option<Address>,
}

/// How far a login is.
#[must_use]
pub(super) enum Progress {
    /// The server has to say more.
    More,
    /// It is done.
    Ready(Box<ServerReady>),
    /// The server has refused it.
    Refused(ServerFailure),
    /// The connection can't be used, for this reason.
    Broken(String),
}

const CRASHED: &str = "server conn crashed?";

impl LoggingIn {
    pub(super) fn new(
        login: ServerLogin,
        handle: Handle,
        target: &Target,
        local: Option<Address>,
    ) -> Self {
        Self {
            login,
            handle,
            wire: Wire::Plain,
            input: Vec::new(),
            address: target.address(),
            local,
        }
    }

    /// Sends the first packet.
    pub(super) fn start(&mut self, call: &mut Call<'_, '_, '_>) -> io::Result<()> {
        let mut out = Vec::new();
        self.login.start(&mut out);
        self.send(&out, call)
    }

    /// Receives once, and goes on as far as that brings the login.
    pub(super) fn advance(
        &mut self,
        front: &Arc<Front>,
        target: &Target,
        call: &mut Call<'_, '_, '_>,
    ) -> Progress {
        match self.receive(call) {
            Ok(true) => {}
            Ok(false) => return Progress::Broken(CRASHED.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::More,
            Err(error) => return Progress::Broken(tls::explained(&error)),
        }
        self.steps(front, target, call)
    }

    fn steps(
        &mut self,
        front: &Arc<Front>,
        target: &Target,
        call: &mut Call<'_, '_, '_>,
    ) -> Progress {
        while !self.wire.is_handshaking() {
            let mut out = Vec::new();
            let (taken, step) = self.login.feed(&self.input, &mut out);
            self.input.drain(..taken);
            if self.send(&out, call).is_err() {
                return Progress::Broken(CRASHED.to_owned());
            }
            match step {
                ServerStep::More if taken == 0 => return Progress::More,
                ServerStep::More => {}
                ServerStep::StartTls => {
                    if let Err(error) = self.begin_tls(front, target, call) {
                        return Progress::Broken(tls::explained(&error));
                    }
                }
                ServerStep::Hash(hashing) => {
                    call.wake_follower();
                    let hashed = hashing.run();
                    let mut out = Vec::new();
                    let step = self.login.hashed(hashed, &mut out);
                    if self.send(&out, call).is_err() {
                        return Progress::Broken(CRASHED.to_owned());
                    }
                    if let ServerStep::Failed(failure) = step {
                        return Progress::Refused(failure);
                    }
                }
                ServerStep::Ready(ready) => return Progress::Ready(ready),
                ServerStep::Failed(failure) => return Progress::Refused(failure),
            }
        }
        Progress::More
    }

    fn begin_tls(
        &mut self,
        front: &Arc<Front>,
        target: &Target,
        call: &mut Call<'_, '_, '_>,
    ) -> io::Result<()> {
        let live = front.live();
        let Some(tls) = &live.server_tls.tls else {
            return Err(io::Error::other("TLS is off"));
        };
        let connection = TlsConnection::client(tls, target.tls_name())?;
        let (wire, handle) = (&mut self.wire, &self.handle);
        call.with(handle, |cx| wire.begin_tls(connection, cx))
    }

    fn send(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let wire = &mut self.wire;
        call.with(&self.handle, |cx| wire.send(cx, &[IoSlice::new(bytes)]))
    }

    /// Receives once. `false`: the end.
    fn receive(&mut self, call: &mut Call<'_, '_, '_>) -> io::Result<bool> {
        let mut buffer = scratch();
        let was_handshaking = self.wire.is_handshaking();
        let (wire, input) = (&mut self.wire, &mut self.input);
        let arrived = call.with(&self.handle, |cx| wire.receive(cx, &mut buffer, input))?;
        match arrived {
            wire::Arrival::InBuffer(count) => input.extend_from_slice(&buffer[..count]),
            wire::Arrival::InInput => {}
            wire::Arrival::End => return Ok(false),
        }
        if was_handshaking && !self.wire.is_handshaking() {
            let mut out = Vec::new();
            self.login.tls_started(&mut out);
            self.send(&out, call)?;
        }
        Ok(true)
    }
}
