//! The adaptive wake and the orders, by exact counts: who is woken, who looks, who leads. Real
//! threads on the simulated set, whose clock stands still until the test moves it, tick by tick.

use std::{
    sync::{mpsc, Arc, Mutex},
    time::Duration,
};

use crate::support::{
    bounded, by_hand,
    stage::{Counts, Stage, Stuck, Telling, TICK},
    wait_until, LONG,
};
use paceline::{observe::Role, Context, Interest, Next, Order, Wake};

const ORDERS: [Order; 4] = [Order::Newest, Order::Oldest, Order::Priority, Order::System];

/// The reason for the adaptive wake: while one thread suffices, a request costs one promotion,
/// which the same thread takes back, and nobody else stirs. (The textbook wakes somebody for each.)
#[test]
fn short_requests_wake_nobody() {
    bounded(|| {
        const REQUESTS: u64 = 200;
        let stage = Stage::new(4, |pool| pool);
        let peer = stage.echo();
        stage.ask(&peer, 0);
        let before = stage.pool.snapshot();
        (0..REQUESTS).for_each(|_| stage.ask(&peer, 0));
        assert_eq!(stage.counts_since(&before), Counts::taken_back(REQUESTS));
        assert_eq!(stage.pool.snapshot().longest_without_leader, Duration::ZERO);
    });
}

/// Asio 886: a hundred thousand packets per second with one thread, ten thousand with many. Now
/// sleeping threads cost nothing: with two and with thirty-two of them the same requests need the
/// same steps.
#[test]
fn more_threads_are_not_slower() {
    bounded(|| {
        const REQUESTS: u64 = 100;
        for threads in [2, 32] {
            let stage = Stage::new(threads, |pool| pool);
            let peers = [stage.echo(), stage.echo()];
            let before = stage.pool.snapshot();
            for request in 0..REQUESTS {
                stage.ask(&peers[request as usize % 2], 0);
            }
            assert_eq!(stage.counts_since(&before), Counts::taken_back(REQUESTS));
        }
    });
}

/// MariaDB 21343: a thread that was about to block woke nobody, and what was in the queue waited
/// for it. Now a handler that says so has a successor before it blocks: the clock stands still,
/// nobody looks, and yet the other connection is served. One thread is woken, and it finds work.
#[test]
fn wait_begin_wakes() {
    bounded(|| {
        for telling in [Telling::Blocking, Telling::WakeFollower] {
            let stage = Stage::new(3, |pool| pool);
            let (stuck, other) = (stage.stuck(telling), stage.echo());
            let before = stage.pool.snapshot();
            stuck.block();
            stage.ask(&other, 1);
            let expected = Counts {
                promotions: 2,
                taken_back: 1,
                wakes: 1,
                ..Counts::default()
            };
            assert_eq!(stage.counts_since(&before), expected);

            // Who returns finds somebody leading: it sleeps, and wakes nobody.
            stuck.release();
            stage.rest(0);
            assert_eq!(stage.counts_since(&before), expected);
        }
    });
}

/// A handler may ask for help as often as it likes: once somebody leads, nobody else is woken for
/// it.
#[test]
fn asking_for_help_again_wakes_nobody_else() {
    bounded(|| {
        let stage = Stage::new(4, |pool| pool);
        let (tell, told) = mpsc::channel();
        let (permission, gate) = mpsc::channel();
        let peer = stage.serve(move |cx: &mut Context<'_, _>| {
            for _ in 0..10 {
                cx.wake_follower();
                tell.send(()).unwrap();
                gate.recv_timeout(LONG).expect("permission comes");
            }
            by_hand::echo(cx)
        });
        peer.send(b"x");
        for _ in 0..10 {
            told.recv_timeout(LONG).unwrap();
            stage.rest(1);
            permission.send(()).unwrap();
        }
        assert_eq!(peer.wait_for(1), b"x");
        assert_eq!(stage.pool.snapshot().wakes, 1);
    });
}

