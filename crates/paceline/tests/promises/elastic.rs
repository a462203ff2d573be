//! Elastic threads: a pool that grows while all its threads are in handlers, and shrinks while they
//! have nothing to do. Real threads on the simulated set, whose clock stands still until the test
//! moves it.

use std::{
    fs,
    io::{self, Read, Write},
    ops::RangeInclusive,
    sync::{mpsc, Arc, Barrier},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::support::{
    bounded, by_hand,
    gate::Gate,
    stage::{Stage, Stuck, Telling, TICK},
    tcp_pair, wait_until, LONG,
};
use paceline::{
    observe::{Observer, Role},
    simulated::{SimPeer, SimStream, Simulation},
    Builder, Context, Interest, Left, Next, Order, Pool, SetKind, ShutdownReport, Wake,
};

const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A pool with as many threads as it must have, all asleep.
fn elastic(threads: RangeInclusive<usize>) -> Stage {
    elastic_with(threads, |pool| pool)
}

fn elastic_with(threads: RangeInclusive<usize>, set: impl FnOnce(Builder) -> Builder) -> Stage {
    let least = *threads.start();
    Stage::new(least, |pool| {
        set(pool.threads(threads).keep_alive(KEEP_ALIVE))
    })
}

/// So many threads are in handlers, and have told; the pool has grown to `threads`, and rests.
fn block(stage: &Stage, count: usize, threads: usize) -> Vec<Stuck> {
    let stuck: Vec<_> = (0..count).map(|_| stage.stuck(Telling::Blocking)).collect();
    stuck.iter().for_each(Stuck::block);
    stage.rest_of(threads, count);
    stuck
}

/// A connection whose handler waits at the gate before it answers, and tells so.
fn at_gate(stage: &Stage, gate: &Arc<Gate>) -> SimPeer {
    let gate = Arc::clone(gate);
    stage.serve(move |cx: &mut Context<'_, SimStream>| {
        cx.blocking(|| gate.pass());
        by_hand::echo(cx)
    })
}

fn shut_down(stage: &Stage, within: Duration) -> JoinHandle<ShutdownReport> {
    let pool = stage.pool.clone();
    thread::spawn(move || pool.shutdown(within))
}

