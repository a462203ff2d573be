//! Handles that belong to certain threads: hybrid associations, where some handles have their
//! threads and the others any.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{mpsc, Arc, Mutex},
    thread::{self, ThreadId},
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, asleep, claim, Scene},
    gate::Gate,
    kernel_sets,
    pinned::{keep_busy, Guest},
    wait_until, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    turn::Leader,
    Builder, Closed, Context, Errand, InHandler, Interest, Next, Order, Pool, Recall, Returned,
    Serve, SetKind, Wake,
};

/// Sends `count` bytes, each after the one before came back.
fn ask(mut peer: UnixStream, count: usize) {
    let mut reply = [0];
    for number in 0..count {
        let byte = [number as u8];
        peer.write_all(&byte).unwrap();
        peer.read_exact(&mut reply).unwrap();
        assert_eq!(reply, byte, "each once, in order");
    }
}

/// A handle whose handler sends everything back, and notes which thread calls it.
fn echo(pool: &Pool, threads: &[ThreadId], callers: &Arc<Mutex<Vec<ThreadId>>>) -> UnixStream {
    let (source, peer) = UnixStream::pair().unwrap();
    let callers = Arc::clone(callers);
    let handler = move |cx: &mut Context<'_, UnixStream>| {
        callers.lock().unwrap().push(thread::current().id());
        let mut buffer = [0; 64];
        let count = cx.read(&mut buffer)?;
        cx.write_all(&buffer[..count])?;
        Ok(match count {
            0 => Next::Close,
            _ => Next::Continue,
        })
    };
    let handle = pool.register(source, Interest::NONE, handler).unwrap();
    if !threads.is_empty() {
        handle.pin_to(threads).unwrap();
    }
    handle.set_interest(Interest::READ).unwrap();
    peer
}

/// Every event of a pinned handle is handled once, by a thread that it belongs to, whatever else
/// the pool does: two handles for each thread, two for each pair of neighbours, and as many that
/// belong to anyone.
fn all_at_home(builder: Builder) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    let pool = builder.threads(THREADS).build().unwrap();
    let ids = pool.inspect().thread_ids();
    assert_eq!(ids.len(), THREADS, "they are known before they run");
    let mut asked = Vec::new();
    let mut homes = Vec::new();
    for number in 0..6 * THREADS {
        let (one, other) = (ids[number % THREADS], ids[(number + 1) % THREADS]);
        let threads = match number % 3 {
            0 => vec![],
            1 => vec![one],
            _ => vec![one, other],
        };
        let callers = Arc::default();
        let peer = echo(&pool, &threads, &callers);
        homes.push((threads, callers));
        asked.push(thread::spawn(move || ask(peer, ROUNDS)));
    }
    for asked in asked {
        asked.join().unwrap();
    }
    for (threads, callers) in homes {
        let callers = callers.lock().unwrap();
        assert!(callers.len() >= ROUNDS);
        let at_home = |caller| threads.is_empty() || threads.contains(caller);
        assert!(callers.iter().all(at_home), "{threads:?}: {callers:?}");
    }
    let snapshot = pool.snapshot();
    assert!(snapshot.handed > 0 && snapshot.strayed == 0, "{snapshot:?}");
    let report = pool.shutdown(LONG);
    assert!(report.is_clean(), "{report}");
}

/// H2, in every order, with both wakes.
#[test]
fn at_home_in_every_order() {
    bounded(|| {
        for wake in [Wake::Adaptive, Wake::Eager] {
            for order in [Order::Newest, Order::Oldest, Order::Priority] {
                all_at_home(Pool::builder().wake(wake).order(order));
            }
        }
    });
}

/// H2, in every set of the kernel's where somebody leads.
#[test]
fn at_home_in_every_set() {
    bounded(|| {
        for set in kernel_sets() {
            if !matches!(set, SetKind::Concurrent) {
                all_at_home(Pool::builder().handle_set(set));
            }
        }
    });
}

