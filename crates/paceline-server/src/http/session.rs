//! The session of one HTTP connection: requests in, answers out.
//!
//! ```text
//!   Head --Request, whole--> answer
//!     |                        ^
//!     +--Request--> Whole ---- | all is there
//!     |             Push ----- | end
//!     |             Pull ----- | the handler's thread has answered
//!     +--refused--> Drop       the rest of a body nobody wants
//! ```
//!
//! Answers collect in `output`, and leave together when the turn ends. An answer that is longer
//! than a part goes on in `again`, while no further request is read.
//!
//! Behind the answer of some routes a connection is no HTTP any more: it becomes a WebSocket, whose
//! calls go to its `Socket`, or a stream of events, which only sends.

mod bodies;

use std::{io, sync::Arc, time::Duration};

use paceline::{Level, Next};

use super::{
    app::App,
    calls::{call_with, Pushing, Turn},
    gather::Gathering,
    moving::Moving,
    outgoing::{self, flush, Outgoing},
    protocol::{BodyStart, Head, HttpCodec, Item, Persistence, Version},
    pull::Pulling,
    refusals::{no_such_method, not_found, too_long},
    request::Given,
    response::Decided,
    router::Found,
    socket::Socket,
    upgrade::{Then, Upgrade},
    Error, Request, Response,
};
use crate::{
    codec::Malformed,
    limits::Limit,
    peer::Peer,
    session::{Ended, Session},
    sse::append_comment,
};

/// A connection that is older gets no further request: load balancers spread new connections alone.
const LONGEST_AGE: Duration = Duration::from_secs(3600);

/// A stream of events is silent for at most so long.
const COMMENT_TIME: Duration = Duration::from_secs(15);

/// So much of a body that is not wanted is read and dropped, to keep the connection.
const MOST_DROPPED: u64 = 256 * 1024;

type Cx<'p> = Peer<'p, HttpCodec>;

/// The session of one connection.
pub(super) struct HttpSession {
    app: Arc<App>,
    reading: Reading,
    /// The answer that is on its way.
    outgoing: Option<Box<Outgoing>>,
    /// Answers of this turn. It has memory only during a call.
    output: Vec<u8>,
    requests: u64,
    /// The name of the level that serves the connection, once a request was for one.
    level: Option<Box<str>>,
    /// A request that moves with its connection.
    moving: Option<Box<Moving>>,
    /// The connection ends behind the next answer.
    is_old: bool,
}

/// What the input is.
enum Reading {
    Head,
    Whole(Box<Gathering>),
    Push(Box<Pushing>),
    Pull(Box<Pulling>),
    /// The rest of a body that is not wanted: so much of it may come.
    Drop(u64),
    /// The connection has become a WebSocket.
    Socket(Box<Socket>),
    /// The connection has become a stream of events.
    Events,
}

/// What an answer must know of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) version: Version,
    pub(super) is_head: bool,
    pub(super) keeps_alive: bool,
}

/// What is left of the body of a request that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// So much, if that is known; the client sends it in any case.
    Some(Option<u64>),
    /// It is not to be read: too long, or the client waits before it sends it.
    Unwanted,
}

impl Asked {
    fn of(head: &Head<'_>) -> Self {
        Self {
            version: head.version(),
            is_head: head.method() == "HEAD",
            keeps_alive: head.keeps_alive(),
        }
    }

    /// Of a request that could not be read.
    const UNKNOWN: Self = Self {
        version: Version::Http11,
        is_head: false,
        keeps_alive: false,
    };
}

