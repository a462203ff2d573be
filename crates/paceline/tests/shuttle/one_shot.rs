//! The set that reports once and must be armed again, and what may be asked of a handle from
//! elsewhere, under every schedule: nothing is lost, nobody is left asleep.

use super::*;

fn one_shot() -> Simulation {
    Simulation::one_shot(shuttle::rand::thread_rng().gen())
}

/// L1, L2, H1, H2 under faults, where each event silences its handle: every byte comes back.
pub(super) fn every_byte_comes_back_once(world: fn() -> Simulation, wake: Wake, order: Order) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let builder = builder_on(&world, 3).wake(wake).order(order);
        let pool = builder.build().unwrap();
        let peers = [(); 2].map(|()| {
            let (stream, peer) = world.stream();
            // It is reported while it is still being armed for the first time.
            peer.send(&[0, 7, 0]);
            let echo = Echo::new(&tally);
            pool.register(stream, Interest::READ, echo).unwrap();
            peer
        });
        for round in 1..3_u8 {
            peers.iter().for_each(|peer| peer.send(&[round, 7, round]));
        }
        // From here on only liveness counts.
        world.set_faults(Faults::NONE);
        for peer in &peers {
            assert_eq!(peer.wait_for(9), [0, 7, 0, 1, 7, 1, 2, 7, 2]);
            peer.finish();
            peer.wait_closed();
        }
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
        assert_eq!(tally.closed.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn shuttle_one_shot_every_byte_newest() {
    every_byte_comes_back_once(one_shot, Wake::Adaptive, Order::Newest);
}

#[test]
fn shuttle_one_shot_every_byte_eager_oldest() {
    every_byte_comes_back_once(one_shot, Wake::Eager, Order::Oldest);
}

/// H2: what is wanted of a handle changes all the time, from elsewhere, while its bytes flow in
/// both directions and output is kept. What is wanted in the end arrives in the end.
pub(super) fn meddled_with(world: fn() -> Simulation) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let pool = pool_on(&world, 2);
        let (handle, peer) = connect(&world, &pool, &tally);
        let other = handle.clone();
        let meddlers = [
            thread::spawn(move || {
                for interest in [Interest::NONE, Interest::READ | Interest::WRITE] {
                    handle.set_interest(interest).unwrap();
                    thread::yield_now();
                }
                handle.set_interest(Interest::READ).unwrap();
            }),
            thread::spawn(move || {
                for _ in 0..2 {
                    other.suspend().unwrap();
                    thread::yield_now();
                    other.resume().unwrap();
                }
            }),
        ];
        let sent: Vec<u8> = (0..90).collect();
        peer.send(&sent[..5]);
        meddlers.into_iter().for_each(|one| one.join().unwrap());
        world.set_faults(Faults::NONE);
        peer.send(&sent[5..]);
        assert_eq!(peer.wait_for(90), sent);
        peer.finish();
        peer.wait_closed();
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}

#[test]
fn shuttle_one_shot_meddled_with() {
    meddled_with(one_shot);
}

