//! `urgent`: how long an urgent request takes while everybody else keeps every thread busy, with service levels and
//! without.
//!
//! ```text
//!  urgent --- every service in rounds, in random order                                              [run]
//!   |  bulk clients ask again and again; one urgent client asks now and then, and takes the time
//!   |
//!   +-- urgent-serve NAME   one pool for all, or a pool for each class; a process of its own        [serve]
//! ```
//!
//! A connection's first byte is its class. A bulk request computes; an urgent one does nothing. In one pool the urgent
//! request waits behind all bulk requests that came before it: that is the inversion. In levels it meets its own kind.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use paceline::{Builder, Context, EventHandler, Level, Levels, Next, Pool, QueueOrder};

use crate::{
    answering::Answering,
    progress,
    random::Random,
    service::{compute, steps_of_20us},
    statistics::Spread,
};

/// What is to be measured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UrgentArgs {
    /// A service by name; may be given several times (default: all of them)
    #[arg(long = "service", value_name = "NAME")]
    services: Vec<String>,
    /// Bulk clients
    #[arg(long, default_value_t = 64, value_name = "N")]
    bulk: usize,
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0, value_name = "S")]
    seconds: f64,
}

/// Which service.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Its name
    name: String,
}

/// A way to serve both classes.
struct Service {
    name: &'static str,
    /// The settings of the levels, the urgent one last. One alone: no levels.
    levels: fn() -> Vec<(&'static str, Builder)>,
}

/// Threads in all.
const THREADS: usize = 4;

/// So many times 20 us are a bulk request.
const BULK_WORK: u32 = 25;

/// The urgent client rests so long between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// The most that a bulk request waits where that is limited.
const AGE_LIMIT: Duration = Duration::from_millis(8);

/// What starting and ending the processes takes, and the first tenth, which does not count.
const OVERHEAD: Duration = Duration::from_millis(800);

const SERVICES: &[Service] = &[
    Service {
        name: "one-pool",
        levels: || vec![("all", Pool::builder().threads(THREADS))],
    },
    Service {
        name: "levels",
        levels: || in_levels(half()),
    },
    Service {
        name: "levels-nice",
        levels: || in_levels(half().thread_nice(|_| 10)),
    },
    Service {
        name: "levels-nice-aged",
        levels: || {
            let bulk = half().thread_nice(|_| 10).age_limit(AGE_LIMIT);
            in_levels(bulk.queue_order(QueueOrder::Newest))
        },
    },
];

fn half() -> Builder {
    Pool::builder().threads(THREADS / 2)
}

fn in_levels(bulk: Builder) -> Vec<(&'static str, Builder)> {
    vec![("bulk", bulk), ("urgent", half())]
}

/// What one measurement saw.
struct Seen {
    /// Of each urgent request, sorted.
    urgent: Vec<Duration>,
    /// Bulk requests a second that were answered, and that were turned away.
    bulk: [f64; 2],
}

impl Seen {
    /// In microseconds.
    fn at(&self, part: f64) -> f64 {
        let last = self.urgent.len().saturating_sub(1);
        let took = self.urgent.get((last as f64 * part) as usize);
        took.map_or(f64::NAN, |took| took.as_secs_f64() * 1e6)
    }
}

/// Measures, and prints a table.
///
/// # Errors
/// A name is unknown, or a process can't be started.
pub(crate) fn run(args: &UrgentArgs) -> io::Result<()> {
    for name in &args.services {
        find(name)?;
    }
    let chosen =
        |name: &&str| args.services.is_empty() || args.services.iter().any(|it| it == name);
    let names = SERVICES.iter().map(|service| service.name);
    let mut names: Vec<_> = names.filter(chosen).collect();
    let mut found: BTreeMap<&str, Vec<Seen>> = BTreeMap::new();
    let mut random = Random::seeded();
    let count = (names.len() * args.runs) as u64;
    let bar = progress::bar(count, args.seconds, OVERHEAD);
    for _ in 0..args.runs {
        random.shuffle(&mut names);
        for name in &names {
            bar.set_message(*name);
            let server = Answering::start(["urgent-serve", *name])?;
            let address = server.address.parse().map_err(io::Error::other)?;
            let seen = measure(address, args.bulk, args.seconds)?;
            found.entry(*name).or_default().push(seen);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    print(&found);
    Ok(())
}

fn print(found: &BTreeMap<&str, Vec<Seen>>) {
    println!("| service | urgent p50 us | p99 us | max us | bulk/s | turned away/s |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for service in SERVICES {
        let Some(seen) = found.get(service.name) else {
            continue;
        };
        let cell = |value: &dyn Fn(&Seen) -> f64| match Spread::of(seen.iter().map(value)) {
            Some(it) => format!("{:.0} [{:.0}-{:.0}]", it.median, it.min, it.max),
            None => "-".to_owned(),
        };
        let cells = [
            service.name.to_owned(),
            cell(&|it| it.at(0.5)),
            cell(&|it| it.at(0.99)),
            cell(&|it| it.at(1.0)),
            cell(&|it| it.bulk[0]),
            cell(&|it| it.bulk[1]),
        ];
        println!("| {} |", cells.join(" | "));
    }
}

/// Bulk clients keep the service busy; one urgent client asks now and then.
fn measure(address: SocketAddr, bulk: usize, seconds: f64) -> io::Result<Seen> {
    let (is_over, counts) = (
        AtomicBool::new(false),
        [AtomicU64::new(0), AtomicU64::new(0)],
    );
    thread::scope(|scope| {
        let clients: Vec<_> = (0..bulk)
            .map(|_| scope.spawn(|| ask_bulk(address, &is_over, &counts)))
            .collect();
        let urgent = ask_urgent(address, Duration::from_secs_f64(seconds), &counts);
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client
                .join()
                .map_err(|_| io::Error::other("a client panicked"))??;
        }
        urgent
    })
}

fn connect(address: SocketAddr, class: u8) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&[class])?;
    Ok(stream)
}

