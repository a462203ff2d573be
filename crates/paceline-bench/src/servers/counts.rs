//! What a server counts of itself. Off unless asked for: then each event costs one plain load.

use std::{
    cell::Cell,
    sync::{
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        OnceLock,
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::allocations;

/// A server's own counts so far; what it does not know is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// How often memory was asked for.
    pub(crate) allocations: Option<u64>,
    /// Reads that brought something.
    pub(crate) events: Option<u64>,
    /// Of these, how many were handled by the thread that had handled the one before of the same connection.
    pub(crate) same_thread: Option<u64>,
    /// Microseconds in all without a leader.
    pub(crate) leaderless_us: Option<f64>,
    /// The longest such time.
    pub(crate) longest_leaderless_us: Option<f64>,
}

impl Counts {
    /// Of this process, now.
    pub(crate) fn so_far() -> Counts {
        let of_events = |count: &AtomicU64| is_on().then(|| count.load(Ordering::Relaxed));
        let leaderless = LEADERLESS.get().map(|figures| figures());
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        Counts {
            allocations: allocations::counted(),
            events: of_events(&EVENTS),
            same_thread: of_events(&SAME_THREAD),
            leaderless_us: leaderless.map(|figures| us(figures.in_all)),
            longest_leaderless_us: leaderless.map(|figures| us(figures.longest)),
        }
    }
}

/// The time without a leader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaderless {
    pub(super) in_all: Duration,
    pub(super) longest: Duration,
}

/// Starts counting.
pub(crate) fn start() {
    allocations::count();
    COUNTING.store(true, Ordering::Relaxed);
}

/// Whether anything is counted.
pub(super) fn is_on() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

/// Sets the source of the time without a leader. Only the first server of a process reports it.
pub(super) fn ask_leaderless(figures: impl Fn() -> Leaderless + Send + Sync + 'static) {
    let _ = LEADERLESS.set(Box::new(figures));
}

/// Which thread handled the last event of a connection; zero: none was counted.
#[derive(Debug, Default)]
pub(super) struct LastThread(AtomicU32);

impl LastThread {
    /// An event of this connection is handled by this thread.
    pub(super) fn note(&self) {
        if is_on() {
            self.count();
        }
    }

    #[cold]
    fn count(&self) {
        let this = this_thread();
        EVENTS.fetch_add(1, Ordering::Relaxed);
        if self.0.swap(this, Ordering::Relaxed) == this {
            SAME_THREAD.fetch_add(1, Ordering::Relaxed);
        }
    }
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static EVENTS: AtomicU64 = AtomicU64::new(0);
static SAME_THREAD: AtomicU64 = AtomicU64::new(0);
static LEADERLESS: OnceLock<Box<dyn Fn() -> Leaderless + Send + Sync>> = OnceLock::new();

/// The number of this thread, from 1.
#[inline(never)]
fn this_thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
