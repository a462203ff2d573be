//! A stream of server-sent events: one a second, to every client, without a thread for each.
//!
//! ```text
//! cargo run --release -p paceline-server --example ticks
//! curl -N http://127.0.0.1:8080/ticks
//! ```
//!
//! ```text
//!   a timer of the pool -- 2, 3, 4 --> Room --> each stream, as an event
//! ```

mod support;

use std::{
    io,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use lexopt::{Arg::Long, Parser, ValueExt};
use paceline_server::{
    http::{Error, Response, Router},
    sse::Event,
    Room, Server,
};

const HELP: &str = "\
A stream of server-sent events: one a second, to everyone who watches.

usage: ticks [options]

  --listen ADDR    where to listen (default 127.0.0.1:8080; port 0 lets the system choose)
  --every SECONDS  the time between two events (default 1)
  --page ADDR      where the live page of the server's threads is (default: a free port)
  --threads N      how many threads serve (default: four per core)
  --help           this text

GET / is a page that shows the events, GET /ticks the stream. The first event is named `watching`: its
data says how many streams there are. It prints `listening on ADDR` when it is ready. Ctrl-C or SIGTERM
ends it gracefully, and it prints a report.";

const PAGE: &str = "<!doctype html><html lang=en><meta charset=utf-8>\
    <meta name=viewport content=\"width=device-width\"><title>ticks</title><link rel=icon href=data:,>\
    <style>:root{color-scheme:light dark;font:2rem system-ui;text-align:center}</style>\
    <p>tick <output id=tick>-</output><script>\
    new EventSource('/ticks').onmessage = (event) => { tick.value = event.data; };</script></html>\n";

/// The streams, and the number of the last event.
#[derive(Clone, Default)]
struct Clock {
    room: Room,
    last: std::sync::Arc<AtomicU64>,
}

impl Clock {
    fn tick(&self) {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.room.send(number.to_string().into_bytes());
    }
}

fn main() -> ExitCode {
    support::main("ticks", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let clock = Clock::default();
    let router = Router::new(clock.clone())
        .get("/", |_, _| Response::html(PAGE))
        .sse("/ticks", |clock, out| {
            out.join(&clock.room);
            let watching = clock.room.len().to_string();
            out.send(Event::new(&watching).name("watching"))?;
            Ok::<_, Error>(())
        });
    let mut server = Server::http(options.listen.as_str(), router).page(options.page);
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    server.run_with(|server| {
        support::announce(server)?;
        // It ticks as long as the pool runs.
        server.pool().every(options.every, move |_| clock.tick())?;
        Ok(())
    })
}

struct Options {
    listen: String,
    every: Duration,
    page: String,
    threads: Option<usize>,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self {
            listen: "127.0.0.1:8080".to_owned(),
            every: Duration::from_secs(1),
            page: "127.0.0.1:0".to_owned(),
            threads: None,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Long("listen") => options.listen = parser.value()?.string()?,
                Long("every") => options.every = support::seconds(parser, "--every")?,
                Long("page") => options.page = parser.value()?.string()?,
                Long("threads") => options.threads = Some(support::count(parser, "--threads")?),
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}
