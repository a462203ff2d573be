//! Elastic pools: how many threads of its own it has, when one more is called, and
//! which may go.
//!
//! ```text
//!  none   --> called    [Lead::claim_one_more]  a promotion left no thread behind
//!  called --> here      [ElasticPolicy::arrived]        it has taken the lead, or is on the list
//!  called --> none      [ElasticPolicy::give_up]        there is no need after all, or no thread
//!  here   --> leaving   [Lead::lets_go]         parked for long, and more are left than must be
//!  leaving --> gone     [ElasticPolicy::part]           it has nothing left to do
//!  leaving --> called   [ElasticPolicy::part]           one more was wanted, without room for it
//! ```
//!
//! **No storm.** While a thread was called and is not here yet, no other is called; so a pool grows
//! by one at a time, however many find no thread behind them. **Never more than may be.** A leaving
//! thread counts until it has left. **No blind pool.** A thread that goes leaves a sleeping one
//! behind (`Lead::follow`), so a promotion that has seen one asleep can rely on it. A pool of fixed
//! size has none of this, and nothing here costs it anything.

use std::{mem, time::Duration};

use super::{followers::Seat, lead::Lead};
use crate::sync::{lock, Clock, Mutex, Timestamp};

/// If no thread was to be had, the pool does not ask again for this long.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// One leads, and one is in reserve: so many threads stay, where the bound is lower.
const LEADER_AND_RESERVE: usize = 2;

/// How many threads of its own a pool has, and may have.
#[derive(Debug)]
pub(crate) struct ElasticPolicy {
    /// So many stay.
    stay: usize,
    most: usize,
    /// How long a thread beyond those that stay may be idle.
    keep_alive: Duration,
    count: Mutex<Count>,
}

#[derive(Debug)]
struct Count {
    /// Threads of the pool's own, with the one that was called.
    own: usize,
    /// Besides them, those that were let go and have not left yet.
    leaving: usize,
    /// One more would have been called, but for those.
    is_one_wanted: bool,
    call: Call,
    /// No thread is called before this.
    not_before: Timestamp,
}

impl Count {
    /// No thread was called.
    fn give_up(&mut self) {
        self.own -= 1;
        self.call = Call::Nobody;
    }
}

/// Whether a thread was called that is not here yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Nobody,
    /// One was, and has no index yet.
    Somebody,
    Thread(usize),
}

impl ElasticPolicy {
    /// Begins with `least` threads, which the caller spawns.
    pub(crate) fn new(least: usize, most: usize, keep_alive: Duration) -> Self {
        Self {
            stay: least.max(LEADER_AND_RESERVE),
            most,
            keep_alive,
            count: Mutex::new(Count {
                own: least,
                leaving: 0,
                is_one_wanted: false,
                call: Call::Nobody,
                not_before: Timestamp::PAST,
            }),
        }
    }

    /// Counts one more, which must then be called. If there is no room because of a leaving thread,
    /// that one stays.
    fn claim(&self, now: Timestamp) -> bool {
        let mut count = lock(&self.count);
        let may = count.own < self.most && count.call == Call::Nobody && now >= count.not_before;
        let has_room = count.own + count.leaving < self.most;
        if may && has_room {
            count.own += 1;
            count.call = Call::Somebody;
        }
        count.is_one_wanted |= may && !has_room;
        may && has_room
    }

    /// The called thread has this index.
    pub(crate) fn called(&self, index: usize) {
        let mut count = lock(&self.count);
        if count.call == Call::Somebody {
            count.call = Call::Thread(index);
        }
    }

    /// No thread was called.
    pub(crate) fn give_up(&self) {
        lock(&self.count).give_up();
    }

    /// No thread was to be had: the pool does not ask again for a while.
    pub(crate) fn fail(&self, now: Timestamp) {
        let mut count = lock(&self.count);
        count.give_up();
        count.not_before = now.after(PAUSE_AFTER_FAILURE);
    }

