//! The two engines compared: the same session on Leader/Followers and on half-sync/half-async.
//!
//! ```text
//! cargo run --release -p paceline-server --example threads
//! ```
//!
//! ```text
//!   Engine::LeaderFollowers      the thread that finds a request runs its session: no queue, no hand-off
//!   Engine::HalfSyncHalfAsync    threads read, and a bounded queue leads to workers: a wake-up each way,
//!                                and what finds no place in the queue, or waits too long, is refused
//! ```
//!
//! The clients run in this process too, so the figures compare the engines with each other, and with
//! nothing else.

mod support;

use std::{
    fmt, hint,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use lexopt::{Arg::Long, Parser};
use paceline_server::{
    codec::{line, Message},
    Engine, HalfSync, Listen, Next, Peer, Server,
};

const HELP: &str = "\
The two engines compared: the same session on Leader/Followers and on half-sync/half-async.

usage: threads [options]

  --work KIND      what the session does for a request: short (nothing), compute (100 us), sleep (every
                   tenth request: 5 ms) or all (default), one after the other
  --threads N      how many threads run sessions, in either engine (default 4)
  --connections N  how many clients at once (default 32)
  --requests N     how many requests each client sends (default 500)
  --queue N        the queue of the half-sync engine that refuses (default 4; the other one has room for all)
  --help           this text

Each client sends a request, waits for the answer, and sends the next one. A refused client connects
again, and its request counts as refused. The table shows, for each work and engine: answers, refusals,
answers per second, and how long an answer takes (median, 99 of 100, longest) in microseconds.";

const REFUSAL: &str = "busy";
/// Only a server that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    support::main("threads", HELP, Options::parse, compare)
}

fn compare(options: Options) -> io::Result<()> {
    println!(
        "{:<8} {:<28} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8}",
        "work", "engine", "answers", "refused", "per s", "p50", "p99", "longest"
    );
    for work in &options.works {
        for engine in [
            Choice::LeaderFollowers,
            Choice::WideQueue,
            Choice::ShortQueue,
        ] {
            let load = measure(*work, engine, &options)?;
            println!("{work:<8} {:<28} {load}", engine.name(&options));
        }
    }
    Ok(())
}

/// What a session does for a request.
#[derive(Clone, Copy)]
enum Work {
    Short,
    Compute,
    Sleep,
}

impl Work {
    /// Does it for the request with this number.
    fn run(self, request: u64) {
        match self {
            Self::Short => {}
            Self::Compute => {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(100) {
                    hint::spin_loop();
                }
            }
            // The pool is not informed: it finds out that a session blocks.
            Self::Sleep if request % 10 == 0 => thread::sleep(Duration::from_millis(5)),
            Self::Sleep => {}
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Short => "short",
            Self::Compute => "compute",
            Self::Sleep => "sleep",
        })
    }
}

/// An engine and its queue.
#[derive(Clone, Copy)]
enum Choice {
    LeaderFollowers,
    /// A queue with room for all clients.
    WideQueue,
    /// A queue that refuses.
    ShortQueue,
}

impl Choice {
    fn name(self, options: &Options) -> String {
        match self {
            Self::LeaderFollowers => "Leader/Followers".to_owned(),
            Self::WideQueue => "half-sync, room for all".to_owned(),
            Self::ShortQueue => format!("half-sync, queue of {}", options.queue),
        }
    }

    fn engine(self, options: &Options) -> Engine {
        let workers = HalfSync::default().workers(options.threads);
        match self {
            Self::LeaderFollowers => Engine::LeaderFollowers,
            Self::WideQueue => Engine::HalfSyncHalfAsync(workers.capacity(options.connections)),
            Self::ShortQueue => Engine::HalfSyncHalfAsync(workers.capacity(options.queue)),
        }
    }
}