/// The surprise: a handler blocks and has not told. The lead is open, and nobody takes it until the
/// standby looks: then it leads, and its first promotion appoints the next standby (I2), which does
/// the same for the next surprise.
#[test]
fn untold_blocking_is_found_by_the_next_look() {
    bounded(|| {
        let stage = Stage::new(3, |pool| pool);
        let (stuck, other) = (stage.stuck(Telling::Nothing), stage.echo());
        let before = stage.pool.snapshot();
        stuck.block();
        other.send(b"x");
        assert_eq!(stage.witness.count(Role::Leader), 0);
        assert!(other.received().is_empty());
        stage.look();
        assert_eq!(other.wait_for(1), b"x");
        stage.rest(1);
        let expected = Counts {
            promotions: 2,
            taken_back: 1,
            wakes: 1,
            ticks: 1,
            ..Counts::default()
        };
        assert_eq!(stage.counts_since(&before), expected);
        assert_eq!(stage.pool.snapshot().longest_without_leader, TICK);

        let another = stage.stuck(Telling::Nothing);
        another.block();
        stuck.release();
        other.send(b"y");
        stage.look();
        assert_eq!(other.wait_for(1), b"y");
        another.release();
    });
}

/// A lead that was opened just before the look may be taken back any moment: it is left alone, and
/// found by the next look if it is still open. The bound of a tick and a quarter is tight.
#[test]
fn what_was_opened_just_now_is_left_alone() {
    bounded(|| {
        const JUST_NOW: Duration = Duration::from_micros(124);
        let stage = Stage::new(3, |pool| pool);
        let (stuck, other) = (stage.stuck(Telling::Nothing), stage.echo());
        stage.world.clock().advance(TICK - JUST_NOW);
        stuck.block();
        other.send(b"x");
        stage.look_after(JUST_NOW);
        stage.standby_ticks();
        assert_eq!(stage.witness.count(Role::Leader), 0);
        assert!(other.received().is_empty());
        stage.look();
        assert_eq!(other.wait_for(1), b"x");
        let blind = stage.pool.snapshot().longest_without_leader;
        assert_eq!(blind, JUST_NOW + TICK);
        stuck.release();
    });
}

/// Each look takes a core from a thread that works. Where the lead has moved on from look to look
/// for a while, the standby looks only every fourth tick; the first surprise ends that: who stands
/// by next looks at every tick again.
#[test]
fn a_calm_pool_is_looked_at_every_fourth_tick() {
    bounded(|| {
        const UNTIL_CALM: usize = 32;
        let stage = Stage::new(3, |pool| pool);
        let (stuck, other) = (stage.stuck(Telling::Nothing), stage.echo());
        for _ in 0..UNTIL_CALM {
            stage.ask(&other, 0);
            stage.look();
            // To its end: else it could see the next request already, and the next look nothing
            // new.
            stage.standby_ticks();
        }
        for _ in 0..3 {
            stage.ask(&other, 0);
            let ticks = stage.pool.snapshot().ticks;
            stage.standby_ticks();
            stage
                .world
                .clock()
                .advance(4 * TICK - Duration::from_nanos(1));
            stage.standby_ticks();
            assert_eq!(stage.pool.snapshot().ticks, ticks);
            stage.look_after(Duration::from_nanos(1));
            stage.standby_ticks();
        }
        stuck.block();
        stage.look_after(4 * TICK);
        stage.ask(&other, 1);
        assert_eq!(stage.pool.snapshot().longest_blind, 4 * TICK);
        stuck.release();
        stage.rest(0);
        stage.look();
    });
}

/// What was calm before a long silence says nothing about what comes after it: who is roused from
/// deep sleep looks at every tick.
#[test]
fn after_a_silence_a_pool_is_not_calm() {
    bounded(|| {
        let stage = Stage::new(3, |pool| pool);
        let (stuck, other) = (stage.stuck(Telling::Nothing), stage.echo());
        for _ in 0..32 {
            stage.ask(&other, 0);
            stage.look();
        }
        while !stage.says("standby: Deep") {
            stage.look_after(4 * TICK);
            wait_until(|| stage.says("standby: Deep") || stage.somebody_watches_the_clock());
        }
        stuck.block();
        other.send(b"x");
        stage.look();
        assert_eq!(other.wait_for(1), b"x");
        stuck.release();
    });
}

