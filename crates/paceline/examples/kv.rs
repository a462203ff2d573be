//! A key-value server: the model of how to write a protocol on the pool.
//!
//! ```text
//! cargo run --release --example kv -- --listen 127.0.0.1:7001 --threads 4
//! ```
//!
//! Then, from another terminal: `nc 127.0.0.1 7001`, and type `SET colour blue`, `GET colour`.
//! Ctrl-C stops it gracefully.
//!
//! ```text
//!   ready:   rest of last time, then what is there      [Connection::gather]
//!            line by line: answer                       [Connection::answer_lines, Store::answer]
//!            the client does not take the answers?      stop, keep the rest, `Next::Again`
//!            no whole line left?                        keep the rest, `Next::Continue`
//! ```
//!
//! What a connection can make the server hold: an unfinished line while it is idle
//! (`LONGEST_LINE`); while it does not read its answers, one scratch buffer of input and one batch
//! of answers.

use std::{
    collections::HashMap,
    env, io, mem,
    net::TcpStream,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use paceline::{scratch, Context, EventHandler, Next, Pool};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

const HELP: &str = "\
A key-value server on a Leader/Followers pool: one line asks, one line answers.

usage: kv [--listen ADDR] [--threads N]

  --listen ADDR   where to listen (default 127.0.0.1:7001; port 0 lets the system choose)
  --threads N     how many threads take turns (default: four per core)
  --help          this text

  you send          it answers
  SET key value     OK (the value is the rest of the line; spaces are part of it)
  GET key           VALUE value, or NONE
  DEL key           OK, or NONE
  QUIT              BYE, and it closes the connection
  anything else     ERROR and what is wrong; the connection stays

A line has at most 1024 bytes, and ends with a newline, or a carriage return and a newline. There are at
most 100000 keys. Requests may be sent without waiting for answers; these arrive in the same order. A client
that is silent for ten minutes is disconnected.

It prints `listening on ADDR` when it is ready. SIGINT and SIGTERM (Ctrl-C) stop it: listeners close,
what has arrived is still answered, and it reports what was left undone. Try it with `nc HOST PORT`.";

/// Without its end.
const LONGEST_LINE: usize = 1024;
const MOST_KEYS: usize = 100_000;
const IDLE: Duration = Duration::from_secs(600);
/// Answers are collected up to here and sent together.
const BATCH: usize = 16 * 1024;

const TOO_LONG: &[u8] = b"ERROR a line has at most 1024 bytes";
const FULL: &[u8] = b"ERROR there are 100000 keys already";
const UNKNOWN: &[u8] = b"ERROR expected GET key, SET key value, DEL key or QUIT";

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => report(serve(&options)),
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("kv: {mistake}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// One connection.
struct Connection {
    store: Arc<Store>,
    /// Input that has not been answered: an unfinished line, or more if the client does not read.
    rest: Vec<u8>,
    /// The line that is coming in was refused already: throw the rest of it away.
    skipping: bool,
}

impl EventHandler<TcpStream> for Connection {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut buffer = scratch();
        let length = self.gather(&mut buffer, cx)?;
        if length == 0 {
            return Ok(Next::Close);
        }
        let (next, rest) = self.answer_lines(&buffer[..length], cx)?;
        self.rest = rest.to_vec();
        Ok(next)
    }
}

impl Connection {
    /// Puts the rest of last time into `buffer`, and behind it what is there. Zero: the client has
    /// gone. If it has gone in the middle of a line, it does not wait for the answer.
    fn gather(&self, buffer: &mut [u8], cx: &mut Context<'_, TcpStream>) -> io::Result<usize> {
        let kept = self.rest.len();
        buffer[..kept].copy_from_slice(&self.rest);
        if self.rest.contains(&b'\n') {
            return Ok(kept); // Enough to do. And it may fill the buffer: then nothing could be read.
        }
        match cx.read(&mut buffer[kept..])? {
            0 => Ok(0),
            count => Ok(kept + count),
        }
    }

    /// Answers whole lines for as long as the client takes the answers. Returns the rest of the
    /// input.
    fn answer_lines<'i>(
        &mut self,
        mut input: &'i [u8],
        cx: &mut Context<'_, TcpStream>,
    ) -> io::Result<(Next, &'i [u8])> {
        let mut answers = Vec::new();
        while let Some(line) = take_line(&mut input) {
            if mem::take(&mut self.skipping) {
                continue; // It was the end of a line that is refused already.
            }
            if let Next::Close = self.store.answer(line, &mut answers) {
                cx.write_all(&answers)?;
                return Ok((Next::Close, input));
            }
            if answers.len() >= BATCH {
                cx.write_all(&answers)?;
                answers.clear();
                if cx.unsent() != 0 {
                    return Ok((Next::Again, input)); // When all is sent.
                }
            }
        }
        // One more: a carriage return, whose newline has not come yet, does not count.
        if input.len() > LONGEST_LINE + 1 {
            if !mem::replace(&mut self.skipping, true) {
                tell(&mut answers, TOO_LONG);
            }
            input = &[];
        }
        cx.write_all(&answers)?;
        Ok((Next::Continue, input))
    }
}