impl HttpSession {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self {
            app,
            reading: Reading::Head,
            outgoing: None,
            output: Vec::new(),
            requests: 0,
            level: None,
            moving: None,
            is_old: false,
        }
    }

    /// Whether the connection is where this level is.
    fn is_in(&self, level: &Level) -> bool {
        let here = self.level.as_deref();
        here.unwrap_or_else(|| self.app.table.home()) == level.name()
    }

    /// A head has come, and perhaps its body.
    fn begin(&mut self, head: Head<'_>, body: BodyStart<'_>, cx: &mut Cx<'_>) -> io::Result<Next> {
        outgoing::prepare(&mut self.output);
        let asked = Asked::of(&head);
        let rest = rest_of(&head, body);
        let (route, params) = match self.app.table.find(head.method(), head.path()) {
            Found::Route(route, params) => (route, params),
            Found::Methods(allow) => {
                return self.answer_unrouted(&head, no_such_method(&head, &allow), rest, cx);
            }
            Found::Nothing => {
                return self.answer_unrouted(&head, not_found(&head), rest, cx);
            }
        };
        let limit = route.limit.unwrap_or(self.app.settings.body_limit);
        let length = match body {
            BodyStart::Whole(bytes) => Some(bytes.len() as u64),
            BodyStart::Follows { length } => length,
        };
        if length.is_some_and(|length| length > limit) {
            let rest = match rest {
                Rest::Nothing => Rest::Nothing,
                _ => Rest::Unwanted,
            };
            return self.answer_unrouted(&head, too_long(limit), rest, cx);
        }
        if let Some(level) = route.level().filter(|level| !self.is_in(level)) {
            // A connection that can't move, because its server ends, is served here.
            if let Ok(next) = cx.move_to(level) {
                self.level = Some(level.name().into());
                self.moving = Some(Box::new(Moving::new(head, body)));
                return Ok(next);
            }
        }
        let BodyStart::Whole(bytes) = body else {
            let route = Arc::clone(route);
            return self.begin_body(head, &route, asked, limit, length, cx);
        };
        let decided = call_with(
            &self.app,
            (route, params),
            &head,
            bytes,
            &mut Turn::new(cx, &mut self.output, self.requests),
        );
        self.answer(decided, asked, Rest::Nothing, cx)
    }

    /// Answers a request that has no handler, or that its handler does not get.
    fn answer_unrouted(
        &mut self,
        head: &Head<'_>,
        response: Response,
        rest: Rest,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let mut turn = Turn::new(cx, &mut self.output, self.requests);
        let mut request = Request {
            head,
            params: matchit::Params::new(),
            body: Given::Bytes(b""),
            around: &mut turn,
        };
        let response = self.app.finish(&mut request, response);
        self.answer(Decided::Now(response), Asked::of(head), rest, cx)
    }

    /// Begins the answer, and decides what becomes of the connection.
    fn answer(
        &mut self,
        decided: Decided,
        asked: Asked,
        rest: Rest,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let mut response = match decided {
            Decided::Now(response) => response,
            Decided::Push(_) => Error::new(500, "").into_response(),
            Decided::Upgrade(upgrade) => return self.upgrade(*upgrade, asked, cx),
        };
        response.check();
        let may_drop = match rest {
            Rest::Nothing => true,
            Rest::Some(left) => left.is_none_or(|left| left <= MOST_DROPPED),
            Rest::Unwanted => false,
        };
        let is_kept =
            asked.keeps_alive && may_drop && !response.closes && !self.is_old && !cx.is_draining();
        let persistence = if is_kept {
            Persistence::Kept
        } else {
            Persistence::Closed
        };
        self.reading = match rest {
            Rest::Nothing => Reading::Head,
            _ => Reading::Drop(MOST_DROPPED),
        };
        self.outgoing = outgoing::begin(response, asked, persistence, &mut self.output);
        match &self.outgoing {
            Some(_) => self.go_on(cx),
            None => self.answered(persistence, cx),
        }
    }

    /// The connection becomes a WebSocket, or a stream of events.
    fn upgrade(&mut self, upgrade: Upgrade, asked: Asked, cx: &mut Cx<'_>) -> io::Result<Next> {
        if let Some(encoding) = upgrade.encoding() {
            cx.set_encoding(encoding);
        }
        outgoing::begin_upgrade(&upgrade.response, asked, &mut self.output);
        match upgrade.then {
            Then::Socket(session) => {
                // What the session sends follows the head.
                flush(&mut self.output, cx)?;
                cx.switch(HttpCodec::of_frames(upgrade.frames));
                let socket = Box::new(Socket::new(session, upgrade.kind));
                self.reading = Reading::Socket(socket);
                self.with_socket(|socket| socket.start(cx))
            }
            Then::Events(first) => {
                self.output.extend_from_slice(&first);
                cx.switch(HttpCodec::of_nothing());
                cx.set_deadline(COMMENT_TIME);
                self.reading = Reading::Events;
                Ok(Next::Continue)
            }
        }
    }

    fn with_socket(
        &mut self,
        with: impl FnOnce(&mut Socket) -> io::Result<Next>,
    ) -> io::Result<Next> {
        match &mut self.reading {
            Reading::Socket(socket) => with(socket),
            _ => Ok(Next::Continue),
        }
    }

    /// Shows that a stream of events is alive.
    fn comment(cx: &mut Cx<'_>) -> Next {
        cx.set_deadline(COMMENT_TIME);
        let mut comment = Vec::new();
        append_comment("", &mut comment);
        match cx.send(comment) {
            Ok(()) => Next::Continue,
            Err(_) => Next::Close,
        }
    }

    /// Sends more of the answer.
    fn go_on(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(Next::Continue);
        };
        match outgoing.pump(&mut self.output, cx)? {
            Next::Continue => {
                let persistence = outgoing.persistence();
                self.outgoing = None;
                self.answered(persistence, cx)
            }
            next => Ok(next),
        }
    }

    /// An answer is sent or kept, or collects with others.
    fn answered(&mut self, persistence: Persistence, cx: &mut Cx<'_>) -> io::Result<Next> {
        if self.output.len() > outgoing::FULL {
            flush(&mut self.output, cx)?;
        }
        Ok(match persistence {
            Persistence::Kept => Next::Continue,
            Persistence::Closed => Next::CloseGently,
        })
    }

    /// Answers in place of whatever is under way, as the last word.
    fn last_word(&mut self, status: u16, why: &'static str, cx: &mut Cx<'_>) {
        if let Reading::Pull(pulling) = &self.reading {
            pulling.pipe.cut();
        }
        let is_answered =
            matches!(self.reading, Reading::Drop(_) | Reading::Events) || self.outgoing.is_some();
        self.reading = Reading::Drop(0);
        if is_answered {
            return;
        }
        outgoing::prepare(&mut self.output);
        let response = Error::new(status, why).into_response().close();
        let asked = Asked::UNKNOWN;
        outgoing::begin(response, asked, Persistence::Closed, &mut self.output);
        // The connection ends in any case.
        let _ = flush(&mut self.output, cx);
    }
}

