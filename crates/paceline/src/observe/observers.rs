//! The observers: those that a pool was built with, and those that come and go.

use std::{
    fmt, io,
    sync::{
        // Says whether it is worth to look; orders nothing.
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc,
    },
};

use super::{Observer, Role, Stuck, Unread};
use crate::{
    key::HandleId,
    sync::{lock, Mutex},
    unwind::{abort_on_unwind, caught, Contained},
};

/// Those that came later, each with its number.
type Guests = Arc<[(u64, Arc<dyn Observer>)]>;

/// The observers of a pool.
pub(crate) struct Observers {
    /// For as long as the pool exists; several are one.
    first: Option<Box<dyn Observer>>,
    guests: Mutex<(Guests, u64)>,
    /// How many guests there are.
    count: AtomicUsize,
    has_board: bool,
    /// There are guests, or a board.
    many: AtomicBool,
}

impl Observers {
    pub(crate) fn new(mut first: Vec<Box<dyn Observer>>, has_board: bool) -> Arc<Self> {
        let first: Option<Box<dyn Observer>> = match first.len() {
            0 | 1 => first.pop(),
            _ => Some(Box::new(Several(first))),
        };
        Arc::new(Self {
            first,
            has_board,
            many: AtomicBool::new(has_board),
            ..Self::default()
        })
    }

    /// Whether there is one that stays.
    pub(crate) fn has_first(&self) -> bool {
        self.first.is_some()
    }

    /// One more. Its number. `then` is called before the next one comes or goes.
    pub(crate) fn add(&self, observer: Arc<dyn Observer>, then: impl FnOnce()) -> u64 {
        let mut guests = lock(&self.guests);
        guests.1 += 1;
        let number = guests.1;
        let old = guests.0.iter().cloned();
        guests.0 = old.chain([(number, observer)]).collect();
        self.note_count(guests.0.len());
        then();
        number
    }

    /// One less. `then` learns whether any guest is left, before the next one comes or goes.
    pub(crate) fn remove(&self, number: u64, then: impl FnOnce(bool)) {
        let mut guests = lock(&self.guests);
        let old = Arc::clone(&guests.0);
        let others = old.iter().filter(|(other, _)| *other != number);
        guests.0 = others.cloned().collect();
        self.note_count(guests.0.len());
        then(!guests.0.is_empty());
        drop(guests);
        // The observer itself is dropped outside of the lock: it is the user's.
        drop(old);
    }

    fn note_count(&self, guests: usize) {
        self.count.store(guests, Ordering::Relaxed);
        let many = self.has_board || guests > 0;
        self.many.store(many, Ordering::Relaxed);
    }

    /// Whether there are more observers than the first: guests, or a board.
    #[inline(always)]
    pub(crate) fn are_many(&self) -> bool {
        self.many.load(Ordering::Relaxed)
    }

    /// In the middle of the protocol: a panic ends the process.
    #[inline(always)]
    pub(crate) fn tell_first(&self, thread: usize, role: Role) {
        if let Some(first) = &self.first {
            abort_on_unwind(|| first.role_changed(thread, role));
        }
    }

    /// Likewise.
    pub(crate) fn tell_guests(&self, thread: usize, role: Role) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.tell_each_guest(thread, role);
        }
    }

    /// Apart: without guests a change of role costs the test above and no more.
    #[cold]
    #[inline(never)]
    fn tell_each_guest(&self, thread: usize, role: Role) {
        for (_, guest) in self.guests().iter() {
            abort_on_unwind(|| guest.role_changed(thread, role));
        }
    }

    /// Elsewhere: a panic is dropped.
    pub(crate) fn tell(&self, word: impl Fn(&dyn Observer)) {
        if let Some(observer) = &self.first {
            let _ = caught(|| word(observer.as_ref()));
        }
        for (_, guest) in self.guests().iter() {
            let _ = caught(|| word(guest.as_ref()));
        }
    }

    /// The guests, to be called without the lock: they are user code.
    #[inline]
    fn guests(&self) -> Guests {
        Arc::clone(&lock(&self.guests).0)
    }
}

impl Default for Observers {
    fn default() -> Self {
        Self {
            first: None,
            has_board: false,
            many: AtomicBool::new(false),
            guests: Mutex::new((Arc::new([]), 0)),
            count: AtomicUsize::new(0),
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("first", &self.first.is_some())
            .field("guests", &self.count.load(Ordering::Relaxed))
            .finish()
    }
}

/// A pool's thread may be the last one to drop an observer, in the middle of the protocol.
impl<O: Observer> Observer for Contained<O> {
    fn role_changed(&self, thread: usize, role: Role) {
        (**self).role_changed(thread, role);
    }

    fn away_changed(&self, thread: usize, is_away: bool) {
        (**self).away_changed(thread, is_away);
    }

    fn panicked(&self, handle: HandleId, message: &str) {
        (**self).panicked(handle, message);
    }

    fn failed(&self, handle: HandleId, error: &io::Error) {
        (**self).failed(handle, error);
    }

    fn stuck(&self, stuck: &Stuck) {
        (**self).stuck(stuck);
    }

    fn unread(&self, unread: &Unread) {
        (**self).unread(unread);
    }

    fn grown(&self, thread: usize) {
        (**self).grown(thread);
    }

    fn retired(&self, thread: usize) {
        (**self).retired(thread);
    }
}

/// Several observers as one. Each is called, whatever the others do.
struct Several(Vec<Box<dyn Observer>>);

impl Several {
    fn tell(&self, word: impl Fn(&dyn Observer)) {
        for observer in &self.0 {
            let _ = caught(|| word(observer.as_ref()));
        }
    }
}

impl Observer for Several {
    fn role_changed(&self, thread: usize, role: Role) {
        self.0.iter().for_each(|it| it.role_changed(thread, role));
    }

    fn away_changed(&self, thread: usize, is_away: bool) {
        self.tell(|it| it.away_changed(thread, is_away));
    }

    fn panicked(&self, handle: HandleId, message: &str) {
        self.tell(|it| it.panicked(handle, message));
    }

    fn failed(&self, handle: HandleId, error: &io::Error) {
        self.tell(|it| it.failed(handle, error));
    }

    fn stuck(&self, stuck: &Stuck) {
        self.tell(|it| it.stuck(stuck));
    }

    fn unread(&self, unread: &Unread) {
        self.tell(|it| it.unread(unread));
    }

    fn grown(&self, thread: usize) {
        self.tell(|it| it.grown(thread));
    }

    fn retired(&self, thread: usize) {
        self.tell(|it| it.retired(thread));
    }
}
