//! Runs workloads against a system, and reports.

mod fault;
mod progress;
mod statistics;

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Mutex, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    append::Append,
    bank::Bank,
    client::{Failure, Session},
    finding::{Finding, Judgement},
    ledger::Ledger,
    options::{Kind, Options},
    report::{Outcome, Report, Verdict},
    workload::{Client, Workload},
};
use fault::Faults;
use statistics::Statistics;

/// How long a client waits before it connects again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// How long a pause without anything to do may be, so that a stop is seen soon.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Why a run did not begin.
#[derive(Debug)]
pub struct NotReady {
    target: String,
    attempt: &'static str,
    failure: Failure,
}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}: {}", self.attempt, self.target, self.failure)
    }
}

impl std::error::Error for NotReady {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}

/// Runs each workload, and reports on all of them.
///
/// # Errors
/// [`NotReady`] if the system can't be reached at the start, or refuses the tables.
pub fn run(options: &Options) -> Result<Report, NotReady> {
    run_until(options, &AtomicBool::new(false))
}

/// Like [`run`], and ends early when `stop` becomes true: what has been done until then is judged.
///
/// # Errors
/// As for [`run`].
pub fn run_until(options: &Options, stop: &AtomicBool) -> Result<Report, NotReady> {
    let command = options.fault.as_ref();
    let make = || command.is_some_and(|(command, _)| fault::shell(command));
    let faults = command.map(|(_, every)| Faults {
        every: *every,
        make: &make,
    });
    run_all(options, stop, faults)
}

/// Like [`run`], while `make` is called again and again, so long after it has returned and clients
/// commit again. It makes one fault, returns when that is over, and says whether it was made. The number of transactions
/// ends no workload before its first fault.
///
/// # Errors
/// As for [`run`].
pub fn run_under(
    options: &Options,
    every: Duration,
    make: &(dyn Fn() -> bool + Sync),
) -> Result<Report, NotReady> {
    run_all(
        options,
        &AtomicBool::new(false),
        Some(Faults { every, make }),
    )
}

fn run_all(
    options: &Options,
    stop: &AtomicBool,
    faults: Option<Faults<'_>>,
) -> Result<Report, NotReady> {
    let verdicts = options.workloads.iter().map(|kind| match kind {
        Kind::Bank => run_one::<Bank>(options, stop, faults),
        Kind::Append => run_one::<Append>(options, stop, faults),
        Kind::Ledger => run_one::<Ledger>(options, stop, faults),
    });
    let verdicts = verdicts.collect::<Result<_, _>>()?;
    Ok(Report::new(options, verdicts))
}

/// Prepares the table of one workload, lets its clients act, and judges.
fn run_one<W: Workload>(
    options: &Options,
    stop: &AtomicBool,
    faults: Option<Faults<'_>>,
) -> Result<Verdict, NotReady> {
    let workload = W::new(options);
    prepare(&workload, options)?;
    let run = Run {
        options,
        stop,
        faults,
        statistics: Mutex::new(Statistics::new()),
        is_over: AtomicBool::new(false),
    };
    let seeds = (0..u64::from(options.clients)).map(|n| options.seed.wrapping_mul(1_009) + n);
    let mut clients: Vec<_> = (0..options.clients)
        .zip(seeds)
        .map(|(number, seed)| workload.client(number, seed))
        .collect();
    run.act(W::NAME, &mut clients);
    let statistics = run.statistics.into_inner();
    let statistics = statistics.unwrap_or_else(PoisonError::into_inner);
    let outcome = match conclude(&workload, &clients, options) {
        Ok(judgement) => outcome_of(judgement, statistics.committed),
        Err(failure) => Outcome::unjudged(&failure, options.recovery),
    };
    Ok(statistics.verdict(W::NAME, outcome))
}

/// A run in which nothing was committed has shown nothing.
fn outcome_of(mut judgement: Judgement, committed: u64) -> Outcome {
    if committed == 0 {
        let text = "no transaction was committed, so nothing was checked";
        judgement.findings.push(Finding::new("nothing done", text));
    }
    Outcome::judged(judgement)
}

fn prepare<W: Workload>(workload: &W, options: &Options) -> Result<(), NotReady> {
    let not_ready = |attempt| {
        let target = options.target.to_string();
        move |failure| NotReady {
            target,
            attempt,
            failure,
        }
    };
    let mut session = open(options).map_err(not_ready("starting a session"))?;
    let prepared = drop_table::<W>(&mut session).and_then(|()| workload.prepare(&mut session));
    prepared.map_err(not_ready("creating a table"))?;
    session.close();
    Ok(())
}

fn drop_table<W: Workload>(session: &mut Session) -> Result<(), Failure> {
    let drop = format!("DROP TABLE IF EXISTS {}", W::TABLE);
    session.query(&drop).map(|_| ())
}

