//! Connections that many threads share, read by a pool.

use std::{io, sync::Arc};

use super::Pool;
use crate::bound::{Mux, Protocol};

impl Pool {
    /// Has this pool read the connection of `mux`, and each one that comes after it, for its own handlers: they call
    /// with [`Mux::call_in`], and their threads serve this pool while they wait for the reply. So a pool can be client and
    /// server at once, with however few threads.
    ///
    /// Threads that are in no handler may call too, as ever; while one of them reads, the pool does not.
    ///
    /// # Errors
    /// `AlreadyExists`: a pool reads it. Or what the system said.
    pub fn attach<P: Protocol>(&self, mux: &Mux<P>) -> io::Result<()> {
        mux.attach(&Arc::downgrade(&self.shared().registry))
    }
}