    /// A thread is here: it leads, or is on the list. Returns until when it stays if it is idle;
    /// `None`: for ever.
    pub(super) fn arrived(&self, seat: &Seat, clock: &Clock) -> Option<Timestamp> {
        let mut count = lock(&self.count);
        if count.call == Call::Thread(seat.index()) {
            count.call = Call::Nobody;
        }
        let may_go = seat.is_own() && !seat.is_kept() && count.own > self.stay;
        drop(count);
        may_go.then(|| clock.now().after(self.keep_alive))
    }

    /// Lets this one go, unless so many must stay, or something belongs to it. Of two that ask at
    /// once, the second finds the first gone.
    fn dismiss(&self, seat: &Seat) -> bool {
        let mut count = lock(&self.count);
        let may = count.own > self.stay && seat.let_go();
        count.own -= usize::from(may);
        count.leaving += usize::from(may);
        may
    }

    /// A thread that was let go does the last step: it leaves, by `leave`. Or one more was wanted
    /// meanwhile: then it is that one, as if it had been called. Returns whether it has left. (The
    /// step is part of this, so that no thread takes its place before it has left, and none wants
    /// one more after it has checked.)
    pub(crate) fn part(&self, seat: &Seat, leave: impl FnOnce()) -> bool {
        let mut count = lock(&self.count);
        count.leaving -= 1;
        if mem::take(&mut count.is_one_wanted) {
            seat.come_back();
            count.own += 1;
            // One is wanted only while none is called, and there was no room for a call since.
            debug_assert_eq!(count.call, Call::Nobody);
            count.call = Call::Thread(seat.index());
            return false;
        }
        leave();
        true
    }
}

impl<T> Lead<T> {
    /// A lead whose threads are called and let go.
    pub(crate) fn with_elastic(mut self, elastic: Option<ElasticPolicy>) -> Self {
        self.calls |= elastic.is_some();
        self.elastic = elastic;
        self
    }

    pub(crate) fn elastic(&self) -> Option<&ElasticPolicy> {
        self.elastic.as_ref()
    }

    /// For a thread that left none behind: whether it shall call one more. If so it must report the
    /// outcome to the elastic policy.
    pub(crate) fn claim_one_more(&self, now: Timestamp) -> Option<&ElasticPolicy> {
        let elastic = self.elastic.as_ref().filter(|elastic| elastic.claim(now))?;
        // Once more, after the claim. Both the claim and `arrived` take the elastic policy's lock:
        // a thread that is on the list and was there before the claim is seen here; and one that
        // comes after it counts one thread more, and so knows that it need not stay for ever.
        if self.word.look().has_nobody() {
            return Some(elastic);
        }
        elastic.give_up();
        None
    }

    /// For a thread that was parked for long, is off the list, and leaves another behind: whether
    /// it may go.
    pub(super) fn lets_go(&self, seat: &Seat) -> bool {
        let elastic = self.elastic.as_ref();
        let may = elastic.is_some_and(|elastic| elastic.dismiss(seat));
        if may {
            self.counters.retired.one_more();
        }
        may
    }
}

#[cfg(all(test, not(shuttle)))]
impl ElasticPolicy {
    /// With so many threads that are here already.
    pub(super) fn of(own: usize, most: usize, keep_alive: Duration) -> Self {
        let elastic = Self::new(0, most, keep_alive);
        lock(&elastic.count).own = own;
        elastic
    }

