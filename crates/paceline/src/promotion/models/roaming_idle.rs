//! Roaming: the idle list against promotions, its watch, and its end.

use super::*;
use crate::promotion::{
    roaming_idle::{Seated, Seen},
    Others, RoamingIdle,
};

/// Two sets and their idle list.
struct Sets {
    leads: Vec<Arc<Lead<usize>>>,
    clock: Arc<VirtualClock>,
    idle_list: Arc<RoamingIdle<usize>>,
}

impl Sets {
    fn new(count: usize, wake: Wake) -> Arc<Self> {
        let clock = Arc::new(VirtualClock::new());
        let policy = || Policy {
            wake,
            order: Order::Newest,
            cores: 2,
            tick: TICK,
        };
        let lead = |_| Arc::new(Lead::vacant(0, policy(), Arc::default()).roaming(true));
        let leads: Vec<_> = (0..count).map(lead).collect();
        let clocks = leads.iter().map(|lead| {
            let clock = Clock::Virtual(Arc::clone(&clock));
            (Arc::clone(lead), clock)
        });
        let idle_list = RoamingIdle::new(clocks.collect(), TICK, 1, 2);
        Arc::new(Self {
            leads,
            clock,
            idle_list,
        })
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(Arc::clone(&self.clock))
    }

    fn take(&self, set: usize) -> HeldLead<'_, usize> {
        self.leads[set]
            .take_open(&self.clock())
            .expect("nobody leads")
    }

    /// Gives the lead of a set away, for an event that takes for ever.
    fn promote<'a>(&self, held: HeldLead<'a, usize>, blocks: bool) -> Running<'a, usize> {
        let marks = Marks {
            blocks,
            ..Marks::default()
        };
        let sight = held.sight();
        held.promote(sight, marks, self.clock().now()).0
    }

    /// A thread that goes from the idle list to a set, counts one turn there, and keeps the lead
    /// until the end.
    fn roamer(self: &Arc<Self>) -> thread::JoinHandle<Option<usize>> {
        let sets = Arc::clone(self);
        thread::spawn(move || {
            let parker = Arc::new(Parker::new());
            let set = sets.idle_list.rest_until_called(&parker)?;
            if let Some(held) = sets.leads[set].take_open(&sets.clock()) {
                mem::forget(count(held));
            }
            Some(set)
        })
    }

    fn is_held(&self, set: usize) -> bool {
        !self.leads[set].word.look().is_open()
    }
}

/// L2 over all sets, at once: a handler of a kind that blocks leaves no leader behind. A thread in
/// the idle list, or about to sit down there, comes, without a tick: it is sent for, or finds the
/// lead open when it checks first.
fn sent_for(wake: Wake) {
    explore(move || {
        let sets = Sets::new(1, wake);
        let held = sets.take(0);
        let roamer = sets.roamer();
        let running = sets.promote(held, true);
        while !sets.is_held(0) {
            sets.clock.advance(TICK);
            thread::yield_now();
        }
        assert_eq!(roamer.join().unwrap(), Some(0));
        drop(running);
    });
}

#[test]
fn loom_roamer_is_sent_for_eager() {
    sent_for(Wake::Eager);
}

#[test]
fn loom_roamer_is_sent_for_adaptive() {
    sent_for(Wake::Adaptive);
}

/// The watch is about to sleep deeply while the lead is opened: it sees the opening, or the
/// promotion sees its mark and rouses it (eagerly: sends it, however deeply it sleeps). Either way
/// it finds the blind set at its next look but one.
fn deep_watch_is_roused(wake: Wake) {
    explore(move || {
        let sets = Sets::new(1, wake);
        let held = sets.take(0);
        let roamer = sets.roamer();
        // Two looks at a lead that is held: at the next it sleeps deeply.
        for _ in 0..2 {
            sets.clock.advance(TICK);
        }
        let running = sets.promote(held, false);
        while !sets.is_held(0) {
            sets.clock.advance(TICK);
            thread::yield_now();
        }
        assert_eq!(roamer.join().unwrap(), Some(0));
        drop(running);
    });
}

#[test]
fn loom_deep_watch_is_roused() {
    deep_watch_is_roused(Wake::Adaptive);
}

