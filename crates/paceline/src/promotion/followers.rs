//! The threads that wait for the lead, and the order in which they are elected.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use super::{
    policy::Order,
    recall::FREE,
    shared_parker::SharedParker,
    word::{Snapshot, Standby},
};
use crate::{
    observe::Row,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Parker,
    },
};

/// The messages to a sleeping follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// You are elected: lead.
    Lead,
    /// The pool closes: go.
    Close,
    /// You are the standby from now on.
    StandBy,
    /// To a standby in deep sleep: tick again.
    Tick,
}

const MESSAGES: [Message; 4] = [
    Message::Lead,
    Message::Close,
    Message::StandBy,
    Message::Tick,
];

/// The bits of a seat's word that are a message's number; those above are recall's.
pub(super) const MESSAGE: u32 = 0xff;

/// One thread's place in the pool: how it is named, how it ranks, and how it is woken.
pub(crate) struct Seat {
    index: usize,
    priority: u8,
    /// It was spawned by the pool; else it is a guest.
    is_own: bool,
    parker: Arc<Parker>,
    /// It waits for something of its own, and leads only if no other thread can. Changed by this
    /// thread alone; others read it under the followers' lock.
    is_bound: AtomicBool,
    /// Something waits for this thread that no other is to do: see `recall.rs`.
    pub(super) handed: AtomicBool,
    /// Whether an elastic pool may let it go, or has: see `recall.rs`.
    pub(super) tenure: AtomicU64,
    /// How others recall this thread; made when it first may be.
    recall: OnceLock<Recall>,
    /// What this thread shows of itself, if the pool has a board.
    row: OnceLock<Arc<Row>>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// Makes a thread that may be recalled ask whether its time is over: from anywhere, as often as one
/// likes.
pub(super) type Recall = Arc<dyn Fn() + Send + Sync>;

impl Seat {
    /// Of a guest.
    pub(crate) fn new(index: usize, priority: u8) -> Arc<Self> {
        Self::of(index, priority, false)
    }

    /// Of one of the pool's own threads.
    pub(crate) fn of_pool(index: usize, priority: u8) -> Arc<Self> {
        Self::of(index, priority, true)
    }

    fn of(index: usize, priority: u8, is_own: bool) -> Arc<Self> {
        Arc::new(Self {
            index,
            priority,
            is_own,
            parker: Arc::new(Parker::new()),
            is_bound: AtomicBool::new(false),
            handed: AtomicBool::new(false),
            tenure: AtomicU64::new(FREE),
            recall: OnceLock::new(),
            row: OnceLock::new(),
        })
    }

    /// This thread shows there what it does, from now on.
    pub(crate) fn show_on(&self, row: Option<Arc<Row>>) {
        if let Some(row) = row {
            let _ = self.row.set(row);
        }
    }

    pub(crate) fn row(&self) -> Option<&Row> {
        self.row.get().map(Arc::as_ref)
    }

    /// The number that observers know this thread by.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// How others recall this thread.
    pub(crate) fn recall_by(&self, make: impl FnOnce() -> Recall) -> Recall {
        Arc::clone(self.recall.get_or_init(make))
    }

    /// Whether this thread leads only if no other can; returns the setting before.
    pub(crate) fn set_bound(&self, bound: bool) -> bool {
        self.is_bound.swap(bound, Ordering::AcqRel)
    }

    pub(super) fn is_bound(&self) -> bool {
        self.is_bound.load(Ordering::Acquire)
    }

    pub(super) fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }

    /// Takes the message, if there is one. A recall is none: the recalling thread has set what this
    /// one checks.
    pub(super) fn take_message(&self) -> Option<Message> {
        let number = (self.parker.take() & MESSAGE) as usize;
        MESSAGES.get(number.checked_sub(1)?).copied()
    }

    /// Leaves a message. Only under the followers' lock, to a thread that is off the list or the
    /// standby, and only after the word was changed: a thread that is awake acts on it at once.
    pub(super) fn post(&self, message: Message) {
        self.parker.post(message as u32 + 1);
    }
}

/// The followers, in order of arrival, and the standby. What the pool's one small lock protects.
///
/// Invariant, while the lock is free: a seat is in the list if and only if its thread is parked and
/// has no message.
#[derive(Debug)]
pub(super) struct Followers {
    order: Order,
    waiting: Vec<Waiting>,
    standby: Option<Waiting>,
    arrivals: u64,
    /// Where parked threads sleep if the operating system picks; else each has its own place.
    shared_parker: Option<Arc<SharedParker>>,
}

#[derive(Clone, Debug)]
struct Waiting {
    seat: Arc<Seat>,
    /// Counts arrivals: smaller is older.
    arrived: u64,
}

/// A thread to be woken after the lock was released.
#[must_use]
#[derive(Debug)]
pub(super) enum Called {
    Seat(Arc<Seat>),
    /// Whichever thread the system picks from the shared parker.
    SharedParker(Arc<SharedParker>),
}

impl Called {
    /// Leaves the message: under the lock, after the word.
    pub(super) fn post(&self, message: Message) {
        match self {
            Self::Seat(seat) => seat.post(message),
            Self::SharedParker(shared_parker) => shared_parker.post(message),
        }
    }