/// How many threads of this process have names that begin like this.
fn tasks_named(prefix: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name =
        |task: io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks
        .filter_map(name)
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// The rule: all block, a request waits, and nobody returns. Whoever leaves nobody behind calls one
/// more, so the request is answered. And when there are as many as may be, nobody else is called.
#[test]
fn grows_up_to_the_bound_and_not_beyond() {
    bounded(|| {
        let (stage, stuck) = grown_to_four(Telling::Blocking, Wake::Adaptive);
        let (last, echo) = (stage.stuck(Telling::Blocking), stage.echo());
        last.block();
        echo.send(b"x");
        let seen = stage.pool.snapshot();
        assert_eq!((seen.threads, seen.grown, seen.spawns_failed), (4, 2, 0));
        assert!(echo.received().is_empty());
        last.release();
        assert_eq!(echo.wait_for(1), b"x");
        stuck.iter().for_each(Stuck::release);
        let seen = stage.pool.snapshot();
        assert_eq!((seen.threads, seen.grown, seen.retired), (4, 2, 0));
    });
}

/// The same for the textbook's wake; and for handlers that block by surprise, of which only the
/// first one is found by a look of the standby: a thread that is called takes the open lead as soon
/// as it is there.
#[test]
fn grows_whatever_the_wake() {
    bounded(|| {
        for (telling, wake, looks) in [
            (Telling::Blocking, Wake::Eager, 0),
            (Telling::Nothing, Wake::Eager, 0),
            (Telling::Nothing, Wake::Adaptive, 1),
        ] {
            let (stage, stuck) = grown_to_four(telling, wake);
            assert_eq!(stage.pool.snapshot().ticks, looks);
            stuck.iter().for_each(Stuck::release);
        }
    });
}

/// Two threads of at most four, and three handlers that block, one after the other: the last thread
/// leads, and answers.
fn grown_to_four(telling: Telling, wake: Wake) -> (Stage, Vec<Stuck>) {
    let stage = elastic_with(2..=4, |pool| pool.wake(wake));
    let stuck: Vec<_> = (0..3).map(|_| stage.stuck(telling)).collect();
    let echo = stage.echo();
    for (place, handler) in stuck.iter().enumerate() {
        handler.block();
        if place == 0 && telling == Telling::Nothing && wake == Wake::Adaptive {
            stage.look();
        }
    }
    stage.rest_of(4, 3);
    echo.send(b"x");
    assert_eq!(echo.wait_for(1), b"x");
    stage.rest_of(4, 3);
    (stage, stuck)
}

/// TAO (2014): when no leader was left, threads were spawned without a throttle, hundreds of them.
/// Now, however many handlers block at once: while somebody was called and is not here yet nobody
/// else is called, and the bound holds.
#[test]
fn no_leader_left_does_not_spawn_storm() {
    bounded(|| {
        const REQUESTS: usize = 64;
        let (door, gate) = (Gate::shut(), Gate::shut());
        let stage = with_a_door(2..=8, "storm", &door);
        let peers: Vec<_> = (0..REQUESTS).map(|_| at_gate(&stage, &gate)).collect();
        peers.iter().for_each(|peer| peer.send(b"x"));

        // Both are inside, and the third was called and stands at the door.
        gate.wait_for(2);
        door.wait_for(1);
        assert_eq!(stage.pool.snapshot().threads, 3);
        // Whoever returns takes the next request, leaves nobody behind, and calls nobody.
        for entered in 3..10 {
            gate.let_through(1);
            gate.wait_for_all(entered);
            assert_eq!(stage.pool.snapshot().threads, 3);
        }

        // They come one by one, until there are as many as may be.
        for threads in 3..=8 {
            door.wait_for(1);
            assert_eq!(stage.pool.snapshot().threads, threads);
            door.let_through(1);
            gate.wait_for(threads);
        }
        assert_eq!((door.inside(), door.most()), (0, 1));
        let seen = stage.pool.snapshot();
        assert_eq!((seen.threads, seen.grown), (8, 6));

        gate.let_through(REQUESTS);
        for peer in &peers {
            assert_eq!(peer.wait_for(1), b"x");
        }
        assert_eq!((stage.pool.snapshot().threads, gate.most()), (8, 8));
    });
}

/// Threads that are called stand at this door before they are of use.
fn with_a_door(threads: RangeInclusive<usize>, name: &str, door: &Arc<Gate>) -> Stage {
    let (least, door) = (*threads.start(), Arc::clone(door));
    elastic_with(threads, |pool| {
        pool.name(name).thread_affinity(move |index| {
            if index >= least {
                door.pass();
            }
            Vec::new()
        })
    })
}

/// When there is nothing to do, threads beyond the bound go, and no more of them. Then nobody has a
/// timer, and nobody stirs any more.
#[test]
fn retires_when_idle_and_then_has_no_timer() {
    bounded(|| {
        for order in [Order::Newest, Order::Oldest, Order::System] {
            let stage = elastic_with(4..=7, |pool| pool.order(order));
            block(&stage, 6, 7).iter().for_each(Stuck::release);
            stage.rest_of(7, 0);
            stage.world.clock().advance(KEEP_ALIVE - TICK);
            stage.rest_of(7, 0);
            assert_eq!(stage.pool.snapshot().retired, 0);

            stage.world.clock().advance(TICK);
            wait_until(|| stage.pool.snapshot().threads == 4);
            stage.rest_of(4, 0);
            let seen = stage.pool.snapshot();
            assert_eq!((seen.grown, seen.retired), (3, 3), "{order:?}");

            until_nobody_watches_the_clock(&stage, 4);
            let before = stage.pool.snapshot();
            stage.world.clock().advance(KEEP_ALIVE * 1000);
            stage.rest_of(4, 0);
            assert_eq!(stage.pool.snapshot(), before);

            // What has shrunk can grow again.
            block(&stage, 4, 5).iter().for_each(Stuck::release);
            assert_eq!(stage.pool.snapshot().grown, 4);
        }
    });
}

/// A thread that was let go stands at this door before it leaves.
struct AtTheDoor(Arc<Gate>);

impl Observer for AtTheDoor {
    fn retired(&self, _: usize) {
        self.0.pass();
    }
}

/// A thread is let go, and before it has left all others block: it has its place still, so nobody
/// is called into it. It comes back instead.
#[test]
fn who_is_leaving_counts_and_comes_back() {
    bounded(|| {
        let door = Gate::shut();
        let stage = elastic_with(2..=3, |pool| pool.observer(AtTheDoor(Arc::clone(&door))));
        block(&stage, 2, 3).iter().for_each(Stuck::release);
        stage.rest_of(3, 0);
        stage.world.clock().advance(KEEP_ALIVE);
        door.wait_for(1);

        let echo = stage.echo();
        let stuck = [(); 2].map(|()| stage.stuck(Telling::Blocking));
        stuck.iter().for_each(Stuck::block);
        echo.send(b"x");
        let seen = stage.pool.snapshot();
        assert_eq!((seen.threads, seen.grown, seen.retired), (3, 1, 1));
        assert!(echo.received().is_empty());

        door.let_through(1);
        assert_eq!(echo.wait_for(1), b"x");
        stuck.iter().for_each(Stuck::release);
        let seen = stage.pool.snapshot();
        assert_eq!((seen.threads, seen.grown, seen.retired), (3, 2, 1));
    });
}

/// Lets the standby go to its deep sleep.
fn until_nobody_watches_the_clock(stage: &Stage, threads: usize) {
    for _ in 0..20 {
        if !stage.somebody_watches_the_clock() {
            return;
        }
        stage.world.clock().advance(TICK);
        stage.rest_of(threads, 0);
    }
    panic!("somebody has a timer: {:?}", stage.world.clock());
}

/// The textbook's wake has no standby. There, too, one thread stays in reserve behind the leader,
/// though the bound is lower.
#[test]
fn one_stays_in_reserve() {
    bounded(|| {
        let stage = elastic_with(1..=5, |pool| pool.wake(Wake::Eager));
        block(&stage, 4, 5).iter().for_each(Stuck::release);
        stage.rest_of(5, 0);
        stage.world.clock().advance(KEEP_ALIVE);
        wait_until(|| stage.pool.snapshot().threads == 2);
        stage.rest_of(2, 0);
        // Who parked when there were still more of them has a timer once more.
        stage.world.clock().advance(KEEP_ALIVE);
        stage.rest_of(2, 0);
        assert!(!stage.somebody_watches_the_clock());
        assert_eq!(stage.pool.snapshot().retired, 3);
    });
}

/// The same over TCP, by the system's clock: eight handlers that all wait for one another need
/// eight threads. They come, and when they have nothing to do they go.
#[test]
fn grows_and_shrinks_over_tcp() {
    bounded(|| {
        const CLIENTS: usize = 8;
        let pool = Pool::builder()
            .threads(1..=CLIENTS)
            .keep_alive(Duration::from_millis(20))
            .build()
            .unwrap();
        let all = Arc::new(Barrier::new(CLIENTS));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let ((near, mut far), all) = (tcp_pair(), Arc::clone(&all));
                pool.register(near, Interest::READ, move |cx: &mut Context<'_, _>| {
                    let count = cx.read(&mut [0; 8])?;
                    all.wait();
                    cx.write_all(&[b'x'; 8][..count]).map(|()| Next::Continue)
                })
                .unwrap();
                far.write_all(b"x").unwrap();
                far
            })
            .collect();
        for mut client in &clients {
            client.read_exact(&mut [0]).unwrap();
        }
        assert_eq!(pool.snapshot().grown, 7);
        wait_until(|| pool.snapshot().threads == 2);
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// The leader and the standby do not retire, however long they have been that: who goes is who was
/// parked.
#[test]
fn leader_and_standby_do_not_retire() {
    bounded(|| {
        let stage = elastic(2..=3);
        let [first, second] = [(); 2].map(|()| stage.stuck(Telling::Blocking));
        first.block();
        stage.rest_of(2, 1);
        second.block();
        stage.rest_of(3, 2);
        let processing = stage.log_of(Role::Processing);
        let (standby, parked) = (processing[0], processing[1]);

        // The first to return stands by, for the whole time; the second one is parked, for less.
        first.release();
        stage.rest_of(3, 1);
        stage.world.clock().advance(KEEP_ALIVE / 2);
        stage.rest_of(3, 1);
        second.release();
        stage.rest_of(3, 0);
        stage.world.clock().advance(KEEP_ALIVE / 2);
        stage.rest_of(3, 0);
        assert_eq!(stage.witness.count(Role::Gone), 0);

        stage.world.clock().advance(KEEP_ALIVE / 2);
        wait_until(|| stage.pool.snapshot().threads == 2);
        stage.rest_of(2, 0);
        assert_eq!(stage.witness.role(parked), Some(Role::Gone));
        assert_eq!(stage.witness.role(standby), Some(Role::Follower));
    });
}

/// Guests count neither way: they do not retire, and the pool is not full because of them.
#[test]
fn guests_count_neither_way() {
    bounded(|| {
        let stage = elastic(2..=3);
        let guest = |time: Duration| {
            let pool = stage.pool.clone();
            thread::spawn(move || pool.join_timeout(time))
        };
        let guests = [(); 3].map(|()| guest(Duration::MAX));
        stage.rest_of(5, 0);
        stage.world.clock().advance(KEEP_ALIVE * 2);
        stage.rest_of(5, 0);

        let stuck = block(&stage, 5, 6);
        let seen = stage.pool.snapshot();
        assert_eq!((seen.threads, seen.grown, seen.retired), (6, 1, 0));
        stuck.iter().for_each(Stuck::release);
        stage.rest_of(6, 0);
        // Nor does one retire whose time is over, though the pool could spare somebody.
        let hasty = guest(KEEP_ALIVE / 2);
        stage.rest_of(7, 0);
        stage.world.clock().advance(KEEP_ALIVE / 2);
        assert_eq!(hasty.join().unwrap().unwrap(), Left::TimedOut);
        assert_eq!(stage.pool.snapshot().retired, 0);
        let report = stage.pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        for guest in guests {
            assert_eq!(guest.join().unwrap().unwrap(), Left::Closing);
        }
    });
}

/// A guest stood by behind a thread that is stuck, and its time is over. It was the last one who
/// could lead, so it calls one more before it goes.
#[test]
fn a_guest_that_goes_leaves_somebody_behind() {
    bounded(|| {
        let stage = elastic(1..=3);
        let (stuck, echo) = (stage.stuck(Telling::Nothing), stage.echo());
        let guest = {
            let pool = stage.pool.clone();
            thread::spawn(move || pool.join_timeout(KEEP_ALIVE))
        };
        stage.rest_of(2, 0);
        stuck.block();
        echo.send(b"x");
        assert_eq!(stage.pool.snapshot().grown, 0);
        stage.world.clock().advance(KEEP_ALIVE);
        assert_eq!(guest.join().unwrap().unwrap(), Left::TimedOut);
        assert_eq!(echo.wait_for(1), b"x");
        stuck.release();
    });
}

/// A pool that need not have threads of its own has none until somebody joins.
#[test]
fn begins_without_threads() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0..=2)
            .handle_set(SetKind::Simulated(world.clone()))
            .build()
            .unwrap();
        assert_eq!(pool.snapshot().threads, 0);
        let (stream, peer) = world.stream();
        pool.register(stream, Interest::READ, by_hand::echo)
            .unwrap();
        peer.send(b"x");
        drop(by_hand::claim(by_hand::lead(&pool)).promote());
        assert_eq!(peer.wait_for(1), b"x");
        let seen = pool.snapshot();
        assert!(
            seen.grown >= 1 && seen.threads as u64 == seen.grown,
            "{seen:?}"
        );
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// A shutdown comes while a thread was called and is not here yet: it waits for that one, which
/// finds the end, and joins it.
#[test]
fn shutdown_waits_for_who_was_called() {
    bounded(|| {
        let door = Gate::shut();
        let (stage, stuck) = called_and_not_here("waited", &door);
        let ends = shut_down(&stage, LONG);
        wait_until(|| stage.world.clock().asleep() == 1);
        stuck.iter().for_each(Stuck::release);
        // The two have gone, and the shutdown sleeps on.
        stage.witness.wait_for(Role::Gone, 2);
        wait_until(|| stage.pool.snapshot().threads == 1);
        wait_until(|| stage.world.clock().asleep() == 1);
        door.let_through(1);
        let report = ends.join().unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(stage.pool.snapshot().threads, 0);
        wait_until(|| tasks_named("waited-") == 0);
    });
}

