//! Routes behind whose answer the connection is no HTTP any more: a WebSocket, or a stream of events.

use http::{
    header::{CACHE_CONTROL, CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
    HeaderName, HeaderValue, StatusCode,
};
use paceline::HandlerKind;

use super::{
    events::{Events, IntoEvents},
    protocol::Version,
    response::{Answer, Decided},
    router::Handler,
    Error, IntoAnswer, Request, Response, Router,
};
use crate::{
    encoding::Encoding,
    session::Session,
    websocket::{Accepted, Frames, Opening, OriginPolicy, Refused},
};

/// An answer behind which the connection becomes something else.
pub(super) struct Upgrade {
    pub(super) response: Response,
    /// What the pool learns of the route's calls.
    pub(super) kind: Option<HandlerKind>,
    /// How the client's frames are read.
    pub(super) frames: Frames,
    pub(super) then: Then,
}

/// What it becomes.
pub(super) enum Then {
    Socket(Box<dyn Session<Frames>>),
    /// A stream that begins with these events.
    Events(Vec<u8>),
}

/// What a route makes of its connections.
pub(super) enum Upgrades {
    Socket(SocketRules),
    Events,
}

/// Which requests may open a WebSocket.
#[derive(Default)]
pub(super) struct SocketRules {
    origins: OriginPolicy,
    /// The subprotocols of the server, the best one first.
    protocols: Vec<String>,
}

/// What the handler of a WebSocket returns: the session of the connection, or why there is none.
pub trait IntoSocket {
    /// The session.
    ///
    /// # Errors
    /// The client gets the error as its answer, and the connection stays what it is.
    fn into_socket(self) -> super::Result<Box<dyn Session<Frames>>>;
}

impl<S: Session<Frames>> IntoSocket for S {
    fn into_socket(self) -> super::Result<Box<dyn Session<Frames>>> {
        Ok(Box::new(self))
    }
}

impl<S: Session<Frames>, E: Into<Error>> IntoSocket for Result<S, E> {
    fn into_socket(self) -> super::Result<Box<dyn Session<Frames>>> {
        match self {
            Ok(session) => Ok(Box::new(session)),
            Err(error) => Err(error.into()),
        }
    }
}

impl<A: Send + Sync + 'static> Router<A> {
    /// A route whose connections become WebSockets, each with the session that `handler` returns: a
    /// [`Session`] of [`Frames`], or a closure. It gets whole messages; the server answers pings,
    /// sends a ping every 30 s, and ends both sides with close frames. It may join a
    /// [`Room`](crate::Room), as every session may: each message of the room is one frame.
    ///
    /// [`limit`](Self::limit) bounds a message: 1 MiB if nothing is said. Pages of other origins get
    /// 403, unless [`origins`](Self::origins) lets them in.
    ///
    /// ```
    /// use paceline_server::{
    ///     http::Router,
    ///     websocket::{Frames, Incoming},
    ///     Next, Peer,
    /// };
    ///
    /// let app = Router::new(()).ws("/echo", |_, _| {
    ///     |message: Incoming, cx: &mut Peer<'_, Frames>| {
    ///         match message {
    ///             Incoming::Text(text) => cx.reply(text)?,
    ///             Incoming::Binary(bytes) => cx.reply(bytes)?,
    ///             _ => {}
    ///         }
    ///         Ok(Next::Continue)
    ///     }
    /// });
    /// ```
    pub fn ws<F, R>(self, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoSocket,
    {
        let state = self.state();
        let handler: Handler =
            Box::new(
                move |request| match handler(&state, request).into_socket() {
                    Ok(session) => Answer(Decided::Upgrade(Box::new(Upgrade {
                        response: switching(),
                        kind: None,
                        frames: Frames::default(),
                        then: Then::Socket(session),
                    }))),
                    Err(error) => error.into_response().into_answer(),
                },
            );
        let rules = SocketRules::default();
        self.upgrading(path, Upgrades::Socket(rules), handler)
    }

    /// A route whose connections become streams of [server-sent events](crate::sse). `handler` joins
    /// rooms, or keeps a [`Remote`](crate::Remote) of the connection; what is sent there comes as
    /// events. A comment every 15 s keeps a silent stream open. No stream holds a thread.
    ///
    /// ```
    /// use paceline_server::{http::Router, Room};
    ///
    /// let news = Room::new();
    /// let app = Router::new(news.clone()).sse("/news", |news, out| {
    ///     out.join(news);
    /// });
    /// news.send(*b"to all who read /news");
    /// ```
    pub fn sse<F, R>(self, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Events<'_, '_>) -> R + Send + Sync + 'static,
        R: IntoEvents,
    {
        let state = self.state();
        let handler: Handler = Box::new(move |request| {
            let mut events = Events::new(request);
            let decided = handler(&state, &mut events).into_events();
            events.end(decided)
        });
        self.upgrading(path, Upgrades::Events, handler)
    }

    /// Which pages may open the WebSocket of the last route. Default: those of the same host.
    pub fn origins(self, policy: OriginPolicy) -> Self {
        self.set_rules("origins", |rules| rules.origins = policy)
    }

    /// The subprotocols of the last route's WebSocket, the best one first. The client gets the first
    /// one that it offers.
    pub fn protocols(self, names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.set_rules("protocols", |rules| rules.protocols = names)
    }

    fn set_rules(self, name: &str, change: impl FnOnce(&mut SocketRules)) -> Self {
        let is_socket = |upgrades: &Option<Upgrades>| matches!(upgrades, Some(Upgrades::Socket(_)));
        let name = format!("{name}: a setting of WebSockets");
        self.set_if(
            &name,
            |route| is_socket(&route.upgrades),
            |route| {
                if let Some(Upgrades::Socket(rules)) = &mut route.upgrades {
                    change(rules);
                }
            },
        )
    }
}

impl Upgrades {
    /// Calls the handler of a route, if the request may become what the route is for.
    pub(super) fn call(&self, handler: &Handler, request: &mut Request<'_>) -> Answer {
        match self {
            Self::Events if request.method() == "HEAD" => stream_head().into_answer(),
            Self::Events => handler(request),
            Self::Socket(rules) => match rules.accept(request) {
                Ok(accepted) => accept(&accepted, handler(request)),
                Err(refused) => refusal(refused).into_answer(),
            },
        }
    }
}

impl SocketRules {
    fn accept(&self, request: &Request<'_>) -> Result<Accepted, Refused> {
        let fields: Vec<_> = request.headers().collect();
        let protocols: Vec<_> = self.protocols.iter().map(String::as_str).collect();
        let opening = Opening {
            method: request.method(),
            minor_version: match request.head.version() {
                Version::Http10 => 0,
                Version::Http11 => 1,
            },
            fields: &fields,
        };
        opening.accept(&self.origins, &protocols)
    }
}

/// Adds what the client waits for to the answer of a handler.
fn accept(accepted: &Accepted, answer: Answer) -> Answer {
    let Answer(Decided::Upgrade(mut upgrade)) = answer else {
        return answer;
    };
    let fields = &mut upgrade.response.fields;
    let mut add = |name: HeaderName, value: &str| {
        // A key is base64, and a protocol is a token that the client has offered too.
        if let Ok(value) = HeaderValue::from_str(value) {
            fields.push((name, value));
        }
    };
    add(SEC_WEBSOCKET_ACCEPT, accepted.key());
    if let Some(protocol) = accepted.protocol() {
        add(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Answer(Decided::Upgrade(upgrade))
}

fn refusal(refused: Refused) -> Response {
    let response = Error::new(refused.status(), refused.reason()).into_response();
    match refused {
        Refused::Method => response.header("allow", "GET"),
        Refused::Version => response
            .header("sec-websocket-version", "13")
            .header("upgrade", "websocket"),
        _ => response,
    }
}

/// The head of the answer that makes a connection a WebSocket, without the client's key.
fn switching() -> Response {
    let mut response = Response::empty(200);
    response.set_status(StatusCode::SWITCHING_PROTOCOLS);
    response.fields = vec![
        (UPGRADE, HeaderValue::from_static("websocket")),
        (CONNECTION, HeaderValue::from_static("upgrade")),
    ];
    response
}

/// The head of a stream of events.
pub(super) fn stream_head() -> Response {
    Response::empty(200)
        .content_type("text/event-stream")
        .header(CACHE_CONTROL, "no-store")
        // Proxies such as nginx collect an answer otherwise.
        .header("x-accel-buffering", "no")
        .close()
}

impl Upgrade {
    /// In which form the connection gets the messages of its rooms.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        match self.then {
            Then::Socket(_) => Some(Encoding::WebSocket),
            // The handler has chosen it.
            Then::Events(_) => None,
        }
    }

    /// A stream that begins with these events.
    pub(super) fn of_events(events: Vec<u8>) -> Box<Self> {
        Box::new(Self {
            response: stream_head(),
            kind: None,
            frames: Frames::default(),
            then: Then::Events(events),
        })
    }
}
