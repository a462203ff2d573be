//! The three steps of a call as types: expected, sent, replied.

use std::{
    fmt,
    io::{self, Read},
    mem,
    ops::Deref,
    sync::Arc,
};

use super::{
    calls::Key,
    deadline::{Deadline, Patience},
    driver::{Joined, Wants},
    leading::Leading,
    link::Link,
    protocol::Protocol,
};
use crate::{
    dispatch::{InHandler, Rejected, Serve},
    sync::Timestamp,
};

/// The claim of the thread that holds a call. Dropping it forgets the call.
struct Claim<'m, P: Protocol> {
    link: &'m Arc<Link<P>>,
    key: Key,
}

impl<P: Protocol> Drop for Claim<'_, P> {
    fn drop(&mut self) {
        self.link.calls.forget(self.key);
    }
}

/// A call that is registered: its reply will be found, from the moment it can come.
///
/// Dropping it forgets the call.
#[must_use = "dropping it forgets the call"]
pub struct Prepared<'m, P: Protocol>(Claim<'m, P>);

impl<'m, P: Protocol> Prepared<'m, P> {
    pub(super) fn new(link: &'m Arc<Link<P>>, key: Key) -> Self {
        Self(Claim { link, key })
    }

    /// The id of this call on the wire.
    pub fn id(&self) -> u64 {
        self.0.link.calls.id(self.0.key)
    }

    /// Sends the request. It never blocks: what the socket does not take is kept, and sent by
    /// whichever thread leads.
    ///
    /// If another thread is sending just then, that one sends this request too.
    ///
    /// # Errors
    /// Nothing was sent, and the call is given back. `QuotaExceeded`: too much waits to be sent
    /// already (see [`Builder::unsent`](super::Builder::unsent)), and the peer takes no more just
    /// now. What the protocol said of the request. Or the connection is lost; then the call can
    /// still be sent on the next one.
    pub fn send(self, request: &P::Request) -> Result<Sent<'m, P>, Rejected<Self>> {
        match self.0.link.send(self.0.key, request) {
            Ok(()) => Ok(Sent(self.0)),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }
}

/// A call whose request is sent, or is on its way.
///
/// Dropping it forgets the call: if its reply comes later, it is counted and skipped.
#[must_use = "dropping it forgets the call"]
pub struct Sent<'m, P: Protocol>(Claim<'m, P>);

impl<'m, P: Protocol> Sent<'m, P> {
    /// The id of this call on the wire.
    pub fn id(&self) -> u64 {
        self.0.link.calls.id(self.0.key)
    }

    /// Waits until the reply is there. Meanwhile this thread reads for all waiting callers, or
    /// sleeps while another thread does.
    ///
    /// With a deadline that has passed already it does not sleep: it takes what has come.
    ///
    /// # Errors
    /// The call is given back. `TimedOut`: it may be joined again. Everything else: the connection
    /// was lost, and the reply will not come; whether the request was carried out is not known.
    pub fn join(self, deadline: impl Into<Deadline>) -> Result<Reply<'m, P>, Rejected<Self>> {
        let (joined, _) = self.wait(Wants::Data, deadline.into());
        self.joined(joined)
    }

    /// As [`join`](Self::join), inside a handler: its thread does what `serve` says while it waits.
    /// See [`Mux::call_in`](super::Mux::call_in).
    ///
    /// # Errors
    /// The call is given back. As [`join`](Self::join). And the connection stands, and the call may
    /// be joined again: `QuotaExceeded`: so many handlers wait on this thread already
    /// ([`Builder::nesting`](crate::Builder::nesting)); `BrokenPipe`: the pool of this handler is
    /// shut down, and its time to drain is over (not with [`Serve::Nothing`]); `Unsupported`: it
    /// can't name a thread.
    pub fn join_in(
        self,
        cx: &mut impl InHandler,
        deadline: impl Into<Deadline>,
        serve: Serve,
    ) -> Result<Reply<'m, P>, Rejected<Self>> {
        let Claim { link, key } = self.0;
        let until = deadline.into().on(&link.clock);
        match link.wait_in(cx, key, until, serve) {
            Ok(joined) => self.joined(joined),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }

    /// Waits until the reply *begins*, and lends the reading end of the connection to this thread:
    /// it reads the body by itself, without a buffer between. No other caller's reply can be read
    /// until the body is read or dropped: be quick.
    ///
    /// If the reply came before this thread joined, it was read into a buffer, and that is lent.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_to_read(
        self,
        deadline: impl Into<Deadline>,
    ) -> Result<Body<'m, P>, Rejected<Self>> {
        let (joined, deadline) = self.wait(Wants::ToRead, deadline.into());
        let source = match joined {
            Joined::Reads(leading) => Source::Connection(leading, self.0),
            Joined::Replied => Source::Buffer(Reply::of(self.0), 0),
            Joined::Lost => return self.lost(),
            Joined::TimedOut => return self.timed_out(),
        };
        Ok(Body { source, deadline })
    }

    fn wait(&self, wants: Wants, deadline: Deadline) -> (Joined<'m, P>, Option<Timestamp>) {
        let Claim { link, key } = self.0;
        let deadline = deadline.on(&link.clock);
        (link.join(key, wants, Patience::until(deadline)), deadline)
    }

    fn joined(self, joined: Joined<'m, P>) -> Result<Reply<'m, P>, Rejected<Self>> {
        match joined {
            Joined::Replied => Ok(Reply::of(self.0)),
            Joined::Reads(_) => unreachable!("it wants its data"),
            Joined::Lost => self.lost(),
            Joined::TimedOut => self.timed_out(),
        }
    }

    fn lost<T>(self) -> Result<T, Rejected<Self>> {
        let error = self.0.link.loss();
        Err(Rejected::new(self, error))
    }

    fn timed_out<T>(self) -> Result<T, Rejected<Self>> {
        self.0.link.calls.counters.timed_out.add(1);
        let text = "wait for a reply: time is over";
        let error = io::Error::new(io::ErrorKind::TimedOut, text);
        Err(Rejected::new(self, error))
    }
}

