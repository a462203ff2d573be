//! Handles that belong to certain threads: their events get there, whatever else the pool does at
//! that moment.

use std::sync::Mutex;

use shuttle::thread::ThreadId;

use super::*;

/// An [`Echo`] that knows who calls it.
struct AtHome {
    echo: Echo,
    callers: Arc<Mutex<Vec<ThreadId>>>,
}

impl EventHandler<SimStream> for AtHome {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.callers.lock().unwrap().push(thread::current().id());
        self.echo.ready(cx)
    }

    fn closed(&mut self, why: Closed) {
        self.echo.closed(why);
    }
}

/// H1, H2 under faults: every byte comes back, and only its own threads have called: of one handle
/// one of them, of another one of two; a third is sticky.
fn every_byte_at_home(wake: Wake, order: Order) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let pool = builder_on(&world, 3).wake(wake).order(order).build();
        let pool = pool.unwrap();
        let ids = pool.inspect().thread_ids();
        let peers: Vec<_> = (0..3_usize)
            .map(|id| {
                let (stream, peer) = world.stream();
                let callers = Arc::default();
                let handler = AtHome {
                    echo: Echo::new(&tally),
                    callers: Arc::clone(&callers),
                };
                let handle = pool.register(stream, Interest::NONE, handler).unwrap();
                let home = &ids[..(id + 1) % 3];
                match home {
                    [] => handle.prefer_last_thread(Duration::from_secs(1)).unwrap(),
                    home => handle.pin_to(home).unwrap(),
                }
                handle.set_interest(Interest::READ).unwrap();
                (home, peer, callers)
            })
            .collect();
        for round in 0..3_u8 {
            for (_, peer, _) in &peers {
                peer.send(&[round, round + 1]);
            }
        }
        for (_, peer, _) in &peers {
            assert_eq!(peer.wait_for(6), [0, 1, 1, 2, 2, 3]);
            peer.finish();
        }
        for (home, peer, callers) in &peers {
            peer.wait_closed();
            let callers = callers.lock().unwrap();
            let at_home = |caller| home.is_empty() || home.contains(caller);
            assert!(callers.iter().all(at_home));
        }
        world.set_faults(Faults::NONE);
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
        assert_eq!(tally.closed.load(Ordering::SeqCst), 3);
        assert_eq!(pool.snapshot().strayed, 0);
    });
}

#[test]
fn shuttle_pins_every_byte_newest() {
    every_byte_at_home(Wake::Adaptive, Order::Newest);
}

#[test]
fn shuttle_pins_every_byte_eager() {
    every_byte_at_home(Wake::Eager, Order::Oldest);
}

/// H2: the thread that a handle belongs to leaves at any moment, while its events are on their way
/// to it.
#[test]
fn shuttle_pins_whoever_leaves() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let pool = pool_on(&world, 2);
        let is_gone = Arc::new(AtomicBool::new(false));
        let guest = {
            let (pool, is_gone) = (pool.clone(), Arc::clone(&is_gone));
            thread::spawn(move || {
                assert_eq!(pool.join_timeout(TICK).unwrap(), Left::TimedOut);
                is_gone.store(true, Ordering::SeqCst);
            })
        };
        let (handle, peer) = connect(&world, &pool, &tally);
        // Unless it has gone already, or has not come yet.
        let _ = handle.pin_to(&[guest.thread().id()]);
        for byte in 0..4 {
            peer.send(&[byte]);
            world.clock().advance(TICK);
        }
        assert_eq!(peer.wait_for(4), [0, 1, 2, 3]);
        // It may have come only now.
        while !is_gone.load(Ordering::SeqCst) {
            world.clock().advance(TICK);
            thread::yield_now();
        }
        guest.join().unwrap();
        peer.finish();
        peer.wait_closed();
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}
