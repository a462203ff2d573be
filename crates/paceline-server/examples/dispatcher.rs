//! A port checker: connects to many addresses at once, and prints which of them answer.
//!
//! ```text
//! cargo run --release -p paceline-server --example dispatcher -- localhost:1-1024 example.org:443
//! ```
//!
//! ```text
//!   main            begins as many checks as --at-once allows; each one that ends makes room for the next
//!     Dialer        connects without blocking: a thousand connections under way cost no thread
//!     Check         one connection: connected? does the peer speak first? how long did it take?
//!       closed      called once for each, whatever became of it: sends the result to main
//! ```

mod support;

use std::{
    collections::VecDeque,
    fmt,
    io::{self, BufRead, IsTerminal, Write},
    net::{SocketAddr, ToSocketAddrs},
    process::ExitCode,
    sync::mpsc::{self, Sender},
    time::{Duration, Instant},
};

use lexopt::{
    Arg::{Long, Value},
    Parser, ValueExt,
};
use paceline::{Signal, TaskContext};
use paceline_server::{
    codec::{line, Message},
    Dialer, Ended, Limit, Limits, Next, Peer, Server, Session,
};

const HELP: &str = "\
A port checker: connects to many addresses at once, and prints which of them answer.

usage: dispatcher [options] TARGET..

  TARGET            HOST:PORT or HOST:FIRST-LAST, such as localhost:22, [::1]:8000-8100; - reads targets
                    from standard input, one in each line. All addresses of a name are checked.
  --at-once N       how many connections are under way at once (default 256)
  --within SECONDS  how long a connection may take to be made (default 3)
  --greeting SECONDS
                    how long to wait for a first line of the peer; it is printed (default: not at all)
  --open            print only those that are open
  --threads N       how many threads serve (default: four per core)
  --help            this text

Progress goes to standard error if that is a terminal. Ctrl-C ends it, and what is known is printed.";

const LONGEST_GREETING: usize = 512;

fn main() -> ExitCode {
    support::main("dispatcher", HELP, Options::parse, |options| {
        let mut targets = Vec::new();
        for text in &options.targets {
            read_targets(text, &mut targets)?;
        }
        let checked = check_all(&targets, &options)?;
        print_table(&checked, &options)
    })
}

/// What main hears of.
enum Event {
    /// The check of the target with this number has ended.
    Checked(usize, Outcome),
    /// Ctrl-C.
    Interrupted,
}

/// What became of a check.
enum Outcome {
    /// It took so long to connect, and the peer said this first.
    Open(Duration, String),
    /// No process listens there.
    Refused,
    /// There was no answer in time.
    Silent,
    Failed(String),
}

/// One target, and what became of its check: nothing yet, if the checks were interrupted.
struct Checked {
    target: Target,
    outcome: Option<Outcome>,
}

/// Checks all targets, a bounded number of them at once.
fn check_all(targets: &[Target], options: &Options) -> io::Result<Vec<Checked>> {
    let dialer = Dialer::new("checks")
        .limits(Limits::default().connections(options.at_once))
        .within(options.within);
    let mut server = Server::builder().dialer(&dialer);
    if let Some(threads) = options.threads {
        server = server.threads(threads);
    }
    let server = server.start()?;
    let (events, happened) = mpsc::channel();
    let interrupts = events.clone();
    let interrupt = move |_: Signal, _: &mut TaskContext<'_>| {
        // Main may have ended.
        let _ = interrupts.send(Event::Interrupted);
    };
    let sources = server.pool().sources();
    sources.signals([Signal::INT, Signal::TERM], interrupt)?;

    let mut checked: Vec<_> = targets.iter().cloned().map(Checked::unknown).collect();
    let mut waiting: VecDeque<_> = (0..targets.len()).collect();
    let (mut under_way, mut done) = (0, 0);
    loop {
        while under_way < options.at_once {
            let Some(number) = waiting.pop_front() else {
                break;
            };
            begin(number, &checked[number].target, &dialer, options, &events);
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        match happened.recv() {
            Ok(Event::Checked(number, outcome)) => {
                checked[number].outcome = Some(outcome);
                under_way -= 1;
                done += 1;
                print_progress(done, targets.len());
            }
            Ok(Event::Interrupted) | Err(_) => break,
        }
    }
    end_progress();
    // The last connection may not have left the pool yet.
    let _ = server.drain(Duration::from_secs(1));
    Ok(checked)
}

/// Begins the check of one target. Its end is an event in any case.
fn begin(
    number: usize,
    target: &Target,
    dialer: &Dialer,
    options: &Options,
    events: &Sender<Event>,
) {
    let address = match &target.address {
        Ok(address) => *address,
        Err(why) => {
            let _ = events.send(Event::Checked(number, Outcome::Failed(why.clone())));
            return;
        }
    };
    let check = Check {
        number,
        begun: Instant::now(),
        greeting_time: options.greeting,
        connected: None,
        greeting: String::new(),
        events: events.clone(),
    };
    if let Err(rejected) = dialer.connect(address, line(LONGEST_GREETING), check) {
        rejected.value.end(outcome_of(&rejected.error));
    }
}

/// One connection.
struct Check {
    number: usize,
    begun: Instant,
    greeting_time: Option<Duration>,
    /// How long it took to connect.
    connected: Option<Duration>,
    greeting: String,
    events: Sender<Event>,
}

