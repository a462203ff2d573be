//! The idle list: where threads are that belong to several sets, and are in none of them now.
//!
//! Each set has a lead of its own. A thread that roams leads one set to serve it, or several to
//! sleep in all of them at once (`turn/led_sets.rs`). A thread that finds nothing to do while
//! others are awake goes to the idle list, and comes back when it is needed:
//!
//! ```text
//!      set 0          set 1                        idle list
//!   processing T   lead set aside  <-- checks --   T  the watch: a lead is open for long, so it
//!                                                     goes, and another watches
//!      leader T --- finds nothing, others are awake ---> T T T  idle
//!
//!  idle    --> rounds   [RoamingIdle::send]       a promotion left no thread: its handler blocks,
//!                                                computes or starves others: if all have room
//!  watch   --> rounds   [RoamingIdle::look]       a lead was open for a while, without threads
//!                       [RoamingIdle::send]       no thread is idle
//!  idle    --> watch    [RoamingIdle::leave_for]  the watch goes
//!  rounds  --> watch, idle [RoamingIdle::sit_down] nothing is to be done, or others lead
//!  watch   --> deep     [Lead::glance]            all leads are held and unchanged: no timer
//!  deep    --> watch    [Lead::rouse_standby]     a thread opens a lead and finds the mark
//!                       [Lead::enlist]            a guest of that set stands by from now on
//! ```
//!
//! **The invariant**: no set has an open lead and an event that waits while a thread is in the idle
//! list, for longer than the watch needs: the time between two checks, a quarter of a tick and a
//! wake (a quarter more if the opener lacked only the core of the watch, once). While the watch
//! sleeps deeply every word has its mark ([`Standby::Marked`]), which was set in a step that found
//! the lead held. A thread that opens it sees the mark in the same step, and takes it off and
//! rouses the watch: so no opening is overlooked. (If the watch was sent away the mark may be left
//! behind, and means nothing any more.) And the idle list has a watch whenever it is not empty: a
//! watch that goes appoints the next, in the same section.
//!
//! A lead that was **set aside** ([`HeldLead::set_aside`]) is open too, but its thread, or another
//! that is awake, visits it soon: so the watch gives it a tick more (less, if it checks again soon
//! because of another set's opener). A thread that sets its leads aside to go to the idle list asks
//! afterwards whether another is still awake; a thread that has served says so before it checks all
//! sets. The second of the two sees the first: so the leads are found open by a thread that is
//! awake, or their thread checks again.
//!
//! What the watch sees, and remembers, stands in `roaming_idle/watch.rs`.

mod watch;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use watch::Outlook;
#[cfg(all(test, loom))]
pub(super) use watch::Seen;

use super::{
    held::HeldLead,
    lead::Lead,
    outcome::Promotion,
    policy::room,
    word::{Snapshot, Standby},
};
use crate::sync::{
    atomic::{fence, AtomicBool, AtomicUsize, Ordering},
    lock, Clock, Moment, Mutex, Parker, Timestamp,
};

/// A thread that serves for this long may be stuck in a handler, and uses no core. (One that has
/// only lost its core has it back by then.)
const TICKS_UNTIL_STUCK: u32 = 64;

/// The messages to a thread in the idle list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    /// The idle list is closed.
    Close,
    /// It is the watch.
    Watch,
    /// A thread has just opened a lead that had the mark.
    Look,
    /// This set needs it.
    Go(usize),
}

impl Told {
    /// Left on a parker, whose word it is; the thread that sleeps there is woken later.
    fn leave_on(self, parker: &Parker) {
        parker.post(match self {
            Self::Nothing => 0,
            Self::Close => 1,
            Self::Watch => 2,
            Self::Look => 3,
            Self::Go(set) => 4 + set as u32,
        });
    }

    /// What was left on a parker, and is taken off it.
    fn take_from(parker: &Parker) -> Self {
        match parker.take() {
            0 => Self::Nothing,
            1 => Self::Close,
            2 => Self::Watch,
            3 => Self::Look,
            go => Self::Go(go as usize - 4),
        }
    }
}

/// Threads in no set, and the leads of all sets.
pub(crate) struct RoamingIdle<T> {
    /// Each with its own clock.
    leads: Vec<(Arc<Lead<T>>, Clock)>,
    /// By which the watch sleeps.
    clock: Clock,
    tick: Duration,
    /// How many threads of all sets can run at once.
    cores: usize,
    guests: Mutex<Guests>,
    /// Of each thread.
    services: Vec<Service>,
    /// The set that the next thread to check all sets begins with. It orders nothing.
    first: AtomicUsize,
}

