//! Timers are events of the same turn: not before their time, not lost, not called after their end.
//! Most of it on a clock that stands still until the test moves it.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    bounded,
    by_hand::{self, advance, asleep, claim, lead, serve_all, turn, Scene},
    kernel_sets, told, wait_until, Random, LONG,
};
use paceline::{
    simulated::Simulation, turn::Waited, Context, Interest, Next, Panics, Pool, SetKind,
    TaskContext, TickContext,
};

const MS: Duration = Duration::from_millis(1);

/// Counts calls.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn once(&self) -> impl FnOnce(&mut TaskContext<'_>) + Send + 'static {
        let calls = self.clone();
        move |_| calls.one_more()
    }

    fn every(&self) -> impl FnMut(&mut TickContext<'_>) + Send + 'static {
        let calls = self.clone();
        move |_| calls.one_more()
    }
}

/// Lets time pass, and does what is due then.
fn pass(scene: &Scene, span: Duration) {
    advance(scene, span);
    serve_all(&scene.pool);
}

/// Not a millisecond early, and called once.
#[test]
fn called_at_its_time() {
    for span in [
        MS,
        2 * MS,
        63 * MS,
        64 * MS,
        65 * MS,
        5000 * MS,
        Duration::from_secs(90_000),
    ] {
        let (scene, calls) = (Scene::unobserved(), Calls::default());
        scene.pool.after(span, calls.once()).unwrap();
        advance(&scene, span - MS);
        assert_eq!(serve_all(&scene.pool), 0, "{span:?}");
        advance(&scene, MS);
        assert_eq!(serve_all(&scene.pool), 1, "{span:?}");
        assert_eq!(calls.count(), 1);
        advance(&scene, 10 * span);
        assert_eq!(serve_all(&scene.pool), 0);
        assert_eq!(scene.pool.snapshot().timers, 1);
    }
}

/// Parts of a millisecond are rounded up, never down.
#[test]
fn never_early() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    advance(&scene, Duration::from_micros(300));
    scene
        .pool
        .after(Duration::from_micros(1500), calls.once())
        .unwrap();
    advance(&scene, Duration::from_micros(1500));
    assert_eq!(serve_all(&scene.pool), 0);
    advance(&scene, Duration::from_micros(200));
    assert_eq!(serve_all(&scene.pool), 1);
}

/// A leader that sleeps without end is woken for the first timer, sleeps until it, and again
/// without end.
#[test]
fn a_sleeping_leader_comes_in_time() {
    bounded(|| {
        let (world, calls) = (Simulation::new(1), Calls::default());
        let pool = asleep(&world, 1);
        pool.after(5 * MS, calls.once()).unwrap();
        wait_until(|| world.clock().asleep() == 1);
        world.clock().advance(5 * MS);
        wait_until(|| calls.count() == 1 && world.clock().asleep() == 1);
        pool.after(5 * MS, calls.once()).unwrap();
        wait_until(|| world.clock().asleep() == 1);
        world.clock().advance(5 * MS);
        wait_until(|| calls.count() == 2);
    });
}

/// "An earlier deadline wakes the leader only if it sleeps past it": a later one, and one that is
/// set while the leader is awake, cost no wake.
#[test]
fn only_an_earlier_one_wakes() {
    bounded(|| {
        let (world, calls) = (Simulation::new(1), Calls::default());
        let pool = asleep(&world, 1);
        let set = |milliseconds: u32| {
            let wakes = world.wakes();
            pool.after(milliseconds * MS, calls.once()).unwrap();
            wait_until(|| world.clock().asleep() == 1);
            world.wakes() - wakes
        };
        assert_eq!(set(50), 1, "it slept without end");
        assert_eq!(set(51), 0);
        assert_eq!(set(5000), 0);
        assert_eq!(set(50), 0);
        assert_eq!(set(20), 1);
        assert_eq!(set(30), 0);
        let wakes = world.wakes();
        for _ in 0..5 {
            world.clock().advance(20 * MS);
            wait_until(|| world.clock().asleep() == 1);
        }
        wait_until(|| calls.count() == 5);
        assert_eq!(world.wakes(), wakes, "time passes without a wake");
    });
}