impl Session for Check {
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.connected = Some(self.begun.elapsed());
        match self.greeting_time {
            None => Ok(Next::Close),
            time => {
                cx.set_deadline(time);
                Ok(Next::Continue)
            }
        }
    }

    fn handle(&mut self, line: Message<'_>, _cx: &mut Peer<'_>) -> io::Result<Next> {
        let text = String::from_utf8_lossy(&line);
        self.greeting = text.chars().filter(|char| !char.is_control()).collect();
        Ok(Next::Close)
    }

    /// The peer does not speak first.
    fn overdue(&mut self, _limit: Limit, _cx: &mut Peer<'_>) -> Next {
        Next::Close
    }

    fn closed(&mut self, why: &Ended) {
        let outcome = match (self.connected, why) {
            (Some(time), _) => Outcome::Open(time, std::mem::take(&mut self.greeting)),
            (None, Ended::Failed(error)) => outcome_of(error),
            (None, why) => Outcome::Failed(why.to_string()),
        };
        self.end(outcome);
    }
}

impl Check {
    fn end(&self, outcome: Outcome) {
        // After an interrupt, main does not wait for it.
        let _ = self.events.send(Event::Checked(self.number, outcome));
    }
}

fn outcome_of(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Outcome::Refused,
        io::ErrorKind::TimedOut => Outcome::Silent,
        _ => Outcome::Failed(error.to_string()),
    }
}

fn print_table(checked: &[Checked], options: &Options) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut counts = [0; 5];
    for Checked { target, outcome } in checked {
        let (column, state, detail) = match outcome {
            Some(Outcome::Open(time, greeting)) => {
                let millis = time.as_secs_f64() * 1e3;
                (0, "open", format!("{millis:8.1} ms  {greeting}"))
            }
            Some(Outcome::Refused) => (1, "refused", String::new()),
            Some(Outcome::Silent) => (2, "no answer", String::new()),
            Some(Outcome::Failed(why)) => (3, "failed", why.clone()),
            None => (4, "not checked", String::new()),
        };
        counts[column] += 1;
        if column == 0 || !options.shows_only_open {
            let text = format!("{target:<40} {state:<12} {detail}");
            writeln!(out, "{}", text.trim_end())?;
        }
    }
    let [open, refused, silent, failed, unknown] = counts;
    write!(
        out,
        "{open} open, {refused} refused, {silent} without an answer, {failed} failed"
    )?;
    if unknown > 0 {
        write!(out, ", {unknown} not checked")?;
    }
    writeln!(out)
}

fn print_progress(done: usize, all: usize) {
    let mut err = io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r{done} of {all} checked");
    }
}

fn end_progress() {
    if io::stderr().is_terminal() {
        eprintln!();
    }
}

/// An address to check, or why there is none.
#[derive(Clone)]
struct Target {
    name: String,
    address: Result<SocketAddr, String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Ok(address) if address.to_string() != self.name => {
                f.pad(&format!("{} ({})", self.name, address.ip()))
            }
            _ => f.pad(&self.name),
        }
    }
}

impl Checked {
    fn unknown(target: Target) -> Self {
        Self {
            target,
            outcome: None,
        }
    }
}

/// Reads `text` as one target, or as the sign for those in standard input.
fn read_targets(text: &str, targets: &mut Vec<Target>) -> io::Result<()> {
    if text != "-" {
        return add_targets(text, targets);
    }
    for line in io::stdin().lock().lines() {
        match line?.trim() {
            "" => {}
            line => add_targets(line, targets)?,
        }
    }
    Ok(())
}

fn add_targets(text: &str, targets: &mut Vec<Target>) -> io::Result<()> {
    let Some((host, first, last)) = split_target(text) else {
        let text = format!("target {text:?}: want HOST:PORT or HOST:FIRST-LAST");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    // The name is resolved once, whatever number of ports follows.
    let found = format!("{host}:{first}").to_socket_addrs();
    let addresses: Vec<SocketAddr> = match found {
        Ok(found) => found.collect(),
        Err(error) => {
            let why = format!("resolve {host:?}: {error}");
            let name = text.to_owned();
            let address = Err(why);
            targets.push(Target { name, address });
            return Ok(());
        }
    };
    for port in first..=last {
        targets.extend(addresses.iter().map(|address| Target {
            name: format!("{host}:{port}"),
            address: Ok(SocketAddr::new(address.ip(), port)),
        }));
    }
    Ok(())
}

/// The host, the first port and the last one.
fn split_target(text: &str) -> Option<(&str, u16, u16)> {
    let (host, ports) = text.rsplit_once(':')?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (!host.is_empty() && first > 0 && first <= last).then_some((host, first, last))
}

struct Options {
    targets: Vec<String>,
    at_once: usize,
    within: Duration,
    greeting: Option<Duration>,
    shows_only_open: bool,
    threads: Option<usize>,
}

impl Options {
    fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self {
            targets: Vec::new(),
            at_once: 256,
            within: Duration::from_secs(3),
            greeting: None,
            shows_only_open: false,
            threads: None,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Value(target) => {
                    let target = target.string()?;
                    if target != "-" && split_target(&target).is_none() {
                        let text = format!("{target:?} is not HOST:PORT or HOST:FIRST-LAST");
                        return Err(support::mistake(text));
                    }
                    options.targets.push(target);
                }
                Long("at-once") => options.at_once = support::count(parser, "--at-once")?,
                Long("within") => options.within = support::seconds(parser, "--within")?,
                Long("greeting") => {
                    options.greeting = Some(support::seconds(parser, "--greeting")?);
                }
                Long("open") => options.shows_only_open = true,
                Long("threads") => options.threads = Some(support::count(parser, "--threads")?),
                other => return Err(other.unexpected()),
            }
        }
        if options.targets.is_empty() {
            return Err(support::mistake("no TARGET is given"));
        }
        Ok(options)
    }
}
