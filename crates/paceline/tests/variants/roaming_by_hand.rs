//! Threads that roam between sets, on a clock that stands still: what the watch of the lounge does,
//! look by look.

use std::{
    collections::HashSet,
    io::ErrorKind,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc, Mutex, PoisonError,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::support::{
    bell::{on_byte, Bell, ANY},
    bounded,
    gate::Gate,
    wait_until, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Context, Interest, Leaders, Left, Next, Returned, SetKind, Sets, Wake,
};

const TICK: Duration = Duration::from_millis(10);

/// Runs a test while no other of this file runs. (A watch that goes and the one that is appointed
/// in its place may both look round if the first is kept from its core, and then each waits in some
/// of the sets. That is allowed, and not what is tested.)
fn one_at_a_time(test: impl FnOnce() + Send + 'static) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    bounded(test);
}

/// Sets whose threads are all accounted for: asleep, or at the gate.
struct Scene {
    sets: Sets,
    /// That of the first set, in which all streams are.
    world: Simulation,
    worlds: Vec<Simulation>,
    gate: Arc<Gate>,
    threads: usize,
}

impl Scene {
    fn new(sets: usize, threads: usize, wake: Wake) -> Self {
        Self::on_cores(2, sets, threads, wake)
    }

    fn on_cores(cores: usize, sets: usize, threads: usize, wake: Wake) -> Self {
        let world = Simulation::new(1);
        let worlds: Vec<_> = (0..sets)
            .map(|set| match set {
                0 => world.clone(),
                _ => world.beside(),
            })
            .collect();
        let own = worlds.clone();
        let sets = Sets::builder()
            .sets(sets)
            .threads(threads)
            .leaders(Leaders::Roaming)
            .each(move |set, pool| {
                let set = SetKind::Simulated(own[set].clone());
                let pool = pool.handle_set(set).wake(wake);
                pool.tick(TICK).parallelism(cores)
            });
        let scene = Self {
            sets: sets.build().unwrap(),
            world,
            worlds,
            gate: Gate::shut(),
            threads,
        };
        scene.rest();
        scene
    }

    /// Waits until nothing more happens by itself.
    fn rest(&self) {
        // Who may pass is about to go: it is not at rest.
        wait_until(|| self.gate.shut_out() + self.world.clock().asleep() == self.threads);
    }

    fn advance(&self, span: Duration) {
        self.world.clock().advance(span);
        self.rest();
    }

    /// Somebody in this set handles something, by surprise for as long as the gate is shut.
    fn occupy(&self, set: usize) -> SimPeer {
        let peer = self.gated(set);
        peer.send(b"x");
        self.rest();
        peer
    }

    /// A thread that serves one set, and no other.
    fn guest(&mut self, set: usize) -> JoinHandle<Left> {
        let pool = self.sets.pool(set).clone();
        let guest = thread::spawn(move || pool.join_timeout(LONG * 100).unwrap());
        self.threads += 1;
        self.rest();
        guest
    }

    /// A peer whose byte keeps a thread of this set at the gate.
    fn gated(&self, set: usize) -> SimPeer {
        let gate = Arc::clone(&self.gate);
        on_byte(self.sets.pool(set), &self.world, move |_| gate.pass()).1
    }

    /// Handlers at the gate take a fifth of a tick each, so many times; the watch may look
    /// meanwhile.
    fn serve_slowly(&self, times: usize) {
        for _ in 0..times {
            self.gate.let_all_through();
            self.rest();
            self.advance(TICK / 5);
        }
    }

    /// How often somebody has come from the lounge.
    fn roamed(&self) -> u64 {
        self.sets.snapshot().iter().map(|it| it.roamed).sum()
    }

    fn echo(&self, set: usize) -> SimPeer {
        let echo = on_byte(self.sets.pool(set), &self.world, |cx| {
            cx.write_all(b"y").unwrap();
        });
        echo.1
    }
}

/// A handler in one of several sets waits, and another thread leads there, so that its own one only
/// follows. It is no guest that goes on to other sets when it is not needed for a while: its wait
/// would end before its time.
#[test]
fn who_waits_in_a_set_does_not_roam() {
    one_at_a_time(|| {
        for wake in [Wake::Adaptive, Wake::Eager] {
            let scene = Scene::new(2, 4, wake);
            let (bell, gate) = (Bell::new(), Arc::clone(&scene.gate));
            let (here, (tell, told)) = (Arc::clone(&bell), mpsc::channel());
            let (_, peer) = on_byte(scene.sets.pool(0), &scene.world, move |cx| {
                // Somebody comes and leads meanwhile.
                cx.blocking(|| gate.pass());
                tell.send(here.wait(cx, ANY).unwrap()).unwrap();
            });
            peer.send(b"x");
            scene.gate.wait_for(1);
            scene.rest();
            scene.gate.let_through(1);
            wait_until(|| bell.has_waiter());
            scene.rest();
            for _ in 0..10 {
                scene.advance(TICK);
                let early = told.try_recv();
                assert_eq!(early, Err(mpsc::TryRecvError::Empty), "{wake:?}");
            }
            bell.ring();
            assert_eq!(told.recv_timeout(LONG), Ok(Returned::Done));
        }
    });
}

/// Where the wake is eager nobody leaves a lead to others: any handler may block. All others are in
/// handlers, and the last thread serves its set on, one request after the other.
#[test]
fn the_last_one_of_an_eager_set_leads_on() {
    one_at_a_time(|| {
        let scene = Scene::new(2, 3, Wake::Eager);
        (0..8).for_each(|_| scene.advance(TICK));
        let _others = [scene.occupy(1), scene.occupy(1)];
        assert_eq!((scene.gate.inside(), scene.sets.idle()), (2, 0));
        let peer = scene.echo(0);
        for _ in 0..3 {
            peer.send(b"x");
            assert_eq!(peer.wait_for(1), b"y");
        }
        scene.gate.let_through(2);
    });
}

/// A set is left without a leader, and the watch will look after a tick. Others rouse it meanwhile:
/// that makes it look no later. (The others have leaders of their own: guests that serve one set
/// alone, and are not sent away when nothing happens there.)
#[test]
fn rousing_the_watch_puts_no_look_off() {
    one_at_a_time(|| {
        let mut scene = Scene::new(3, 4, Wake::Adaptive);
        let _stuck = [(); 4].map(|()| {
            let peer = scene.occupy(0);
            (0..8).for_each(|_| scene.advance(TICK));
            peer
        });
        assert_eq!(scene.gate.inside(), 4);
        let guests = [1, 2].map(|set| scene.guest(set));
        scene.gate.let_through(4);
        scene.rest();
        // All leads are held and the same: it sleeps deeply.
        (0..8).for_each(|_| scene.advance(TICK));
        assert!(guests.iter().all(|guest| !guest.is_finished()));
        let _busy = scene.occupy(0);
        let (blind, others) = (scene.echo(0), [scene.echo(1), scene.echo(2)]);
        blind.send(b"x");
        for other in &others {
            scene.advance(TICK * 2 / 5);
            other.send(b"x");
            assert_eq!(other.wait_for(1), b"y");
            scene.rest();
        }
        assert_eq!(blind.received(), b"", "it has not looked");
        scene.advance(TICK / 5);
        assert_eq!(blind.received(), b"y", "a tick has passed");
        scene.gate.let_through(1);
        let reports = scene.sets.shutdown(LONG);
        assert!(reports.iter().all(|it| it.is_clean()), "{reports:?}");
        for guest in guests {
            assert_eq!(guest.join().unwrap(), Left::Closing);
        }
    });
}

/// One thread is enough for short requests, whichever set they come to: it waits in all of them,
/// and nobody else is called.
#[test]
fn one_thread_serves_all_sets() {
    one_at_a_time(|| {
        let scene = Scene::new(3, 4, Wake::Adaptive);
        let peers = [0, 1, 2, 0].map(|set| scene.echo(set));
        for _ in 0..50 {
            peers.iter().for_each(|peer| peer.send(b"x"));
            for peer in &peers {
                assert_eq!(peer.wait_for(1), b"y");
            }
            scene.rest();
            assert_eq!(scene.sets.idle(), 3);
        }
        assert_eq!(scene.roamed(), 0);
    });
}

/// A set whose line is never empty leaves the others their turn.
#[test]
fn a_busy_set_leaves_others_their_turn() {
    one_at_a_time(|| {
        let scene = Scene::new(2, 3, Wake::Adaptive);
        let (stream, busy) = scene.world.stream();
        let done = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&done);
        let again = move |_: &mut Context<'_, SimStream>| {
            Ok(if ends.load(Ordering::Relaxed) {
                Next::Close
            } else {
                Next::Again
            })
        };
        let echo = scene.echo(1);
        scene.rest();
        let pool = scene.sets.pool(0);
        pool.register(stream, Interest::READ, again).unwrap();
        busy.send(b"x");
        echo.send(b"x");
        assert_eq!(echo.wait_for(1), b"y");
        done.store(true, Ordering::Relaxed);
        busy.wait_closed();
    });
}

