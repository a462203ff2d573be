//! Kinds of handlers: the pool learns from their type whether calls are short, compute for long, or
//! sleep. By exact counts of wakes, on the simulated set.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc,
    },
    time::Duration,
};

use crate::support::{
    bounded, by_hand,
    stage::{Stage, Stuck, Telling},
    wait_until,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    ConcurrentContext, Context, EventHandler, GroupHandler, Interest, Members, Next, TaskContext,
};

/// Handlers that take long without blocking: the pool learns it from their type. After some twenty
/// calls of a millisecond each promotion wakes somebody (it is taken to sleep until some calls were
/// asked), so that the next event need not wait; a short kind in the same pool still wakes nobody.
/// The tick is longer than the test: no look has a part in it.
#[test]
fn a_long_kind_is_learned() {
    bounded(|| {
        const REQUESTS: u64 = 20;
        let stage = Stage::new(4, |pool| pool.tick(Duration::from_secs(3600)));
        let long = stage.serve(computing(&stage));
        let short = stage.echo();
        let exact_wakes_of = |peer: &SimPeer, requests: u64| {
            let before = stage.pool.snapshot();
            (0..requests).for_each(|_| stage.ask(peer, 0));
            let counts = stage.counts_since(&before);
            assert_eq!((counts.promotions, counts.ticks), (requests, 0));
            counts.wakes
        };
        assert_eq!(exact_wakes_of(&long, 16), 0);
        exact_wakes_of(&long, 16);
        assert_eq!(exact_wakes_of(&long, REQUESTS), REQUESTS);
        assert_eq!(exact_wakes_of(&short, REQUESTS), 0);
        assert_eq!(exact_wakes_of(&long, REQUESTS), REQUESTS);
    });
}

/// A kind that takes long but never sleeps keeps its core: on a single one nobody is woken for it,
/// once that is known. (Until then it is taken to sleep.) On two cores somebody always is.
#[cfg(target_os = "linux")]
#[test]
fn on_a_single_core_nobody_is_woken_behind_a_computation() {
    bounded(|| {
        const REQUESTS: u64 = 20;
        const UNTIL_KNOWN: u64 = 3000;
        for cores in [1, 2] {
            let tick = Duration::from_secs(3600);
            let stage = Stage::new(4, |pool| pool.tick(tick).parallelism(cores));
            let peer = stage.serve(computing(&stage));
            wakes_of(&stage, &peer, 32, 0);
            let taken_to_sleep = wakes_of(&stage, &peer, REQUESTS, 0);
            assert_eq!(taken_to_sleep, REQUESTS);
            let mut asked =
                (0..UNTIL_KNOWN / REQUESTS).map(|_| wakes_of(&stage, &peer, REQUESTS, 0));
            let stopped = asked.any(|wakes| wakes == 0);
            assert_eq!(stopped, cores == 1);
        }
    });
}

/// Threads that sleep in handlers, untold but known to, use no core: beside two of them, on two
/// cores, somebody is still woken behind a computation.
#[cfg(target_os = "linux")]
#[test]
fn sleepers_take_no_core() {
    bounded(|| {
        const REQUESTS: u64 = 20;
        let tick = Duration::from_secs(3600);
        let stage = Stage::new(6, |pool| pool.tick(tick).parallelism(2));
        let sleepers = [(); 2].map(|()| stage.stuck(Telling::Nothing));
        for _ in 0..64 {
            sleepers[0].block();
            stage.world.clock().advance(Duration::from_millis(1));
            sleepers[0].release();
            stage.rest(0);
        }
        let peer = stage.serve(computing(&stage));
        wakes_of(&stage, &peer, 3000, 0);
        sleepers.iter().for_each(Stuck::block);
        stage.rest(2);
        assert_eq!(wakes_of(&stage, &peer, REQUESTS, 2), REQUESTS);
        sleepers.iter().for_each(Stuck::release);
    });
}

/// A handler of a kind that is known to sleep says that it is going to block. Coming back it
/// counted as running though it had not before, and the way back began with a guess that knew
/// nothing of that: a debug assertion ended the program.
#[test]
fn a_kind_that_sleeps_may_tell_it() {
    bounded(|| {
        let stage = Stage::new(2, |pool| pool.tick(Duration::from_secs(3600)));
        for telling in [Telling::Nothing, Telling::Blocking] {
            let sleeper = stage.stuck(telling);
            for _ in 0..64 {
                sleeper.block();
                stage.world.clock().advance(Duration::from_millis(1));
                sleeper.release();
                stage.rest(0);
            }
        }
    });
}