/// Nobody sleeps, so whoever sets a timer wakes nobody.
#[test]
fn set_while_nobody_sleeps_wakes_nobody() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    let wakes = scene.world.wakes();
    for milliseconds in (1..100).rev() {
        scene.pool.after(milliseconds * MS, calls.once()).unwrap();
    }
    assert_eq!(scene.world.wakes(), wakes);
    advance(&scene, 100 * MS);
    assert_eq!(serve_all(&scene.pool), 99);
}

/// A hundred thousand of them, in any order, some of them cancelled: each is called once and at its
/// time, or never.
#[test]
fn a_hundred_thousand() {
    const TIMERS: usize = 100_000;
    let scene = Scene::unobserved();
    let mut random = Random::new(7);
    let late = Arc::new(AtomicUsize::new(0));
    let called = Arc::new(AtomicUsize::new(0));
    let mut kept = 0;
    for _ in 0..TIMERS {
        let span = (1 + random.below(60_000)) as u32 * MS;
        let due = scene.world.clock().elapsed() + span;
        let (world, late, called) = (scene.world.clone(), Arc::clone(&late), Arc::clone(&called));
        let timer = scene.pool.after(span, move |_| {
            called.fetch_add(1, Ordering::Relaxed);
            if world.clock().elapsed() != due {
                late.fetch_add(1, Ordering::Relaxed);
            }
        });
        let timer = timer.unwrap();
        if random.once_in(4) {
            timer.cancel().unwrap()
        } else {
            kept += 1
        }
    }
    // The time passes a millisecond at a step: whatever is called is called on time.
    for _ in 0..60_000 {
        pass(&scene, MS);
    }
    assert_eq!(called.load(Ordering::Relaxed), kept);
    assert_eq!(late.load(Ordering::Relaxed), 0);
    assert_eq!(scene.pool.snapshot().late_timers, 0);
}

/// A row of ticks that does not drift: the tenth comes after ten periods, however late the others
/// were.
#[test]
fn periodic_without_drift() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    scene.pool.every(10 * MS, calls.every()).unwrap();
    for tick in 1..=10 {
        // Always found a little late.
        advance(
            &scene,
            10 * MS * tick + 3 * MS - scene.world.clock().elapsed(),
        );
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(calls.count(), tick as usize);
    }
    assert_eq!(scene.pool.snapshot().missed_ticks, 0);
}

/// Ticks that pass while nobody is free are counted, told, and not made up for.
#[test]
fn missed_ticks_are_counted() {
    let (scene, missed) = (Scene::unobserved(), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&missed);
    let tick = move |cx: &mut TickContext<'_>| told.lock().unwrap().push(cx.missed());
    scene.pool.every(10 * MS, tick).unwrap();
    for span in [10, 45, 5, 10] {
        pass(&scene, span * MS);
    }
    // At 10; at 55, after 20 to 50 have passed, of which one is its own; at 60; at 70.
    assert_eq!(*missed.lock().unwrap(), [0, 3, 0, 0]);
    assert_eq!(scene.pool.snapshot().missed_ticks, 3);
    assert_eq!(scene.pool.snapshot().late_timers, 1);
}

/// The system's waits count in milliseconds: who comes one too late is on time.
#[test]
fn late_is_more_than_a_millisecond() {
    for (by, late) in [(0, 0), (1, 0), (2, 1)] {
        let scene = Scene::unobserved();
        scene.pool.after(5 * MS, |_| {}).unwrap();
        advance(&scene, (5 + by) * MS);
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(scene.pool.snapshot().late_timers, late, "by {by}");
    }
}

/// spserver's timers may change their own interval; and they may stop.
#[test]
fn a_timer_changes_its_period_and_stops() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    let counted = calls.clone();
    let tick = move |cx: &mut TickContext<'_>| {
        counted.one_more();
        assert_eq!(
            cx.set_period(Duration::ZERO).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        match counted.count() {
            1 => cx.set_period(100 * MS).unwrap(),
            2 => assert_eq!(cx.period(), 100 * MS),
            _ => cx.stop(),
        }
    };
    let timer = scene.pool.every(10 * MS, tick).unwrap();
    for (span, expected) in [(10, 1), (10, 1), (90, 2), (100, 3), (1000, 3)] {
        pass(&scene, span * MS);
        assert_eq!(calls.count(), expected, "after {span}");
    }
    assert_eq!(timer.cancel().unwrap_err().kind(), io::ErrorKind::NotFound);
}

