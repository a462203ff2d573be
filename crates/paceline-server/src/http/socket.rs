//! A connection that has become a WebSocket: pings, close frames, and the session's calls.
//!
//! ```text
//!   frames --> ping, pong, close: answered here
//!              text, binary ------> the session    Close --> a close frame, then the client's
//! ```
//!
//! A connection has one deadline. Here it is the earliest of three moments: the next ping, the end of
//! the time that a client has for its close frame, and the session's own deadline.

use std::{
    io,
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    time::Duration,
};

use paceline::{HandlerKind, Next};

use super::protocol::HttpCodec;
use crate::{
    codec::Malformed,
    limits::Limit,
    moment::Moment,
    peer::Peer,
    session::{Ended, Session},
    websocket::{Close, CloseCode, Closing, Frames, Incoming, Outgoing, Reply},
};

/// A client gets a ping so often. One that has been silent since the last one is gone.
const PING: Duration = Duration::from_secs(30);
/// A client has so much time to answer a close frame.
const CLOSE_TIME: Duration = Duration::from_secs(5);

type Cx<'p> = Peer<'p, HttpCodec>;

/// A WebSocket.
pub(super) struct Socket {
    session: Box<dyn Session<Frames>>,
    /// What the pool learns of the route's calls.
    kind: Option<HandlerKind>,
    closing: Closing,
    /// When the next ping is due; once the server has sent its close frame, when the connection ends.
    next_sign: Moment,
    /// The session's own deadline.
    own: Option<Moment>,
    /// The client has said something since the last ping.
    is_heard: bool,
}

impl Socket {
    pub(super) fn new(session: Box<dyn Session<Frames>>, kind: Option<HandlerKind>) -> Self {
        Self {
            session,
            kind,
            closing: Closing::default(),
            next_sign: Moment::MAX,
            own: None,
            is_heard: true,
        }
    }

    /// The answer to the opening is on its way.
    pub(super) fn start(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        self.next_sign = now(cx).saturating_add(PING);
        self.set_deadline(cx);
        self.call(cx, |session, cx| session.start(cx))
    }

    pub(super) fn handle(&mut self, frame: Incoming, cx: &mut Cx<'_>) -> io::Result<Next> {
        self.is_heard = true;
        match frame {
            Incoming::Close(why) => {
                let reply = self.closing.received(why.as_ref());
                self.send(reply, cx)
            }
            _ if !self.closing.is_open() => Ok(Next::Continue),
            Incoming::Part | Incoming::Pong(_) => Ok(Next::Continue),
            Incoming::Ping(bytes) => {
                let pong = Outgoing::Pong(&bytes).to_vec()?;
                cx.send(pong)?;
                Ok(Next::Continue)
            }
            message => {
                if let Some(kind) = &self.kind {
                    cx.begin_kind(kind);
                }
                self.call(cx, |session, cx| session.handle(message, cx))
            }
        }
    }

    pub(super) fn again(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        self.call(cx, |session, cx| session.again(cx))
    }

    pub(super) fn notified(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        self.call(cx, |session, cx| session.notified(cx))
    }

