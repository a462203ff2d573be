//! A UDP echo server: one socket, several threads that receive from it at once.
//!
//! ```text
//! cargo run --release --example udp_echo -- --listen 127.0.0.1:7000 --threads 4
//! ```
//!
//! Then, from another terminal: `nc -u 127.0.0.1 7000`. Ctrl-C stops it gracefully, and it says how
//! many datagrams each thread has answered.

use std::{
    collections::BTreeMap,
    env, io,
    net::UdpSocket,
    process::ExitCode,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use paceline::{scratch, ConcurrentContext, ConcurrentHandler, Interest, Next, Pool, SetKind};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

const HELP: &str = "\
A UDP echo server on a Leader/Followers pool: several threads receive from one socket at once.

usage: udp_echo [--listen ADDR] [--threads N] [--set SET] [--sleep MICROSECONDS]

  --listen ADDR   where to listen (default 127.0.0.1:7000; port 0 lets the system choose)
  --threads N     how many threads take turns (default 4)
  --set SET       where they wait: leader (default: one of them, in edge-triggered epoll) or concurrent (all at once:
                  none leads, and none is promoted or woken)
  --sleep N       sleep for N microseconds before each answer (default 0). Answers that take no time stay on one
                  thread, whose caches are warm; with `--sleep 1000` you see several at work
  --help          this text

It prints `listening on ADDR` when it is ready. SIGINT and SIGTERM (Ctrl-C) stop it; it then says how many
datagrams each thread has answered. Try it with `nc -u HOST PORT`.";

fn main() -> ExitCode {
    let result = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => serve(&options),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("udp_echo: {mistake}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("udp_echo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Sends each datagram back to where it came from. Shared by all threads: `&self`.
#[derive(Clone, Default)]
struct Echo {
    /// What an answer takes.
    sleep: Duration,
    /// How many each thread has answered.
    answered: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl ConcurrentHandler<UdpSocket> for Echo {
    fn ready(&self, cx: &mut ConcurrentContext<'_, UdpSocket>) -> io::Result<Next> {
        let mut buffer = scratch();
        let (count, peer) = cx.try_read(|socket| socket.recv_from(&mut buffer))?;
        if !self.sleep.is_zero() {
            cx.blocking(|| thread::sleep(self.sleep));
        }
        // UDP promises nothing: an answer that does not fit now is lost.
        let _ = cx.source().send_to(&buffer[..count], peer);
        let name = thread::current().name().unwrap_or("?").to_owned();
        *self.answered.lock().unwrap().entry(name).or_default() += 1;
        Ok(Next::Continue)
    }
}

/// Serves until a signal arrives.
fn serve(options: &Options) -> io::Result<()> {
    // Before the first thread, so that none of them dies of a signal.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let pool = Pool::builder()
        .name("udp")
        .threads(options.threads)
        .handle_set(options.set.clone())
        .build()?;
    let socket = UdpSocket::bind(&options.listen)?;
    let address = socket.local_addr()?;
    let echo = Echo {
        sleep: options.sleep,
        ..Echo::default()
    };
    pool.register_concurrent(socket, Interest::READ, echo.clone())?;
    println!("listening on {address}");
    signals.forever().next();
    let seen = pool.snapshot();
    let report = pool.shutdown(Duration::from_secs(5));
    for (thread, count) in &*echo.answered.lock().unwrap() {
        eprintln!("{thread}: {count}");
    }
    eprintln!(
        "{report}; {} promotions, {} wakes",
        seen.promotions, seen.wakes
    );
    Ok(())
}

struct Options {
    listen: String,
    threads: usize,
    set: SetKind,
    sleep: Duration,
}

impl Options {
    /// `None`: help is wanted.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            listen: "127.0.0.1:7000".to_owned(),
            threads: 4,
            set: SetKind::default(),
            sleep: Duration::ZERO,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--listen" => options.listen = value()?,
                "--threads" => {
                    let text = value()?;
                    let number = text.parse().ok().filter(|number| *number > 0);
                    let mistake = format!("--threads {text}: a number above zero is needed");
                    options.threads = number.ok_or(mistake)?;
                }
                "--set" => {
                    options.set = match value()?.as_str() {
                        "leader" => SetKind::Epoll,
                        "concurrent" => SetKind::Concurrent,
                        other => return Err(format!("--set {other}: no such set")),
                    };
                }
                "--sleep" => {
                    let text = value()?;
                    let number = text
                        .parse()
                        .map_err(|_| format!("--sleep {text}: not a number"))?;
                    options.sleep = Duration::from_micros(number);
                }
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(Some(options))
    }
}