impl HttpSession {
    /// Whether an answer is under way.
    fn is_busy(&self) -> bool {
        self.outgoing.is_some() || self.moving.is_some() || matches!(self.reading, Reading::Pull(_))
    }
}

impl Session<HttpCodec> for HttpSession {
    fn start(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        cx.set_deadline(LONGEST_AGE);
        Ok(Next::Continue)
    }

    fn handle(&mut self, item: Item<'_>, cx: &mut Cx<'_>) -> io::Result<Next> {
        match item {
            Item::Request { head, body } => {
                self.requests += 1;
                self.begin(head, body, cx)
            }
            Item::Data { bytes, is_last } => self.data(bytes, is_last, cx),
            Item::Frame(frame) => self.with_socket(|socket| socket.handle(frame, cx)),
            Item::Dropped => Ok(Next::Continue),
        }
    }

    fn turn_ended(&mut self, cx: &mut Cx<'_>) -> io::Result<()> {
        if let Reading::Socket(socket) = &mut self.reading {
            return socket.turn_ended(cx);
        }
        flush(&mut self.output, cx)
    }

    fn again(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        if let Reading::Socket(socket) = &mut self.reading {
            return socket.again(cx);
        }
        outgoing::prepare(&mut self.output);
        let next = match self.moving.take() {
            Some(moving) => self.begin(moving.head.head(), moving.body(), cx),
            None => self.go_on(cx),
        };
        flush(&mut self.output, cx)?;
        next
    }