/// Whatever a set has for its leader ends the sleep of one that sleeps in others too: a post, a
/// timer, a handle that is new or resumed, and the end of the pool.
#[test]
fn who_sleeps_in_all_sets_is_woken_in_each() {
    one_at_a_time(|| {
        let scene = Scene::new(3, 4, Wake::Adaptive);
        for set in [2, 0, 1] {
            let pool = scene.sets.pool(set);
            let (tell, told) = mpsc::channel();
            let posted = tell.clone();
            pool.post(move |_| posted.send("post").unwrap()).unwrap();
            assert_eq!(told.recv_timeout(LONG), Ok("post"));
            scene.rest();
            let _timer = pool.after(TICK * 3, move |_| tell.send("timer").unwrap());
            scene.rest();
            scene.advance(TICK * 2);
            assert!(told.try_recv().is_err());
            scene.advance(TICK * 2);
            assert_eq!(told.recv_timeout(LONG), Ok("timer"));
            let (handle, peer) = on_byte(pool, &scene.world, |cx| cx.write_all(b"y").unwrap());
            scene.rest();
            handle.suspend().unwrap();
            peer.send(b"x");
            scene.rest();
            handle.resume().unwrap();
            assert_eq!(peer.wait_for(1), b"y");
            scene.rest();
        }
        let report = scene.sets.pool(1).shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        let echo = scene.echo(2);
        echo.send(b"x");
        assert_eq!(echo.wait_for(1), b"y");
    });
}

