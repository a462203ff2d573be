//! loom's models of the lead: every interleaving of the product's own code, weak memory included.
//!
//! The lead's own data is a counter in a cell that loom watches: two holders at once, or one that does
//! not see what the last one did, fail the model (L1). A thread that is never woken is a deadlock,
//! which loom reports (L2).

use std::{sync::Arc, time::Duration};

use loom::thread;

use super::{Arrival, HeldLead, Lead, Promotion, Rejoined, Seat};
use crate::sync::{
    atomic::{AtomicBool, Ordering},
    explore, Clock, Parker, VirtualClock,
};

/// A pool without a handle set: its threads, its clock, and the lead over a counter of turns.
struct Pool {
    lead: Lead<usize>,
    clock: Arc<VirtualClock>,
    /// Where a leader of the closing models waits for its event, which never comes.
    waker: Parker,
}

impl Pool {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lead: Lead::vacant(0),
            clock: Arc::new(VirtualClock::new()),
            waker: Parker::new(),
        })
    }

    /// `until`: a deadline in seconds.
    fn arrive(&self, seat: &Arc<Seat>, until: Option<u64>) -> Arrival<'_, usize> {
        let clock = Clock::Virtual(Arc::clone(&self.clock));
        let start = Clock::Virtual(Arc::new(VirtualClock::new())).now();
        let deadline = until.map(|until| start.after(Duration::from_secs(until)));
        self.lead.arrive(seat, &clock, deadline)
    }

    /// Leads once, counts it, promotes, processes nothing, and stays out.
    fn turn(&self, seat: &Arc<Seat>, until: Option<u64>) -> Turn {
        match self.arrive(seat, until) {
            Arrival::TimedOut => Turn::TimedOut,
            Arrival::Closed => Turn::Closed,
            Arrival::Leads(held) => {
                drop(count(held));
                Turn::Led
            }
        }
    }

    /// The number of turns, seen by one who can lead for sure: the lead is not lost.
    fn turns(&self) -> usize {
        match self.arrive(&Seat::new(9), None) {
            Arrival::Leads(mut held) => held.with_owned(|turns| *turns),
            _ => panic!("nobody closed, and there is no deadline"),
        }
    }

    fn close(&self) {
        self.lead.close();
        self.waker.post(1);
        self.waker.wake();
    }

    /// Leads until the pool is closed, as a leader that waits for an event.
    fn lead_until_closed(&self, seat: &Arc<Seat>) {
        if let Arrival::Leads(held) = self.arrive(seat, None) {
            while !self.lead.is_closed() {
                self.waker.sleep(None);
            }
            drop(held);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Led,
    TimedOut,
    Closed,
}

fn count(mut held: HeldLead<'_, usize>) -> HeldLead<'_, usize> {
    held.with_owned(|turns| *turns += 1);
    held
}

/// L1, L2: three threads take one turn each, every one of them through promotion and rejoining.
#[test]
fn loom_everyone_gets_a_turn() {
    explore(|| {
        let pool = Pool::new();
        let threads: Vec<_> = (0..2)
            .map(|index| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || work(&pool, &Seat::new(index)))
            })
            .collect();
        let mut all = work(&pool, &Seat::new(2));
        for thread in threads {
            all += thread.join().unwrap();
        }
        assert_eq!(pool.turns(), all);
    });
}

/// One event: lead, promote, rejoin, and lead once more if the lead is vacant. Tells how often it led.
fn work(pool: &Pool, seat: &Arc<Seat>) -> usize {
    let Arrival::Leads(held) = pool.arrive(seat, None) else {
        panic!("nobody closes");
    };
    let (running, promotion) = count(held).promote();
    assert_ne!(promotion, Promotion::Closing);
    match running.rejoin() {
        Rejoined::Leads(held) => {
            drop(count(held));
            2
        }
        Rejoined::Follows => 1,
    }
}

/// I3: whoever leaves in the middle of a turn (the roles are dropped) loses nothing.
#[test]
fn loom_dropped_roles_pass_the_lead_on() {
    explore(|| {
        let pool = Pool::new();
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.turn(&Seat::new(0), None))
        };
        let third = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let Arrival::Leads(held) = pool.arrive(&Seat::new(1), None) else {
                    panic!("nobody closes");
                };
                let (running, _) = held.promote();
                drop(running);
            })
        };
        assert_eq!(other.join().unwrap(), Turn::Led);
        third.join().unwrap();
        assert_eq!(pool.turns(), 1);
    });
}

/// I4, `elected_then_timed_out_passes_on`, `loop_threads_time_out_after_broadcast`: two followers, one
/// of which runs out of time while the lead is being given away. Whoever was elected and may not lead
/// passes it on: the patient one always leads.
#[test]
fn loom_deadline_against_election() {
    explore(|| {
        let pool = Pool::new();
        let Arrival::Leads(held) = pool.arrive(&Seat::new(0), None) else {
            panic!("the lead is vacant");
        };
        let hasty = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.turn(&Seat::new(1), Some(1)))
        };
        let patient = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.turn(&Seat::new(2), None))
        };
        pool.clock.advance(Duration::from_secs(1));
        drop(held);
        let hasty = hasty.join().unwrap();
        assert_ne!(hasty, Turn::Closed);
        assert_eq!(patient.join().unwrap(), Turn::Led);
        assert_eq!(pool.turns(), 1 + usize::from(hasty == Turn::Led));
    });
}

