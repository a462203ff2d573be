//! What the threads of a pool with a leader per source share: the sources, the loop of a thread,
//! and the end.

use std::{
    fmt, io,
    sync::{
        // Numbers that order nothing.
        atomic::{AtomicU64, Ordering},
        Arc,
    },
    time::{Duration, Instant},
};

use super::{
    super::succession::{Arrival, Lead, Promotion, Succession, MOST_SOURCES},
    Arrived, BlockingSource, Interrupter, SourceReport, SourceSnapshot,
};
use crate::{
    errors::judged,
    sync::{is_finished, lock, thread, Clock, Mutex, Parker, Timestamp},
    turn::Left,
    unwind::{abort_on_unwind, caught, Contained},
};

/// What is wrong with so many threads. Each source has a leader, and at least one thread more must
/// be left.
pub(super) fn fault(threads: usize, sources: usize) -> Option<String> {
    if sources > MOST_SOURCES {
        return Some(format!("{sources} sources: at most {MOST_SOURCES}"));
    }
    let has_enough = threads > sources;
    (!has_enough).then(|| {
        format!(
            "{sources} sources with {threads} threads: each source has a leader, so there must be \
             more threads"
        )
    })
}

/// What the threads of a pool share.
pub(super) struct Shared {
    succession: Succession,
    sources: Mutex<Table>,
    /// Guests come on top of these.
    own_threads: usize,
    look_every: Duration,
    pub(super) clock: Clock,
    pub(super) membership: Mutex<Vec<(String, thread::JoinHandle<()>)>>,
    pub(super) counts: Arc<Counts>,
}

/// The sources, by number; what is over leaves an empty place for the next.
#[derive(Default)]
struct Table {
    places: Vec<Option<Arc<dyn Attached>>>,
    /// Empty places.
    free: Vec<usize>,
    /// Of all, how many are taken, or about to be.
    live: usize,
    failed: Vec<(String, Contained<io::Error>)>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    events: AtomicU64,
    promotions: AtomicU64,
    panics: Arc<AtomicU64>,
}

fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("succession", &self.succession)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(own_threads: usize, look_every: Duration, counts: Arc<Counts>) -> Self {
        Self {
            succession: Succession::default(),
            sources: Mutex::new(Table::default()),
            own_threads,
            look_every,
            clock: Clock::monotonic(),
            membership: Mutex::new(Vec::new()),
            counts,
        }
    }

    pub(super) fn attach(&self, source: Arc<dyn Attached>) {
        let index = lock(&self.sources).place();
        self.put(index, source);
    }

    /// A place for one more source, if there are threads enough.
    pub(super) fn reserve(&self) -> io::Result<usize> {
        let mut table = lock(&self.sources);
        if self.succession.is_closed() {
            let text = "add a source: the pool has ended";
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        }
        let wrong = fault(self.own_threads, table.live + 1);
        judged("add a source", wrong.as_slice())?;
        Ok(table.place())
    }

    pub(super) fn put(&self, index: usize, source: Arc<dyn Attached>) {
        lock(&self.sources).places[index] = Some(source);
        self.succession.add(index);
    }

    /// The loop of a thread: lead a source, wait there, promote, process, rejoin.
    pub(super) fn join(&self, deadline: Option<Timestamp>) -> Left {
        let seat = Arc::new(Parker::new());
        abort_on_unwind(|| loop {
            match self.succession.arrive(&seat, &self.clock, deadline) {
                Arrival::Leads(lead) => self.turn(lead, deadline),
                Arrival::TimedOut => return Left::TimedOut,
                Arrival::Closed => return Left::Closing,
            }
        })
    }

    /// Leads one source until an event of it is handled, or it is given away without one.
    fn turn(&self, lead: Lead<'_>, deadline: Option<Timestamp>) {
        let index = lead.source();
        let place = lock(&self.sources).places[index].clone();
        let Some(source) = place else {
            return lead.retire();
        };
        let ended = source.lead(lead, self, deadline);
        if let Some(end) = ended {
            self.detach(index, source.name(), end);
        }
    }

    /// Until when the leader of a source may wait. Whole slices of time: it looks up between them.
    fn until(&self, can_be_interrupted: bool, deadline: Option<Timestamp>) -> Option<Instant> {
        let slice = (!can_be_interrupted).then_some(self.look_every);
        let left = deadline.map(|deadline| deadline.since(self.clock.now()));
        let span = match (slice, left) {
            (Some(slice), Some(left)) => Some(slice.min(left)),
            (slice, left) => slice.or(left),
        };
        // What is too far away for the clock is for ever.
        span.and_then(|span| Instant::now().checked_add(span))
    }

    /// A source is over. With the last one the pool is.
    fn detach(&self, index: usize, name: &str, end: End) {
        let mut table = lock(&self.sources);
        let source = table.places[index].take();
        table.free.push(index);
        table.live -= 1;
        if let End::Failed(error) = end {
            let error = Contained::counted(error, &self.counts.panics);
            table.failed.push((name.to_owned(), error));
        }
        let was_last = table.live == 0;
        drop(table);
        // Outside of the lock: it may be user code. (Its leader drops the last reference, or a
        // closing pool.)
        drop(source);
        if was_last {
            self.close();
        }
    }

    /// No thread waits any more. Waits that can be interrupted are.
    pub(super) fn close(&self) {
        self.succession.close();
        let sources = lock(&self.sources).places.clone();
        for source in sources.into_iter().flatten() {
            if caught(|| source.interrupt()).is_err() {
                one_more(&self.counts.panics);
            }
        }
    }

    pub(super) fn shutdown(&self, within: Duration) -> SourceReport {
        let deadline = self.clock.now().after(within);
        self.close();
        let me = thread::current().id();
        let mut stuck = Vec::new();
        let mut membership = lock(&self.membership);
        let threads = std::mem::take(&mut *membership);
        drop(membership);
        for (name, thread) in threads {
            if thread.thread().id() == me {
                continue;
            }
            while !is_finished(&thread) && !self.clock.has_passed(Some(deadline)) {
                std::thread::sleep(Duration::from_micros(100));
            }
            if is_finished(&thread) {
                drop(thread.join())
            } else {
                stuck.push(name)
            }
        }
        let failed = std::mem::take(&mut lock(&self.sources).failed);
        let failed = failed.into_iter();
        SourceReport {
            stuck_threads: stuck,
            failed: failed
                .map(|(name, error)| (name, error.into_inner()))
                .collect(),
        }
    }

    pub(super) fn snapshot(&self) -> SourceSnapshot {
        let (leaders, followers) = self.succession.counts();
        let counts = &self.counts;
        SourceSnapshot {
            sources: lock(&self.sources).live,
            leaders,
            followers,
            events: counts.events.load(Ordering::Relaxed),
            promotions: counts.promotions.load(Ordering::Relaxed),
            panics: counts.panics.load(Ordering::Relaxed),
        }
    }
}

