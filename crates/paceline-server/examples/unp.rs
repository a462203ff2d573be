//! The request and response test of "UNIX Network Programming": a client sends a line with a number, and
//! gets so many bytes back. This program is the server, and also the clients that check it.
//!
//! ```text
//! cargo run --release -p paceline-server --example unp -- --listen 127.0.0.1:7001
//! cargo run --release -p paceline-server --example unp -- --load 127.0.0.1:7001 --processes 5
//! ```
//!
//! ```text
//!   client   "4000\n"  -------------------------->  Blaster::handle    reads the number
//!            abcdefghij.. (4000 bytes)  <---------  Blaster::again     sends the next part when the
//!                                                                      peer has taken the last one
//! ```
//!
//! An answer may be longer than the output that a connection may keep (256 KiB), so the session returns
//! `Next::Again` between its parts.

mod support;

use std::{
    env,
    io::{self, Read, Write},
    net::TcpStream,
    process::{Child, Command, ExitCode},
    thread,
    time::Duration,
};

use lexopt::{Arg::Long, Parser, ValueExt};
use paceline_server::{
    codec::{line, Malformed, Message},
    Next, Peer, Server, Session,
};

const HELP: &str = "\
The request and response test of \"UNIX Network Programming\": a client sends a line with a number, and
gets so many bytes back: the letters a to z, again and again.

usage: unp [--listen ADDR] [--threads N]                                          the server
       unp --load ADDR [--processes N] [--connections N] [--requests N] [--bytes N]   its clients

  --listen ADDR    where to listen (default 127.0.0.1:7001; port 0 lets the system choose)
  --threads N      how many threads serve (default: four per core)
  --load ADDR      be the clients of the server at ADDR
  --processes N    how many processes (default 1)
  --connections N  how many connections each process has at once (default 10)
  --requests N     how many requests each connection sends, one after the other (default 100)
  --bytes N        how many bytes each request asks for (default 4000, at most 16777216)
  --help           this text

The server prints `listening on ADDR` when it is ready. Ctrl-C or SIGTERM ends it gracefully, and it
prints a report. The clients check each byte, and exit with status 1 if one of them is wrong or missing.
By hand: `echo 30 | nc -N 127.0.0.1 7001`.";

const MOST_BYTES: usize = 16 << 20;

/// Each part of an answer, but for the last one: it begins with `a`, and so does the part behind it.
static PART: [u8; 26 * 1024] = {
    let mut part = [0; 26 * 1024];
    let mut at = 0;
    while at < part.len() {
        part[at] = b'a' + (at % 26) as u8;
        at += 1;
    }
    part
};

/// Only a server that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    support::main("unp", HELP, Options::parse, |options| match &options.load {
        None => serve(&options),
        Some(_) if options.processes > 1 => load_from_processes(&options),
        Some(address) => load(address, &options),
    })
}

fn serve(options: &Options) -> io::Result<()> {
    let mut server = Server::builder().listen(&*options.listen, line(20), |_peer| Blaster(0));
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    server.run_with(support::announce)
}

/// One connection of the server, and how many bytes of its answer are not sent yet.
struct Blaster(usize);

impl Session for Blaster {
    /// The limit of the codec is for replies too, so the errors are sent as they are.
    fn handle(&mut self, line: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        match line.as_str()?.trim().parse() {
            Ok(bytes @ 1..=MOST_BYTES) => {
                self.0 = bytes;
                self.again(cx)
            }
            _ => {
                cx.send(format!("error: want a number from 1 to {MOST_BYTES}\r\n"))?;
                Ok(Next::CloseGently)
            }
        }
    }

    fn again(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        while self.0 > 0 {
            if cx.unsent() > 0 {
                return Ok(Next::Again);
            }
            let part = &PART[..self.0.min(PART.len())];
            cx.write_all(part)?;
            self.0 -= part.len();
        }
        Ok(Next::Continue)
    }

    fn malformed(&mut self, why: Malformed, cx: &mut Peer<'_>) {
        let _ = cx.send(format!("error: {why}\r\n"));
    }
}

/// Runs this program several times as clients, and waits for all of them.
fn load_from_processes(options: &Options) -> io::Result<()> {
    let program = env::current_exe()?;
    let children: Vec<_> = (0..options.processes)
        .map(|_| {
            Command::new(&program)
                .args(env::args().skip(1))
                .args(["--processes", "1"])
                .spawn()
        })
        .collect();
    let ended: Vec<_> = children.into_iter().map(wait_for).collect();
    let failed = ended.iter().filter(|ended| ended.is_err()).count();
    if failed > 0 {
        let all = options.processes;
        return Err(io::Error::other(format!(
            "{failed} of {all} processes failed"
        )));
    }
    println!(
        "all {} processes: every answer was right",
        options.processes
    );
    Ok(())
}

fn wait_for(child: io::Result<Child>) -> io::Result<()> {
    let status = child?.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(status.to_string()))
    }
}

/// Sends all requests of this process.
fn load(address: &str, options: &Options) -> io::Result<()> {
    let (connections, requests, bytes) = (options.connections, options.requests, options.bytes);
    let results: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| ask(address, requests, bytes)))
            .collect();
        let joined = clients.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|_| Err(io::Error::other("a client panicked"))))
            .collect()
    });
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    if let Some(first) = failed.first() {
        let text = format!(
            "{} of {connections} connections failed: {first}",
            failed.len()
        );
        return Err(io::Error::other(text));
    }
    println!("{connections} connections: {requests} right answers of {bytes} bytes each");
    Ok(())
}

/// The requests of one connection, one after the other.
fn ask(address: &str, requests: usize, bytes: usize) -> io::Result<()> {
    let connected = TcpStream::connect(address);
    let mut server = connected.map_err(support::attempted(format!("connect to {address}")))?;
    server.set_read_timeout(Some(PATIENCE))?;
    server.set_write_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; PART.len()];
    for request in 1..=requests {
        server.write_all(format!("{bytes}\n").as_bytes())?;
        let answer = check_answer(&mut server, &mut buffer, bytes);
        answer.map_err(support::attempted(format!("read answer {request}")))?;
    }
    server.shutdown(std::net::Shutdown::Write)?;
    if server.read(&mut buffer)? > 0 {
        return Err(io::Error::other("the server sent more than was asked for"));
    }
    Ok(())
}

fn check_answer(server: &mut TcpStream, buffer: &mut [u8], bytes: usize) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = &mut buffer[..left.min(PART.len())];
        server.read_exact(part)?;
        if *part != PART[..part.len()] {
            return Err(io::Error::other("a byte is wrong"));
        }
        left -= part.len();
    }
    Ok(())
}

struct Options {
    listen: String,
    threads: Option<usize>,
    load: Option<String>,
    processes: usize,
    connections: usize,
    requests: usize,
    bytes: usize,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self {
            listen: "127.0.0.1:7001".to_owned(),
            threads: None,
            load: None,
            processes: 1,
            connections: 10,
            requests: 100,
            bytes: 4000,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Long("listen") => options.listen = parser.value()?.string()?,
                Long("threads") => options.threads = Some(support::count(parser, "--threads")?),
                Long("load") => options.load = Some(parser.value()?.string()?),
                Long("processes") => options.processes = support::count(parser, "--processes")?,
                Long("connections") => {
                    options.connections = support::count(parser, "--connections")?;
                }
                Long("requests") => options.requests = support::count(parser, "--requests")?,
                Long("bytes") => options.bytes = support::count(parser, "--bytes")?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}