#[test]
fn loom_deep_watch_is_sent_for_eager() {
    deep_watch_is_roused(Wake::Eager);
}

/// The watch has left its mark, and was sent away. A guest comes while the lead is opened for an
/// event: it is not taken in by the mark, and stands by.
#[test]
fn loom_guest_beside_the_mark_of_who_has_gone() {
    explore(|| {
        let sets = Sets::new(1, Wake::Adaptive);
        let held = sets.take(0);
        let mut seen = Seen::default();
        for _ in 0..3 {
            let _ = sets.leads[0].glance(&mut seen, sets.clock().now());
        }
        let guest = {
            let sets = Arc::clone(&sets);
            thread::spawn(move || {
                let seat = Arc::new(Seat::new(0, 0));
                let led = sets.leads[0].arrive(&seat, &sets.clock(), Until::at(None));
                assert!(matches!(&led, Arrival::Leads(_)));
                mem::forget(led);
            })
        };
        let running = sets.promote(held, false);
        while !sets.is_held(0) {
            sets.clock.advance(TICK);
            thread::yield_now();
        }
        guest.join().unwrap();
        drop(running);
    });
}

/// The idle list is closed while a thread sits down, or watches: it gets out.
#[test]
fn loom_close_of_the_idle_list() {
    explore(|| {
        let sets = Sets::new(1, Wake::Adaptive);
        let held = sets.take(0);
        let roamer = sets.roamer();
        sets.idle_list.close();
        assert_eq!(roamer.join().unwrap(), None);
        drop(held);
    });
}

/// Whether the thread that sits down on this parker is the watch.
fn watches(sets: &Sets, parker: &Arc<Parker>) -> bool {
    matches!(sets.idle_list.sit_down(parker), Seated::Watches(_))
}

/// The watch goes while another sits down, which finds it there and does not watch: then it is
/// appointed.
#[test]
fn loom_watch_goes_while_another_comes() {
    explore(|| {
        let sets = Sets::new(1, Wake::Adaptive);
        let [first, second] = [(); 2].map(|()| Arc::new(Parker::new()));
        assert!(watches(&sets, &first));
        let other = {
            let (sets, second) = (Arc::clone(&sets), Arc::clone(&second));
            thread::spawn(move || watches(&sets, &second))
        };
        assert!(sets.idle_list.leave_for(&first, 0));
        let watches = other.join().unwrap();
        assert!(watches || second.take() != 0, "nobody watches");
        assert_eq!(sets.idle_list.len(), 1);
    });
}

/// I3: a leader leaves a set that has no other thread. One of the idle list comes.
#[test]
fn loom_leaver_is_followed_from_the_idle_list() {
    explore(|| {
        let sets = Sets::new(1, Wake::Adaptive);
        let held = sets.take(0);
        let roamer = sets.roamer();
        drop(held);
        while !sets.is_held(0) {
            sets.clock.advance(TICK);
            thread::yield_now();
        }
        assert_eq!(roamer.join().unwrap(), Some(0));
    });
}

/// A thread that finds nothing to do sets its lead aside, for one that serves another set; and that
/// one is done at this very moment, and checks the sets. It finds the lead open, or the first one
/// checks again: one of them leads.
#[test]
fn loom_lead_left_to_who_is_done() {
    explore(|| {
        let sets = Sets::new(2, Wake::Adaptive);
        let idle = sets.take(1);
        let serves = {
            let sets = Arc::clone(&sets);
            thread::spawn(move || {
                let held = sets.take(0);
                sets.idle_list.serves(0, 0);
                drop(sets.promote(held, false));
                sets.idle_list.has_served(0);
                let beside = sets.leads[1].take_open(&sets.clock());
                beside.map(mem::forget).is_some()
            })
        };
        let mut idle = Some(idle);
        let others = sets.idle_list.leave_to_others(|| {
            let now = sets.clock().now();
            idle.take()
                .into_iter()
                .for_each(|held| held.set_aside(Some(now)));
        });
        if others == Others::AreDone {
            idle = sets.leads[1].take_open(&sets.clock());
        }
        let comes_by = serves.join().unwrap();
        assert_eq!(sets.is_held(1), idle.is_some() || comes_by);
        assert!(sets.is_held(1), "everybody is gone: {others:?}");
        mem::forget(idle);
    });
}
