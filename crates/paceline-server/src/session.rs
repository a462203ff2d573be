//! What an application writes: the session of one connection.

use std::{fmt, io};

use paceline::Next;

use crate::{
    codec::{Codec, Framing, Malformed},
    limits::Limit,
    peer::Peer,
};

/// The service for one connection. Only [`handle`](Self::handle) is required.
///
/// A closure `FnMut(Message<'_>, &mut Peer<'_>) -> io::Result<Next>` is a session too. The server
/// calls a session from one thread at a time. A session may block in [`Peer::blocking`]: another
/// thread leads meanwhile.
///
/// ```text
///   start --> handle, handle, .. --> closed
///               |          \
///               |           +-- overdue: a time is over; a last word may be written
///               +-------------- malformed: the input breaks the protocol, likewise
/// ```
pub trait Session<C: Codec = Framing>: Send + 'static {
    /// The connection stands, and its TLS handshake is done. The session may speak first.
    ///
    /// # Errors
    /// An error closes the connection.
    fn start(&mut self, cx: &mut Peer<'_, C>) -> io::Result<Next> {
        let _ = cx;
        Ok(Next::Continue)
    }

    /// An item has come. It may borrow the input buffer, so it lives for this call.
    ///
    /// # Errors
    /// An error closes the connection, and no other.
    fn handle(&mut self, item: C::Item<'_>, cx: &mut Peer<'_, C>) -> io::Result<Next>;

    /// The session has returned [`Next::Again`], and all its output is sent: the next part of a
    /// long answer, for example. Or it has returned [`Next::Move`], and the connection is in the
    /// other level, or could not move. It gets no item before it returns something else.
    ///
    /// # Errors
    /// An error closes the connection.
    fn again(&mut self, cx: &mut Peer<'_, C>) -> io::Result<Next> {
        let _ = cx;
        Ok(Next::Continue)
    }

    /// The items that one turn may have were handled, or no further one has come: the place to send
    /// the answers to several items with one system call. It is not called after an error.
    ///
    /// # Errors
    /// An error closes the connection.
    fn turn_ended(&mut self, cx: &mut Peer<'_, C>) -> io::Result<()> {
        let _ = cx;
        Ok(())
    }

    /// [`Remote::notify`](crate::Remote::notify) was called, once or several times, and all output
    /// is sent.
    ///
    /// # Errors
    /// An error closes the connection.
    fn notified(&mut self, cx: &mut Peer<'_, C>) -> io::Result<Next> {
        let _ = cx;
        Ok(Next::Continue)
    }

    /// A limit of time is met. The session may write a last word and close, or go on with
    /// [`Next::Continue`]: then that time begins anew. By default the connection closes.
    fn overdue(&mut self, limit: Limit, cx: &mut Peer<'_, C>) -> Next {
        let _ = (limit, cx);
        Next::Close
    }

    /// The input breaks the protocol. The session may write a last word; the connection closes in
    /// any case.
    fn malformed(&mut self, why: Malformed, cx: &mut Peer<'_, C>) {
        let _ = (why, cx);
    }

    /// The peer has begun in plain text although the connection has TLS. The session may answer in
    /// plain text; by default the connection closes without a word.
    fn not_tls(&mut self, cx: &mut Peer<'_, C>) -> Next {
        let _ = cx;
        Next::Close
    }

    /// The peer has ended its output between two items, and may still read. By default the
    /// connection closes after all output is sent.
    ///
    /// # Errors
    /// An error closes the connection.
    fn ended(&mut self, cx: &mut Peer<'_, C>) -> io::Result<Next> {
        let _ = cx;
        Ok(Next::Close)
    }

    /// The server drains, and this connection is between two items, with nothing left to send. The
    /// session may write a last word; by default the connection closes after it.
    ///
    /// A session that has more to do, such as a proxy that waits for an answer, returns
    /// [`Next::Continue`]: it is asked again at the end of each later turn of the connection. At the
    /// deadline of the drain the connection is cut.
    fn draining(&mut self, cx: &mut Peer<'_, C>) -> Next {
        let _ = cx;
        Next::CloseGently
    }

    /// The connection is closed; nothing is called after this. Called exactly once.
    fn closed(&mut self, why: &Ended) {
        let _ = why;
    }
}

impl<C, F> Session<C> for F
where
    C: Codec,
    F: for<'b> FnMut(C::Item<'b>, &mut Peer<'_, C>) -> io::Result<Next> + Send + 'static,
{
    fn handle(&mut self, item: C::Item<'_>, cx: &mut Peer<'_, C>) -> io::Result<Next> {
        self(item, cx)
    }
}

/// Why a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended {
    /// The session closed it, and all output was sent.
    Finished,
    /// The peer ended its output between two items, or closed the connection.
    ByPeer,
    /// The peer broke the protocol.
    Malformed(Malformed),
    /// The peer met this limit.
    Limit(Limit),
    /// The session or the connection failed.
    Failed(io::Error),
    /// The session panicked with this message.
    Panicked(String),
    /// Other code closed it, such as [`Remote::close`](crate::Remote::close).
    Requested,
    /// The server drained, or its pool ended.
    Shutdown,
}

impl Ended {
    /// The name of the reason in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::ByPeer => "by_peer",
            Self::Malformed(_) => "malformed",
            Self::Limit(_) => "limit",
            Self::Failed(_) => "failed",
            Self::Panicked(_) => "panicked",
            Self::Requested => "requested",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::ByPeer => f.write_str("closed by the peer"),
            Self::Malformed(why) => write!(f, "malformed input: {why}"),
            Self::Limit(limit) => write!(f, "limit {limit}"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(message) => write!(f, "the session panicked: {message}"),
            Self::Requested => f.write_str("closed on request"),
            Self::Shutdown => f.write_str("the server ended"),
        }
    }
}
