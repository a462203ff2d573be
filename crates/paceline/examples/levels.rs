//! Service levels: urgent and bulk clients on one listener. The first byte names the class, and the
//! connection moves to the level of its class.
//!
//! ```text
//! cargo run --release --example levels             # with levels
//! cargo run --release --example levels -- --plain  # without: the urgent ones wait behind the bulk
//! ```
//!
//! It is its own load: bulk clients keep every thread of their level busy, urgent ones ask now and
//! then, and in the end it prints how long each class has waited for its answers.

use std::{
    env,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use paceline::{Context, EventHandler, Level, Levels, Listener, Next, Pool, QueueOrder};

const HELP: &str = "\
Service levels on Leader/Followers pools: one listener, two classes of clients, a pool for each.

usage: levels [--plain] [--seconds N] [--bulk N] [--age-limit MILLISECONDS]

  --plain         one pool for all, with as many threads as the two levels have
  --seconds N     how long the clients ask (default 3)
  --bulk N        how many bulk clients keep the service busy (default 16); urgent ones are always two
  --age-limit MS  a bulk request that waited longer in the line is answered `overloaded` (default: none)
  --help          this text

A connection says `u` or `b` first: its class. A bulk request takes 2 ms of a thread, an urgent one nothing. It prints the
latency of each class; with --plain the urgent ones wait for a thread behind the bulk. (A bulk request sleeps with its
thread; with levels the bulk has half of the threads that it has with --plain, and so is answered half as often.)";

/// What a bulk request takes.
const BULK_WORK: Duration = Duration::from_millis(2);
/// An urgent client asks so often.
const PAUSE: Duration = Duration::from_millis(5);
/// Threads of each level.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let result = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("levels: {mistake}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("levels: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Bulk,
    Urgent,
}

/// One connection.
struct Session {
    /// The level of each class; `None`: no connection moves.
    levels: Option<[Level; 2]>,
    /// Unknown until the first byte.
    class: Option<Class>,
}

impl EventHandler<TcpStream> for Session {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut byte = [0];
        if cx.read(&mut byte)? == 0 {
            return Ok(Next::Close);
        }
        match self.class {
            None => self.classify(cx, byte[0]),
            Some(class) => {
                if class == Class::Bulk {
                    cx.blocking(|| thread::sleep(BULK_WORK));
                }
                cx.write_all(b".")?;
                Ok(Next::Continue)
            }
        }
    }

    /// It waited too long: that is said at once, and the client may come again.
    fn expired(&mut self, cx: &mut Context<'_, TcpStream>, _: Duration) -> io::Result<Next> {
        if self.class.is_none() {
            return self.ready(cx);
        }
        match cx.read(&mut [0])? {
            0 => Ok(Next::Close),
            _ => cx.write_all(b"!").map(|()| Next::Continue),
        }
    }
}

impl Session {
    /// The class is known: the connection continues in its level, with everything that the client
    /// has sent meanwhile.
    fn classify(&mut self, cx: &mut Context<'_, TcpStream>, first: u8) -> io::Result<Next> {
        let class = match first {
            b'u' => Class::Urgent,
            _ => Class::Bulk,
        };
        self.class = Some(class);
        match &self.levels {
            Some(levels) => cx.move_to(&levels[class as usize]),
            None => Ok(Next::Continue),
        }
    }
}

/// Serves both classes, and asks.
fn run(options: &Options) -> io::Result<()> {
    let (levels, listener) = if options.plain {
        serve_plainly()?
    } else {
        serve_in_levels(options)?
    };
    let address = listener.local_addr();
    let is_over = AtomicBool::new(false);
    let (bulk, urgent) = thread::scope(|scope| {
        let is_over = &is_over;
        let start = |class, count| -> Vec<_> {
            let client = |_| scope.spawn(move || ask_until(address, class, is_over));
            (0..count).map(client).collect()
        };
        let clients = [start(Class::Bulk, options.bulk), start(Class::Urgent, 2)];
        thread::sleep(options.time);
        is_over.store(true, Ordering::Relaxed);
        let [bulk, urgent] = clients.map(|clients| {
            let told = clients
                .into_iter()
                .map(|client| client.join().expect("no client panics"));
            told.collect::<io::Result<Vec<_>>>().map(|all| all.concat())
        });
        io::Result::Ok((bulk?, urgent?))
    })?;
    for (class, answers) in [("bulk", bulk), ("urgent", urgent)] {
        println!("{class}: {}", Summary::of(answers));
    }
    for (level, seen) in levels.snapshot() {
        println!(
            "level {level}: {} events, {} expired, {} moved away",
            seen.promotions, seen.expired, seen.moved
        );
    }
    println!("{}", levels.shutdown(Duration::from_secs(5)));
    Ok(())
}

