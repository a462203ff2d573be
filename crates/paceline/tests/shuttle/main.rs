//! The real pool on the simulated set, under shuttle's scheduler: random and adversarial schedules.
//!
//! Run by `cargo xtask shuttle`. Two modes. *Safety*: the world misbehaves throughout (doubled,
//! stale and single events, interrupted and short operations), and nothing may be lost, doubled,
//! misrouted or handled by two threads at once. *Liveness*: the faults stop, and everything must
//! finish; a thread that is never woken is a deadlock, which shuttle reports with a schedule to
//! replay. What must happen within so many steps of the clock is in `by_steps.rs`.

#![cfg(shuttle)]

mod bound;
mod by_steps;
mod concurrent_set;
mod elastic;
mod levels;
mod one_shot;
mod pins;
mod sets;
mod stays;

use std::{
    env, io,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc,
    },
    time::Duration,
};

use paceline::{
    simulated::{Faults, SimPeer, SimStream, Simulation},
    Builder, Closed, Context, EventHandler, Handle, Interest, Left, Next, Order, Pool, SetKind,
    Wake,
};
use shuttle::{rand::Rng, thread};

/// Runs `test` under both schedulers, as often as the environment asks for.
fn check(test: impl Fn() + Send + Sync + 'static) {
    let iterations = env::var("PACELINE_SHUTTLE_ITERATIONS")
        .map(|text| text.parse().expect("a number of iterations"))
        .unwrap_or(300);
    let test = Arc::new(test);
    let same = Arc::clone(&test);
    shuttle::check_random(move || test(), iterations);
    shuttle::check_pct(move || same(), iterations, 3);
}

/// What the handlers of one run have in common.
#[derive(Clone, Default)]
struct Tally {
    closed: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

/// Echoes; knows if two threads are inside at once (H1), or if anything comes after the end (H3).
struct Echo {
    busy: AtomicBool,
    over: bool,
    tally: Tally,
}

impl Echo {
    fn new(tally: &Tally) -> Self {
        Self {
            busy: AtomicBool::new(false),
            over: false,
            tally: tally.clone(),
        }
    }
}

impl EventHandler<SimStream> for Echo {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        assert!(!self.busy.swap(true, Ordering::SeqCst), "two threads (H1)");
        assert!(!self.over, "called after closed (H3)");
        thread::yield_now();
        let mut buffer = [0; 8];
        let read = cx.read(&mut buffer);
        self.busy.store(false, Ordering::SeqCst);
        match read? {
            0 => Ok(Next::Close),
            count => cx.write_all(&buffer[..count]).map(|()| Next::Continue),
        }
    }

    fn closed(&mut self, _why: Closed) {
        assert!(!self.over, "closed told twice");
        self.over = true;
        self.tally.closed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.tally.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn pool_on(world: &Simulation, threads: usize) -> Pool {
    builder_on(world, threads).build().unwrap()
}

fn builder_on(world: &Simulation, threads: usize) -> Builder {
    Pool::builder()
        .threads(threads)
        .tick(TICK)
        .parallelism(2)
        .handle_set(SetKind::Simulated(world.clone()))
}

/// The period of the standby's looks, on the virtual clock.
const TICK: Duration = Duration::from_millis(1);

fn connect(world: &Simulation, pool: &Pool, tally: &Tally) -> (Handle, SimPeer) {
    let (stream, peer) = world.stream();
    let handle = pool.register(stream, Interest::READ, Echo::new(tally));
    (handle.unwrap(), peer)
}

fn world() -> Simulation {
    Simulation::new(shuttle::rand::thread_rng().gen())
}

/// L1, L2, H1, H2 under faults: every byte comes back to the connection that sent it, in order.
fn every_byte_comes_back(wake: Wake, order: Order) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let builder = builder_on(&world, 3).wake(wake).order(order);
        let pool = match order {
            Order::Priority => builder.thread_priority(|index| index as u8),
            _ => builder,
        };
        let pool = pool.build().unwrap();
        let peers: Vec<_> = (0..3_u8)
            .map(|id| (id, connect(&world, &pool, &tally).1))
            .collect();
        for round in 0..3_u8 {
            for (id, peer) in &peers {
                peer.send(&[*id, round, *id]);
            }
        }
        // From here on only liveness counts.
        world.set_faults(Faults::NONE);
        for (id, peer) in &peers {
            let expected: Vec<u8> = (0..3).flat_map(|round| [*id, round, *id]).collect();
            assert_eq!(peer.wait_for(9), expected);
            peer.finish();
        }
        peers.iter().for_each(|(_, peer)| peer.wait_closed());
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
        assert_eq!(tally.closed.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn shuttle_every_byte_eager() {
    every_byte_comes_back(Wake::Eager, Order::Newest);
}

#[test]
fn shuttle_every_byte_eager_oldest() {
    every_byte_comes_back(Wake::Eager, Order::Oldest);
}

#[test]
fn shuttle_every_byte_eager_system() {
    every_byte_comes_back(Wake::Eager, Order::System);
}

#[test]
fn shuttle_every_byte_newest() {
    every_byte_comes_back(Wake::Adaptive, Order::Newest);
}

#[test]
fn shuttle_every_byte_oldest() {
    every_byte_comes_back(Wake::Adaptive, Order::Oldest);
}

#[test]
fn shuttle_every_byte_priority() {
    every_byte_comes_back(Wake::Adaptive, Order::Priority);
}

#[test]
fn shuttle_every_byte_system() {
    every_byte_comes_back(Wake::Adaptive, Order::System);
}

/// H2: kept output. The peer reads late; everything still arrives.
#[test]
fn shuttle_kept_output_arrives() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let pool = pool_on(&world, 2);
        let (_, peer) = connect(&world, &pool, &tally);
        let sent: Vec<u8> = (0..160).collect();
        peer.send(&sent);
        peer.finish();
        assert_eq!(peer.wait_for(160), sent);
        peer.wait_closed();
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}

/// H3, E5: handles are closed from elsewhere while their events are handled, and their descriptors
/// are reused at once. The new connection is served, `closed` is told once for each.
#[test]
fn shuttle_close_and_reuse() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        world.set_faults(Faults::ALL);
        let pool = pool_on(&world, 2);
        let (handle, old) = connect(&world, &pool, &tally);
        old.send(b"old");
        let closer = thread::spawn(move || handle.close().unwrap());
        let (_, new) = connect(&world, &pool, &tally);
        new.send(b"new");
        closer.join().unwrap();
        old.wait_closed();
        let (_, newest) = connect(&world, &pool, &tally);
        newest.send(b"newest");
        world.set_faults(Faults::NONE);
        assert_eq!(new.wait_for(3), b"new");
        assert_eq!(newest.wait_for(6), b"newest");
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
        assert_eq!(tally.closed.load(Ordering::SeqCst), 3);
        assert_eq!(tally.dropped.load(Ordering::SeqCst), 3);
    });
}

