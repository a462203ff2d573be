//! The port of metrics, of health, and of the page: one request per connection.
//!
//! ```text
//!   GET /          the page                  only where there is a page
//!   GET /events    its reports, as a stream  likewise
//!   GET /metrics   OpenMetrics
//!   GET /healthz   200
//!   GET /readyz    200, or 503 while it drains
//! ```
//!
//! [`Port::route`] knows neither connection nor session, so it can answer for another HTTP layer too.

use std::{io, sync::Arc, time::Duration};

use paceline::Next;

use super::{
    document,
    http::{is_allowed_host, Answer, Head, OPEN_METRICS, STREAM_HEAD},
    hub::{Hub, Viewer},
    subject::Subject,
};
use crate::{
    codec::{until, Framing, Message},
    limits::{Limit, Limits},
    peer::Peer,
    session::{Ended, Session},
};

/// What the connections of a port share.
pub(crate) struct Port {
    subject: Arc<dyn Subject>,
    page: Option<Shown>,
}

/// The page of a port.
struct Shown {
    hub: Arc<Hub>,
    /// Names beside those of this computer by which a browser may find the page.
    hosts: Vec<String>,
}

/// What a request gets.
#[derive(Debug)]
enum Route {
    /// This answer, encoded, and the end of the connection.
    Answer(String),
    /// The reports of the page.
    Stream,
}

/// The head of a request.
pub(crate) fn codec() -> Framing {
    until(b"\r\n\r\n", 8192)
}

/// A monitoring system and the viewers of a page need few connections.
pub(crate) fn limits() -> Limits {
    Limits::default()
        .connections(64)
        .idle(Duration::from_secs(30))
}

impl Port {
    /// A port without a page.
    pub(crate) fn of_metrics(subject: Arc<dyn Subject>) -> Self {
        Self {
            subject,
            page: None,
        }
    }

    /// A port with a page, for browsers that find it by a name of this computer or by one of `hosts`.
    pub(super) fn of_page(subject: Arc<dyn Subject>, hub: Arc<Hub>, hosts: Vec<String>) -> Self {
        Self {
            subject,
            page: Some(Shown { hub, hosts }),
        }
    }

    fn route(&self, head: &[u8]) -> Route {
        let Some(head) = Head::read(head) else {
            let answer = Answer::text("400 Bad Request", "bad request\n");
            return Route::Answer(answer.encode("GET"));
        };
        let is_allowed = |page: &Shown| is_allowed_host(head.host, &page.hosts);
        if !self.page.as_ref().is_none_or(is_allowed) {
            let text = "this host name is not allowed: use localhost, or allow it by `page_host`\n";
            return Route::Answer(Answer::text("403 Forbidden", text).encode(head.method));
        }
        if !matches!(head.method, "GET" | "HEAD") {
            let answer = Answer {
                fields: "allow: GET, HEAD\r\n",
                ..Answer::text("405 Method Not Allowed", "only GET and HEAD\n")
            };
            return Route::Answer(answer.encode(head.method));
        }
        if self.page.is_some() && head.path == "/events" && head.method == "GET" {
            return Route::Stream;
        }
        Route::Answer(self.answer(head))
    }

    fn answer(&self, head: Head<'_>) -> String {
        let text = |status, body| Answer::text(status, body).encode(head.method);
        match head.path {
            "/" if self.page.is_some() => document::answer().encode(head.method),
            "/metrics" => {
                let answer = Answer {
                    status: "200 OK",
                    kind: OPEN_METRICS,
                    fields: "",
                    body: &self.subject.metrics(),
                };
                answer.encode(head.method)
            }
            "/healthz" => text("200 OK", "ok\n"),
            "/readyz" if self.subject.is_ready() => text("200 OK", "ready\n"),
            "/readyz" => text("503 Service Unavailable", "draining\n"),
            _ => text("404 Not Found", "try /metrics, /healthz or /readyz\n"),
        }
    }

    fn hub(&self) -> Option<&Arc<Hub>> {
        self.page.as_ref().map(|page| &page.hub)
    }
}

/// One connection of a port.
pub(crate) struct PortSession {
    port: Arc<Port>,
    /// It gets the reports of the page.
    viewer: Option<Viewer>,
}

impl PortSession {
    pub(crate) fn new(port: Arc<Port>) -> Self {
        Self { port, viewer: None }
    }
}

impl Session for PortSession {
    fn handle(&mut self, head: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        match (self.port.route(&head), self.port.hub()) {
            // One answer per connection: nothing may follow the request for a stream.
            _ if self.viewer.is_some() => Ok(Next::Close),
            (Route::Answer(answer), _) => {
                cx.send(answer)?;
                Ok(Next::CloseGently)
            }
            (Route::Stream, Some(hub)) => {
                cx.send(STREAM_HEAD)?;
                self.viewer = Some(hub.enter(cx));
                Ok(Next::Continue)
            }
            (Route::Stream, None) => Ok(Next::Close),
        }
    }

    fn overdue(&mut self, limit: Limit, _: &mut Peer<'_>) -> Next {
        // A viewer is never silent: it is sent reports. It is closed if it does not take them.
        if limit == Limit::Idle && self.viewer.is_some() {
            Next::Continue
        } else {
            Next::Close
        }
    }

    fn closed(&mut self, _: &Ended) {
        self.viewer = None;
    }
}
