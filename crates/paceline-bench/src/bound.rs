//! `bound`: many threads that call over one connection, by several kinds of client.
//!
//! ```text
//!  bound --- every client, number of threads and order of replies, in rounds and in random order    [run]
//!   |
//!   +-- bound-serve   answers, in order or the last one first; a process of its own                 [server]
//!   +-- bound-call    the threads that call; a process of its own                                   [clients]
//! ```
//!
//! CPU and switches are those of the calling process. What it prints are medians of the rounds, with the least and the
//! greatest.

mod clients;
mod frames;
mod monitor;
mod server;
mod tasks;

use std::{
    collections::BTreeMap,
    env, io,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Barrier,
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use self::clients::{Client, Role, CLIENTS};
use crate::{answering::Answering, progress, random::Random, statistics::Spread, usage::Sample};

/// What is to be measured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BoundArgs {
    /// A client by name (`list` shows them); may be given several times (default: all of them)
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// How many threads call; may be given several times
    #[arg(long = "threads", value_name = "N", default_values_t = [1, 4, 16, 64])]
    threads: Vec<usize>,
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    seconds: f64,
}

/// What one calling process does.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// The client's name
    client: String,
    /// The server
    address: SocketAddr,
    /// How many threads call
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// For so long
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// How the server answers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Of the requests that have arrived, the last one first
    #[arg(long)]
    pub(crate) reversed: bool,
}

/// What one measurement saw.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Calls that were replied to.
    calls: u64,
    seconds: f64,
    /// Seconds of processor time.
    cpu: f64,
    /// A thread gave its core up, to sleep.
    sleeps: u64,
    /// Its core was taken, or it let others run.
    other_switches: u64,
    /// What the client counted itself, if it does.
    counted: Option<Counted>,
}

impl Seen {
    fn rate(&self) -> f64 {
        self.calls as f64 / self.seconds
    }

    fn cpu_per_call(&self) -> f64 {
        self.cpu / self.calls.max(1) as f64
    }
}

/// Of all calls since the beginning.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) replies: u64,
    pub(crate) wakes: u64,
    pub(crate) elections: u64,
    pub(crate) handed_over: u64,
    pub(crate) writes: u64,
}

/// What starting and ending the processes takes, and their first tenth, which does not count.
const OVERHEAD: Duration = Duration::from_millis(400);

