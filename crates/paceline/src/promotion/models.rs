//! loom's models of the lead: every interleaving of the product's own code, weak memory included.
//!
//! The lead's own data is a counter in a cell that loom watches: two holders at once, or one that does
//! not see what the last one did, fail the model (L1). A thread that is never woken is a deadlock,
//! which loom reports (L2). Time passes only where a model advances its clock; a model that does not
//! shows that no tick was needed.

use std::{mem, sync::Arc, time::Duration};

use loom::thread;

use super::{
    lead::Promotion, word::Standby, Arrival, HeldLead, Lead, Marks, Order, Policy, Rejoined,
    Running, Seat, Wake,
};
use crate::{
    observe::Counters,
    sync::{
        atomic::{AtomicBool, Ordering},
        explore, Clock, Parker, VirtualClock,
    },
};

const TICK: Duration = Duration::from_secs(1);

const EAGER: (Wake, Order) = (Wake::Eager, Order::Newest);
const EAGER_SYSTEM: (Wake, Order) = (Wake::Eager, Order::System);
const NEWEST: (Wake, Order) = (Wake::Adaptive, Order::Newest);
const OLDEST: (Wake, Order) = (Wake::Adaptive, Order::Oldest);
const PRIORITY: (Wake, Order) = (Wake::Adaptive, Order::Priority);
const SYSTEM: (Wake, Order) = (Wake::Adaptive, Order::System);

/// A pool without a handle set: its threads, its clock, and the lead over a counter of turns.
struct Pool {
    lead: Lead<usize>,
    clock: Arc<VirtualClock>,
    /// Where a leader of the closing models waits for its event, which never comes.
    waker: Parker,
}

impl Pool {
    fn new((wake, order): (Wake, Order)) -> Arc<Self> {
        let policy = Policy {
            wake,
            order,
            cores: 2,
            tick: TICK,
        };
        Arc::new(Self {
            lead: Lead::vacant(0, policy, Arc::new(Counters::default())),
            clock: Arc::new(VirtualClock::new()),
            waker: Parker::new(),
        })
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(Arc::clone(&self.clock))
    }

    /// `until`: a deadline in ticks from the beginning.
    fn arrive(&self, seat: &Arc<Seat>, until: Option<u32>) -> Arrival<'_, usize> {
        let start = Clock::Virtual(Arc::new(VirtualClock::new())).now();
        let deadline = until.map(|until| start.after(until * TICK));
        self.lead.arrive(seat, &self.clock(), deadline)
    }

    /// The first to arrive leads.
    fn first(&self) -> HeldLead<'_, usize> {
        match self.arrive(&seat(0), None) {
            Arrival::Leads(held) => held,
            _ => panic!("the lead is vacant"),
        }
    }

    /// Leads once, counts it, and gives the lead back.
    fn turn(&self, seat: &Arc<Seat>, until: Option<u32>) -> Turn {
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
        match self.arrive(&seat(9), None) {
            Arrival::Leads(mut held) => held.with_owned(|turns| *turns),
            _ => panic!("nobody closed, and there is no deadline"),
        }
    }

    fn promote<'a>(
        &'a self,
        held: HeldLead<'a, usize>,
        marks: Marks,
    ) -> (Running<'a, usize>, Promotion) {
        held.promote(marks, self.clock().now())
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

    /// Waits until somebody stands by.
    fn until_watched(&self) {
        while self.lead.word.look().standby() == Standby::None {
            thread::yield_now();
        }
    }

    /// Waits until somebody is parked.
    fn until_parked(&self) {
        while !self.lead.word.look().is_parked() {
            thread::yield_now();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Led,
    TimedOut,
    Closed,
}

fn seat(index: usize) -> Arc<Seat> {
    Seat::new(index, index as u8)
}

fn count(mut held: HeldLead<'_, usize>) -> HeldLead<'_, usize> {
    held.with_owned(|turns| *turns += 1);
    held
}

/// A thread that takes one turn.
fn guest(pool: &Arc<Pool>, index: usize, until: Option<u32>) -> thread::JoinHandle<Turn> {
    let pool = Arc::clone(pool);
    thread::spawn(move || pool.turn(&seat(index), until))
}

/// One event: lead, promote, rejoin, and lead once more if that is allowed. Tells how often it led.
fn work(pool: &Pool, seat: &Arc<Seat>) -> usize {
    let Arrival::Leads(held) = pool.arrive(seat, None) else {
        panic!("nobody closes");
    };
    let (running, promotion) = pool.promote(count(held), Marks::default());
    assert_ne!(promotion, Promotion::Closing);
    match running.rejoin(seat, pool.clock().now()) {
        Rejoined::Leads(held) => {
            drop(count(held));
            2
        }
        Rejoined::Follows => 1,
    }
}

/// L1, L2, I3: two threads and this one take a turn each, every one through promotion and rejoining.
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

/// I3: whoever leaves while it processes (the role is dropped) loses nothing.
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

/// I3, I4, `elected_then_timed_out_passes_on`, `loop_threads_time_out_after_broadcast`: two followers,
/// one of which (parked, standby or elected) runs out of time while the lead is given away. Whoever was
/// elected and may not lead passes it on: the patient one always leads.
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
/// alone. It raises a flag while it leads; the old leader, back from its event, may lead only after it.
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
            long: true,
            backlog: false,
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

/// A follower is elected while it is still awake, on its way to sleep: it finds its message, and the word
/// as the message says.
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

/// `signalled_follower_overtaken_rejoins` (TAO 173): newest first, the old leader may be faster than
/// the thread that it elected. That one then waits in the pool like everyone else, and leads later.
#[test]
fn loom_overtaken_follower_rejoins() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        let marks = Marks {
            long: true,
            backlog: false,
        };
        let (running, _) = pool.promote(held, marks);
        if let Rejoined::Leads(held) = running.rejoin(&seat(0), pool.clock().now()) {
            drop(count(held));
        }
        assert_eq!(follower.join().unwrap(), Turn::Led);
    });
}

