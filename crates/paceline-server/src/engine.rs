//! Which threads run the sessions: the pool's own, or workers behind a queue.
//!
//! ```text
//!   LeaderFollowers      a thread of the pool reads, and runs the session itself
//!
//!   HalfSyncHalfAsync    few threads of the pool read  -->  queue  -->  workers run sessions
//!                              ^                                              |
//!                              +------- the output, the dialog, a notice -----+
//! ```
//!
//! The half-sync engine costs a queue, a wake-up of a worker and one of the pool for each turn.
//! What it can do for that: bound how many items wait, refuse what has waited too long, and serve
//! some listeners before others. A connection's dialog is with one thread at a time: it travels
//! with the job, and comes back with the output.

mod collected;
mod desk;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use paceline::Piece;

use self::collected::Collected;
pub(crate) use self::desk::Desk;
use crate::{
    codec::Codec,
    dialog::{Dialog, Progress},
    link::Link,
    moment::Moment,
    session::Session,
    sync::lock,
};

/// Which threads run the sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// The thread that finds the event runs the session: no queue, no hand-off.
    #[default]
    LeaderFollowers,
    /// Threads of the pool read, and workers run the sessions behind a bounded queue.
    HalfSyncHalfAsync(HalfSync),
}

/// Settings of the half-sync engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfSync {
    workers: usize,
    capacity: usize,
    age_limit: Option<Duration>,
}

impl Default for HalfSync {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            workers: (4 * cores).max(4),
            capacity: 128,
            age_limit: Some(Duration::from_secs(5)),
        }
    }
}

impl HalfSync {
    /// How many threads run sessions. Default: four per core, at least four.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many connections may wait in the queue. One more gets the listener's refusal. Default:
    /// 128.
    #[must_use]
    pub fn capacity(mut self, connections: usize) -> Self {
        self.capacity = connections;
        self
    }

    /// How long a connection may wait in the queue before it gets the refusal. Default: 5 s.
    #[must_use]
    pub fn age_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.age_limit = limit.into();
        self
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        let zero = [
            ("workers(0): no session would run", self.workers == 0),
            (
                "capacity(0): every item would be refused",
                self.capacity == 0,
            ),
        ];
        let faults = zero.into_iter().filter(|(_, is_fault)| *is_fault);
        faults.map(|(text, _)| text.to_owned()).collect()
    }
}

/// The threads of the half-sync engine, and their queue.
pub(crate) struct Workers {
    settings: HalfSync,
    queue: Mutex<Queue>,
    /// A job has come, or the end.
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Jobs by priority, the highest last; oldest first.
    jobs: BTreeMap<u8, VecDeque<Box<dyn Run>>>,
    len: usize,
    is_closed: bool,
    /// Threads that have not ended.
    threads: usize,
}

/// A job of any kind of session.
trait Run: Send {
    fn run(self: Box<Self>, age_limit: Option<Duration>);