/// The same, and it does not come in time: it is named, and goes when it comes.
#[test]
fn shutdown_names_who_was_called() {
    bounded(|| {
        let door = Gate::shut();
        let (stage, stuck) = called_and_not_here("named", &door);
        let ends = shut_down(&stage, KEEP_ALIVE);
        wait_until(|| stage.world.clock().asleep() == 1);
        stuck.iter().for_each(Stuck::release);
        wait_until(|| stage.pool.snapshot().threads == 1 && tasks_named("named-") == 1);
        wait_until(|| stage.world.clock().asleep() == 1);
        stage.world.clock().advance(KEEP_ALIVE);
        let report = ends.join().unwrap();
        assert_eq!(report.stuck_threads, ["named-2 (thread 2)"]);
        door.let_through(1);
        wait_until(|| stage.pool.snapshot().threads == 0 && tasks_named("named-") == 0);
    });
}

/// Both threads are in handlers, and the third stands at the door.
fn called_and_not_here(name: &str, door: &Arc<Gate>) -> (Stage, [Stuck; 2]) {
    let stage = with_a_door(2..=4, name, door);
    let stuck = [(); 2].map(|()| stage.stuck(Telling::Blocking));
    stuck.iter().for_each(Stuck::block);
    door.wait_for(1);
    (stage, stuck)
}