/// tokio 4730 and its many duplicates, brpc 452: a handler that blocks stopped the whole poll. Now,
/// in every order, under both policies, and whatever the handler has told, somebody leads behind
/// it: at once, or where it was a surprise, after a look. And when the handler is back, everything
/// is as before.
#[test]
fn blocking_handler_leaves_a_leader() {
    bounded(|| {
        for (wake, order, telling) in every_way() {
            let stage = Stage::new(3, |pool| pool.wake(wake).order(order));
            let (stuck, other) = (stage.stuck(telling), stage.echo());
            for _ in 0..3 {
                stuck.block();
                other.send(b"x");
                if wake == Wake::Adaptive && telling == Telling::Nothing {
                    stage.look();
                }
                assert_eq!(other.wait_for(1), b"x");
                stage.rest(1);
                assert_eq!(stage.witness.count(Role::Leader), 1);
                stuck.release();
                stage.rest(0);
            }
            assert_eq!(stage.witness.most_leaders(), 1);
        }
    });
}

fn every_way() -> impl Iterator<Item = (Wake, Order, Telling)> {
    const TELLING: [Telling; 3] = [Telling::Nothing, Telling::Blocking, Telling::WakeFollower];
    let wakes = [Wake::Eager, Wake::Adaptive].into_iter();
    wakes.flat_map(|wake| {
        let orders = ORDERS.into_iter();
        orders.flat_map(move |order| TELLING.map(|telling| (wake, order, telling)))
    })
}

/// Where all threads but one are away there is nobody to be woken and nobody who watches. The last
/// one takes every lead back at once, in every order: nobody waits for a tick.
#[test]
fn last_thread_takes_every_lead_at_once() {
    bounded(|| {
        const REQUESTS: u64 = 50;
        for order in ORDERS {
            let stage = Stage::new(4, |pool| pool.order(order));
            let other = stage.echo();
            let stuck = stage.block_three();
            let before = stage.pool.snapshot();
            (0..REQUESTS).for_each(|_| stage.ask(&other, 3));
            assert_eq!(stage.counts_since(&before), Counts::taken_back(REQUESTS));
            stuck.iter().for_each(Stuck::release);
        }
    });
}

/// MariaDB 33070: with as many threads blocked as there may be, work sat in the queue, also after
/// one of them was free. Now with all of them away nobody is there to serve; the first that is back
/// takes the lead without waiting for a tick, and serves what came meanwhile.
#[test]
fn oversubscribe_boundary_drains() {
    bounded(|| {
        for order in ORDERS {
            let stage = Stage::new(4, |pool| pool.order(order));
            let other = stage.echo();
            let stuck = stage.block_three();
            let last = stage.stuck(Telling::Blocking);
            last.block();
            other.send(b"x");
            assert_eq!(stage.witness.count(Role::Processing), 4);
            assert!(other.received().is_empty());
            stuck[1].release();
            assert_eq!(other.wait_for(1), b"x");
            assert_eq!(stage.pool.snapshot().ticks, 0);
            let others = [&last, &stuck[0], &stuck[2]];
            others.into_iter().for_each(Stuck::release);
        }
    });
}

/// async-io 8 and 40, Grizzly 1712: something polled while there was nothing to do. The standby
/// looks twice at a lead that is held and does not move, then it has no timer any more, however
/// much time passes. The first event rouses it: a surprise after the long silence is found as well,
/// even by the first look, because its watch began with the lead open.
#[test]
fn idle_pool_stops_ticking() {
    bounded(|| {
        const LOOKS: u64 = 2;
        let stage = Stage::new(3, |pool| pool);
        let (stuck, other) = (stage.stuck(Telling::Nothing), stage.echo());
        (0..LOOKS).for_each(|_| stage.look());
        wait_until(|| stage.says("standby: Deep"));
        for _ in 0..100 {
            stage.world.clock().advance(TICK);
            assert!(!stage.somebody_watches_the_clock());
        }
        assert_eq!(stage.pool.snapshot().ticks, LOOKS);
        assert_eq!(stage.pool.snapshot().wakes, 0);

        stuck.block();
        other.send(b"x");
        assert_eq!(stage.pool.snapshot().wakes, 1);
        stage.look();
        assert_eq!(other.wait_for(1), b"x");
        stuck.release();
    });
}

