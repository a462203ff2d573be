//! Where a connection comes from, and the place that it takes at its listener.
//!
//! A listener with a bound stops accepting at that bound, and goes on when a connection ends. One
//! word holds how many connections are open, and whether the listener waits.
//!
//! ```text
//!   the listener, in its own handler                     the end of a connection
//!   1. finds `open >= max`          [is_full]            a. [leave] open - 1, clears WAITING
//!   2. takes its interest away      [wait_for_place]     b. if WAITING was set: gives the listener
//!   3. sets WAITING, if `open >= max` still holds;          its interest back
//!      otherwise gives its interest back
//! ```
//!
//! Steps 3 and a are read-modify-writes of the same word. If a is first, step 3 finds a place. If
//! step 3 is first, a finds WAITING, and b follows 2. So a listener never waits beside a free
//! place. Only the handler of the listener raises `open`, one thread at a time, so `open` never
//! exceeds the bound. The listener waits without an interest, not suspended: suspending it remains
//! the caller's own.

use std::{
    fmt,
    net::{SocketAddr, SocketAddrV4, SocketAddrV6},
    os::unix::net,
    sync::Arc,
    time::Duration,
};

use super::{handle::Handle, handler::Interest};
use crate::{
    observe::Counters,
    sync::{
        atomic::{AtomicU64, AtomicUsize, Ordering},
        lock, Mutex,
    },
};

/// Where a listener listens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ListenerAddress {
    /// A TCP port.
    Ip(SocketAddr),
    /// A Unix socket.
    Unix(net::SocketAddr),
}

impl From<SocketAddr> for ListenerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<net::SocketAddr> for ListenerAddress {
    fn from(address: net::SocketAddr) -> Self {
        Self::Unix(address)
    }
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(address) => match address.as_pathname() {
                Some(path) => path.display().fmt(f),
                None => f.write_str("a socket without a path"),
            },
        }
    }
}

/// The listener waits for a place.
const WAITING: usize = 1;
/// One open connection.
const ONE: usize = 2;

/// The connections of one listener that are open.
#[derive(Debug)]
pub(crate) struct OpenConnections {
    /// How many are open, times [`ONE`]; and [`WAITING`].
    word: AtomicUsize,
    max: usize,
    /// How many connections were refused: a number that orders nothing.
    refused: AtomicU64,
    address: ListenerAddress,
    /// The listener, once it has waited.
    listener: Mutex<Option<Handle>>,
}

/// Whether a listener can accept.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vacancy {
    /// A place is free.
    Free,
    /// The next connection that ends calls the listener.
    Awaited,
}

impl OpenConnections {
    /// None yet, and at most `max`.
    pub(crate) fn new(address: ListenerAddress, max: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            word: AtomicUsize::new(0),
            max: max.unwrap_or(usize::MAX),
            refused: AtomicU64::new(0),
            address,
            listener: Mutex::new(None),
        })
    }

    /// A connection was refused.
    pub(crate) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.word.load(Ordering::Acquire) / ONE
    }

    /// Whether no place is free. A place that becomes free meanwhile may be missed here; step 3
    /// finds it.
    pub(crate) fn is_full(&self) -> bool {
        self.count() >= self.max
    }

    /// A connection takes a place. The caller is the handler of the listener, and
    /// [`is_full`](Self::is_full) was false.
    pub(crate) fn admit(self: &Arc<Self>, counters: &Arc<Counters>) -> Place {
        self.word.fetch_add(ONE, Ordering::AcqRel);
        counters.connections.raise();
        Place {
            of: Arc::clone(self),
            counters: Arc::clone(counters),
        }
    }

    /// Takes the interest of this listener away until a place is free. The caller is its handler.
    pub(crate) fn wait_for_place(&self, listener: Handle) -> Vacancy {
        // From its own handler: the registration is not over.
        let _ = listener.set_interest(Interest::NONE);
        let interest = listener.clone();
        *lock(&self.listener) = Some(listener);
        let wait = |word: usize| (word / ONE >= self.max).then_some(word | WAITING);
        // AcqRel, as in `leave`: whichever of the two is second sees the first, with the interest
        // that was set before.
        match self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, wait)
        {
            Ok(_) => Vacancy::Awaited,
            Err(_) => {
                let _ = interest.set_interest(Interest::READ);
                Vacancy::Free
            }
        }
    }

    /// The listener goes on under another key. A connection that ended just before has called the
    /// old one.
    pub(crate) fn move_to(&self, listener: &Handle) {
        *lock(&self.listener) = Some(listener.clone());
        if !self.is_full() {
            let _ = listener.set_interest(Interest::READ);
        }
    }

    /// A connection has ended: steps a and b.
    fn leave(&self) {
        let left = |word: usize| Some((word - ONE) & !WAITING);
        let before = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
        if before.is_ok_and(|before| before & WAITING != 0) {
            self.call_listener();
        }
    }

    #[cold]
    fn call_listener(&self) {
        let listener = lock(&self.listener).clone();
        // If the listener is closed, no connection waits.
        let _ = listener.map(|listener| listener.set_interest(Interest::READ));
    }
}

/// One connection counts at its listener and in a pool until this is dropped: after its source.
#[derive(Debug)]
pub(crate) struct Place {
    of: Arc<OpenConnections>,
    /// Of the pool in which it counts.
    counters: Arc<Counters>,
}

impl Place {
    /// It counts in this pool from now on.
    fn count_in(&mut self, counters: &Arc<Counters>) {
        if !Arc::ptr_eq(&self.counters, counters) {
            counters.connections.raise();
            self.counters.connections.lower();
            self.counters = Arc::clone(counters);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counters.connections.lower();
        self.of.leave();
    }
}

/// The address of a peer. Every idle connection has one, so the long form is in a box.
#[derive(Debug)]
enum Peer {
    Unknown,
    V4(SocketAddrV4),
    V6(Box<SocketAddrV6>),
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(address),
            SocketAddr::V6(address) => Self::V6(Box::new(address)),
        }
    }
}

/// Where a connection comes from.
#[derive(Debug)]
pub(crate) struct Provenance {
    peer: Peer,
    /// At the listener that accepted it.
    place: Option<Place>,
}

impl Provenance {
    /// A listener accepted it.
    pub(crate) fn accepted(peer: Option<SocketAddr>, place: Place) -> Box<Self> {
        Box::new(Self {
            peer: peer.map_or(Peer::Unknown, Peer::from),
            place: Some(place),
        })
    }

    /// The pool connected it.
    pub(crate) fn connected(peer: SocketAddr) -> Box<Self> {
        Box::new(Self {
            peer: peer.into(),
            place: None,
        })
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match &self.peer {
            Peer::Unknown => None,
            Peer::V4(address) => Some((*address).into()),
            Peer::V6(address) => Some((**address).into()),
        }
    }

    /// The address of the listener that accepted it.
    pub(super) fn listener(&self) -> Option<&ListenerAddress> {
        let place = self.place.as_ref()?;
        Some(&place.of.address)
    }

    /// It is a connection of this pool from now on.
    pub(super) fn count_in(&mut self, counters: &Arc<Counters>) {
        if let Some(place) = &mut self.place {
            place.count_in(counters);
        }
    }
}

/// What a listener says about a connection that it gives to a pool.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) provenance: Box<Provenance>,
    /// How long it may be idle, if the listener has a setting of its own; without an end:
    /// `Some(None)`.
    pub(crate) idle_timeout: Option<Option<Duration>>,
}
