//! The threads of roaming leaders: each looks round in all sets, serves one for a while, and rests
//! in the idle list while it is not needed.

use std::{
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crate::{
    dispatch::Line,
    hub::{PoolRef, Visitor},
    pool::Pool,
    promotion::RoamingIdle,
    sync::{cores, is_finished, lock, thread, Mutex, Parker},
    turn::{LedSet, LedSets, RoundOutcome},
    unwind::abort_on_unwind,
};

/// How long a thread pauses after an error of the wait.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// How long threads that were sent home are waited for: they have only to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// All threads that roam, and their idle list.
pub(super) struct Roamers {
    idle_list: Arc<RoamingIdle<Line>>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Roamers {
    /// Spawns so many threads for these pools.
    pub(super) fn begin(pools: &[Pool], count: usize) -> io::Result<Self> {
        let sets: Arc<[PoolRef]> = pools.iter().map(Pool::pool_ref).collect();
        let leads = sets.iter().map(PoolRef::lead).collect();
        let roamers = Self {
            idle_list: RoamingIdle::new(leads, sets[0].tick(), count, cores()),
            threads: Mutex::default(),
        };
        for index in 0..count {
            let (idle_list, sets) = (Arc::downgrade(&roamers.idle_list), Arc::clone(&sets));
            let thread = thread::Builder::new()
                .name(format!("roamer-{index}"))
                .spawn(move || abort_on_unwind(|| roam(index, &idle_list, &sets)));
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
        self.idle_list.len()
    }

    /// Closes the idle list, and joins the threads that have gone; one that is still in a handler
    /// goes when that returns.
    pub(super) fn send_home(&self) {
        self.idle_list.close();
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
    /// Waits for no thread.
    fn drop(&mut self) {
        self.idle_list.close();
    }
}

/// The life of one of them: it looks round, serves where something is to be done, and looks round
/// again.
fn roam(index: usize, idle_list: &Weak<RoamingIdle<Line>>, sets: &[PoolRef]) {
    sets[0].put_on(index);
    let visitors: io::Result<Vec<_>> = sets.iter().map(PoolRef::visitor).collect();
    let visitors = match visitors {
        Ok(visitors) => visitors,
        Err(error) => return sets[0].tell_error(error),
    };
    let (parker, mut led_sets) = (Arc::new(Parker::new()), LedSets::default());
    // One is enough to begin with.
    let mut next = match index {
        0 => Step::LookRound(None),
        _ => Step::Rest,
    };
    // Closed, it may live on: threads that serve or sleep hold it.
    while let Some(idle_list) = idle_list
        .upgrade()
        .filter(|idle_list| !idle_list.is_closed())
    {
        let (led, called_for) = match next {
            Step::LookRound(led) => (led, None),
            Step::Rest => match idle_list.rest_until_called(&parker) {
                None => return,
                called_for => (None, called_for),
            },
        };
        gather(&mut led_sets, led, called_for, &visitors, &idle_list);
        next = match led_sets.wait(&idle_list) {
            Ok(RoundOutcome::To(led)) => Step::LookRound(serve(index, led, sets, &idle_list)),
            Ok(RoundOutcome::Round) => Step::LookRound(None),
            Ok(RoundOutcome::Nowhere) => Step::Rest,
            Err(error) => {
                pause_after(error, &sets[0]);
                Step::LookRound(None)
            }
        };
    }
}

/// What a thread that roams does next.
enum Step<'s> {
    /// It looks round, beside a set that it leads, if it does.
    LookRound(Option<LedSet<'s>>),
    /// It rests in the idle list until it is called.
    Rest,
}

/// Leads all sets without a leader, beside the one that it leads already. Of those that can't be
/// waited in beside others it leads one at most: the one that it was called for, if that is one of
/// them.
fn gather<'s>(
    led_sets: &mut LedSets<'s>,
    led: Option<LedSet<'s>>,
    called_for: Option<usize>,
    visitors: &'s [Visitor<'s>],
    idle_list: &RoamingIdle<Line>,
) {
    // It sleeps in that one alone.
    if led.as_ref().is_some_and(LedSet::waits_alone) {
        return led_sets.add(led);
    }
    let begin = called_for.filter(|set| visitors[*set].waits_alone());
    for set in begin.into_iter().chain(idle_list.round()) {
        let visitor = &visitors[set];
        // A set that can't join is left as it is: the watch finds it.
        if led_sets.has_room_for(visitor) {
            led_sets.add(LedSet::at_once(set, visitor));
        }
    }
    led_sets.add(led);
}

/// Serves one set for a while. Gives it back if this thread leads it still.
fn serve<'s>(
    thread: usize,
    led: LedSet<'s>,
    sets: &[PoolRef],
    idle_list: &RoamingIdle<Line>,
) -> Option<LedSet<'s>> {
    let set = led.set();
    // A thread that sleeps in it alone visits no other set.
    if !led.waits_alone() {
        idle_list.serves(thread, set);
    }
    let served = led.serve().unwrap_or_else(|error| {
        pause_after(error, &sets[set]);
        None
    });
    idle_list.has_served(thread);
    served
}

fn pause_after(error: io::Error, set: &PoolRef) {
    set.tell_error(error);
    std::thread::sleep(PAUSE_AFTER_ERROR);
}
