//! Surprises: the standby, announced blocking, and a backlog (L2, I2, W1).

use super::*;

/// A thread that takes one turn, which only looks of the standby may bring it.
struct Awaited {
    thread: thread::JoinHandle<()>,
    led: Arc<AtomicBool>,
}

impl Awaited {
    fn follower(pool: &Arc<Pool>) -> Self {
        let led = Arc::new(AtomicBool::new(false));
        let (pool, tells) = (Arc::clone(pool), Arc::clone(&led));
        let thread = thread::spawn(move || {
            assert_eq!(pool.turn(&seat(1), None), Turn::Led);
            tells.store(true, Ordering::Relaxed);
        });
        Self { thread, led }
    }

    /// Lets ticks pass until it has led.
    fn until_led(self, pool: &Pool) {
        while !self.led.load(Ordering::Relaxed) {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        self.thread.join().unwrap();
    }
}

/// L2: a handler blocks by surprise, for ever. Ticks alone bring a new leader, from whatever state
/// the standby was in when the lead was opened, deep sleep included.
fn blind_pool_finds_a_leader(policy: (Wake, Order), looks: usize) {
    explore(move || {
        let pool = Pool::new(policy);
        let held = pool.first();
        let follower = Awaited::follower(&pool);
        pool.until_watched();
        for _ in 0..looks {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        let (stuck, _) = pool.promote(held, Marks::default());
        follower.until_led(&pool);
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

/// L2: the system says of the opener that it only lacks a core, as often as it is asked. The
/// standby leaves the lead to it for one look: it sees the opening, leaves it alone, and takes it.
fn excused_opener_has_one_look(policy: (Wake, Order)) {
    explore(move || {
        let pool = Pool::asking(policy);
        let held = pool.first();
        let follower = Awaited::follower(&pool);
        pool.until_watched();
        let (stuck, _) = pool.promote(held, Marks::default());
        follower.until_led(&pool);
        let looks = pool.lead.counters.snapshot().ticks;
        assert!((2..=3).contains(&looks), "{looks} looks until somebody led");
        mem::forget(stuck);
    });
}

#[test]
fn loom_excused_opener_newest() {
    excused_opener_has_one_look(NEWEST);
}

#[test]
fn loom_excused_opener_oldest() {
    excused_opener_has_one_look(OLDEST);
}

/// L1: an opener that is excused comes back while the standby checks: one of the two leads, then
/// the other, and no turn is lost.
#[test]
fn loom_excused_opener_comes_back() {
    explore(|| {
        let pool = Pool::asking(NEWEST);
        let held = pool.first();
        let follower = Awaited::follower(&pool);
        pool.until_watched();
        let (running, _) = pool.promote(count(held), Marks::default());
        for _ in 0..2 {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        // If it leads again, it gives the lead up at once.
        drop(running.rejoin(&seat(0), pool.clock().now()));
        follower.until_led(&pool);
        assert_eq!(pool.turns(), 2);
    });
}

/// Announced blocking (`wait_begin_wakes`): a thread leads without any tick, however deeply it
/// sleeps.
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
        let _ = running.come_back();
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

/// Calls for help, two in a row: the standby is elected once, and leads without any tick.
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

/// The rest of a handler is known to sleep, then to compute, then to sleep: the standby is elected
/// once, and leads without any tick. The thread counts as running at most once, whatever the
/// follower does meanwhile.
#[test]
fn loom_parts_of_a_call() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        pool.until_watched();
        let (running, _) = pool.promote(held, Marks::default());
        running.expect_sleep();
        running.run_on();
        running.call_for_help_if_room();
        running.expect_sleep();
        assert_eq!(follower.join().unwrap(), Turn::Led);
        drop(running);
        assert_eq!(pool.lead.word.look().running(), 0);
    });
}

/// I3: the standby's time is over while the lead is open and its opener is stuck: it elects the
/// parked thread, without any further tick.
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
        held.note_sleep();
        let follower = guest(&pool, 1, None);
        pool.until_watched();
        while pool.lead.epoch.load(Ordering::Relaxed) == 0 {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        let marks = Marks {
            backlog: true,
            ..Marks::default()
        };
        let (stuck, promotion) = pool.promote(held, marks);
        assert_eq!(promotion, Promotion::Elected(Some(1)));
        assert_eq!(follower.join().unwrap(), Turn::Led);
        mem::forget(stuck);
    });
}

/// W1: a look of the standby comes while the leader opens with a backlog. Either the look comes
/// first: then that promotion sees the new epoch and elects. Or the look saw the opening: then the
/// next one finds it unchanged. In no case does it take three looks.
#[test]
fn loom_backlog_seen_by_one_of_two() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let mut held = pool.first();
        held.note_sleep();
        let follower = Awaited::follower(&pool);
        pool.until_watched();
        pool.clock.advance(TICK);
        let marks = Marks {
            backlog: true,
            ..Marks::default()
        };
        let (stuck, _) = pool.promote(held, marks);
        follower.until_led(&pool);
        let looks = pool.lead.counters.snapshot().ticks;
        assert!(looks <= 2, "{looks} looks until somebody led");
        mem::forget(stuck);
    });
}

/// A promotion rouses the standby while another thread elects it: the message `Lead` is not
/// overwritten by a `Tick` that comes late.
#[test]
fn loom_tick_against_lead() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let held = pool.first();
        let follower = guest(&pool, 1, None);
        while pool.lead.word.look().standby() != Standby::Deep {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        let helper = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.lead.elect_anyone())
        };
        let (running, _) = pool.promote(held, Marks::default());
        helper.join().unwrap();
        // In either order a thread can be called, and leads without any further tick.
        pool.lead.elect_anyone();
        assert_eq!(follower.join().unwrap(), Turn::Led);
        drop(running);
    });
}