fn open(options: &Options) -> Result<Session, Failure> {
    Session::open(&options.target, options.protocol, options.timeout)
}

/// The session, unless it is over or the server has ended it meanwhile.
fn usable(mut session: Session) -> Option<Session> {
    (!session.is_over() && !session.has_been_ended()).then_some(session)
}

/// The final read and its judgement. The system may still recover from a fault.
fn conclude<W: Workload>(
    workload: &W,
    clients: &[W::Client],
    options: &Options,
) -> Result<Judgement, Failure> {
    let end = Instant::now() + options.recovery;
    loop {
        let judged = open(options).and_then(|mut session| {
            let judgement = workload.conclude(clients, &mut session)?;
            if !options.keep_tables {
                // A table that stays is dropped by the next run.
                let _ = drop_table::<W>(&mut session);
            }
            session.close();
            Ok(judgement)
        });
        match judged {
            Err(_) if Instant::now() < end => thread::sleep(BETWEEN_ATTEMPTS),
            judged => return judged,
        }
    }
}

/// Whether a client may act.
#[must_use]
enum Turn {
    Now,
    Later,
}

/// What the threads of one workload share.
struct Run<'r> {
    options: &'r Options,
    /// The caller wants the end.
    stop: &'r AtomicBool,
    faults: Option<Faults<'r>>,
    statistics: Mutex<Statistics>,
    /// The clients have ended.
    is_over: AtomicBool,
}

impl Run<'_> {
    /// Lets all clients act in threads of their own until the time is over.
    fn act<C: Client>(&self, name: &'static str, clients: &mut [C]) {
        let start = Instant::now();
        let end = start + self.options.duration;
        thread::scope(|scope| {
            let starts = (0..).map(|number| start + self.between() / self.options.clients * number);
            let threads: Vec<_> = clients
                .iter_mut()
                .zip(starts)
                .map(|(client, first)| scope.spawn(move || self.live(client, first, end)))
                .collect();
            scope.spawn(|| progress::show(self, name, start));
            scope.spawn(|| fault::make(self));
            // A client that panics is a defect of this crate, and must not look like a pass.
            for thread in threads {
                if let Err(panic) = thread.join() {
                    self.is_over.store(true, Ordering::Relaxed);
                    std::panic::resume_unwind(panic);
                }
            }
            self.is_over.store(true, Ordering::Relaxed);
        });
        self.statistics().elapsed = start.elapsed();
    }

    /// The life of one client: it connects, acts, and connects again. Its first turn is `next`.
    fn live<C: Client>(&self, client: &mut C, mut next: Instant, end: Instant) {
        let mut session = None;
        while self.goes_on(end) {
            if let Turn::Later = self.take_turn(&mut next) {
                continue;
            }
            let mut current = match session
                .take()
                .and_then(usable)
                .map_or_else(|| open(self.options), Ok)
            {
                Ok(current) => current,
                Err(failure) => {
                    self.statistics().count_refused_connection(&failure);
                    thread::sleep(BETWEEN_ATTEMPTS);
                    continue;
                }
            };
            let begun = Instant::now();
            let ending = client.step(&mut current);
            self.statistics().count(&ending, begun.elapsed());
            session = Some(current);
        }
        if let Some(session) = session.and_then(usable) {
            session.close();
        }
    }

    fn goes_on(&self, end: Instant) -> bool {
        !self.stop.load(Ordering::Relaxed) && Instant::now() < end && !self.has_enough()
    }

    /// Whether there were as many transactions as were asked for. Without any of the faults they
    /// would show nothing.
    fn has_enough(&self) -> bool {
        let statistics = self.statistics();
        let is_spared = self.faults.is_some() && statistics.faults.0 == 0;
        let enough = self.options.transactions;
        enough.is_some_and(|enough| statistics.attempts() >= enough && !is_spared)
    }

    /// How long after a turn of a client its next one is, where the rate is limited.
    fn between(&self) -> Duration {
        let rate = self.options.rate.filter(|rate| *rate > 0);
        rate.map_or(Duration::ZERO, |rate| {
            Duration::from_secs(1) * self.options.clients / rate
        })
    }

    /// Takes a turn, or waits for a part of the time until it is due.
    fn take_turn(&self, next: &mut Instant) -> Turn {
        let now = Instant::now();
        if now < *next {
            thread::sleep((*next - now).min(LONGEST_PAUSE));
            return Turn::Later;
        }
        // A turn that was missed is not made up for.
        *next = (*next + self.between()).max(now);
        Turn::Now
    }

    fn statistics(&self) -> std::sync::MutexGuard<'_, Statistics> {
        self.statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
