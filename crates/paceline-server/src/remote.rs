//! A connection as other sessions and other threads see it: to send to, to pause, to close.

use std::{fmt, sync::Arc};

use crate::{
    events,
    limits::Limit,
    link::{ConnectionId, Link},
    mailbox::{Letter, Mail, OnDone, Posted, Receipt, Tally},
    peer::PeerAddress,
};

/// A connection as other code sees it. Cloning gives another handle to the same connection; none of
/// them keeps it open.
///
/// What is sent waits in the mailbox of the connection, at most
/// [`Limits::mailbox`](crate::Limits::mailbox) bytes, and the connection sends it in its own turn.
/// A proxy gets back-pressure like this: each side pauses its own input before it sends to the
/// other, and goes on when the receipt says that the system has taken the bytes.
///
/// ```
/// # use std::io;
/// # use paceline::Next;
/// # use paceline_server::{Peer, Remote, Session, codec::Message};
/// /// Copies everything to the other side, and waits until the other side has taken it.
/// struct Copy {
///     to: Remote,
/// }
///
/// impl Session for Copy {
///     fn handle(&mut self, bytes: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
///         let from = cx.remote();
///         from.pause_input();
///         self.to.send_then(bytes.to_vec(), move |_| from.resume_input());
///         Ok(Next::Continue)
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Remote(Arc<Link>);

impl Remote {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        Self(Arc::clone(link))
    }

    /// The connection itself, for rooms.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.0
    }

    /// The number of the connection.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.0.id()
    }

    /// The address of its peer.
    #[must_use]
    pub fn address(&self) -> &PeerAddress {
        self.0.address()
    }

    /// How many bytes of its mailbox are taken, as [`Limits::mailbox`](crate::Limits::mailbox)
    /// counts them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.mailbox().waiting()
    }

    /// Sends `bytes`, in the form that the connection has chosen
    /// ([`Peer::set_encoding`](crate::Peer::set_encoding)): by default as they are. Whether its mailbox had a place for them; if not, the connection
    /// misses them, and [`Limit::Mailbox`] is counted.
    pub fn send(&self, bytes: impl Into<Arc<[u8]>>) -> bool {
        self.deliver(bytes.into(), None)
    }

    /// As [`send`](Self::send), and calls `done` once when it is known whether the system has taken
    /// all of the bytes: perhaps before this returns.
    pub fn send_then(
        &self,
        bytes: impl Into<Arc<[u8]>>,
        done: impl FnOnce(Receipt) + Send + 'static,
    ) -> bool {
        self.deliver(bytes.into(), Some(OnDone::Receipt(Box::new(done))))
    }

    fn deliver(&self, bytes: Arc<[u8]>, on_done: Option<OnDone>) -> bool {
        let tally = Arc::new(Tally::new(bytes, on_done));
        let letter = Letter::new(&tally, self.0.id(), self.0.encoding());
        let has_place = self.post(Mail::Letter(letter));
        if !has_place {
            self.0.service().counters().met(Limit::Mailbox);
            events::missed(&self.0);
        }
        tally.decide_sender();
        has_place
    }

    /// Whether there was a place for it.
    fn post(&self, mail: Mail) -> bool {
        match self.0.mailbox().post(mail) {
            Posted::First => {
                // A connection that is over has dropped its mail.
                let _ = self.0.handle().notify();
                true
            }
            Posted::Behind => true,
            Posted::NoPlace(_) => false,
        }
    }

    /// Has its session called ([`Session::notified`](crate::Session::notified)), behind everything
    /// that was sent to it before.
    pub fn notify(&self) {
        self.post(Mail::Call);
    }

    /// Ends the output of the connection behind everything that was sent to it. Its peer may still
    /// send.
    pub fn end_output(&self) {
        self.post(Mail::EndOfOutput);
    }

    /// Closes the connection when it has sent everything that was sent to it.
    pub fn close_gently(&self) {
        self.post(Mail::Close);
    }

    /// Closes the connection at once. What it has not sent is dropped.
    pub fn close(&self) {
        self.0.close();
    }

    /// Reads nothing more of the peer, and gives its session no further item, until
    /// [`resume_input`](Self::resume_input). A session that is in a call ends that call first.
    pub fn pause_input(&self) {
        if self.0.pause() {
            // A connection that is over reads nothing.
            let _ = self.0.handle().notify();
        }
    }

    /// Reads again.
    pub fn resume_input(&self) {
        if self.0.resume() {
            // A connection that is over reads nothing.
            let _ = self.0.handle().notify();
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("id", &self.id())
            .field("address", self.address())
            .field("waiting", &self.waiting())
            .finish()
    }
}
