//! The end: close against every role (S1).

use super::*;

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

/// Close against a promotion that elects: the elected thread finds the pool closed and goes; the
/// old leader does not come back to the front.
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
            blocks: true,
            ..Marks::default()
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

/// S1: a thread waits inside a handler, away from the pool, while that is closed. It sees that
/// before it waits, or it is woken; and the list of threads that wait elsewhere is empty
/// afterwards.
#[test]
fn loom_close_reaches_who_waits_elsewhere() {
    explore(|| {
        let pool = Pool::new(NEWEST);
        let absent = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let parker = Arc::new(Parker::new());
                let sleeper = Arc::clone(&parker);
                let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                    sleeper.post(1);
                    sleeper.wake();
                });
                let _reached = pool.lead.reach(&wake);
                while !pool.lead.is_closed() {
                    parker.sleep(None);
                }
            })
        };
        pool.close();
        absent.join().unwrap();
        assert!(pool.lead.absent.is_empty());
    });
}
