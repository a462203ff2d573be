//! A chat server: a message is sent to all other clients, and its sender gets a receipt.
//!
//! ```text
//! cargo run --release --example chat -- --listen 127.0.0.1:7002
//! ```
//!
//! Then, from several terminals: `nc 127.0.0.1 7002`. Ctrl-C stops it gracefully.
//!
//! ```text
//!   Ann's handler     puts a letter into every other mailbox, and notifies its handle   [Room::say]
//!   Bob's handler     is called: writes what is in his mailbox                          [Person::send_mail]
//!                     all of it taken by the system? the letters have arrived           [Letter::arrived]
//!   the last letter   is dropped: Ann finds "reached 2, missed by 0" in her mailbox     [Receipt::drop]
//! ```
//!
//! A reader that is slow, or never reads, delays no other client: its mailbox is full at 64 KiB,
//! and it misses what does not fit. When it reads again, it learns how much that was.

use std::{
    collections::{HashMap, VecDeque},
    env, io, mem,
    net::TcpStream,
    process::ExitCode,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    time::Duration,
};

use paceline::{scratch, Closed, Context, EventHandler, Handle, HandleId, Next, Pool};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

const HELP: &str = "\
A chat server on a Leader/Followers pool: each message is sent to all other clients.

usage: chat [--listen ADDR] [--threads N] [--idle SECONDS]

  --listen ADDR   where to listen (default 127.0.0.1:7002; port 0 lets the system choose)
  --threads N     how many threads take turns (default: four per core)
  --idle SECONDS  disconnect a client without any traffic for so long (default: never)
  --help          this text

  you send       it does
  /name NAME     calls you so from now on
  /who           lists the clients
  /quit          closes the connection
  anything else  sends it to all others; the receipt counts how many it has reached

A line has at most 1000 bytes. It prints `listening on ADDR` when it is ready. SIGINT and SIGTERM (Ctrl-C)
stop it. Try it with `nc HOST PORT` in several terminals.";

const LONGEST_LINE: usize = 1000;
/// Bytes that may wait in one mailbox.
const MAILBOX: usize = 64 * 1024;

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => report(serve(&options)),
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("chat: {mistake}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// One connection.
struct Person {
    room: Arc<Room>,
    mailbox: Arc<Mailbox>,
    idle: Option<Duration>,
    /// Known once the connection is established.
    me: Option<HandleId>,
    /// Input that was not obeyed yet: an unfinished line, or more if the client does not read.
    rest: Vec<u8>,
    /// Letters that were written, and may not be sent yet.
    on_their_way: Vec<Letter>,
}

impl EventHandler<TcpStream> for Person {
    fn speaks_first(&self) -> bool {
        true
    }

    /// Enters the room, before the first word.
    fn connected(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let handle = cx.handle();
        handle.set_timeout(self.idle)?;
        self.me = Some(handle.id());
        let name = self.room.enter(handle, Arc::clone(&self.mailbox));
        writeln!(cx, "* welcome, {name}. /name, /who, /quit")?;
        Ok(Next::Continue)
    }

    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        if let Sent::NotYet = self.send_mail(cx)? {
            return Ok(Next::Again); // When all is sent.
        }
        if !self.rest.contains(&b'\n') {
            let mut buffer = scratch();
            match cx.read(&mut buffer)? {
                0 => return Ok(Next::Close),
                count => self.rest.extend_from_slice(&buffer[..count]),
            }
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            if end > LONGEST_LINE {
                return Err(too_long());
            }
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if let Next::Close = self.obey(&String::from_utf8_lossy(&line), cx)? {
                return Ok(Next::Close);
            }
            if cx.unsent() != 0 {
                return Ok(Next::Again); // A client that does not read its answers gets no more.
            }
        }
        if self.rest.len() > LONGEST_LINE {
            Err(too_long())
        } else {
            Ok(Next::Continue)
        }
    }

    fn closed(&mut self, _why: Closed) {
        if let Some(me) = self.me {
            self.room.leave(me);
        }
        self.mailbox.shut();
    }
}

fn too_long() -> io::Error {
    io::Error::other(format!("a line of more than {LONGEST_LINE} bytes"))
}

/// Whether everything has been handed to the system.
enum Sent {
    All,
    NotYet,
}

