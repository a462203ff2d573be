//! A chat in the browser: one room, whose members speak WebSocket, or lines in a terminal.
//!
//! ```text
//! cargo run --release -p paceline-server --example web_chat
//! ```
//!
//! Then open the address that it prints in two windows, and run `nc 127.0.0.1 7003` beside them.
//!
//! ```text
//!   a browser   WebSocket, one frame each --+
//!   a browser   WebSocket ------------------+-- Room -- one buffer for each form
//!   nc          lines ----------------------+
//! ```

#[path = "../support/mod.rs"]
mod support;

use std::{
    io,
    process::ExitCode,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

use lexopt::{Arg::Long, Parser, ValueExt};
use paceline_server::{
    codec::{line, Codec, Malformed, Message},
    http::{Response, Router},
    websocket::{Frames, Incoming},
    Encoding, Ended, Listen, Next, Peer, Room, Server, Session,
};

const HELP: &str = "\
A chat in the browser: one room, whose members speak WebSocket, or lines in a terminal.

usage: web_chat [options]

  --listen ADDR  where the web page is (default 127.0.0.1:8080; port 0 lets the system choose)
  --lines ADDR   where members with lines connect (default 127.0.0.1:7003)
  --page ADDR    where the live page of the server's threads is (default: a free port)
  --threads N    how many threads serve (default: four per core)
  --help         this text

A message has at most 1000 bytes; `/name NAME` gives you a name. It prints `listening on ADDR` for the
web page, then `lines on ADDR`. Ctrl-C or SIGTERM ends it gracefully, and it prints a report.";

const LONGEST_MESSAGE: usize = 1000;
const LONGEST_NAME: usize = 20;

fn main() -> ExitCode {
    support::main("web_chat", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let house = Arc::new(House::default());
    let listen = Listen::tcp(options.lines).name("lines");
    let guests = Arc::clone(&house);
    let mut server = Server::http(options.listen.as_str(), router(house))
        .page(options.page)
        .server(|server| {
            server.listener(listen, line(LONGEST_MESSAGE), move |_peer| {
                LineMember(Member::new(&guests))
            })
        });
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    server.run_with(|server| {
        let mut addresses = server.addresses().into_iter();
        for (what, address) in ["listening", "lines"].iter().zip(&mut addresses) {
            println!("{what} on {address}");
        }
        support::announce_page(server);
        Ok(())
    })
}

fn router(house: Arc<House>) -> Router<Arc<House>> {
    Router::new(house)
        .get("/", |_, _| Response::html(include_str!("page.html")))
        .get("/chat.css", |_, _| {
            Response::new(include_str!("chat.css")).content_type("text/css")
        })
        .get("/chat.js", |_, _| {
            Response::new(include_str!("chat.js")).content_type("text/javascript")
        })
        .ws("/ws", |house, _| WebMember(Member::new(house)))
        .limit(LONGEST_MESSAGE as u64)
        .after(|_, _, response| {
            response.set_header(
                "content-security-policy",
                "default-src 'self'; img-src data:",
            );
        })
}

/// The room, and the number of the next guest.
#[derive(Default)]
struct House {
    room: Room,
    guests: AtomicU64,
}

/// A member, whatever it speaks.
struct Member {
    house: Arc<House>,
    name: String,
}

impl Member {
    fn new(house: &Arc<House>) -> Self {
        let number = house.guests.fetch_add(1, Ordering::Relaxed);
        Self {
            house: Arc::clone(house),
            name: format!("guest-{number}"),
        }
    }

    fn enter<C: Codec>(&self, cx: &mut Peer<'_, C>) -> io::Result<Next> {
        cx.reply(format!(
            "* welcome, {}: /name NAME gives you a name",
            self.name
        ))?;
        self.house.room.join(cx);
        self.tell(&format!("* {} has joined", self.name));
        Ok(Next::Continue)
    }

    /// All members hear what this one says, and so does it: that is how it sees the order.
    fn say(&mut self, text: &str) {
        match text.trim().strip_prefix("/name ") {
            Some(name) if is_name(name) => {
                let before = std::mem::replace(&mut self.name, name.to_owned());
                self.tell(&format!("* {before} is now {name}"));
            }
            Some(_) => {}
            None => self.tell(&format!("{}: {text}", self.name)),
        }
    }

    fn leave(&self) {
        self.tell(&format!("* {} has left", self.name));
    }

    fn tell(&self, text: &str) {
        self.house.room.send(text.as_bytes());
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |sign: char| sign.is_alphanumeric() || sign == '-' || sign == '_';
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_part)
}

/// A member with a browser.
struct WebMember(Member);

impl Session<Frames> for WebMember {
    fn start(&mut self, cx: &mut Peer<'_, Frames>) -> io::Result<Next> {
        self.0.enter(cx)
    }

    fn handle(&mut self, message: Incoming, _: &mut Peer<'_, Frames>) -> io::Result<Next> {
        if let Incoming::Text(text) = message {
            self.0.say(&text);
        }
        Ok(Next::Continue)
    }

    fn closed(&mut self, _why: &Ended) {
        self.0.leave();
    }
}

/// A member with a terminal.
struct LineMember(Member);

impl Session for LineMember {
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        cx.set_encoding(Encoding::Line);
        self.0.enter(cx)
    }

    fn handle(&mut self, line: Message<'_>, _: &mut Peer<'_>) -> io::Result<Next> {
        self.0.say(&String::from_utf8_lossy(&line));
        Ok(Next::Continue)
    }

    fn malformed(&mut self, why: Malformed, cx: &mut Peer<'_>) {
        let _ = cx.reply(format!("* {why}"));
    }

    fn closed(&mut self, _why: &Ended) {
        self.0.leave();
    }
}

struct Options {
    listen: String,
    lines: String,
    page: String,
    threads: Option<usize>,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self {
            listen: "127.0.0.1:8080".to_owned(),
            lines: "127.0.0.1:7003".to_owned(),
            page: "127.0.0.1:0".to_owned(),
            threads: None,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Long("listen") => options.listen = parser.value()?.string()?,
                Long("lines") => options.lines = parser.value()?.string()?,
                Long("page") => options.page = parser.value()?.string()?,
                Long("threads") => options.threads = Some(support::count(parser, "--threads")?),
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}