/// Once a shutdown has begun nobody is called any more, also if whoever goes to handle what is left
/// leaves nobody behind.
#[test]
fn nobody_is_called_while_the_pool_ends() {
    bounded(|| {
        let (stage, gate) = (elastic(2..=64), Gate::shut());
        let peers = Arc::new([at_gate(&stage, &gate), at_gate(&stage, &gate)]);
        let (weak, of_handler) = (stage.pool.downgrade(), Arc::clone(&peers));
        let (tell, told) = mpsc::channel();
        let ender = stage.serve(move |cx: &mut Context<'_, SimStream>| {
            cx.read(&mut [0; 8])?;
            // Nobody leads until the shutdown calls somebody.
            of_handler.iter().for_each(|peer| peer.send(b"x"));
            let report = weak.upgrade().unwrap().shutdown(LONG);
            tell.send(report).unwrap();
            Ok(Next::Close)
        });
        ender.send(b"x");
        gate.wait_for(1);
        assert_eq!(stage.pool.snapshot().threads, 2);
        gate.let_through(2);
        let report = told.recv_timeout(LONG).unwrap();
        assert!(report.is_clean(), "{report}");
        for peer in peers.iter() {
            assert_eq!(peer.wait_for(1), b"x");
        }
        let seen = stage.pool.snapshot();
        assert_eq!((seen.grown, seen.spawns_failed), (0, 0));
    });
}