impl Table {
    /// An empty place, which is taken from now on.
    fn place(&mut self) -> usize {
        self.live += 1;
        self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        })
    }
}

/// How a source ended.
pub(super) enum End {
    Over,
    Failed(io::Error),
}

/// A source and its handler behind one face.
pub(super) trait Attached: Send + Sync {
    fn name(&self) -> &str;

    /// Waits for an event, gives the lead away, and handles it. Returns how the source ended, if it
    /// did.
    fn lead(&self, lead: Lead<'_>, shared: &Shared, deadline: Option<Timestamp>) -> Option<End>;

    fn interrupt(&self);
}

/// Several threads may have it, and any of them may be the last: in the middle of its turn, or as
/// it ends.
pub(super) struct Source<S, H> {
    name: String,
    /// Only its leader locks it, so the lock is never contended.
    waiter: Mutex<Contained<S>>,
    interrupter: Option<Contained<Interrupter>>,
    handler: Contained<H>,
}

impl<S: BlockingSource, H> Source<S, H> {
    pub(super) fn new(name: impl Into<String>, source: S, handler: H, counts: &Counts) -> Self {
        let panics = &counts.panics;
        // Contained first: a panic below drops both, and their destructors may panic, too.
        let source = Contained::counted(source, panics);
        let handler = Contained::counted(handler, panics);
        let interrupter = source.interrupter();
        Self {
            interrupter: interrupter.map(|it| Contained::counted(it, panics)),
            name: name.into(),
            waiter: Mutex::new(source),
            handler,
        }
    }

    /// Gives source and handler back: the pool has no place for them.
    pub(super) fn into_parts(self) -> (S, H) {
        let source = self.waiter.into_inner();
        let source = source.unwrap_or_else(std::sync::PoisonError::into_inner);
        (source.into_inner(), self.handler.into_inner())
    }

    /// Waits until something comes, the pool ends, or the time of this thread is over.
    fn wait(&self, shared: &Shared, deadline: Option<Timestamp>) -> io::Result<Arrived<S::Event>> {
        let mut waiter = lock(&self.waiter);
        while !shared.succession.is_closed() && !shared.clock.has_passed(deadline) {
            let until = shared.until(self.interrupter.is_some(), deadline);
            let told = caught(|| waiter.wait(until));
            match told
                .unwrap_or_else(|panic| Err(io::Error::other(format!("panicked: {panic}"))))?
            {
                Arrived::Nothing => {}
                told => return Ok(told),
            }
        }
        Ok(Arrived::Nothing)
    }
}

impl<S, H> Attached for Source<S, H>
where
    S: BlockingSource,
    H: Fn(S::Event) + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn lead(&self, lead: Lead<'_>, shared: &Shared, deadline: Option<Timestamp>) -> Option<End> {
        match self.wait(shared, deadline) {
            Ok(Arrived::Nothing) => {
                drop(lead);
                None
            }
            Ok(Arrived::Over) => {
                lead.retire();
                Some(End::Over)
            }
            Err(error) => {
                lead.retire();
                Some(End::Failed(error))
            }
            Ok(Arrived::Event(event)) => {
                one_more(&shared.counts.events);
                if lead.promote() == Promotion::HandedOver {
                    one_more(&shared.counts.promotions);
                }
                if caught(|| (self.handler)(event)).is_err() {
                    one_more(&shared.counts.panics);
                }
                None
            }
        }
    }

    fn interrupt(&self) {
        if let Some(interrupter) = &self.interrupter {
            interrupter();
        }
    }
}