/// A call takes long, and changes the period: the new row begins at its end, and of the old one
/// nothing was missed.
#[test]
fn a_new_period_begins_after_the_call() {
    let (scene, missed) = (Scene::unobserved(), Arc::new(Mutex::new(Vec::new())));
    let (world, told) = (scene.world.clone(), Arc::clone(&missed));
    let tick = move |cx: &mut TickContext<'_>| {
        let mut told = told.lock().unwrap();
        told.push(cx.missed());
        if told.len() == 1 {
            world.clock().advance(35 * MS);
            cx.set_period(20 * MS).unwrap();
        }
    };
    scene.pool.every(10 * MS, tick).unwrap();
    for (span, expected) in [(10, 1), (19, 0), (1, 1)] {
        advance(&scene, span * MS);
        assert_eq!(serve_all(&scene.pool), expected, "after {span}");
    }
    assert_eq!(*missed.lock().unwrap(), [0, 0]);
}

/// H3: nothing is called after `cancel` has returned, and what it would have called is dropped.
#[test]
fn cancelled_is_not_called() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    let once = scene.pool.after(5 * MS, calls.once()).unwrap();
    let every = scene.pool.every(5 * MS, calls.every()).unwrap();
    let guard = scene
        .pool
        .after(5 * MS, calls.once())
        .unwrap()
        .cancel_on_drop();
    assert_eq!(Arc::strong_count(&calls.0), 4);
    once.cancel().unwrap();
    every.cancel().unwrap();
    drop(guard);
    assert_eq!(Arc::strong_count(&calls.0), 1, "dropped at once");
    assert_eq!(once.cancel().unwrap_err().kind(), io::ErrorKind::NotFound);
    advance(&scene, 10 * MS);
    assert_eq!(serve_all(&scene.pool), 0);
    assert_eq!(calls.count(), 0);
}

/// Its time has come and it waits in the line when it is cancelled: it is not called either.
#[test]
fn cancelled_in_the_line_is_not_called() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    let first = scene.pool.after(5 * MS, calls.once()).unwrap();
    let second = scene.pool.after(5 * MS, calls.once()).unwrap();
    advance(&scene, 5 * MS);
    let Waited::Claimed(claimed) = lead(&scene.pool).wait(Some(Duration::ZERO)).unwrap() else {
        panic!("both are due");
    };
    let cancelled = [first, second].map(|timer| timer.cancel().is_ok());
    drop(claimed.promote().run());
    serve_all(&scene.pool);
    assert_eq!(cancelled, [true, true]);
    assert_eq!(calls.count(), 0);
}

/// A timer's slot is used for the next registration, and its time is not that one's.
#[test]
fn a_slot_forgets_its_time() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    scene
        .pool
        .after(5 * MS, calls.once())
        .unwrap()
        .cancel()
        .unwrap();
    let (handler, end) = told(by_hand::echo);
    let peer = scene.serve(handler);
    peer.send(b"x");
    assert_eq!(serve_all(&scene.pool), 1);
    pass(&scene, 10 * MS);
    assert!(end.try_recv().is_err());
}

/// Own calls may cancel; who waits for the end of such a call is told, not hung.
#[test]
fn cancelled_by_its_own_call() {
    bounded(|| {
        let (scene, calls) = (Scene::unobserved(), Calls::default());
        let (give, take) = mpsc::channel::<paceline::Timer>();
        let counted = calls.clone();
        let mut own = None;
        let tick = move |_: &mut TickContext<'_>| {
            counted.one_more();
            let own = own.get_or_insert_with(|| take.recv().unwrap());
            assert_eq!(
                own.cancel_and_wait().unwrap_err().kind(),
                io::ErrorKind::Deadlock
            );
            own.cancel().unwrap();
        };
        give.send(scene.pool.every(5 * MS, tick).unwrap()).unwrap();
        for _ in 0..3 {
            pass(&scene, 5 * MS);
        }
        assert_eq!(calls.count(), 1);
        assert_eq!(Arc::strong_count(&calls.0), 1, "it is over, and dropped");
    });
}

