//! UDP: datagrams that several threads receive at once.

use std::{
    any::Any,
    fmt, io,
    net::{SocketAddr, ToSocketAddrs, UdpSocket},
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    sync::Arc,
};

use paceline::{scratch, ConcurrentContext, ConcurrentHandler, Interest, Next, WeakPool};

use crate::{
    listen::{attempted, resolve},
    server::{Part, Site},
};

/// Where a datagram came from.
pub struct UdpPeer<'p> {
    socket: &'p UdpSocket,
    address: SocketAddr,
}

impl UdpPeer<'_> {
    /// The address of the sender.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a datagram to the sender. One for which the system has no room now is lost, as UDP
    /// allows everywhere on the way.
    ///
    /// # Errors
    /// The system can't send it: it is too long, for example.
    pub fn reply(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.socket.send_to(bytes, self.address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent.map(drop),
        }
    }
}

impl fmt::Debug for UdpPeer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpPeer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A UDP address of a server.
pub(crate) struct UdpEndpoint<F> {
    addresses: io::Result<Vec<SocketAddr>>,
    sockets: Vec<UdpSocket>,
    handler: F,
}

impl<F> UdpEndpoint<F> {
    pub(crate) fn new(address: impl ToSocketAddrs + fmt::Debug, handler: F) -> Self {
        Self {
            addresses: resolve(address),
            sockets: Vec::new(),
            handler,
        }
    }
}

impl<F> Part for UdpEndpoint<F>
where
    F: Fn(&[u8], &mut UdpPeer<'_>) -> io::Result<()> + Send + Sync + 'static,
{
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    fn open(&mut self) -> io::Result<()> {
        for address in std::mem::replace(&mut self.addresses, Ok(Vec::new()))? {
            let socket = UdpSocket::bind(address);
            let what = format!("receive datagrams at {address}");
            self.sockets
                .push(socket.map_err(|error| attempted(what, &error))?);
        }
        Ok(())
    }

    fn begin(self: Box<Self>, site: &mut Site<'_>) -> io::Result<()> {
        let handler = Arc::new(self.handler);
        for socket in self.sockets {
            let receiver = Receiver {
                handler: Arc::clone(&handler),
                pool: site.pool().downgrade(),
            };
            site.pool()
                .register_concurrent(socket, Interest::READ, receiver)?;
        }
        Ok(())
    }
}

/// Calls the handler for each datagram. One that fails does not end the others.
struct Receiver<F> {
    handler: Arc<F>,
    pool: WeakPool,
}

impl<F> Receiver<F> {
    /// A panic of the handler is counted, and the pool's hook gets it, as one of other work: the
    /// socket goes on.
    fn report(&self, panic: Box<dyn Any + Send>) {
        if let Some(pool) = self.pool.upgrade() {
            // A pool that takes no more work has more to report than this.
            let _ = pool.post(move |_| resume_unwind(panic));
        }
    }
}

impl<F> ConcurrentHandler<UdpSocket> for Receiver<F>
where
    F: Fn(&[u8], &mut UdpPeer<'_>) -> io::Result<()> + Send + Sync + 'static,
{
    fn ready(&self, cx: &mut ConcurrentContext<'_, UdpSocket>) -> io::Result<Next> {
        let mut buffer = scratch();
        let received = cx.try_read(|socket| socket.recv_from(&mut buffer));
        let (count, address) = match received {
            // The error of an earlier answer, which its peer did not want.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(Next::Continue);
            }
            received => received?,
        };
        let mut peer = UdpPeer {
            socket: cx.source(),
            address,
        };
        // UDP promises nothing: an answer that can't be sent is lost. A datagram that makes the
        // handler panic does not end the service for all others.
        let call = || (self.handler)(&buffer[..count], &mut peer);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            self.report(panic);
        }
        Ok(Next::Continue)
    }
}
