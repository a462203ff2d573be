//! L3: promote before process. At a handler's first instruction its thread has given the lead away
//! (L3a), and a follower that slept has been woken for it (L3b).

use std::{
    io::{Read, Write},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread,
};

use crate::support::{
    bounded,
    by_hand::{self, claim, lead, serve_all, wait_asleep, Scene},
    tcp_pair, wait_until, Witness, LONG,
};
use paceline::{
    observe::Role, simulated::Simulation, Context, Interest, Next, Pool, SetKind, Wake,
};

/// "Process, then promote" is the tutorial's first mistake: while a handler runs, the pool is
/// blind. The types forbid it to us; here the handlers themselves look, under load, at what their
/// thread is to the pool in the moment in which they begin.
#[test]
fn handlers_begin_as_processing() {
    bounded(|| {
        let witness = Witness::default();
        let pool = Pool::builder()
            .threads(4)
            .name("l3")
            .observer(witness.clone())
            .build()
            .unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let wrong = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (near, far) = tcp_pair();
                let (witness, calls, wrong) = (witness.clone(), calls.clone(), wrong.clone());
                let handler = move |cx: &mut Context<'_, _>| {
                    let role = witness.role(index_in_pool());
                    calls.fetch_add(1, Ordering::Relaxed);
                    wrong.fetch_add(
                        usize::from(role != Some(Role::Processing)),
                        Ordering::Relaxed,
                    );
                    let mut buffer = [0; 64];
                    let count = cx.read(&mut buffer)?;
                    cx.write_all(&buffer[..count])?;
                    Ok(Next::Continue)
                };
                pool.register(near, Interest::READ, handler).unwrap();
                far
            })
            .collect();
        for _ in 0..100 {
            for mut client in &clients {
                client.write_all(b"x").unwrap();
            }
            for mut client in &clients {
                client.read_exact(&mut [0]).unwrap();
            }
        }
        assert!(calls.load(Ordering::Relaxed) >= 800);
        assert_eq!(wrong.load(Ordering::Relaxed), 0);
    });
}

/// The index of the calling thread, one of the pool's own: its name ends in it.
fn index_in_pool() -> usize {
    let thread = thread::current();
    let (_, index) = thread.name().unwrap().rsplit_once('-').unwrap();
    index.parse().unwrap()
}

/// What a role says is one thing; what counts is the lead itself (L3a). In a handler, with no
/// follower at hand, a newcomer leads at once and finds the next event, which this handler waits
/// for.
#[test]
fn lead_is_free_at_the_first_instruction() {
    bounded(|| {
        let scene = Scene::unobserved();
        let other = scene.echo();
        let pool = scene.pool.downgrade();
        let handler = move |cx: &mut Context<'_, _>| {
            let pool = pool.upgrade().unwrap();
            other.send(b"from inside");
            let newcomer = thread::spawn(move || serve_all(&pool));
            assert_eq!(newcomer.join().unwrap(), 1);
            assert_eq!(other.received(), b"from inside");
            by_hand::echo(cx)
        };
        let peer = scene.serve(handler);
        peer.send(b"1");
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(peer.received(), b"1");
        assert_eq!(scene.pool.snapshot().panics, 0);
    });
}

/// In the eager form the sleeping follower was woken before the handler's first instruction (L3b):
/// the handler sees the wake counted, and sees the follower lead while it has not done anything
/// yet.
#[test]
fn follower_is_woken_before_the_first_instruction() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let pool = scene.pool.downgrade();
        let (tell, told) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, _>| {
            let wakes = pool.upgrade().unwrap().snapshot().wakes;
            wait_until(|| witness.role(1) == Some(Role::Leader));
            tell.send((wakes, witness.role(0))).unwrap();
            by_hand::echo(cx)
        };
        let peer = scene.serve(handler);
        let leader = lead(&scene.pool);
        let _follower = scene.joined();
        scene.wait_asleep(1);
        peer.send(b"1");
        drop(claim(leader).promote().run());
        assert_eq!(told.try_recv(), Ok((1, Some(Role::Processing))));
        assert_eq!(peer.received(), b"1");
    });
}

/// tokio 4730 with its many duplicates, brpc 452: a handler that blocks stops the poll, and so
/// everyone. Here it blocks until another connection was served, which takes another leader.
#[test]
fn blocking_handler_leaves_a_leader() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (tell, was_served) = mpsc::channel();
        let (near, mut blocked) = tcp_pair();
        let blocks = move |cx: &mut Context<'_, _>| {
            let count = cx.read(&mut [0; 64])?;
            let served = was_served.recv_timeout(LONG).is_ok();
            cx.write_all(if served { b"y" } else { b"n" })?;
            Ok(if count == 0 {
                Next::Close
            } else {
                Next::Continue
            })
        };
        pool.register(near, Interest::READ, blocks).unwrap();
        let (near, mut quick) = tcp_pair();
        let serves = move |cx: &mut Context<'_, _>| {
            cx.read(&mut [0; 64])?;
            tell.send(()).unwrap();
            Ok(Next::Continue)
        };
        pool.register(near, Interest::READ, serves).unwrap();

        for _ in 0..20 {
            blocked.write_all(b"x").unwrap();
            quick.write_all(b"x").unwrap();
            let mut answer = [0];
            blocked.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"y");
        }
    });
}

/// The same to the end: of four threads three are held up in their handlers, and the fourth leads
/// and serves, event after event. When it is over, all four are there again.
#[test]
fn one_free_thread_is_enough() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::with_threads(4, witness.clone());
        let quick = scene.echo();
        let held_up: Vec<_> = (0..3)
            .map(|_| {
                let (go_on, gate) = mpsc::channel();
                let handler = move |cx: &mut Context<'_, _>| {
                    gate.recv_timeout(LONG).expect("it is let go");
                    by_hand::echo(cx)
                };
                let peer = scene.serve(handler);
                peer.send(b"x");
                (peer, go_on)
            })
            .collect();
        witness.wait_for(Role::Processing, 3);
        for _ in 0..50 {
            quick.send(b"x");
            assert_eq!(quick.wait_for(1), b"x");
        }
        assert!(held_up.iter().all(|(peer, _)| peer.received().is_empty()));
        for (peer, go_on) in &held_up {
            go_on.send(()).unwrap();
            assert_eq!(peer.wait_for(1), b"x");
        }
        wait_asleep(&scene.pool, 3);
        witness.wait_for(Role::Leader, 1);
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// L3b, where nobody observes: the textbook's wake goes the same way. Whoever is elected leads, and
/// serves the next event before this one's handler has begun. The clock stands still: no tick has a
/// part in it.
#[test]
fn eager_without_observers() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .wake(Wake::Eager)
            .handle_set(SetKind::Simulated(world.clone()));
        let pool = pool.build().unwrap();
        let [first, second] = [(); 2].map(|()| {
            let (stream, peer) = world.stream();
            pool.register(stream, Interest::READ, by_hand::echo)
                .unwrap();
            peer
        });
        let leader = lead(&pool);
        let joined = pool.clone();
        let joined = thread::spawn(move || joined.join());
        wait_asleep(&pool, 1);
        first.send(b"x");
        let processing = claim(leader).promote();
        second.send(b"y");
        assert_eq!(second.wait_for(1), b"y");
        assert_eq!(first.received(), b"");
        drop(processing.run());
        assert_eq!(first.received(), b"x");
        let _ = pool.shutdown(LONG);
        joined.join().unwrap().unwrap();
    });
}
