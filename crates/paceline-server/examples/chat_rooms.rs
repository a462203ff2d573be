//! A chat server with rooms: a line is sent to all others in the room, and its sender gets a receipt.
//!
//! ```text
//! cargo run --release -p paceline-server --example chat_rooms -- --listen 127.0.0.1:7002
//! ```
//!
//! Then, from several terminals: `nc 127.0.0.1 7002`. Ctrl-C ends it gracefully.
//!
//! ```text
//!   Ann's session   room.message("ann: hi").except(ann).on_done(..)     one buffer for all members
//!   Bob, Cy, ..     each one's own turn sends it                        a slow one holds up no other
//!   the receipt     when the last of them has got or missed it:         Ann reads "heard by 2, missed 0"
//! ```
//!
//! A member that does not read has its lines wait in its mailbox, up to `--mailbox` bytes. What finds no
//! place there misses it, and the receipt counts that.

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lexopt::{Arg::Long, Parser, ValueExt};
use paceline_server::{
    codec::{line, Malformed, Message},
    Ended, Limit, Limits, Listen, Next, Peer, Remote, Room, Server, Session,
};

const HELP: &str = "\
A chat server with rooms: a line is sent to all others in the room, and its sender gets a receipt.

usage: chat_rooms [options]

  --listen ADDR    where to listen (default 127.0.0.1:7002; port 0 lets the system choose)
  --threads N      how many threads serve (default: four per core)
  --idle SECONDS   how long a client may do nothing (default 600)
  --mailbox BYTES  how much may wait for a client that does not read (default 65536)
  --help           this text

  you send       it does
  /name NAME     gives you this name: letters, digits, - and _, at most 20, not taken
  /join ROOM     moves you to this room; it is made if there is none
  /rooms         lists the rooms, and how many are in each
  /who           lists who is in your room
  /quit          closes the connection
  anything else  goes to all others in the room; `- heard by N, missed M` follows

Lines of the server begin with `*`, receipts with `-`. A line has at most 1000 bytes. It prints
`listening on ADDR` when it is ready. Ctrl-C or SIGTERM ends it gracefully, and it prints a report. Try
it with `nc 127.0.0.1 7002` in several terminals.";

const LONGEST_LINE: usize = 1000;
const LONGEST_NAME: usize = 20;
const FIRST_ROOM: &str = "lobby";

fn main() -> ExitCode {
    support::main("chat_rooms", HELP, Options::parse, serve)
}

fn serve(options: Options) -> io::Result<()> {
    let house = Arc::new(House::default());
    let listen = Listen::tcp(options.listen)
        .limits(options.limits)
        .refusal("* the house is full\r\n");
    let mut server = Server::builder().listener(listen, line(LONGEST_LINE), move |_peer| {
        Chatter::new(Arc::clone(&house))
    });
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    server.run_with(support::announce)
}

/// One client.
struct Chatter {
    house: Arc<House>,
    /// Its name and its room, from `start` on.
    seat: Option<Seat>,
}

/// Where a client is in the house.
struct Seat {
    name: String,
    room_name: String,
    room: Room,
}

impl Session for Chatter {
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        let name = self.house.new_name();
        let welcome = format!("* welcome, {name}: /name, /join, /rooms, /who, /quit");
        // First the room, so that it hears everything that is said after it reads its welcome.
        self.enter(FIRST_ROOM, name, cx);
        cx.reply(welcome)?;
        cx.reply(format!("* you are in {FIRST_ROOM}"))?;
        Ok(Next::Continue)
    }

    fn handle(&mut self, line: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        let line = printable(&line);
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match (word, rest.trim()) {
            ("", _) => Ok(Next::Continue),
            ("/name", name) => self.rename(name, cx),
            ("/join", room) => self.join(room, cx),
            ("/rooms", "") => self.list_rooms(cx),
            ("/who", "") => self.list_members(cx),
            ("/quit", "") => Ok(Next::Close),
            (command, _) if command.starts_with('/') => {
                cx.reply(format!("* there is no command {command}"))?;
                Ok(Next::Continue)
            }
            _ => self.say(&line, cx),
        }
    }

    fn malformed(&mut self, why: Malformed, cx: &mut Peer<'_>) {
        let _ = cx.reply(format!("* {why}"));
    }

    fn overdue(&mut self, limit: Limit, cx: &mut Peer<'_>) -> Next {
        let _ = cx.reply(format!("* good bye: limit {limit}"));
        Next::CloseGently
    }

    fn draining(&mut self, cx: &mut Peer<'_>) -> Next {
        let _ = cx.reply("* the server ends");
        Next::CloseGently
    }

    /// The connection has left its room by itself. Its name is free again.
    fn closed(&mut self, _why: &Ended) {
        if let Some(seat) = self.seat.take() {
            self.house.leave(&seat);
            self.house.free_name(&seat.name);
            seat.room.send(news(&format!("{} has left", seat.name)));
        }
    }
}

impl Chatter {
    fn new(house: Arc<House>) -> Self {
        Self { house, seat: None }
    }

    /// Sends a line to all others in the room. The receipt returns through the sender's mailbox.
    fn say(&self, line: &str, cx: &Peer<'_>) -> io::Result<Next> {
        if let Some(seat) = &self.seat {
            let me: Remote = cx.remote();
            let text = format!("{}: {line}\r\n", seat.name);
            seat.room
                .message(text.into_bytes())
                .except(cx.id())
                .on_done(move |receipt| {
                    let (heard, missed) = (receipt.reached, receipt.missed);
                    me.send(format!("- heard by {heard}, missed {missed}\r\n").into_bytes());
                })
                .send();
        }
        Ok(Next::Continue)
    }

