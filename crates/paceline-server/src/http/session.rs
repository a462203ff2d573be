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

use std::{io, sync::Arc, time::Duration};

use paceline::{Level, Next};

use super::{
    app::App,
    calls::{call_given, call_push, call_with, push_on, Pushing, Turn},
    gather::{Gathered, Gathering},
    moving::Moving,
    outgoing::{self, flush, Outgoing},
    protocol::{BodyStart, Head, HttpCodec, Item, Persistence, Version},
    pull::{Pipe, Pull, Pulling},
    refusals::{no_such_method, not_found, overloaded, too_long},
    request::Given,
    response::Decided,
    router::{Found, Route},
    Body, Error, Request, Response,
};
use crate::{
    codec::Malformed,
    limits::Limit,
    peer::Peer,
    session::{Ended, Session},
};

/// A connection that is older gets no further request: load balancers spread new connections alone.
const LONGEST_AGE: Duration = Duration::from_secs(3600);

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
        let (route, limit) = match self.app.table.find(head.method(), head.path()) {
            Found::Route(route, _) => (route, route.limit.unwrap_or(self.app.settings.body_limit)),
            Found::Methods(allow) => {
                return self.answer_unrouted(&head, no_such_method(&head, &allow), rest, cx);
            }
            Found::Nothing => {
                return self.answer_unrouted(&head, not_found(&head), rest, cx);
            }
        };
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
            return self.begin_body(head, &route, asked, limit, cx);
        };
        let decided = call_with(
            &self.app,
            &head,
            bytes,
            &mut Turn::new(cx, &mut self.output, self.requests),
        );
        self.answer(decided, asked, Rest::Nothing, cx)
    }

    /// The body of a request comes later, or has begun to come.
    fn begin_body(
        &mut self,
        head: Head<'_>,
        route: &Arc<Route>,
        asked: Asked,
        limit: u64,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let expects = head.expects_continue();
        match route.body {
            Body::Whole => {
                self.reading = Reading::Whole(Box::new(Gathering {
                    head: head.keep(),
                    route: Arc::clone(route),
                    asked,
                    limit,
                    body: Gathered::default(),
                }));
            }
            Body::Push => {
                let mut turn = Turn::new(cx, &mut self.output, self.requests);
                let push = match call_push(&self.app, &head, &mut turn) {
                    Decided::Push(push) => push,
                    now => {
                        let rest = rest_of(&head, BodyStart::Follows { length: None });
                        return self.answer(now, asked, rest, cx);
                    }
                };
                self.reading = Reading::Push(Box::new(Pushing {
                    push,
                    head: head.keep(),
                    route: Arc::clone(route),
                    asked,
                    limit,
                    length: 0,
                }));
            }
            Body::Pull => match self.begin_pull(head, route, asked, cx) {
                Ok(()) => {}
                Err(refusal) => {
                    return self.answer(Decided::Now(*refusal), asked, Rest::Unwanted, cx);
                }
            },
        }
        if expects {
            self.output
                .extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        Ok(Next::Continue)
    }

    /// Gives a request to a thread of its own; or the answer, if there is none.
    fn begin_pull(
        &mut self,
        head: Head<'_>,
        route: &Arc<Route>,
        asked: Asked,
        cx: &mut Cx<'_>,
    ) -> Result<(), Box<Response>> {
        let Some(permit) = self.app.permit() else {
            let refusal = overloaded("as many bodies are read as may be at once");
            return Err(Box::new(refusal));
        };
        let pipe = Arc::new(Pipe::new(cx.remote()));
        let pull = Pull {
            app: Arc::clone(&self.app),
            route: Arc::clone(route),
            head: head.keep(),
            number: self.requests,
            permit,
            #[cfg(feature = "_tls")]
            tls: cx.tls().cloned(),
        };
        if let Err(error) = pull.start(&pipe) {
            return Err(Box::new(overloaded(error)));
        }
        self.reading = Reading::Pull(Box::new(Pulling {
            asked,
            pipe,
            has_all: false,
            input_ended: false,
        }));
        Ok(())
    }

    /// A part of a body has come.
    fn data(&mut self, bytes: &[u8], is_last: bool, cx: &mut Cx<'_>) -> io::Result<Next> {
        outgoing::prepare(&mut self.output);
        match std::mem::replace(&mut self.reading, Reading::Head) {
            Reading::Whole(gathering) => self.gather(gathering, bytes, is_last, cx),
            Reading::Push(pushing) => self.push(pushing, bytes, is_last, cx),
            Reading::Pull(mut pulling) => {
                pulling.pipe.push(bytes, is_last);
                pulling.has_all = is_last;
                self.reading = Reading::Pull(pulling);
                Ok(Next::Continue)
            }
            Reading::Drop(left) => match left.checked_sub(bytes.len() as u64) {
                None => Ok(Next::CloseGently),
                Some(_) if is_last => Ok(Next::Continue),
                Some(left) => {
                    self.reading = Reading::Drop(left);
                    Ok(Next::Continue)
                }
            },
            Reading::Head => Ok(Next::Continue),
        }
    }

    fn gather(
        &mut self,
        mut gathering: Box<Gathering>,
        bytes: &[u8],
        is_last: bool,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let Gathering { asked, limit, .. } = *gathering;
        let rest = if is_last {
            Rest::Nothing
        } else {
            Rest::Unwanted
        };
        if gathering.body.length() + bytes.len() as u64 > limit {
            return self.answer(Decided::Now(too_long(limit)), asked, rest, cx);
        }
        let folder = &self.app.settings.spill_folder;
        let body = &mut gathering.body;
        let added = if body.spills_with(bytes.len()) {
            cx.blocking(|| body.add(bytes, folder))
        } else {
            body.add(bytes, folder)
        };
        if let Err(error) = added {
            let refusal = overloaded(format!("keep a body in {}: {error}", folder.display()));
            return self.answer(Decided::Now(refusal), asked, rest, cx);
        }
        if !is_last {
            self.reading = Reading::Whole(gathering);
            return Ok(Next::Continue);
        }
        let Gathering {
            head,
            route,
            mut body,
            ..
        } = *gathering;
        let mut turn = Turn::new(cx, &mut self.output, self.requests);
        let decided = match body.give() {
            Ok(given) => call_given(&self.app, &route, &head.head(), given, &mut turn),
            Err(error) => Decided::Now(Error::from(error).into_response()),
        };
        self.answer(decided, asked, Rest::Nothing, cx)
    }

    fn push(
        &mut self,
        mut pushing: Box<Pushing>,
        bytes: &[u8],
        is_last: bool,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let asked = pushing.asked;
        let rest = if is_last {
            Rest::Nothing
        } else {
            Rest::Unwanted
        };
        pushing.length += bytes.len() as u64;
        if pushing.length > pushing.limit {
            let refusal = too_long(pushing.limit);
            return self.answer(Decided::Now(refusal), asked, rest, cx);
        }
        let mut turn = Turn::new(cx, &mut self.output, self.requests);
        match push_on(&self.app, pushing, bytes, is_last, &mut turn) {
            Ok(pushing) => {
                self.reading = Reading::Push(pushing);
                Ok(Next::Continue)
            }
            Err(response) => self.answer(Decided::Now(*response), asked, rest, cx),
        }
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
        let response = match decided {
            Decided::Now(response) => response.checked(),
            Decided::Push(_) => Error::new(500, "").into_response(),
        };
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
        let is_answered = matches!(self.reading, Reading::Drop(_)) || self.outgoing.is_some();
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
        }
    }

    fn turn_ended(&mut self, cx: &mut Cx<'_>) -> io::Result<()> {
        flush(&mut self.output, cx)
    }

    fn again(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
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
    fn draining(&mut self, _: &mut Cx<'_>) -> Next {
        if self.is_busy() {
            Next::Continue
        } else {
            Next::CloseGently
        }
    }

    fn overdue(&mut self, limit: Limit, cx: &mut Cx<'_>) -> Next {
        match limit {
            Limit::Idle if self.is_busy() => Next::Continue,
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

    fn closed(&mut self, _: &Ended) {
        if let Reading::Pull(pulling) = &self.reading {
            pulling.pipe.cut();
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