/// `no_barging_between_signal_and_wake`: an offer is taken by its elected thread alone. The flag is
/// raised by the elected one while it leads; a thread that arrives later finds it raised.
#[test]
fn loom_no_barging_on_an_offer() {
    explore(|| {
        let pool = Pool::new();
        let elected_led = Arc::new(AtomicBool::new(false));
        let Arrival::Leads(held) = pool.arrive(&Seat::new(0), None) else {
            panic!("the lead is vacant");
        };
        let follower = {
            let (pool, elected_led) = (Arc::clone(&pool), Arc::clone(&elected_led));
            thread::spawn(move || {
                if let Arrival::Leads(held) = pool.arrive(&Seat::new(1), None) {
                    elected_led.store(true, Ordering::Relaxed);
                    drop(held);
                }
            })
        };
        let (running, promotion) = held.promote();
        if let Promotion::HandedTo(index) = promotion {
            assert_eq!(index, 1);
            // The old leader comes back: it may lead only after the thread that it elected.
            if let Rejoined::Leads(held) = running.rejoin() {
                assert!(elected_led.load(Ordering::Relaxed), "barged in on an offer");
                drop(held);
            }
        }
        follower.join().unwrap();
    });
}

/// S1: close against a leader that waits, a follower, and a thread that arrives. All get out.
#[test]
fn loom_close_in_every_role() {
    explore(|| {
        let pool = Pool::new();
        let threads: Vec<_> = (0..2)
            .map(|index| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.lead_until_closed(&Seat::new(index)))
            })
            .collect();
        pool.close();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(pool.turn(&Seat::new(2), None), Turn::Closed);
    });
}

/// Close against a promotion with a follower: the elected thread finds the pool closed and goes; the
/// old leader does not come back to the front.
#[test]
fn loom_close_against_promotion() {
    explore(|| {
        let pool = Pool::new();
        let Arrival::Leads(held) = pool.arrive(&Seat::new(0), None) else {
            panic!("the lead is vacant");
        };
        let follower = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.turn(&Seat::new(1), None))
        };
        let closer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.close())
        };
        let (running, _) = held.promote();
        drop(running.rejoin());
        assert_ne!(follower.join().unwrap(), Turn::TimedOut);
        closer.join().unwrap();
        assert_eq!(pool.turn(&Seat::new(2), None), Turn::Closed);
    });
}

/// Close against a follower whose time is over: it gets out either way, once.
#[test]
fn loom_close_against_deadline() {
    explore(|| {
        let pool = Pool::new();
        let Arrival::Leads(held) = pool.arrive(&Seat::new(0), None) else {
            panic!("the lead is vacant");
        };
        let follower = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.turn(&Seat::new(1), Some(1)))
        };
        let closer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.close())
        };
        pool.clock.advance(Duration::from_secs(1));
        assert_ne!(follower.join().unwrap(), Turn::Led);
        closer.join().unwrap();
        drop(held);
    });
}

/// The parker: a message posted before, during or after falling asleep ends the sleep, and what was
/// done before it is seen.
#[test]
fn loom_parker_loses_no_message() {
    explore(|| {
        let parker = Arc::new(Parker::new());
        let before = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let (parker, before) = (Arc::clone(&parker), Arc::clone(&before));
            thread::spawn(move || {
                while parker.message() == 0 {
                    parker.sleep(None);
                }
                assert!(before.load(Ordering::Relaxed));
            })
        };
        before.store(true, Ordering::Relaxed);
        parker.post(1);
        parker.wake();
        sleeper.join().unwrap();
    });
}

/// The virtual clock: whoever sleeps until a deadline sees it pass; a message is not drowned by the
/// nudge.
#[test]
fn loom_clock_wakes_its_sleepers() {
    explore(|| {
        let clock = Arc::new(VirtualClock::new());
        let parker = Arc::new(Parker::new());
        let sleeper = {
            let (clock, parker) = (Clock::Virtual(Arc::clone(&clock)), Arc::clone(&parker));
            let deadline = clock.now().after(Duration::from_secs(1));
            thread::spawn(move || {
                while !clock.has_passed(Some(deadline)) && parker.message() == 0 {
                    clock.sleep(&parker, Some(deadline));
                }
            })
        };
        let poster = thread::spawn(move || {
            parker.post(1);
            parker.wake();
            parker
        });
        clock.advance(Duration::from_secs(1));
        sleeper.join().unwrap();
        assert_eq!(poster.join().unwrap().message(), 1);
    });
}