/// A pinned event waits for its thread, whoever else is free; a handle of anyone does not.
#[test]
fn busy_thread_is_waited_for() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 3);
        let (first, gate) = (pool.inspect().thread_ids()[0], Gate::shut());
        let _busy = keep_busy(&pool, &world, first, &gate);
        let pinned = Guest::new(&pool, &world, &[first]);
        let free = Guest::new(&pool, &world, &[]);
        pinned.send();
        assert_ne!(free.send().called(), first);
        assert!(pinned.is_not_called());
        gate.let_through(1);
        assert_eq!(pinned.called(), first);
    });
}

/// Of several threads, one that is not busy gets it.
#[test]
fn who_is_free_of_a_subset() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 3);
        let (ids, gate) = (pool.inspect().thread_ids(), Gate::shut());
        for (busy, free) in [(ids[0], ids[1]), (ids[1], ids[2]), (ids[2], ids[0])] {
            let _busy = keep_busy(&pool, &world, busy, &gate);
            let either = Guest::new(&pool, &world, &[busy, free]);
            for _ in 0..10 {
                assert_eq!(either.send().called(), free);
            }
            gate.let_through(1);
            gate.wait_for(0);
        }
    });
}

/// A sticky handle goes where it was while that thread is free; while it is busy, to another, and
/// stays there.
#[test]
fn sticky_goes_where_it_was() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 3);
        let (guest, gate) = (Guest::new(&pool, &world, &[]), Gate::shut());
        guest
            .handle
            .prefer_last_thread(Duration::from_secs(1))
            .unwrap();
        let others = pool.inspect().thread_ids();
        let others = others.iter().map(|it| Guest::new(&pool, &world, &[*it]));
        let others: Vec<_> = others.collect();
        let first = guest.send().called();
        for _ in 0..20 {
            // Whoever leads meanwhile.
            for other in &others {
                other.send().called();
            }
            wait_until(|| world.clock().asleep() == 3);
            assert_eq!(guest.send().called(), first);
        }
        let _busy = keep_busy(&pool, &world, first, &gate);
        let second = guest.send().called();
        assert_ne!(second, first, "that one is busy");
        gate.let_through(1);
        wait_until(|| world.clock().asleep() == 3);
        assert_eq!(guest.send().called(), second);
    });
}

/// Leads instead of the only other thread, which then sleeps as a follower.
fn lead_instead<'p>(scene: &'p Scene, event: &Guest) -> Leader<'p> {
    let (pool, peer) = (&scene.pool, &event.peer);
    scene.wait_asleep(0);
    wait_until(|| scene.world.clock().asleep() == 1);
    let leader = thread::scope(|scope| {
        scope.spawn(|| {
            scene.wait_asleep(1);
            peer.send(b"x");
        });
        by_hand::lead(pool)
    });
    event.called();
    scene.wait_asleep(1);
    leader
}

/// Another thread leads: a sticky handle is handed to its own, which sleeps, as long as its span
/// lasts. That begins anew with each call. When it is over, whoever leads has it.
#[test]
fn sticky_is_handed_while_its_span_lasts() {
    bounded(|| {
        let (scene, span) = (Scene::unobserved(), Duration::from_secs(2));
        let [guest, event] = [0, 1].map(|_| Guest::new(&scene.pool, &scene.world, &[]));
        guest.handle.prefer_last_thread(span).unwrap();
        let first = scene.joined().thread().id();
        assert_eq!(guest.send().called(), first);
        for handed in 1..=3 {
            let leader = lead_instead(&scene, &event);
            scene.advance(1);
            guest.send();
            event.send();
            let claimed = claim(leader);
            assert_eq!(guest.called(), first);
            assert_eq!(scene.pool.snapshot().handed, handed);
            drop(claimed.promote().run());
            assert_ne!(event.called(), first);
        }
        let leader = lead_instead(&scene, &event);
        by_hand::advance(&scene, span);
        guest.send();
        drop(claim(leader).promote().run());
        assert_ne!(guest.called(), first);
        assert_eq!(scene.pool.snapshot().handed, 3);
    });
}

