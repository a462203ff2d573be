//! Accepting connections, done for you.
//!
//! `listen/builder.rs` has the settings, `listen/acceptor.rs` the handler of a listening socket,
//! `listen/refusal.rs` what becomes of connections that are not served, `listen/metrics.rs` the
//! handler of a port for monitoring. How many are open is counted in `dispatch/provenance.rs`.

mod acceptor;
mod builder;
mod metrics;
mod refusal;
mod socket;

use std::{net::SocketAddr, sync::Arc};

pub(crate) use self::acceptor::TakenOnBy;
pub(super) use self::{acceptor::here, refusal::beside_listeners};
pub use self::{builder::ListenerBuilder, socket::ListenerSocket};
use crate::dispatch::{Handle, OpenConnections};

/// A listening socket in a pool. Dropping it changes nothing; [`close`](Handle::close) its handle
/// to stop listening.
///
/// `A` is the type of its address: a [`SocketAddr`], or that of a Unix socket.
#[derive(Clone, Debug)]
pub struct Listener<A = SocketAddr> {
    handle: Handle,
    address: A,
    open: Arc<OpenConnections>,
}

impl<A: Clone> Listener<A> {
    /// The address that clients connect to, with the port that the system chose if it was zero.
    #[must_use]
    pub fn local_addr(&self) -> A {
        self.address.clone()
    }

    /// Its handle in the pool. While the listener waits for a place
    /// ([`max_connections`](ListenerBuilder::max_connections)), the pool keeps its interest; to
    /// pause it, [`suspend`](Handle::suspend) it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How many of its connections are open: accepted, and their sources are not dropped yet. Those
    /// that have moved to other pools count too.
    /// [`Snapshot::connections`](crate::observe::Snapshot::connections) is the number of a pool.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open.count()
    }

    /// How many connections it has refused: for want of a place, a descriptor or a slot, and
    /// because its maker returned `None`.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.open.refused()
    }
}