/// No thread is to be had, here because no stack can be that large. The pool goes on with those
/// that it has; it is told and counted; and it is tried again, but not at once.
#[test]
fn a_failed_spawn_does_not_stop_the_pool() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let stage = Stage::joined(&[0], move |pool| {
            pool.threads(0..=4)
                .stack_size(usize::MAX / 4)
                .on_error(move |error| tell.send(error.to_string()).unwrap())
        });
        let echo = stage.echo();
        for _ in 0..3 {
            stage.ask(&echo, 0);
        }
        assert_eq!(stage.pool.snapshot().spawns_failed, 1);
        stage.world.clock().advance(Duration::from_millis(100));
        for _ in 0..3 {
            stage.ask(&echo, 0);
        }
        let seen = stage.pool.snapshot();
        assert_eq!((seen.threads, seen.grown, seen.spawns_failed), (1, 0, 2));
        for text in told.try_iter() {
            assert!(text.starts_with("spawn thread paceline-"), "{text}");
        }
        let report = stage.pool.shutdown(LONG);
        assert_eq!(report.errors.len(), 2, "{report}");
    });
}

/// What can't be is refused when the pool is built, all of it at once.
#[test]
fn settings_that_can_not_be() {
    let refused = |set: fn(Builder) -> Builder| {
        let error = set(Pool::builder()).build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    let empty = refused(|pool| pool.threads(RangeInclusive::new(4, 2)));
    assert_eq!(empty, "build a pool: threads(4..=2): the range is empty");
    let many = refused(|pool| pool.threads(4..=5000).tick(Duration::ZERO));
    assert!(
        many.contains("threads(4..=5000): at most 4096 are possible; tick"),
        "{many}"
    );
    let fixed = refused(|pool| pool.threads(8).keep_alive(KEEP_ALIVE));
    assert!(
        fixed.contains("keep_alive: threads(8) is no range"),
        "{fixed}"
    );
}