/// Takes the first line off the input, without its end.
fn take_line<'i>(input: &mut &'i [u8]) -> Option<&'i [u8]> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = &input[..end];
    *input = &input[end + 1..];
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

fn tell(answers: &mut Vec<u8>, line: &[u8]) {
    answers.extend_from_slice(line);
    answers.push(b'\n');
}

/// What all connections share. It is locked for one command at a time, and never while a thread
/// blocks.
#[derive(Default)]
struct Store(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl Store {
    /// Does what a line asks for, and adds one line of answer.
    fn answer(&self, line: &[u8], answers: &mut Vec<u8>) -> Next {
        if line.len() > LONGEST_LINE {
            tell(answers, TOO_LONG);
            return Next::Continue;
        }
        let mut words = line.splitn(3, |byte| *byte == b' ');
        match (words.next(), words.next(), words.next()) {
            (Some(b"GET"), Some(key), None) => match self.values().get(key) {
                Some(value) => tell(answers, &[b"VALUE ", &**value].concat()),
                None => tell(answers, b"NONE"),
            },
            (Some(b"SET"), Some(key), Some(value)) => tell(answers, self.set(key, value)),
            (Some(b"DEL"), Some(key), None) => match self.values().remove(key) {
                Some(_) => tell(answers, b"OK"),
                None => tell(answers, b"NONE"),
            },
            (Some(b"QUIT"), None, None) => {
                tell(answers, b"BYE");
                return Next::Close;
            }
            _ => tell(answers, UNKNOWN),
        }
        Next::Continue
    }

    fn set(&self, key: &[u8], value: &[u8]) -> &'static [u8] {
        let mut values = self.values();
        if values.len() >= MOST_KEYS && !values.contains_key(key) {
            return FULL;
        }
        values.insert(key.to_vec(), value.to_vec());
        b"OK"
    }

    /// Each command is one step, so what a panic leaves behind is whole.
    fn values(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until a signal arrives, then shuts down gracefully.
fn serve(options: &Options) -> io::Result<()> {
    // Before the first thread, so that none of them dies of a signal.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mut builder = Pool::builder().name("kv").idle_timeout(IDLE);
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    let pool = builder
        .on_panic(|handle, message| eprintln!("kv: handler of {handle} panicked: {message}"))
        .build()?;
    let store = Arc::new(Store::default());
    let listener = pool.listen(&*options.listen, move |stream, _peer| {
        // Small answers go out at once. A connection that is gone already will tell.
        let _ = stream.set_nodelay(true);
        Some(Connection {
            store: Arc::clone(&store),
            rest: Vec::new(),
            skipping: false,
        })
    })?;
    println!("listening on {}", listener.local_addr());
    signals.forever().next();
    let report = pool.shutdown(Duration::from_secs(5));
    let seen = pool.snapshot();
    eprintln!(
        "kv: {report}; {} connections, {} of them failed",
        seen.accepted, seen.failed
    );
    Ok(())
}

fn report(served: io::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for on the command line.
struct Options {
    listen: String,
    threads: Option<usize>,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            listen: "127.0.0.1:7001".to_owned(),
            threads: None,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--listen" => options.listen = value()?,
                "--threads" => options.threads = Some(number(&value()?)?),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(Some(options))
    }
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("--threads 0: nobody would serve".to_owned()),
        Ok(threads) => Ok(threads),
        Err(_) => Err(format!("{text} is not a number of threads")),
    }
}