    pub(super) fn own(&self) -> usize {
        lock(&self.count).own
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::promotion::{Keeping, Order, Policy, Wake};

    const KEEP_ALIVE: Duration = Duration::from_secs(1);

    fn now() -> Timestamp {
        Clock::monotonic().now()
    }

    /// One at a time, until there are as many as may be.
    #[test]
    fn one_is_called_at_a_time() {
        let (elastic, clock) = (ElasticPolicy::new(2, 4, KEEP_ALIVE), Clock::monotonic());
        for index in 2..4 {
            assert!(elastic.claim(now()));
            assert!(!elastic.claim(now()), "somebody is called");
            elastic.called(index);
            let _ = elastic.arrived(&Seat::of_pool(0, 0), &clock);
            assert!(!elastic.claim(now()), "somebody else came");
            let _ = elastic.arrived(&Seat::of_pool(index, 0), &clock);
        }
        assert!(!elastic.claim(now()), "these are all");
    }

    /// No thread is to be had: the pool does not ask again for a while. Then it does.
    #[test]
    fn a_failure_is_followed_by_a_pause() {
        let (elastic, start) = (ElasticPolicy::of(1, 2, KEEP_ALIVE), now());
        assert!(elastic.claim(start));
        elastic.fail(start);
        assert!(!elastic.claim(start));
        assert!(elastic.claim(start.after(PAUSE_AFTER_FAILURE)));
        assert_eq!(elastic.own(), 2);
    }

    /// A thread sleeps after all: none is called, and the next promotion that finds none may call.
    #[test]
    fn no_need_after_all() {
        let policy = Policy {
            wake: Wake::Eager,
            order: Order::Newest,
            cores: 1,
            tick: KEEP_ALIVE,
        };
        let elastic = ElasticPolicy::of(2, 3, KEEP_ALIVE);
        let lead = Lead::vacant((), policy, Arc::default()).with_elastic(Some(elastic));
        let parked = |parked| lead.word.update(|word| (word.with_parked(parked), ()));
        parked(true);
        assert!(lead.claim_one_more(now()).is_none());
        parked(false);
        let elastic = lead.claim_one_more(now()).expect("nobody sleeps");
        assert_eq!(elastic.own(), 3);
    }

    /// So many stay; and a leader and one in reserve in any case. Guests stay as long as they like,
    /// and so does one that something belongs to.
    #[test]
    fn who_may_go() {
        let clock = Clock::monotonic();
        for (least, stay) in [(0, 2), (1, 2), (2, 2), (3, 3)] {
            let elastic = ElasticPolicy::new(least, 8, KEEP_ALIVE);
            let (guest, own) = (Seat::new(7, 0), Seat::of_pool(8, 0));
            let kept = Seat::of_pool(6, 0);
            assert_eq!(kept.keep(), Keeping::Begun);
            lock(&elastic.count).own = stay;
            assert!(elastic.arrived(&own, &clock).is_none());
            assert!(!elastic.dismiss(&own));
            lock(&elastic.count).own = stay + 1;
            assert!(elastic.arrived(&guest, &clock).is_none());
            assert!(elastic.arrived(&kept, &clock).is_none());
            assert!(!elastic.dismiss(&kept));
            assert!(elastic.arrived(&own, &clock).is_some());
            assert!(elastic.dismiss(&own));
            assert!(!elastic.dismiss(&Seat::of_pool(9, 0)));
        }
    }

    /// A leaving thread has its place until it has left: no other is called into it.
    #[test]
    fn who_is_leaving_counts_until_it_has_left() {
        let (elastic, seat) = (ElasticPolicy::of(3, 3, KEEP_ALIVE), Seat::of_pool(2, 0));
        // None is leaving: none is wanted.
        assert!(!elastic.claim(now()));
        assert!(elastic.dismiss(&seat));
        assert_eq!(elastic.own(), 2);
        let has_left = elastic.part(&seat, || assert!(elastic.count.try_lock().is_err()));
        assert!(has_left);
        assert!(elastic.claim(now()), "there is room");
        elastic.called(3);
        let _ = elastic.arrived(&Seat::of_pool(3, 0), &Clock::monotonic());
        assert!(!elastic.claim(now()), "there are three");
    }

    /// One more is wanted while a thread is leaving, and there is no room: that one stays, as if it
    /// had been called.
    #[test]
    fn who_is_leaving_and_wanted_comes_back() {
        let (elastic, seat) = (ElasticPolicy::of(3, 3, KEEP_ALIVE), Seat::of_pool(2, 0));
        assert!(elastic.dismiss(&seat));
        assert_eq!(seat.keep(), Keeping::Gone);
        assert!(!elastic.claim(now()), "there are three");
        assert!(!elastic.part(&seat, || panic!("it left")));
        assert_eq!(elastic.own(), 3);
        assert_eq!(lock(&elastic.count).call, Call::Thread(2));
        let _ = elastic.arrived(&seat, &Clock::monotonic());
        assert_eq!(lock(&elastic.count).call, Call::Nobody);
        assert_eq!(seat.keep(), Keeping::Begun);
    }
}
