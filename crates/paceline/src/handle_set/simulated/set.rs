//! The simulated world as a handle set, or as several: each has a place of its own in it.

use std::{collections::VecDeque, io, os::fd::RawFd, sync::Arc};

use super::{
    super::{Answer, Batch, Beside, ConcurrentSet, Event, HandleSet, Ready, Reports},
    many::Hall,
    State, Stream, World,
};
use crate::sync::{lock, Clock, MutexGuard, Parker, Timestamp};

/// What one handle set has to report.
pub(super) struct Watch {
    /// A pool has it.
    pub(super) is_taken: bool,
    /// Edges that were not reported yet.
    pub(super) pending: VecDeque<Event>,
    /// The last edges that were reported, as stock for stale ones.
    past: VecDeque<Event>,
    pub(super) woken: bool,
    pub(super) wakes: u64,
    /// How the next wait fails.
    pub(super) failure: Option<io::ErrorKind>,
    /// A thread waits: only one may (L1).
    waited_in: bool,
    /// Where the pool's leader sleeps.
    leader: Arc<Parker>,
    /// The waiting threads, if it is a concurrent set.
    pub(super) hall: Option<Hall>,
}

/// A stream is watched.
pub(super) struct Watched {
    /// By this set of its world.
    by: usize,
    /// Under this key.
    key: u64,
    /// What it is armed for, where the set reports once.
    armed: Option<Ready>,
}

impl Watch {
    pub(super) fn new(hall: Option<Hall>) -> Self {
        Self {
            is_taken: false,
            pending: VecDeque::new(),
            past: VecDeque::new(),
            woken: false,
            wakes: 0,
            failure: None,
            waited_in: false,
            leader: Arc::new(Parker::new()),
            hall,
        }
    }

    /// The first edge that was not reported yet.
    pub(super) fn take_event(&mut self) -> Option<Event> {
        let event = self.pending.pop_front()?;
        self.past.push_back(event);
        if self.past.len() > 8 {
            self.past.pop_front();
        }
        Some(event)
    }

    /// Whether a leader has a reason to get up.
    pub(super) fn has_news(&self) -> bool {
        !self.pending.is_empty() || self.woken || self.failure.is_some()
    }
}

impl Stream {
    /// What the set that watches it is to report: everything that is ready; where it reports once,
    /// if it is armed for any of it, and then it is armed no more.
    fn report(&mut self, place: usize, reports: Reports) -> Ready {
        let (ready, reset) = (self.ready(), self.is_reset());
        let watched = &mut self.watched[place];
        match reports {
            Reports::Edges => ready,
            Reports::Once => match watched.armed.filter(|armed| reset || ready.has(*armed)) {
                Some(_) => {
                    watched.armed = None;
                    ready
                }
                None => Ready::NONE,
            },
        }
    }

    fn watched_by(&mut self, set: usize) -> Option<&mut Watched> {
        self.watched.iter_mut().find(|watched| watched.by == set)
    }
}

impl State {
    /// One more set.
    pub(super) fn add_watch(&mut self) -> usize {
        let hall = self.is_for_many().then(Hall::default);
        self.watches.push(Watch::new(hall));
        self.watches.len() - 1
    }

    /// Notes an edge of a stream, for every set that watches it.
    pub(super) fn edge(&mut self, id: usize) {
        for place in 0..self.streams[id].watched.len() {
            let ready = self.streams[id].report(place, self.reports);
            let Watched { by, key, .. } = self.streams[id].watched[place];
            if !ready.is_empty() {
                self.tell(by, Event { key, ready });
            }
        }
    }

    /// One set is to report this.
    fn tell(&mut self, set: usize, event: Event) {
        let doubled = self.strikes(self.faults.doubled);
        let stale = self.strikes(self.faults.stale);
        let Watch { pending, past, .. } = &mut self.watches[set];
        pending.push_back(event);
        pending.extend(doubled.then_some(event));
        pending.extend(past.front().copied().filter(|_| stale));
    }

    /// Moves what came to `events`.
    fn take_events(&mut self, set: usize, events: &mut Vec<Event>) {
        let single = self.strikes(self.faults.single);
        let watch = &mut self.watches[set];
        watch.woken = false;
        let most = if single { 1 } else { watch.pending.len() };
        events.extend((0..most).map_while(|_| watch.take_event()));
    }

    /// Where the leader of a set sleeps; of many sleeping threads, one of them.
    fn sleeper(&mut self, set: usize) -> Option<Arc<Parker>> {
        match self.watches[set].hall {
            Some(_) => self.call_one(set),
            None => Some(Arc::clone(&self.watches[set].leader)),
        }
    }
}

impl World {
    /// Ends the sleep of a set's leader, if there is one, after `state` was changed; of many
    /// sleeping threads, that of one.
    pub(super) fn wake_leader(&self, state: MutexGuard<'_, State>, set: usize) {
        Self::wake_leaders(state, &[set]);
    }

    /// The same, in every set that watches a stream.
    pub(super) fn wake_watchers(&self, state: MutexGuard<'_, State>, id: usize) {
        let sets: Vec<_> = state.streams[id].watched.iter().map(|it| it.by).collect();
        Self::wake_leaders(state, &sets);
    }

