//! Handles that belong to certain threads, and the mailboxes in which their events wait for these.
//!
//! ```text
//!  line    --> claimed      [Registry::claim]          this thread leads, and may have it
//!  line    --> mailbox      [Mailboxes::hand]          for another thread, which is recalled;
//!                                                      for several that are all awake: into the
//!                                                      list that these share
//!  mailbox --> claimed      [Registry::take_handed]    that thread takes it, before it would lead
//!  mailbox --> return list  [Registry::take_handed]    it is not for that thread any more
//!  mailbox --> return list  [Registry::close_mailbox]  that thread, or one of several, leaves
//! ```
//!
//! A mailbox is a list like the line: what is in it is QUEUED, and in no other list. So it is
//! claimed, closed, drained and swept as ever, and a signal that arrives meanwhile finds it
//! waiting. Only the leader puts something in, under the lock of the list of mailboxes; a thread
//! that leaves takes its mailbox off that list first, and then empties it. So nothing is put into a
//! mailbox that no thread reads (H2).

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::sync::{lock, thread::ThreadId, Mutex, Timestamp};

/// How a thread sleeps that may be handed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asleep {
    /// It waits for nothing but the lead.
    Free,
    /// The same, or it waits for something of its own meanwhile, which it then comes to later.
    Anyhow,
}

/// Whether a thread stays in the pool that a handle comes to belong to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// From now on.
    Begun,
    /// It was to stay already.
    Before,
    /// It does not: it is on its way out.
    Gone,
}

/// How a thread of the pool is reached. The pool knows.
pub(crate) trait Reach: Send + Sync {
    /// Something is in its mailbox, or nothing any more. Under the mailbox's lock.
    fn set_handed(&self, handed: bool);
    /// Makes it look.
    fn recall(&self);
    /// Does `act` if it sleeps so as a follower, which looks before it does anything else then.
    fn if_asleep(&self, how: Asleep, act: &mut dyn FnMut()) -> bool;
    /// A handle belongs to it: it shall not be let go for want of work.
    fn keep(&self) -> Kept;
    /// None does, after all.
    fn keep_no_more(&self);
}

/// Where something can be put for one thread.
pub(crate) struct Mailbox {
    /// Whose it is; a thread that was spawned is known a moment later.
    thread: OnceLock<ThreadId>,
    reach: Box<dyn Reach>,
}

impl Mailbox {
    /// Of a thread that is named now, or soon.
    pub(crate) fn new(reach: Box<dyn Reach>) -> Arc<Self> {
        let thread = OnceLock::new();
        Arc::new(Self { thread, reach })
    }

    /// It is this thread's.
    pub(crate) fn name(&self, thread: ThreadId) {
        let _ = self.thread.set(thread);
    }

    fn is_of(&self, threads: &[ThreadId]) -> bool {
        let thread = self.thread.get();
        thread.is_some_and(|thread| threads.contains(thread))
    }
}

/// For so many slots a mailbox has room from when its thread is first named.
const ROOM: usize = 16;

/// The mailboxes of all threads that are in the pool.
#[derive(Default)]
pub(super) struct Mailboxes {
    list: Mutex<List>,
    /// Why there are none, if there can't be.
    refusal: OnceLock<&'static str>,
}

/// What the lock protects. A thread is signalled if something is here for it. (It may then find
/// that another thread has it.)
#[derive(Default)]
struct List {
    mailboxes: Vec<Filled>,
    /// Slots for one of several threads, none of which slept: for the first that looks.
    shared: VecDeque<Shared>,
    /// How many were put in so far.
    puts: u64,
}

/// A slot that was put in, and as which one of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Put {
    number: u64,
    index: u32,
}

/// A slot, and the threads it is for.
type Shared = (Put, Arc<[ThreadId]>);

/// A mailbox, and the slots in it.
struct Filled {
    mailbox: Arc<Mailbox>,
    slots: VecDeque<Put>,
}

impl Filled {
    fn put(&mut self, put: Put) -> Arc<Mailbox> {
        self.slots.push_back(put);
        self.mailbox.reach.set_handed(true);
        Arc::clone(&self.mailbox)
    }

    /// Puts it in if this thread sleeps so, and its own mailbox is empty. (Something that is for
    /// several may come before it.)
    fn put_if(&mut self, how: Asleep, put: Put) -> Option<Arc<Mailbox>> {
        if !self.slots.is_empty() {
            return None;
        }
        let mailbox = Arc::clone(&self.mailbox);
        let is_put = mailbox.reach.if_asleep(how, &mut || drop(self.put(put)));
        is_put.then_some(mailbox)
    }
}

