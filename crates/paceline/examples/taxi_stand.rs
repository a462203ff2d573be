//! The pattern as a taxi stand in the terminal: a real pool at work, slowly enough to be watched.
//!
//! ```text
//! cargo run --release --example taxi_stand
//! cargo run --release --example taxi_stand -- --wake eager --order oldest
//! ```
//!
//! A cab is a thread of the pool, a passenger an event (bytes on a socket of its own), a ride a
//! handler that blocks. `--help` explains the pattern in a minute; Ctrl-C ends the day early.
//!
//! Here is what uses the pool. `taxi_stand/stand.rs` is what an observer makes of its threads'
//! roles, `taxi_stand/screen.rs` draws it.

#[path = "taxi_stand/screen.rs"]
mod screen;
#[path = "taxi_stand/stand.rs"]
mod stand;

use std::{
    env,
    fmt::Debug,
    io::{self, IsTerminal, Write},
    ops::RangeInclusive,
    os::unix::net::UnixStream,
    process::ExitCode,
    str::FromStr,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{Context, Interest, Next, Order, Pool, Wake};
use screen::Screen;
use signal_hook::consts::{SIGINT, SIGTERM};
use stand::SharedStand;

const HELP: &str = "\
The Leader/Followers pattern as a taxi stand, on a real pool of threads.

usage: taxi_stand [options]

  --cabs N        cabs, the threads of the pool, 1 to 9 (default 7)
  --order ORDER   which follower leads next: newest (default), oldest, priority (the highest
                  number first) or system (whomever the operating system picks)
  --wake WAKE     when it is woken: adaptive (where it pays; default) or eager (every time)
  --rate N        passengers per second, 0.1 to 5 (default 1)
  --seconds N     how long passengers come, 1 to 120 (default 20)
  --seed N        another number, another day (default 4)
  --plain         one line per change, no picture (also if stdout is no terminal)
  --help          this text

The pattern in a minute. A passenger is an event, a cab a thread, a ride a handler. Only the cab
in front, the LEADER, looks out for passengers; the FOLLOWERS behind it sleep. When a passenger
arrives, the leader first gives the front away (it PROMOTES) and then drives off (it PROCESSES):
so the next passenger finds a leader, however long the ride is. No passenger is ever handed from
one cab to another. A cab that returns leads if no cab does, and else follows.

Some passengers only ask the way. The eager wake calls another cab to the front for these too;
the adaptive one leaves the front open, and the same cab takes it back: no wake. An
announced ride (`cx.blocking`) wakes a cab at once. After another one the front stays open until one
follower, the standby, has polled: a tick, or a few in a calm pool. (A tick is 400 ms here,
so that you can see it; a pool's is 0.5 ms.) Once most rides proved long, the pool wakes ahead.

Try --wake eager and compare the wakes; --cabs 2, where all cabs may be away and the events wait
in the handle set; --order oldest, and compare the rides per cab at the end.";

/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(125);
/// The period of the standby.
const TICK: Duration = Duration::from_millis(400);
/// How long the last rides may take after the last passenger came.
const LAST_RIDES: Duration = Duration::from_secs(6);
/// How long the pool may take to end: longer than any ride.
const CLOSING: Duration = Duration::from_secs(3);
const NAMES: [&str; 16] = [
    "Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Lea", "Max",
    "Nina", "Otto", "Pia",
];

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => report(run(options)),
        Ok(None) => report(writeln!(io::stdout(), "{HELP}")),
        Err(mistake) => {
            eprintln!("taxi_stand: {mistake} (--help explains more)");
            ExitCode::from(2)
        }
    }
}

/// One day at the stand: passengers come, the pool serves them, this thread draws.
fn run(options: Options) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let stand = SharedStand::new(options);
    let pool = open_pool(options, &stand)?;
    let mut passengers = passengers(options).into_iter().peekable();
    let mut screen = Screen::open(options.plain)?;
    let opened = Instant::now();
    while !stop.load(Ordering::Relaxed) && opened.elapsed() < options.seconds + LAST_RIDES {
        while let Some(passenger) = passengers.next_if(|next| next.comes <= opened.elapsed()) {
            hail(&pool, &stand, passenger)?;
        }
        screen.show(&stand, &pool.snapshot())?;
        match passengers.peek() {
            Some(next) => thread::sleep(FRAME.min(next.comes.saturating_sub(opened.elapsed()))),
            None if stand.look().is_quiet() => break,
            None => thread::sleep(FRAME),
        }
    }
    drop(screen);
    writeln!(
        io::stdout(),
        "the stand closes; who drives comes back first"
    )?;
    let left = pool.shutdown(CLOSING);
    let summary = screen::summary(&stand.look(), &pool.snapshot());
    writeln!(io::stdout(), "{summary}\nshutdown: {left}")
}

