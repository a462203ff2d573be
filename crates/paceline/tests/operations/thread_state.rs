//! A thread's own state belongs to the handlers: the pool leaves nothing in it and takes nothing
//! from it.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Mutex,
    },
    thread::{self, Thread},
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, lead, own_task, pause, serve_all, sleeps, wait_asleep, Scene},
    wait_until, Witness, LONG,
};
use paceline::{
    observe::Role,
    simulated::{SimPeer, SimStream},
    turn::Waited,
    Context, Next,
};

/// Jetty 7548: the interrupt flag that the selector had used to wake its thread was still set when
/// the next handler ran, whose first blocking call failed. Our flag of that kind would be the token
/// of `thread::park`. Here a wake for the leader comes when it has just taken another event: too
/// late to end its sleep, and its handler, which parks, must not be hit by it. It stays parked
/// until the test lets it go.
#[test]
fn thread_state_clean_between_events() {
    bounded(|| {
        for _ in 0..5 {
            let scene = Scene::unobserved();
            let late = scene.echo();
            let gate = Gate::default();
            let peer = parking(&scene, &gate);
            let stage = Arc::new(AtomicUsize::new(0));
            let leader = thread::spawn({
                let (pool, stage) = (scene.pool.clone(), Arc::clone(&stage));
                move || {
                    let leader = lead(&pool);
                    stage.store(own_task() as usize, Ordering::SeqCst);
                    let Waited::Claimed(claimed) = leader.wait(None).unwrap() else {
                        panic!("there is an event");
                    };
                    // No channel here: those park, too.
                    stage.store(0, Ordering::SeqCst);
                    wait_until(|| stage.load(Ordering::SeqCst) == 1);
                    drop(claimed.promote().run());
                }
            });
            wait_until(|| match stage.load(Ordering::SeqCst) {
                0 => false,
                task => sleeps(task as u32),
            });
            peer.send(b"1");
            wait_until(|| stage.load(Ordering::SeqCst) == 0);
            late.send(b"x");
            stage.store(1, Ordering::SeqCst);
            gate.open_after_a_while();
            leader.join().unwrap();
            assert_eq!(peer.received(), b"t", "a token was left in the thread");
        }
    });
}

/// The same in a busy pool, whose threads are elected and woken in every order.
#[test]
fn handlers_park_undisturbed_in_a_busy_pool() {
    bounded(|| {
        let scene = Scene::with_threads(3, Witness::default());
        let restless = scene.echo();
        let gate = Gate::default();
        let peer = parking(&scene, &gate);
        for _ in 0..20 {
            for _ in 0..20 {
                restless.send(b"x");
                assert_eq!(restless.wait_for(1), b"x");
            }
            peer.send(b"1");
            restless.send(b"x");
            assert_eq!(restless.wait_for(1), b"x");
            gate.open_after_a_while();
            assert_eq!(peer.wait_for(1), b"t", "a token was left in a thread");
        }
    });
}

/// Where a handler parks.
#[derive(Clone, Default)]
struct Gate {
    parked: Arc<Mutex<Option<Thread>>>,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    /// Waits for a thread at the gate, gives it time to go through without permission, and lets it
    /// go.
    fn open_after_a_while(&self) {
        wait_until(|| self.parked.lock().unwrap().is_some());
        pause(Duration::from_millis(10));
        self.is_open.store(true, Ordering::SeqCst);
        let parked = self.parked.lock().unwrap().take();
        parked.unwrap().unpark();
    }
}

/// A connection whose handler parks. It answers by whom it was let go: the test or a stranger.
fn parking(scene: &Scene, gate: &Gate) -> SimPeer {
    let gate = gate.clone();
    let handler = move |cx: &mut Context<'_, SimStream>| {
        // Nothing more has come: that would be no reason to park.
        let _ = cx.read(&mut [0; 8])?;
        *gate.parked.lock().unwrap() = Some(thread::current());
        thread::park_timeout(LONG);
        let was_open = gate.is_open.swap(false, Ordering::SeqCst);
        cx.write_all(if was_open { b"t" } else { b"s" })?;
        Ok(Next::Continue)
    };
    scene.serve(handler)
}