/// Nobody is left to whom it belongs: anyone has it, until somebody comes back.
#[test]
fn whoever_left_is_not_waited_for() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 2);
        let (own, other) = (pool.inspect().thread_ids(), pool.clone());
        let (come, comes) = mpsc::channel();
        let visitor = thread::spawn(move || {
            while let Ok(time) = comes.recv() {
                other.join_timeout(time).unwrap();
            }
        });
        let id = visitor.thread().id();
        let visit = |seconds| {
            come.send(Duration::from_secs(seconds)).unwrap();
            wait_until(|| pool.inspect().thread_ids().contains(&id));
        };
        visit(1);
        let guest = Guest::new(&pool, &world, &[id]);
        assert_eq!(guest.send().called(), id);
        wait_until(|| world.clock().asleep() == 3);
        world.clock().advance(Duration::from_secs(2));
        wait_until(|| !pool.inspect().thread_ids().contains(&id));
        assert!(own.contains(&guest.send().called()));
        assert_eq!(pool.snapshot().strayed, 1);
        visit(1);
        assert_eq!(guest.send().called(), id, "it is back");
        assert_eq!(pool.snapshot().strayed, 1);
        drop(come);
        wait_until(|| world.clock().asleep() == 3);
        world.clock().advance(Duration::from_secs(2));
        visitor.join().unwrap();
    });
}

/// Everything that a handle can be asked is done at home.
#[test]
fn requests_are_for_its_thread() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 3);
        for thread in pool.inspect().thread_ids() {
            let guest = Guest::new(&pool, &world, &[thread]);
            for _ in 0..10 {
                guest.handle.notify().unwrap();
                assert_eq!(guest.called(), thread);
            }
            guest.handle.suspend().unwrap();
            assert!(guest.send().is_not_called());
            guest.handle.resume().unwrap();
            assert_eq!(guest.called(), thread);
            guest.handle.set_interest(Interest::NONE).unwrap();
            assert!(guest.send().is_not_called());
            guest.handle.set_interest(Interest::READ).unwrap();
            assert_eq!(guest.called(), thread);
            guest.handle.close_and_wait().unwrap();
            assert!(matches!(guest.end(), Closed::Requested));
        }
    });
}

/// It is closed while its event waits for a busy thread: that one finds it closed.
#[test]
fn closed_while_it_waits() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 2);
        let (first, gate) = (pool.inspect().thread_ids()[0], Gate::shut());
        let _busy = keep_busy(&pool, &world, first, &gate);
        let guest = Guest::new(&pool, &world, &[first]);
        let handed = pool.snapshot().handed;
        guest.send();
        wait_until(|| pool.snapshot().handed > handed);
        guest.handle.close().unwrap();
        gate.let_through(1);
        assert!(matches!(guest.end(), Closed::Requested));
        assert!(guest.is_not_called());
    });
}

/// It is pinned to another thread, or to none, while its event waits for a busy one.
#[test]
fn goes_home_after_a_change() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 3);
        let (ids, gate) = (pool.inspect().thread_ids(), Gate::shut());
        let _busy = keep_busy(&pool, &world, ids[0], &gate);
        let [moved, freed] = [0, 1].map(|_| Guest::new(&pool, &world, &[ids[0]]));
        let handed = pool.snapshot().handed;
        moved.send();
        freed.send();
        wait_until(|| pool.snapshot().handed == handed + 2);
        moved.handle.pin_to(&[ids[1]]).unwrap();
        freed.handle.unpin().unwrap();
        gate.let_through(1);
        assert_eq!(moved.called(), ids[1]);
        assert!(ids.contains(&freed.called()));
    });
}

