//! What an application holds of a registration: a key that goes stale, never astray.

use std::{fmt, io, sync::Weak};

use super::{
    handler::Interest,
    registry::{NotWaited, Registry},
};

/// One registration. Cheap to clone; it may outlive the registration, and the pool.
///
/// Everything here may be called from any thread, from the handle's own handler and from another's.
/// While a handler runs, a change is recorded and takes effect when the handler returns.
#[derive(Clone)]
pub struct Handle {
    registry: Weak<Registry>,
    key: Key,
}

impl Handle {
    pub(super) fn new(registry: Weak<Registry>, key: Key) -> Self {
        Self { registry, key }
    }

    /// Changes what the handle waits for. Readiness that came before is not lost.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn set_interest(&self, interest: Interest) -> io::Result<()> {
        self.registry()
            .and_then(|registry| registry.set_interest(self.key, interest).ok())
            .ok_or_else(|| self.stale("set_interest"))
    }

    /// Lets the handler be called no more until [`resume`](Self::resume), whatever happens. What comes
    /// meanwhile is remembered, and kept output is sent.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn suspend(&self) -> io::Result<()> {
        self.registry()
            .and_then(|registry| registry.set_suspended(self.key, true).ok())
            .ok_or_else(|| self.stale("suspend"))
    }

    /// Lets the handler be called again, at once if something came meanwhile.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn resume(&self) -> io::Result<()> {
        self.registry()
            .and_then(|registry| registry.set_suspended(self.key, false).ok())
            .ok_or_else(|| self.stale("resume"))
    }

    /// Has the handler called once, whatever is ready: to tell it that something was put where it looks.
    /// Several notifications before that call are one. Like input it waits while the handle is suspended,
    /// and while output is kept.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn notify(&self) -> io::Result<()> {
        self.registry()
            .and_then(|registry| registry.notify(self.key).ok())
            .ok_or_else(|| self.stale("notify"))
    }

    /// Ends the registration: no event is dispatched after this returns (one that is being handled
    /// right now is handled to its end). The handler is told [`closed`](super::EventHandler::closed)
    /// once: by this very call if the handle is idle, else by the thread that has it.
    ///
    /// # Errors
    /// `NotFound` if the registration is over, or its end was asked for already.
    pub fn close(&self) -> io::Result<()> {
        self.registry()
            .and_then(|registry| registry.close(self.key).ok())
            .ok_or_else(|| self.stale("close"))
    }

    /// As [`close`](Self::close), and returns when `closed` was told and handler and source are dropped,
    /// by whichever thread; also if somebody else had asked for the end before.
    ///
    /// It may block: inside a handler, wrap it in [`Context::blocking`](super::Context::blocking). A handle
    /// that waits for its turn is ended by a thread that leads, so handlers that wait for each other's end,
    /// or on the only thread of a pool, wait for ever.
    ///
    /// # Errors
    /// `NotFound` if the registration is over. `Deadlock` from the handle's own handler, which can't end
    /// before it returns; nothing is closed then.
    pub fn close_and_wait(&self) -> io::Result<()> {
        let registry = self.registry();
        let registry = registry.ok_or_else(|| self.stale("close_and_wait"))?;
        match registry.close_and_wait(self.key) {
            Ok(()) => Ok(()),
            Err(NotWaited::Stale) => Err(self.stale("close_and_wait")),
            Err(NotWaited::InOwnHandler) => {
                let text = format!("close_and_wait: handle {} runs here", self.id());
                Err(io::Error::new(io::ErrorKind::Deadlock, text))
            }
        }
    }

    /// The name of this registration in reports.
    #[must_use]
    pub fn id(&self) -> HandleId {
        HandleId(self.key)
    }

    fn registry(&self) -> Option<std::sync::Arc<Registry>> {
        self.registry.upgrade()
    }

    fn stale(&self, attempted: &str) -> io::Error {
        let text = format!("{attempted}: handle {} is closed already", self.id());
        io::Error::new(io::ErrorKind::NotFound, text)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.id()).finish()
    }
}

/// The name of a registration: its slot, and which of the slot's registrations it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleId(Key);

impl HandleId {
    pub(super) fn new(key: Key) -> Self {
        Self(key)
    }
}

impl fmt::Display for HandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index, self.0.generation)
    }
}

impl fmt::Debug for HandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Slot and generation, also as the 64 bits that travel through a handle set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Key {
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            index: (bits >> 32) as u32,
            generation: bits as u32,
        }
    }
}
