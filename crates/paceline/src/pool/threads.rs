//! The pool's own threads: how many there are, what each begins with, and how an elastic pool calls
//! one more.
//!
//! `promotion/staff.rs` decides when one is called and which may go. A thread that is called takes
//! its place in the crew before it is spawned, as those do that are spawned when the pool is built.
//! So a shutdown that begins meanwhile waits for it, or names it; and once a shutdown has begun
//! there are no places any more.

use std::{
    fmt, io,
    ops::RangeInclusive,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use super::{crew::Membership, Shared};
use crate::{
    dispatch::{caught, OwnTray},
    promotion::{Seat, Staff},
    sync::{confine, is_finished, lock, set_nice, thread, Parker, Timestamp},
    turn::{self, Follower, Left},
};

/// So many threads of its own a pool can have.
pub(super) const MOST: usize = 4096;
/// How long one of the pool's own threads pauses after an error of the wait.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// How many errors of the wait are kept for the report.
const KEPT_ERRORS: usize = 16;

/// How many threads of its own a pool has: a number, or a range, which makes the pool elastic.
///
/// ```
/// use paceline::{Pool, Threads};
///
/// let fixed = Pool::builder().threads(8);
/// let elastic = Pool::builder().threads(4..=64);
/// assert_eq!(Threads::from(8).to_string(), "8");
/// assert_eq!(Threads::from(4..=64).to_string(), "4..=64");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl From<usize> for Threads {
    fn from(number: usize) -> Self {
        Self::from(number..=number)
    }
}

impl From<RangeInclusive<usize>> for Threads {
    fn from(range: RangeInclusive<usize>) -> Self {
        let (least, most) = range.into_inner();
        Self { least, most }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_elastic() {
            write!(f, "{}..={}", self.least, self.most)
        } else {
            write!(f, "{}", self.least)
        }
    }
}

impl Threads {
    pub(super) fn is_elastic(self) -> bool {
        self.least != self.most
    }

    /// What is wrong with it.
    pub(super) fn fault(self) -> Option<String> {
        match self {
            _ if self.least > self.most => Some(format!("threads({self}): the range is empty")),
            _ if self.most > MOST => Some(format!("threads({self}): at most {MOST} are possible")),
            _ => None,
        }
    }

    /// What an elastic pool needs to grow and to shrink.
    pub(super) fn staff(self, keep_alive: Duration) -> Option<Staff> {
        let staff = || Staff::new(self.least, self.most, keep_alive);
        self.is_elastic().then(staff)
    }
}

/// Something that each of the pool's own threads has, by its index.
type ByIndex<T> = Option<Box<dyn Fn(usize) -> T + Send + Sync>>;

/// What each of the pool's own threads begins with.
#[derive(Default)]
pub(super) struct Outfit {
    pub(super) name: String,
    pub(super) stack_size: Option<usize>,
    pub(super) priority: ByIndex<u8>,
    pub(super) cores: ByIndex<Vec<usize>>,
    pub(super) nice: ByIndex<i32>,
    /// The pool they belong to, for those that are called later. It is set when the pool is built.
    pub(super) pool: OnceLock<Weak<Shared>>,
}

impl Outfit {
    /// The rank of the thread with this index.
    pub(super) fn priority_of(&self, index: usize) -> io::Result<u8> {
        let priority = ask("thread_priority", &self.priority, index)?;
        Ok(priority.unwrap_or(0))
    }

    /// Puts the calling thread on its cores and sets its nice value. What can't be is reported, and
    /// it does without.
    pub(super) fn put_on(&self, index: usize, tell: impl Fn(io::Error)) {
        let cores = apply("thread_affinity", &self.cores, index, |cores| {
            // No core at all: as the system likes.
            if cores.is_empty() {
                Ok(())
            } else {
                confine(&cores)
            }
        });
        let nice = apply("thread_nice", &self.nice, index, set_nice);
        [cores, nice]
            .into_iter()
            .filter_map(Result::err)
            .for_each(tell);
    }
}

/// What the user wants for this thread.
fn ask<T>(setting: &str, of: &ByIndex<T>, index: usize) -> io::Result<Option<T>> {
    let Some(of) = of else {
        return Ok(None);
    };
    let wanted = caught(|| of(index));
    let panicked = |message| io::Error::other(format!("{setting}({index}) panicked: {message}"));
    wanted.map(Some).map_err(panicked)
}

/// Does what the user wants for this thread.
fn apply<T>(
    setting: &str,
    of: &ByIndex<T>,
    index: usize,
    act: impl FnOnce(T) -> io::Result<()>,
) -> io::Result<()> {
    let Some(wanted) = ask(setting, of, index)? else {
        return Ok(());
    };
    act(wanted).map_err(|error| {
        let text = format!("{setting} of thread {index}: {error}");
        io::Error::new(error.kind(), text)
    })
}

