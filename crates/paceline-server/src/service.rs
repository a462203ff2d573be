//! What all connections of one listener share.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
    },
    time::Duration,
};

use paceline::PoolClock;

use crate::{
    access_log::AccessLog,
    counters::Counters,
    engine::Workers,
    events,
    limits::{Limit, Limits},
    link::{ConnectionId, Link},
    moment::Moment,
    routes::{RouteReport, Routes},
    session::Ended,
    sync::lock,
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
    /// Connections that are being made or are open, where no listener of the pool counts them.
    places: AtomicUsize,
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
    /// What its items are for, if it has routes.
    pub(crate) routes: Option<Arc<dyn Routes>>,
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
            places: AtomicUsize::new(0),
            gate,
            workers: None,
            priority: 0,
            refusal: Arc::default(),
            overload: None,
            log: None,
            routes: None,
            #[cfg(feature = "_tls")]
            tls: None,
        }
    }

    /// What each of its routes has done.
    pub(crate) fn route_reports(&self) -> Vec<RouteReport> {
        let routes = self.routes.as_ref();
        routes.map(|routes| routes.reports()).unwrap_or_default()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::new(self.clock.now())
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A connection begins.
    pub(crate) fn enter(&self, link: &Arc<Link>) {
        self.counters.opened.add(1);
        lock(&self.connections).insert(link.id(), Arc::clone(link));
        events::opened(link);
    }

    /// A connection is over.
    pub(crate) fn leave(&self, link: &Link, why: &Ended) {
        lock(&self.connections).remove(&link.id());
        link.mailbox().close(link.id());
        self.counters.ended(why);
        if self.is_draining() {
            self.gate.notify();
        }
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        lock(&self.connections).len()
    }

    /// The open connections.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.connections).values().map(Arc::clone).collect()
    }

    /// How many TLS handshakes are under way.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
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
        for link in self.links() {
            // A connection that is over needs no notification.
            let _ = link.handle().notify();
        }
    }

    /// Takes one of the places of connections; `None` if all are taken, which is counted.
    pub(crate) fn take_place(self: &Arc<Self>) -> Option<ConnectionPlace> {
        let place = ConnectionPlace(Arc::clone(self));
        // The place that is dropped here gives its number back.
        let before = self.places.fetch_add(1, Ordering::Relaxed);
        if before < self.limits.connections {
            return Some(place);
        }
        self.counters.met(Limit::Connections);
        None
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

/// One of the connections that may be open at once.
#[derive(Debug)]
pub(crate) struct ConnectionPlace(Arc<Service>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.places.fetch_sub(1, Ordering::Relaxed);
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
    /// Set when the drain shall end at once.
    is_forced: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Ends the wait of a drain, and of all that begin later.
    pub(crate) fn force(&self) {
        *lock(&self.is_forced) = true;
        self.changed.notify_all();
    }

    /// Lets a drain check again whether it is done.
    pub(crate) fn notify(&self) {
        // Behind the lock: see `wait`.
        drop(lock(&self.is_forced));
        self.changed.notify_all();
    }

    /// Waits until `is_done`, until the drain shall end at once, or until `clock` has reached
    /// `until`.
    ///
    /// It needs no thread of the pool, each of which may be in a session. If `clock` is virtual, the
    /// caller arranges a notification for `until`: the wait itself takes as long in real time.
    pub(crate) fn wait(&self, clock: &PoolClock, until: Duration, is_done: impl Fn() -> bool) {
        let mut is_forced: MutexGuard<'_, bool> = lock(&self.is_forced);
        // `leave` notifies after a connection is gone: either `is_done` sees that, or the
        // notification comes behind the wait below.
        while !*is_forced && !is_done() {
            let rest = until.saturating_sub(clock.now());
            if rest.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(is_forced, rest);
            (is_forced, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
