//! Posts and timers, set and cancelled from several threads at once.

#![allow(unreachable_pub, reason = "a module of a test")]

use std::{
    collections::VecDeque,
    sync::{
        atomic::{AtomicU32, AtomicU64, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::{pause, wait_until, Random, LONG};
use paceline::{Pool, SetKind, TaskContext, Timer, Wake};

/// Threads that post and set.
const SETTERS: u64 = 3;

/// So many timers of each wait to be looked at.
const KEPT: usize = 256;

/// What was counted, by all.
#[derive(Default)]
struct Tally {
    posted: AtomicU64,
    done: AtomicU64,
    called: AtomicU64,
    cancelled: AtomicU64,
    given_back: AtomicU64,
}

/// A timer, and how often it was called.
struct Set {
    timer: Timer,
    calls: Arc<AtomicU32>,
    cancelled: bool,
}

/// Every post is done once, every timer called once, or not after it was cancelled.
pub fn run(set: SetKind, wake: Wake, operations: u64) {
    let name = format!("{set:?}, {wake:?}");
    let pool = Pool::builder().threads(4).name("stress").handle_set(set);
    let pool = pool.wake(wake).post_limit(512).build().unwrap();
    let tally = Arc::new(Tally::default());
    let setters: Vec<_> = (0..SETTERS)
        .map(|seed| {
            let (pool, tally) = (pool.clone(), Arc::clone(&tally));
            thread::spawn(move || work(&pool, &tally, seed, operations / SETTERS))
        })
        .collect();
    setters.into_iter().for_each(|it| it.join().unwrap());
    let posted = tally.posted.load(Ordering::SeqCst);
    wait_until(|| tally.done.load(Ordering::SeqCst) == posted);
    let report = pool.shutdown(LONG);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.timers_not_due, 0);
    assert_eq!(
        tally.done.load(Ordering::SeqCst),
        posted,
        "none was done twice"
    );
    eprintln!(
        "stress: {posted} posts done, {} given back, {} timers called, {} cancelled, {name}",
        tally.given_back.load(Ordering::SeqCst),
        tally.called.load(Ordering::SeqCst),
        tally.cancelled.load(Ordering::SeqCst),
    );
}

fn work(pool: &Pool, tally: &Arc<Tally>, seed: u64, operations: u64) {
    let mut random = Random::new(seed + 1);
    let mut timers = VecDeque::new();
    for _ in 0..operations {
        match random.below(4) {
            0 | 1 => post(pool, tally),
            _ => timers.push_back(set(pool, &mut random)),
        }
        if timers.len() > KEPT {
            inspect(timers.pop_front().unwrap(), tally);
        }
    }
    timers.into_iter().for_each(|set| inspect(set, tally));
}

/// Posts; what is given back is tried again, when the others had a moment.
fn post(pool: &Pool, tally: &Arc<Tally>) {
    let counted = Arc::clone(tally);
    let mut work = move |_: &mut TaskContext<'_>| {
        counted.done.fetch_add(1, Ordering::SeqCst);
    };
    let start = Instant::now();
    while let Err(rejected) = pool.post(work) {
        assert!(start.elapsed() < LONG, "{rejected}");
        tally.given_back.fetch_add(1, Ordering::Relaxed);
        work = rejected.value;
        pause();
    }
    tally.posted.fetch_add(1, Ordering::SeqCst);
}

/// Sets a timer; every third is cancelled, at once or a little later.
fn set(pool: &Pool, random: &mut Random) -> Set {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let span = Duration::from_micros(random.below(3000));
    let timer = pool.after(span, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let timer = timer.unwrap();
    let cancelled = random.once_in(3) && timer.cancel().is_ok();
    Set {
        timer,
        calls,
        cancelled,
    }
}

fn inspect(set: Set, tally: &Tally) {
    let Set {
        timer,
        calls,
        cancelled,
    } = set;
    if cancelled {
        // A call that was being made when it was cancelled was made.
        assert!(calls.load(Ordering::SeqCst) <= 1);
        tally.cancelled.fetch_add(1, Ordering::Relaxed);
        return;
    }
    wait_until(|| calls.load(Ordering::SeqCst) > 0);
    assert!(timer.cancel_and_wait().is_err() || calls.load(Ordering::SeqCst) == 1);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    tally.called.fetch_add(1, Ordering::Relaxed);
}
