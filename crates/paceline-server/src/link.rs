//! One connection as others know it: its number, its handle, its mailbox.

use std::{
    fmt,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
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
