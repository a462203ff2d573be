//! Handles that move between pools, under every schedule: nothing is lost on the way, nothing is
//! told twice.

use paceline::Level;
use shuttle::sync::Mutex;

use super::*;

/// Two pools in one world.
fn two_pools(world: &Simulation) -> ([Pool; 2], [Level; 2]) {
    let pools = [world.clone(), world.beside()].map(|world| pool_on(&world, 2));
    let levels = pools.each_ref().map(|pool| pool.as_level("level"));
    (pools, levels)
}

/// Echoes, and moves on after every other call.
struct Wanderer {
    echo: Echo,
    levels: [Level; 2],
    calls: usize,
    shared: Arc<Shared>,
}

/// What others know of it.
#[derive(Default)]
struct Shared {
    /// What it is called where it is now.
    whereabouts: Mutex<Option<Handle>>,
    /// Counts what it is notified of.
    posted: AtomicUsize,
    /// How far a call that was notified has seen it.
    seen: AtomicUsize,
}

impl Shared {
    fn handle(&self) -> Option<Handle> {
        self.whereabouts.lock().unwrap().clone()
    }
}

impl EventHandler<SimStream> for Wanderer {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        self.calls += 1;
        if cx.is_notified() {
            let posted = self.shared.posted.load(Ordering::SeqCst);
            self.shared.seen.store(posted, Ordering::SeqCst);
        }
        match self.echo.ready(cx)? {
            Next::Continue if self.calls % 2 == 0 => cx.move_to(&self.levels[self.calls / 2 % 2]),
            next => Ok(next),
        }
    }

    fn moved(&mut self, handle: &Handle) {
        *self.shared.whereabouts.lock().unwrap() = Some(handle.clone());
    }

    fn closed(&mut self, why: Closed) {
        EventHandler::<SimStream>::closed(&mut self.echo, why);
    }
}

/// H1, H2, H3 under faults: a handle is moved to and fro, from elsewhere and by its handler, while
/// its bytes flow. Every byte comes back, in order, no notification that was taken is lost, and its
/// end is told once.
#[test]
fn shuttle_moved_to_and_fro() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let (pools, levels) = two_pools(&world);
        let (stream, peer) = world.stream();
        let handler = Wanderer {
            echo: Echo::new(&tally),
            levels: levels.clone(),
            calls: 0,
            shared: Arc::default(),
        };
        let shared = Arc::clone(&handler.shared);
        let handle = pools[0].register(stream, Interest::READ, handler).unwrap();
        shared.whereabouts.lock().unwrap().get_or_insert(handle);
        let known = Arc::clone(&shared);
        let mover = thread::spawn(move || {
            for step in 1..5 {
                // It may be busy, and stay; or its handler was faster.
                let _ = known.handle().map(|it| it.move_to(&levels[step % 2]));
                thread::yield_now();
            }
        });
        let known = Arc::clone(&shared);
        let notifier = thread::spawn(move || {
            let mut accepted = 0;
            for post in 1..4 {
                known.posted.store(post, Ordering::SeqCst);
                match known.handle().map(|it| it.notify()) {
                    Some(Ok(())) => accepted = post,
                    // It has moved meanwhile.
                    _ => thread::yield_now(),
                }
            }
            accepted
        });
        for round in 0..3 {
            peer.send(&[round, 7, round]);
        }
        mover.join().unwrap();
        let accepted = notifier.join().unwrap();
        // From here on only liveness counts.
        world.set_faults(Faults::NONE);
        assert_eq!(peer.wait_for(9), [0, 7, 0, 1, 7, 1, 2, 7, 2]);
        one_shot::settle(&world, 4);
        let seen = shared.seen.load(Ordering::SeqCst);
        assert!(seen >= accepted, "a notification is lost (H2)");
        peer.finish();
        peer.wait_closed();
        for pool in &pools {
            assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
        }
        assert_eq!(tally.closed.load(Ordering::SeqCst), 1);
    });
}

/// H3: the end of a handle is asked for while it moves. If that was accepted it ends, wherever it
/// is.
#[test]
fn shuttle_close_against_a_move() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let (pools, levels) = two_pools(&world);
        let (handle, peer) = connect(&world, &pools[0], &tally);
        let same = handle.clone();
        let mover = thread::spawn(move || same.move_to(&levels[1]).is_ok());
        match handle.close() {
            Ok(()) => peer.wait_closed(),
            Err(_) => peer.finish(),
        }
        mover.join().unwrap();
        peer.wait_closed();
        for pool in &pools {
            assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
        }
        assert_eq!(tally.closed.load(Ordering::SeqCst), 1);
    });
}

/// S2: a level is shut down while a handle moves into it. The handle goes on where it was, or ends
/// there; either way its end is told once, and nothing of it is left.
#[test]
fn shuttle_move_against_shutdown() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let ([first, second], levels) = two_pools(&world);
        let (handle, peer) = connect(&world, &first, &tally);
        let mover = thread::spawn(move || {
            // That level may be shut down already.
            let _ = handle.move_to(&levels[1]);
        });
        peer.send(b"x");
        let ends = thread::spawn(move || drop(second.shutdown(Duration::ZERO)));
        mover.join().unwrap();
        ends.join().unwrap();
        let back = peer.wait_for(1);
        assert!(back == b"x" || peer.is_closed_by_pool());
        peer.finish();
        peer.wait_closed();
        assert!(first.shutdown(Duration::from_secs(1)).is_clean());
        assert_eq!(tally.closed.load(Ordering::SeqCst), 1);
        assert_eq!(tally.dropped.load(Ordering::SeqCst), 1);
    });
}
