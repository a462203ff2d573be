//! Sockets, threads and the clock: joins the other modules on one pool.