/// One pool for everybody.
fn serve_plainly() -> io::Result<(Levels, Listener)> {
    let all = Levels::builder().level("all", Pool::builder().threads(2 * THREADS));
    let levels = all.build()?;
    let [all] = levels.keys().expect("this one");
    let listener = listen(&levels, &all, None)?;
    Ok((levels, listener))
}

/// A pool for each class. Every connection begins in the urgent one, where waits are short, until
/// its class is known.
fn serve_in_levels(options: &Options) -> io::Result<(Levels, Listener)> {
    let bulk = Pool::builder().threads(THREADS).thread_nice(|_| 10);
    let bulk = match options.age_limit {
        Some(limit) => bulk.age_limit(limit).queue_order(QueueOrder::Newest),
        None => bulk,
    };
    let levels = Levels::builder()
        .level("bulk", bulk)
        .level("urgent", Pool::builder().threads(THREADS))
        .build()?;
    let keys: [Level; 2] = levels.keys().expect("these two");
    let listener = listen(&levels, &keys[1], Some(keys.clone()))?;
    Ok((levels, listener))
}

fn listen(levels: &Levels, at: &Level, goes_to: Option<[Level; 2]>) -> io::Result<Listener> {
    let pool = levels.pool(at).expect("it is of these");
    pool.listen("127.0.0.1:0", move |stream, _| {
        let _ = stream.set_nodelay(true);
        Some(Session {
            levels: goes_to.clone(),
            class: None,
        })
    })
}

/// An answer, and how long it took.
#[derive(Clone, Copy)]
struct Answer {
    took: Duration,
    overloaded: bool,
}

/// A client of a class, which asks until it is over.
fn ask_until(address: SocketAddr, class: Class, is_over: &AtomicBool) -> io::Result<Vec<Answer>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(match class {
        Class::Bulk => b"b",
        Class::Urgent => b"u",
    })?;
    let mut answers = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        stream.write_all(b"?")?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        answers.push(Answer {
            took: start.elapsed(),
            overloaded: answer == *b"!",
        });
        if class == Class::Urgent {
            thread::sleep(PAUSE);
        }
    }
    Ok(answers)
}

/// The figures of a class.
struct Summary {
    served: Vec<Duration>,
    overloaded: usize,
}

impl Summary {
    fn of(answers: Vec<Answer>) -> Self {
        let overloaded = answers.iter().filter(|answer| answer.overloaded).count();
        let served = answers.iter().filter(|answer| !answer.overloaded);
        let mut served: Vec<_> = served.map(|answer| answer.took).collect();
        served.sort();
        Self { served, overloaded }
    }

    fn at(&self, part: f64) -> Duration {
        let last = self.served.len().saturating_sub(1);
        let place = (last as f64 * part) as usize;
        self.served.get(place).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (served, overloaded) = (self.served.len(), self.overloaded);
        let [median, late, worst] = [0.5, 0.99, 1.0].map(|part| self.at(part));
        write!(f, "{served} answers, {overloaded} overloaded, p50 {median:.1?}, p99 {late:.1?}, max {worst:.1?}")
    }
}

/// What was asked for on the command line.
struct Options {
    plain: bool,
    time: Duration,
    bulk: usize,
    age_limit: Option<Duration>,
}

impl Options {
    /// `None`: help was asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            plain: false,
            time: Duration::from_secs(3),
            bulk: 16,
            age_limit: None,
        };
        while let Some(name) = arguments.next() {
            let mut value = || {
                let text = arguments.next().ok_or(format!("{name} needs a value"))?;
                text.parse::<u32>()
                    .map_err(|_| format!("{name} {text}: not a number"))
            };
            match &*name {
                "--plain" => options.plain = true,
                "--seconds" => options.time = Duration::from_secs(value()?.into()),
                "--bulk" => options.bulk = value()? as usize,
                "--age-limit" => options.age_limit = Some(Duration::from_millis(value()?.into())),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.plain && options.age_limit.is_some() {
            Err("--age-limit: only the level of the bulk has one".to_owned())
        } else {
            Ok(Some(options))
        }
    }
}
