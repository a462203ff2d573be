//! Many threads call over one connection, and each gets its own reply: a client with a
//! length-prefixed binary protocol, and its server on a pool.
//!
//! ```text
//! cargo run --release --example bound_client -- --threads 8 --calls 10000
//! ```
//!
//! ```text
//!   request:  id (4 bytes)  length (4)  kind (1)  body      reply:  id (4)  length (4)  body
//!
//!   client    Protocol::encode writes it, Protocol::header reads whose a reply is         [Framed]
//!   server    answers what has arrived, the last one first, so that replies overtake      [Service::ready]
//! ```

use std::{
    env,
    io::{self, Read},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use paceline::{
    bound::{Builder, Elect, Header, Mux, Protocol, Whose},
    Context, EventHandler, Next, Pool,
};

const HELP: &str = "\
Many threads call over one connection; replies arrive in any order, and each thread gets its own.

usage: bound_client [--threads N] [--calls N] [--large BYTES] [--elect ORDER] [--in-order] [--connect ADDR | --serve ADDR]

  --threads N     how many threads call at once (default 8)
  --calls N       how many calls each of them makes (default 10000)
  --large BYTES   meanwhile one more thread fetches a reply of so many bytes, and reads it from the connection by
                  itself: no buffer holds it (default 0: no such thread)
  --elect ORDER   which sleeping thread reads next when the one that reads has its reply: oldest (default) or newest
  --in-order      the server answers in the order of requests; else the last one that has arrived first
  --connect ADDR  to a server that runs elsewhere (127.0.0.1:7006); else one runs in this process, on a pool with two threads
  --serve ADDR    only the server, until its standard input ends; in another terminal `--connect ADDR`
  --help          this text

The connection has no thread of its own. A thread that waits for its reply, and finds that no thread reads, reads for all
until its own reply is there (it leads). The others yield for a moment, and then sleep without a reply. What it prints:

  calls, replies      as many of the one as of the other
  writes              system calls that sent them: fewer than calls, where threads send at the same time
  waits, reads        how often the leader waited for input, and read some
  handed over         replies that the thread that led read for another one: replies that arrive together are read together
  called to read      replies that a sleeping caller was called to read by itself (`--large`; one that leads need not be)
  wakes               sleeping threads that were woken; elected: of these, to lead
  found awake         callers that yielded for a moment, and found their reply or no reader: they needed no
                      wake-up

Try `--threads 1`: no wake at all.";

/// A reply has at most so many bytes.
const MOST: usize = 1 << 30;
const DEADLINE: Duration = Duration::from_secs(30);

/// What is asked.
enum Request {
    /// Send this back.
    Echo([u8; 16]),
    /// Send so many bytes.
    Fetch(u32),
}

const ECHO: u8 = 0;
const FETCH: u8 = 1;

/// The client's side of the protocol.
struct Framed;

impl Protocol for Framed {
    type Request = Request;
    const ID_BITS: u32 = 32;

    fn encode(&self, request: &Request, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let fetched;
        let (kind, body): (u8, &[u8]) = match request {
            Request::Echo(body) => (ECHO, body),
            Request::Fetch(count) => {
                fetched = count.to_be_bytes();
                (FETCH, &fetched)
            }
        };
        out.extend_from_slice(&(id as u32).to_be_bytes());
        let length = u32::try_from(body.len() + 1).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.push(kind);
        out.extend_from_slice(body);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(split_header(bytes).map(|(id, length, _)| Header {
            whose: Whose::Call(id.into()),
            skip: 8,
            length,
        }))
    }
}

/// Id, length, and what follows the header.
fn split_header(bytes: &[u8]) -> Option<(u32, usize, &[u8])> {
    let (id, bytes) = bytes.split_first_chunk()?;
    let (length, bytes) = bytes.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    Some((u32::from_be_bytes(*id), length, bytes))
}

/// The server's side: one connection.
struct Service {
    in_order: bool,
    /// What has arrived and is no whole request.
    rest: Vec<u8>,
    /// So many bytes of a large reply are still to be sent, before anything else.
    owed: usize,
}

/// As much is read, or sent of a large reply, at once.
const PIECE: usize = 64 * 1024;
static ZEROES: [u8; PIECE] = [0; PIECE];

impl EventHandler<TcpStream> for Service {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        if self.owed > 0 {
            return self.send_piece(cx);
        }
        let (mut replies, mut used) = self.answer()?;
        if used == 0 {
            let mut buffer = [0; PIECE];
            let count = cx.read(&mut buffer)?;
            if count == 0 {
                return Ok(Next::Close);
            }
            self.rest.extend_from_slice(&buffer[..count]);
            (replies, used) = self.answer()?;
        }
        self.rest.drain(..used);
        for reply in &replies {
            cx.write_all(reply)?;
        }
        // Behind a request that wants much there may be more.
        if self.owed > 0 || cx.unsent() > 0 || used > 0 {
            Ok(Next::Again)
        } else {
            Ok(Next::Continue)
        }
    }
}