    pub(super) fn turn_ended(&mut self, cx: &mut Cx<'_>) -> io::Result<()> {
        let ended = |session: &mut dyn Session<Frames>, cx: &mut Peer<'_, Frames>| {
            session.turn_ended(cx).map(|()| Next::Continue)
        };
        self.call(cx, ended).map(drop)
    }

    /// The server drains.
    pub(super) fn draining(&mut self, cx: &mut Cx<'_>) -> Next {
        if !self.closing.is_open() {
            return Next::Continue;
        }
        let decided = self.call_plainly(cx, |session, cx| Ok(session.draining(cx)));
        match decided {
            Ok(Next::Close | Next::CloseGently) => {
                self.close(CloseCode::GOING_AWAY, "the server ends", cx)
            }
            Ok(next) => Ok(next),
            Err(error) => Err(error),
        }
        .unwrap_or(Next::Close)
    }

    pub(super) fn overdue(&mut self, limit: Limit, cx: &mut Cx<'_>) -> Next {
        match limit {
            // Pings show whether the client is there.
            Limit::Idle => Next::Continue,
            Limit::Deadline => self.moment_passed(cx).unwrap_or(Next::Close),
            Limit::ItemTime | Limit::ReadRate => {
                let why = "a message comes too slowly";
                let closed = self.close(CloseCode::POLICY_VIOLATION, why, cx);
                closed.map_or(Next::Close, |_| Next::CloseGently)
            }
            limit => {
                let decided = self.call(cx, |session, cx| Ok(session.overdue(limit, cx)));
                decided.unwrap_or(Next::Close)
            }
        }
    }

    /// The client has broken the protocol. The connection closes in any case.
    pub(super) fn malformed(&mut self, why: &Malformed, cx: &mut Cx<'_>) {
        let reply = self.closing.failed(why);
        let _ = self.send(reply, cx);
    }

    pub(super) fn closed(&mut self, why: &Ended) {
        self.session.closed(why);
    }

    /// One of the three moments of the deadline.
    fn moment_passed(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        let now = now(cx);
        if self.next_sign <= now {
            if !self.closing.is_open() || !self.is_heard {
                return Ok(Next::Close);
            }
            self.is_heard = false;
            self.next_sign = now.saturating_add(PING);
            cx.send(Outgoing::Ping(b"").to_vec()?)?;
        }
        let next = if self.own.is_some_and(|own| own <= now) {
            self.own = None;
            self.call(cx, |session, cx| Ok(session.overdue(Limit::Deadline, cx)))?
        } else {
            Next::Continue
        };
        self.set_deadline(cx);
        Ok(next)
    }

    /// Calls the session. If that ends the connection, the client gets a close frame first.
    fn call(
        &mut self,
        cx: &mut Cx<'_>,
        function: impl FnOnce(&mut dyn Session<Frames>, &mut Peer<'_, Frames>) -> io::Result<Next>,
    ) -> io::Result<Next> {
        match self.call_plainly(cx, function) {
            Ok(Next::Close | Next::CloseGently) => self.close(CloseCode::NORMAL, "", cx),
            Ok(next) => Ok(next),
            Err(error) => {
                let _ = self.close(CloseCode::INTERNAL_ERROR, "", cx);
                Err(error)
            }
        }
    }

    /// Calls the session, and does what it wants changed.
    fn call_plainly(
        &mut self,
        cx: &mut Cx<'_>,
        function: impl FnOnce(&mut dyn Session<Frames>, &mut Peer<'_, Frames>) -> io::Result<Next>,
    ) -> io::Result<Next> {
        let session = &mut *self.session;
        // Every codec of frames sends in the same way.
        let frames = Frames::default();
        let called = catch_unwind(AssertUnwindSafe(|| {
            cx.speaking(&frames, |cx| function(session, cx))
        }));
        let (next, changes) = match called {
            Ok(called) => called,
            Err(panic) => {
                let _ = self.close(CloseCode::INTERNAL_ERROR, "", cx);
                resume_unwind(panic);
            }
        };
        if let Some(frames) = changes.codec {
            cx.switch(HttpCodec::of_frames(frames));
        }
        if let Some(within) = changes.deadline {
            self.own = within.map(|within| now(cx).saturating_add(within));
            self.set_deadline(cx);
        }
        next
    }

    fn close(&mut self, code: CloseCode, why: &str, cx: &mut Cx<'_>) -> io::Result<Next> {
        let reply = self.closing.close(&Close::new(code, why));
        self.send(reply, cx)
    }

    fn send(&mut self, reply: Reply, cx: &mut Cx<'_>) -> io::Result<Next> {
        if matches!(reply, Reply::Send(_) | Reply::SendAndClose(_)) {
            // Nothing may follow a close frame.
            cx.link().mailbox().close(cx.id());
        }
        match reply {
            Reply::Send(frame) => {
                self.next_sign = now(cx).saturating_add(CLOSE_TIME);
                self.own = None;
                self.set_deadline(cx);
                cx.send(frame)?;
                Ok(Next::Continue)
            }
            Reply::SendAndClose(frame) => {
                cx.send(frame)?;
                Ok(Next::CloseGently)
            }
            Reply::Close => Ok(Next::CloseGently),
            Reply::Nothing => Ok(Next::Continue),
        }
    }

    fn set_deadline(&self, cx: &mut Cx<'_>) {
        let first = self
            .own
            .map_or(self.next_sign, |own| own.min(self.next_sign));
        cx.set_deadline(first.saturating_sub(now(cx)));
    }
}

fn now(cx: &Cx<'_>) -> Moment {
    cx.link().service().now()
}