/// The idle time-out of a pinned handle, and an event that has waited for too long in the line.
#[test]
fn time_is_told_at_home() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 2);
        for thread in pool.inspect().thread_ids() {
            let guest = Guest::new(&pool, &world, &[thread]);
            assert_eq!(guest.send().called(), thread);
            let idle = Some(Duration::from_secs(1));
            guest.handle.set_timeout(idle).unwrap();
            wait_until(|| world.clock().asleep() == 2);
            world.clock().advance(Duration::from_secs(2));
            assert!(matches!(guest.end(), Closed::TimedOut));
        }
        let (world, limit) = (Simulation::new(1), Duration::from_secs(1));
        let builder = Pool::builder().threads(2).age_limit(limit);
        let set = SetKind::Simulated(world.clone());
        let (pool, gate) = (builder.handle_set(set).build().unwrap(), Gate::shut());
        let ids = pool.inspect().thread_ids();
        // Nobody leads, so it waits in the line.
        let _busy = [0, 1].map(|number| keep_busy(&pool, &world, ids[number], &gate));
        let guest = Guest::new(&pool, &world, &[ids[0]]);
        guest.send();
        world.clock().advance(2 * limit);
        gate.let_through(2);
        assert_eq!(guest.called(), ids[0]);
    });
}

/// A handle pinned to one thread whose handler stays until it is recalled, and serves meanwhile.
struct Stay {
    peer: SimPeer,
    recall: Recall,
    done: Arc<Mutex<bool>>,
}

impl Stay {
    fn begin(pool: &Pool, world: &Simulation, thread: ThreadId, serve: Serve) -> Self {
        let (stream, peer) = world.stream();
        let (tell, told) = mpsc::channel();
        let done = Arc::new(Mutex::new(false));
        let is_done = Arc::clone(&done);
        let handler = move |cx: &mut Context<'_, SimStream>| {
            cx.read(&mut [0; 1])?;
            tell.send(cx.recall()?).unwrap();
            let errand = Errand {
                serve,
                ..Errand::default()
            };
            let returned = cx.serve_until(errand, || *is_done.lock().unwrap())?;
            assert_eq!(returned, Returned::Done);
            Ok(Next::Close)
        };
        let handle = pool.register(stream, Interest::NONE, handler).unwrap();
        handle.pin_to(&[thread]).unwrap();
        handle.set_interest(Interest::READ).unwrap();
        peer.send(b"x");
        let recall = told.recv_timeout(LONG).unwrap();
        Self { peer, recall, done }
    }

    fn end(&self) {
        *self.done.lock().unwrap() = true;
        self.recall.now();
        self.peer.wait_closed();
    }
}

/// A thread that waits in a handler serves what is pinned to it meanwhile, unless it serves
/// nothing.
#[test]
fn waiting_thread_serves_its_own() {
    bounded(|| {
        for serve in [Serve::Chain, Serve::Any, Serve::Nothing] {
            let world = Simulation::new(1);
            let pool = asleep(&world, 3);
            let first = pool.inspect().thread_ids()[0];
            let stay = Stay::begin(&pool, &world, first, serve);
            let guest = Guest::new(&pool, &world, &[first]);
            guest.send();
            match serve {
                Serve::Nothing => assert!(guest.is_not_called()),
                _ => assert_eq!(guest.called(), first),
            }
            stay.end();
            if serve == Serve::Nothing {
                assert_eq!(guest.called(), first);
            }
        }
    });
}

/// A thread that waits in a handler for one thing is not free for others: a sticky handle goes to
/// another thread, and one that is pinned to several to another of these.
#[test]
fn waiting_thread_is_not_free() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = asleep(&world, 3);
        let rest = || wait_until(|| world.clock().asleep() == 3);
        let [sticky, anyone] = [0, 1].map(|_| Guest::new(&pool, &world, &[]));
        sticky
            .handle
            .prefer_last_thread(Duration::from_secs(1))
            .unwrap();
        for _ in 0..10 {
            rest();
            let first = sticky.send().called();
            rest();
            let stay = Stay::begin(&pool, &world, first, Serve::Chain);
            rest();
            // If it leads, it gives the lead away for that.
            assert_ne!(anyone.send().called(), first);
            rest();
            assert_ne!(sticky.send().called(), first);
            for other in pool.inspect().thread_ids() {
                let either = Guest::new(&pool, &world, &[first, other]);
                rest();
                assert_eq!(either.send().called(), other);
            }
            stay.end();
        }
    });
}