/// Whether a thread serves a set now, and since when.
#[derive(Debug, Default)]
struct Service {
    is_on: AtomicBool,
    begun: Moment,
}

/// The threads in the idle list.
#[derive(Debug)]
struct Guests {
    idle: Vec<Arc<Parker>>,
    watch: Option<Arc<Parker>>,
    /// A thread was sent for this set then, and has not begun to check the sets.
    coming: Vec<Option<Timestamp>>,
    is_closed: bool,
}

/// How a lead knows its idle list.
pub(super) struct Link<T> {
    idle_list: Weak<RoamingIdle<T>>,
    set: usize,
}

/// Which other threads there are, for one that finds nothing to do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// None is awake: this thread must wait in the sets.
    AreNot,
    /// Another is awake, and checks all leads before it sleeps. Those of this thread are set aside.
    ComeBy,
    /// Another was awake, and may have checked before they were set aside: this thread must check
    /// again.
    AreDone,
}

/// The place of a thread in the idle list.
#[must_use]
pub(super) enum Seated {
    Watches(Outlook),
    Idle,
    /// It is closed: no thread sits down.
    Closed,
}

/// How many of these cores the sets use at most: each has a limit of its own, which may be more
/// than there are.
fn cores_for<T>(leads: &[(Arc<Lead<T>>, Clock)], cores: usize) -> usize {
    let each = leads.iter().map(|(lead, _)| lead.policy.cores);
    let most = each.clone().max().unwrap_or(1);
    let all = each.fold(0, usize::saturating_add);
    all.min(cores).max(most)
}

impl<T> RoamingIdle<T> {
    /// The idle list of these leads, each of which was made for [roaming](Lead::roaming), for so
    /// many threads on so many cores.
    pub(crate) fn new(
        leads: Vec<(Arc<Lead<T>>, Clock)>,
        tick: Duration,
        threads: usize,
        cores: usize,
    ) -> Arc<Self> {
        let coming = vec![None; leads.len()];
        Arc::new_cyclic(|me| {
            for (set, (lead, _)) in leads.iter().enumerate() {
                let idle_list = Weak::clone(me);
                let _ = lead.idle_list.set(Link { idle_list, set });
            }
            Self {
                clock: leads[0].1.clone(),
                cores: cores_for(&leads, cores),
                leads,
                tick,
                guests: Mutex::new(Guests {
                    idle: Vec::new(),
                    watch: None,
                    coming,
                    is_closed: false,
                }),
                services: (0..threads).map(|_| Service::default()).collect(),
                first: AtomicUsize::new(0),
            }
        })
    }

    /// A thread begins to serve this set: it checks all sets again when it is done, unless its
    /// handler blocks. The next thread to check them begins behind this one, so that every set has
    /// its turn also where all serving threads are stuck.
    pub(crate) fn serves(&self, thread: usize, set: usize) {
        self.look_last_at(set);
        let service = &self.services[thread];
        service.begun.set(self.clock.now());
        // Release: a thread that sees it on sees since when.
        service.is_on.store(true, Ordering::Release);
    }

    /// The next thread to check the sets begins with all others.
    pub(crate) fn look_last_at(&self, set: usize) {
        self.first.store(set + 1, Ordering::Relaxed);
    }

    /// All sets, in the order in which to look at them now.
    pub(crate) fn round(&self) -> impl Iterator<Item = usize> {
        let (first, all) = (self.first.load(Ordering::Relaxed), self.leads.len());
        (first..first + all).map(move |set| set % all)
    }

    /// It is done, and looks at all leads before it sleeps.
    pub(crate) fn has_served(&self, thread: usize) {
        self.services[thread].is_on.store(false, Ordering::SeqCst);
        // Pairs with the fence in `leave_to_others`.
        fence(Ordering::SeqCst);
    }

    /// For a thread that finds nothing to do: if others are awake and will come by, it sets its
    /// leads aside.
    pub(crate) fn leave_to_others(&self, set_aside: impl FnOnce()) -> Others {
        if !self.is_somebody_awake() {
            return Others::AreNot;
        }
        set_aside();
        // Pairs with the fence in `has_served`: the serving thread has not checked yet, and finds
        // these leads open; or it is seen here that it does not serve any more. Without the two it
        // could miss them, and still be counted here: no thread would lead.
        fence(Ordering::SeqCst);
        if self.is_somebody_awake() {
            Others::ComeBy
        } else {
            Others::AreDone
        }
    }

