//! Handlers that are stuck are reported by name, once, also when every thread of the pool is stuck.
//! On a virtual clock: an hour takes no time, and a report comes neither too early nor too late.

use std::{
    fs, io,
    sync::{mpsc, Arc},
    time::Duration,
};

use crate::support::{bounded, gate::Gate, wait_until, LONG};
use paceline::{
    observe::{Observer, Role, Stuck},
    simulated::{SimPeer, SimStream, Simulation},
    Context, EventHandler, Handle, Interest, Next, Pool, SetKind,
};

const LIMIT: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

/// Waits at a gate; blocks as one who tells, or untold.
struct AtGate {
    gate: Arc<Gate>,
    tells: bool,
}

impl EventHandler<SimStream> for AtGate {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        while cx.read(&mut [0; 8]).is_ok() {}
        if self.tells {
            cx.blocking(|| self.gate.pass())
        } else {
            self.gate.pass()
        }
        cx.write_all(b"done").map(|()| Next::Continue)
    }
}

/// A pool whose stuck handlers are told here.
struct Scene {
    world: Simulation,
    pool: Pool,
    gate: Arc<Gate>,
    threads: usize,
    told: mpsc::Receiver<Stuck>,
}

impl Scene {
    fn new(threads: usize) -> Self {
        let world = Simulation::new(1);
        let (tell, told) = mpsc::channel();
        let pool = Pool::builder()
            .threads(threads)
            .name("stuck")
            .handle_set(SetKind::Simulated(world.clone()))
            .stuck_after(LIMIT, move |stuck| drop(tell.send(stuck.clone())));
        let scene = Self {
            world,
            pool: pool.build().unwrap(),
            gate: Gate::shut(),
            threads,
            told,
        };
        scene.rest(0);
        scene
    }

    /// Everyone sleeps but those that are in handlers; the monitor too.
    fn rest(&self, inside: usize) {
        let asleep = self.threads - inside + 1;
        wait_until(|| self.world.clock().asleep() == asleep);
    }

    /// One thread gets stuck.
    fn stick(&self, tells: bool) -> (Handle, SimPeer) {
        let inside = self.gate.inside();
        let (stream, peer) = self.world.stream();
        let gate = Arc::clone(&self.gate);
        let handler = AtGate { gate, tells };
        let handle = self.pool.register(stream, Interest::READ, handler);
        peer.send(b"x");
        self.gate.wait_for(inside + 1);
        (handle.unwrap(), peer)
    }

    fn next(&self) -> Stuck {
        self.told.recv_timeout(LONG).expect("somebody is told")
    }
}

/// No timer of the pool could do it: there is nobody to call it. Each is told once, with its name;
/// and once more when it is back.
#[test]
fn told_when_all_threads_are_stuck() {
    bounded(|| {
        let scene = Scene::new(1);
        let (handle, peer) = scene.stick(false);
        scene.rest(1);
        scene.world.clock().advance(LIMIT - Duration::from_nanos(1));
        scene.rest(1);
        assert!(scene.told.try_recv().is_err(), "not yet");
        scene.world.clock().advance(Duration::from_nanos(1));
        let stuck = scene.next();
        assert_eq!((stuck.thread, stuck.name.as_str()), (0, "stuck-0"));
        assert_eq!((stuck.role, stuck.is_over), (Role::Processing, false));
        assert_eq!((stuck.call.handle, stuck.call.lasts), (handle.id(), LIMIT));
        assert!(stuck.call.handler.ends_with("AtGate"), "{stuck}");

        for _ in 0..3 {
            scene.rest(1);
            scene.world.clock().advance(LIMIT);
        }
        scene.rest(1);
        assert!(scene.told.try_recv().is_err(), "once is enough");

        scene.gate.let_through(1);
        assert_eq!(peer.wait_for(4), b"done");
        scene.rest(0);
        scene.world.clock().advance(LIMIT);
        let back = scene.next();
        assert_eq!((back.is_over, back.call.handle), (true, handle.id()));
        scene.rest(0);
        assert!(scene.told.try_recv().is_err());
    });
}

