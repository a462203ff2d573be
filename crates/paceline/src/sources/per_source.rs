//! The paper's own way for sources that fit no handle set: a leader for each of them.
//!
//! ```text
//!   source A  <-- waits -- leader        followers, asleep
//!   source B  <-- waits -- leader        .---.---.
//!   source C  <-- waits -- leader        | T | T |
//!                            |           '---'---'
//!                            | has an event: gives its source to a follower,
//!                            v
//!                        processing: handles the event; then it leads a source without leader,
//!                        or follows
//! ```
//!
//! Each source has a blocking wait of its own, which no thread can combine with others: a channel
//! of std, a library's receive call. So each has a leader, and there must be **more threads than
//! sources**: were all of them leaders, none could be promoted, and a handler would leave its
//! source deaf. That is refused when the pool is built and when a source is added; threads that
//! join and leave are on top of it.
//!
//! What the sources have in common with a [`Pool`](crate::Pool): nothing. Use that one for
//! everything that has a descriptor, and its [queues](crate::Sources::queue) for what your own
//! threads send: there one leader waits for all.

mod shared;

use std::{
    fmt, io,
    sync::{
        mpsc::{Receiver, RecvTimeoutError},
        Arc,
    },
    time::{Duration, Instant},
};

use self::shared::{fault, Attached, Counts, Shared, Source};
use crate::{
    dispatch::Rejected,
    errors::judged,
    sync::{lock, thread},
    turn::Left,
};

/// Something that can be waited for by one thread at a time, and by nothing else.
pub trait BlockingSource: Send + 'static {
    /// What comes from it.
    type Event;

    /// Waits for the next event. It must return by `until`, with [`Arrived::Nothing`] if nothing
    /// came: that is how a pool ends in time, and a guest goes in time. `None`: it may wait for
    /// ever, because it has an [interrupter](Self::interrupter).
    ///
    /// # Errors
    /// An error ends the source, and stands in the report of the shutdown.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<Self::Event>>;

    /// What ends a wait that goes on now, or else the next one, from another thread. Each call that
    /// offers the source to a pool asks once, before the first wait; a panic leaves that call, and
    /// the pool stays as it was. Where there is one, an idle source costs nothing; where there is
    /// none, its leader looks up from time to time ([`SourcePoolBuilder::look_every`]).
    fn interrupter(&self) -> Option<Interrupter> {
        None
    }
}

/// Ends a wait from another thread.
pub type Interrupter = Box<dyn Fn() + Send + Sync>;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<E> {
    /// Something came.
    Event(E),
    /// Nothing came in time, or the wait was interrupted.
    Nothing,
    /// Nothing will ever come again.
    Over,
}

/// A channel of std. It is over when all of its senders are gone.
impl<E: Send + 'static> BlockingSource for Receiver<E> {
    type Event = E;

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<E>> {
        let told = match until {
            None => self.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        Ok(match told {
            Ok(event) => Arrived::Event(event),
            Err(RecvTimeoutError::Timeout) => Arrived::Nothing,
            Err(RecvTimeoutError::Disconnected) => Arrived::Over,
        })
    }
}

/// How a [`SourcePool`] is made.
#[must_use]
pub struct SourcePoolBuilder {
    threads: Option<usize>,
    look_every: Duration,
    sources: Vec<Arc<dyn Attached>>,
    counts: Arc<Counts>,
}

impl SourcePoolBuilder {
    /// How many threads it has: more than sources. Default: two for each source, and one.
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = Some(count);
        self
    }

    /// How often the leader of a source that can't be interrupted looks whether the pool ends.
    /// Default: every 100 ms.
    pub fn look_every(mut self, span: Duration) -> Self {
        self.look_every = span;
        self
    }

    /// A source, its name in reports, and what is done with each of its events. Several threads may
    /// do that at the same time: a thread that has an event gives the source away first. A panic of
    /// the handler is counted, and takes nothing with it.
    pub fn source<S, H>(mut self, name: impl Into<String>, source: S, handler: H) -> Self
    where
        S: BlockingSource,
        H: Fn(S::Event) + Send + Sync + 'static,
    {
        let source = Source::new(name, source, handler, &self.counts);
        self.sources.push(Arc::new(source));
        self
    }

    /// Judges all this, and begins.
    ///
    /// # Errors
    /// `InvalidInput` if there are not more threads than sources, or too many sources, or if
    /// leaders would never wait; the text names all of these. The error of the system if it has no
    /// thread.
    pub fn build(self) -> io::Result<SourcePool> {
        let threads = self.threads.unwrap_or(self.sources.len() * 2 + 1);
        self.judge(threads)?;
        let shared = Arc::new(Shared::new(threads, self.look_every, self.counts));
        for source in self.sources {
            shared.attach(source);
        }
        let pool = SourcePool(Arc::new(Strong(shared)));
        (0..threads).try_for_each(|index| pool.spawn(index))?;
        Ok(pool)
    }
}

impl SourcePoolBuilder {
    /// Names everything that is wrong, not only the first.
    fn judge(&self, threads: usize) -> io::Result<()> {
        let mut wrong: Vec<_> = fault(threads, self.sources.len()).into_iter().collect();
        if self.look_every.is_zero() {
            wrong.push("look_every(0): leaders would never wait".to_owned());
        }
        judged("build a pool of sources", &wrong)
    }
}

impl fmt::Debug for SourcePoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourcePoolBuilder")
            .field("threads", &self.threads)
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

