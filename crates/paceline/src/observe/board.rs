//! The board: what each thread does, and since when. Each thread writes its own row; any thread
//! reads them all.
//!
//! A row is several words that belong together, so it has a version: odd while its thread writes,
//! another one after that. A reader that finds it odd, or changed after it has read, reads again.
//! The writer never waits.
//!
//! ```text
//!  the thread                                a reader
//!    1. version: odd                           1. version; odd: again
//!    2. the words                              2. the words
//!    3. version: even                          3. version; not the same: again
//! ```
//!
//! What a reader sees in step 2 of a newer row, it sees after step 1 of that one (the fences); so
//! step 3 detects it.

use std::{
    fmt,
    sync::{
        // What only its own thread uses.
        atomic::AtomicBool,
        Arc,
        OnceLock,
    },
    time::Duration,
};

use super::{names, Histograms, Recorder, Role, Times};
use crate::{
    key::HandleId,
    sync::{
        atomic::{fence, AtomicU64, Ordering},
        lock,
        thread::{self, ThreadId},
        try_until_done, Clock, Moment, Mutex, Timestamp,
    },
};

/// What a thread is busy with, for observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) handle: HandleId,
    /// The number of the name of its handler's type.
    pub(crate) handler: u32,
}

/// What one thread shows of itself, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Row {
    version: AtomicU64,
    /// Role, and the number of the handler's name.
    what: AtomicU64,
    /// When that role began.
    since: AtomicU64,
    /// When the last event was taken to be handled.
    began: AtomicU64,
    /// Its handle.
    handle: AtomicU64,
    index: usize,
    /// Known once the thread runs.
    thread: OnceLock<(ThreadId, String)>,
    /// When the handler began to run, which only this thread needs to know.
    start: Moment,
    /// Its time is noted already.
    handled: AtomicBool,
    times: Times,
}

/// What a row said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) role: Role,
    pub(crate) since: Timestamp,
    pub(crate) began: Timestamp,
    pub(crate) subject: Subject,
}

impl Seen {
    /// Whether it is inside a handler.
    fn is_inside(&self) -> bool {
        matches!(self.role, Role::Processing | Role::Away)
    }
}

/// The bits of [`Row::what`] below the handler's number.
const ROLE_BITS: u32 = 8;

impl Row {
    fn new(index: usize, now: Timestamp) -> Self {
        let now = now.to_nanos();
        Self {
            version: AtomicU64::new(0),
            what: AtomicU64::new(Role::Follower as u64),
            since: AtomicU64::new(now),
            began: AtomicU64::new(now),
            handle: AtomicU64::new(0),
            index,
            thread: OnceLock::new(),
            start: Moment::default(),
            handled: AtomicBool::new(false),
            times: Times::default(),
        }
    }

    /// This thread has another role. If it was at work, it is no more: its turn was over at `now`.
    #[inline(never)]
    pub(crate) fn set_role(&self, role: Role, now: Timestamp) {
        if self.what.load(Ordering::Relaxed) as u8 == Role::Processing as u8 {
            self.note_turn(now);
        }
        self.write(|row| {
            row.what.store(role as u64, Ordering::Relaxed);
            row.since.store(now.to_nanos(), Ordering::Relaxed);
        });
    }

    /// This thread is away, or is back. What it handles is the same.
    pub(crate) fn set_away(&self, role: Role, now: Timestamp) {
        self.write(|row| {
            let handler = row.what.load(Ordering::Relaxed) >> ROLE_BITS;
            row.set_what(role, handler);
            row.since.store(now.to_nanos(), Ordering::Relaxed);
        });
    }

    /// This thread goes to handle an event.
    #[inline(never)]
    pub(crate) fn begin(&self, subject: Subject, now: Timestamp) {
        self.write(|row| {
            row.set_what(Role::Processing, u64::from(subject.handler));
            row.since.store(now.to_nanos(), Ordering::Relaxed);
            row.began.store(now.to_nanos(), Ordering::Relaxed);
            row.handle
                .store(subject.handle.to_bits(), Ordering::Relaxed);
        });
        self.start.set(now);
    }

