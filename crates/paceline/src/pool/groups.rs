//! Handles that share one handler.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::{connect, Pool};
use crate::{
    dispatch::{Group, GroupHandler, Handle, Opens, Provenance, Rejected},
    handle_set::Source,
};

impl Pool {
    /// Begins a group: handles that share one handler and one ownership. It has no members yet
    /// ([`Group::register`], [`Group::connect`], [`Group::adopt`]).
    ///
    /// # Errors
    /// Gives `handler` back: `BrokenPipe` if the pool is shutting down, `QuotaExceeded` if every
    /// slot is taken.
    ///
    /// ```
    /// # use std::{io, os::unix::net::UnixStream};
    /// # use paceline::{Context, Interest, Members, Next, Pool};
    /// let pool = Pool::builder().threads(2).build()?;
    /// // What one says is given to all the others.
    /// let group = pool.group(|cx: &mut Context<'_, UnixStream>, members: &mut Members<'_, _>| {
    ///     let mut buffer = [0; 1024];
    ///     let count = cx.read(&mut buffer)?;
    ///     members.each(|_, other| drop(other.write_all(&buffer[..count])));
    ///     Ok(if count == 0 { Next::Close } else { Next::Continue })
    /// })?;
    /// let ends = [(); 3].map(|()| {
    ///     let (ours, theirs) = UnixStream::pair().unwrap();
    ///     group.register(theirs, Interest::READ).unwrap();
    ///     ours
    /// });
    /// # use std::io::{Read, Write};
    /// (&ends[0]).write_all(b"hello")?;
    /// let mut heard = [0; 5];
    /// (&ends[2]).read_exact(&mut heard)?;
    /// assert_eq!(&heard, b"hello");
    /// # io::Result::Ok(())
    /// ```
    pub fn group<S, H>(&self, handler: H) -> Result<Group<S>, Rejected<H>>
    where
        S: Source,
        H: GroupHandler<S>,
    {
        self.hub().registry.group(handler)
    }
}

impl Group<TcpStream> {
    /// Connects to `address`, without blocking; the connection is a member of this group.
    ///
    /// Once it is connected, [`GroupHandler::joined`] is called. If it fails, or is not connected
    /// within `within`, [`GroupHandler::closed`] is, with the reason:
    /// [`Closed::Failed`](crate::Closed::Failed) or [`Closed::TimedOut`](crate::Closed::TimedOut).
    ///
    /// # Errors
    /// What the system said if there is no socket to be had or the connection is refused at once;
    /// otherwise as [`register`](Self::register).
    pub fn connect(&self, address: SocketAddr, within: Duration) -> io::Result<Handle> {
        let attempted = |error: io::Error| connect::attempted(address, error);
        let stream = connect::begin(address).map_err(attempted)?;
        let opens = Opens {
            within,
            outcome: connect::outcome_of(address),
            provenance: Provenance::connected(address),
        };
        let registered = self.register_opening(stream, opens);
        registered.map_err(|rejected| attempted(rejected.error))
    }
}