/// Which measurement.
type Entry = (usize, bool, &'static str);

/// Measures, and prints a table.
///
/// # Errors
/// A name is unknown, or a process can't be started.
pub(crate) fn run(args: &BoundArgs) -> io::Result<()> {
    for name in &args.clients {
        find(name)?;
    }
    let chosen = |client: &&Client| {
        args.clients.is_empty() || args.clients.iter().any(|name| name == client.name)
    };
    let mut entries: Vec<Entry> = Vec::new();
    for client in CLIENTS.iter().filter(chosen) {
        for threads in &args.threads {
            entries.extend([false, true].map(|reversed| (*threads, reversed, client.name)));
        }
    }
    let mut found: BTreeMap<Entry, Vec<Seen>> = BTreeMap::new();
    let mut random = Random::seeded();
    let bar = progress::bar((entries.len() * args.runs) as u64, args.seconds, OVERHEAD);
    for _ in 0..args.runs {
        random.shuffle(&mut entries);
        for entry in &entries {
            bar.set_message(format!("{}, {} threads", entry.2, entry.0));
            let seen = measure(*entry, args.seconds)?;
            found.entry(*entry).or_default().push(seen);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    print(&found);
    compare(&found);
    println!("{READING}");
    Ok(())
}

/// One server, one client, one stretch of time.
fn measure((threads, reversed, client): Entry, seconds: f64) -> io::Result<Seen> {
    let server = Answering::start(
        ["bound-serve"]
            .into_iter()
            .chain(reversed.then_some("--reversed")),
    )?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["bound-call", client, &server.address]);
    command.args(["--threads", &threads.to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "{client} failed: {}",
            output.status
        )));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn print(found: &BTreeMap<Entry, Vec<Seen>>) {
    println!("| threads | replies | client | calls/s | CPU/call us | sleeps/call | other switches/call | writes/call | wakes/reply | elections/reply | handed over/reply |");
    println!("| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for ((threads, reversed, client), seen) in found {
        let order = if *reversed { "reversed" } else { "in order" };
        let per_call = |value: &dyn Fn(&Seen) -> f64| {
            spread(seen.iter().map(|it| value(it) / it.calls.max(1) as f64))
        };
        let counted = |value: &dyn Fn(&Counted) -> u64| {
            let all = seen.iter().filter_map(|it| it.counted.as_ref());
            spread(all.map(|it| value(it) as f64 / it.replies.max(1) as f64))
        };
        let cells = [
            threads.to_string(),
            order.to_owned(),
            (*client).to_owned(),
            spread(seen.iter().map(Seen::rate)),
            spread(seen.iter().map(|it| it.cpu_per_call() * 1e6)),
            per_call(&|it| it.sleeps as f64),
            per_call(&|it| it.other_switches as f64),
            counted(&|it| it.writes),
            counted(&|it| it.wakes),
            counted(&|it| it.elections),
            counted(&|it| it.handed_over),
        ];
        println!("| {} |", cells.join(" | "));
    }
}

/// Ours against the best of the others whose callers are threads, round by round: in calls a second, and in CPU.
fn compare(found: &BTreeMap<Entry, Vec<Seen>>) {
    println!("\n| threads | replies | client | calls/s to the best other's | CPU/call to the least other's |");
    println!("| ---: | --- | --- | ---: | ---: |");
    for ((threads, reversed, client), ours) in found {
        if role(client) != Some(Role::Ours) {
            continue;
        }
        let others: Vec<_> = found
            .iter()
            .filter(|((its, order, _), _)| its == threads && order == reversed)
            .filter(|((_, _, name), _)| role(name) == Some(Role::Peer))
            .map(|(_, seen)| seen)
            .collect();
        let best = |round: usize, value: fn(&Seen) -> f64, better: fn(f64, f64) -> f64| {
            let all = others.iter().filter_map(|seen| seen.get(round));
            all.map(value).reduce(better)
        };
        let against = |value: fn(&Seen) -> f64, better: fn(f64, f64) -> f64| {
            let rounds = ours.iter().enumerate();
            spread(
                rounds.filter_map(|(round, seen)| Some(value(seen) / best(round, value, better)?)),
            )
        };
        let order = if *reversed { "reversed" } else { "in order" };
        let rate = against(Seen::rate, f64::max);
        let cpu = against(Seen::cpu_per_call, f64::min);
        println!("| {threads} | {order} | {client} | {rate} | {cpu} |");
    }
}

/// The median, with the least and the greatest.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let shown = |value: f64| match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    };
    match Spread::of(values) {
        Some(it) => format!("{} [{}-{}]", shown(it.median), shown(it.min), shown(it.max)),
        None => "-".to_owned(),
    }
}

/// How to read the tables.
const READING: &str = "
Medians of the rounds, with the least and the greatest. The machine is not judged: on two cores callers and server share
them, and a figure depends on which thread was where.

CPU/call             of the calling process, all its threads
sleeps/call          a thread slept and was woken: dear
other switches/call  a thread let others run, or its core was taken: a tenth of that
writes/call          less than one where threads send together
wakes, elections     threads that were woken for a reply, and of these, to read for all
handed over          replies that one thread has read for another

The second table compares, round by round, with the best of those whose callers are threads, too: tasks are not among them.";

/// Prints the clients, for `list`.
pub(crate) fn list() {
    for client in CLIENTS {
        println!("    {:<22} {}", client.name, client.about);
    }
}

fn role(name: &str) -> Option<Role> {
    let client = CLIENTS.iter().find(|client| client.name == name);
    client.map(|client| client.role)
}

fn find(name: &str) -> io::Result<&'static Client> {
    CLIENTS
        .iter()
        .find(|client| client.name == name)
        .ok_or_else(|| {
            let names: Vec<_> = CLIENTS.iter().map(|client| client.name).collect();
            let text = format!(
                "no client is called {name:?}; there are {}",
                names.join(", ")
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
}

/// Of one calling process: calls for a while, and prints what was seen.
///
/// # Errors
/// A name is unknown, or the server can't be reached.
pub(crate) fn call(args: &CallArgs) -> io::Result<()> {
    let client = find(&args.client)?;
    let seen = (client.run)(args)?;
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}

/// The server, until its standard input ends.
///
/// # Errors
/// There is no socket to be had.
pub(crate) fn serve(args: &AnswerArgs) -> io::Result<()> {
    server::serve(args.reversed)
}

/// Has `threads` threads call by what `caller` makes for each of them, and sees what that takes.
fn with_threads<C>(args: &CallArgs, caller: impl Fn() -> io::Result<C>) -> io::Result<Seen>
where
    C: FnMut(&[u8]) -> io::Result<bool> + Send,
{
    let stretch = Stretch::new(args.threads);
    let callers = (0..args.threads).map(|_| caller());
    let callers: Vec<C> = callers.collect::<io::Result<_>>()?;
    thread::scope(|scope| {
        for (count, mut call) in stretch.counts.iter().zip(callers) {
            let stretch = &stretch;
            scope.spawn(move || {
                stretch.begin.wait();
                while !stretch.over.load(Ordering::Relaxed) {
                    match call(&frames::REQUEST) {
                        Ok(true) => count.fetch_add(1, Ordering::Relaxed),
                        Ok(false) => panic!("another's reply"),
                        Err(error) => panic!("a call failed: {error}"),
                    };
                }
            });
        }
        stretch.begin.wait();
        stretch.measure(args.seconds)
    })
}

/// A stretch of time, and what is counted in it.
struct Stretch {
    counts: Vec<Arc<AtomicU64>>,
    begin: Barrier,
    over: AtomicBool,
}

impl Stretch {
    fn new(threads: usize) -> Self {
        Self {
            counts: (0..threads).map(|_| Arc::default()).collect(),
            begin: Barrier::new(threads + 1),
            over: AtomicBool::new(false),
        }
    }

    fn calls(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Lets it run, and ends it.
    fn measure(&self, seconds: f64) -> io::Result<Seen> {
        let me = Some(std::process::id());
        thread::sleep(Duration::from_secs_f64(seconds / 10.0));
        let before = Sample::begin(me);
        let (calls, begin) = (self.calls(), Instant::now());
        thread::sleep(Duration::from_secs_f64(seconds));
        let seconds = begin.elapsed().as_secs_f64();
        let calls = self.calls() - calls;
        let after = Sample::end(me);
        self.over.store(true, Ordering::Relaxed);
        let used = after?.since(&before?);
        Ok(Seen {
            calls,
            seconds,
            cpu: used.server_cpu,
            sleeps: used.voluntary,
            other_switches: used.involuntary,
            counted: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every client gets its own replies from the real server, in order and not, and counts some. (A caller that gets
    /// another's reply panics.)
    #[test]
    fn every_client_calls() {
        for client in CLIENTS {
            for reversed in [false, true] {
                let address = server::start(reversed).unwrap();
                let args = CallArgs {
                    client: client.name.to_owned(),
                    address,
                    threads: 3,
                    seconds: 0.1,
                };
                let seen = (client.run)(&args).unwrap();
                assert!(seen.seconds >= 0.1, "{}", client.name);
                assert!(seen.counted.is_none_or(|it| it.replies >= seen.calls));
            }
        }
    }

    #[test]
    fn an_unknown_client_is_named() {
        let error = find("nobody").err().unwrap().to_string();
        assert!(
            error.contains("nobody") && error.contains("paceline"),
            "{error}"
        );
    }
}
