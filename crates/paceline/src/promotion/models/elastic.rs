//! Elastic pools: one more is called, and an idle thread goes (L2, I3, S2).

use super::*;
use crate::promotion::{ElasticPolicy, Keeping};

/// So many threads of the pool's own are here; two must stay.
pub(super) fn elastic(policy: (Wake, Order), own: usize) -> Arc<Pool> {
    let mut pool = Pool::new(policy);
    let inner = Arc::get_mut(&mut pool).expect("nobody else has it yet");
    inner.lead.elastic = Some(ElasticPolicy::of(own, 8, TICK));
    inner.lead.calls = true;
    pool
}

fn own(pool: &Pool) -> usize {
    pool.lead.elastic().expect("it is elastic").own()
}

/// A thread of the pool's own that takes one turn, unless it is let go before.
fn own_thread(pool: &Arc<Pool>, index: usize) -> thread::JoinHandle<Turn> {
    let pool = Arc::clone(pool);
    thread::spawn(move || pool.turn(&Seat::of_pool(index, index as u8), None))
}

/// Something comes to belong to a thread while it is let go for want of work: it stays, or the
/// keeping thread learns that it is gone.
#[test]
fn loom_keep_against_dismissal() {
    explore(|| {
        let (pool, seat) = (elastic(NEWEST, 3), Seat::of_pool(1, 0));
        let idle = {
            let (pool, seat) = (Arc::clone(&pool), Arc::clone(&seat));
            thread::spawn(move || pool.lead.lets_go(&seat))
        };
        let is_kept = seat.keep() != Keeping::Gone;
        let goes = idle.join().unwrap();
        assert_ne!(is_kept, goes);
        assert_eq!(own(&pool), 3 - usize::from(goes));
    });
}

/// Retirement against election: the lead is given away while a parked thread finds that it was idle
/// for long. It leads, or goes and is counted; what was offered to it is not lost: the patient one
/// always leads.
fn retirement_against_election(policy: (Wake, Order)) {
    explore(move || {
        let pool = elastic(policy, 3);
        let held = pool.first();
        let idle = own_thread(&pool, 1);
        let patient = guest(&pool, 2, None);
        pool.clock.advance(TICK);
        drop(held);
        let idle = idle.join().unwrap();
        assert_ne!(idle, Turn::Closed);
        assert_eq!(patient.join().unwrap(), Turn::Led);
        assert_eq!(pool.turns(), 1 + usize::from(idle == Turn::Led));
        assert_eq!(own(&pool), 2 + usize::from(idle == Turn::Led));
    });
}

#[test]
fn loom_retirement_against_election_eager() {
    retirement_against_election(EAGER);
}

#[test]
fn loom_retirement_against_election_newest() {
    retirement_against_election(NEWEST);
}

#[test]
fn loom_retirement_against_election_oldest() {
    retirement_against_election(OLDEST);
}

#[test]
fn loom_retirement_against_election_system() {
    retirement_against_election(SYSTEM);
}

/// Two are idle, and one of them must stay: it does, and leads. (No standby here: both are parked.)
#[test]
fn loom_two_idle_one_stays() {
    explore(|| {
        let pool = elastic(EAGER, 3);
        let held = pool.first();
        let idle = [own_thread(&pool, 1), own_thread(&pool, 2)];
        pool.clock.advance(TICK);
        drop(held);
        let turns = idle.map(|thread| thread.join().unwrap());
        let led = turns.iter().filter(|turn| **turn == Turn::Led).count();
        assert!(led >= 1, "both went");
        assert_eq!(own(&pool), 1 + led);
        assert_eq!(pool.turns(), led);
    });
}

/// Retirement against promotion: the only thread that is parked, without a standby, is idle for
/// long while the leader opens the lead, and then is stuck for ever. The promotion has seen it, or
/// not: it stays, watches and leads.
#[test]
fn loom_last_one_does_not_retire() {
    explore(|| {
        let pool = elastic(NEWEST, 3);
        let held = pool.first();
        // As if a thread stood by when it came, and then took the lead.
        let stands_by = |standby| {
            pool.lead
                .word
                .update(|word| (word.with_standby(standby), ()));
        };
        stands_by(Standby::Ticking);
        let led = Arc::new(AtomicBool::new(false));
        let idle = {
            let (pool, led) = (Arc::clone(&pool), Arc::clone(&led));
            thread::spawn(move || {
                assert_eq!(pool.turn(&Seat::of_pool(1, 0), None), Turn::Led);
                led.store(true, Ordering::Relaxed);
            })
        };
        pool.until_parked();
        stands_by(Standby::None);
        pool.clock.advance(TICK);
        let (stuck, _) = pool.promote(held, Marks::default());
        while !led.load(Ordering::Relaxed) {
            pool.clock.advance(TICK);
            thread::yield_now();
        }
        idle.join().unwrap();
        mem::forget(stuck);
    });
}

/// Retirement against the end: one of two that are idle goes, the other is sent home.
#[test]
fn loom_retirement_against_close() {
    explore(|| {
        let pool = elastic(EAGER, 3);
        let held = pool.first();
        let idle = [own_thread(&pool, 1), own_thread(&pool, 2)];
        pool.clock.advance(TICK);
        pool.close();
        for thread in idle {
            assert_ne!(thread.join().unwrap(), Turn::Led);
        }
        assert!(own(&pool) >= 2);
        drop(held);
    });
}

/// One is called and on its way, and its caller is soon done and leads again, for the next event:
/// it calls no other until the first one is here. If that one sleeps there is no need to; but if it
/// has just taken the lead, there is.
fn one_is_called_at_a_time(policy: (Wake, Order)) {
    explore(move || {
        let pool = elastic(policy, 1);
        let now = pool.clock().now();
        let (running, promotion) = pool.promote(pool.first(), Marks::default());
        assert_eq!(promotion, Promotion::Alone);
        let elastic = pool.lead.claim_one_more(now).expect("nobody is there");
        elastic.called(1);
        let newcomer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.lead_until_closed(&Seat::of_pool(1, 0)))
        };
        if let Rejoined::Leads(held) = running.rejoin(&seat(0), now) {
            let (running, promotion) = pool.promote(held, Marks::default());
            if promotion == Promotion::Alone && pool.lead.claim_one_more(now).is_some() {
                assert!(!pool.lead.word.look().is_open(), "two are on their way");
            }
            drop(running);
        }
        pool.close();
        newcomer.join().unwrap();
        assert!(own(&pool) <= 3);
    });
}

#[test]
fn loom_one_is_called_at_a_time_eager() {
    one_is_called_at_a_time(EAGER);
}

#[test]
fn loom_one_is_called_at_a_time_newest() {
    one_is_called_at_a_time(NEWEST);
}

/// A thread falls asleep while one is claimed because none sleeps. The claim sees it, and is given
/// up; or that thread counts the one that is called, and so does not stay for ever. (Its two steps,
/// without its sleep.)
#[test]
fn loom_claim_against_arrival() {
    explore(|| {
        let pool = elastic(EAGER, 2);
        let held = pool.first();
        let sleeper = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                pool.lead.word.update(|word| (word.with_parked(true), ()));
                let elastic = pool.lead.elastic().expect("it is elastic");
                elastic.arrived(&Seat::of_pool(1, 0), &pool.clock())
            })
        };
        let claimed = pool.lead.claim_one_more(pool.clock().now()).is_some();
        let until = sleeper.join().unwrap();
        assert!(!claimed || until.is_some(), "it stays for ever");
        pool.lead.word.update(|word| (word.with_parked(false), ()));
        drop(held);
    });
}
