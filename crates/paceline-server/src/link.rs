//! One connection as others know it: its number, its handle, its mailbox.

use std::{
    fmt,
    sync::{
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        Arc, Mutex,
    },
};

use paceline::Handle;

use crate::{
    encoding::{Encoding, EncodingCell},
    mailbox::Mailbox,
    peer::PeerAddress,
    service::Service,
    sync::lock,
};

/// The number of a connection: no other connection of this process ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    fn next() -> Self {
        // A counter that orders nothing.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Self(NUMBERS.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One connection as others know it.
pub(crate) struct Link {
    id: ConnectionId,
    /// A move to another level replaces it.
    handle: Mutex<Handle>,
    address: PeerAddress,
    service: Arc<Service>,
    /// What the handshake has agreed on, once it is done.
    #[cfg(feature = "_tls")]
    tls: std::sync::OnceLock<Box<crate::tls::TlsInfo>>,
    is_paused: AtomicBool,
    encoding: EncodingCell,
    /// The number of its present route; 0 if it has none.
    route: AtomicU32,
    /// Other code has closed the connection.
    is_closed: AtomicBool,
    mailbox: Mailbox,
}

impl Link {
    pub(crate) fn new(handle: Handle, address: PeerAddress, service: Arc<Service>) -> Self {
        Self {
            id: ConnectionId::next(),
            handle: Mutex::new(handle),
            address,
            mailbox: Mailbox::new(service.limits().mailbox),
            service,
            #[cfg(feature = "_tls")]
            tls: std::sync::OnceLock::new(),
            is_paused: AtomicBool::new(false),
            encoding: EncodingCell::default(),
            route: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    pub(crate) fn handle(&self) -> Handle {
        lock(&self.handle).clone()
    }

    /// The connection has moved to another level.
    ///
    /// A request by the old handle that came after the move began is lost, and a later letter finds
    /// the mailbox not empty, so that it notifies no handle. So every move is followed by a turn,
    /// which finds what was asked for.
    ///
    /// ```text
    ///   another thread: posts the first letter, clones the old handle             notifies it: lost
    ///   this thread:                                       departs, set_handle              notifies the new one
    /// ```
    pub(crate) fn set_handle(&self, handle: &Handle) {
        *lock(&self.handle) = handle.clone();
        // Pairs with `close`: its store comes before it takes the lock of the handle. So either this
        // load sees it, or `close` sees the new handle.
        let _ = if self.is_closed.load(Ordering::Acquire) {
            handle.close()
        } else {
            handle.notify()
        };
    }

    /// Closes the connection at once, also if it moves meanwhile.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // A connection that is closed already needs no other end.
        let _ = self.handle().close();
    }

    pub(crate) fn address(&self) -> &PeerAddress {
        &self.address
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// In which form the connection gets its mail.
    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding.get()
    }

    pub(crate) fn set_encoding(&self, encoding: Encoding) {
        self.encoding.set(encoding);
    }

    /// The number of the route that the connection is for now.
    pub(crate) fn route(&self) -> u32 {
        self.route.load(Ordering::Relaxed)
    }

    /// Relaxed: reports read it, and nothing depends on it.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn set_route(&self, number: u32) {
        self.route.store(number, Ordering::Relaxed);
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    #[cfg(feature = "_tls")]
    pub(crate) fn tls(&self) -> Option<&crate::tls::TlsInfo> {
        self.tls.get().map(Box::as_ref)
    }

    #[cfg(feature = "_tls")]
    pub(crate) fn note_tls(&self, info: crate::tls::TlsInfo) {
        // A connection has one handshake: `Peer::start_tls` refuses a second one.
        let _ = self.tls.set(Box::new(info));
    }

    /// Whether the connection reads nothing, and its session gets no item.
    pub(crate) fn is_paused(&self) -> bool {
        // Pairs with `pause` and `resume`: the caller of either notifies the connection after it.
        self.is_paused.load(Ordering::Acquire)
    }

    /// Pauses the input. Whether it was not paused.
    #[must_use = "the connection must be notified"]
    pub(crate) fn pause(&self) -> bool {
        !self.is_paused.swap(true, Ordering::AcqRel)
    }

    /// Goes on with the input. Whether it was paused.
    #[must_use = "the connection must be notified"]
    pub(crate) fn resume(&self) -> bool {
        self.is_paused.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixStream,
        sync::{mpsc, Arc},
        time::Duration,
    };

    use paceline::{Closed, Context, EventHandler, Handle, Interest, Next, Pool};

    use super::Link;
    use crate::{limits::Limits, peer::PeerAddress, service::Service};

    const LONG: Duration = Duration::from_secs(20);

    /// Reports that it was notified, or closed.
    struct Reports(&'static str, mpsc::Sender<String>);

    impl EventHandler<UnixStream> for Reports {
        fn ready(&mut self, cx: &mut Context<'_, UnixStream>) -> std::io::Result<Next> {
            if cx.is_notified() {
                self.1.send(format!("{} notified", self.0)).unwrap();
            }
            Ok(Next::Continue)
        }

        fn closed(&mut self, why: Closed) {
            let _ = self.1.send(format!("{} {why}", self.0));
        }
    }

    /// A pool with the two handles that a connection has before and after a move.
    fn before_and_after(pool: &Pool) -> ([Handle; 2], mpsc::Receiver<String>, [UnixStream; 2]) {
        let (reports, reported) = mpsc::channel();
        let [before, after] = ["before", "after"].map(|name| {
            let (stream, peer) = UnixStream::pair().unwrap();
            stream.set_nonblocking(true).unwrap();
            let handler = Reports(name, reports.clone());
            let registered = pool.register(stream, Interest::NONE, handler);
            (registered.map_err(|rejected| rejected.error).unwrap(), peer)
        });
        ([before.0, after.0], reported, [before.1, after.1])
    }

    fn link(pool: &Pool, handle: Handle) -> Link {
        let (limits, gate) = (Limits::default(), Arc::default());
        let service = Service::new("test".to_owned(), limits, pool.clock(), gate);
        Link::new(handle, PeerAddress::Unix, Arc::new(service))
    }

    /// A request by the old handle may have been lost in the move: the connection has a turn behind
    /// it, in which it finds its mail.
    #[test]
    fn a_move_is_followed_by_a_turn() {
        let pool = Pool::builder().threads(1).build().unwrap();
        let ([before, after], reported, _peers) = before_and_after(&pool);
        link(&pool, before).set_handle(&after);
        assert_eq!(reported.recv_timeout(LONG).unwrap(), "after notified");
    }

    /// A connection was closed by the handle that it had before a move: it is closed behind it.
    #[test]
    fn a_close_survives_a_move() {
        let pool = Pool::builder().threads(1).build().unwrap();
        let ([before, after], reported, _peers) = before_and_after(&pool);
        let link = link(&pool, before);
        link.close();
        let first = reported.recv_timeout(LONG).unwrap();
        assert!(first.starts_with("before"), "{first}");
        link.set_handle(&after);
        let second = reported.recv_timeout(LONG).unwrap();
        assert_eq!(second, first.replace("before", "after"));
    }
}
