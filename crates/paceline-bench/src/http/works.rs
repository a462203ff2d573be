//! The works: what the client asks, and on how many connections.
//!
//! | path | answer |
//! | --- | --- |
//! | `GET /hello` | `hello, world`, and a line end |
//! | `GET /sleep` | the same, after 20 ms in which the handler blocks |
//! | `GET /user/{id}/orders/{number}` | both numbers; one of 51 routes |
//! | `POST /post` | how long the body is |
//! | `GET /file` | a file of 1 MiB |

/// What a web server is measured under.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) connections: usize,
    /// Requests on the way on each connection.
    pub(super) pipeline: usize,
    pub(super) asked: Asked,
    /// Clients beside them that send a byte of a head each second, and never end it.
    pub(super) slow: usize,
    /// Nothing is asked but once; what counts is memory.
    pub(super) is_idle: bool,
    pub(super) tls: bool,
    /// A connection is for one request.
    pub(super) is_fresh: bool,
    /// The servers that can't have it.
    pub(super) without: &'static [&'static str],
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Hello,
    Routed,
    /// Each hundredth request sleeps.
    Sleepy,
    Post(usize),
    File,
}

/// How long a handler of `/sleep` blocks.
pub(super) const SLEEP: std::time::Duration = std::time::Duration::from_millis(20);
/// What `/hello` and `/sleep` answer.
pub(super) const HELLO: &str = "hello, world\n";
/// How long the file is.
pub(super) const FILE: usize = 1 << 20;
/// How many other routes there are beside the one with parameters.
pub(super) const OTHER_ROUTES: usize = 50;

const PLAIN: Work = Work {
    name: "",
    about: "",
    connections: 64,
    pipeline: 1,
    asked: Asked::Hello,
    slow: 0,
    is_idle: false,
    tls: false,
    is_fresh: false,
    without: &[],
};

/// A thread for each connection, or a queue that a slow client fills.
const HELD_UP: &[&str] = &["tiny_http", "rouille"];
/// Only what speaks TLS here.
const WITHOUT_TLS: &[&str] = &[
    "hyper-blocking",
    "actix-web",
    "may_minihttp",
    "tiny_http",
    "rouille",
    "khttp",
    "go",
    "nginx",
    "paceline-half-sync",
];

/// Every work.
pub(super) const ALL: &[Work] = &[
    Work {
        name: "hello",
        about: "64 connections, a short answer",
        ..PLAIN
    },
    Work {
        name: "routed",
        about: "64 connections, a route with two parameters among 50 others",
        asked: Asked::Routed,
        without: &["nginx"],
        ..PLAIN
    },
    Work {
        name: "pipelined",
        about: "64 connections, 16 requests on the way on each",
        pipeline: 16,
        ..PLAIN
    },
    Work {
        name: "sleepy",
        about: "64 connections, one request in a hundred sleeps 20 ms, and no server knows which; latencies of the others",
        asked: Asked::Sleepy,
        without: &["nginx"],
        ..PLAIN
    },
    Work {
        name: "post-1k",
        about: "64 connections, a body of 1 KiB",
        asked: Asked::Post(1 << 10),
        without: &["nginx"],
        ..PLAIN
    },
    Work {
        name: "post-1m",
        about: "16 connections, a body of 1 MiB",
        connections: 16,
        asked: Asked::Post(1 << 20),
        without: &["nginx"],
        ..PLAIN
    },
    Work {
        name: "file-1m",
        about: "16 connections, a file of 1 MiB",
        connections: 16,
        asked: Asked::File,
        // It sends files in chunks, and the client counts by lengths.
        without: &["rouille"],
        ..PLAIN
    },
    Work {
        name: "beside-slow",
        about: "as hello, beside 1,000 clients that send a byte of a head each second",
        slow: 1000,
        without: HELD_UP,
        ..PLAIN
    },
    Work {
        name: "idle",
        about: "10,000 connections that asked once: memory for each",
        connections: 10_000,
        is_idle: true,
        without: HELD_UP,
        ..PLAIN
    },
    Work {
        name: "tls",
        about: "as hello, over TLS",
        tls: true,
        without: WITHOUT_TLS,
        ..PLAIN
    },
    Work {
        name: "tls-fresh",
        about: "8 clients, a full handshake for each request",
        connections: 8,
        tls: true,
        is_fresh: true,
        without: WITHOUT_TLS,
        ..PLAIN
    },
];

impl Work {
    /// Whether a server can have it.
    pub(super) fn suits(&self, server: &str) -> bool {
        !self.without.contains(&server)
    }

    /// The bytes of the request with this number.
    pub(super) fn request(&self, number: u64) -> Request {
        match self.asked {
            Asked::Hello => Request::Plain,
            Asked::Sleepy if number % 100 == 99 => Request::Sleep,
            Asked::Sleepy => Request::Plain,
            Asked::Routed => Request::Routed,
            Asked::Post(_) => Request::Post,
            Asked::File => Request::File,
        }
    }

    /// The bytes of a request.
    pub(super) fn bytes(&self, request: Request) -> Vec<u8> {
        let get =
            |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes();
        match (request, self.asked) {
            (Request::Plain, _) => get("/hello"),
            (Request::Sleep, _) => get("/sleep"),
            (Request::Routed, _) => get("/user/4711/orders/42"),
            (Request::File, _) => get("/file"),
            (Request::Post, Asked::Post(length)) => {
                let head = format!(
                    "POST /post HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
                );
                let mut bytes = head.into_bytes();
                bytes.resize(bytes.len() + length, b'x');
                bytes
            }
            (Request::Post, _) => Vec::new(),
        }
    }
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Plain,
    Sleep,
    Routed,
    Post,
    File,
}

impl Request {
    pub(super) const ALL: [Self; 5] = [
        Self::Plain,
        Self::Sleep,
        Self::Routed,
        Self::Post,
        Self::File,
    ];
}

/// The work of this name.
pub(super) fn find(name: &str) -> Option<&'static Work> {
    ALL.iter().find(|work| work.name == name)
}