    /// There is no time for it any more.
    fn refuse(self: Box<Self>);
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system has no thread left: those that were started end.
    pub(crate) fn start(settings: HalfSync, name: &str) -> io::Result<Arc<Self>> {
        let workers = Arc::new(Self {
            settings,
            queue: Mutex::default(),
            news: Condvar::new(),
        });
        for index in 0..workers.settings.workers {
            let own = Arc::clone(&workers);
            let thread = thread::Builder::new().name(format!("{name}-worker-{index}"));
            lock(&workers.queue).threads += 1;
            if let Err(error) = thread.spawn(move || own.work()) {
                lock(&workers.queue).threads -= 1;
                workers.close();
                let text = format!("start worker {index} of the half-sync engine: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
        Ok(workers)
    }

    /// Lines up a job; gives it back if the queue is full, or the workers end. The next part of an
    /// answer finds a place in any case: each connection has one job at most, and a refusal would go
    /// into the middle of the answer.
    pub(crate) fn submit<C, N>(&self, job: Job<C, N>) -> Result<(), Job<C, N>>
    where
        C: Codec,
        N: Session<C>,
    {
        let priority = job.link.service().priority;
        let mut queue = lock(&self.queue);
        let is_full = job.work == Work::Items && queue.len >= self.settings.capacity;
        if queue.is_closed || is_full {
            return Err(job);
        }
        queue.len += 1;
        queue
            .jobs
            .entry(priority)
            .or_default()
            .push_back(Box::new(job));
        drop(queue);
        self.news.notify_one();
        Ok(())
    }

    /// How many connections wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue).len
    }

    /// The life of a worker.
    fn work(&self) {
        let _ended = ThreadEnds(self);
        while let Some(job) = self.next() {
            contain(|| job.run(self.settings.age_limit));
        }
    }

    /// The next job; `None` at the end.
    fn next(&self) -> Option<Box<dyn Run>> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.pop() {
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            queue = self
                .news
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes no more jobs, refuses those that wait, and lets the threads end.
    pub(crate) fn close(&self) {
        let jobs = {
            let mut queue = lock(&self.queue);
            queue.is_closed = true;
            queue.len = 0;
            std::mem::take(&mut queue.jobs)
        };
        self.news.notify_all();
        for job in jobs.into_values().flatten() {
            contain(|| job.refuse());
        }
    }

    /// Waits until all threads have ended, for so long at most. How many have not.
    pub(crate) fn wait(&self, within: Duration) -> usize {
        let queue = lock(&self.queue);
        let waited = self
            .news
            .wait_timeout_while(queue, within, |queue| queue.threads > 0);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.threads
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// The oldest job of the highest priority.
    fn pop(&mut self) -> Option<Box<dyn Run>> {
        let mut last = self.jobs.last_entry()?;
        let job = last.get_mut().pop_front();
        if last.get().is_empty() {
            last.remove();
        }
        self.len -= 1;
        job
    }
}

/// Calls `end`, which may end a session whose connection is over. If [`Session::closed`] or a
/// destructor of the session panics, only that session is lost: the thread goes on.
fn contain(end: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(end));
}

/// A worker's thread ends.
struct ThreadEnds<'w>(&'w Workers);

impl Drop for ThreadEnds<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).threads -= 1;
        self.0.news.notify_all();
    }
}

/// What a worker calls a session for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The items in the input.
    Items,
    /// The next part of a long answer: [`Session::again`].
    Part,
}

/// Input of a connection, and its dialog.
pub(crate) struct Job<C: Codec, N: Session<C>> {
    pub(crate) work: Work,
    pub(crate) dialog: Dialog<C, N>,
    pub(crate) input: Vec<u8>,
    /// So many bytes have just come.
    pub(crate) new: usize,
    pub(crate) ended: bool,
    /// How many bytes of output the connection may keep.
    pub(crate) room: usize,
    pub(crate) link: Arc<Link>,
    pub(crate) desk: Arc<Desk<C, N>>,
    pub(crate) since: Moment,
}

/// What a worker returns.
pub(crate) struct Turned<C: Codec, N: Session<C>> {
    pub(crate) dialog: Dialog<C, N>,
    pub(crate) input: Vec<u8>,
    pub(crate) new: usize,
    pub(crate) output: Vec<Piece>,
    /// `None`: the job was refused.
    pub(crate) progress: Option<Progress<C>>,
    /// When the connection handed it over.
    pub(crate) since: Moment,
}

impl<C: Codec, N: Session<C>> Job<C, N> {
    fn turned(self, output: Vec<Piece>, progress: Option<Progress<C>>) {
        let turned = Turned {
            dialog: self.dialog,
            input: self.input,
            new: self.new,
            output,
            progress,
            since: self.since,
        };
        if self.desk.put(turned) {
            // A connection that is over has called for the dialog: see `Desk::put`.
            let _ = self.link.handle().notify();
        }
    }
}

impl<C: Codec, N: Session<C>> Run for Job<C, N> {
    fn run(mut self: Box<Self>, age_limit: Option<Duration>) {
        let age = self.link.service().now().saturating_sub(self.since);
        let is_late = age_limit.is_some_and(|limit| age > limit);
        if is_late && self.work == Work::Items {
            return self.refuse();
        }
        let mut wire = Collected::new(self.room);
        let Self {
            work,
            dialog,
            input,
            ended,
            link,
            ..
        } = &mut *self;
        let handled = catch_unwind(AssertUnwindSafe(|| match work {
            Work::Items => dialog.handle_items(input, *ended, &mut wire, link),
            Work::Part => dialog.write_part(&mut wire, link),
        }));
        let progress = handled.unwrap_or_else(|panic| Progress::panicked(&*panic));
        self.turned(wire.pieces, Some(progress));
    }

    fn refuse(self: Box<Self>) {
        self.turned(Vec::new(), None);
    }
}
