//! Recall against every place that a thread can be in (B2), and what it leaves there (I3, I4).

use super::*;
use crate::promotion::{Recalled, Wanted};

/// What a thread of the pool waits for.
#[derive(Default)]
struct Bell(AtomicBool);

impl Bell {
    fn is_rung(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Pool {
    /// Takes a turn, unless the bell rings before.
    fn turn_unless(&self, seat: &Arc<Seat>, bell: &Bell) -> Turn {
        let is_there = &|| bell.is_rung();
        let wanted = Wanted { is_there };
        let until = Until::recalled(None, &wanted);
        match self.lead.arrive(seat, &self.clock(), until) {
            Arrival::TimedOut | Arrival::Handed => Turn::TimedOut,
            Arrival::Closed => Turn::Closed,
            Arrival::Leads(held) => {
                drop(count(held));
                Turn::Led
            }
        }
    }

    /// Leads until the bell rings, as a leader that waits for an event which never comes.
    fn lead_until_rung(&self, seat: &Arc<Seat>, bell: &Bell) {
        let is_there = &|| bell.is_rung();
        let wanted = Wanted { is_there };
        let until = Until::recalled(None, &wanted);
        if let Arrival::Leads(held) = self.lead.arrive(seat, &self.clock(), until) {
            if seat.may_wait(until) {
                // A leader asks after it slept, and not before.
                loop {
                    self.waker.sleep(None);
                    if until.is_recalled() {
                        break;
                    }
                }
            }
            seat.waits_no_more();
            drop(count(held));
        }
    }

    /// Rings, and makes the thread of this seat ask.
    fn ring(&self, bell: &Bell, seat: &Seat) {
        bell.0.store(true, Ordering::Release);
        if seat.call().recall() == Recalled::WakeSet {
            self.waker.post(1);
            self.waker.wake();
        }
    }
}

/// B2: another thread leads, and stays; a recalled thread gets out, asleep or about to be.
fn recall_a_follower(policy: (Wake, Order)) {
    explore(move || {
        let (pool, bell, bound) = (Pool::new(policy), Arc::new(Bell::default()), seat(1));
        let held = pool.first();
        let follower = {
            let (pool, bell, bound) = (Arc::clone(&pool), Arc::clone(&bell), Arc::clone(&bound));
            thread::spawn(move || pool.turn_unless(&bound, &bell))
        };
        pool.ring(&bell, &bound);
        assert_eq!(follower.join().unwrap(), Turn::TimedOut);
        drop(held);
        assert_eq!(pool.turns(), 0);
    });
}

#[test]
fn loom_recall_a_follower_eager() {
    recall_a_follower(EAGER);
}

#[test]
fn loom_recall_a_follower_newest() {
    recall_a_follower(NEWEST);
}

/// I4: a recalled thread was elected at the same time. It leads, or passes that on: another
/// follower always leads.
fn recall_against_election(policy: (Wake, Order)) {
    explore(move || {
        let (pool, bell, bound) = (Pool::new(policy), Arc::new(Bell::default()), seat(1));
        let held = pool.first();
        let recalled = {
            let (pool, bell, bound) = (Arc::clone(&pool), Arc::clone(&bell), Arc::clone(&bound));
            thread::spawn(move || pool.turn_unless(&bound, &bell))
        };
        let patient = guest(&pool, 2, None);
        let ringer = {
            let (pool, bell, bound) = (Arc::clone(&pool), Arc::clone(&bell), Arc::clone(&bound));
            thread::spawn(move || pool.ring(&bell, &bound))
        };
        drop(held);
        ringer.join().unwrap();
        let recalled = recalled.join().unwrap();
        assert_ne!(recalled, Turn::Closed);
        assert_eq!(patient.join().unwrap(), Turn::Led);
        assert_eq!(pool.turns(), 1 + usize::from(recalled == Turn::Led));
    });
}

#[test]
fn loom_recall_against_election_eager() {
    recall_against_election(EAGER);
}

#[test]
fn loom_recall_against_election_newest() {
    recall_against_election(NEWEST);
}

#[test]
fn loom_recall_against_election_oldest() {
    recall_against_election(OLDEST);
}

/// B2: it arrives, leads and waits in the set, where only the waker reaches it. It gets out, and
/// the lead is not lost.
#[test]
fn loom_recall_a_leader() {
    explore(|| {
        let (pool, bell, bound) = (Pool::new(NEWEST), Arc::new(Bell::default()), seat(1));
        let leader = {
            let (pool, bell, bound) = (Arc::clone(&pool), Arc::clone(&bell), Arc::clone(&bound));
            thread::spawn(move || pool.lead_until_rung(&bound, &bell))
        };
        pool.ring(&bell, &bound);
        leader.join().unwrap();
        assert!(pool.turns() <= 1);
    });
}

/// A handler waits, and its thread leads or follows meanwhile; the opening was its own. Beside it
/// another thread arrives. Recalled, it goes on in its handler, and then rejoins: no thread is left
/// asleep with the lead open.
fn stay_against_arrival(policy: (Wake, Order)) {
    explore(move || {
        let (pool, bell, own) = (Pool::new(policy), Arc::new(Bell::default()), seat(0));
        let (running, _) = pool.promote(pool.first(), Marks::default());
        let other = guest(&pool, 1, None);
        let ringer = {
            let (pool, bell, own) = (Arc::clone(&pool), Arc::clone(&bell), Arc::clone(&own));
            thread::spawn(move || pool.ring(&bell, &own))
        };
        let now = pool.clock().now();
        match running.pause(&own, now) {
            Rejoined::Leads(held) => drop(held),
            Rejoined::Follows | Rejoined::Surprised => {}
        }
        pool.lead_until_rung(&own, &bell);
        let _ = running.come_back();
        drop(running.rejoin(&own, now));
        ringer.join().unwrap();
        assert_eq!(other.join().unwrap(), Turn::Led);
        assert!(pool.turns() >= 1);
        assert_eq!(pool.lead.word.look().running(), 0);
    });
}

#[test]
fn loom_stay_against_arrival_eager() {
    stay_against_arrival(EAGER);
}

#[test]
fn loom_stay_against_arrival_newest() {
    stay_against_arrival(NEWEST);
}
