//! F1: between two dispatches of one handle, every handle that was in the line is dispatched once;
//! and after at most 64 dispatches the handle set is looked at.

use std::{
    io::{self, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Mutex,
    },
};

use crate::support::{
    bounded,
    by_hand::{self, claim, lead, serve_all, take_lead, turn, Scene, AT_ONCE},
    tcp_pair, wait_until,
};
use paceline::{
    simulated::{SimPeer, Simulation},
    turn::Follower,
    Context, Interest, Next, Pool, SetKind,
};

/// After this many dispatches the set is looked at.
const DISPATCHES_BETWEEN_LOOKS: usize = 64;

/// Who was called, in order.
type Calls = Arc<Mutex<Vec<usize>>>;

/// ACE 1031, open for years: the scan for the next handle began at the lowest number every time, so
/// the busy handles with low numbers starved the others. Ten handles always have something to do
/// here; they are called in strict rotation, for five hundred turns.
#[test]
fn fairness_all_handles() {
    bounded(|| {
        const HANDLES: usize = 10;
        let scene = Scene::unobserved();
        let calls = Calls::default();
        let peers: Vec<_> = (0..HANDLES)
            .map(|id| restless(&scene, id, &calls))
            .collect();
        peers.iter().for_each(|peer| peer.send(b"x"));
        let follower = turns(scene.pool.enter().unwrap(), 500);
        assert_rotation(&calls, HANDLES, 500);
        drop(follower);
    });
}

/// The same on the kernel's own set, which tells the ready descriptors in an order of its own.
#[test]
fn fairness_all_handles_of_the_kernel() {
    bounded(|| {
        const HANDLES: usize = 10;
        let pool = Pool::builder().threads(0).build().unwrap();
        let calls = Calls::default();
        let clients: Vec<TcpStream> = (0..HANDLES)
            .map(|id| {
                let (near, mut far) = tcp_pair();
                far.write_all(b"x").unwrap();
                near.peek(&mut [0]).unwrap();
                let calls = Arc::clone(&calls);
                let handler = move |_: &mut Context<'_, _>| {
                    calls.lock().unwrap().push(id);
                    Ok(Next::Continue)
                };
                pool.register(near, Interest::READ, handler).unwrap();
                far
            })
            .collect();
        let follower = turns(pool.enter().unwrap(), 500);
        assert_rotation(&calls, HANDLES, 500);
        drop((follower, clients));
    });
}

/// A new event does not let a handle jump the line either: the first handle has the quickest of all
/// peers, which sends again whenever it was called.
#[test]
fn new_events_do_not_jump_the_line() {
    bounded(|| {
        const HANDLES: usize = 5;
        let scene = Scene::unobserved();
        let calls = Calls::default();
        let (stream, peer) = scene.world.stream();
        let quick = Arc::new(peer);
        let (of_handler, calls_of_quick) = (Arc::clone(&quick), Arc::clone(&calls));
        let handler = move |cx: &mut Context<'_, _>| {
            calls_of_quick.lock().unwrap().push(0);
            of_handler.send(b"again");
            let _ = cx.read(&mut [0; 64])?;
            of_handler.send(b"and again");
            Ok(Next::Continue)
        };
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        let others: Vec<_> = (1..HANDLES)
            .map(|id| restless(&scene, id, &calls))
            .collect();
        quick.send(b"x");
        others.iter().for_each(|peer| peer.send(b"x"));
        let follower = turns(scene.pool.enter().unwrap(), 300);
        assert_rotation(&calls, HANDLES, 300);
        drop(follower);
    });
}

/// ACE (read from its source): a handler that asks to be called again is called again at once,
/// without end, and nobody else is. Now it goes to the end of the line: everyone who is ready comes
/// first.
#[test]
fn retry_result_yields() {
    bounded(|| {
        let scene = Scene::unobserved();
        let calls = Calls::default();
        let retries = restless(&scene, 0, &calls);
        let others: Vec<_> = (1..4).map(|id| obedient(&scene, id, &calls)).collect();
        retries.send(b"x");
        let mut follower = turns(scene.pool.enter().unwrap(), 3);
        assert_eq!(*calls.lock().unwrap(), [0, 0, 0]);

        // The others become ready while it is being called again and again.
        others.iter().for_each(|peer| peer.send(b"x"));
        follower = turns(follower, DISPATCHES_BETWEEN_LOOKS + 4);
        let seen: Vec<_> = std::mem::take(&mut *calls.lock().unwrap());
        let first = seen.iter().position(|id| *id == 1).expect("served");
        assert_eq!(&seen[first..first + 4], [1, 2, 3, 0]);
        others
            .iter()
            .for_each(|peer| assert_eq!(peer.received(), b"x"));

        // Meanwhile nothing was lost for the one that retries, either.
        follower = turns(follower, 2);
        assert_eq!(*calls.lock().unwrap(), [0, 0]);
        drop(follower);
    });
}

