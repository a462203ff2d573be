//! An echo server on the pool: a handful of threads, thousands of connections.
//!
//! ```text
//! cargo run --release --example echo -- --listen 127.0.0.1:7000 --threads 4
//! ```
//!
//! Then, from another terminal: `nc 127.0.0.1 7000`. Ctrl-C stops it gracefully.

use std::{
    env, io,
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    time::Duration,
};

use paceline::{
    observe::Snapshot, Builder, Closed, Context, EventHandler, Leaders, Next, Order, Pool, SetKind,
    Sets, Wake,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

const HELP: &str = "\
An echo server on a Leader/Followers pool: sends back whatever it receives.

usage: echo [--listen ADDR] [--threads N] [--order ORDER] [--wake WAKE] [--set SET]
            [--sets N [--leaders LEADERS]]

  --listen ADDR   where to listen (default 127.0.0.1:7000; port 0 lets the system choose)
  --threads N     how many threads take turns (default: four per core)
  --order ORDER   which follower leads next: newest (default), oldest, priority, system
  --wake WAKE     when a follower is woken to lead: adaptive (default: where it pays) or
                  eager (the textbook: on every event)
  --set SET       where the leader waits: epoll (default: edge-triggered), oneshot (epoll, armed
                  anew for every event), poll (to be had everywhere) or completion (io_uring); or
                  concurrent (epoll, in which all threads wait at once: none leads, so --order
                  and --wake have no effect)
  --sets N        so many sets (default: one)
  --leaders L     with --sets: assigned (default: each set has its own threads) or roaming (one
                  population, one of which waits in all sets at once; needs more threads than sets)
  --help          this text

It prints `listening on ADDR` when it is ready. SIGINT and SIGTERM (Ctrl-C) stop it: listeners close,
what has arrived is still answered, and it reports what was left undone. Try it with `nc HOST PORT`.";

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => report(serve(&options)),
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("echo: {mistake}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// One connection: each of its bytes is sent back, in order.
struct Echo;

impl EventHandler<TcpStream> for Echo {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut buffer = [0; 16 * 1024];
        match cx.read(&mut buffer)? {
            0 => Ok(Next::Close),
            count => {
                cx.write_all(&buffer[..count])?;
                Ok(Next::Continue)
            }
        }
    }

    fn closed(&mut self, why: Closed) {
        if let Closed::Panicked(message) = why {
            eprintln!("echo: a handler panicked: {message}");
        }
    }
}

/// Serves until a signal arrives, then shuts down gracefully.
fn serve(options: &Options) -> io::Result<()> {
    // Before the first thread, so that none of them dies of a signal.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    match options.sets {
        Some(_) => serve_in_sets(options, &mut signals),
        None => serve_in_one(options, &mut signals),
    }
}

fn serve_in_one(options: &Options, signals: &mut Signals) -> io::Result<()> {
    let mut builder = options.settings(Pool::builder().name("echo"));
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    let pool = builder.build()?;
    let listener = pool.listen(&*options.listen, welcome)?;
    println!("listening on {}", listener.local_addr());
    signals.forever().next();
    let report = pool.shutdown(Duration::from_secs(5));
    tell(&report.to_string(), &pool.snapshot());
    Ok(())
}

fn serve_in_sets(options: &Options, signals: &mut Signals) -> io::Result<()> {
    let mut builder = Sets::builder().leaders(options.leaders);
    builder = builder.sets(options.sets.unwrap_or(1));
    if let Some(threads) = options.threads {
        builder = builder.threads(threads);
    }
    let of_each = options.clone();
    let sets = builder.each(move |_, settings| of_each.settings(settings));
    let sets = sets.build()?;
    let listener = sets.listen(&*options.listen, welcome)?;
    println!("listening on {}", listener.local_addr());
    signals.forever().next();
    let reports = sets.shutdown(Duration::from_secs(5));
    for (set, (report, seen)) in reports.iter().zip(sets.snapshot()).enumerate() {
        tell(&format!("set {set}: {report}"), &seen);
    }
    Ok(())
}

fn welcome(stream: &TcpStream, _peer: SocketAddr) -> Option<Echo> {
    // Small answers go out at once. A connection that is gone already will tell.
    let _ = stream.set_nodelay(true);
    Some(Echo)
}

fn tell(report: &str, seen: &Snapshot) {
    eprintln!(
        "echo: {report}; {} connections, {} promotions, {} wakes, {} looks of the standby",
        seen.accepted, seen.promotions, seen.wakes, seen.ticks
    );
}

fn report(served: io::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for on the command line.
#[derive(Clone)]
struct Options {
    listen: String,
    threads: Option<usize>,
    order: Order,
    wake: Wake,
    set: SetKind,
    sets: Option<usize>,
    leaders: Leaders,
}

impl Options {
    /// What is said of every pool.
    fn settings(&self, builder: Builder) -> Builder {
        let builder = builder
            .order(self.order)
            .wake(self.wake)
            .handle_set(self.set.clone());
        match self.order {
            Order::Priority => builder.thread_priority(|index| index.try_into().unwrap_or(u8::MAX)),
            _ => builder,
        }
    }

    /// `None`: help was asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            listen: "127.0.0.1:7000".to_owned(),
            threads: None,
            order: Order::default(),
            wake: Wake::default(),
            set: SetKind::default(),
            sets: None,
            leaders: Leaders::default(),
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--listen" => options.listen = value()?,
                "--threads" => options.threads = Some(number(&value()?)?),
                "--order" => options.order = order(&value()?)?,
                "--wake" => options.wake = wake(&value()?)?,
                "--set" => options.set = set(&value()?)?,
                "--sets" => options.sets = Some(number(&value()?)?),
                "--leaders" => options.leaders = leaders(&value()?)?,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.sets.is_none() && options.leaders != Leaders::default() {
            return Err("--leaders: there is one set (see --sets)".to_owned());
        }
        if options.threads == Some(0) {
            return Err("--threads 0: nobody would serve".to_owned());
        }
        Ok(Some(options))
    }
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
        "concurrent" => Ok(SetKind::Concurrent),
        "completion" => Ok(SetKind::Completion),
        _ => Err(format!(
            "--set {text}: epoll, oneshot, poll, concurrent or completion is needed"
        )),
    }
}

fn leaders(text: &str) -> Result<Leaders, String> {
    match text {
        "assigned" => Ok(Leaders::Assigned),
        "roaming" => Ok(Leaders::Roaming),
        _ => Err(format!("{text} is no kind of leaders")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}