impl List {
    /// The mailboxes of those of these threads that are here.
    fn of<'s>(&'s mut self, threads: &'s [ThreadId]) -> impl Iterator<Item = &'s mut Filled> {
        self.mailboxes
            .iter_mut()
            .filter(|filled| filled.mailbox.is_of(threads))
    }

    /// A slot that is about to be put in.
    fn number(&mut self, index: u32) -> Put {
        self.puts += 1;
        let number = self.puts;
        Put { number, index }
    }

    /// The first of what was put in for one thread, whose mailbox this is: for it alone or not, so
    /// that neither waits for ever behind the other (F1).
    fn take(&mut self, mailbox: &Arc<Mailbox>) -> Option<u32> {
        let mut mailboxes = self.mailboxes.iter_mut();
        let own = mailboxes.find(|filled| Arc::ptr_eq(&filled.mailbox, mailbox))?;
        let shared = &mut self.shared;
        let place = |shared: &VecDeque<Shared>| shared.iter().position(|it| mailbox.is_of(&it.1));
        let first = match (own.slots.front(), place(shared)) {
            (Some(own), Some(place)) if shared[place].0 < *own => Some(place),
            (None, place) => place,
            (Some(_), _) => None,
        };
        let first = match first {
            Some(place) => shared.remove(place).map(|(put, _)| put),
            None => own.slots.pop_front(),
        };
        let more = !own.slots.is_empty() || place(shared).is_some();
        mailbox.reach.set_handed(more);
        first.map(|put| put.index)
    }

    /// Takes a mailbox off the list. What was in it, and what was for its thread among others:
    /// these were signalled, but one of them may have left since, and come back with a new mailbox.
    /// So it is handed anew.
    fn remove(&mut self, mailbox: &Arc<Mailbox>) -> Vec<u32> {
        let Some(place) = self
            .mailboxes
            .iter()
            .position(|filled| Arc::ptr_eq(&filled.mailbox, mailbox))
        else {
            return Vec::new();
        };
        mailbox.reach.set_handed(false);
        let mut left = Vec::from(self.mailboxes.remove(place).slots);
        self.shared.retain(|(put, threads)| {
            let is_left = mailbox.is_of(threads);
            if is_left {
                left.push(*put);
            }
            !is_left
        });
        left.sort_unstable();
        left.into_iter().map(|put| put.index).collect()
    }
}

/// What became of a handle that belongs to certain threads.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// One of them will have it, and was signalled.
    There,
    /// It stays with the leader: it is for that thread, or no thread that it belongs to is in the
    /// pool, or free.
    NotHanded,
}

impl Mailboxes {
    pub(super) fn refuse(&self, why: &'static str) {
        let _ = self.refusal.set(why);
    }

