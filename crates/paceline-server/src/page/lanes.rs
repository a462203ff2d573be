//! What the threads of a pool do over time: an observer that adds up, for each thread, how long it
//! had each role in each slot of 20 ms.
//!
//! ```text
//!   thread 0   |LLLLLPPPPLLL|LLLLLLLLLLLL|PPPPPPPPPPPP|     L leader, P processing, F follower
//!   thread 1   |FFFFFLLLLFFF|FFFFFFFFFFFF|LLLLLLLLLLLL|
//!               slot 7       slot 8       slot 9            a report has the slots that are over
//! ```
//!
//! Each thread adds to its own lane, under a lock that only a report contends for, four times a
//! second. A lane takes no memory beyond the slots since the last report.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use paceline::{
    observe::{Observer, Role, ThreadReport},
    PoolClock,
};

use super::times::Times;
use crate::sync::lock;

/// How long a slot is.
pub(super) const SLOT: Duration = Duration::from_millis(20);
const SLOT_NANOS: u64 = SLOT.as_nanos() as u64;

/// A lane keeps so many slots: what is older when a report comes is dropped.
const KEPT_SLOTS: usize = 64;

/// What a thread does, as the page shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Follows,
    Leads,
    Processes,
    /// Its handler blocks, and the pool knows it.
    Away,
}

impl Doing {
    const COUNT: usize = 4;

    /// Its name in a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Follows => "follower",
            Self::Leads => "leader",
            Self::Processes => "processing",
            Self::Away => "away",
        }
    }

    pub(super) fn is_inside(self) -> bool {
        matches!(self, Self::Processes | Self::Away)
    }

    /// `None`: the thread has left.
    fn of(role: Role) -> Option<Self> {
        match role {
            Role::Leader => Some(Self::Leads),
            Role::Processing => Some(Self::Processes),
            Role::Away => Some(Self::Away),
            Role::Gone => None,
            _ => Some(Self::Follows),
        }
    }
}

/// One thread.
#[derive(Debug, Default)]
struct Lane {
    /// `None` before its first change, and after it has left.
    doing: Option<Doing>,
    /// Since when.
    since: u64,
    /// Up to when the time is added up.
    added: u64,
    /// When its handler was given the event that it handles.
    turn_began: u64,
    /// How long it did what in the slot of `added`.
    slot: [u64; Doing::COUNT],
    /// The slots that are over, up to that of `added`.
    over: Vec<[u64; Doing::COUNT]>,
    has_left: bool,
}

impl Lane {
    /// Adds the time up to `now`.
    fn add_until(&mut self, now: u64) {
        let skipped =
            (now.saturating_sub(self.added) / SLOT_NANOS).saturating_sub(KEPT_SLOTS as u64);
        if skipped > 0 {
            // No report came for long: what is dropped here would not be kept either.
            self.added += skipped * SLOT_NANOS;
            self.slot = Default::default();
        }
        while self.added < now {
            let end = (self.added / SLOT_NANOS + 1) * SLOT_NANOS;
            let until = end.min(now);
            if let Some(doing) = self.doing {
                self.slot[doing as usize] += until - self.added;
            }
            self.added = until;
            if until == end {
                self.over.push(std::mem::take(&mut self.slot));
            }
        }
        let old = self.over.len().saturating_sub(KEPT_SLOTS);
        self.over.drain(..old);
    }

    /// Does something else from `now` on. How long its turn was, if one is over.
    fn change(&mut self, doing: Option<Doing>, now: u64) -> Option<u64> {
        self.add_until(now);
        let was_inside = self.doing.is_some_and(Doing::is_inside);
        let is_inside = doing.is_some_and(Doing::is_inside);
        if is_inside && !was_inside {
            self.turn_began = now;
        }
        (self.doing, self.since) = (doing, now);
        (was_inside && !is_inside).then(|| now.saturating_sub(self.turn_began))
    }
}

/// The lanes of one pool.
pub(super) struct Lanes {
    clock: PoolClock,
    lanes: RwLock<BTreeMap<usize, Arc<Mutex<Lane>>>>,
    times: Mutex<Times>,
}