/// A firehose holds a thread no longer than its share: one call reads so much and no more, then the
/// others have their turn. That it stopped does not count as "ran dry": without a new event it is
/// called until it has read all.
#[test]
fn read_budget_yields() {
    bounded(|| {
        const BUDGET: usize = 16;
        const SENT: usize = 6 * BUDGET + 4;
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .read_budget(BUDGET)
            .handle_set(SetKind::Simulated(world.clone()))
            .build()
            .unwrap();
        let (reads, peer) = firehose(&pool, &world, [0; 7]);
        let (stream, other) = world.stream();
        pool.register(stream, Interest::READ, by_hand::echo)
            .unwrap();
        peer.send(&[1; SENT]);
        other.send(b"x");

        let mut follower = turns(pool.enter().unwrap(), 2);
        assert_eq!(*reads.lock().unwrap(), [BUDGET]);
        assert_eq!(other.received(), b"x");
        follower = turns(follower, 6);
        let expected = [BUDGET, BUDGET, BUDGET, BUDGET, BUDGET, BUDGET, 4];
        assert_eq!(*reads.lock().unwrap(), expected);
        drop(follower);
        assert_eq!(serve_all(&pool), 0);
    });
}

/// The share is 64 KiB if nobody says otherwise, also for a handler with a larger buffer.
#[test]
fn read_budget_has_a_default() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (reads, peer) = firehose(&scene.pool, &scene.world, [0; 100_000]);
        peer.send(&[1; 150_000]);
        assert_eq!(serve_all(&scene.pool), 3);
        assert_eq!(*reads.lock().unwrap(), [65_536, 65_536, 18_928]);
    });
}

/// A connection that reads all it can per call, and notes how much that was.
fn firehose<const N: usize>(
    pool: &Pool,
    world: &Simulation,
    mut buffer: [u8; N],
) -> (Arc<Mutex<Vec<usize>>>, SimPeer) {
    let reads = Arc::new(Mutex::new(Vec::new()));
    let (stream, peer) = world.stream();
    let of_handler = Arc::clone(&reads);
    let handler = move |cx: &mut Context<'_, _>| {
        let mut all = 0;
        let told = loop {
            match cx.read(&mut buffer) {
                Ok(count) => all += count,
                Err(error) => break error,
            }
        };
        of_handler.lock().unwrap().push(all);
        Err::<Next, io::Error>(told)
    };
    pool.register(stream, Interest::READ, handler).unwrap();
    (reads, peer)
}

/// A handle that never runs dry keeps the line from ever being empty. The set is looked at all the
/// same, after 64 dispatches at the latest, so an event waits for no more than these and for who
/// was in the line.
#[test]
fn the_set_is_looked_at_after_64_dispatches() {
    bounded(|| {
        let scene = Scene::unobserved();
        let calls = Calls::default();
        let retries = restless(&scene, 0, &calls);
        let other = obedient(&scene, 1, &calls);
        retries.send(b"x");
        // At every distance from the last look.
        let mut follower = turns(scene.pool.enter().unwrap(), 1);
        for distance in 0..2 * DISPATCHES_BETWEEN_LOOKS {
            follower = turns(follower, distance);
            calls.lock().unwrap().clear();
            other.send(b"x");
            follower = turns(follower, DISPATCHES_BETWEEN_LOOKS + 2);
            let seen = calls.lock().unwrap().clone();
            assert!(seen.contains(&1), "after {distance}: {seen:?}");
            assert_eq!(other.received(), b"x");
        }
        drop(follower);
    });
}

/// And not much sooner: a look is a system call. What one look has brought is worked off without
/// another; here the next one would fail, and does not come before the line is empty.
#[test]
fn a_batch_costs_one_look() {
    bounded(|| {
        let scene = Scene::unobserved();
        let calls = Calls::default();
        let peers = [0, 1, 2, 3].map(|id| obedient(&scene, id, &calls));
        peers.iter().for_each(|peer| peer.send(b"x"));
        let follower = turns(scene.pool.enter().unwrap(), 1);
        scene.world.fail_next_wait(io::ErrorKind::OutOfMemory);
        let follower = turns(follower, 3);
        assert_eq!(*calls.lock().unwrap(), [0, 1, 2, 3]);
        let told = take_lead(follower).wait(AT_ONCE);
        assert_eq!(
            told.err().map(|error| error.kind()),
            Some(io::ErrorKind::OutOfMemory)
        );
    });
}