impl Service {
    /// Answers all whole requests, up to one that wants much. The replies, in the order in which
    /// they go out, and how much of the input is answered.
    fn answer(&mut self) -> io::Result<(Vec<Vec<u8>>, usize)> {
        let (mut replies, mut used) = (Vec::new(), 0);
        while let Some((id, length, rest)) = split_header(&self.rest[used..]) {
            if length == 0 || length > PIECE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a bad length"));
            }
            let Some(request) = rest.get(..length) else {
                break;
            };
            used += 8 + length;
            if let (FETCH, Ok(count)) = (request[0], request[1..].try_into()) {
                let count = u32::from_be_bytes(count);
                self.owed = count as usize;
                replies.push([id.to_be_bytes(), count.to_be_bytes()].concat());
                // Nothing may come between this header and its body.
                return Ok((replies, used));
            }
            let body = &request[1..];
            let length = (body.len() as u32).to_be_bytes();
            let reply = [&id.to_be_bytes()[..], &length, body].concat();
            if self.in_order {
                replies.push(reply)
            } else {
                replies.insert(0, reply)
            }
        }
        Ok((replies, used))
    }

    /// One piece of a large reply at a time, as the client takes them.
    fn send_piece(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let count = self.owed.min(PIECE);
        cx.write_all(&ZEROES[..count])?;
        self.owed -= count;
        Ok(Next::Again)
    }
}

fn main() -> ExitCode {
    let result = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("bound_client: {mistake}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bound_client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    if let Some(address) = options.connect {
        return call_all(options, address);
    }
    let pool = Pool::builder().name("server").threads(2).build()?;
    let in_order = options.in_order;
    let address = options.serve.as_deref().unwrap_or("127.0.0.1:0");
    let listener = pool.listen(address, move |stream, _| {
        let _ = stream.set_nodelay(true);
        Some(Service {
            in_order,
            rest: Vec::new(),
            owed: 0,
        })
    })?;
    if options.serve.is_some() {
        println!("listening on {}", listener.local_addr());
        io::copy(&mut io::stdin(), &mut io::sink())?;
    } else {
        call_all(options, listener.local_addr())?;
    }
    println!("{}", pool.shutdown(Duration::from_secs(5)));
    Ok(())
}

/// Makes all calls, and returns their figures.
fn call_all(options: &Options, address: SocketAddr) -> io::Result<()> {
    let builder = Builder::new().elect(options.elect).longest_reply(MOST);
    let mux = builder.connect(address, DEADLINE, Framed)?;
    let begin = Instant::now();
    thread::scope(|scope| {
        let callers = (0..options.threads).map(|number| {
            let mux = &mux;
            scope.spawn(move || call_many(mux, number, options.calls))
        });
        let callers: Vec<_> = callers.collect();
        if options.large > 0 {
            fetch(&mux, options.large)?;
        }
        callers.into_iter().try_for_each(joined)
    })?;
    let took = begin.elapsed();
    let seen = mux.snapshot();
    println!(
        "calls: {}, replies: {}, in {took:.2?}",
        seen.calls, seen.replies
    );
    println!("writes: {}, of {} bytes", seen.writes, seen.bytes_written);
    println!(
        "waits: {}, reads: {}, of {} bytes",
        seen.waits, seen.reads, seen.bytes_read
    );
    println!("handed over: {}", seen.data_handed_over);
    println!("called to read: {}", seen.events_handed_over);
    println!("wakes: {}, elected: {}", seen.wakes, seen.elections);
    println!("found awake: {}", seen.looks_found);
    Ok(())
}

fn joined(caller: thread::ScopedJoinHandle<'_, io::Result<()>>) -> io::Result<()> {
    let ended = caller.join();
    ended.unwrap_or_else(|_| Err(io::Error::other("a caller panicked")))
}

/// One thread's calls. Each reply must be its own.
fn call_many(mux: &Mux<Framed>, thread: usize, calls: usize) -> io::Result<()> {
    for number in 0..calls {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&(thread as u64).to_be_bytes());
        body[8..].copy_from_slice(&(number as u64).to_be_bytes());
        let reply = mux.call(&Request::Echo(body), DEADLINE)?;
        if *reply != body {
            let text = format!("thread {thread}, call {number}: another's reply");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
    Ok(())
}

/// Reads a large reply piece by piece, as it arrives.
fn fetch(mux: &Mux<Framed>, count: u32) -> io::Result<()> {
    let call = mux.prepare()?.send(&Request::Fetch(count))?;
    let mut body = call.join_to_read(DEADLINE)?;
    let (direct, all) = (body.is_direct(), body.remaining());
    let mut piece = [0; PIECE];
    let mut read = 0;
    loop {
        match body.read(&mut piece)? {
            0 => break,
            count => read += count,
        }
    }
    let how = if direct { "by itself" } else { "from a buffer" };
    println!("fetched {read} of {all} bytes, {how}");
    Ok(())
}

/// What was asked for on the command line.
struct Options {
    threads: usize,
    calls: usize,
    large: u32,
    elect: Elect,
    in_order: bool,
    connect: Option<SocketAddr>,
    serve: Option<String>,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            threads: 8,
            calls: 10_000,
            large: 0,
            elect: Elect::Oldest,
            in_order: false,
            connect: None,
            serve: None,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--threads" => options.threads = number(&name, &value()?)?,
                "--calls" => options.calls = number(&name, &value()?)?,
                "--large" => options.large = number(&name, &value()?)?,
                "--elect" => options.elect = order(&value()?)?,
                "--in-order" => options.in_order = true,
                "--connect" => options.connect = Some(address(&value()?)?),
                "--serve" => options.serve = Some(value()?),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.connect.is_some() && options.serve.is_some() {
            return Err("--connect and --serve: one of them, in two terminals".to_owned());
        }
        if options.large as usize > MOST {
            Err(format!("--large is at most {MOST}"))
        } else {
            Ok(Some(options))
        }
    }
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{option} {text}: a number is needed"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("--connect {text}: an address is needed, such as 127.0.0.1:7006"))
}

fn order(text: &str) -> Result<Elect, String> {
    match text {
        "oldest" => Ok(Elect::Oldest),
        "newest" => Ok(Elect::Newest),
        _ => Err(format!("--elect {text}: oldest or newest is needed")),
    }
}