fn open_pool(options: Options, stand: &SharedStand) -> io::Result<Pool> {
    let mut builder = Pool::builder()
        .name("cab")
        .threads(options.cabs)
        .order(options.order)
        .wake(options.wake)
        .tick(TICK)
        .observer(stand.clone());
    if options.order == Order::Priority {
        builder = builder.thread_priority(|cab| cab as u8);
    }
    builder.build()
}

/// What a handler gets: the pool's end of a passenger's connection.
type Street<'c> = Context<'c, UnixStream>;

/// A passenger arrives at the stand. Three handlers of three types, because the pool learns of each
/// type whether its calls are long.
fn hail(pool: &Pool, stand: &SharedStand, passenger: Passenger) -> io::Result<()> {
    let drive = move || thread::sleep(passenger.ride);
    match passenger.wish {
        Wish::Ask => call(pool, stand, passenger, |_| {}),
        Wish::ToldRide => call(pool, stand, passenger, move |cx| cx.blocking(drive)),
        Wish::UntoldRide => call(pool, stand, passenger, move |_| drive()),
    }
}

/// A connection with something to read: that is an event. Its handler reads, and then does `serve`;
/// the front was given away before.
fn call(
    pool: &Pool,
    stand: &SharedStand,
    passenger: Passenger,
    serve: impl Fn(&mut Street<'_>) + Send + 'static,
) -> io::Result<()> {
    let (cab_side, mut street_side) = UnixStream::pair()?;
    street_side.write_all(passenger.name.as_bytes())?;
    stand.look().wait_for_cab(passenger);
    let stand = stand.clone();
    pool.register(cab_side, Interest::READ, move |cx: &mut Street<'_>| {
        cx.read(&mut [0; 8])?;
        stand.pick_up(passenger);
        serve(cx);
        Ok(Next::Close)
    })?;
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    /// A question for the way: a handler of a few microseconds.
    Ask,
    /// A ride that the handler announces to the pool.
    ToldRide,
    /// A ride that the pool has to find out about.
    UntoldRide,
}

#[derive(Clone, Copy, Debug)]
struct Passenger {
    name: &'static str,
    wish: Wish,
    ride: Duration,
    /// When, after the start. No two come at the same time.
    comes: Duration,
}

/// The passengers of the day: at random times, by the seed.
fn passengers(options: Options) -> Vec<Passenger> {
    let mut seed = options.seed;
    let mut comes = Duration::from_millis(500);
    let mut all = Vec::new();
    while comes < options.seconds {
        all.push(Passenger {
            name: NAMES[all.len() % NAMES.len()],
            wish: match chance(&mut seed) {
                low if low < 0.3 => Wish::Ask,
                low if low < 0.6 => Wish::ToldRide,
                _ => Wish::UntoldRide,
            },
            ride: Duration::from_secs_f64(1.0 + 1.5 * chance(&mut seed)),
            comes,
        });
        // They come independently of each other: the gaps are exponentially distributed.
        comes += Duration::from_secs_f64(0.001 - chance(&mut seed).ln() / options.rate);
    }
    all
}

/// The next number of splitmix64, as a fraction above zero.
fn chance(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((mixed ^ (mixed >> 31)) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

fn report(ran: io::Result<()>) -> ExitCode {
    match ran {
        // A broken pipe: the reader of the output has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("taxi_stand: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// What was asked for on the command line.
#[derive(Clone, Copy, Debug)]
struct Options {
    cabs: usize,
    order: Order,
    wake: Wake,
    rate: f64,
    seconds: Duration,
    seed: u64,
    plain: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cabs: 7,
            order: Order::Newest,
            wake: Wake::Adaptive,
            rate: 1.0,
            seconds: Duration::from_secs(20),
            seed: 4,
            plain: !io::stdout().is_terminal(),
        }
    }
}

const ORDERS: [Order; 4] = [Order::Newest, Order::Oldest, Order::Priority, Order::System];
const WAKES: [Wake; 2] = [Wake::Eager, Wake::Adaptive];

impl Options {
    /// `None`: help was asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self::default();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--cabs" => options.cabs = number(&name, &value()?, 1..=9)?,
                "--order" => options.order = choice(&name, &value()?, &ORDERS)?,
                "--wake" => options.wake = choice(&name, &value()?, &WAKES)?,
                "--rate" => options.rate = number(&name, &value()?, 0.1..=5.0)?,
                "--seconds" => {
                    options.seconds = Duration::from_secs(number(&name, &value()?, 1..=120)?);
                }
                "--seed" => options.seed = number(&name, &value()?, 0..=u64::MAX)?,
                "--plain" => options.plain = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(Some(options))
    }
}

fn number<T>(name: &str, text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Debug,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("{name} {text}: not a number in {range:?}"))
}

fn choice<T: Copy + Debug>(name: &str, text: &str, all: &[T]) -> Result<T, String> {
    let called = |one: &&T| format!("{one:?}").to_lowercase() == text;
    let chosen = all.iter().find(called).copied();
    chosen.ok_or_else(|| format!("{name} {text}: not one of {all:?}").to_lowercase())
}
