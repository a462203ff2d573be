//! Runs rounds in a process of their own, and reports the one that failed.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{Pool, Signal, TaskContext};

use crate::misuse::{
    attacks,
    log::Log,
    process,
    round::{self, Round},
    WORLDS,
};

/// A round takes some milliseconds; only a hang takes so long.
const ROUND: Duration = Duration::from_secs(40);

/// So many rounds each test runs, if nothing else is asked for.
const ROUNDS: u64 = 100;

/// After so many rounds the memory of the process is compared.
const WARM: u64 = 200;

/// The pages that later rounds may add: a leak of a kilobyte per round is found within some
/// thousand rounds.
const PAGES: u64 = 8 << 10;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Runs rounds of this world for the time that the environment says, and fails with what failed.
pub(crate) fn run(world: &str) {
    let seed = number("PACELINE_MISUSE_SEED");
    let without = env::var("PACELINE_MISUSE_WITHOUT").unwrap_or_default();
    let Err(report) = attempt(world, seed, &without, true) else {
        return;
    };
    let failed = seed_in(&report);
    let shortest = match (env::var_os("PACELINE_MISUSE_SHRINK"), failed) {
        (Some(_), Some(seed)) => shrink(world, seed),
        _ => String::new(),
    };
    let seed = failed.unwrap_or_default();
    panic!(
        "{report}\n{shortest}\na round of {world} failed; again: \
         PACELINE_MISUSE_SEED={seed} cargo test --test stress misuse::{world}"
    );
}

/// The seed of the round that was begun last.
fn seed_in(report: &str) -> Option<u64> {
    let line = report
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("round "))?;
    line.trim().parse().ok()
}

/// One process. `Err`: what it printed of the round that failed.
fn attempt(world: &str, seed: Option<u64>, without: &str, shows: bool) -> Result<(), String> {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "misuse::rounds",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("PACELINE_MISUSE_WORLD", world)
        .env("PACELINE_MISUSE_WITHOUT", without)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(seed) = seed {
        command.env("PACELINE_MISUSE_SEED", seed.to_string());
    }
    let mut child = command.spawn().unwrap();
    let printed = BufReader::new(child.stderr.take().unwrap());
    let mut report = String::new();
    for line in printed.lines().map_while(Result::ok) {
        if line.starts_with("round ") {
            report.clear();
        }
        if shows && line.starts_with("misuse: slow") {
            let _ = writeln!(std::io::stderr(), "{line} (seed {:?})", seed_in(&report));
            continue;
        }
        if shows && line.starts_with("misuse: ") {
            let _ = writeln!(std::io::stderr(), "{line}");
            continue;
        }
        report.push_str(&line);
        report.push('\n');
    }
    let status = child.wait().unwrap();
    if status.success() {
        return Ok(());
    }
    Err(format!("{report}{status}"))
}

/// Leaves out operations for as long as the plan still fails; chance has a part in it, so each is
/// tried several times.
fn shrink(world: &str, seed: u64) -> String {
    let count = plan(world, seed).len();
    let mut without: Vec<usize> = Vec::new();
    let fails = |without: &[usize]| {
        let list: Vec<_> = without.iter().map(usize::to_string).collect();
        (0..3).any(|_| attempt(world, Some(seed), &list.join(","), false).is_err())
    };
    let mut piece = count.div_ceil(2);
    while piece > 0 {
        for first in (0..count).step_by(piece) {
            let mut fewer = without.clone();
            fewer.extend((first..count.min(first + piece)).filter(|n| !without.contains(n)));
            if fewer.len() > without.len() && fails(&fewer) {
                without = fewer;
            }
        }
        piece /= 2;
    }
    let mut shortest = plan(world, seed);
    shortest.leave_out(&without);
    format!("shortest plan:\n{shortest}without {without:?}")
}

fn plan(world: &str, seed: u64) -> Box<dyn Round> {
    let world = WORLDS
        .iter()
        .find(|it| it.name == world)
        .expect("a world of this name");
    (world.plan)(seed)
}

