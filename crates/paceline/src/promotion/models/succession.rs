//! Every thread gets its turn, and none takes the lead away with it (L1, L2, I3, I4).

use super::*;

/// L1, L2, I3: two threads take a turn each, both through promotion and rejoining.
/// No tick is needed, in any order.
fn everyone_gets_a_turn(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let others: Vec<_> = (0..2)
            .map(|index| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || work(&pool, &seat(index)))
            })
            .collect();
        let mut all = 0;
        for other in others {
            all += other.join().unwrap();
        }
        assert_eq!(pool.turns(), all);
    });
}

#[test]
fn loom_everyone_gets_a_turn_eager() {
    everyone_gets_a_turn(EAGER);
}

#[test]
fn loom_everyone_gets_a_turn_eager_oldest() {
    everyone_gets_a_turn(EAGER_OLDEST);
}

#[test]
fn loom_everyone_gets_a_turn_eager_priority() {
    everyone_gets_a_turn(EAGER_PRIORITY);
}

#[test]
fn loom_everyone_gets_a_turn_eager_system() {
    everyone_gets_a_turn(EAGER_SYSTEM);
}

#[test]
fn loom_everyone_gets_a_turn_newest() {
    everyone_gets_a_turn(NEWEST);
}

#[test]
fn loom_everyone_gets_a_turn_oldest() {
    everyone_gets_a_turn(OLDEST);
}

#[test]
fn loom_everyone_gets_a_turn_priority() {
    everyone_gets_a_turn(PRIORITY);
}

#[test]
fn loom_everyone_gets_a_turn_system() {
    everyone_gets_a_turn(SYSTEM);
}

/// L1 with three threads at work at once, in the two policies that are used most.
fn three_at_work(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let others = [guest(&pool, 1, None), guest(&pool, 2, None)];
        let mut all = work(&pool, &seat(0));
        for other in others {
            assert_eq!(other.join().unwrap(), Turn::Led);
            all += 1;
        }
        assert_eq!(pool.turns(), all);
    });
}

#[test]
fn loom_three_at_work_eager() {
    three_at_work(EAGER);
}

#[test]
fn loom_three_at_work_newest() {
    three_at_work(NEWEST);
}

/// I3: a thread that leaves while it processes (the role is dropped) loses nothing.
fn dropped_roles_pass_the_lead_on(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let other = guest(&pool, 1, None);
        let third = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let Arrival::Leads(held) = pool.arrive(&seat(2), None) else {
                    panic!("nobody closes");
                };
                drop(pool.promote(held, Marks::default()));
            })
        };
        assert_eq!(other.join().unwrap(), Turn::Led);
        third.join().unwrap();
        assert_eq!(pool.turns(), 1);
    });
}

#[test]
fn loom_dropped_roles_eager() {
    dropped_roles_pass_the_lead_on(EAGER);
}

#[test]
fn loom_dropped_roles_newest() {
    dropped_roles_pass_the_lead_on(NEWEST);
}

#[test]
fn loom_dropped_roles_oldest() {
    dropped_roles_pass_the_lead_on(OLDEST);
}

/// I3, I4, `elected_then_timed_out_passes_on`, `loop_threads_time_out_after_broadcast`: two
/// followers, one of which (parked, standby or elected) runs out of time while the lead is given
/// away. An elected thread that may not lead passes it on: the patient one always leads.
fn deadline_against_election(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let held = pool.first();
        let hasty = guest(&pool, 1, Some(1));
        let patient = guest(&pool, 2, None);
        pool.clock.advance(TICK);
        drop(held);
        let hasty = hasty.join().unwrap();
        assert_ne!(hasty, Turn::Closed);
        assert_eq!(patient.join().unwrap(), Turn::Led);
        assert_eq!(pool.turns(), 1 + usize::from(hasty == Turn::Led));
    });
}

#[test]
fn loom_deadline_against_election_eager() {
    deadline_against_election(EAGER);
}

#[test]
fn loom_deadline_against_election_eager_oldest() {
    deadline_against_election(EAGER_OLDEST);
}

#[test]
fn loom_deadline_against_election_eager_priority() {
    deadline_against_election(EAGER_PRIORITY);
}

#[test]
fn loom_deadline_against_election_newest() {
    deadline_against_election(NEWEST);
}

#[test]
fn loom_deadline_against_election_oldest() {
    deadline_against_election(OLDEST);
}

#[test]
fn loom_deadline_against_election_system() {
    deadline_against_election(SYSTEM);
}

/// `no_barging_between_signal_and_wake`: in a strict order an offer is taken by its elected thread
/// alone. It raises a flag while it leads; the old leader, back from its event, may lead only after
/// it.
fn no_barging_on_an_offer(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let elected_led = Arc::new(AtomicBool::new(false));
        let held = pool.first();
        let follower = {
            let (pool, elected_led) = (Arc::clone(&pool), Arc::clone(&elected_led));
            thread::spawn(move || {
                if let Arrival::Leads(held) = pool.arrive(&seat(1), None) {
                    elected_led.store(true, Ordering::Relaxed);
                    drop(held);
                }
            })
        };
        let marks = Marks {
            blocks: true,
            ..Marks::default()
        };
        let (running, promotion) = pool.promote(held, marks);
        let rejoined = running.rejoin(&seat(0), pool.clock().now());
        if let (Promotion::Elected(_), Rejoined::Leads(held)) = (promotion, rejoined) {
            assert!(elected_led.load(Ordering::Relaxed), "barged in on an offer");
            drop(held);
        }
        follower.join().unwrap();
    });
}

#[test]
fn loom_no_barging_eager() {
    no_barging_on_an_offer(EAGER);
}

#[test]
fn loom_no_barging_oldest() {
    no_barging_on_an_offer(OLDEST);
}

/// A follower is elected while it is still awake, on its way to sleep: it finds its message, and
/// the word as the message says.
#[test]
fn loom_elected_before_it_slept() {
    explore(|| {
        let pool = Pool::new(EAGER);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        pool.until_parked();
        let (running, promotion) = pool.promote(held, Marks::default());
        assert_eq!(promotion, Promotion::Elected(Some(1)));
        assert_eq!(follower.join().unwrap(), Turn::Led);
        drop(running);
    });
}

/// `signalled_follower_overtaken_rejoins` (TAO 173): newest first, the old leader may be faster
/// than the thread that it elected. That one then waits in the pool like everyone else, and leads
/// later.
#[test]
fn loom_overtaken_follower_rejoins() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        let marks = Marks {
            blocks: true,
            ..Marks::default()
        };
        let (running, _) = pool.promote(held, marks);
        if let Rejoined::Leads(held) = running.rejoin(&seat(0), pool.clock().now()) {
            drop(count(held));
        }
        assert_eq!(follower.join().unwrap(), Turn::Led);
    });
}
