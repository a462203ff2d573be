//! What an application holds of a registration: a key that goes stale, never astray.

use std::{
    fmt,
    hash::{Hash, Hasher},
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    handler::Interest,
    readiness::Stale,
    registry::{NotWaited, Registry},
};

/// A key to one registration, to ask things of it from anywhere. Cheap to clone; it may outlive the registration, and the pool.
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
        self.ask("set_interest", |registry| {
            registry.set_interest(self.key, interest)
        })
    }

    /// Lets the handler be called no more until [`resume`](Self::resume), whatever happens (a call that is
    /// being made right now is made). What comes meanwhile is remembered, and kept output is sent.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn suspend(&self) -> io::Result<()> {
        self.ask("suspend", |registry| registry.set_suspended(self.key, true))
    }

    /// Lets the handler be called again, at once if something came meanwhile.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn resume(&self) -> io::Result<()> {
        self.ask("resume", |registry| registry.set_suspended(self.key, false))
    }

    /// Has the handler called once, whatever is ready: to tell it that something was put where it looks.
    /// Several notifications before that call are one. Like input it waits while the handle is suspended,
    /// and while output is kept. No handler runs inside this call. If the registration ends before that
    /// call, there is none.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn notify(&self) -> io::Result<()> {
        self.ask("notify", |registry| registry.notify(self.key))
    }

    /// Its rank in a pool whose line is ordered by that ([`QueueOrder::Priority`](crate::QueueOrder::Priority)): higher
    /// ones are served first. Zero at first; in another pool it changes nothing. It holds from the next time that the
    /// handle is lined up, and goes with it to another level.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn set_priority(&self, priority: u8) -> io::Result<()> {
        self.ask("set_priority", |registry| {
            registry.set_priority(self.key, priority)
        })
    }

    /// Closes the handle ([`Closed::TimedOut`](super::Closed::TimedOut)) when its handler was not called for `idle`, nor
    /// any kept output sent; `None`: it may be idle for ever, as it is at first. The time begins anew with this call
    /// and with the end of every call of the handler. A handle whose handler runs, or that is suspended, is not idle. It
    /// is measured in milliseconds, and costs a busy handle next to nothing.
    ///
    /// # Errors
    /// `NotFound` if the registration is over.
    pub fn set_timeout(&self, idle: Option<Duration>) -> io::Result<()> {
        self.ask("set_timeout", |registry| {
            registry.set_timeout(self.key, idle)
        })
    }

    /// Lets it live on after its deadline.
    pub(crate) fn clear_deadline(&self) -> io::Result<()> {
        self.ask("clear_deadline", |registry| {
            registry.clear_deadline(self.key)
        })
    }

    /// Ends the registration: no event is dispatched after this returns (one that is being handled
    /// right now is handled to its end). The handler is told [`closed`](super::EventHandler::closed)
    /// once: by this very call if the handle is idle, else by the thread that has it. So do not hold a lock
    /// here that the other handler's `closed` takes. A member of a group is always ended by a thread that leads.
    ///
    /// # Errors
    /// `NotFound` if the registration is over, or its end was asked for already.
    pub fn close(&self) -> io::Result<()> {
        self.ask("close", |registry| registry.close(self.key))
    }

    /// As [`close`](Self::close), and returns when `closed` was told and handler and source are dropped,
    /// by whichever thread; also if somebody else had asked for the end before.
    ///
    /// It may block: inside a handler, wrap it in [`Context::blocking`](super::Context::blocking). A handle
    /// that waits for its turn is ended by a thread that leads, so handlers that wait for each other's end,
    /// or on the only thread of a pool, wait for ever.
    ///
    /// # Errors
    /// `NotFound` if the registration is over. `Deadlock` from the handle's own handler, or its group's, or from a hook
    /// that is told about it: it can't end before they return. Nothing is closed then.
    pub fn close_and_wait(&self) -> io::Result<()> {
        let registry = self.registry.upgrade();
        match registry.map(|registry| registry.close_and_wait(self.key)) {
            Some(Ok(())) => Ok(()),
            None | Some(Err(NotWaited::Stale)) => Err(self.stale("close_and_wait")),
            Some(Err(NotWaited::InOwnHandler)) => {
                let id = self.id();
                let text = format!(
                    "close_and_wait: handle {id} can't end before its own handler or hook returns"
                );
                Err(io::Error::new(io::ErrorKind::Deadlock, text))
            }
        }
    }

    /// The name of this registration in reports.
    #[must_use]
    pub fn id(&self) -> HandleId {
        HandleId(self.key)
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn registry(&self) -> Option<Arc<Registry>> {
        self.registry.upgrade()
    }

    /// Its key, if it is of this registry.
    pub(super) fn key_in(&self, registry: &Registry) -> Option<Key> {
        std::ptr::eq(self.registry.as_ptr(), registry).then_some(self.key)
    }

    /// Asks something of the registration, if it is still there.
    fn ask(
        &self,
        attempted: &str,
        request: impl FnOnce(&Registry) -> Result<(), Stale>,
    ) -> io::Result<()> {
        match self.registry.upgrade().map(|registry| request(&registry)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.stale(attempted)),
        }
    }

    fn stale(&self, attempted: &str) -> io::Error {
        let text = format!("{attempted}: handle {} is closed already", self.id());
        io::Error::new(io::ErrorKind::NotFound, text)
    }
}

/// The same registration of the same pool.
impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && Weak::ptr_eq(&self.registry, &other.registry)
    }
}

impl Eq for Handle {}

impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
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

    /// For those who keep it in a word.
    pub(crate) fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
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