impl Shared {
    /// No thread sleeps that could lead: an elastic pool calls one more. Returns whether it tried
    /// to, which takes time. The caller holds neither the lead nor any lock.
    #[cold]
    pub(crate) fn call_one_more(&self, now: Timestamp) -> bool {
        let Some(staff) = self.lead.claim_one_more(now) else {
            return false;
        };
        self.part_from_retired();
        let pool = self.outfit.pool.get().and_then(Weak::upgrade);
        let pool = pool.expect("it was built, and the caller is in it");
        match spawn(&pool) {
            Ok(index) => self.note_grown(index),
            // The pool needs no more threads.
            Err(_) if self.crew.is_closing() => staff.give_up(),
            Err(error) => {
                staff.fail(self.clock.now());
                self.counters.spawns_failed.one_more();
                self.tell_error(error);
            }
        }
        true
    }

    /// Joins the threads that have retired since the last call. They have left, so this does not
    /// wait.
    fn part_from_retired(&self) {
        let mut retired = Vec::new();
        let mut threads = lock(&self.threads);
        for place in (0..threads.len()).rev() {
            let (index, thread) = &threads[place];
            if is_finished(thread) && !self.crew.has(*index) {
                retired.push(threads.swap_remove(place));
            }
        }
        drop(threads);
        for (_, thread) in retired {
            drop(thread.join());
        }
    }
}

/// Spawns one thread of the pool's own. Its place is taken before it runs, so that a shutdown right
/// after knows about it. Its index.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<usize> {
    let index = shared.crew.hire()?;
    match spawn_with(shared, index) {
        Ok(handle) => {
            lock(&shared.threads).push((index, handle));
            Ok(index)
        }
        Err(error) => {
            shared.crew.leave(index);
            let text = format!("spawn thread {}-{index}: {error}", shared.outfit.name);
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// Spawns the thread that has this place.
fn spawn_with(shared: &Arc<Shared>, index: usize) -> io::Result<thread::JoinHandle<()>> {
    let Outfit {
        name, stack_size, ..
    } = &shared.outfit;
    let seat = Seat::of_pool(index, shared.outfit.priority_of(index)?);
    seat.show_on(shared.crew.row(index));
    let tray = turn::open_tray(shared, &seat);
    if let Some(staff) = shared.lead.staff() {
        staff.called(index);
    }
    let mut builder = thread::Builder::new().name(format!("{name}-{index}"));
    if let Some(bytes) = *stack_size {
        builder = builder.stack_size(bytes);
    }
    let (of_thread, its_tray) = (Arc::clone(shared), tray.clone());
    let spawned = builder.spawn(move || work(&of_thread, seat, its_tray))?;
    // It need not run yet to be known.
    shared.name(index, spawned.thread().id(), tray.as_deref());
    Ok(spawned)
}

/// The life of a thread of the pool's own: it joins until the pool is shut down or lets it go, and
/// again after an error of the wait.
fn work(shared: &Shared, seat: Arc<Seat>, tray: Option<Arc<OwnTray>>) {
    shared.name(seat.index(), thread::current().id(), tray.as_deref());
    let mut place = shared.crew.arrived(seat.index());
    // Given back before the place is.
    let mut tray = tray;
    let tell = |error| shared.tell_error(error);
    shared.outfit.put_on(seat.index(), tell);
    loop {
        let follower = Follower::new(shared, Arc::clone(&seat), None, tray.clone(), None);
        match turn::join(follower) {
            Err(error) => shared.report(error),
            Ok(Left::Closing) => return,
            // It has no deadline: the pool has let it go.
            Ok(Left::TimedOut) => {
                drop(tray.take());
                match shared.retire(&seat, place) {
                    None => return,
                    Some(kept) => place = kept,
                }
                tray = turn::open_tray(shared, &seat);
                shared.name(seat.index(), thread::current().id(), tray.as_deref());
            }
        }
    }
}

impl Shared {
    /// The place with this index is this thread's, and so is the tray. The tray is named first: a
    /// handle can be pinned to a thread that the crew knows.
    pub(super) fn name(&self, index: usize, thread: thread::ThreadId, tray: Option<&OwnTray>) {
        tray.iter().for_each(|tray| tray.name(thread));
        self.crew.name(index, thread);
    }

    /// A thread that the pool has let go gives up its place. If it is needed after all, it has it
    /// back.
    fn retire<'c>(&'c self, seat: &Seat, place: Membership<'c>) -> Option<Membership<'c>> {
        let (index, mut place) = (seat.index(), Some(place));
        self.observers.tell(|it| it.retired(index));
        let leave = || drop(place.take());
        let staff = self.lead.staff().expect("a fixed pool lets nobody go");
        if !staff.part(seat, leave) {
            self.note_grown(index);
        }
        place
    }

    /// One more thread, or one that has come back.
    fn note_grown(&self, index: usize) {
        self.counters.grown.one_more();
        self.observers.tell(|it| it.grown(index));
    }

    /// Reports an error of the wait, and pauses, so that a lasting one does not burn a core.
    fn report(&self, error: io::Error) {
        self.tell_error(error);
        let deadline = self.clock.now().after(PAUSE_AFTER_ERROR);
        self.clock.sleep(&Arc::new(Parker::new()), Some(deadline));
    }

    /// Reports an error of one of the pool's own threads. The caller neither leads nor has a lock.
    pub(super) fn tell_error(&self, error: io::Error) {
        if let Some(hook) = &self.on_error {
            let _ = caught(|| hook(&error));
        }
        let mut errors = lock(&self.errors);
        if errors.len() < KEPT_ERRORS {
            errors.push(error);
        }
    }
}