/// The answer to one request.
fn ask(stream: &mut TcpStream) -> io::Result<u8> {
    let mut answer = [0];
    stream.write_all(b"?")?;
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}

fn ask_bulk(address: SocketAddr, is_over: &AtomicBool, counts: &[AtomicU64; 2]) -> io::Result<()> {
    let mut stream = connect(address, b'b')?;
    while !is_over.load(Ordering::Relaxed) {
        let turned_away = ask(&mut stream)? == b'!';
        counts[usize::from(turned_away)].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// After a tenth of the time, in which all come in.
fn ask_urgent(address: SocketAddr, span: Duration, counts: &[AtomicU64; 2]) -> io::Result<Seen> {
    let mut stream = connect(address, b'u')?;
    thread::sleep(span / 10);
    let bulk = || {
        counts
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed) as f64)
    };
    let (before, begin, mut urgent) = (bulk(), Instant::now(), Vec::new());
    while begin.elapsed() < span {
        let start = Instant::now();
        ask(&mut stream)?;
        urgent.push(start.elapsed());
        thread::sleep(PAUSE);
    }
    let (after, seconds) = (bulk(), begin.elapsed().as_secs_f64());
    urgent.sort();
    Ok(Seen {
        urgent,
        bulk: [0, 1].map(|which| (after[which] - before[which]) / seconds),
    })
}

fn find(name: &str) -> io::Result<&'static Service> {
    let found = SERVICES.iter().find(|service| service.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = SERVICES.iter().map(|service| service.name).collect();
        let text = format!(
            "no service is called {name:?}; there are {}",
            names.join(", ")
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// Serves until the standard input ends.
///
/// # Errors
/// A name is unknown, or the pools can't be made.
pub(crate) fn serve(args: &ServeArgs) -> io::Result<()> {
    let (levels, address) = start(find(&args.name)?)?;
    println!("{address}");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    let _ = levels.shutdown(Duration::from_secs(1));
    Ok(())
}

fn start(service: &Service) -> io::Result<(Levels, SocketAddr)> {
    let settings = (service.levels)();
    let names: Vec<_> = settings.iter().map(|(name, _)| *name).collect();
    let builder = settings
        .into_iter()
        .fold(Levels::builder(), |all, (name, settings)| {
            all.level(name, settings)
        });
    let levels = builder.build()?;
    let keys: Vec<Level> = names
        .iter()
        .filter_map(|name| levels.level(name))
        .cloned()
        .collect();
    // Everybody begins in the last one, until the class is known.
    let door = keys.last().and_then(|key| levels.pool(key));
    let door = door.ok_or(io::ErrorKind::NotFound)?;
    let steps = steps_of_20us() * BULK_WORK;
    let bulk = (keys.len() > 1).then(|| keys[0].clone());
    let listener = door.listen("127.0.0.1:0", move |stream, _| {
        let _ = stream.set_nodelay(true);
        Some(Session {
            bulk: bulk.clone(),
            steps,
            class: Class::Unknown,
        })
    })?;
    Ok((levels, listener.local_addr()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Unknown,
    Urgent,
    Bulk,
}

/// One connection.
struct Session {
    /// The level that bulk connections move to; `None`: none moves.
    bulk: Option<Level>,
    /// What a bulk request computes.
    steps: u32,
    class: Class,
}

impl EventHandler<TcpStream> for Session {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut byte = [0];
        if cx.read(&mut byte)? == 0 {
            return Ok(Next::Close);
        }
        match (self.class, byte) {
            (Class::Unknown, [b'u']) => self.class = Class::Urgent,
            (Class::Unknown, _) => {
                self.class = Class::Bulk;
                if let Some(level) = &self.bulk {
                    return cx.move_to(level);
                }
            }
            (class, _) => {
                if class == Class::Bulk {
                    compute(self.steps);
                }
                cx.write_all(b".")?;
            }
        }
        Ok(Next::Continue)
    }

    /// It waited too long, and is refused at once.
    fn expired(&mut self, cx: &mut Context<'_, TcpStream>, _: Duration) -> io::Result<Next> {
        if self.class == Class::Unknown {
            return self.ready(cx);
        }
        match cx.read(&mut [0])? {
            0 => Ok(Next::Close),
            _ => cx.write_all(b"!").map(|()| Next::Continue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every service answers both classes.
    #[test]
    fn every_service_answers() {
        for service in SERVICES {
            let (levels, address) = start(service).unwrap();
            let seen = measure(address, 8, 0.2).unwrap();
            assert!(!seen.urgent.is_empty(), "{}", service.name);
            assert!(seen.bulk.iter().sum::<f64>() > 0.0, "{}", service.name);
            let report = levels.shutdown(Duration::from_secs(30));
            assert!(report.is_clean(), "{report}");
        }
    }

    #[test]
    fn an_unknown_service_is_named() {
        let error = find("nobody").err().unwrap().to_string();
        assert!(
            error.contains("nobody") && error.contains("one-pool"),
            "{error}"
        );
    }
}