/// A handler that takes a millisecond and does not sleep.
fn computing(stage: &Stage) -> impl EventHandler<SimStream> {
    let world = stage.world.clone();
    move |cx: &mut Context<'_, _>| {
        world.clock().advance(Duration::from_millis(1));
        by_hand::echo(cx)
    }
}

/// How many wakes so many requests cost, while `busy` threads are inside handlers.
fn wakes_of(stage: &Stage, peer: &SimPeer, requests: u64, busy: usize) -> u64 {
    let before = stage.pool.snapshot();
    (0..requests).for_each(|_| stage.ask(peer, busy));
    stage.counts_since(&before).wakes
}

/// A handler's time begins when it is called: what passed before, while the leader slept, is not
/// counted. However seldom requests come, a short kind stays short, and wakes nobody.
#[test]
fn waiting_is_not_the_handlers_time() {
    bounded(|| {
        const REQUESTS: u64 = 64;
        let stage = Stage::new(4, |pool| pool.tick(Duration::from_secs(3600)));
        let peer = stage.echo();
        for _ in 0..REQUESTS {
            stage.world.clock().advance(Duration::from_millis(1));
            stage.rest(0);
            stage.ask(&peer, 0);
        }
        assert_eq!(stage.pool.snapshot().wakes, 0);
    });
}

/// Posted work, timers, concurrent handles, groups and queues are of kinds too: what takes long is
/// learned, and then each call of it wakes somebody.
#[test]
fn tasks_groups_and_concurrent_handles_are_of_a_kind() {
    const PERIOD: Duration = Duration::from_millis(10);
    /// Makes something that takes a millisecond, and tells how to have it called.
    type Make = fn(&Stage, Arc<AtomicUsize>) -> Box<dyn Fn()>;
    let all: [Make; 5] = [
        |stage, calls| {
            let (pool, world) = (stage.pool.clone(), stage.world.clone());
            Box::new(move || {
                let work = taking_long(&world, &calls);
                pool.post(move |_| work()).unwrap();
            })
        },
        |stage, calls| {
            let world = stage.world.clone();
            let work = taking_long(&world, &calls);
            stage.pool.every(PERIOD, move |_| work()).unwrap();
            Box::new(move || world.clock().advance(PERIOD))
        },
        |stage, calls| {
            let work = taking_long(&stage.world, &calls);
            let (stream, peer) = stage.world.stream();
            let handler = move |_: &mut ConcurrentContext<'_, SimStream>| {
                work();
                Ok(Next::Continue)
            };
            let handle = stage
                .pool
                .register_concurrent(stream, Interest::NONE, handler);
            let handle = handle.unwrap();
            Box::new(move || {
                let _ = &peer;
                handle.notify().unwrap();
            })
        },
        |stage, calls| {
            let work = taking_long(&stage.world, &calls);
            let group = stage.pool.group(Notified(work)).unwrap();
            Box::new(move || group.notify().unwrap())
        },
        |stage, calls| {
            let work = taking_long(&stage.world, &calls);
            let items = stage
                .pool
                .sources()
                .queue(1, move |(), _: &mut TaskContext<'_>| work());
            let items = items.unwrap();
            Box::new(move || items.send(()).unwrap())
        },
    ];
    bounded(move || {
        for make in all {
            let stage = Stage::new(4, |pool| pool.tick(Duration::from_secs(3600)));
            let calls = Arc::new(AtomicUsize::new(0));
            let call = make(&stage, Arc::clone(&calls));
            let wakes_of_calls = |count: u64| {
                let before = stage.pool.snapshot();
                for _ in 0..count {
                    let done = calls.load(Ordering::SeqCst);
                    call();
                    wait_until(|| calls.load(Ordering::SeqCst) == done + 1);
                    stage.rest(0);
                }
                stage.counts_since(&before).wakes
            };
            assert_eq!(wakes_of_calls(16), 0);
            wakes_of_calls(16);
            assert_eq!(wakes_of_calls(20), 20);
        }
    });
}

/// Takes a millisecond, and counts.
fn taking_long(world: &Simulation, calls: &Arc<AtomicUsize>) -> impl Fn() + Send + Sync + 'static {
    let (world, calls) = (world.clone(), Arc::clone(calls));
    move || {
        world.clock().advance(Duration::from_millis(1));
        calls.fetch_add(1, Ordering::SeqCst);
    }
}

/// A group that works when it is notified.
struct Notified<F>(F);

impl<F: Fn() + Send + 'static> GroupHandler<SimStream> for Notified<F> {
    fn ready(
        &mut self,
        _: &mut Context<'_, SimStream>,
        _: &mut Members<'_, SimStream>,
    ) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn notified(&mut self, _: &mut Members<'_, SimStream>) {
        self.0();
    }
}
