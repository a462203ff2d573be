//! What all connections of one listener share.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
    },
};

use paceline::PoolClock;

use crate::{
    access_log::AccessLog,
    counters::Counters,
    engine::Workers,
    limits::Limits,
    link::{ConnectionId, Link},
    session::Ended,
    sync::lock,
    times::Moment,
};

/// What all connections of one listener share, and all outgoing connections of one kind.
pub(crate) struct Service {
    /// Its name in logs, metrics and reports.
    pub(crate) name: String,
    limits: Limits,
    clock: PoolClock,
    counters: Counters,
    connections: Mutex<HashMap<ConnectionId, Arc<Link>>>,
    is_draining: AtomicBool,
    handshakes: AtomicUsize,
    gate: Arc<Gate>,
    /// The threads that run the sessions, if the pool's own do not.
    pub(crate) workers: Option<Arc<Workers>>,
    /// Of several listeners, whose items workers take first: the highest.
    pub(crate) priority: u8,
    /// What a connection gets that is one too many.
    pub(crate) refusal: Arc<[u8]>,
    /// What a connection gets whose item finds no thread in time; otherwise the refusal.
    pub(crate) overload: Option<Arc<[u8]>>,
    pub(crate) log: Option<Arc<AccessLog>>,
    #[cfg(feature = "_tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
}

impl Service {
    pub(crate) fn new(name: String, limits: Limits, clock: PoolClock, gate: Arc<Gate>) -> Self {
        Self {
            name,
            limits,
            clock,
            counters: Counters::default(),
            connections: Mutex::default(),
            is_draining: AtomicBool::new(false),
            handshakes: AtomicUsize::new(0),
            gate,
            workers: None,
            priority: 0,
            refusal: Arc::default(),
            overload: None,
            log: None,
            #[cfg(feature = "_tls")]
            tls: None,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A connection begins.
    pub(crate) fn enter(&self, link: &Arc<Link>) {
        self.counters.opened.add(1);
        lock(&self.connections).insert(link.id(), Arc::clone(link));
    }

    /// A connection is over.
    pub(crate) fn leave(&self, link: &Link, why: &Ended) {
        lock(&self.connections).remove(&link.id());
        link.mailbox().close(link.id());
        self.counters.ended(why);
        if self.is_draining() {
            self.gate.open(|_| {});
        }
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        lock(&self.connections).len()
    }

    /// The connection with this number, if it is open.
    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Arc<Link>> {
        lock(&self.connections).get(&id).map(Arc::clone)
    }

    /// Whether connections end as soon as they are between two items.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Ends connections as soon as they are between two items.
    pub(crate) fn drain(&self) {
        // Pairs with the load in `is_draining`: a connection that is notified below, or that
        // enters after the lock below, sees it.
        self.is_draining.store(true, Ordering::Release);
        let connections: Vec<_> = lock(&self.connections).values().map(Arc::clone).collect();
        for link in connections {
            // A connection that is over needs no notification.
            let _ = link.handle().notify();
        }
    }

    /// Takes one of the places of handshakes; `None` if all are taken.
    #[cfg_attr(not(feature = "_tls"), allow(dead_code))]
    pub(crate) fn begin_handshake(self: &Arc<Self>) -> Option<HandshakePlace> {
        let place = HandshakePlace(Arc::clone(self));
        // The place that is dropped here gives its number back.
        let before = self.handshakes.fetch_add(1, Ordering::Relaxed);
        (before < self.limits.handshakes).then_some(place)
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("name", &self.name)
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}

/// One of the handshakes that may be under way at once.
#[derive(Debug)]
pub(crate) struct HandshakePlace(Arc<Service>);

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where the thread that drains a server waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    why: Mutex<Passed>,
    changed: Condvar,
}

/// Why a drain waits no longer for connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Its time is over.
    pub(crate) is_late: bool,
    /// It was asked to end at once.
    pub(crate) is_forced: bool,
}

impl Gate {
    /// Changes why the drain waits no longer, and lets it look.
    pub(crate) fn open(&self, change: impl FnOnce(&mut Passed)) {
        change(&mut lock(&self.why));
        self.changed.notify_all();
    }

    /// Waits until `is_done`, or until something ends the wait.
    pub(crate) fn wait(&self, is_done: impl Fn() -> bool) -> Passed {
        let mut why: MutexGuard<'_, Passed> = lock(&self.why);
        // `leave` takes this lock after a connection is gone: either `is_done` sees that, or the
        // notification comes behind the wait below.
        while *why == Passed::default() && !is_done() {
            let waited = self.changed.wait(why);
            why = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *why
    }
}
