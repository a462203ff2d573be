//! What stands for TLS in a build without it: nothing of this can exist.

use std::{io, sync::Arc};

use crate::{service::Service, wire::Wire};

/// No connection has TLS.
pub(crate) enum Secure {}

impl Secure {
    pub(crate) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(crate) fn input_ended_properly(&self) -> bool {
        match *self {}
    }

    pub(crate) fn partial_record(&self) -> usize {
        match *self {}
    }

    pub(crate) fn ensure_place(&mut self, _: &Arc<Service>) -> bool {
        match *self {}
    }

    pub(crate) fn receive(
        &mut self,
        _: &[u8],
        _: &mut Vec<u8>,
        _: &mut dyn Wire,
    ) -> io::Result<Received> {
        match *self {}
    }

    pub(crate) fn over<R>(&mut self, _: &mut dyn Wire, _: impl FnOnce(&mut dyn Wire) -> R) -> R {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: &mut dyn Wire) {
        match *self {}
    }
}

/// What a call of [`Secure::receive`] has changed.
pub(crate) struct Received {
    pub(crate) handshake_finished: bool,
    pub(crate) closed_by_peer: bool,
}

pub(crate) fn is_plain_text(_: &io::Error) -> bool {
    false
}
