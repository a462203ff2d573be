//! The adaptive wake, stepped by hand: when a backlog has lasted long enough to pay for a wake
//! (W1), and who leads after a thread that leaves (I3). Two cores, one sleeper: the standby.

use std::{io::ErrorKind, panic, sync::mpsc, thread, time::Duration};

use crate::support::{
    bounded,
    by_hand::{self, claim, lead, take_lead, wait_asleep},
    wait_until,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    turn::Waited,
    ConcurrentContext, Context, EventHandler, Interest, Left, Next, Pool, SetKind, Wake,
};

const TICK: Duration = Duration::from_micros(500);

/// The test plays the leader; one joined thread stands by.
#[derive(Clone)]
struct Scene {
    world: Simulation,
    pool: Pool,
}

impl Scene {
    fn new() -> Self {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .wake(Wake::Adaptive)
            .parallelism(2)
            .tick(TICK)
            .handle_set(SetKind::Simulated(world.clone()))
            .build()
            .unwrap();
        Self { world, pool }
    }

    /// Somebody leads already: this thread stands by.
    fn join_standby(&self) {
        self.join_and_sleep(1);
        self.standby_ticks();
    }

    /// A thread joins, and then so many sleep as followers.
    fn join_and_sleep(&self, followers: usize) {
        let pool = self.pool.clone();
        thread::spawn(move || pool.join());
        wait_asleep(&self.pool, followers);
    }

    fn serve(&self, handler: impl EventHandler<SimStream>) -> SimPeer {
        let (stream, peer) = self.world.stream();
        self.pool.register(stream, Interest::READ, handler).unwrap();
        peer
    }