/// The other way round: a handler leaves a token in its thread, for the next one there. The pool,
/// whose thread sleeps in the meantime, both as leader and as follower, is not confused by it, and
/// does not use it up.
#[test]
fn tokens_of_handlers_stay_with_their_thread() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let mut calls = 0;
        let handler = move |cx: &mut Context<'_, SimStream>| {
            calls += 1;
            match calls % 2 {
                1 => thread::current().unpark(),
                _ => thread::park_timeout(10 * LONG),
            }
            by_hand::echo(cx)
        };
        let peer = scene.serve(handler);
        let joined = scene.joined();
        for _ in 0..50 {
            peer.send(b"1");
            assert_eq!(peer.wait_for(1), b"1");
            // It sleeps as leader, with the token; and it did not go through more turns for it.
            witness.wait_for(Role::Leader, 1);
            peer.send(b"2");
            assert_eq!(peer.wait_for(1), b"2");
            witness.wait_for(Role::Leader, 1);
        }
        assert_eq!(scene.pool.snapshot().promotions, 100);

        // Once more with a sleep as follower in between.
        peer.send(b"1");
        assert_eq!(peer.wait_for(1), b"1");
        witness.wait_for(Role::Leader, 1);
        let other = scene.joined();
        scene.wait_asleep(1);
        let elsewhere = scene.echo();
        elsewhere.send(b"x");
        assert_eq!(elsewhere.wait_for(1), b"x");
        wait_until(|| witness.role(1) == Some(Role::Leader));
        scene.wait_asleep(1);
        // Now the first one follows: an event makes the other one promote it, and the next one is
        // its own.
        elsewhere.send(b"x");
        assert_eq!(elsewhere.wait_for(1), b"x");
        wait_until(|| witness.role(0) == Some(Role::Leader));
        scene.wait_asleep(1);
        peer.send(b"2");
        assert_eq!(peer.wait_for(1), b"2");
        drop(scene);
        joined.join().unwrap().unwrap();
        other.join().unwrap().unwrap();
    });
}

/// Anyone may unpark any thread at any time. The pool's threads are unparked without end while they
/// follow, lead and process: nothing is lost, nobody leads beside another, and no promotion or wake
/// comes of it.
#[test]
fn unparks_from_outside_are_harmless() {
    bounded(|| {
        const EVENTS: u64 = 2000;
        let witness = Witness::default();
        let scene = Scene::with_threads(3, witness.clone());
        let threads: Arc<Mutex<Vec<Thread>>> = Arc::default();
        let peers: Vec<_> = (0..4)
            .map(|_| {
                let threads = Arc::clone(&threads);
                let handler = move |cx: &mut Context<'_, SimStream>| {
                    note(&mut threads.lock().unwrap());
                    by_hand::echo(cx)
                };
                scene.serve(handler)
            })
            .collect();
        let done = Arc::new(AtomicBool::new(false));
        let hammer = thread::spawn({
            let (threads, done) = (Arc::clone(&threads), Arc::clone(&done));
            move || {
                while !done.load(Ordering::Relaxed) {
                    threads.lock().unwrap().iter().for_each(Thread::unpark);
                    thread::yield_now();
                }
            }
        });
        for _ in 0..EVENTS / 4 {
            peers.iter().for_each(|peer| peer.send(b"x"));
            for peer in &peers {
                assert_eq!(peer.wait_for(1), b"x");
            }
        }
        done.store(true, Ordering::Relaxed);
        hammer.join().unwrap();
        let seen = scene.pool.snapshot();
        // Two events that come close together may be handled by one call.
        assert!(seen.promotions <= EVENTS, "{seen:?}");
        assert!(seen.wakes <= seen.promotions, "{seen:?}");
        assert_eq!(witness.most_leaders(), 1);
        wait_asleep(&scene.pool, 2);
        witness.wait_for(Role::Leader, 1);
    });
}

/// Notes the calling thread, once.
fn note(threads: &mut Vec<Thread>) {
    let me = thread::current();
    if threads.iter().all(|other| other.id() != me.id()) {
        threads.push(me);
    }
}

/// What the pool itself remembers of a thread is that it is in a handler, so that it can refuse to
/// wait for itself. It remembers it exactly as long: in the handler and in `closed`, and not after
/// a panic.
#[test]
fn frames_end_with_their_handler() {
    bounded(|| {
        let scene = Scene::unobserved();
        let refused = Arc::new(AtomicUsize::new(0));
        for panics in [false, true] {
            let (pool, refused) = (scene.pool.downgrade(), Arc::clone(&refused));
            let handler = move |_: &mut Context<'_, SimStream>| {
                let pool = pool.upgrade().unwrap();
                let told = pool.enter().map(drop).unwrap_err();
                assert_eq!(told.kind(), io::ErrorKind::Deadlock);
                refused.fetch_add(1, Ordering::Relaxed);
                assert!(!panics, "on purpose");
                Ok(Next::Close)
            };
            let peer = scene.serve(handler);
            peer.send(b"x");
            assert_eq!(serve_all(&scene.pool), 1);
            drop(lead(&scene.pool));
        }
        assert_eq!(refused.load(Ordering::Relaxed), 2);
        assert_eq!(scene.pool.snapshot().panics, 1);
    });
}
