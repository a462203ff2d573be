//! Pinned handles in an elastic pool: whose threads stay, and when one more is called.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc, Arc,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, claim, find_nothing, take_lead, wait_asleep},
    gate::Gate,
    pinned::{keep_busy, Guest},
    wait_until, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    turn::Processing,
    Builder, Context, Errand, InHandler, Interest, Next, Pool, Recall, SetKind, Wake,
};

/// An elastic pool lets idle threads go, but none that a handle is pinned to.
#[test]
fn pinned_threads_do_not_retire() {
    bounded(|| {
        let (world, keep_alive) = (Simulation::new(1), Duration::from_secs(10));
        let set = SetKind::Simulated(world.clone());
        let pool = Pool::builder().threads(4..=8).keep_alive(keep_alive);
        let pool = pool.handle_set(set).build().unwrap();
        let gate = Gate::shut();
        // All are busy, so that more are called.
        let mut busy = Vec::new();
        while pool.inspect().thread_ids().len() < 6 {
            let threads = pool.inspect().thread_ids();
            busy.push(keep_busy(&pool, &world, threads[busy.len()], &gate));
            wait_until(|| {
                pool.inspect().thread_ids().len() > threads.len() || gate.inside() < threads.len()
            });
        }
        let threads = pool.inspect().thread_ids();
        let guests = threads.iter().map(|it| Guest::new(&pool, &world, &[*it]));
        let guests: Vec<_> = guests.collect();
        gate.let_through(busy.len());
        gate.wait_for(0);
        for _ in 0..3 {
            wait_until(|| world.clock().asleep() == pool.snapshot().threads);
            world.clock().advance(2 * keep_alive);
        }
        for (guest, thread) in guests.iter().zip(&threads) {
            assert_eq!(guest.send().called(), *thread);
        }
        let snapshot = pool.snapshot();
        assert_eq!((snapshot.strayed, snapshot.retired), (0, 0));
    });
}

/// An elastic pool that begins without threads of its own.
fn elastic(world: &Simulation, set: impl FnOnce(Builder) -> Builder) -> Pool {
    let simulated = SetKind::Simulated(world.clone());
    let pool = Pool::builder().threads(0..=3).handle_set(simulated);
    set(pool).build().unwrap()
}

/// Another thread that joins a pool, and a handle that keeps it busy: before that its handler may
/// stay.
struct Other {
    thread: thread::JoinHandle<io::Result<()>>,
    peer: SimPeer,
    gate: Arc<Gate>,
    recalls: mpsc::Receiver<Recall>,
    is_over: Arc<AtomicBool>,
}

impl Other {
    fn joins(pool: &Pool, world: &Simulation, stays: bool) -> Self {
        let joined = pool.clone();
        let thread = thread::spawn(move || joined.join());
        wait_until(|| world.clock().asleep() == 1);
        let ((stream, peer), gate) = (world.stream(), Gate::shut());
        let ((tell, recalls), is_over) = (mpsc::channel(), Arc::new(AtomicBool::new(false)));
        let (inside, over) = (Arc::clone(&gate), Arc::clone(&is_over));
        let handler = move |cx: &mut Context<'_, SimStream>| {
            cx.read(&mut [0; 1])?;
            if stays {
                tell.send(cx.recall()?).unwrap();
                let _ = cx.serve_until(Errand::default(), || over.load(Ordering::SeqCst))?;
            }
            inside.pass();
            Ok(Next::Close)
        };
        let handle = pool.register(stream, Interest::NONE, handler).unwrap();
        handle.pin_to(&[thread.thread().id()]).unwrap();
        handle.set_interest(Interest::READ).unwrap();
        Self {
            thread,
            peer,
            gate,
            recalls,
            is_over,
        }
    }

    /// It is busy, and so is the calling thread: whoever leads was called.
    fn leaves_somebody(self, pool: &Pool, world: &Simulation, processing: Processing<'_>) {
        self.gate.wait_for(1);
        let called = Guest::new(pool, world, &[]).send().called();
        assert_ne!(called, thread::current().id());
        assert_ne!(called, self.thread.thread().id());
        self.gate.let_through(1);
        drop(processing.run());
        assert!(pool.shutdown(LONG).is_clean());
        self.thread.join().unwrap().unwrap();
    }
}

