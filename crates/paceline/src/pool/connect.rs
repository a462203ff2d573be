//! Outgoing connections, made without waiting.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use socket2::{Domain, Socket, Type};

use super::{listen::beside_listeners, Pool};
use crate::{
    dispatch::{
        too_late, Closed, Context, EventHandler, Handle, Interest, Next, Outcome, Overdue,
        Provenance, Rejected,
    },
    errors,
    sync::Timestamp,
};

impl Pool {
    /// Connects to `address`, without blocking, and registers the connection with `handler`.
    ///
    /// Once it is connected, [`EventHandler::connected`] is called, and from then on
    /// [`EventHandler::ready`] for its input. If it fails, or is not connected within `within`,
    /// [`EventHandler::closed`] is called with the reason: [`Closed::Failed`] or
    /// [`Closed::TimedOut`]. Until then the handle can be closed like any other. `within` is its
    /// first deadline: one that it is given before it is connected ([`Handle::set_deadline`]) takes
    /// the place of `within`, and stays.
    ///
    /// # Errors
    /// Gives `handler` back: what the system said if there is no socket to be had or the connection
    /// is refused at once; `BrokenPipe` if the pool is shutting down, `QuotaExceeded` if every slot
    /// is taken.
    pub fn connect<H>(
        &self,
        address: SocketAddr,
        within: Duration,
        handler: H,
    ) -> Result<Handle, Rejected<H>>
    where
        H: EventHandler<TcpStream>,
    {
        let stream = match begin(address) {
            Ok(stream) => stream,
            Err(error) => return Err(Rejected::new(handler, attempted(address, error))),
        };
        let registry = &self.hub().registry;
        let deadline = registry.now().after(within);
        let connecting = Connecting {
            handler,
            outcome: outcome_of(address),
            stands: false,
            notified: false,
            deadline,
        };
        let provenance = Provenance::connected(address);
        let registered =
            registry.register_until(stream, Interest::WRITE, connecting, deadline, provenance);
        registered.map_err(|Rejected { value, error }| {
            let (_, connecting) = value;
            Rejected::new(connecting.handler, attempted(address, error))
        })
    }
}

/// A socket that is being connected.
pub(super) fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let domain = Domain::for_address(address);
    let socket = beside_listeners(|| Socket::new(domain, Type::STREAM, None))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// The error, with what was attempted.
pub(super) fn attempted(address: SocketAddr, error: io::Error) -> io::Error {
    errors::attempted(format_args!("connect to {address}"), error)
}

/// The handler of an outgoing connection: finds out that it stands, then leaves everything to the
/// user's.
struct Connecting<H> {
    handler: H,
    outcome: Outcome<TcpStream>,
    stands: bool,
    /// It was notified before it stood: the user's handler is called for it.
    notified: bool,
    /// When it must stand.
    deadline: Timestamp,
}

impl<H: EventHandler<TcpStream>> EventHandler<TcpStream> for Connecting<H> {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        if self.stands {
            return self.handler.ready(cx);
        }
        self.notified |= cx.is_notified();
        cx.try_write(|stream| (self.outcome)(stream))?;
        self.stands = true;
        let handle = cx.handle();
        // From its own handler: it is not over.
        let _ = handle.set_interest(Interest::READ);
        cx.clear_deadline(self.deadline);
        if self.notified {
            let _ = handle.notify();
        }
        self.handler.connected(cx)
    }

    fn expired(&mut self, cx: &mut Context<'_, TcpStream>, age: Duration) -> io::Result<Next> {
        if self.stands {
            self.handler.expired(cx, age)
        } else {
            self.ready(cx)
        }
    }

    fn overdue(&mut self, cx: &mut Context<'_, TcpStream>, what: Overdue) -> io::Result<Next> {
        if self.stands {
            self.handler.overdue(cx, what)
        } else {
            // The kernel may have made the connection, and the pool not have heard of it yet.
            self.ready(cx).map_err(too_late)
        }
    }

    fn moved(&mut self, handle: &Handle) {
        self.handler.moved(handle);
    }

    fn stayed(&mut self, why: io::Error) {
        self.handler.stayed(why);
    }

    fn closed(&mut self, why: Closed) {
        self.handler.closed(why);
    }
}

/// Finds out whether a connection stands; "would block" if that is not known yet.
pub(super) fn outcome_of(address: SocketAddr) -> Outcome<TcpStream> {
    Box::new(move |stream| match outcome(stream) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(attempted(address, error)),
        told => told,
    })
}

fn outcome(stream: &TcpStream) -> io::Result<()> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        known => known.map(drop),
    }
}