/// Who has slept in all sets sleeps in none of them while it serves one: what is posted to another
/// wakes nobody, and is found by the look that follows.
#[test]
fn who_is_awake_in_one_set_is_awake_in_all() {
    one_at_a_time(|| {
        let scene = Scene::new(2, 4, Wake::Adaptive);
        for (set, other) in [(0, 1), (1, 0)] {
            let (tell, told) = mpsc::channel();
            let pool = scene.sets.pool(other).clone();
            let (_, peer) = on_byte(scene.sets.pool(set), &scene.world, move |_| {
                let tell = tell.clone();
                pool.post(move |_| tell.send(()).unwrap()).unwrap();
            });
            scene.rest();
            let wakes = scene.worlds[other].wakes();
            peer.send(b"x");
            assert_eq!(told.recv_timeout(LONG), Ok(()));
            scene.rest();
            assert_eq!(scene.worlds[other].wakes(), wakes, "from set {set}");
        }
    });
}

/// The wait in one set fails again and again. The others are served.
#[test]
fn a_set_that_fails_does_not_hold_up_the_others() {
    one_at_a_time(|| {
        let world = Simulation::new(1);
        let (worlds, errors) = (
            [world.clone(), world.beside()],
            Arc::new(AtomicUsize::new(0)),
        );
        let (own, fails, count) = (worlds.clone(), world.clone(), Arc::clone(&errors));
        let sets = Sets::builder()
            .sets(2)
            .threads(3)
            .leaders(Leaders::Roaming)
            .each(move |set, pool| {
                let (fails, count) = (fails.clone(), Arc::clone(&count));
                let set = SetKind::Simulated(own[set].clone());
                pool.handle_set(set).on_error(move |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                    fails.fail_next_wait(ErrorKind::Other);
                })
            });
        let (sets, gate) = (sets.build().unwrap(), Gate::shut());
        // One thread is left, and was in the other set last.
        let _stuck = [1, 2].map(|count| {
            let inside = Arc::clone(&gate);
            let (_, peer) = on_byte(sets.pool(1), &world, move |_| inside.pass());
            peer.send(b"x");
            wait_until(|| {
                world.clock().advance(TICK);
                gate.inside() == count
            });
            peer
        });
        let (_, peer) = on_byte(sets.pool(1), &world, |cx| cx.write_all(b"y").unwrap());
        world.fail_next_wait(ErrorKind::Other);
        for answers in 1..=3 {
            wait_until(|| {
                world.clock().advance(TICK);
                errors.load(Ordering::Relaxed) > answers
            });
            let before = errors.load(Ordering::Relaxed);
            peer.send(b"x");
            wait_until(|| {
                world.clock().advance(TICK);
                let failed = errors.load(Ordering::Relaxed) - before;
                assert!(failed < 20, "the other set is not served");
                !peer.received().is_empty()
            });
        }
        gate.let_through(2);
    });
}