/// L2: one that leads promotes, and relies on the only one that sleeps. That one was just handed
/// something that takes long: somebody else is called, who leads.
#[test]
fn who_was_handed_leaves_somebody_behind() {
    bounded(|| {
        for wake in [Wake::Adaptive, Wake::Eager].repeat(5) {
            let world = Simulation::new(1);
            let pool = elastic(&world, |pool| pool.wake(wake));
            let event = Guest::new(&pool, &world, &[]);
            let leader = by_hand::lead(&pool);
            let other = Other::joins(&pool, &world, false);
            other.peer.send(b"x");
            event.send();
            let processing = claim(leader).promote();
            assert_eq!(pool.snapshot().handed, 1);
            other.leaves_somebody(&pool, &world, processing);
        }
    });
}

/// One is handed something while another leads: nobody else is called.
#[test]
fn who_was_handed_beside_a_leader_calls_nobody() {
    bounded(|| {
        for wake in [Wake::Adaptive, Wake::Eager] {
            let world = Simulation::new(1);
            let pool = elastic(&world, |pool| pool.wake(wake));
            let event = Guest::new(&pool, &world, &[]);
            let leader = by_hand::lead(&pool);
            let other = Other::joins(&pool, &world, false);
            other.peer.send(b"x");
            event.send();
            let claimed = claim(leader);
            other.gate.wait_for(1);
            assert_eq!(pool.snapshot().grown, 0);
            other.leaves_somebody(&pool, &world, claimed.promote());
        }
    });
}

/// The same if that one's stay was just over.
#[test]
fn who_has_stayed_leaves_somebody_behind() {
    bounded(|| {
        for wake in [Wake::Adaptive, Wake::Eager].repeat(5) {
            let world = Simulation::new(1);
            let pool = elastic(&world, |pool| pool.wake(wake));
            let event = Guest::new(&pool, &world, &[]);
            let other = Other::joins(&pool, &world, true);
            let (peer, its_peer) = (&event.peer, &other.peer);
            let leader = thread::scope(|scope| {
                scope.spawn(|| {
                    wait_asleep(&pool, 1);
                    its_peer.send(b"x");
                    // If it leads, it passes that on for an event that is not its own.
                    peer.send(b"x");
                });
                by_hand::lead(&pool)
            });
            let recall = other.recalls.recv_timeout(LONG).unwrap();
            wait_asleep(&pool, 1);
            let claimed = claim(leader);
            other.is_over.store(true, Ordering::SeqCst);
            recall.now();
            let processing = claimed.promote();
            other.leaves_somebody(&pool, &world, processing);
        }
    });
}

/// The same for a thread that was called, and is handed something before it could lead: it is here,
/// so one more is called.
#[test]
fn who_was_called_and_handed_is_here() {
    bounded(|| {
        let (world, gate, door) = (Simulation::new(1), Gate::shut(), Gate::shut());
        let at_door = Arc::clone(&door);
        let pool = elastic(&world, |pool| {
            pool.thread_affinity(move |_| {
                at_door.pass();
                Vec::new()
            })
        });
        let [event, last] = [0, 1].map(|_| Guest::new(&pool, &world, &[]));
        event.send();
        let processing = claim(by_hand::lead(&pool)).promote();
        door.wait_for(1);
        let called = *pool.inspect().thread_ids().last().unwrap();
        let other = pool.clone();
        let (inside, within) = (Arc::clone(&gate), world.clone());
        let hands = move || {
            let follower = other.enter().unwrap();
            let (stream, peer) = within.stream();
            let handler = move |cx: &mut Context<'_, SimStream>| {
                cx.read(&mut [0; 1])?;
                inside.pass();
                Ok(Next::Close)
            };
            let handle = other.register(stream, Interest::NONE, handler).unwrap();
            handle.pin_to(&[called]).unwrap();
            handle.set_interest(Interest::READ).unwrap();
            peer.send(b"x");
            drop(find_nothing(take_lead(follower)));
            peer
        };
        let _peer = thread::spawn(hands).join().unwrap();
        assert_eq!(pool.snapshot().grown, 1);
        door.let_through(2);
        gate.wait_for(1);
        assert_ne!(last.send().called(), called);
        gate.let_through(1);
        drop(processing.run());
    });
}