/// Starts a server with this engine, sends it all requests, and ends it.
fn measure(work: Work, choice: Choice, options: &Options) -> io::Result<Load> {
    let listen = Listen::tcp("127.0.0.1:0").refusal(format!("{REFUSAL}\r\n"));
    let session = move |line: Message<'_>, cx: &mut Peer<'_>| {
        work.run(line.as_str()?.parse().map_err(io::Error::other)?);
        cx.reply(line)?;
        Ok(Next::Continue)
    };
    let server = Server::builder()
        .engine(choice.engine(options))
        .threads(options.threads)
        .listener(listen, line(20), move |_peer| session)
        .start()?;
    let address = server
        .local_addr()
        .ok_or_else(|| io::Error::other("it does not listen"))?;
    let begun = Instant::now();
    let mut load = send_all(address, options)?;
    load.took = begun.elapsed();
    let report = server.drain(Duration::from_secs(5));
    if !report.is_clean() {
        return Err(io::Error::other(report.to_string()));
    }
    Ok(load)
}

/// All clients at once.
fn send_all(address: SocketAddr, options: &Options) -> io::Result<Load> {
    let results: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..options.connections)
            .map(|_| scope.spawn(|| send(address, options.requests)))
            .collect();
        let joined = clients.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|_| Err(io::Error::other("a client panicked"))))
            .collect()
    });
    let mut all = Load::default();
    for result in results {
        let load = result?;
        all.times.extend(load.times);
        all.refused += load.refused;
    }
    all.times.sort_unstable();
    Ok(all)
}

/// The requests of one client.
fn send(address: SocketAddr, requests: usize) -> io::Result<Load> {
    let mut load = Load::default();
    let mut server = connect(address)?;
    let mut answer = String::new();
    for request in 1..=requests {
        let begun = Instant::now();
        // A refused connection may be closed before it takes the request.
        let sent = server
            .get_mut()
            .write_all(format!("{request}\n").as_bytes());
        answer.clear();
        let read = sent.and_then(|()| server.read_line(&mut answer));
        match (read, answer.trim_end()) {
            (Ok(_), text) if text == request.to_string() => load.times.push(begun.elapsed()),
            (_, REFUSAL) => {
                load.refused += 1;
                server = connect(address)?;
            }
            (Ok(_), text) => {
                let text = format!("request {request}: the answer is {text:?}");
                return Err(io::Error::other(text));
            }
            (Err(error), _) => {
                return Err(support::attempted(format!("request {request}"))(error));
            }
        }
    }
    Ok(load)
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let connected = TcpStream::connect(address);
    let stream = connected.map_err(support::attempted(format!("connect to {address}")))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// What the clients have seen.
#[derive(Default)]
struct Load {
    /// How long each answer took, the shortest first.
    times: Vec<Duration>,
    refused: usize,
    took: Duration,
}

impl Load {
    /// The time that so many of a hundred answers did not exceed.
    fn percentile(&self, percent: usize) -> u128 {
        let last = self.times.len().saturating_sub(1);
        let time = self.times.get(last * percent / 100);
        time.map_or(0, Duration::as_micros)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = self.times.len() as f64 / self.took.as_secs_f64().max(1e-9);
        write!(
            f,
            "{:>8} {:>8} {per_second:>9.0} {:>8} {:>8} {:>8}",
            self.times.len(),
            self.refused,
            self.percentile(50),
            self.percentile(99),
            self.percentile(100),
        )
    }
}

struct Options {
    works: Vec<Work>,
    threads: usize,
    connections: usize,
    requests: usize,
    queue: usize,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self {
            works: vec![Work::Short, Work::Compute, Work::Sleep],
            threads: 4,
            connections: 32,
            requests: 500,
            queue: 4,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Long("work") => options.works = works(parser)?,
                Long("threads") => options.threads = support::count(parser, "--threads")?,
                Long("connections") => {
                    options.connections = support::count(parser, "--connections")?;
                }
                Long("requests") => options.requests = support::count(parser, "--requests")?,
                Long("queue") => options.queue = support::count(parser, "--queue")?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}

fn works(parser: &mut Parser) -> Result<Vec<Work>, lexopt::Error> {
    let name: String = support::value(parser, "--work", "a kind of work")?;
    match name.as_str() {
        "short" => Ok(vec![Work::Short]),
        "compute" => Ok(vec![Work::Compute]),
        "sleep" => Ok(vec![Work::Sleep]),
        "all" => Ok(vec![Work::Short, Work::Compute, Work::Sleep]),
        other => {
            let text = format!("--work {other:?}: want short, compute, sleep or all");
            Err(support::mistake(text))
        }
    }
}