/// E3, I3, I4: application threads join for a time and leave, in whatever role their time ends,
/// while a thread of the pool's own stays. Nobody keeps the lead, nothing is lost.
fn join_and_leave(world: fn() -> Simulation) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        let pool = pool_on(&world, 1);
        let gone = Arc::new(AtomicUsize::new(0));
        let guests: Vec<_> = (1..3)
            .map(|seconds| {
                let (pool, gone) = (pool.clone(), Arc::clone(&gone));
                thread::spawn(move || {
                    let left = pool.join_timeout(Duration::from_secs(seconds)).unwrap();
                    assert_eq!(left, Left::TimedOut);
                    gone.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        let (_, peer) = connect(&world, &pool, &tally);
        peer.send(b"a");
        world.clock().advance(Duration::from_secs(1));
        peer.send(b"b");
        world.clock().advance(Duration::from_secs(1));
        // A guest that joins after both steps of the clock still needs its time to pass.
        while gone.load(Ordering::SeqCst) < guests.len() {
            world.clock().advance(Duration::from_secs(1));
            thread::yield_now();
        }
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        assert_eq!(peer.wait_for(2), b"ab");
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}

#[test]
fn shuttle_join_and_leave() {
    join_and_leave(world);
}

/// S1, S2, S3: a shutdown at any moment, from a thread of its own or by dropping the pool, while
/// events come. All threads go, every registration ends once, everything is dropped.
fn shutdown_at_any_moment(world: fn() -> Simulation) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        let pool = pool_on(&world, 2);
        let (_, first) = connect(&world, &pool, &tally);
        let (handle, second) = connect(&world, &pool, &tally);
        let guest = {
            let pool = pool.clone();
            // It may come too late, or be closed out.
            thread::spawn(move || drop(pool.join()))
        };
        let closer = thread::spawn(move || drop(handle.close()));
        first.send(b"first");
        second.send(b"second");
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.stuck_threads.is_empty(), "{report}");
        guest.join().unwrap();
        closer.join().unwrap();
        drop(pool);
        first.wait_closed();
        second.wait_closed();
        assert_eq!(tally.closed.load(Ordering::SeqCst), 2);
        assert_eq!(tally.dropped.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn shuttle_shutdown_at_any_moment() {
    shutdown_at_any_moment(world);
}

/// S3: the last handle to the pool is dropped while its threads work. Nothing hangs, nothing is
/// told twice, and all is dropped when the threads are gone.
fn drop_at_any_moment(world: fn() -> Simulation) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        let pool = pool_on(&world, 2);
        let (_, peer) = connect(&world, &pool, &tally);
        peer.send(b"x");
        drop(pool);
        peer.wait_closed();
        assert_eq!(tally.closed.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn shuttle_drop_at_any_moment() {
    drop_at_any_moment(world);
}

/// S2: a registration with input waiting races with a shutdown. It is refused, or its input is
/// handled, or the report is not clean.
fn register_against_shutdown(world: fn() -> Simulation) {
    check(move || {
        let (world, tally) = (world(), Tally::default());
        let pool = pool_on(&world, 1);
        let (stream, peer) = world.stream();
        peer.send(b"x");
        let registrar = {
            let (pool, tally) = (pool.clone(), tally.clone());
            thread::spawn(move || {
                pool.register(stream, Interest::READ, Echo::new(&tally))
                    .is_ok()
            })
        };
        let report = pool.shutdown(Duration::from_secs(1));
        let accepted = registrar.join().unwrap();
        let answered = peer.received() == b"x";
        assert!(!accepted || answered || !report.is_clean(), "{report}");
    });
}

#[test]
fn shuttle_register_against_shutdown() {
    register_against_shutdown(world);
}

/// H2: suspended and resumed while a visit has claimed input and a notification: nothing of it is
/// lost.
#[test]
fn shuttle_suspended_while_claimed() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let pool = pool_on(&world, 2);
        let (handle, peer) = connect(&world, &pool, &tally);
        let meddler = thread::spawn(move || {
            handle.notify().unwrap();
            handle.suspend().unwrap();
            handle.resume().unwrap();
        });
        peer.send(b"x");
        meddler.join().unwrap();
        assert_eq!(peer.wait_for(1), b"x");
        assert!(pool.shutdown(Duration::from_secs(1)).is_clean());
    });
}