    pub(super) fn refusal(&self) -> Option<&'static str> {
        self.refusal.get().copied()
    }

    /// A thread is in the pool.
    pub(super) fn add(&self, mailbox: Arc<Mailbox>) {
        let slots = VecDeque::new();
        lock(&self.list).mailboxes.push(Filled { mailbox, slots });
    }

    /// It leaves: nothing more is put in for it. What was, for it alone or not.
    pub(super) fn remove(&self, mailbox: &Arc<Mailbox>) -> Vec<u32> {
        lock(&self.list).remove(mailbox)
    }

    /// The mailbox of this thread.
    pub(super) fn of(&self, thread: ThreadId) -> Option<Arc<Mailbox>> {
        let mut list = lock(&self.list);
        let threads = [thread];
        let filled = list.of(&threads).next();
        filled.map(|filled| Arc::clone(&filled.mailbox))
    }

    /// Keeps these threads in the pool; or returns one that is not there, or is on its way out, and
    /// keeps none.
    pub(super) fn keep(&self, threads: &[ThreadId]) -> Result<(), ThreadId> {
        let mut list = lock(&self.list);
        let is_here =
            |thread: &ThreadId| list.mailboxes.iter().any(|it| it.mailbox.is_of(&[*thread]));
        if let Some(unknown) = threads.iter().find(|thread| !is_here(thread)) {
            return Err(*unknown);
        }
        let mut begun = Vec::new();
        for filled in list.of(threads) {
            filled.slots.reserve(ROOM);
            match filled.mailbox.reach.keep() {
                Kept::Begun => begun.push(Arc::clone(&filled.mailbox)),
                Kept::Before => {}
                Kept::Gone => {
                    begun
                        .iter()
                        .for_each(|mailbox| mailbox.reach.keep_no_more());
                    let gone = filled.mailbox.thread.get();
                    return gone.map_or(Ok(()), |gone| Err(*gone));
                }
            }
        }
        list.shared.reserve(ROOM);
        Ok(())
    }

    /// Hands a handle to one of these threads: to one that sleeps, rather one that waits for
    /// nothing of its own, else to the first of them that looks. This thread holds the lead, and
    /// has taken it off the line.
    pub(super) fn hand(&self, index: u32, threads: &Arc<[ThreadId]>) -> Handed {
        let mut list = lock(&self.list);
        let put = list.number(index);
        let mut asleep = |how| list.of(threads).find_map(|it| it.put_if(how, put));
        let free = asleep(Asleep::Free).or_else(|| asleep(Asleep::Anyhow));
        if free.is_some() {
            drop(list);
            return told(free);
        }
        match list.of(threads).count() {
            0 => Handed::NotHanded,
            1 => {
                let only = list.of(threads).next().map(|filled| filled.put(put));
                drop(list);
                told(only)
            }
            _ => {
                list.shared.push_back((put, Arc::clone(threads)));
                for filled in list.of(threads) {
                    filled.mailbox.reach.set_handed(true);
                    filled.mailbox.reach.recall();
                }
                Handed::There
            }
        }
    }

    /// Hands it to this thread if that sleeps, and waits for nothing of its own: it would come to
    /// that later.
    pub(super) fn hand_to_sleeper(&self, index: u32, thread: ThreadId) -> Handed {
        let mut list = lock(&self.list);
        let put = list.number(index);
        let free = list
            .of(&[thread])
            .find_map(|filled| filled.put_if(Asleep::Free, put));
        drop(list);
        told(free)
    }

    /// Takes out what was put in first for the thread whose mailbox this is.
    pub(super) fn take(&self, mailbox: &Arc<Mailbox>) -> Option<u32> {
        lock(&self.list).take(mailbox)
    }
}

/// After the lock: whose mailbox was filled is made to look.
fn told(chosen: Option<Arc<Mailbox>>) -> Handed {
    match chosen {
        Some(mailbox) => {
            mailbox.reach.recall();
            Handed::There
        }
        None => Handed::NotHanded,
    }
}

/// Which threads may call a handler, where that is not the default: any thread, one at a time.
#[derive(Debug)]
pub(super) enum Affinity {
    /// Several at once, and no thread in particular.
    Everyone,
    /// One of these, and no other as long as one of them is in the pool.
    Pinned(Arc<[ThreadId]>),
    /// The last one that had it, for so long after it began.
    Sticky(Duration, Option<(ThreadId, Timestamp)>),
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Mutex as Cell;

    use super::*;
    use crate::sync::thread;

    /// A thread that is awake, and may be on its way out.
    struct Awake {
        is_gone: bool,
        is_kept: Arc<Cell<bool>>,
    }

    impl Reach for Awake {
        fn set_handed(&self, _: bool) {}

        fn recall(&self) {}

        fn if_asleep(&self, _: Asleep, _: &mut dyn FnMut()) -> bool {
            false
        }

        fn keep(&self) -> Kept {
            if self.is_gone {
                return Kept::Gone;
            }
            if std::mem::replace(&mut *self.is_kept.lock().unwrap(), true) {
                Kept::Before
            } else {
                Kept::Begun
            }
        }

        fn keep_no_more(&self) {
            *self.is_kept.lock().unwrap() = false;
        }
    }

    /// One of several threads is on its way out: the others are kept if they were before, and not
    /// for this.
    #[test]
    fn who_goes_is_not_in_the_pool() {
        let (mailboxes, mut threads, mut kept) = (Mailboxes::default(), Vec::new(), Vec::new());
        for is_gone in [false, false, true] {
            let is_kept = Arc::new(Cell::new(false));
            kept.push(Arc::clone(&is_kept));
            let mailbox = Mailbox::new(Box::new(Awake { is_gone, is_kept }));
            let thread = thread::spawn(|| thread::current().id());
            threads.push(thread.join().unwrap());
            mailbox.name(threads[threads.len() - 1]);
            mailboxes.add(mailbox);
        }
        assert_eq!(mailboxes.keep(&threads[..1]), Ok(()));
        assert_eq!(mailboxes.keep(&threads), Err(threads[2]));
        let kept = kept.iter().map(|it| *it.lock().unwrap());
        assert!(kept.eq([true, false, false]));
    }
}
