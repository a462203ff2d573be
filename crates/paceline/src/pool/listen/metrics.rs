//! A port for a monitoring system: each request gets the counters of the pool.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use super::super::WeakPool;
use crate::{
    dispatch::{scratch, Context, EventHandler, Next},
    observe::open_metrics,
};

/// How many connections may be open at once, if nothing is said.
pub(super) const CONNECTIONS: usize = 16;

/// How long one of them may be idle, if nothing is said.
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// The longest head of a request. Beyond it the connection is closed.
const LONGEST_HEAD: usize = 8 * 1024;

/// The type of OpenMetrics text.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers one request with the counters of the pool, whatever path it names, and closes.
pub(super) struct MetricsPort {
    pool: WeakPool,
    name: Arc<str>,
    /// The head so far.
    head: Vec<u8>,
}

impl MetricsPort {
    /// For one connection. The handler must not keep its pool alive.
    pub(super) fn new(pool: WeakPool, name: Arc<str>) -> Self {
        let head = Vec::new();
        Self { pool, name, head }
    }

    /// Whether the head is whole, with what has just come.
    fn take(&mut self, bytes: &[u8]) -> bool {
        // The empty line may have begun before.
        let from = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(bytes);
        self.head[from..]
            .windows(4)
            .any(|bytes| bytes == b"\r\n\r\n")
    }

    fn answer(&self) -> String {
        let is_head = self.head.starts_with(b"HEAD ");
        if !is_head && !self.head.starts_with(b"GET ") {
            let refusal = "HTTP/1.0 405 Method Not Allowed\r\nallow: GET, HEAD\r\n";
            return format!("{refusal}content-length: 0\r\n\r\n");
        }
        let pool = self.pool.upgrade();
        let page = pool.map_or_else(String::new, |pool| open_metrics(&[(&*self.name, &pool)]));
        let length = page.len();
        let body = if is_head { "" } else { &page };
        let status = "HTTP/1.0 200 OK\r\n";
        format!("{status}content-type: {TYPE}\r\ncontent-length: {length}\r\n\r\n{body}")
    }
}

impl<S> EventHandler<S> for MetricsPort
where
    for<'s> &'s S: Read + Write,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        let mut buffer = scratch();
        let count = cx.read(&mut buffer)?;
        if self.take(&buffer[..count]) {
            cx.send(self.answer())?;
            return Ok(Next::CloseGently);
        }
        let is_over = count == 0 || self.head.len() > LONGEST_HEAD;
        Ok(if is_over { Next::Close } else { Next::Continue })
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::Pool;

    fn port() -> MetricsPort {
        let pool = Pool::builder().threads(0).build().unwrap();
        MetricsPort::new(pool.downgrade(), Arc::from("orders"))
    }

    /// The network may cut a request anywhere, also in the empty line at its end.
    #[test]
    fn a_request_ends_wherever_it_is_cut() {
        let request = b"GET / HTTP/1.0\r\n\r\n";
        for at in 0..request.len() {
            let mut port = port();
            assert!(!port.take(&request[..at]));
            assert!(port.take(&request[at..]), "cut at {at}");
        }
        let mut port = port();
        let mut bytes = request.chunks(1).map(|byte| port.take(byte));
        assert_eq!(bytes.position(|is_whole| is_whole), Some(request.len() - 1));
    }
}