/// L2: a handler blocks by surprise, for ever. Ticks alone bring a new leader, from whatever state the
/// standby was in when the lead was opened, deep sleep included.
fn blind_pool_finds_a_leader(policy: (Wake, Order), looks: usize) {
    explore(move || {
        let pool = Pool::new(policy);
        let held = pool.first();
        let led = Arc::new(AtomicBool::new(false));
        let follower = {
            let (pool, led) = (Arc::clone(&pool), Arc::clone(&led));
            thread::spawn(move || {
                assert_eq!(pool.turn(&seat(1), None), Turn::Led);
                led.store(true, Ordering::Relaxed);
            })
        };
        pool.until_watched();
        for _ in 0..looks {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        let (stuck, _) = pool.promote(held, Marks::default());
        while !led.load(Ordering::Relaxed) {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        follower.join().unwrap();
        mem::forget(stuck);
    });
}

#[test]
fn loom_blind_pool_newest() {
    blind_pool_finds_a_leader(NEWEST, 1);
}

#[test]
fn loom_blind_pool_oldest() {
    blind_pool_finds_a_leader(OLDEST, 1);
}

#[test]
fn loom_blind_pool_in_deep_sleep() {
    blind_pool_finds_a_leader(NEWEST, 3);
}

/// Told blocking: somebody leads without any tick, whoever sleeps, and however deeply.
fn told_blocking_needs_no_tick(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        pool.until_watched();
        pool.clock.advance(TICK);
        let (running, _) = pool.promote(held, Marks::default());
        running.go_away();
        assert_eq!(follower.join().unwrap(), Turn::Led);
        running.come_back();
        drop(running);
        assert_eq!(pool.turns(), 1);
    });
}

#[test]
fn loom_told_blocking_newest() {
    told_blocking_needs_no_tick(NEWEST);
}

#[test]
fn loom_told_blocking_priority() {
    told_blocking_needs_no_tick(PRIORITY);
}

/// Two told calls in a row, and a call for help against a follower that is only just arriving.
#[test]
fn loom_call_for_help() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        pool.until_watched();
        let (running, _) = pool.promote(held, Marks::default());
        running.call_for_help();
        running.call_for_help();
        assert_eq!(follower.join().unwrap(), Turn::Led);
        drop(running);
    });
}