/// A panic ends the timer, or not, by the pool's policy; it is told, and takes nothing else with
/// it.
#[test]
fn panics_by_policy() {
    for (panics, expected) in [(Panics::Close, 1), (Panics::Keep, 3)] {
        let world = Simulation::new(1);
        let told = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&told);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .panics(panics)
            .on_panic(move |_, text| hook.lock().unwrap().push(text.to_owned()))
            .on_closed(|_| panic!("timers are no handles"))
            .build()
            .unwrap();
        let calls = Calls::default();
        let counted = calls.clone();
        pool.every(5 * MS, move |_| {
            counted.one_more();
            panic!("tick");
        })
        .unwrap();
        pool.after(5 * MS, |_| panic!("once")).unwrap();
        for _ in 0..3 {
            world.clock().advance(5 * MS);
            serve_all(&pool);
        }
        assert_eq!(calls.count(), expected);
        let mut told = told.lock().unwrap().clone();
        told.sort_unstable();
        let mut all = vec!["once"];
        all.extend(vec!["tick"; expected]);
        assert_eq!(told, all);
        assert_eq!(pool.snapshot().panics, told.len() as u64);
        let report = pool.shutdown(Duration::ZERO);
        assert_eq!((report.timers_not_due, report.undone_tasks), (0, 0));
    }
}

/// S2: a timer that was not due is not called, and not forgotten: it is in the report.
#[test]
fn shutdown_counts_what_was_not_due() {
    bounded(|| {
        let (world, calls) = (Simulation::new(1), Calls::default());
        let pool = asleep(&world, 2);
        for hours in 1..=3 {
            pool.after(Duration::from_secs(3600 * hours), calls.once())
                .unwrap();
        }
        pool.every(MS, calls.every()).unwrap();
        let report = pool.shutdown(LONG);
        assert_eq!(report.timers_not_due, 3);
        assert!(report.is_clean(), "{report}");
        assert_eq!(calls.count(), 0);
        assert_eq!(Arc::strong_count(&calls.0), 1);
        let rejected = pool.after(MS, calls.once()).unwrap_err();
        let text = rejected.to_string();
        assert!(text.contains("after: the pool is shutting down"), "{text}");
        assert_eq!(Arc::strong_count(&calls.0), 2, "the work is given back");
    });
}

/// A period of zero is refused, and the work given back.
#[test]
fn refused_is_given_back() {
    let scene = Scene::unobserved();
    let calls = Calls::default();
    let rejected = scene.pool.every(Duration::ZERO, calls.every()).unwrap_err();
    assert_eq!(rejected.error.kind(), io::ErrorKind::InvalidInput);
    assert!(scene.pool.every(MS, rejected.value).is_ok());
    advance(&scene, MS);
    assert_eq!(serve_all(&scene.pool), 1);
    assert_eq!(calls.count(), 1);
}

/// By the real clock and the real sets: not early, and it comes.
#[test]
fn on_real_sets() {
    bounded(|| {
        for set in kernel_sets() {
            let pool = Pool::builder().threads(2).handle_set(set).build().unwrap();
            let (done, wait) = mpsc::channel();
            let start = Instant::now();
            for milliseconds in [20, 5, 10] {
                let done = done.clone();
                let timer = pool.after(milliseconds * MS, move |_| {
                    let _ = done.send((milliseconds, start.elapsed()));
                });
                timer.unwrap();
            }
            for _ in 0..3 {
                let (milliseconds, elapsed) = wait.recv_timeout(LONG).unwrap();
                assert!(
                    elapsed >= milliseconds * MS,
                    "{elapsed:?} for {milliseconds}"
                );
            }
        }
    });
}

/// A timer that blocks leaves a leader, as a handler does; and is called by one thread at a time.
#[test]
fn a_blocking_timer_leaves_a_leader() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (go, gate) = mpsc::channel::<()>();
        let (inside, entered) = mpsc::channel();
        let busy = Arc::new(AtomicUsize::new(0));
        let tick = move |cx: &mut TickContext<'_>| {
            assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two threads (H1)");
            cx.blocking(|| {
                let _ = inside.send(());
                let _ = gate.recv();
            });
            busy.fetch_sub(1, Ordering::SeqCst);
        };
        let timer = pool.every(MS, tick).unwrap();
        entered.recv_timeout(LONG).unwrap();
        let (done, wait) = mpsc::channel();
        pool.after(MS, move |_| done.send(()).unwrap()).unwrap();
        wait.recv_timeout(LONG).unwrap();
        let waiter = thread::spawn(move || timer.cancel_and_wait());
        go.send(()).unwrap();
        drop(go);
        waiter.join().unwrap().unwrap();
        assert_eq!(pool.snapshot().panics, 0);
    });
}