/// H3, E5: who closes and waits comes back when handler and source are gone; the descriptor is used
/// again at once, and the new connection is served.
pub(super) fn close_and_reuse(world: fn() -> Simulation) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let pool = pool_on(&world, 2);
        let (handle, old) = connect(&world, &pool, &tally);
        old.send(b"old");
        let closer = thread::spawn(move || handle.close_and_wait().unwrap());
        let (_, new) = connect(&world, &pool, &tally);
        new.send(b"new");
        closer.join().unwrap();
        assert!(old.is_closed_by_pool());
        assert_eq!(tally.dropped.load(Ordering::SeqCst), 1);
        let (_, newest) = connect(&world, &pool, &tally);
        newest.send(b"newest");
        world.set_faults(Faults::NONE);
        assert_eq!(new.wait_for(3), b"new");
        assert_eq!(newest.wait_for(6), b"newest");
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
        assert_eq!(tally.dropped.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn shuttle_one_shot_close_and_reuse() {
    close_and_reuse(one_shot);
}

/// Two wait for the end of a handle whose handler ends it by itself, at any moment of that end.
/// Each comes back, and when it does nothing is left.
#[test]
fn shuttle_close_and_wait_against_its_own_end() {
    check(|| {
        let (world, tally) = (one_shot(), Tally::default());
        let pool = pool_on(&world, 2);
        let (handle, peer) = connect(&world, &pool, &tally);
        let waiters = [(); 2].map(|()| {
            let (handle, tally) = (handle.clone(), tally.clone());
            thread::spawn(move || {
                // "Not found" says that it is over, too.
                let _ = handle.close_and_wait();
                assert_eq!(tally.closed.load(Ordering::SeqCst), 1);
                assert_eq!(tally.dropped.load(Ordering::SeqCst), 1);
            })
        });
        peer.finish();
        waiters.into_iter().for_each(|one| one.join().unwrap());
        peer.wait_closed();
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}

/// Counts what it is notified of.
struct Mailbox {
    handle: Handle,
    /// Written before each notification.
    posted: Arc<AtomicUsize>,
    /// What the last call saw.
    seen: Arc<AtomicUsize>,
    peer: SimPeer,
}

impl Mailbox {
    fn new(world: &Simulation, pool: &Pool) -> Self {
        let (posted, seen) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (of_handler, tell) = (Arc::clone(&posted), Arc::clone(&seen));
        let (stream, peer) = world.stream();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            if cx.is_notified() {
                tell.store(of_handler.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            // A notification that comes now is for another call.
            while cx.read(&mut [0; 8]).is_ok() {}
            Ok(Next::Continue)
        };
        Self {
            handle: pool.register(stream, Interest::READ, handler).unwrap(),
            posted,
            seen,
            peer,
        }
    }

    fn post(&self) {
        self.posted.fetch_add(1, Ordering::SeqCst);
        self.handle.notify().unwrap();
    }

    fn is_read(&self) -> bool {
        self.seen.load(Ordering::SeqCst) == self.posted.load(Ordering::SeqCst)
    }
}

/// Waits until every thread of the pool sleeps: nothing more happens by itself.
pub(super) fn settle(world: &Simulation, threads: usize) {
    while world.clock().asleep() < threads {
        thread::yield_now();
    }
}

/// ACE 2010: notifications were put into a queue and a pipe, which were drained in the wrong order,
/// so that one stayed behind. Here several threads notify two handles, while their handlers run,
/// for input too, and while the leader goes to sleep. Of each handle the last notification is
/// followed by a call that knows of it.
pub(super) fn no_notification_is_lost(world: fn() -> Simulation, wake: Wake) {
    check(move || {
        let world = world();
        let pool = builder_on(&world, 2).wake(wake).build().unwrap();
        let boxes = Arc::new([(); 2].map(|()| Mailbox::new(&world, &pool)));
        let notifiers = [0, 1, 2].map(|first: usize| {
            let boxes = Arc::clone(&boxes);
            thread::spawn(move || (first..first + 2).for_each(|at| boxes[at % 2].post()))
        });
        boxes.iter().for_each(|mailbox| mailbox.peer.send(b"x"));
        notifiers.into_iter().for_each(|one| one.join().unwrap());
        settle(&world, 2);
        let all_read = boxes.iter().all(Mailbox::is_read);
        assert!(all_read, "a notification waits at rest (H2)");
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}

#[test]
fn shuttle_notify_enqueue_drain_order_loses_nothing() {
    no_notification_is_lost(world, Wake::Adaptive);
}

#[test]
fn shuttle_one_shot_notify_loses_nothing() {
    no_notification_is_lost(one_shot, Wake::Eager);
}

/// The same while another thread suspends the handle and resumes it.
#[test]
fn shuttle_notify_against_resume() {
    check(|| {
        let world = world();
        let pool = pool_on(&world, 2);
        let mailbox = Arc::new(Mailbox::new(&world, &pool));
        let notifier = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || (0..3).for_each(|_| mailbox.post()))
        };
        for _ in 0..2 {
            mailbox.handle.suspend().unwrap();
            thread::yield_now();
            mailbox.handle.resume().unwrap();
        }
        notifier.join().unwrap();
        settle(&world, 2);
        assert!(mailbox.is_read(), "a notification waits at rest (H2)");
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}
