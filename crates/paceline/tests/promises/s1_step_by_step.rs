//! S1 by steps: a shutdown on a clock that stands still until the test moves it. Who goes, goes
//! because it was woken, and not because the time is over.

use std::{
    io,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::support::{bounded, wait_until, Witness, LONG};
use paceline::{
    observe::Role,
    simulated::{SimPeer, SimStream, Simulation},
    Context, Interest, Next, Pool, SetKind, ShutdownReport,
};

/// Two threads: one is in a handler and waits for permission to leave, the other leads and sleeps.
struct Scene {
    world: Simulation,
    pool: Pool,
    witness: Witness,
    permission: mpsc::Sender<()>,
    _peer: SimPeer,
}

impl Scene {
    /// The handler says `next` in the end.
    fn new(next: Next) -> Self {
        let (world, witness) = (Simulation::new(1), Witness::default());
        let pool = Pool::builder()
            .threads(2)
            .handle_set(SetKind::Simulated(world.clone()))
            .observer(witness.clone())
            .build()
            .unwrap();
        let (tell, inside) = mpsc::channel();
        let (permission, gate) = mpsc::channel::<()>();
        let (stream, peer) = world.stream();
        let handler = move |cx: &mut Context<'_, SimStream>| -> io::Result<Next> {
            cx.read(&mut [0; 8])?;
            cx.blocking(|| {
                tell.send(()).unwrap();
                gate.recv_timeout(LONG).expect("permission comes");
            });
            Ok(next)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"x");
        inside.recv_timeout(LONG).unwrap();
        let scene = Self {
            world,
            pool,
            witness,
            permission,
            _peer: peer,
        };
        scene.until_asleep(1);
        scene
    }

    fn shut_down(&self, within: Duration) -> JoinHandle<ShutdownReport> {
        let pool = self.pool.clone();
        thread::spawn(move || pool.shutdown(within))
    }

    fn until_asleep(&self, count: usize) {
        wait_until(|| self.world.clock().asleep() == count);
    }
}

/// The last handle ends on a thread that does not lead, while the leader sleeps: it is woken, finds
/// nothing left, and everyone goes.
#[test]
fn last_end_wakes_the_leader() {
    bounded(|| {
        let scene = Scene::new(Next::Close);
        let ends = scene.shut_down(LONG);
        scene.until_asleep(2);
        scene.permission.send(()).unwrap();
        let report = ends.join().unwrap();
        assert!(report.is_clean(), "{report}");
    });
}

/// Two ask for the end at once, and the second one takes nothing back: what is not done yet ends
/// when it is.
#[test]
fn asking_twice_is_asking() {
    bounded(|| {
        let scene = Scene::new(Next::Continue);
        let first = scene.shut_down(LONG);
        scene.until_asleep(2);
        let second = scene.shut_down(LONG);
        scene.until_asleep(3);
        scene.permission.send(()).unwrap();
        for ends in [first, second] {
            let report = ends.join().unwrap();
            assert!(report.is_clean(), "{report}");
        }
    });
}

/// A handler does not come to an end. When the time to drain is over the leader is woken and goes,
/// though nothing happens in its set; only the thread in the handler is stuck.
#[test]
fn leader_is_sent_home() {
    bounded(|| {
        let scene = Scene::new(Next::Continue);
        let ends = scene.shut_down(Duration::from_secs(10));
        scene.until_asleep(2);
        scene.world.clock().advance(Duration::from_secs(9));
        scene.witness.wait_for(Role::Gone, 1);
        scene.until_asleep(1);
        scene.world.clock().advance(Duration::from_secs(1));
        let report = ends.join().unwrap();
        assert_eq!(report.stuck_threads.len(), 1, "{report}");
        assert_eq!(report.busy_handles, 1, "{report}");
        scene.permission.send(()).unwrap();
    });
}