    fn wake_leaders(mut state: MutexGuard<'_, State>, sets: &[usize]) {
        let sleepers: Vec<_> = sets.iter().filter_map(|set| state.sleeper(*set)).collect();
        sleepers.iter().for_each(|sleeper| sleeper.post(1));
        drop(state);
        sleepers.iter().for_each(|sleeper| sleeper.wake());
    }
}

/// One of the handle sets of a world.
pub(crate) struct SimulatedSet {
    pub(super) world: Arc<World>,
    pub(super) set: usize,
    leader: Arc<Parker>,
}

impl SimulatedSet {
    pub(super) fn new(world: Arc<World>, set: usize, watch: &Watch) -> Self {
        let leader = Arc::clone(&watch.leader);
        Self { world, set, leader }
    }

    /// Whether the other is a set of the same world.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.world, &other.world)
    }

    /// Waits until one of these sets of its world has something to report, or `until`.
    pub(crate) fn wait_beside<'s>(
        &self,
        sets: impl Iterator<Item = &'s SimulatedSet>,
        until: Option<Timestamp>,
    ) {
        let sets: Vec<_> = sets.collect();
        let clock = Clock::Virtual(Arc::clone(&self.world.clock));
        let mut state = lock(&self.world.state);
        for it in &sets {
            let is_waited_in = state.watches[it.set].waited_in;
            assert!(!is_waited_in, "two threads wait in one handle set (L1)");
        }
        let interrupted = state.interrupt().is_err();
        let has_news = |state: &State| sets.iter().any(|it| state.watches[it.set].has_news());
        while !has_news(&state) && !interrupted && !clock.has_passed(until) {
            // Waking the leader of any of them wakes this one.
            state.lie_down(&sets, &self.leader);
            self.leader.take();
            drop(state);
            clock.sleep(&self.leader, until);
            state = lock(&self.world.state);
            state.get_up(&sets);
        }
    }
}

impl State {
    /// A thread waits in these sets at once, and sleeps there.
    fn lie_down(&mut self, sets: &[&SimulatedSet], parker: &Arc<Parker>) {
        for it in sets {
            let watch = &mut self.watches[it.set];
            (watch.waited_in, watch.leader) = (true, Arc::clone(parker));
        }
    }

    /// It waits no more.
    fn get_up(&mut self, sets: &[&SimulatedSet]) {
        for it in sets {
            let watch = &mut self.watches[it.set];
            (watch.waited_in, watch.leader) = (false, Arc::clone(&it.leader));
        }
    }
}

impl HandleSet for SimulatedSet {
    fn reports(&self) -> Reports {
        self.world.reports
    }

    fn arm(&self, descriptor: RawFd, key: u64, directions: Ready) -> io::Result<()> {
        let mut state = lock(&self.world.state);
        let id = state.stream_of(descriptor - self.world.first_descriptor)?;
        match state.streams[id].watched_by(self.set) {
            Some(watched) if watched.key == key => watched.armed = Some(directions),
            _ => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
        state.edge(id);
        self.world.wake_watchers(state, id);
        Ok(())
    }

    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        let mut state = lock(&self.world.state);
        let id = state.stream_of(descriptor - self.world.first_descriptor)?;
        if state.streams[id].watched_by(self.set).is_some() {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        state.streams[id].watched.push(Watched {
            by: self.set,
            key,
            armed: None,
        });
        state.edge(id);
        self.world.wake_watchers(state, id);
        Ok(())
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        let mut state = lock(&self.world.state);
        let id = state.stream_of(descriptor - self.world.first_descriptor)?;
        let set = self.set;
        state.streams[id].watched.retain(|other| other.by != set);
        Ok(())
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        let clock = Clock::Virtual(Arc::clone(&self.world.clock));
        let mut state = lock(&self.world.state);
        let is_waited_in = state.watches[self.set].waited_in;
        assert!(!is_waited_in, "two threads wait in one handle set (L1)");
        let interrupted = state.interrupt().is_err();
        let mut slept = false;
        while !state.watches[self.set].has_news() && !interrupted && !clock.has_passed(until) {
            state.watches[self.set].waited_in = true;
            slept = true;
            self.leader.take();
            drop(state);
            clock.sleep(&self.leader, until);
            state = lock(&self.world.state);
            state.watches[self.set].waited_in = false;
        }
        if let Some(kind) = state.watches[self.set].failure.take() {
            return Err(kind.into());
        }
        state.take_events(self.set, events);
        let batch = if state.watches[self.set].pending.is_empty() {
            Batch::Whole
        } else {
            Batch::Full
        };
        Ok(Answer { batch, slept })
    }

    fn wake(&self) {
        let mut state = lock(&self.world.state);
        let watch = &mut state.watches[self.set];
        watch.woken = true;
        watch.wakes += 1;
        self.world.wake_leader(state, self.set);
    }

    fn beside(&self) -> Beside<'_> {
        Beside::Simulated(self)
    }

    fn concurrent(&self) -> Option<&dyn ConcurrentSet> {
        self.world.is_for_many.then_some(self)
    }
}
