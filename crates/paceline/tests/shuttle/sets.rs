//! Threads that roam between sets, under every schedule: no set is left without a leader while
//! somebody is free.

use paceline::{Leaders, Sets, TaskContext};

use super::{by_steps::Gate, *};

const THREADS: usize = 3;

/// Two sets in one world, one thread more than sets.
fn roaming(world: &Simulation, wake: Wake) -> Sets {
    let worlds = [world.clone(), world.beside()];
    let sets = Sets::builder().sets(2).threads(THREADS);
    sets.leaders(Leaders::Roaming)
        .each(move |set, pool| {
            let set = SetKind::Simulated(worlds[set].clone());
            pool.handle_set(set).wake(wake).tick(TICK).parallelism(2)
        })
        .build()
        .unwrap()
}

/// Time passes until `holds`.
fn ticks_until(world: &Simulation, mut holds: impl FnMut() -> bool) {
    while !holds() {
        world.clock().advance(TICK);
        thread::yield_now();
    }
}

/// L2, H1, H2 over all sets, under faults: every byte comes back to its connection, whoever serves
/// it. When the sets are dropped everybody goes (S3).
fn every_byte_comes_back(wake: Wake) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let sets = roaming(&world, wake);
        let peers = [0, 1].map(|set| connect(&world, sets.pool(set), &tally).1);
        for round in 0..2_u8 {
            peers.iter().for_each(|peer| peer.send(&[round, 7, round]));
        }
        // From here on only liveness counts.
        world.set_faults(Faults::NONE);
        for peer in &peers {
            let mut back = Vec::new();
            ticks_until(&world, || {
                back.extend(peer.received());
                back.len() >= 6
            });
            assert_eq!(back, [0, 7, 0, 1, 7, 1]);
            peer.finish();
            ticks_until(&world, || peer.is_closed_by_pool());
        }
        assert_eq!(tally.closed.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn shuttle_roaming_every_byte() {
    every_byte_comes_back(Wake::Adaptive);
}

#[test]
fn shuttle_roaming_every_byte_eager() {
    every_byte_comes_back(Wake::Eager);
}

/// The invariant of the lounge: a handler blocks by surprise, and its set is left without a leader,
/// while one thread is free. That one comes after two looks of the watch: at once if the wake is
/// eager, at a calm time after eight ticks.
fn blind_set_is_found(wake: Wake, set: usize) {
    check(move || {
        let most = match wake {
            Wake::Eager => 0,
            _ => 8,
        };
        let (world, tally) = (world(), Tally::default());
        let (sets, gate) = (roaming(&world, wake), Arc::new(Gate::default()));
        let settle = || {
            while gate.waiting() + world.clock().asleep() < THREADS {
                thread::yield_now();
            }
        };
        settle();
        let (_, echo) = connect(&world, sets.pool(set), &tally);
        let (stream, peer) = world.stream();
        let inside = Arc::clone(&gate);
        let blocks = move |cx: &mut Context<'_, SimStream>| {
            while cx.read(&mut [0; 8]).is_ok() {}
            inside.pass();
            Ok(Next::Close)
        };
        let pool = sets.pool(0);
        pool.register(stream, Interest::READ, blocks).unwrap();
        // The watch looks seldom, or not at all, and perhaps at this very moment.
        for _ in 0..shuttle::rand::thread_rng().gen_range(0..4) {
            world.clock().advance(TICK);
            settle();
        }
        world.clock().advance(TICK);
        peer.send(b"x");
        while gate.waiting() == 0 {
            thread::yield_now();
        }
        echo.send(b"y");
        settle();
        let mut ticks = 0;
        while echo.received().is_empty() {
            assert!(ticks < most, "a blind set, and a free thread (L2)");
            world.clock().advance(TICK);
            ticks += 1;
            settle();
        }
        gate.let_through(1);
    });
}

#[test]
fn shuttle_roaming_blind_set_is_found() {
    blind_set_is_found(Wake::Adaptive, 0);
}

#[test]
fn shuttle_roaming_blind_set_is_found_eager() {
    blind_set_is_found(Wake::Eager, 0);
}

/// The same, and the event is for another set: whoever led it has set it aside, and does not come
/// back.
#[test]
fn shuttle_roaming_set_aside_is_found() {
    blind_set_is_found(Wake::Adaptive, 1);
}

/// S1: one of the sets ends at any moment, and the end needs none of the time that it was given,
/// whoever sleeps or serves where; the other is served on.
#[test]
fn shuttle_roaming_shutdown_at_any_moment() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let sets = roaming(&world, Wake::Adaptive);
        let peers = [0, 1].map(|set| connect(&world, sets.pool(set), &tally).1);
        peers.iter().for_each(|peer| peer.send(&[7]));
        let report = sets.pool(1).shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
        peers[1].wait_closed();
        let mut back = Vec::new();
        ticks_until(&world, || {
            back.extend(peers[0].received());
            !back.is_empty()
        });
    });
}

/// Who sleeps in all sets at once is woken by whatever one of them has for its leader: posts to
/// each, while events come.
#[test]
fn shuttle_roaming_posts_to_all() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let sets = roaming(&world, Wake::Adaptive);
        let done = Arc::new(AtomicUsize::new(0));
        let peers = [0, 1].map(|set| connect(&world, sets.pool(set), &tally).1);
        for set in [0, 1, 1, 0] {
            let done = Arc::clone(&done);
            let count = move |_: &mut TaskContext<'_>| {
                done.fetch_add(1, Ordering::SeqCst);
            };
            sets.pool(set).post(count).unwrap();
            peers[1 - set].send(&[7]);
        }
        ticks_until(&world, || done.load(Ordering::SeqCst) == 4);
        for peer in &peers {
            let mut back = Vec::new();
            ticks_until(&world, || {
                back.extend(peer.received());
                back.len() >= 2
            });
        }
    });
}
