//! Something is handed to a thread, by the one that leads (H2, I4): against every place that it can
//! be in.

use super::{elastic::elastic, *};
use crate::promotion::held::Behind;

impl Pool {
    /// The holder of the lead hands something to the thread of this seat.
    fn hand(&self, _: &HeldLead<'_, usize>, seat: &Seat) {
        seat.set_handed(true);
        let _ = seat.call().recall();
    }

    /// Arrives until it was handed something; leads meanwhile, if it is its turn. Returns how often
    /// it led.
    fn until_handed(&self, seat: &Arc<Seat>) -> usize {
        let mut led = 0;
        for _ in 0..3 {
            match self.arrive(seat, None) {
                Arrival::Handed => return led,
                // A leader asks before it waits.
                Arrival::Leads(held) if seat.is_handed() => drop(held),
                Arrival::Leads(held) => {
                    drop(count(held));
                    led += 1;
                }
                Arrival::TimedOut | Arrival::Closed => panic!("nobody closes, nor is it late"),
            }
        }
        panic!("it leads, and is handed nothing")
    }
}

/// A thread that arrives, and is handed something.
fn receiver(pool: &Arc<Pool>, seat: &Arc<Seat>) -> thread::JoinHandle<usize> {
    let (pool, seat) = (Arc::clone(pool), Arc::clone(seat));
    thread::spawn(move || pool.until_handed(&seat))
}

/// The leader goes on leading: the other one gets out, asleep or about to be.
fn hand_to_a_follower(policy: (Wake, Order)) {
    explore(move || {
        let (pool, seat) = (Pool::new(policy), seat(1));
        let held = pool.first();
        let receiver = receiver(&pool, &seat);
        pool.hand(&held, &seat);
        assert_eq!(receiver.join().unwrap(), 0);
        drop(held);
        assert_eq!(pool.turns(), 0);
    });
}

#[test]
fn loom_hand_to_a_follower_eager() {
    hand_to_a_follower(EAGER);
}

#[test]
fn loom_hand_to_a_follower_newest() {
    hand_to_a_follower(NEWEST);
}

/// I4: it is elected at the same time. It passes that on, or leads and finds out: another follower
/// always leads.
fn hand_against_election(policy: (Wake, Order)) {
    explore(move || {
        let (pool, seat) = (Pool::new(policy), seat(1));
        let held = pool.first();
        let receiver = receiver(&pool, &seat);
        let patient = guest(&pool, 2, None);
        pool.hand(&held, &seat);
        drop(held);
        assert_eq!(receiver.join().unwrap(), 0, "it was handed before");
        assert_eq!(patient.join().unwrap(), Turn::Led);
        assert_eq!(pool.turns(), 1);
    });
}

#[test]
fn loom_hand_against_election_eager() {
    hand_against_election(EAGER);
}

#[test]
fn loom_hand_against_election_newest() {
    hand_against_election(NEWEST);
}

#[test]
fn loom_hand_against_election_oldest() {
    hand_against_election(OLDEST);
}

/// It is put there only if it sleeps: then it does that before anything else, and no thread is left
/// behind with the lead open.
#[test]
fn loom_hand_to_a_sleeper() {
    explore(|| {
        let (pool, seat) = (Pool::new(NEWEST), seat(1));
        let held = pool.first();
        let sleeper = {
            let (pool, seat) = (Arc::clone(&pool), Arc::clone(&seat));
            thread::spawn(move || match pool.arrive(&seat, None) {
                Arrival::Handed => true,
                Arrival::Leads(held) => {
                    let handed = seat.is_handed();
                    drop(held);
                    handed
                }
                Arrival::TimedOut | Arrival::Closed => panic!("nobody closes, nor is it late"),
            })
        };
        let handed = pool.lead.if_asleep(&seat, false, || seat.set_handed(true));
        if handed {
            let _ = seat.call().recall();
        }
        drop(held);
        assert_eq!(sleeper.join().unwrap(), handed);
        assert_eq!(pool.turns(), 0);
    });
}

/// S1: the pool closes. It goes, or does what it was handed; it does not sleep on.
#[test]
fn loom_hand_against_close() {
    explore(|| {
        let (pool, seat) = (Pool::new(NEWEST), seat(1));
        let held = pool.first();
        let receiver = {
            let (pool, seat) = (Arc::clone(&pool), Arc::clone(&seat));
            thread::spawn(move || match pool.arrive(&seat, None) {
                Arrival::Handed | Arrival::Closed => {}
                Arrival::Leads(_) | Arrival::TimedOut => panic!("the lead is held, then closed"),
            })
        };
        let closer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.close())
        };
        pool.hand(&held, &seat);
        closer.join().unwrap();
        drop(held);
        receiver.join().unwrap();
    });
}

/// L2: the only sleeping thread is handed something, and goes to do it while the leader opens the
/// lead for it. In an elastic pool one of the two finds that no thread is left that could lead, and
/// calls one more.
fn the_last_sleeper_goes(policy: (Wake, Order)) {
    explore(move || {
        let (pool, seat) = (elastic(policy, 2), Seat::of_pool(1, 0));
        let held = pool.first();
        let sleeper = {
            let (pool, seat) = (Arc::clone(&pool), Arc::clone(&seat));
            thread::spawn(move || {
                assert_eq!(pool.until_handed(&seat), 0);
                let (stuck, behind) = pool.lead.run_handed(pool.clock().now());
                mem::forget(stuck);
                behind
            })
        };
        pool.hand(&held, &seat);
        let (stuck, promotion) = pool.promote(held, Marks::default());
        let behind = sleeper.join().unwrap();
        let is_noticed = promotion == Promotion::Alone || behind == Behind::Nobody;
        assert!(is_noticed, "nobody leads: {promotion:?}, {behind:?}");
        mem::forget(stuck);
    });
}

#[test]
fn loom_last_sleeper_is_handed_something_eager() {
    the_last_sleeper_goes(EAGER);
}

#[test]
fn loom_last_sleeper_is_handed_something_newest() {
    the_last_sleeper_goes(NEWEST);
}

/// It processes what it was handed beside one that promotes. Its rejoining takes no opening for its
/// own that is not, and no thread is left asleep with the lead open.
fn handed_against_promotion(policy: (Wake, Order)) {
    explore(move || {
        let (pool, own) = (Pool::new(policy), seat(0));
        let held = pool.first();
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let now = pool.clock().now();
                let (running, _) = pool.lead.run_handed(now);
                drop(running.rejoin(&seat(1), now));
            })
        };
        let (running, _) = pool.promote(count(held), Marks::default());
        drop(running.rejoin(&own, pool.clock().now()));
        other.join().unwrap();
        assert_eq!(pool.turns(), 1);
        assert_eq!(pool.lead.word.look().running(), 0);
    });
}

#[test]
fn loom_handed_against_promotion_eager() {
    handed_against_promotion(EAGER);
}

#[test]
fn loom_handed_against_promotion_newest() {
    handed_against_promotion(NEWEST);
}
