//! The calls of handlers, from the session of a connection.

use std::sync::Arc;

use matchit::Params;
use paceline::Pace;

use super::{
    app::{caught, App},
    outgoing::{self, flush},
    protocol::{Head, HttpCodec, KeptHead},
    pull::feed,
    refusals::not_found,
    request::{Around, Given},
    response::{Decided, Push},
    router::{Found, Route},
    session::Asked,
    Body, Error, Request, Response,
};
use crate::{
    link::ConnectionId,
    moment::Moment,
    peer::{Peer, PeerAddress},
    remote::Remote,
};

/// The calls of a request to its connection.
pub(super) struct Turn<'t, 'p> {
    cx: &'t mut Peer<'p, HttpCodec>,
    output: &'t mut Vec<u8>,
    number: u64,
}

/// A request whose body goes to a `Push`.
pub(super) struct Pushing {
    pub(super) push: Box<dyn Push>,
    pub(super) head: KeptHead,
    pub(super) route: Arc<Route>,
    pub(super) asked: Asked,
    pub(super) limit: u64,
    pub(super) length: u64,
}

/// Calls the handler of a request whose whole body is in memory.
pub(super) fn call_with<'r>(
    app: &'r App,
    (route, params): (&'r Arc<Route>, Params<'r, 'r>),
    head: &'r Head<'r>,
    bytes: &'r [u8],
    turn: &'r mut Turn<'_, '_>,
) -> Decided {
    turn.begin(route);
    let mut request = Request {
        head,
        params,
        body: Given::Bytes(bytes),
        around: turn,
    };
    settled(app, route, &mut request)
}

/// Calls the handler of a request whose body was gathered.
pub(super) fn call_given<'r>(
    app: &'r App,
    route: &Arc<Route>,
    head: &'r Head<'r>,
    body: Given<'r>,
    turn: &'r mut Turn<'_, '_>,
) -> Decided {
    let Found::Route(_, params) = app.table.find(head.method(), head.path()) else {
        return Decided::Now(not_found(head));
    };
    turn.begin(route);
    let mut request = Request {
        head,
        params,
        body,
        around: turn,
    };
    settled(app, route, &mut request)
}

/// Calls a handler; one that takes the body in pieces gets all of it.
pub(super) fn settled(app: &App, route: &Arc<Route>, request: &mut Request<'_>) -> Decided {
    match app.call(route, request) {
        Decided::Push(push) => {
            let fed = caught(|| feed(push, &mut request.stream()));
            let response = fed.unwrap_or_else(Error::into_response);
            Decided::Now(app.finish(request, response))
        }
        now => now,
    }
}

/// Calls the handler of a request whose body is to go to a `Push`.
pub(super) fn call_push(app: &App, head: &Head<'_>, turn: &mut Turn<'_, '_>) -> Decided {
    let Found::Route(route, params) = app.table.find(head.method(), head.path()) else {
        return Decided::Now(not_found(head));
    };
    turn.begin(route);
    let mut request = Request {
        head,
        params,
        body: Given::Bytes(b""),
        around: turn,
    };
    app.call(route, &mut request)
}

/// Gives a piece to a `Push`. The answer, if it has one.
pub(super) fn push_on(
    app: &App,
    mut pushing: Box<Pushing>,
    bytes: &[u8],
    is_last: bool,
    turn: &mut Turn<'_, '_>,
) -> Result<Box<Pushing>, Box<Response>> {
    turn.begin(&pushing.route);
    let taken = caught(|| match bytes {
        [] => Ok(()),
        bytes => pushing.push.piece(bytes),
    });
    let result = match taken {
        Ok(()) if !is_last => return Ok(pushing),
        taken => taken,
    };
    let Pushing { push, head, .. } = *pushing;
    let ended = result.and_then(|()| caught(|| push.end()));
    let response = ended.unwrap_or_else(Error::into_response);
    let head = head.head();
    let mut request = Request {
        head: &head,
        params: Params::new(),
        body: Given::Bytes(b""),
        around: turn,
    };
    Err(Box::new(app.finish(&mut request, response)))
}

impl<'t, 'p> Turn<'t, 'p> {
    pub(super) fn new(
        cx: &'t mut Peer<'p, HttpCodec>,
        output: &'t mut Vec<u8>,
        number: u64,
    ) -> Self {
        Self { cx, output, number }
    }

    /// What follows is of the route's kind. Answers before it do not wait for a handler that takes
    /// long.
    fn begin(&mut self, route: &Route) {
        self.cx.link().set_route(route.number);
        if route.body == Body::Pull {
            // Its handler is written for a thread of its own.
            self.wake_follower();
        }
        let Some(kind) = route.kind() else { return };
        if kind.pace() != Pace::Short {
            self.flush();
        }
        self.cx.begin_kind(kind);
    }

    fn flush(&mut self) {
        // The next write reports the error: the connection is lost.
        let _ = flush(self.output, self.cx);
        outgoing::prepare(self.output);
    }
}

impl Around for Turn<'_, '_> {
    fn blocking(&mut self, block: &mut dyn FnMut()) {
        self.flush();
        self.cx.blocking(block);
    }

    fn wake_follower(&mut self) {
        self.flush();
        self.cx.wake_follower();
    }

    fn clock(&self) -> Moment {
        self.cx.link().service().now()
    }

    fn remote(&self) -> Remote {
        self.cx.remote()
    }

    fn address(&self) -> &PeerAddress {
        self.cx.address()
    }

    fn connection(&self) -> ConnectionId {
        self.cx.id()
    }

    fn number(&self) -> u64 {
        self.number
    }

    #[cfg(feature = "_tls")]
    fn tls(&self) -> Option<&crate::tls::TlsInfo> {
        self.cx.tls()
    }
}