    /// The thread of a handler has answered.
    fn notified(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
        if let Reading::Socket(socket) = &mut self.reading {
            return socket.notified(cx);
        }
        let Reading::Pull(pulling) = &self.reading else {
            return Ok(Next::Continue);
        };
        let Some(response) = pulling.pipe.take_answer() else {
            return Ok(Next::Continue);
        };
        let (asked, input_ended) = (pulling.asked, pulling.input_ended);
        let rest = if pulling.has_all {
            Rest::Nothing
        } else {
            Rest::Some(None)
        };
        cx.remote().resume_input();
        outgoing::prepare(&mut self.output);
        let next = self.answer(Decided::Now(response), asked, rest, cx)?;
        flush(&mut self.output, cx)?;
        Ok(if input_ended && next == Next::Continue {
            Next::CloseGently
        } else {
            next
        })
    }

    /// A client gets the answer that it waits for.
    fn draining(&mut self, cx: &mut Cx<'_>) -> Next {
        if let Reading::Socket(socket) = &mut self.reading {
            return socket.draining(cx);
        }
        if self.is_busy() {
            Next::Continue
        } else {
            Next::CloseGently
        }
    }

    fn overdue(&mut self, limit: Limit, cx: &mut Cx<'_>) -> Next {
        if let Reading::Socket(socket) = &mut self.reading {
            return socket.overdue(limit, cx);
        }
        let is_stream = matches!(self.reading, Reading::Events);
        match limit {
            Limit::Idle if self.is_busy() || is_stream => Next::Continue,
            Limit::Deadline if is_stream => Self::comment(cx),
            Limit::Deadline => {
                self.is_old = true;
                Next::Continue
            }
            Limit::ItemTime | Limit::ReadRate => {
                self.last_word(408, "the request comes too slowly", cx);
                Next::CloseGently
            }
            _ => Next::Close,
        }
    }

    fn malformed(&mut self, why: Malformed, cx: &mut Cx<'_>) {
        if let Reading::Socket(socket) = &mut self.reading {
            return socket.malformed(&why, cx);
        }
        match why {
            Malformed::Refused { code, why } => self.last_word(code, why, cx),
            Malformed::Truncated => self.last_word(400, "the request has no end", cx),
            _ => self.last_word(400, "the request is malformed", cx),
        }
    }

    fn not_tls(&mut self, cx: &mut Cx<'_>) -> Next {
        self.last_word(400, "plain HTTP was sent to an HTTPS port", cx);
        Next::CloseGently
    }

    fn ended(&mut self, _: &mut Cx<'_>) -> io::Result<Next> {
        match &mut self.reading {
            Reading::Pull(pulling) => {
                pulling.input_ended = true;
                Ok(Next::Continue)
            }
            _ => Ok(Next::Close),
        }
    }

    fn closed(&mut self, why: &Ended) {
        match &mut self.reading {
            Reading::Pull(pulling) => pulling.pipe.cut(),
            Reading::Socket(socket) => socket.closed(why),
            _ => {}
        }
    }
}

/// What is left of the body when a request is answered at once.
fn rest_of(head: &Head<'_>, body: BodyStart<'_>) -> Rest {
    match body {
        BodyStart::Whole(_) => Rest::Nothing,
        // The client may send the body or not: only the end of the connection is safe.
        BodyStart::Follows { .. } if head.expects_continue() => Rest::Unwanted,
        BodyStart::Follows { length } => Rest::Some(length),
    }
}