/// What one thread does at the time of a report, and did in the slots before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LaneReport {
    pub(super) thread: usize,
    /// `None`: it has not changed since the observation began, and the pool has no board.
    pub(super) doing: Option<Doing>,
    pub(super) lasts: Duration,
    /// Four characters for each slot: the shares of a follower, leader, handler and blocking
    /// handler, from `0` to `z`. What they lack to `z` is not known.
    pub(super) slots: String,
}

/// What the threads of a pool have done since the last report.
#[derive(Debug)]
pub(super) struct Report {
    /// The number of the slot behind the last one in the lanes.
    pub(super) end: u64,
    pub(super) lanes: Vec<LaneReport>,
    pub(super) times: Times,
}

impl Lanes {
    pub(super) fn new(clock: PoolClock) -> Self {
        Self {
            clock,
            lanes: RwLock::default(),
            times: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos() as u64
    }

    fn lane(&self, thread: usize) -> Arc<Mutex<Lane>> {
        let known = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = known.get(&thread) {
            return Arc::clone(lane);
        }
        drop(known);
        let now = self.now();
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(thread).or_insert_with(|| {
            Arc::new(Mutex::new(Lane {
                since: now,
                added: now,
                ..Lane::default()
            }))
        });
        Arc::clone(lane)
    }

    fn change(&self, thread: usize, doing: Option<Doing>) {
        let lane = self.lane(thread);
        let mut lane = lock(&lane);
        // Read under the lock: the time of a lane never runs back.
        let turn = lane.change(doing, self.now());
        lane.has_left = doing.is_none();
        drop(lane);
        if let Some(turn) = turn {
            lock(&self.times).note(turn);
        }
    }

    /// What the board of the pool says of its threads: it holds for those that have not changed since
    /// the observation began. Call it after that, so that no change is missed.
    pub(super) fn begin_with(&self, threads: &[ThreadReport]) {
        let now = self.now();
        for thread in threads {
            let lane = self.lane(thread.index);
            let mut lane = lock(&lane);
            if lane.doing.is_none() && !lane.has_left {
                let ago = |time: Duration| now.saturating_sub(time.as_nanos() as u64);
                lane.doing = Doing::of(thread.role);
                lane.since = ago(thread.lasts);
                let call = thread.handles.map(|call| call.lasts);
                lane.turn_began = ago(call.unwrap_or_default());
            }
        }
    }

    /// What the threads did since the last report, and do now.
    pub(super) fn report(&self) -> Report {
        let all: Vec<_> = {
            let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
            lanes
                .iter()
                .map(|(thread, lane)| (*thread, Arc::clone(lane)))
                .collect()
        };
        // All lanes end with the same slot.
        let now = self.now();
        let end = now / SLOT_NANOS;
        let mut gone = Vec::new();
        let mut reports = Vec::with_capacity(all.len());
        for (thread, lane) in all {
            let mut lane = lock(&lane);
            lane.add_until(now);
            let beyond = (lane.added / SLOT_NANOS).saturating_sub(end) as usize;
            let count = lane.over.len().saturating_sub(beyond);
            let over: Vec<_> = lane.over.drain(..count).collect();
            if lane.has_left {
                gone.push(thread);
                continue;
            }
            reports.push(LaneReport {
                thread,
                doing: lane.doing,
                lasts: Duration::from_nanos(now.saturating_sub(lane.since)),
                slots: encode(&over),
            });
        }
        self.forget(&gone);
        Report {
            end,
            lanes: reports,
            times: std::mem::take(&mut *lock(&self.times)),
        }
    }

    /// Threads that have left, unless they are back.
    fn forget(&self, gone: &[usize]) {
        if gone.is_empty() {
            return;
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        for thread in gone {
            if lanes.get(thread).is_some_and(|lane| lock(lane).has_left) {
                lanes.remove(thread);
            }
        }
    }
}

/// It is called in the middle of the protocol: it takes a lock for a few additions, and never calls
/// the pool.
impl Observer for Lanes {
    fn role_changed(&self, thread: usize, role: Role) {
        self.change(thread, Doing::of(role));
    }

    fn away_changed(&self, thread: usize, is_away: bool) {
        let doing = if is_away {
            Doing::Away
        } else {
            Doing::Processes
        };
        self.change(thread, Some(doing));
    }
}

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

fn encode(slots: &[[u64; Doing::COUNT]]) -> String {
    let mut text = String::with_capacity(slots.len() * Doing::COUNT);
    for nanos in slots.iter().flatten() {
        // Whatever took any time is seen.
        let share = (nanos * 35).div_ceil(SLOT_NANOS) as usize;
        // Writing to a string does not fail.
        let _ = text.write_char(char::from(DIGITS[share.min(35)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline::{simulated::Simulation, Pool, SetKind};

    fn lanes() -> (Simulation, Pool, Lanes) {
        let world = Simulation::new(1);
        let set = SetKind::Simulated(world.clone());
        let pool = Pool::builder().threads(0).handle_set(set).build().unwrap();
        let lanes = Lanes::new(pool.clock());
        (world, pool, lanes)
    }

    /// Moves the clock to the next slot.
    fn align(world: &Simulation, lanes: &Lanes) {
        let rest = SLOT_NANOS - lanes.now() % SLOT_NANOS;
        world.clock().advance(Duration::from_nanos(rest));
    }

    fn pass(world: &Simulation, millis: u64) {
        world.clock().advance(Duration::from_millis(millis));
    }

    /// A slot has the share of each role, and a report the slots since the last one.
    #[test]
    fn time_is_added_up_by_role_and_slot() {
        let (world, _pool, lanes) = lanes();
        align(&world, &lanes);
        lanes.role_changed(0, Role::Leader);
        pass(&world, 10);
        lanes.role_changed(0, Role::Processing);
        pass(&world, 20);
        lanes.away_changed(0, true);
        pass(&world, 10);
        lanes.away_changed(0, false);
        lanes.role_changed(0, Role::Follower);
        pass(&world, 25);
        let report = lanes.report();
        assert_eq!(report.lanes[0].slots, "0ii000iiz000");
        assert_eq!(report.lanes[0].doing, Some(Doing::Follows));
        assert_eq!(report.lanes[0].lasts, Duration::from_millis(25));
        assert_eq!(
            report.times.counts().map(|(_, count)| count).sum::<u64>(),
            1
        );
        let end = report.end;
        pass(&world, 15);
        let next = lanes.report();
        assert_eq!((next.end - end, &*next.lanes[0].slots), (1, "z000"));
        assert_eq!(next.times.counts().count(), 0);
    }

    /// A thread that has not changed since the observation began is not known, and one that leaves
    /// has no lane.
    #[test]
    fn lanes_come_and_go() {
        let (world, _pool, lanes) = lanes();
        align(&world, &lanes);
        lanes.role_changed(3, Role::Follower);
        lanes.role_changed(1, Role::Leader);
        pass(&world, 20);
        let threads = |report: &Report| report.lanes.iter().map(|it| it.thread).collect::<Vec<_>>();
        assert_eq!(threads(&lanes.report()), [1, 3]);
        lanes.role_changed(1, Role::Gone);
        assert_eq!(threads(&lanes.report()), [3]);
        lanes.role_changed(1, Role::Follower);
        assert_eq!(threads(&lanes.report()), [1, 3]);
    }

    /// A page that is not read for an hour costs no memory.
    #[test]
    fn slots_without_a_report_are_bounded() {
        let (world, _pool, lanes) = lanes();
        lanes.role_changed(0, Role::Leader);
        for _ in 0..3600 {
            pass(&world, 1000);
            lanes.role_changed(0, Role::Follower);
        }
        let lane = lanes.lane(0);
        assert!(lock(&lane).over.len() <= KEPT_SLOTS);
        assert!(lanes.report().lanes[0].slots.len() <= KEPT_SLOTS * Doing::COUNT);
    }

    /// A short handler is seen too.
    #[test]
    fn what_takes_any_time_is_seen() {
        assert_eq!(encode(&[[SLOT_NANOS - 1, 0, 1, 0]]), "z010");
        assert_eq!(encode(&[[0; 4]]), "0000");
    }
}