/// A pool that is used now and then does not fall into deep sleep: each event starts the count
/// anew, and costs no wake.
#[test]
fn a_pool_in_use_keeps_its_standby() {
    bounded(|| {
        let stage = Stage::new(3, |pool| pool);
        let peer = stage.echo();
        for _ in 0..5 {
            stage.look();
            stage.standby_ticks();
            stage.ask(&peer, 0);
        }
        assert_eq!(stage.pool.snapshot().ticks, 5);
        assert_eq!(stage.pool.snapshot().wakes, 0);
    });
}

/// W1: two connections always have something to do, and there are two cores. Without a look one
/// thread does it all, in turns; the second core costs a wake, and might not pay. After a look both
/// threads run, and two handlers meet inside; if one of them was done too soon to meet the other,
/// after the next.
#[test]
fn lasting_backlog_uses_two_cores() {
    bounded(|| {
        let stage = Stage::new(4, |pool| pool.parallelism(2));
        let meeting = stage.two_restless();
        stage.promotions_go_on();
        assert_eq!(stage.pool.snapshot().wakes, 0);
        assert!(!meeting.happened());
        for _ in 0..30 {
            stage.look_at_a_busy_pool();
            stage.promotions_go_on();
            if meeting.happened() {
                break;
            }
        }
        assert!(meeting.happened(), "{:?}", stage.pool.snapshot());
        assert!(stage.pool.snapshot().wakes >= 1);
    });
}

/// The same with one core: a second thread would only be in the way. However often the standby
/// looks, nobody is woken.
#[test]
fn backlog_on_one_core_wakes_nobody() {
    bounded(|| {
        let stage = Stage::new(4, |pool| pool.parallelism(1));
        let meeting = stage.two_restless();
        for _ in 0..30 {
            stage.look_at_a_busy_pool();
        }
        assert_eq!(stage.pool.snapshot().wakes, 0);
        assert!(!meeting.happened());
    });
}

/// tokio 5712: two tasks that woke each other went through the newest-first slot for ever, and the
/// third one starved. Here newest first is about threads, and the threads that came first do sleep
/// for ever while one suffices: that is meant. The handles do not starve: of two that cause each
/// other's events, neither is called twice before the third one, which had an event in between, was
/// called once (F1).
#[test]
fn lifo_pingpong_bounded() {
    bounded(|| {
        const ROUNDS: usize = 300;
        let stage = Stage::joined(&[0; 4], |pool| pool);
        let (near, far): (Vec<_>, Vec<_>) = (0..3).map(|_| stage.world.stream()).unzip();
        let far = Arc::new(far);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (done, wait) = mpsc::channel();
        for (id, stream) in near.into_iter().enumerate() {
            let (far, calls, done) = (Arc::clone(&far), Arc::clone(&calls), done.clone());
            let handler = move |cx: &mut Context<'_, _>| {
                let call = calls.lock().unwrap().len();
                calls.lock().unwrap().push(id);
                match id {
                    _ if call >= ROUNDS => done.send(()).unwrap(),
                    0 => (1..=2).for_each(|next| far[next].send(b"x")),
                    1 => far[0].send(b"x"),
                    _ => {}
                }
                while cx.read(&mut [0; 8])? > 0 {}
                Ok(Next::Close)
            };
            stage
                .pool
                .register(stream, Interest::READ, handler)
                .unwrap();
        }
        far[0].send(b"x");
        wait.recv_timeout(LONG).unwrap();
        for (at, id) in calls.lock().unwrap().iter().take(ROUNDS).enumerate() {
            assert_eq!(*id, at % 3);
        }
        let awake = stage.witness.log().into_iter();
        let mut awake = awake.filter(|(_, role)| *role != Role::Follower);
        assert!(awake.all(|(thread, _)| thread == 0));
        assert_eq!(stage.pool.snapshot().wakes, 0);
    });
}