    /// The handler begins only now.
    pub(crate) fn note_start(&self, now: Timestamp) {
        self.start.set(now);
    }

    /// The handler was done at `end`, and the turn goes on.
    pub(crate) fn note_handler(&self, end: Timestamp) {
        self.note_handler_since(self.start.get(), end);
    }

    /// The same, of one that began only at `start`.
    pub(crate) fn note_handler_since(&self, start: Timestamp, end: Timestamp) {
        self.times.note_handler(end.nanos_since(start));
        self.handled
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// The turn was over at `end`.
    #[inline]
    fn note_turn(&self, end: Timestamp) {
        let began = Timestamp::from_nanos(self.began.load(Ordering::Relaxed));
        let turn = end.nanos_since(began);
        let handled = self.handled.load(std::sync::atomic::Ordering::Relaxed);
        if !handled && self.start.get() == began {
            self.times.note_plain(turn)
        } else {
            self.note_long_turn(turn, end)
        }
    }

    /// The same, of a turn with more in it than a handler.
    #[cold]
    fn note_long_turn(&self, turn: u64, end: Timestamp) {
        self.times.note_turn(turn);
        if !self
            .handled
            .swap(false, std::sync::atomic::Ordering::Relaxed)
        {
            self.times.note_handler(end.nanos_since(self.start.get()));
        }
    }

    fn set_what(&self, role: Role, handler: u64) {
        let what = handler << ROLE_BITS | role as u64;
        self.what.store(what, Ordering::Relaxed);
    }

    /// Only the row's own thread writes.
    fn write(&self, change: impl FnOnce(&Self)) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `try_read`: a reader that sees one of the words below sees the
        // odd version too.
        fence(Ordering::Release);
        change(self);
        // Pairs with the first load in `try_read`: a reader that sees this version sees the words.
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// What it says, unless it is being written.
    fn try_read(&self) -> Option<Seen> {
        let before = self.version.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Relaxed);
        let since = self.since.load(Ordering::Relaxed);
        let began = self.began.load(Ordering::Relaxed);
        let handle = self.handle.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        let whole = before == after && before % 2 == 0;
        whole.then(|| Seen {
            role: Role::of_number(what as u8),
            since: Timestamp::from_nanos(since),
            began: Timestamp::from_nanos(began),
            subject: Subject {
                handle: HandleId::from_bits(handle),
                handler: (what >> ROLE_BITS) as u32,
            },
        })
    }

    /// What it says. Its thread writes for a few nanoseconds, unless it loses its core in between.
    fn read(&self) -> Seen {
        try_until_done(|| self.try_read())
    }