/// F1: a leader that is never without work looks at the clock too, whatever makes it look into the
/// set: here the standby, again and again, before sixty-four dispatches are over.
#[test]
fn timers_are_not_starved() {
    bounded(|| {
        let world = Simulation::new(1);
        let set = SetKind::Simulated(world.clone());
        let pool = Pool::builder().threads(0).parallelism(1).handle_set(set);
        let pool = pool.build().unwrap();
        let (stream, _peer) = world.stream();
        let again = |_: &mut Context<'_, _>| Ok(Next::Again);
        let busy = pool.register(stream, Interest::NONE, again).unwrap();
        busy.notify().unwrap();
        let calls = Calls::default();
        pool.after(5 * MS, calls.once()).unwrap();
        let leader = lead(&pool);
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.join())
        };
        wait_until(|| world.clock().asleep() == 1);
        let mut follower = claim(leader).promote().run();
        for _ in 0..20 {
            for _ in 0..40 {
                follower = turn(follower);
            }
            world.clock().advance(2 * MS);
            wait_until(|| world.clock().asleep() == 1);
        }
        assert_eq!(calls.count(), 1);
        drop(follower);
        let _ = pool.shutdown(Duration::ZERO);
        other.join().unwrap().unwrap();
    });
}

/// Timers that are set and taken back with every request, as deadlines are, wake nobody: the leader
/// is up before them.
#[test]
fn set_and_taken_back_wakes_nobody() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 1);
        pool.after(50 * MS, |_| {}).unwrap().cancel().unwrap();
        wait_until(|| world.clock().asleep() == 1);
        let wakes = world.wakes();
        for _ in 0..10 {
            for span in [60, 55] {
                pool.after(span * MS, |_| {}).unwrap().cancel().unwrap();
                wait_until(|| world.clock().asleep() == 1);
            }
        }
        assert_eq!(world.wakes(), wakes);
    });
}

/// Timers of one millisecond are called in the order in which they were set.
#[test]
fn first_set_first_called() {
    let (scene, order) = (Scene::unobserved(), Arc::new(Mutex::new(Vec::new())));
    for number in 0..3 {
        let order = Arc::clone(&order);
        let span = Duration::from_micros(5100 + 400 * number);
        scene
            .pool
            .after(span, move |_| order.lock().unwrap().push(number))
            .unwrap();
    }
    pass(&scene, 10 * MS);
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

/// Who has stopped stays so; and what was missed is counted once, also where the period changes.
#[test]
fn stopped_is_stopped_and_missed_is_counted_once() {
    let (scene, calls) = (Scene::unobserved(), Calls::default());
    let counted = calls.clone();
    let tick = move |cx: &mut TickContext<'_>| {
        counted.one_more();
        if counted.count() == 3 {
            cx.stop();
        }
        cx.set_period(10 * MS).unwrap();
    };
    scene.pool.every(10 * MS, tick).unwrap();
    pass(&scene, 45 * MS);
    (0..5).for_each(|_| pass(&scene, 10 * MS));
    assert_eq!(calls.count(), 3);
    assert_eq!(scene.pool.snapshot().missed_ticks, 3);
}

/// S2: a timer whose time had come, and that nobody called, is lost like a post.
#[test]
fn a_due_timer_that_is_lost_is_in_the_report() {
    let scene = Scene::unobserved();
    scene.pool.after(5 * MS, |_| {}).unwrap();
    advance(&scene, 10 * MS);
    drop(claim(lead(&scene.pool))); // Found, and put back.
    let report = scene.pool.shutdown(Duration::ZERO);
    assert_eq!((report.undone_tasks, report.timers_not_due), (1, 0));
    assert!(!report.is_clean());
}
