//! The port of metrics and health.

use std::{
    io,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use paceline::Next;

use super::{Server, Shared};
use crate::{
    codec::{until, Framing, Message},
    limits::Limits,
    peer::{Peer, PeerAddress},
    session::Session,
};

pub(super) type AdminCodec = Framing;
pub(super) type Make = Box<dyn Fn(&PeerAddress) -> Admin + Send + Sync>;

/// The head of a request.
pub(super) fn codec() -> AdminCodec {
    until(b"\r\n\r\n", 8192)
}

/// A monitoring system needs few connections.
pub(super) fn limits() -> Limits {
    Limits::default()
        .connections(64)
        .idle(Duration::from_secs(30))
}

/// The server whose state is served, from its start on.
#[derive(Debug, Default)]
pub(super) struct Status(OnceLock<Weak<Shared>>);

impl Status {
    pub(super) fn set(&self, shared: &Arc<Shared>) {
        // It is set once, by `start`.
        let _ = self.0.set(Arc::downgrade(shared));
    }

    fn server(&self) -> Option<Server> {
        let shared = self.0.get()?.upgrade()?;
        Some(Server { shared })
    }
}

/// One connection of a monitoring system: one request, one answer.
pub(super) struct Admin(Arc<Status>);

impl Admin {
    pub(super) fn new(status: Arc<Status>) -> Self {
        Self(status)
    }
}

impl Session for Admin {
    fn handle(&mut self, head: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        cx.send(self.answer(&head))?;
        Ok(Next::CloseGently)
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Admin {
    fn answer(&self, head: &[u8]) -> String {
        let Some((method, path)) = request_line(head) else {
            return response("400 Bad Request", TEXT, "bad request\n", true);
        };
        let has_body = method != "HEAD";
        if !matches!(method, "GET" | "HEAD") {
            return response(
                "405 Method Not Allowed",
                TEXT,
                "only GET and HEAD\n",
                has_body,
            );
        }
        let server = self.0.server();
        let is_ready = server.as_ref().is_some_and(Server::is_ready);
        match path.split('?').next() {
            Some("/metrics") => {
                let text = server.map(|server| server.open_metrics());
                response("200 OK", OPEN_METRICS, &text.unwrap_or_default(), has_body)
            }
            Some("/healthz") => response("200 OK", TEXT, "ok\n", has_body),
            Some("/readyz") if is_ready => response("200 OK", TEXT, "ready\n", has_body),
            Some("/readyz") => response("503 Service Unavailable", TEXT, "draining\n", has_body),
            _ => response(
                "404 Not Found",
                TEXT,
                "try /metrics, /healthz or /readyz\n",
                has_body,
            ),
        }
    }
}

/// The method and the path of a request, if its first line is one of HTTP/1.
fn request_line(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    let is_http = matches!(version, "HTTP/1.1" | "HTTP/1.0") && words.next().is_none();
    is_http.then_some((method, path))
}

fn response(status: &str, kind: &str, body: &str, has_body: bool) -> String {
    let length = body.len();
    let body = if has_body { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}