/// Runs rounds in this process, if it was started for that.
pub(crate) fn child() {
    let Ok(world) = env::var("PACELINE_MISUSE_WORLD") else {
        return;
    };
    let without = env::var("PACELINE_MISUSE_WITHOUT").unwrap_or_default();
    let without: Vec<usize> = without
        .split(',')
        .filter_map(|it| it.parse().ok())
        .collect();
    attacks::start_sender();
    let watch = Watch::start();
    hear_once();
    if let Some(seed) = number("PACELINE_MISUSE_SEED") {
        for _ in 0..number("PACELINE_MISUSE_TIMES").unwrap_or(20) {
            let mut plan = plan(&world, seed);
            plan.leave_out(&without);
            run_round(&watch, &*plan);
        }
        return;
    }
    run_many(&watch, &world);
}

/// The sockets of a place for signals stay when it is free again, for the next one: so they belong
/// to no round.
fn hear_once() {
    let pool = Pool::builder().threads(1).build().unwrap();
    let heard = pool
        .sources()
        .signals([Signal::WINCH], |_: Signal, _: &mut TaskContext<'_>| ());
    heard.unwrap();
    let _ = pool.shutdown(ROUND);
}

fn run_many(watch: &Watch, world: &str) {
    let seconds = number("PACELINE_MISUSE_SECONDS");
    let first = number("PACELINE_MISUSE_FIRST").unwrap_or(1);
    let usual = seconds.map_or(ROUNDS, |_| u64::MAX);
    let rounds = number("PACELINE_MISUSE_ROUNDS").unwrap_or(usual);
    let time = seconds.map_or(Duration::MAX, Duration::from_secs);
    let (start, mut outcome) = (Instant::now(), Instant::now());
    let mut warm = None;
    for done in 0..rounds {
        if start.elapsed() >= time {
            break;
        }
        run_round(watch, &*plan(world, first + done));
        if done == WARM {
            warm = Some(process::pages());
        }
        if outcome.elapsed() > Duration::from_secs(10) {
            outcome = Instant::now();
            eprintln!("misuse: {world}: {done} rounds in {:?}", start.elapsed());
        }
    }
    let more = warm.map(|pages| process::pages().saturating_sub(pages));
    assert!(
        more.is_none_or(|more| more < PAGES),
        "S2: memory grew by {more:?} pages"
    );
}

/// One round. It prints its seed first, and its plan when it fails.
fn run_round(watch: &Watch, plan: &dyn Round) {
    eprintln!("round {}", plan.seed());
    if std::env::var_os("PACELINE_MISUSE_PRINT").is_some() {
        eprintln!("{plan}");
    }
    let log = watch.begin(plan);
    let wrong = round::run(plan, &log);
    watch.end();
    if !wrong.is_empty() {
        eprintln!("{plan}{}", log.report());
        wrong.iter().for_each(|wrong| eprintln!("FAILED: {wrong}"));
        std::process::exit(3);
    }
}

/// The plan of the round that runs, and what has happened in it.
type Running = (String, Arc<Log>);

/// Ends the process when a round hangs.
struct Watch {
    /// Rounds begun and ended: odd while one runs.
    beats: Arc<AtomicU64>,
    now: Arc<Mutex<Option<Running>>>,
}

impl Watch {
    fn start() -> Self {
        let watch = Self {
            beats: Arc::default(),
            now: Arc::default(),
        };
        let (beats, now) = (Arc::clone(&watch.beats), Arc::clone(&watch.now));
        thread::spawn(move || loop {
            let before = beats.load(Ordering::SeqCst);
            thread::sleep(ROUND);
            if before % 2 == 1 && beats.load(Ordering::SeqCst) == before {
                let now = now.lock().unwrap();
                let (plan, log) = now.as_ref().expect("a round runs");
                eprintln!("{plan}{}FAILED: the round hangs", log.report());
                std::process::exit(4);
            }
        });
        watch
    }

    fn begin(&self, plan: &dyn Round) -> Arc<Log> {
        let log = Arc::new(Log::default());
        *self.now.lock().unwrap() = Some((plan.to_string(), Arc::clone(&log)));
        self.beats.fetch_add(1, Ordering::SeqCst);
        log
    }

    fn end(&self) {
        self.beats.fetch_add(1, Ordering::SeqCst);
    }
}