    fn name(&self) -> String {
        let thread = self.thread.get();
        thread.map_or_else(|| "not running yet".to_owned(), |(_, name)| name.clone())
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// The rows of a pool's threads, and the times of those that have gone.
#[derive(Debug)]
pub(crate) struct Board {
    clock: Clock,
    rows: Mutex<Rows>,
    /// Blind times. The holder of the lead writes them.
    blind: Recorder,
}

#[derive(Debug, Default)]
struct Rows {
    here: Vec<Arc<Row>>,
    of_gone: Histograms,
}

impl Board {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            rows: Mutex::default(),
            blind: Recorder::default(),
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A row for the thread with this index.
    pub(crate) fn add(&self, index: usize) {
        let row = Arc::new(Row::new(index, self.clock.now()));
        lock(&self.rows).here.push(row);
    }

    /// The row of the thread with this index.
    pub(crate) fn row(&self, index: usize) -> Option<Arc<Row>> {
        let rows = lock(&self.rows);
        rows.here.iter().find(|row| row.index == index).cloned()
    }

    /// The calling thread has this index, and is called so.
    pub(crate) fn arrived(&self, index: usize, name: &str) {
        if let Some(row) = self.row(index) {
            let _ = row.thread.set((thread::current().id(), name.to_owned()));
        }
    }

    /// The calling thread, which handles an event, is away or is back.
    #[cold]
    pub(crate) fn show(&self, role: Role) {
        let (me, now) = (thread::current().id(), self.clock.now());
        let rows = lock(&self.rows).here.clone();
        let is_mine = |row: &&Arc<Row>| row.thread.get().is_some_and(|(id, _)| *id == me);
        // A thread that plays several roles at once, by hand, is in one handler.
        let inside = |row: &&Arc<Row>| row.read().is_inside();
        if let Some(row) = rows.iter().filter(is_mine).find(inside) {
            row.set_away(role, now);
        }
    }

    /// The lead was open for this many nanoseconds although a follower was asleep. For the holder
    /// of the lead.
    pub(crate) fn note_blind(&self, nanos: u64) {
        self.blind.note(nanos);
    }

    /// A thread has left. Its times stay.
    pub(crate) fn remove(&self, index: usize) {
        let mut rows = lock(&self.rows);
        if let Some(place) = rows.here.iter().position(|row| row.index == index) {
            let row = rows.here.remove(place);
            row.times.add_to(&mut rows.of_gone);
        }
    }

    /// The times of all threads, also of those that have gone.
    pub(crate) fn times(&self) -> Histograms {
        let rows = lock(&self.rows);
        let mut sum = rows.of_gone.clone();
        rows.here.iter().for_each(|row| row.times.add_to(&mut sum));
        sum.blind.add_recorded(&self.blind);
        sum
    }

    /// Every thread, in the order of entering. `standby`: the index of the follower that stands by.
    pub(crate) fn threads(&self, standby: Option<usize>) -> Vec<ThreadReport> {
        let seen = self.read_all();
        let now = self.clock.now();
        let reported = |(row, seen): (Arc<Row>, Seen)| ThreadReport {
            index: row.index,
            name: row.name(),
            role: match seen.role {
                Role::Follower if standby == Some(row.index) => Role::Standby,
                other => other,
            },
            lasts: now.since(seen.since),
            handles: seen.is_inside().then(|| call_of(&seen, now)),
        };
        // A thread that serves several pools, and is in another one, is gone.
        let here = |(_, seen): &(Arc<Row>, Seen)| seen.role != Role::Gone;
        seen.into_iter().filter(here).map(reported).collect()
    }

    /// The calls that have lasted for `limit` or longer, in the order of entering of their threads;
    /// and when the next one will have, if no other begins before.
    pub(crate) fn stuck(&self, limit: Duration) -> (Vec<(Timestamp, Stuck)>, Option<Timestamp>) {
        let seen = self.read_all();
        let now = self.clock.now();
        let inside = seen.into_iter().filter(|(_, seen)| seen.is_inside());
        let (stuck, short): (Vec<_>, Vec<_>) =
            inside.partition(|(_, seen)| now >= seen.began.after(limit));
        let next = short.iter().map(|(_, seen)| seen.began.after(limit)).min();
        let told = |(row, seen): (Arc<Row>, Seen)| {
            let stuck = Stuck {
                thread: row.index,
                name: row.name(),
                role: seen.role,
                call: call_of(&seen, now),
                is_over: false,
            };
            (seen.began, stuck)
        };
        (stuck.into_iter().map(told).collect(), next)
    }

    /// Reads every row, outside of the lock.
    fn read_all(&self) -> Vec<(Arc<Row>, Seen)> {
        let rows = lock(&self.rows).here.clone();
        let read = |row: Arc<Row>| {
            let seen = row.read();
            (row, seen)
        };
        rows.into_iter().map(read).collect()
    }
}

fn call_of(seen: &Seen, now: Timestamp) -> Call {
    Call {
        handle: seen.subject.handle,
        handler: names::name_of(seen.subject.handler),
        lasts: now.since(seen.began),
    }
}

/// What one thread of a pool does: see [`Inspect::threads`](crate::Inspect::threads).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadReport {
    /// Counted from zero in the order of entering.
    pub index: usize,
    /// As the system knows it.
    pub name: String,
    /// What it is to the pool.
    pub role: Role,
    /// For how long it has had this role.
    pub lasts: Duration,
    /// While it is [`Processing`](Role::Processing) or [`Away`](Role::Away): what.
    pub handles: Option<Call>,
}

/// One event that is being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Whose event it is.
    pub handle: HandleId,
    /// The type of its handler, as [`std::any::type_name`] gives it: for people, not for programs.
    pub handler: &'static str,
    /// How long ago it was claimed.
    pub lasts: Duration,
}

