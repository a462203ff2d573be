//! The threads of roaming leaders: each goes from set to set, by way of the lounge.

use std::{
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crate::{
    dispatch::{abort_on_unwind, Line},
    pool::{Pool, Visits},
    promotion::Lounge,
    sync::{is_finished, lock, thread, Mutex, Parker},
};

/// How long a thread pauses after an error of the wait.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// How long those who have been sent home are waited for: they have only to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// All of them, and the lounge.
pub(super) struct Roamers {
    lounge: Arc<Lounge<Line>>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Roamers {
    /// Spawns so many threads for these pools.
    pub(super) fn begin(pools: &[Pool], count: usize) -> io::Result<Self> {
        let sets: Arc<[Visits]> = pools.iter().map(Pool::visits).collect();
        let leads = sets.iter().map(Visits::lead).collect();
        let roamers = Self {
            lounge: Lounge::new(leads, sets[0].tick()),
            threads: Mutex::default(),
        };
        for index in 0..count {
            let (lounge, sets) = (Arc::downgrade(&roamers.lounge), Arc::clone(&sets));
            let thread = thread::Builder::new()
                .name(format!("roamer-{index}"))
                .spawn(move || abort_on_unwind(|| roam(index, &lounge, &sets)));
            match thread {
                Ok(thread) => lock(&roamers.threads).push(thread),
                Err(error) => {
                    let text = format!("spawn thread roamer-{index}: {error}");
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
        Ok(roamers)
    }

    pub(super) fn idle(&self) -> usize {
        self.lounge.len()
    }

    /// Closes the lounge, and joins those who have gone; who is still in a handler goes when that returns.
    pub(super) fn send_home(&self) {
        self.lounge.close();
        let (threads, start) = (std::mem::take(&mut *lock(&self.threads)), Instant::now());
        let me = thread::current().id();
        for thread in threads {
            if thread.thread().id() == me {
                continue;
            }
            while !is_finished(&thread) && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_micros(100));
            }
            if is_finished(&thread) {
                drop(thread.join());
            }
        }
    }
}

impl Drop for Roamers {
    /// Waits for nobody.
    fn drop(&mut self) {
        self.lounge.close();
    }
}

/// The life of one of them.
fn roam(index: usize, lounge: &Weak<Lounge<Line>>, sets: &[Visits]) {
    sets[0].put_on(index);
    let bed = Arc::new(Parker::new());
    // The first ones lead a set each.
    let mut first = Some(index).filter(|index| *index < sets.len());
    let next = || lounge.upgrade().and_then(|lounge| lounge.next(&bed));
    while let Some(set) = first.take().or_else(next) {
        if let Err(error) = sets[set].visit() {
            sets[set].tell_error(error);
            std::thread::sleep(PAUSE_AFTER_ERROR);
        }
    }
}
