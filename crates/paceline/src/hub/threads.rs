//! The pool's own threads: what each begins with, and how an elastic pool calls one more.
//!
//! `promotion/elastic.rs` decides when one is called and which may go. A thread that is called
//! takes its place in the membership before it is spawned, as those do that are spawned when the
//! pool is built. So a shutdown that begins meanwhile waits for it, or names it; and once a
//! shutdown has begun there are no places any more.

use std::{
    io,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use super::{membership::MemberGuard, open_mailbox, Hub};
use crate::{
    dispatch::OwnMailbox,
    promotion::Seat,
    sync::{confine, is_finished, lock, set_nice, thread, Parker, Timestamp},
    unwind::caught,
};

/// How long one of the pool's own threads pauses after an error of the wait.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// How many errors of the wait are kept for the report.
const KEPT_ERRORS: usize = 16;

/// What a thread of the pool's own does until the pool is shut down or lets it go. The pool gives
/// it to the hub, which knows no turn.
pub(crate) type Life = fn(&Hub, Arc<Seat>, Option<Arc<OwnMailbox>>);

/// Something that each of the pool's own threads has, by its index.
type ByIndex<T> = Option<Box<dyn Fn(usize) -> T + Send + Sync>>;

/// What each of the pool's own threads begins with.
#[derive(Default)]
pub(crate) struct ThreadSettings {
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
    pub(crate) priority: ByIndex<u8>,
    pub(crate) cores: ByIndex<Vec<usize>>,
    pub(crate) nice: ByIndex<i32>,
    /// The pool they belong to, for those that are called later. It is set when the pool is built.
    pub(crate) pool: OnceLock<Weak<Hub>>,
}

impl ThreadSettings {
    /// The rank of the thread with this index.
    pub(super) fn priority_of(&self, index: usize) -> io::Result<u8> {
        let priority = ask("thread_priority", &self.priority, index)?;
        Ok(priority.unwrap_or(0))
    }

    /// Puts the calling thread on its cores and sets its nice value. What can't be is reported, and
    /// it does without.
    pub(crate) fn put_on(&self, index: usize, tell: impl Fn(io::Error)) {
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

impl Hub {
    /// No thread sleeps that could lead: an elastic pool calls one more. Returns whether it tried
    /// to, which takes time. The caller holds neither the lead nor any lock.
    #[cold]
    pub(crate) fn call_one_more(&self, now: Timestamp) -> bool {
        let Some(elastic) = self.lead.claim_one_more(now) else {
            return false;
        };
        self.part_from_retired();
        let pool = self.thread_settings.pool.get().and_then(Weak::upgrade);
        let pool = pool.expect("it was built, and the caller is in it");
        match spawn(&pool) {
            Ok(index) => self.note_grown(index),
            // The pool needs no more threads.
            Err(_) if self.membership.is_closing() => elastic.give_up(),
            Err(error) => {
                elastic.fail(self.clock.now());
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
            if is_finished(thread) && !self.membership.has(*index) {
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
pub(crate) fn spawn(hub: &Arc<Hub>) -> io::Result<usize> {
    let index = hub.membership.hire()?;
    match spawn_with(hub, index) {
        Ok(handle) => {
            lock(&hub.threads).push((index, handle));
            Ok(index)
        }
        Err(error) => {
            hub.membership.leave(index);
            let text = format!("spawn thread {}-{index}: {error}", hub.thread_settings.name);
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// Spawns the thread that has this place.
fn spawn_with(hub: &Arc<Hub>, index: usize) -> io::Result<thread::JoinHandle<()>> {
    let ThreadSettings {
        name, stack_size, ..
    } = &hub.thread_settings;
    let seat = Seat::of_pool(index, hub.thread_settings.priority_of(index)?);
    seat.show_on(hub.membership.row(index));
    let mailbox = open_mailbox(hub, &seat);
    if let Some(elastic) = hub.lead.elastic() {
        elastic.called(index);
    }
    let mut builder = thread::Builder::new().name(format!("{name}-{index}"));
    if let Some(bytes) = *stack_size {
        builder = builder.stack_size(bytes);
    }
    let life = hub.life;
    let (of_thread, its_mailbox) = (Arc::clone(hub), mailbox.clone());
    let spawned = builder.spawn(move || life(&of_thread, seat, its_mailbox))?;
    // It need not run yet to be known.
    hub.name(index, spawned.thread().id(), mailbox.as_deref());
    Ok(spawned)
}

impl Hub {
    /// The place with this index is this thread's, and so is the mailbox. The mailbox is named
    /// first: a handle can be pinned to a thread that the membership knows.
    pub(crate) fn name(
        &self,
        index: usize,
        thread: thread::ThreadId,
        mailbox: Option<&OwnMailbox>,
    ) {
        mailbox.iter().for_each(|mailbox| mailbox.name(thread));
        self.membership.name(index, thread);
    }

    /// A thread that the pool has let go gives up its place. If it is needed after all, it has it
    /// back.
    pub(crate) fn retire<'c>(
        &'c self,
        seat: &Seat,
        place: MemberGuard<'c>,
    ) -> Option<MemberGuard<'c>> {
        let (index, mut place) = (seat.index(), Some(place));
        self.observers.tell(|it| it.retired(index));
        let leave = || drop(place.take());
        let elastic = self.lead.elastic().expect("a fixed pool lets no thread go");
        if !elastic.part(seat, leave) {
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
    pub(crate) fn report(&self, error: io::Error) {
        self.tell_error(error);
        let deadline = self.clock.now().after(PAUSE_AFTER_ERROR);
        self.clock.sleep(&Arc::new(Parker::new()), Some(deadline));
    }

    /// Reports an error of one of the pool's own threads. The caller neither leads nor has a lock.
    pub(crate) fn tell_error(&self, error: io::Error) {
        if let Some(hook) = &self.on_error {
            let _ = caught(|| hook(&error));
        }
        let mut errors = lock(&self.errors);
        if errors.len() < KEPT_ERRORS {
            errors.push(error);
        }
    }
}