/// Many sets have something at once, and one thread serves them in turn. It sets those aside again
/// and again that it has not looked into: that does not put off the watch, which brings another
/// one.
#[test]
fn who_serves_many_sets_in_turn_is_helped() {
    const SETS: usize = 16;
    one_at_a_time(|| {
        let scene = Scene::new(SETS, SETS + 1, Wake::Adaptive);
        let threads = Arc::new(Mutex::new(HashSet::new()));
        let peers: Vec<_> = (1..SETS)
            .map(|set| {
                let (threads, gate) = (Arc::clone(&threads), Arc::clone(&scene.gate));
                let served = move |_: &mut Context<'_, SimStream>| {
                    threads.lock().unwrap().insert(thread::current().id());
                    gate.pass();
                };
                on_byte(scene.sets.pool(set), &scene.world, served).1
            })
            .collect();
        let _first = scene.occupy(0);
        peers.iter().for_each(|peer| peer.send(b"x"));
        scene.serve_slowly(SETS);
        let served = threads.lock().unwrap().len();
        assert!(served > 1, "nobody has helped");
        scene.gate.let_through(SETS);
    });
}

/// One thread serves two sets in turn. The one that it has just served has a tick until the watch
/// comes, though its lead is open: the other one's handlers take a fifth of a tick each, and a tick
/// together.
#[test]
fn what_was_served_just_now_is_left_alone() {
    one_at_a_time(|| {
        let scene = Scene::on_cores(1, 2, 3, Wake::Adaptive);
        let peers = [(); 6].map(|()| scene.gated(1));
        let _served = scene.occupy(0);
        peers.iter().for_each(|peer| peer.send(b"x"));
        scene.serve_slowly(5);
        assert_eq!(scene.roamed(), 0);
        // Two of them are left.
        scene.gate.let_through(2);
    });
}

/// Handlers of one set block by surprise, one after the other. Whoever comes looks at the others
/// first: they have their turn before everybody is stuck.
#[test]
fn a_set_that_blocks_leaves_others_their_turn() {
    one_at_a_time(|| {
        let scene = Scene::new(2, 4, Wake::Adaptive);
        let stuck = [(); 4].map(|()| scene.gated(0));
        let echo = scene.echo(1);
        scene.rest();
        stuck.iter().for_each(|peer| peer.send(b"x"));
        scene.gate.wait_for(1);
        scene.rest();
        echo.send(b"x");
        let mut ticks = 0;
        while echo.received().is_empty() {
            assert!(ticks < 8, "everybody is stuck");
            scene.advance(TICK);
            ticks += 1;
        }
        scene.gate.let_through(4);
    });
}