    /// A connection whose handler never reads: once it has an event, it waits in the line after
    /// every call.
    fn restless(&self) -> SimPeer {
        self.serve(|_: &mut Context<'_, _>| Ok(Next::Continue))
    }

    /// One look of the standby, to its end.
    fn look(&self) {
        let ticks = self.pool.snapshot().ticks;
        self.world.clock().advance(TICK);
        wait_until(|| self.pool.snapshot().ticks == ticks + 1);
        self.standby_ticks();
    }

    fn standby_ticks(&self) {
        wait_until(|| format!("{:?}", self.world.clock()).contains("has_deadline: true"));
    }

    fn wakes(&self) -> u64 {
        self.pool.snapshot().wakes
    }

    /// Ends the pool, with whoever never runs dry.
    fn end(&self) {
        let _ = self.pool.shutdown(Duration::ZERO);
    }
}

/// W1: one handle is in the line all the time, so the set is not asked for more; and there an event
/// waits for the idle core. After a look of the standby the leader looks for itself, and somebody
/// is woken.
#[test]
fn an_event_in_the_set_is_a_backlog() {
    bounded(|| {
        let scene = Scene::new();
        let (restless, other) = (scene.restless(), scene.serve(by_hand::echo));
        let leader = lead(&scene.pool);
        scene.join_standby();
        restless.send(b"x");
        let follower = claim(leader).promote().run();
        other.send(b"x");
        let follower = claim(take_lead(follower)).promote().run();
        assert_eq!(scene.wakes(), 0, "it has not lasted");
        scene.look();
        let processing = claim(take_lead(follower)).promote();
        assert_eq!(scene.wakes(), 1);
        assert_eq!(other.wait_for(1), b"x");
        drop(processing);
        scene.end();
    });
}

/// The standby has looked while the leader slept: nothing waited then. What comes afterwards has to
/// wait for a look of its own before somebody is woken.
#[test]
fn nothing_waits_while_the_leader_sleeps() {
    bounded(|| {
        let scene = Scene::new();
        let (restless, other) = (scene.restless(), scene.serve(by_hand::echo));
        let leader = lead(&scene.pool);
        scene.join_standby();
        let waker = thread::spawn({
            let scene = scene.clone();
            move || {
                wait_until(|| scene.world.clock().asleep() == 2);
                scene.look();
                restless.send(b"x");
                restless
            }
        });
        let Ok(Waited::Claimed(claimed)) = leader.wait(None) else {
            panic!("an event comes");
        };
        let follower = claimed.promote().run();
        other.send(b"x");
        let follower = claim(take_lead(follower)).promote().run();
        assert_eq!(scene.wakes(), 0);
        scene.look();
        let processing = claim(take_lead(follower)).promote();
        assert_eq!(scene.wakes(), 1);
        drop(processing);
        drop(waker.join().unwrap());
        scene.end();
    });
}

/// A look of the leader that finds one event and no other settles it: nothing waited until then.
/// What comes next has to wait for a look of the standby's own.
#[test]
fn nothing_waits_if_the_leader_finds_nothing() {
    bounded(|| {
        let scene = Scene::new();
        let (peer, other) = (scene.serve(by_hand::echo), scene.serve(by_hand::echo));
        let leader = lead(&scene.pool);
        scene.join_standby();
        peer.send(b"x");
        scene.look();
        let follower = claim(leader).promote().run();
        peer.send(b"x");
        other.send(b"x");
        let processing = claim(take_lead(follower)).promote();
        assert_eq!(scene.wakes(), 0);
        drop(processing);
        scene.end();
    });
}

/// Two in the line are a backlog already: the set need not be asked whether there is one.
#[test]
fn a_known_backlog_costs_no_look() {
    bounded(|| {
        let scene = Scene::new();
        let peers = [(); 2].map(|()| scene.restless());
        peers.iter().for_each(|peer| peer.send(b"x"));
        let leader = lead(&scene.pool);
        scene.join_standby();
        let follower = claim(leader).promote().run();
        scene.look();
        scene.world.fail_next_wait(ErrorKind::OutOfMemory);
        let processing = claim(take_lead(follower)).promote();
        assert_eq!(scene.wakes(), 1);
        drop(processing);
        scene.end();
    });
}

/// While both cores have their threads a backlog wakes nobody, and the standby's looks do not
/// count. They count from when a core is idle: one more look, and somebody is woken.
#[test]
fn looks_count_from_when_a_core_is_idle() {
    bounded(|| {
        let scene = Scene::new();
        let peers = [(); 3].map(|()| scene.restless());
        peers.iter().for_each(|peer| peer.send(b"x"));
        let leader = lead(&scene.pool);
        scene.join_standby();
        let first = claim(leader).promote();
        let second = claim(lead(&scene.pool));
        scene.look();
        let second = second.promote();
        let follower = first.run();
        drop(second.run());
        let follower = claim(take_lead(follower)).promote().run();
        assert_eq!(scene.wakes(), 0, "it was not idle for a look");
        scene.look();
        let processing = claim(take_lead(follower)).promote();
        assert_eq!(scene.wakes(), 1);
        drop(processing);
        scene.end();
    });
}

/// I3: a thread leaves the pool with an event in its hands, after it has given the lead away.
/// Nobody was woken for that; now the standby is, without a tick, and handles the event.
#[test]
fn who_leaves_while_processing_has_a_successor() {
    bounded(|| {
        let scene = Scene::new();
        let peer = scene.serve(by_hand::echo);
        let leader = lead(&scene.pool);
        scene.join_standby();
        peer.send(b"x");
        let processing = claim(leader).promote();
        assert_eq!(scene.wakes(), 0);
        drop(processing);
        assert_eq!(peer.wait_for(1), b"x");
        assert_eq!((scene.wakes(), scene.pool.snapshot().ticks), (1, 0));
        scene.end();
    });
}

/// A handler that is short, as far as anyone knows, will be back: whoever comes meanwhile leaves
/// its lead alone, also if a core is idle, as long as nothing waits for that core.
#[test]
fn lead_of_a_short_handler_is_left_to_it() {
    bounded(|| {
        let scene = Scene::new();
        let peer = scene.serve(by_hand::echo);
        let leader = lead(&scene.pool);
        scene.join_standby();
        peer.send(b"x");
        let processing = claim(leader).promote();
        scene.join_and_sleep(2);
        let follower = processing.run();
        assert_eq!(scene.pool.snapshot().leads_taken_back, 1);
        assert_eq!(scene.wakes(), 0);
        drop(follower);
        scene.end();
    });
}

/// Something waits, and both cores have their threads: a third one would only be in the way.
#[test]
fn lead_is_left_open_while_every_core_has_its_thread() {
    bounded(|| {
        let scene = Scene::new();
        let peers = [(); 3].map(|()| scene.restless());
        peers.iter().for_each(|peer| peer.send(b"x"));
        let leader = lead(&scene.pool);
        scene.join_standby();
        let first = claim(leader).promote();
        let second = claim(lead(&scene.pool)).promote();
        scene.join_and_sleep(2);
        // The first that is done goes on with what waits.
        let follower = first.run();
        assert_eq!(scene.pool.snapshot().leads_taken_back, 1);
        assert_eq!(scene.wakes(), 0);
        drop((follower, second));
        scene.end();
    });
}

/// I3 for the standby: its time in the pool is over while the lead lies open. It has the one who is
/// parked woken, which waits for no tick.
#[test]
fn standby_that_leaves_has_a_successor() {
    bounded(|| {
        let scene = Scene::new();
        let (peer, other) = (scene.serve(by_hand::echo), scene.serve(by_hand::echo));
        let leader = lead(&scene.pool);
        let hasty = thread::spawn({
            let pool = scene.pool.clone();
            move || pool.join_timeout(TICK)
        });
        wait_asleep(&scene.pool, 1);
        scene.join_and_sleep(2);
        peer.send(b"x");
        let processing = claim(leader).promote();
        other.send(b"x");
        assert_eq!(scene.wakes(), 0);
        scene.world.clock().advance(TICK);
        assert_eq!(hasty.join().unwrap().unwrap(), Left::TimedOut);
        assert_eq!(other.wait_for(1), b"x");
        assert_eq!((scene.wakes(), scene.pool.snapshot().ticks), (1, 0));
        drop(processing);
        scene.end();
    });
}

/// Not only handlers may say that the rest takes long: so may posted work, timers, and whoever uses
/// a concurrent handle. Each of them has the standby woken, without a tick.
#[test]
fn whoever_is_called_may_ask_for_help() {
    const SOON: Duration = Duration::from_millis(1);
    let all: [fn(&Scene); 4] = [
        |scene| scene.pool.post(|cx| cx.wake_follower()).unwrap(),
        |scene| drop(scene.pool.after(SOON, |cx| cx.wake_follower()).unwrap()),
        |scene| drop(scene.pool.every(SOON, |cx| cx.wake_follower()).unwrap()),
        |scene| {
            let (stream, _peer) = scene.world.stream();
            let handler = |cx: &mut ConcurrentContext<'_, SimStream>| {
                cx.wake_follower();
                Ok(Next::Continue)
            };
            let handle = scene
                .pool
                .register_concurrent(stream, Interest::NONE, handler);
            handle.unwrap().notify().unwrap();
        },
    ];
    bounded(move || {
        for ask in all {
            let scene = Scene::new();
            ask(&scene);
            scene.world.clock().advance(SOON);
            let leader = lead(&scene.pool);
            scene.join_standby();
            let processing = claim(leader).promote();
            assert_eq!(scene.wakes(), 0);
            let follower = processing.run();
            assert_eq!((scene.wakes(), scene.pool.snapshot().ticks), (1, 0));
            drop(follower);
            scene.end();
        }
    });
}

/// A handler that is away takes no core, and one that is back does: also if it panicked there.
#[test]
fn who_is_back_takes_a_core() {
    bounded(|| {
        let scene = Scene::new();
        let (tell, told) = mpsc::channel();
        let pool = scene.pool.downgrade();
        let peer = scene.serve(move |cx: &mut Context<'_, _>| {
            let pool = pool.upgrade().expect("it calls this");
            let running = |count: usize| format!("{pool:?}").contains(&format!("running: {count}"));
            let away = cx.blocking(|| running(0));
            tell.send([away, running(1)]).unwrap();
            let away = panic::AssertUnwindSafe(|| cx.blocking::<()>(|| panic!("away")));
            let panicked = panic::catch_unwind(away).is_err();
            tell.send([panicked, running(1)]).unwrap();
            by_hand::echo(cx)
        });
        peer.send(b"x");
        assert_eq!(by_hand::serve_all(&scene.pool), 1);
        assert_eq!(Vec::from_iter(told.try_iter()), [[true; 2]; 2]);
    });
}