/// I3: the standby's time is over while the lead is open and its opener is stuck: it elects the one
/// who is parked, without any further tick.
#[test]
fn loom_leaving_standby_elects() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let held = pool.first();
        let standby = guest(&pool, 1, Some(1));
        pool.until_watched();
        let parked = guest(&pool, 2, None);
        pool.until_parked();
        let (stuck, _) = pool.promote(held, Marks::default());
        pool.clock.advance(TICK);
        assert_ne!(standby.join().unwrap(), Turn::Closed);
        assert_eq!(parked.join().unwrap(), Turn::Led);
        mem::forget(stuck);
    });
}

/// W1: a backlog that has lasted a look of the standby makes the next promotion elect.
#[test]
fn loom_backlog_elects() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let mut held = pool.first();
        held.was_idle();
        let follower = guest(&pool, 1, None);
        pool.until_watched();
        while pool.lead.epoch.load(Ordering::Relaxed) == 0 {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        let marks = Marks {
            long: false,
            backlog: true,
        };
        let (stuck, promotion) = pool.promote(held, marks);
        assert_eq!(promotion, Promotion::Elected(Some(1)));
        assert_eq!(follower.join().unwrap(), Turn::Led);
        mem::forget(stuck);
    });
}

/// S1: close against a leader that waits, a standby or follower, and a thread that arrives. All get
/// out.
fn close_in_every_role(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let threads: Vec<_> = (0..2)
            .map(|index| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.lead_until_closed(&seat(index)))
            })
            .collect();
        pool.close();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(pool.turn(&seat(2), None), Turn::Closed);
    });
}

#[test]
fn loom_close_in_every_role_eager() {
    close_in_every_role(EAGER);
}

#[test]
fn loom_close_in_every_role_newest() {
    close_in_every_role(NEWEST);
}

#[test]
fn loom_close_in_every_role_system() {
    close_in_every_role(SYSTEM);
}

/// Close against a promotion that elects: the elected thread finds the pool closed and goes; the old
/// leader does not come back to the front.
fn close_against_promotion(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        let closer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.close())
        };
        let marks = Marks {
            long: true,
            backlog: false,
        };
        let (running, _) = pool.promote(held, marks);
        drop(running.rejoin(&seat(0), pool.clock().now()));
        assert_ne!(follower.join().unwrap(), Turn::TimedOut);
        closer.join().unwrap();
        assert_eq!(pool.turn(&seat(2), None), Turn::Closed);
    });
}

#[test]
fn loom_close_against_promotion_eager() {
    close_against_promotion(EAGER);
}

#[test]
fn loom_close_against_promotion_newest() {
    close_against_promotion(NEWEST);
}

/// Close against a follower (or standby, ticking or deeply asleep) whose time is over: it gets out.
fn close_against_deadline(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::new(policy);
        let held = pool.first();
        let follower = guest(&pool, 1, Some(2));
        let closer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.close())
        };
        pool.clock.advance(TICK);
        pool.clock.advance(TICK);
        assert_ne!(follower.join().unwrap(), Turn::Led);
        closer.join().unwrap();
        drop(held);
    });
}

#[test]
fn loom_close_against_deadline_eager() {
    close_against_deadline(EAGER);
}

#[test]
fn loom_close_against_deadline_newest() {
    close_against_deadline(NEWEST);
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
                while parker.take() == 0 {
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

/// The virtual clock: all who sleep in one place until a deadline see it pass.
#[test]
fn loom_clock_wakes_its_sleepers() {
    explore(|| {
        let clock = Arc::new(VirtualClock::new());
        let parker = Arc::new(Parker::new());
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let (clock, parker) = (Clock::Virtual(Arc::clone(&clock)), Arc::clone(&parker));
                let deadline = clock.now().after(TICK);
                thread::spawn(move || {
                    while !clock.has_passed(Some(deadline)) {
                        clock.sleep(&parker, Some(deadline));
                    }
                })
            })
            .collect();
        clock.advance(TICK);
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
    });
}