impl Person {
    /// Writes what is in the mailbox, for as long as the client takes it.
    fn send_mail(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Sent> {
        loop {
            if cx.unsent() != 0 {
                return Ok(Sent::NotYet);
            }
            self.on_their_way.drain(..).for_each(Letter::arrived);
            let Some(letter) = self.mailbox.next() else {
                return Ok(Sent::All);
            };
            cx.write_all(letter.text.as_bytes())?;
            self.on_their_way.push(letter);
        }
    }

    /// Does what a line asks for.
    fn obey(&mut self, line: &str, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let me = cx.handle();
        match line
            .trim_end()
            .split_once(' ')
            .unwrap_or((line.trim_end(), ""))
        {
            ("/quit", "") => return Ok(Next::Close),
            ("/who", "") => writeln!(cx, "* here: {}", self.room.names().join(", "))?,
            ("/name", name) if !name.trim().is_empty() => self.room.rename(me.id(), name.trim()),
            (command, _) if command.starts_with('/') => {
                writeln!(cx, "* expected /name NAME, /who or /quit")?;
            }
            ("", _) => {}
            _ => self.room.say(&me, &self.mailbox, line.trim_end()),
        }
        Ok(Next::Continue)
    }
}

/// The clients. Locked for a moment, and never while a handler is notified.
#[derive(Default)]
struct Room {
    people: Mutex<HashMap<HandleId, Member>>,
    numbers: AtomicUsize,
}

struct Member {
    name: String,
    handle: Handle,
    mailbox: Arc<Mailbox>,
}

impl Room {
    /// Adds a client; returns its name.
    fn enter(&self, handle: Handle, mailbox: Arc<Mailbox>) -> String {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("guest-{number}");
        self.tell_all(&format!("* {name} has come\n"));
        let member = Member {
            name: name.clone(),
            handle: handle.clone(),
            mailbox,
        };
        self.people().insert(handle.id(), member);
        name
    }

    fn leave(&self, id: HandleId) {
        let left = self.people().remove(&id);
        if let Some(member) = left {
            self.tell_all(&format!("* {} has gone\n", member.name));
        }
    }