/// A reply: its bytes, in the memory of its call.
///
/// While it is there its call counts as under way; the memory goes back with it.
pub struct Reply<'m, P: Protocol> {
    bytes: Vec<u8>,
    claim: Claim<'m, P>,
}

impl<'m, P: Protocol> Reply<'m, P> {
    fn of(claim: Claim<'m, P>) -> Self {
        let bytes = claim.link.calls.take_reply(claim.key);
        Self { bytes, claim }
    }

    /// Exchanges the bytes with those of `other`: without a copy, and without a new allocation next
    /// time.
    pub fn swap(&mut self, other: &mut Vec<u8>) {
        mem::swap(&mut self.bytes, other);
    }

    /// The bytes. The next call in its place allocates anew.
    pub fn into_vec(mut self) -> Vec<u8> {
        mem::take(&mut self.bytes)
    }
}

impl<P: Protocol> Deref for Reply<'_, P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<P: Protocol> Drop for Reply<'_, P> {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        self.claim.link.calls.put_back_reply(self.claim.key, bytes);
    }
}

/// The body of a reply, read by its own caller. It ends exactly where the body ends; what is not
/// read is skipped.
///
/// While this value exists its thread leads, and no other caller's reply can be read. Reads wait
/// until the deadline of the join.
pub struct Body<'m, P: Protocol> {
    source: Source<'m, P>,
    deadline: Option<Timestamp>,
}

enum Source<'m, P: Protocol> {
    /// The lead is given up before the call.
    Connection(Leading<'m, P>, Claim<'m, P>),
    /// How much of it is read.
    Buffer(Reply<'m, P>, usize),
}

impl<P: Protocol> Body<'_, P> {
    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        match &self.source {
            Source::Connection(leading, _) => leading.missing(),
            Source::Buffer(reply, at) => reply.len() - at,
        }
    }

    /// Whether it was handed over to be read from the connection, not from a buffer.
    pub fn is_direct(&self) -> bool {
        matches!(self.source, Source::Connection(..))
    }
}

impl<P: Protocol> Read for Body<'_, P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.source {
            Source::Connection(leading, _) => {
                leading.read_body(into, Patience::until(self.deadline))
            }
            Source::Buffer(reply, at) => {
                let count = (&reply[*at..]).read(into)?;
                *at += count;
                Ok(count)
            }
        }
    }
}

impl<P: Protocol> Drop for Body<'_, P> {
    fn drop(&mut self) {
        if let Source::Connection(leading, claim) = &mut self.source {
            leading.end_body(claim.key);
        }
    }
}

impl<P: Protocol> fmt::Debug for Prepared<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prepared").field(&self.id()).finish()
    }
}

impl<P: Protocol> fmt::Debug for Sent<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sent").field(&self.id()).finish()
    }
}

impl<P: Protocol> fmt::Debug for Reply<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reply").field(&self.bytes).finish()
    }
}

impl<P: Protocol> fmt::Debug for Body<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remaining = self.remaining();
        f.debug_struct("Body")
            .field("remaining", &remaining)
            .finish()
    }
}