/// Threads that take turns at the front of several sources, with a leader for each: for what has
/// only a blocking wait of its own ([`BlockingSource`]). Everything that has a descriptor, and
/// whatever your own threads send, is better off in a [`Pool`](crate::Pool), where one leader waits
/// for all.
///
/// The leader of a source that has an event hands the source to a follower, which waits there from
/// then on, and handles the event itself; afterwards it leads a source that has no leader, or
/// follows. So there must be more threads than sources: were all of them leaders, none could be
/// handed anything.
///
/// Cloning it gives another handle to the same pool. When the last one is dropped its threads go,
/// without being waited for.
///
/// ```
/// use std::sync::mpsc;
/// use paceline::SourcePool;
///
/// let (orders, from_shop) = mpsc::channel::<u32>();
/// let (returns, from_mail) = mpsc::channel::<String>();
/// let (sender, receiver) = mpsc::channel();
/// let also = sender.clone();
/// let pool = SourcePool::builder()
///     .threads(3) // two of them lead, one is free
///     .source("shop", from_shop, move |order| sender.send(format!("order {order}")).unwrap())
///     .source("mail", from_mail, move |what| also.send(format!("returned: {what}")).unwrap())
///     .build()?;
/// orders.send(7).unwrap();
/// assert_eq!(receiver.recv().unwrap(), "order 7");
/// returns.send("a hat".to_owned()).unwrap();
/// assert_eq!(receiver.recv().unwrap(), "returned: a hat");
/// drop((orders, returns)); // both sources are over, and with them the pool
/// pool.join()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct SourcePool(Arc<Strong>);

/// What the user's handles to a pool share; the pool's threads do not have it.
#[derive(Debug)]
struct Strong(Arc<Shared>);

impl Drop for Strong {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl SourcePool {
    /// To choose settings and name sources.
    pub fn builder() -> SourcePoolBuilder {
        SourcePoolBuilder {
            threads: None,
            look_every: Duration::from_millis(100),
            sources: Vec::new(),
            counts: Arc::default(),
        }
    }

    /// One more source: see [`SourcePoolBuilder::source`].
    ///
    /// # Errors
    /// Gives both back: `InvalidInput` if it would have as many sources as threads of its own (one
    /// that is over counts no more), `BrokenPipe` if the pool has ended.
    pub fn add<S, H>(
        &self,
        name: impl Into<String>,
        source: S,
        handler: H,
    ) -> Result<(), Rejected<(S, H)>>
    where
        S: BlockingSource,
        H: Fn(S::Event) + Send + Sync + 'static,
    {
        let shared = self.shared();
        // Runs user code, which may panic: it owns no place of the pool yet.
        let source = Source::new(name, source, handler, &shared.counts);
        match shared.reserve() {
            Err(error) => Err(Rejected::new(source.into_parts(), error)),
            Ok(index) => {
                shared.put(index, Arc::new(source));
                Ok(())
            }
        }
    }

    /// Lends the calling thread to the pool until that ends: it is shut down, or all of its sources
    /// are over.
    ///
    /// # Errors
    /// None at present; as [`Pool::join`](crate::Pool::join) otherwise.
    pub fn join(&self) -> io::Result<()> {
        self.shared().join(None);
        Ok(())
    }

    /// The same for `time` at most. If it leads then, it gives its source to another thread: at
    /// once if the source can be interrupted or its wait bounded, as all are.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_timeout(&self, time: Duration) -> io::Result<Left> {
        let shared = self.shared();
        Ok(shared.join(Some(shared.clock.now().after(time))))
    }

    /// What its threads do now, and what they did so far.
    #[must_use]
    pub fn snapshot(&self) -> SourceSnapshot {
        self.shared().snapshot()
    }

    /// Ends the pool: no thread waits in a source any more. Handlers that run on threads of its own
    /// are waited for until `within` has passed; guests go when theirs return. What the sources
    /// still hold was never taken from them, and is dropped with them.
    pub fn shutdown(&self, within: Duration) -> SourceReport {
        self.shared().shutdown(within)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0 .0
    }

    fn spawn(&self, index: usize) -> io::Result<()> {
        let (shared, name) = (Arc::clone(self.shared()), format!("sources-{index}"));
        let thread = thread::Builder::new().name(name.clone());
        let thread = thread.spawn(move || {
            let _ = shared.join(None);
        });
        lock(&self.shared().membership).push((name, thread?));
        Ok(())
    }
}

/// What the threads of a [`SourcePool`] do now, and what they did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceSnapshot {
    /// Sources that are not over.
    pub sources: usize,
    /// Threads that wait in a source, or are on their way there: never more than sources.
    pub leaders: usize,
    /// Threads that sleep until they are handed a source.
    pub followers: usize,
    /// Events that came.
    pub events: u64,
    /// Sources that were handed to a follower, which was woken.
    pub promotions: u64,
    /// Panics of handlers, of interrupters, and of what is dropped with a source.
    pub panics: u64,
}

/// What a [`SourcePool`] leaves.
#[must_use]
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SourceReport {
    /// Threads of its own that were still in a handler, or in a wait that did not end in time. They
    /// go when it returns.
    pub stuck_threads: Vec<String>,
    /// Sources whose wait failed or panicked, by name, and why.
    pub failed: Vec<(String, io::Error)>,
}

impl SourceReport {
    /// Whether everything ended in time and no source failed. (Panics of handlers are counted in
    /// the snapshot.)
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.stuck_threads.is_empty() && self.failed.is_empty()
    }
}
