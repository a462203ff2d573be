//! A TCP relay: each connection is passed on to another server, byte by byte, in both directions.
//!
//! ```text
//! cargo run --release --example echo  -- --listen 127.0.0.1:7000
//! cargo run --release --example relay -- --listen 127.0.0.1:7003 --to 127.0.0.1:7000
//! ```
//!
//! Then, from another terminal: `nc 127.0.0.1 7003`. Ctrl-C stops it gracefully.
//!
//! ```text
//!               .----------- a group: one handler, one owner ------------.
//!   client ---> | read from the one, write to the other   [Session::pass] | ---> server
//!          <--- | the other keeps some of it? read no more until it is    | <---
//!               | sent [Session::pause]. The end of the input? pass that  |
//!               | on when all is sent  [Session::pass_end]                |
//!               '---------------------------------------------------------'
//! ```
//!
//! The two connections of a session are a group, so no two threads ever handle them at once: the
//! handler needs no lock. If one of them fails, the other is reset, so that no peer takes half a
//! stream for a whole one.

use std::{
    env, io,
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    process::ExitCode,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
    time::Duration,
};

use paceline::{
    scratch, Closed, Context, GroupHandler, Handle, Interest, Members, Next, Order, Pool, SetKind,
    Wake,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use socket2::SockRef;

const HELP: &str = "\
A TCP relay on a Leader/Followers pool: passes every connection on to another server.

usage: relay --to ADDR [--listen ADDR] [--threads N] [--idle SECONDS] [--order ORDER] [--wake WAKE]
             [--set SET]

  --to ADDR       the server behind it
  --listen ADDR   where to listen (default 127.0.0.1:7003; port 0 lets the system choose)
  --threads N     how many threads take turns (default: four per core)
  --idle SECONDS  a connection on which nothing happens for so long is ended, with its other half
                  (default: never)
  --order ORDER   which follower leads next: newest (default), oldest, priority, system
  --wake WAKE     when a follower is woken to lead: adaptive (default: where it pays) or
                  eager (the textbook: on every event)
  --set SET       where the leader waits: epoll (default: edge-triggered), oneshot (epoll, armed
                  anew for every event), poll (to be had everywhere) or completion (io_uring)
  --help          this text

The end of one side's input is passed on to the other, which may continue to send. A side that sends faster
than the other one reads is not read: at most 16 KiB are kept for each. If one side fails, the other is reset.
It prints `listening on ADDR` when it is ready. SIGINT and SIGTERM (Ctrl-C) stop it. Try it with `nc`.";

/// How long a connection to the server may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How much is read from one side at a time; as much is kept for the other at most.
const CHUNK: usize = 16 * 1024;

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => report(serve(&options)),
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("relay: {mistake}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// A client, and the server that it was passed on to.
struct Session {
    to: SocketAddr,
    idle: Option<Duration>,
    totals: Arc<Totals>,
    client: Option<Half>,
    server: Option<Half>,
}

/// One of the two connections.
struct Half {
    handle: Handle,
    input: Input,
}

/// What becomes of a side's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// It is read and passed on.
    Flows,
    /// It waits until the other side has taken what is kept for it.
    Paused,
    /// Its end was read, and is passed on when the other side has taken what is kept for it.
    Ending,
    /// Its end was passed on.
    Ended,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

#[derive(Debug, Default)]
struct Totals {
    sessions: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl GroupHandler<TcpStream> for Session {
    /// First the client is there; it waits until the server is.
    fn joined(
        &mut self,
        cx: &mut Context<'_, TcpStream>,
        members: &mut Members<'_, TcpStream>,
    ) -> io::Result<Next> {
        let handle = cx.handle();
        // Small messages are sent at once. A connection that is gone already fails later.
        let _ = cx.source().set_nodelay(true);
        // Until both sides have sent everything, any end of it resets the peer.
        linger(cx.source(), Some(Duration::ZERO));
        // A peer that does not read may have to send its own output first.
        cx.read_while_sending(true);
        handle.set_timeout(self.idle)?;
        match &self.client {
            None => {
                handle.set_interest(Interest::NONE)?;
                self.client = Some(Half::new(handle));
                let server = members.group().connect(self.to, CONNECT)?;
                self.server = Some(Half::new(server));
            }
            Some(client) => client.handle.set_interest(Interest::READ)?,
        }
        Ok(Next::Continue)
    }

    fn ready(
        &mut self,
        cx: &mut Context<'_, TcpStream>,
        members: &mut Members<'_, TcpStream>,
    ) -> io::Result<Next> {
        let side = self.side_of(&cx.handle());
        if cx.unsent() == 0 {
            self.taken_by(side, cx)?;
        }
        if self.half(side).input == Input::Flows && cx.is_readable() {
            self.pass(side, cx, members)?;
        }
        if self.is_over() {
            let other = self.half(side.other()).handle.clone();
            linger(cx.source(), None);
            members.each(|_, cx| linger(cx.source(), None));
            members.finish(&other)?;
            Ok(Next::Close)
        } else {
            Ok(Next::Continue)
        }
    }

    fn closed(&mut self, member: &Handle, why: Closed, members: &mut Members<'_, TcpStream>) {
        if let Closed::Finished | Closed::Requested | Closed::Shutdown = why {
            return;
        }
        self.totals.failed.fetch_add(1, Ordering::Relaxed);
        eprintln!("relay: connection {}: {why}", member.id());
        for other in members.handles() {
            // If it is closed already, it need not be.
            let _ = other.close();
        }
    }
}

impl Session {
    /// Reads what is there, and gives it to the other side.
    fn pass(
        &mut self,
        side: Side,
        cx: &mut Context<'_, TcpStream>,
        members: &mut Members<'_, TcpStream>,
    ) -> io::Result<()> {
        let mut buffer = scratch();
        let room = buffer.len().min(CHUNK);
        let count = cx.read(&mut buffer[..room])?;
        let bytes = &buffer[..count];
        let other = self.half(side.other()).handle.clone();
        let given = members.with(&other, |cx| {
            cx.write_all(bytes)?;
            Ok(cx.unsent())
        });
        let kept = given.map_err(|error| of_the_other(&other, &error))?;
        self.totals.bytes.fetch_add(count as u64, Ordering::Relaxed);
        match (count, kept) {
            (0, 0) => self.pass_end(side, members),
            (0, _) => self.pause(side, Input::Ending),
            (_, 0) => Ok(()),
            (_, _) => self.pause(side, Input::Paused),
        }
    }

    /// The other side keeps some of what was given to it: nothing is read until that is sent.
    fn pause(&mut self, side: Side, input: Input) -> io::Result<()> {
        self.half(side).input = input;
        self.listen_to(side)?;
        self.listen_to(side.other())
    }

    /// Everything that was given to this side is sent: the other one's input continues, or its end
    /// is passed on.
    fn taken_by(&mut self, side: Side, cx: &mut Context<'_, TcpStream>) -> io::Result<()> {
        let other = self.half(side.other());
        match other.input {
            Input::Flows | Input::Ended => return Ok(()),
            Input::Paused => other.input = Input::Flows,
            Input::Ending => {
                other.input = Input::Ended;
                shut(cx.source())?;
            }
        }
        self.listen_to(side)?;
        self.listen_to(side.other())
    }

    /// The end of this side's input, after everything else.
    fn pass_end(&mut self, side: Side, members: &mut Members<'_, TcpStream>) -> io::Result<()> {
        self.half(side).input = Input::Ended;
        let other = self.half(side.other()).handle.clone();
        members.with(&other, |cx| shut(cx.source()))?;
        self.listen_to(side)
    }

    /// Sets what this side waits for now: input that can be passed on, and the end of its output,
    /// if the other side waits for that.
    fn listen_to(&mut self, side: Side) -> io::Result<()> {
        let awaited = matches!(self.half(side.other()).input, Input::Paused | Input::Ending);
        let half = self.half(side);
        half.handle
            .set_interest(match (half.input == Input::Flows, awaited) {
                (true, true) => Interest::READ | Interest::WRITE,
                (true, false) => Interest::READ,
                (false, true) => Interest::WRITE,
                (false, false) => Interest::NONE,
            })
    }

    fn is_over(&mut self) -> bool {
        [Side::Client, Side::Server].map(|side| self.half(side).input) == [Input::Ended; 2]
    }

    fn side_of(&self, handle: &Handle) -> Side {
        let client = self.client.as_ref().map(|client| &client.handle);
        if client == Some(handle) {
            Side::Client
        } else {
            Side::Server
        }
    }

    /// Both are there before anything is ready.
    fn half(&mut self, side: Side) -> &mut Half {
        let half = match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        half.as_mut().expect("a session has two halves")
    }
}

impl Half {
    fn new(handle: Handle) -> Self {
        Self {
            handle,
            input: Input::Flows,
        }
    }
}

/// The other side can't be written to: this one ends, and has it closed too.
fn of_the_other(other: &Handle, error: &io::Error) -> io::Error {
    let text = format!("to its other half, {}: {error}", other.id());
    io::Error::new(error.kind(), text)
}

/// How long the kernel sends after a close: not at all, which resets the connection, or
/// as always.
fn linger(stream: &TcpStream, span: Option<Duration>) {
    // If that fails it is closed as always.
    let _ = SockRef::from(stream).set_linger(span);
}

/// Sends the end of the stream. A peer that is gone already needs none.
fn shut(stream: &TcpStream) -> io::Result<()> {
    match stream.shutdown(Shutdown::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}

/// Serves until a signal arrives, then shuts down gracefully.
fn serve(options: &Options) -> io::Result<()> {
    // Before the first thread, so that none of them dies of a signal.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mut builder = Pool::builder()
        .name("relay")
        .order(options.order)
        .wake(options.wake)
        .handle_set(options.set.clone());
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    let pool = builder
        .on_panic(|handle, message| eprintln!("relay: handler of {handle} panicked: {message}"))
        .build()?;
    let totals = Arc::<Totals>::default();
    let (to, idle) = (options.to, options.idle);
    let listener = pool.listener().bind_groups(&*options.listen, {
        let totals = Arc::clone(&totals);
        move |_stream, _peer| {
            totals.sessions.fetch_add(1, Ordering::Relaxed);
            Some(Session {
                to,
                idle,
                totals: Arc::clone(&totals),
                client: None,
                server: None,
            })
        }
    })?;
    println!("listening on {}", listener.local_addr());
    signals.forever().next();
    let report = pool.shutdown(Duration::from_secs(5));
    let total = |count: &AtomicU64| count.load(Ordering::Relaxed);
    eprintln!(
        "relay: {report}; {} sessions, {} connections failed, {} bytes passed on",
        total(&totals.sessions),
        total(&totals.failed),
        total(&totals.bytes)
    );
    Ok(())
}

fn report(served: io::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for on the command line.
struct Options {
    listen: String,
    to: SocketAddr,
    threads: Option<usize>,
    idle: Option<Duration>,
    order: Order,
    wake: Wake,
    set: SetKind,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut to = None;
        let mut options = Self {
            listen: "127.0.0.1:7003".to_owned(),
            to: SocketAddr::from(([0; 4], 0)),
            threads: None,
            idle: None,
            order: Order::default(),
            wake: Wake::default(),
            set: SetKind::default(),
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--to" => to = Some(address(&value()?)?),
                "--listen" => options.listen = value()?,
                "--threads" => options.threads = Some(number(&name, &value()?)?),
                "--idle" => {
                    let seconds = number(&name, &value()?)?;
                    options.idle = Some(Duration::from_secs(seconds as u64));
                }
                "--order" => options.order = order(&value()?)?,
                "--wake" => options.wake = wake(&value()?)?,
                "--set" => options.set = set(&value()?)?,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        options.to = to.ok_or("--to is missing: which server is behind it?")?;
        Ok(Some(options))
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let resolved = text.to_socket_addrs().map_err(|error| error.to_string());
    let first = resolved.and_then(|mut all| all.next().ok_or("no address".to_owned()));
    first.map_err(|error| format!("--to {text}: {error}"))
}

fn order(text: &str) -> Result<Order, String> {
    match text {
        "newest" => Ok(Order::Newest),
        "oldest" => Ok(Order::Oldest),
        "priority" => Ok(Order::Priority),
        "system" => Ok(Order::System),
        _ => Err(format!(
            "--order {text}: newest, oldest, priority or system is needed"
        )),
    }
}

fn wake(text: &str) -> Result<Wake, String> {
    match text {
        "adaptive" => Ok(Wake::Adaptive),
        "eager" => Ok(Wake::Eager),
        _ => Err(format!("--wake {text}: adaptive or eager is needed")),
    }
}

fn set(text: &str) -> Result<SetKind, String> {
    match text {
        "epoll" => Ok(SetKind::Epoll),
        "oneshot" => Ok(SetKind::OneShot),
        "poll" => Ok(SetKind::Poll),
        "completion" => Ok(SetKind::Completion),
        _ => Err(format!(
            "--set {text}: epoll, oneshot, poll or completion is needed"
        )),
    }
}

fn number(option: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option} {text}: a number above zero is needed")),
    }
}
