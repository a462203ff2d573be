//! L2 after a surprise: who led as the standby has a successor itself, nobody is taken for asleep
//! who is not, and a newcomer waits for no tick. Real threads on the simulated set, by exact
//! counts.

use std::{sync::mpsc, thread, time::Duration};

use crate::support::{
    bounded, by_hand,
    stage::{Counts, Stage, Stuck, Telling, TICK},
    LONG,
};
use paceline::{observe::Role, Context, Order};

const ORDERS: [Order; 4] = [Order::Newest, Order::Oldest, Order::Priority, Order::System];

/// One handler after the other blocks by surprise, until one thread is left. Each time one look is
/// enough: the standby that took the lead has appointed the next one, as long as there was anyone
/// (I2).
#[test]
fn surprise_behind_surprise_is_found() {
    bounded(|| {
        const THREADS: u64 = 5;
        for order in ORDERS {
            let stage = Stage::new(THREADS as usize, |pool| pool.order(order));
            let other = stage.echo();
            let stuck: Vec<_> = (1..THREADS)
                .map(|_| stage.stuck(Telling::Nothing))
                .collect();
            let before = stage.pool.snapshot();
            for (earlier, surprise) in stuck.iter().enumerate() {
                surprise.block();
                stage.look();
                stage.ask(&other, earlier + 1);
            }
            let counts = stage.counts_since(&before);
            assert_eq!(counts.ticks, THREADS - 1, "{order:?}");
            if order == Order::Newest {
                let expected = Counts {
                    promotions: 2 * (THREADS - 1),
                    taken_back: THREADS - 1,
                    wakes: THREADS - 2,
                    ticks: THREADS - 1,
                    ..Counts::default()
                };
                assert_eq!(counts, expected);
            }
            stuck.iter().for_each(Stuck::release);
        }
    });
}

/// A standby that took the lead is asleep no more. When it goes away in its turn there is nobody to
/// wake, and the first thread that is back takes the lead at once: no wake, no tick.
#[test]
fn standby_that_leads_is_not_woken() {
    bounded(|| {
        let stage = Stage::new(2, |pool| pool);
        let (first, last) = (
            stage.stuck(Telling::Nothing),
            stage.stuck(Telling::Blocking),
        );
        let other = stage.echo();
        let before = stage.pool.snapshot();
        first.block();
        stage.look();
        stage.rest(1);
        last.block();
        other.send(b"x");
        first.release();
        assert_eq!(other.wait_for(1), b"x");
        stage.rest(1);
        let expected = Counts {
            promotions: 3,
            taken_back: 2,
            ticks: 1,
            ..Counts::default()
        };
        assert_eq!(stage.counts_since(&before), expected);
        last.release();
    });
}

/// A handler that calls for help, or goes away, answers for the lead that it opened itself. Here
/// somebody has led since, and opened it anew for another event, and a standby watches that: nobody
/// else is woken.
#[test]
fn help_is_for_ones_own_opening() {
    bounded(|| {
        for telling in [Telling::Blocking, Telling::WakeFollower] {
            let stage = Stage::new(4, |pool| pool);
            let (tell, inside) = mpsc::channel();
            let (permission, gate) = mpsc::channel::<()>();
            let pause = move || {
                tell.send(()).unwrap();
                gate.recv_timeout(LONG).expect("permission comes");
            };
            let late = stage.serve(move |cx: &mut Context<'_, _>| {
                pause();
                match telling {
                    Telling::Blocking => cx.blocking(&pause),
                    _ => {
                        cx.wake_follower();
                        pause();
                    }
                }
                by_hand::echo(cx)
            });
            let second = stage.stuck(Telling::Nothing);

            late.send(b"x");
            inside.recv_timeout(LONG).unwrap();
            stage.look();
            stage.rest(1);
            second.block();
            assert_eq!(stage.pool.snapshot().wakes, 1, "to stand by");
            permission.send(()).unwrap();
            inside.recv_timeout(LONG).unwrap();
            assert_eq!(stage.pool.snapshot().wakes, 1);
            permission.send(()).unwrap();
            assert_eq!(late.wait_for(1), b"x");
            second.release();
        }
    });
}

/// A thread that comes while the lead lies open, in an order that may prefer somebody else: it has
/// that one elected, or leads itself. The clock stands still, and yet what waits is served.
#[test]
fn newcomer_needs_no_tick() {
    bounded(|| {
        // Newest first it would stand by, and look like any standby.
        for order in [Order::Oldest, Order::Priority, Order::System] {
            let stage = Stage::new(2, |pool| pool.order(order));
            let (stuck, other) = (stage.stuck(Telling::Nothing), stage.echo());
            stuck.block();
            other.send(b"x");
            assert_eq!(stage.witness.count(Role::Leader), 0);
            let pool = stage.pool.clone();
            thread::spawn(move || pool.join());
            assert_eq!(other.wait_for(1), b"x");
            assert_eq!(stage.pool.snapshot().ticks, 0);
            stuck.release();
        }
    });
}

/// Nobody leads for a while. If a follower was asleep that was blindness, and counts as such; if
/// all threads were busy it was not.
#[test]
fn only_a_pool_with_a_sleeper_is_blind() {
    bounded(|| {
        let stage = Stage::new(2, |pool| pool);
        let stuck = stage.stuck(Telling::Nothing);
        stuck.block();
        stage.look();
        stage.rest(1);
        stuck.release();
        let seen = stage.pool.snapshot();
        assert_eq!(seen.longest_blind, TICK);
        assert_eq!(seen.longest_without_leader, TICK);

        let alone = Stage::new(1, |pool| pool);
        let stuck = alone.stuck(Telling::Nothing);
        stuck.block();
        alone.world.clock().advance(5 * TICK);
        stuck.release();
        alone.rest(0);
        let seen = alone.pool.snapshot();
        assert_eq!(seen.longest_blind, Duration::ZERO);
        assert_eq!(seen.longest_without_leader, 5 * TICK);
    });
}

/// Who leads behind a surprise is a matter of the order. Newest first, the standby is awake
/// already: it leads, and nobody is woken. By priority it has the highest of those who wait woken,
/// and stands by on.
#[test]
fn order_decides_who_leads_behind_a_surprise() {
    bounded(|| {
        for (order, leader, wakes) in [(Order::Newest, 1, 0), (Order::Priority, 2, 1)] {
            let stage = Stage::joined(&[5, 1, 7], |pool| pool.order(order));
            let stuck = stage.stuck(Telling::Nothing);
            stuck.block();
            stage.look();
            stage.rest(1);
            assert_eq!(stage.witness.role(leader), Some(Role::Leader), "{order:?}");
            assert_eq!(stage.pool.snapshot().wakes, wakes, "{order:?}");
            stuck.release();
        }
    });
}