/// Two calls of the same handler, one after the other, are two reports. One that begins between two
/// looks is told when it is due, not when the next look would have come. And who has told that it
/// blocks is stuck all the same.
#[test]
fn each_call_is_told_when_it_is_due() {
    bounded(|| {
        let scene = Scene::new(2);
        scene.world.clock().advance(3 * SECOND);
        scene.rest(0);
        let (_, peer) = scene.stick(true);
        scene.world.clock().advance(4 * SECOND);
        scene.rest(1);
        assert!(scene.told.try_recv().is_err(), "four seconds");
        scene.world.clock().advance(SECOND);
        let first = scene.next();
        assert_eq!((first.role, first.call.lasts), (Role::Away, LIMIT));
        scene.gate.let_through(1);
        assert_eq!(peer.wait_for(4), b"done");

        peer.send(b"y");
        scene.gate.wait_for(1);
        scene.rest(1);
        scene.world.clock().advance(LIMIT);
        let (over, second) = (scene.next(), scene.next());
        assert!(over.is_over && over.call.handle == first.call.handle);
        assert!(!second.is_over && second.call.handle == first.call.handle);
        scene.gate.let_through(1);
        assert_eq!(peer.wait_for(4), b"done");
    });
}

/// Who does not want to be told can ask. And observers are told too, also one that came later.
#[test]
fn stuck_calls_can_be_asked_for() {
    bounded(|| {
        struct Listening(mpsc::Sender<Stuck>);
        impl Observer for Listening {
            fn stuck(&self, stuck: &Stuck) {
                let _ = self.0.send(stuck.clone());
            }
        }
        let scene = Scene::new(2);
        let (tell, heard) = mpsc::channel();
        let _observation = scene.pool.observe(Listening(tell));
        let (handle, _peer) = scene.stick(false);
        scene.rest(1);
        assert_eq!(scene.pool.inspect().stuck(SECOND), []);
        scene.world.clock().advance(LIMIT);
        let stuck = scene.pool.inspect().stuck(LIMIT);
        assert_eq!((stuck.len(), stuck[0].call.handle), (1, handle.id()));
        assert_eq!(scene.pool.inspect().stuck(LIMIT + SECOND), []);
        assert_eq!(heard.recv_timeout(LONG).unwrap(), scene.next());
        let text = stuck[0].to_string();
        assert!(
            text.contains("is stuck for 5s: handle ") && text.contains("AtGate"),
            "{text}"
        );
        scene.gate.let_through(1);
    });
}

/// How many threads of this process are monitors of the pool with this name.
fn monitors(pool: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name =
        |task: io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    let names = tasks.filter_map(name);
    names
        .filter(|it| it.trim() == format!("{pool}-monitor"))
        .count()
}

/// The monitor keeps nothing alive, and ends with the pool; in a pool that is dropped while its
/// thread is stuck, too.
#[test]
fn the_monitor_ends_with_the_pool() {
    bounded(|| {
        let (world, gate) = (Simulation::new(1), Gate::shut());
        let pool = Pool::builder()
            .threads(1)
            .name("lonely")
            .handle_set(SetKind::Simulated(world.clone()))
            .stuck_after(LIMIT, |_| panic!("a panic of the hook is dropped"));
        let pool = pool.build().unwrap();
        let (stream, peer) = world.stream();
        let handler = AtGate {
            gate: Arc::clone(&gate),
            tells: false,
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"x");
        gate.wait_for(1);
        wait_until(|| world.clock().asleep() == 1 && monitors("lonely") == 1);
        world.clock().advance(LIMIT);
        wait_until(|| world.clock().asleep() == 1);
        drop(pool);
        wait_until(|| monitors("lonely") == 0);
        gate.let_through(1);
        peer.wait_closed();
    });
}

/// Also if the limit is shorter than a look, so that it never sleeps.
#[test]
fn the_monitor_ends_if_it_never_sleeps() {
    bounded(|| {
        let pool = Pool::builder()
            .threads(1)
            .name("hasty")
            .stuck_after(Duration::from_nanos(1), |_| {});
        let pool = pool.build().unwrap();
        wait_until(|| monitors("hasty") == 1);
        drop(pool);
        wait_until(|| monitors("hasty") == 0);
    });
}

/// A limit that every handler exceeds is refused.
#[test]
fn a_limit_of_zero_is_refused() {
    let refused = Pool::builder().stuck_after(Duration::ZERO, |_| {}).build();
    let error = refused.expect_err("no handler takes no time");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("stuck_after"), "{error}");
}