/// A call that takes too long: see [`Builder::stuck_after`](crate::Builder::stuck_after) and
/// [`Inspect::stuck`](crate::Inspect::stuck).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The thread that is stuck in it.
    pub thread: usize,
    /// Its name.
    pub name: String,
    /// [`Processing`](Role::Processing), or [`Away`](Role::Away) if the handler has said that it
    /// blocks.
    pub role: Role,
    /// What it is stuck in.
    pub call: Call,
    /// The thread has come back from it. (How long it took exactly is not known: it was found out
    /// at some time after that.)
    pub is_over: bool,
}

/// A handler that leaves its input unread: see
/// [`Builder::unread_limit`](crate::Builder::unread_limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// The handle with the input.
    pub handle: HandleId,
    /// The type of its handler, as [`std::any::type_name`] names it: for people, not for programs.
    pub handler: &'static str,
    /// How many calls in a row left input unread.
    pub calls: u32,
}

impl Unread {
    /// `handler` is the number of its name.
    pub(crate) fn new(handle: HandleId, handler: u32, calls: u32) -> Self {
        Self {
            handle,
            handler: names::name_of(handler),
            calls,
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            handle,
            handler,
            calls,
        } = self;
        write!(
            f,
            "handle {handle}: {calls} calls of {handler} in a row left input unread"
        )
    }
}

impl fmt::Display for ThreadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, role, lasts, ..
        } = self;
        match &self.handles {
            None => write!(f, "{name}: {role} for {lasts:?}"),
            Some(call) => write!(f, "{name}: {role} for {lasts:?}, {call}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            handle, handler, ..
        } = self;
        write!(f, "handle {handle} with {handler}")
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, call, lasts) = (&self.name, &self.call, self.call.lasts);
        if self.is_over {
            write!(f, "{name} is back after at most {lasts:?}: {call}")
        } else {
            write!(f, "{name} is stuck for {lasts:?}: {call}")
        }
    }
}

/// loom's models of a row.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::{explore, thread};

    fn subject(number: u32) -> Subject {
        Subject {
            handle: HandleId::from_bits(u64::from(number)),
            handler: number,
        }
    }

    /// Two events follow each other during a read, twice: what is read is one of the three rows,
    /// whole, and never an older one after a newer.
    #[test]
    fn loom_a_row_is_read_whole() {
        explore(|| {
            let row = Arc::new(Row::new(0, Timestamp::PAST));
            let writer = {
                let row = Arc::clone(&row);
                thread::spawn(move || {
                    for number in 1..=2 {
                        row.begin(subject(number), Timestamp::from_nanos(u64::from(number)));
                    }
                })
            };
            let mut last = 0;
            for _ in 0..2 {
                let Some(seen) = row.try_read() else {
                    continue;
                };
                let number = seen.since.to_nanos();
                assert_eq!(seen.began.to_nanos(), number);
                assert_eq!(seen.subject, subject(number as u32));
                assert_eq!(seen.role == Role::Processing, number > 0);
                assert!(number >= last);
                last = number;
            }
            writer.join().unwrap();
        });
    }
}