    /// A guess whether another one is awake: it serves, for less than a tick, and a handler runs
    /// that is not known to block. If it is wrong (that is a guest's handler, or one that is stuck)
    /// the watch finds the leads. Where the wake is eager any handler may block.
    fn is_somebody_awake(&self) -> bool {
        let runs = |(lead, _): &(Arc<Lead<T>>, Clock)| {
            lead.policy.is_adaptive() && lead.word.look().running() > 0
        };
        self.serving(self.tick).next().is_some() && self.leads.iter().any(runs)
    }

    /// A guess whether one more thread is of use; more, if computations pile up. The sets share the
    /// cores, and a thread that serves one of them uses one, unless it is stuck; one that is on its
    /// way will, if it has a core within a tick. (A promotion has asked before whether its own set
    /// may use one more.)
    fn has_room(&self, piles_up: bool) -> bool {
        let stuck = self.tick.saturating_mul(TICKS_UNTIL_STUCK);
        let most = room(self.cores, piles_up);
        self.coming() + self.serving(stuck).take(most).count() < most
    }

    /// How many are on their way, for less than a tick.
    fn coming(&self) -> usize {
        let now = self.clock.now();
        let guests = lock(&self.guests);
        let coming = guests.coming.iter().flatten();
        coming.filter(|sent| now.since(**sent) < self.tick).count()
    }

    /// The threads that have served for less than `span`.
    fn serving(&self, span: Duration) -> impl Iterator<Item = &Service> {
        let now = self.clock.now();
        self.services.iter().filter(move |service| {
            // This load first, which pairs with the store in `serves`: a thread that sees it on
            // sees since when. SeqCst, for `leave_to_others`.
            let is_on = service.is_on.load(Ordering::SeqCst);
            is_on && Duration::from_nanos(service.begun.nanos_before(now)) < span
        })
    }

    /// Sits down on this parker until a set needs the thread, which looks round then: because of
    /// which one. `None`: the idle list is closed.
    pub(crate) fn rest_until_called(&self, parker: &Arc<Parker>) -> Option<usize> {
        let mut outlook = match self.sit_down(parker) {
            Seated::Watches(outlook) => Some(outlook),
            Seated::Idle => None,
            Seated::Closed => return None,
        };
        loop {
            if let Some(outlook) = outlook.as_mut().filter(|it| it.is_due(&self.clock)) {
                if let Some(set) = self.look(parker, outlook) {
                    return Some(set);
                }
            }
            let until = outlook.as_ref().and_then(|outlook| outlook.due);
            self.clock.sleep(parker, until);
            match Told::take_from(parker) {
                Told::Nothing => {}
                Told::Close => return None,
                Told::Watch => outlook = Some(self.outlook(self.clock.now())),
                Told::Look => outlook = Some(self.look_soon(outlook)),
                Told::Go(set) => {
                    self.set_off(set);
                    return Some(set);
                }
            }
        }
    }

    /// Sends a thread to this set, unless one is on its way. Returns whether a thread was woken.
    fn send(&self, set: usize) -> bool {
        let mut guests = lock(&self.guests);
        if guests.coming[set].is_some() || guests.is_closed {
            return false;
        }
        let parker = guests.idle.pop().or_else(|| guests.watch.take());
        if let Some(parker) = &parker {
            guests.coming[set] = Some(self.clock.now());
            Told::Go(set).leave_on(parker);
        }
        drop(guests);
        parker.inspect(|parker| parker.wake()).is_some()
    }

    /// Makes the watch check, if there is one. (If not, the next thread to sit down checks first.)
    fn rouse(&self) {
        let guests = lock(&self.guests);
        let watch = guests.watch.clone();
        if let Some(parker) = &watch {
            Told::Look.leave_on(parker);
        }
        drop(guests);
        watch.iter().for_each(|parker| parker.wake());
    }

    /// No thread sits down any more, and all go.
    pub(crate) fn close(&self) {
        let mut guests = lock(&self.guests);
        guests.is_closed = true;
        let mut parkers = std::mem::take(&mut guests.idle);
        parkers.extend(guests.watch.take());
        parkers
            .iter()
            .for_each(|parker| Told::Close.leave_on(parker));
        drop(guests);
        parkers.iter().for_each(|parker| parker.wake());
    }