/// Oldest first: with three followers parked in a known order each event is led by the one that has
/// waited longest, under both policies, round and round; and each event costs one wake.
#[test]
fn oldest_first_everyone_has_its_turn() {
    bounded(|| {
        const EVENTS: u64 = 12;
        for wake in [Wake::Eager, Wake::Adaptive] {
            let stage = Stage::joined(&[0; 4], |pool| pool.wake(wake).order(Order::Oldest));
            let peer = stage.echo();
            (0..EVENTS).for_each(|_| stage.ask(&peer, 0));
            let turns = (0..=EVENTS).map(|event| event as usize % 4);
            assert_eq!(stage.log_of(Role::Leader), turns.collect::<Vec<_>>());
            let seen = stage.pool.snapshot();
            assert_eq!((seen.promotions, seen.wakes), (EVENTS, EVENTS));
            assert_eq!((seen.leads_taken_back, seen.ticks), (0, 0));
        }
    });
}

/// By priority: of the threads that wait the highest leads, among equals the newest, whenever they
/// came. Each leader in turn goes away, and takes no further part.
#[test]
fn highest_priority_leads_among_equals_the_newest() {
    bounded(|| {
        for wake in [Wake::Eager, Wake::Adaptive] {
            let stage = Stage::joined(&[5, 1, 7, 7, 3], |pool| {
                pool.wake(wake).order(Order::Priority)
            });
            let stuck = [(); 5].map(|()| stage.stuck(Telling::Blocking));
            stuck.iter().for_each(Stuck::block);
            assert_eq!(stage.log_of(Role::Processing), [0, 3, 2, 4, 1]);
            assert_eq!(stage.pool.snapshot().ticks, 0);
            stuck.iter().for_each(Stuck::release);
        }
    });
}

/// Also a standby is a follower with its rank. Here it is the newest of two equals, because it came
/// back from an event after the other one had parked: it leads next.
#[test]
fn among_equals_the_standby_may_be_the_newest() {
    bounded(|| {
        let stage = Stage::joined(&[5, 7, 5], |pool| pool.order(Order::Priority));
        let (first, second) = (
            stage.stuck(Telling::Blocking),
            stage.stuck(Telling::Blocking),
        );
        first.block();
        first.release();
        stage.rest(0);
        assert_eq!(stage.witness.role(1), Some(Role::Leader));
        second.block();
        stage.rest(1);
        assert_eq!(stage.witness.role(0), Some(Role::Leader));
        second.release();
    });
}

/// The pool's own threads have priorities too. Whoever happened to lead first, after one event the
/// highest does; it takes back every lead, because nobody who waits ranks higher; and if it goes
/// away the next one in rank follows.
#[test]
fn own_threads_lead_by_their_priority() {
    bounded(|| {
        const REQUESTS: u64 = 20;
        let stage = Stage::new(4, |pool| {
            pool.order(Order::Priority)
                .thread_priority(|index| index as u8)
        });
        let peer = stage.echo();
        stage.ask(&peer, 0);
        assert_eq!(stage.witness.role(3), Some(Role::Leader));
        let before = stage.pool.snapshot();
        (0..REQUESTS).for_each(|_| stage.ask(&peer, 0));
        assert_eq!(stage.counts_since(&before), Counts::taken_back(REQUESTS));

        let stuck = stage.block_three();
        assert_eq!(stage.witness.role(0), Some(Role::Leader));
        let led = stage.log_of(Role::Processing);
        assert_eq!(led[led.len() - 3..], [3, 2, 1]);
        stuck.iter().for_each(Stuck::release);
    });
}

/// The system's order promises nothing about threads. Every connection is served, and nobody waits
/// for a tick.
#[test]
fn systems_order_serves_everyone() {
    bounded(|| {
        for wake in [Wake::Eager, Wake::Adaptive] {
            let stage = Stage::new(4, |pool| pool.wake(wake).order(Order::System));
            let peers = [(); 8].map(|()| stage.echo());
            for _ in 0..25 {
                peers.iter().for_each(|peer| peer.send(b"x"));
                for peer in &peers {
                    assert_eq!(peer.wait_for(1), b"x");
                }
            }
            stage.rest(0);
            assert_eq!(stage.pool.snapshot().ticks, 0);
            assert_eq!(stage.witness.most_leaders(), 1);
        }
    });
}