    fn rename(&self, id: HandleId, name: &str) {
        let old = match self.people().get_mut(&id) {
            Some(member) => mem::replace(&mut member.name, name.to_owned()),
            None => return,
        };
        self.tell_all(&format!("* {old} is now {name}\n"));
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.people().values().map(|it| it.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Sends a message to all other clients. When the last letter has arrived or is lost, the
    /// sender gets its receipt.
    fn say(&self, speaker: &Handle, own: &Arc<Mailbox>, words: &str) {
        let people = self.people();
        let name = people.get(&speaker.id()).map_or("?", |it| &it.name);
        let text: Arc<str> = format!("{name}: {words}\n").into();
        let others = people.values().filter(|it| it.handle != *speaker);
        let others: Vec<_> = others
            .map(|it| (it.handle.clone(), Arc::clone(&it.mailbox)))
            .collect();
        drop(people);
        let receipt = Arc::new(Receipt {
            speaker: speaker.clone(),
            mailbox: Arc::clone(own),
            letters: others.len(),
            reached: AtomicUsize::new(0),
        });
        for (handle, mailbox) in others {
            mailbox.put_in(Letter::new(&text, Some(&receipt)), &handle);
        }
    }

    /// Sends a word of the server's own to everyone.
    fn tell_all(&self, text: &str) {
        let text: Arc<str> = text.into();
        for member in self.people().values() {
            member
                .mailbox
                .put_in(Letter::new(&text, None), &member.handle);
        }
    }

    /// Each change is one step, so what a panic leaves behind is whole.
    fn people(&self) -> MutexGuard<'_, HashMap<HandleId, Member>> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line on its way to one client.
struct Letter {
    text: Arc<str>,
    receipt: Option<Arc<Receipt>>,
}

impl Letter {
    fn new(text: &Arc<str>, receipt: Option<&Arc<Receipt>>) -> Self {
        Self {
            text: Arc::clone(text),
            receipt: receipt.map(Arc::clone),
        }
    }

    /// The system has taken all of it.
    fn arrived(self) {
        if let Some(receipt) = &self.receipt {
            receipt.reached.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Shared by the letters of one line: when the last of them is gone, the sender gets the outcome.
struct Receipt {
    speaker: Handle,
    mailbox: Arc<Mailbox>,
    letters: usize,
    reached: AtomicUsize,
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let reached = self.reached.load(Ordering::Relaxed);
        let missed = self.letters - reached;
        let text = format!("* reached {reached}, missed by {missed}\n").into();
        self.mailbox.put_in(Letter::new(&text, None), &self.speaker);
    }
}

/// What waits for one connection to be sent, bounded.
#[derive(Default)]
struct Mailbox(Mutex<Letters>);

#[derive(Default)]
struct Letters {
    queue: VecDeque<Letter>,
    bytes: usize,
    /// How many did not go in.
    missed: usize,
    /// Its owner is gone.
    shut: bool,
}

impl Mailbox {
    /// Puts a letter in, if there is room, and has the owner's handler called.
    fn put_in(&self, letter: Letter, owner: &Handle) {
        let mut letters = self.letters();
        let fits = !letters.shut && letters.bytes + letter.text.len() <= MAILBOX;
        let missed = if fits {
            letters.bytes += letter.text.len();
            letters.queue.push_back(letter);
            None
        } else {
            letters.missed += 1;
            Some(letter)
        };
        drop(letters);
        // Without the lock: it may be the last of its line, and tell its speaker.
        drop(missed);
        // If it is closed, it hears nothing any more.
        let _ = owner.notify();
    }

    /// Drops its contents, which no client will read. (Letters hold the mailboxes of their
    /// speakers: two that are
    /// gone would keep each other, and every letter in them.)
    fn shut(&self) {
        let mut letters = self.letters();
        letters.shut = true;
        let missed = mem::take(&mut letters.queue);
        drop(letters);
        // Without the lock: their senders are notified.
        drop(missed);
    }

    /// The next letter; after the last one, how many are missing.
    fn next(&self) -> Option<Letter> {
        let mut letters = self.letters();
        if let Some(letter) = letters.queue.pop_front() {
            letters.bytes -= letter.text.len();
            return Some(letter);
        }
        match mem::take(&mut letters.missed) {
            0 => None,
            missed => {
                let text = format!("* you have missed {missed}\n").into();
                Some(Letter::new(&text, None))
            }
        }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until a signal arrives, then shuts down gracefully.
fn serve(options: &Options) -> io::Result<()> {
    // Before the first thread, so that none of them dies of a signal.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mut builder = Pool::builder().name("chat");
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    let pool = builder
        .on_panic(|handle, message| eprintln!("chat: handler of {handle} panicked: {message}"))
        .on_closed(|closed| {
            if let (Closed::Failed(error), Some(peer)) = (closed.reason(), closed.peer()) {
                eprintln!("chat: connection {} of {peer}: {error}", closed.id());
            }
        })
        .build()?;
    let (room, idle) = (Arc::new(Room::default()), options.idle);
    let listener = pool.listen(&*options.listen, move |stream, _peer| {
        // Small lines go out at once. A connection that is gone already will tell.
        let _ = stream.set_nodelay(true);
        Some(Person {
            room: Arc::clone(&room),
            mailbox: Arc::default(),
            idle,
            me: None,
            rest: Vec::new(),
            on_their_way: Vec::new(),
        })
    })?;
    println!("listening on {}", listener.local_addr());
    signals.forever().next();
    let report = pool.shutdown(Duration::from_secs(5));
    let seen = pool.snapshot();
    eprintln!(
        "chat: {report}; {} connections, {} of them sent away",
        seen.accepted, seen.timed_out
    );
    Ok(())
}

fn report(served: io::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chat: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for on the command line.
struct Options {
    listen: String,
    threads: Option<usize>,
    idle: Option<Duration>,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            listen: "127.0.0.1:7002".to_owned(),
            threads: None,
            idle: None,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--listen" => options.listen = value()?,
                "--threads" => options.threads = Some(number(&name, &value()?)?),
                "--idle" => {
                    let seconds = number(&name, &value()?)?;
                    options.idle = Some(Duration::from_secs(seconds as u64));
                }
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(Some(options))
    }
}

fn number(option: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option} {text}: a number above zero is needed")),
    }
}