    /// Whether everybody is to go.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.guests).is_closed
    }

    /// How many are in the idle list.
    pub(crate) fn len(&self) -> usize {
        let guests = lock(&self.guests);
        guests.idle.len() + usize::from(guests.watch.is_some())
    }

    /// The first to sit down watches, and looks at once.
    pub(super) fn sit_down(&self, parker: &Arc<Parker>) -> Seated {
        let mut guests = lock(&self.guests);
        if guests.is_closed {
            return Seated::Closed;
        }
        // A watch that got `Look` as it left is not to watch now.
        parker.take();
        if guests.watch.is_some() {
            guests.idle.push(Arc::clone(parker));
            return Seated::Idle;
        }
        guests.watch = Some(Arc::clone(parker));
        Seated::Watches(self.outlook(self.clock.now()))
    }

    /// The watch goes because of a set; another thread watches from now on. Returns whether it may:
    /// it may have been sent elsewhere.
    pub(super) fn leave_for(&self, parker: &Arc<Parker>, set: usize) -> bool {
        let mut guests = lock(&self.guests);
        let watches = guests
            .watch
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, parker));
        if !watches {
            return false;
        }
        guests.watch = guests.idle.pop();
        let next = guests.watch.clone();
        if let Some(parker) = &next {
            Told::Watch.leave_on(parker);
        }
        drop(guests);
        next.iter().for_each(|parker| parker.wake());
        self.leads[set].0.counters.roamed.one_more();
        true
    }

    /// A thread that was sent goes. From here on another one may be sent: the coming thread sees a
    /// lead that was opened before this.
    fn set_off(&self, set: usize) {
        lock(&self.guests).coming[set] = None;
        self.leads[set].0.counters.roamed.one_more();
    }
}

impl<T> Lead<T> {
    /// A lead whose threads serve other sets too; their idle list is made later.
    pub(crate) fn roaming(mut self, on: bool) -> Self {
        self.calls |= on;
        self.roams = on;
        self
    }

    /// Whether a thread may come that is in another set, or in none: it roams, and the idle list is
    /// not closed.
    pub(crate) fn may_be_visited(&self) -> bool {
        let idle_list = self.idle_list().filter(|_| self.roams);
        idle_list.is_some_and(|(idle_list, _)| !idle_list.is_closed())
    }

    /// The period of looks.
    pub(crate) fn tick(&self) -> Duration {
        self.policy.tick
    }

    /// Whether the lead is open, and for anyone.
    pub(crate) fn is_vacant(&self) -> bool {
        let word = self.word.look();
        word.is_vacant() && !word.is_closed()
    }

    /// Takes the lead if it is open and no thread was elected, whatever the order is: for a thread
    /// that checks all sets.
    pub(crate) fn take_open(&self, clock: &Clock) -> Option<HeldLead<'_, T>> {
        let took = self.word.update(|word| {
            if word.is_vacant() && !word.is_closed() {
                (word.taken(), true)
            } else {
                (word, false)
            }
        });
        took.then(|| {
            self.opener.note();
            HeldLead::taken(self, clock.now())
        })
    }

    /// A promotion with this opening found no thread asleep, and one can be called.
    #[cold]
    #[inline(never)]
    pub(super) fn call_for_somebody(&self, opening: Snapshot, needed: bool) -> Promotion {
        if !self.roams {
            // The thread that has promoted calls.
            return Promotion::Alone;
        }
        // A thread that may block needs no core.
        let may_block = opening.blocks() || !self.policy.is_adaptive();
        let needed = needed && (may_block || self.has_room_in_all_sets(opening.piles_up()));
        match self.send_for_somebody(needed) {
            Promotion::LeftOpen if opening.standby() == Standby::Marked => self.rouse_standby(),
            promotion => promotion,
        }
    }

    /// Whether one more thread that roams is of use: see [`RoamingIdle::has_room`].
    #[cold]
    pub(super) fn has_room_in_all_sets(&self, piles_up: bool) -> bool {
        let has_room = |(idle_list, _): (Arc<RoamingIdle<T>>, usize)| idle_list.has_room(piles_up);
        self.idle_list().is_some_and(has_room)
    }

    /// No thread in the set could lead: another comes, if `needed` and if one is free. Otherwise
    /// the watch takes care of it.
    pub(super) fn send_for_somebody(&self, needed: bool) -> Promotion {
        if needed
            && self
                .idle_list()
                .is_some_and(|(idle_list, set)| idle_list.send(set))
        {
            Promotion::Watched
        } else {
            Promotion::LeftOpen
        }
    }

    /// The mark is taken off this lead: the watch of the idle list is to look again.
    pub(super) fn rouse_idle_list(&self) {
        self.idle_list()
            .iter()
            .for_each(|(idle_list, _)| idle_list.rouse());
    }

    /// The idle list, as long as it is there, and the number of this set in it.
    fn idle_list(&self) -> Option<(Arc<RoamingIdle<T>>, usize)> {
        let link = self.idle_list.get()?;
        Some((link.idle_list.upgrade()?, link.set))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