/// The same for a handle that stops before its source ran dry, though its set must be armed anew:
/// it is in the line already, and neither arming nor a look is due.
#[test]
fn who_stops_early_costs_no_look() {
    bounded(|| {
        let world = Simulation::one_shot(1);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .build()
            .unwrap();
        let (stream, peer) = world.stream();
        let handler = |cx: &mut Context<'_, _>| {
            cx.read(&mut [0; 4])?;
            Ok(Next::Continue)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(&[0; 8]);
        let follower = turns(pool.enter().unwrap(), 1);
        world.fail_next_wait(io::ErrorKind::OutOfMemory);
        let follower = turns(follower, 2);
        assert!(take_lead(follower).wait(AT_ONCE).is_err());
    });
}

/// What another thread puts back comes by another way than the set: that is looked at as often.
#[test]
fn returned_handles_are_looked_at_after_64_dispatches() {
    bounded(|| {
        let scene = Scene::unobserved();
        let calls = Calls::default();
        let retries = restless(&scene, 0, &calls);
        let other = obedient(&scene, 1, &calls);
        other.send(b"x");
        let processing = claim(lead(&scene.pool)).promote();
        retries.send(b"x");
        let follower = turns(scene.pool.enter().unwrap(), 3);
        // Its thread leaves without having processed it.
        drop(processing);
        assert_eq!(*calls.lock().unwrap(), [0, 0, 0]);
        let follower = turns(follower, DISPATCHES_BETWEEN_LOOKS + 2);
        assert!(calls.lock().unwrap().contains(&1));
        assert_eq!(other.received(), b"x");
        drop(follower);
    });
}

/// A listener with a long queue is a handle like any other: it accepts a batch, then others have
/// their turn.
#[test]
fn accepting_yields() {
    bounded(|| {
        const BATCH: u64 = 16;
        let pool = Pool::builder().threads(0).build().unwrap();
        let listener = pool.listen("127.0.0.1:0", |_, _| {
            Some(|cx: &mut Context<'_, TcpStream>| {
                cx.read(&mut [0; 8])?;
                Ok(Next::Continue)
            })
        });
        let address = listener.unwrap().local_addr();
        let clients: Vec<_> = (0..40)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let accepted = Arc::new(AtomicUsize::new(usize::MAX));
        let (near, mut far) = tcp_pair();
        far.write_all(b"x").unwrap();
        near.peek(&mut [0]).unwrap();
        let (weak, of_handler) = (pool.downgrade(), Arc::clone(&accepted));
        let handler = move |cx: &mut Context<'_, TcpStream>| {
            let seen = weak.upgrade().unwrap().snapshot().accepted;
            of_handler.store(seen as usize, Ordering::Relaxed);
            cx.read(&mut [0; 8])?;
            Ok(Next::Continue)
        };
        pool.register(near, Interest::READ, handler).unwrap();
        wait_until(|| {
            serve_all(&pool);
            pool.snapshot().accepted == 40
        });
        assert!(accepted.load(Ordering::Relaxed) as u64 <= BATCH);
        drop(clients);
    });
}

/// A connection whose handler never reads: it asks to be called again, always.
fn restless(scene: &Scene, id: usize, calls: &Calls) -> SimPeer {
    let calls = Arc::clone(calls);
    let handler = move |_: &mut Context<'_, _>| {
        calls.lock().unwrap().push(id);
        Ok(Next::Continue)
    };
    scene.serve(handler)
}

/// A connection whose handler sends back all that came, in one call.
fn obedient(scene: &Scene, id: usize, calls: &Calls) -> SimPeer {
    let calls = Arc::clone(calls);
    let handler = move |cx: &mut Context<'_, _>| {
        calls.lock().unwrap().push(id);
        by_hand::echo(cx)
    };
    scene.serve(handler)
}

/// So many turns of one thread, each of which must find an event.
fn turns(mut follower: Follower<'_>, count: usize) -> Follower<'_> {
    for _ in 0..count {
        follower = turn(follower);
    }
    follower
}

/// Each window of `handles` calls has each handle once.
fn assert_rotation(calls: &Calls, handles: usize, count: usize) {
    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), count);
    for window in calls.windows(handles) {
        let mut ids = window.to_vec();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..handles), "{window:?} in {calls:?}");
    }
}