    fn enter(&mut self, room_name: &str, name: String, cx: &Peer<'_>) {
        let room = self.house.enter(room_name, &name);
        room.message(news(&format!("{name} has joined")))
            .except(cx.id())
            .send();
        room.join(cx);
        self.seat = Some(Seat {
            name,
            room_name: room_name.to_owned(),
            room,
        });
    }

    fn join(&mut self, room_name: &str, cx: &mut Peer<'_>) -> io::Result<Next> {
        if !is_name(room_name) {
            cx.reply("* this can't be the name of a room")?;
            return Ok(Next::Continue);
        }
        let Some(seat) = self.seat.take() else {
            return Ok(Next::Continue);
        };
        seat.room.leave(cx.id());
        self.house.leave(&seat);
        seat.room.send(news(&format!("{} has left", seat.name)));
        self.enter(room_name, seat.name, cx);
        cx.reply(format!("* you are in {room_name}"))?;
        Ok(Next::Continue)
    }

    fn rename(&mut self, name: &str, cx: &mut Peer<'_>) -> io::Result<Next> {
        let Some(seat) = &mut self.seat else {
            return Ok(Next::Continue);
        };
        if !is_name(name) || !self.house.rename(seat, name) {
            cx.reply("* this name is taken, or can't be one")?;
            return Ok(Next::Continue);
        }
        let old = std::mem::replace(&mut seat.name, name.to_owned());
        // The message is sent to the sender too: it says that the name is granted.
        seat.room.send(news(&format!("{old} is now {name}")));
        Ok(Next::Continue)
    }

    fn list_rooms(&self, cx: &mut Peer<'_>) -> io::Result<Next> {
        let lock = self.house.lock();
        let rooms = lock.rooms.iter();
        let text: String = rooms
            .map(|(name, open)| format!("* {name}: {}\r\n", open.names.len()))
            .collect();
        drop(lock);
        cx.send(text)?;
        Ok(Next::Continue)
    }

    fn list_members(&self, cx: &mut Peer<'_>) -> io::Result<Next> {
        let Some(seat) = &self.seat else {
            return Ok(Next::Continue);
        };
        let names = self.house.names_in(&seat.room_name);
        // Sent as it is: the limit of the codec is for replies too.
        cx.send(format!("* here: {}\r\n", names.join(", ")))?;
        Ok(Next::Continue)
    }
}

/// The rooms, and the names that are taken. No message is sent under its lock.
#[derive(Default)]
struct House(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    rooms: BTreeMap<String, OpenRoom>,
    names: BTreeSet<String>,
    guests: u64,
}

/// A room with at least one member.
#[derive(Default)]
struct OpenRoom {
    room: Room,
    names: BTreeSet<String>,
}

impl House {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name for a new client.
    fn new_name(&self) -> String {
        let mut inside = self.lock();
        loop {
            inside.guests += 1;
            let name = format!("guest-{}", inside.guests);
            if inside.names.insert(name.clone()) {
                return name;
            }
        }
    }

    fn free_name(&self, name: &str) {
        self.lock().names.remove(name);
    }

    /// The room with this name. The list of its members has `name` from now on.
    fn enter(&self, room: &str, name: &str) -> Room {
        let mut inside = self.lock();
        let open = inside.rooms.entry(room.to_owned()).or_default();
        open.names.insert(name.to_owned());
        open.room.clone()
    }

    /// The last member that leaves takes the room with it.
    fn leave(&self, seat: &Seat) {
        let mut inside = self.lock();
        if let Some(open) = inside.rooms.get_mut(&seat.room_name) {
            open.names.remove(&seat.name);
            if open.names.is_empty() {
                inside.rooms.remove(&seat.room_name);
            }
        }
    }

    /// Whether the name was free.
    fn rename(&self, seat: &Seat, name: &str) -> bool {
        let mut inside = self.lock();
        if !inside.names.insert(name.to_owned()) {
            return false;
        }
        inside.names.remove(&seat.name);
        if let Some(open) = inside.rooms.get_mut(&seat.room_name) {
            open.names.remove(&seat.name);
            open.names.insert(name.to_owned());
        }
        true
    }

    fn names_in(&self, room: &str) -> Vec<String> {
        let inside = self.lock();
        let open = inside.rooms.get(room);
        open.map_or_else(Vec::new, |open| open.names.iter().cloned().collect())
    }
}

/// A line of the server.
fn news(text: &str) -> Vec<u8> {
    format!("* {text}\r\n").into_bytes()
}

/// A line as text that can't change the terminals of its readers.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars().filter(|char| !char.is_control()).collect()
}

fn is_name(name: &str) -> bool {
    let is_plain = |char: char| char.is_alphanumeric() || matches!(char, '-' | '_');
    (1..=LONGEST_NAME).contains(&name.chars().count()) && name.chars().all(is_plain)
}

struct Options {
    listen: String,
    threads: Option<usize>,
    limits: Limits,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut limits = Limits::default().idle(Duration::from_secs(600));
        let (mut listen, mut threads) = ("127.0.0.1:7002".to_owned(), None);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("listen") => listen = parser.value()?.string()?,
                Long("threads") => threads = Some(support::count(parser, "--threads")?),
                Long("idle") => limits = limits.idle(support::seconds(parser, "--idle")?),
                Long("mailbox") => limits = limits.mailbox(support::count(parser, "--mailbox")?),
                other => return Err(other.unexpected()),
            }
        }
        // A chatter may only listen: it need not speak first.
        let silent = Duration::from_secs(600);
        Ok(Self {
            listen,
            threads,
            limits: limits.silent(silent),
        })
    }
}