    /// Wakes it: after the lock.
    pub(super) fn wake(&self) {
        match self {
            Self::Seat(seat) => seat.parker.wake(),
            Self::SharedParker(shared_parker) => shared_parker.parker().wake(),
        }
    }

    /// Wakes all that it may be: to send them home.
    pub(super) fn wake_all(&self) {
        match self {
            Self::Seat(seat) => seat.parker.wake(),
            Self::SharedParker(shared_parker) => shared_parker.parker().wake_all(),
        }
    }

    /// Which thread it is, if that is known.
    pub(super) fn index(&self) -> Option<usize> {
        match self {
            Self::Seat(seat) => Some(seat.index),
            Self::SharedParker(_) => None,
        }
    }
}

/// The follower that the order elects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Best {
    /// The one in this place of the list.
    Parked(usize),
    Standby,
}

/// What became of an attempt to leave.
#[must_use]
#[derive(Debug)]
pub(super) enum Withdrawal {
    /// Off the list; no thread will wake this one.
    Done,
    /// Someone left this message first, and it must be obeyed.
    TooLate(Message),
}

impl Followers {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            waiting: Vec::new(),
            standby: None,
            arrivals: 0,
            shared_parker: (order == Order::System).then(|| Arc::new(SharedParker::new())),
        }
    }

    /// No thread is parked (there may be a standby).
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Every thread that waits for the lead, the standby included.
    pub(super) fn asleep(&self) -> usize {
        self.waiting.len() + usize::from(self.standby.is_some())
    }

    /// Whether this one sleeps, in the list or as standby.
    pub(super) fn has(&self, seat: &Seat) -> bool {
        let mut waiting = self.waiting.iter().chain(&self.standby);
        waiting.any(|waiting| std::ptr::eq(&*waiting.seat, seat))
    }

    /// Whether a thread sleeps that waits for nothing but the lead.
    pub(super) fn has_free(&self) -> bool {
        let mut waiting = self.waiting.iter().chain(&self.standby);
        waiting.any(|waiting| !waiting.seat.is_bound())
    }

    pub(super) fn shared_parker(&self) -> Option<Arc<SharedParker>> {
        self.shared_parker.clone()
    }

    /// Enlists `seat`, whose thread is about to sleep.
    pub(super) fn push(&mut self, seat: &Arc<Seat>) {
        let waiting = self.arrival(seat);
        self.waiting.push(waiting);
    }

    /// Makes `seat` the standby.
    pub(super) fn set_standby(&mut self, seat: &Arc<Seat>) {
        let waiting = self.arrival(seat);
        self.standby = Some(waiting);
    }

    /// The index of the standby.
    pub(super) fn standby_index(&self) -> Option<usize> {
        self.standby.as_ref().map(|standby| standby.seat.index)
    }

    /// The standby leads.
    pub(super) fn forget_standby(&mut self) {
        self.standby = None;
    }

    /// The thread that would be elected: the standby too, where the order prefers it or there is no
    /// other.
    pub(super) fn best(&self) -> Option<Best> {
        match (self.best_parked(), &self.standby) {
            (Some(best), Some(standby)) if self.prefers(standby, &self.waiting[best]) => {
                Some(Best::Standby)
            }
            (Some(best), _) => Some(Best::Parked(best)),
            (None, Some(_)) => Some(Best::Standby),
            (None, None) => None,
        }
    }

    /// The thread that would be the next standby.
    pub(super) fn best_parked(&self) -> Option<usize> {
        let places = 0..self.waiting.len();
        places.max_by_key(|place| self.rank(&self.waiting[*place]))
    }

    /// The word as it must be once `best` is gone.
    pub(super) fn word_without(&self, best: Best, word: Snapshot) -> Snapshot {
        match best {
            Best::Parked(_) => word.with_parked(self.waiting.len() > 1),
            Best::Standby => word.with_standby(Standby::None),
        }
    }

    /// Takes `best` off the list; the caller posts `Lead` to it, under the same lock.
    pub(super) fn take(&mut self, best: Best) -> Called {
        match best {
            Best::Parked(place) => self.remove(place),
            Best::Standby => self.take_standby().expect("the best was the standby"),
        }
    }

    /// Makes the parked one in this place the standby; the caller posts `StandBy` to it. Not from a
    /// shared parker, where no thread can be named.
    pub(super) fn appoint(&mut self, place: usize) -> Called {
        debug_assert!(self.shared_parker.is_none());
        self.standby = Some(self.waiting[place].clone());
        self.remove(place)
    }

    /// The standby, to get a message.
    pub(super) fn standby(&self) -> Option<Called> {
        let standby = self.standby.as_ref()?;
        Some(Called::Seat(Arc::clone(&standby.seat)))
    }

    /// Whether `seat` may go before every waiting thread: by priority only.
    pub(super) fn is_outranked_by(&self, seat: &Seat) -> bool {
        let mut waiting = self.waiting.iter().chain(&self.standby);
        let rank = |seat: &Seat| (!seat.is_bound(), seat.priority);
        self.order == Order::Priority && waiting.all(|other| rank(&other.seat) <= rank(seat))
    }

    /// Takes everyone off the list; the caller posts `Close` to them.
    pub(super) fn dismiss(&mut self) -> Vec<Called> {
        let standby = self.take_standby();
        let shared_parker = self.shared_parker.clone().map(Called::SharedParker);
        let parked = std::mem::take(&mut self.waiting);
        let parked = parked.into_iter().map(|other| Called::Seat(other.seat));
        match shared_parker {
            Some(shared_parker) => standby.into_iter().chain([shared_parker]).collect(),
            None => standby.into_iter().chain(parked).collect(),
        }
    }

    /// Takes `seat` off the list, or from its place as standby, if it has no message yet.
    pub(super) fn withdraw(&mut self, seat: &Arc<Seat>) -> Withdrawal {
        if let Some(message) = seat.take_message() {
            return Withdrawal::TooLate(message);
        }
        if self
            .standby
            .as_ref()
            .is_some_and(|standby| Arc::ptr_eq(&standby.seat, seat))
        {
            self.standby = None;
            return Withdrawal::Done;
        }
        if let Some(shared_parker) = &self.shared_parker {
            // Any place on the shared parker is as good as another. If none is left, every sleeper
            // has a ticket, so there is one for this thread.
            return match self.waiting.pop() {
                Some(_) => Withdrawal::Done,
                None => {
                    Withdrawal::TooLate(shared_parker.take().expect("a ticket for every sleeper"))
                }
            };
        }
        self.waiting.retain(|other| !Arc::ptr_eq(&other.seat, seat));
        Withdrawal::Done
    }

    fn arrival(&mut self, seat: &Arc<Seat>) -> Waiting {
        self.arrivals += 1;
        Waiting {
            seat: Arc::clone(seat),
            arrived: self.arrivals,
        }
    }

    /// The order: the highest rank is elected. A bound thread comes last.
    fn rank(&self, waiting: &Waiting) -> (bool, u8, u64) {
        let is_free = !waiting.seat.is_bound();
        match self.order {
            Order::Newest => (is_free, 0, waiting.arrived),
            Order::Priority => (is_free, waiting.seat.priority, waiting.arrived),
            // On a shared parker anyone is as good as another.
            Order::Oldest | Order::System => (is_free, 0, u64::MAX - waiting.arrived),
        }
    }

    /// Whether the order puts the standby before the best of the parked. Newest first it does not:
    /// the standby stays where it is as long as another thread can lead that is as free; nor on a
    /// shared parker, where there are no ranks.
    fn prefers(&self, standby: &Waiting, parked: &Waiting) -> bool {
        let ranked = matches!(self.order, Order::Oldest | Order::Priority);
        let freer = parked.seat.is_bound() && !standby.seat.is_bound();
        freer || (ranked && self.rank(standby) > self.rank(parked))
    }

    fn remove(&mut self, place: usize) -> Called {
        let waiting = self.waiting.remove(place);
        match &self.shared_parker {
            Some(shared_parker) => Called::SharedParker(Arc::clone(shared_parker)),
            None => Called::Seat(waiting.seat),
        }
    }

    fn take_standby(&mut self) -> Option<Called> {
        self.standby
            .take()
            .map(|standby| Called::Seat(standby.seat))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_seat_prints_its_index() {
        assert_eq!(format!("{:?}", Seat::new(7, 0)), "Seat { index: 7, .. }");
    }

    /// A busy pool has a million arrivals per second. Years later the one that has waited longest
    /// is still elected before the others.
    #[test]
    fn oldest_first_for_ever() {
        let mut followers = Followers::new(Order::Oldest);
        followers.arrivals = 1 << 50;
        for index in 0..4 {
            followers.push(&Seat::new(index, 0));
        }
        for index in 0..4 {
            let oldest = followers.best().map(|best| followers.take(best));
            assert_eq!(oldest.and_then(|called| called.index()), Some(index));
        }
    }

    /// A thread that waits for something of its own comes last, whatever the order is, and also as
    /// standby or on its way in.
    #[test]
    fn bound_comes_last() {
        for order in [Order::Newest, Order::Oldest, Order::Priority] {
            let seats = [0, 1, 2].map(|index| Seat::new(index, 9 * (index as u8 % 2)));
            for bound in 0..2 {
                let mut followers = Followers::new(order);
                seats[bound].set_bound(true);
                followers.push(&seats[0]);
                assert!(!followers.is_outranked_by(&seats[bound]) || bound == 0);
                followers.push(&seats[1]);
                for expected in [1 - bound, bound] {
                    assert_eq!(followers.has_free(), expected != bound);
                    let best = followers.best().map(|best| followers.take(best));
                    let index = best.and_then(|called| called.index());
                    assert_eq!(index, Some(expected), "{order:?}");
                }
                followers.push(&seats[bound]);
                followers.set_standby(&seats[2]);
                assert!(matches!(followers.best(), Some(Best::Standby)), "{order:?}");
                seats[bound].set_bound(false);
            }
        }
    }
}
