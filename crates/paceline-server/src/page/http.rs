//! As much of HTTP/1 as a port for metrics, health and the page needs: a head in, an answer out, one
//! of each per connection. No I/O.

/// What the port reads of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'h> {
    pub(crate) method: &'h str,
    /// Without the query.
    pub(crate) path: &'h str,
    /// The value of the only field `Host`.
    pub(crate) host: Option<&'h str>,
}

impl<'h> Head<'h> {
    /// The head, without the empty line at its end, if its first line is one of HTTP/1.
    pub(crate) fn read(head: &'h [u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let is_http = matches!(version, "HTTP/1.1" | "HTTP/1.0") && words.next().is_none();
        let mut hosts = lines.filter_map(host_of);
        let host = hosts.next().filter(|_| hosts.next().is_none());
        is_http.then_some(Self {
            method,
            path: target.split('?').next().unwrap_or(target),
            host,
        })
    }
}

fn host_of(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case("host").then(|| value.trim())
}

/// Whether a browser that sends this `Host` has found the way by a name of this computer, or by one
/// of `allowed`. A page of another site can make its own name point here (DNS rebinding), but can't
/// change what the browser sends as `Host`.
pub(crate) fn is_allowed_host(host: Option<&str>, allowed: &[String]) -> bool {
    let Some(host) = host else {
        return false;
    };
    let name = without_port(host);
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let is_loopback = match name.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(address) => address
            .parse()
            .is_ok_and(|it: std::net::Ipv6Addr| it.is_loopback()),
        None => name
            .parse()
            .is_ok_and(|it: std::net::Ipv4Addr| it.is_loopback()),
    };
    is_loopback || is("localhost") || allowed.iter().any(|it| is(it))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

/// An answer with a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: &'static str,
    pub(crate) kind: &'static str,
    /// More fields, each with its line end.
    pub(crate) fields: &'a str,
    pub(crate) body: &'a str,
}

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The head of an answer that does not end.
pub(crate) const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n";

impl<'a> Answer<'a> {
    /// A text without more fields.
    pub(crate) fn text(status: &'static str, body: &'a str) -> Self {
        Self {
            status,
            kind: TEXT,
            fields: "",
            body,
        }
    }

    /// As bytes, after which the connection closes; without the body for the method HEAD.
    pub(crate) fn encode(&self, method: &str) -> String {
        let body = if method == "HEAD" { "" } else { self.body };
        format!(
            "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
             x-content-type-options: nosniff\r\n{}connection: close\r\n\r\n{body}",
            self.status,
            self.kind,
            self.body.len(),
            self.fields,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read() {
        let head =
            Head::read(b"GET /events?frames=3 HTTP/1.1\r\nhost:  localhost:9 \r\na: b").unwrap();
        assert_eq!((head.method, head.path), ("GET", "/events"));
        assert_eq!(head.host, Some("localhost:9"));
        for bad in [
            &b""[..],
            b"GET /",
            b"GET / HTTP/2",
            b"GET / HTTP/1.1 x",
            b"\xff / HTTP/1.1",
        ] {
            assert_eq!(Head::read(bad), None, "{bad:?}");
        }
        let twice = Head::read(b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost").unwrap();
        assert_eq!(twice.host, None);
    }

    /// A name that an attacker has made point to this computer is not one of this computer.
    #[test]
    fn page_foreign_host() {
        let allowed = ["stats.example".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.8.9.1:9000",
            "[::1]",
            "[::1]:9000",
            "stats.example",
            "Stats.Example:8443",
        ] {
            assert!(is_allowed_host(Some(host), &allowed), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:9000",
            "evil.example:127",
            "stats.example.evil",
            "[::2]",
            "::1",
            "localhost:x",
            "localhost@evil",
        ] {
            assert!(!is_allowed_host(Some(host), &allowed), "{host}");
        }
        assert!(!is_allowed_host(None, &allowed));
        assert!(!is_allowed_host(Some("stats.example"), &[]));
    }
}
