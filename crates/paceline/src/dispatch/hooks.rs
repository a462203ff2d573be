//! What an application wants to hear about handles, apart from their handlers.

use std::{fmt, net::SocketAddr, sync::Arc};

use super::{
    handle::HandleId,
    handler::{Closed, Panics},
    provenance::{ListenerAddress, Provenance},
};
use crate::observe::Observers;

/// Gets the message of a panic.
pub(crate) type PanicHook = Box<dyn Fn(HandleId, &str) + Send + Sync>;

/// Gets the end of a registration.
pub(crate) type ClosedHook = Box<dyn Fn(&ClosedHandle<'_>) + Send + Sync>;

/// A handle that has ended: what [`Builder::on_closed`](crate::Builder::on_closed) is called with.
///
/// Its text names the handle, the peer if that is known, and the reason, as one line of a log.
#[derive(Clone, Copy, Debug)]
pub struct ClosedHandle<'a> {
    id: HandleId,
    reason: &'a Closed,
    provenance: Option<&'a Provenance>,
}

impl<'a> ClosedHandle<'a> {
    pub(super) fn new(
        id: HandleId,
        reason: &'a Closed,
        provenance: Option<&'a Provenance>,
    ) -> Self {
        Self {
            id,
            reason,
            provenance,
        }
    }

    /// The name of the handle.
    #[must_use]
    pub fn id(&self) -> HandleId {
        self.id
    }

    /// Why it has ended.
    #[must_use]
    pub fn reason(&self) -> &'a Closed {
        self.reason
    }

    /// The address of the peer: of a TCP connection that a listener accepted, or that the pool
    /// connected. It is known also after the peer has reset the connection.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.provenance?.peer()
    }

    /// The address of the listener that accepted the connection.
    #[must_use]
    pub fn listener(&self) -> Option<&'a ListenerAddress> {
        self.provenance?.listener()
    }
}

impl fmt::Display for ClosedHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle {}", self.id)?;
        if let Some(peer) = self.peer() {
            write!(f, ", peer {peer}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// The hooks of a pool, and what becomes of handles whose handlers panic.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) panics: Panics,
    pub(crate) on_panic: Option<PanicHook>,
    pub(crate) on_closed: Option<ClosedHook>,
    pub(crate) observers: Arc<Observers>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("panics", &self.panics)
            .field("on_panic", &self.on_panic.is_some())
            .field("on_closed", &self.on_closed.is_some())
            .finish()
    }
}
