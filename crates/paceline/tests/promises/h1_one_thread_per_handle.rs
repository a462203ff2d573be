//! H1: an iterative handle is with at most one thread at a time; its events are handled in order.

use std::{
    io::{self, Read, Write},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread,
};

use crate::support::{
    bounded,
    by_hand::{self, Scene},
    tcp_pair, told, Random, Witness, LONG,
};
use paceline::{
    simulated::{Faults, SimPeer, SimStream},
    Closed, Context, EventHandler, Interest, Next, Pool,
};

/// Expects the bytes 0, 1, 2, ... and nobody else inside meanwhile.
struct InOrder {
    next: u8,
    inside: AtomicBool,
    offences: Arc<AtomicUsize>,
}

impl InOrder {
    fn new(offences: &Arc<AtomicUsize>) -> Self {
        Self {
            next: 0,
            inside: AtomicBool::new(false),
            offences: Arc::clone(offences),
        }
    }

    fn judge(&self, fine: bool) {
        self.offences
            .fetch_add(usize::from(!fine), Ordering::SeqCst);
    }

    fn enter(&self) {
        self.judge(!self.inside.swap(true, Ordering::SeqCst));
    }
}

impl<S> EventHandler<S> for InOrder
where
    for<'s> &'s S: Read + Write,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        self.enter();
        let mut buffer = [0; 7];
        let told = cx.read(&mut buffer);
        // Long enough for others to come in, if they could.
        thread::yield_now();
        for byte in &buffer[..*told.as_ref().unwrap_or(&0)] {
            self.judge(*byte == self.next);
            self.next = self.next.wrapping_add(1);
        }
        let told = told.and_then(|count| match count {
            0 => Ok(Next::Close),
            _ => cx.write_all(&buffer[..count]).map(|()| Next::Continue),
        });
        self.inside.store(false, Ordering::SeqCst);
        told
    }

    fn closed(&mut self, _: Closed) {
        self.enter();
    }
}

/// Many threads, few streams, many small edges: each handler is entered by one thread at a time and
/// sees its bytes in order. Two threads that read one stream tear it apart (E16).
#[test]
fn one_thread_at_a_time_and_in_order() {
    bounded(|| {
        let offences = Arc::new(AtomicUsize::new(0));
        let pool = Pool::builder().threads(8).build().unwrap();
        let clients: Vec<_> = (0..3)
            .map(|seed| {
                let (near, far) = tcp_pair();
                near.set_nodelay(true).unwrap();
                pool.register(near, Interest::READ, InOrder::new(&offences))
                    .unwrap();
                thread::spawn(move || send_in_order(far, seed))
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        assert!(pool.shutdown(LONG).is_clean());
        assert_eq!(offences.load(Ordering::SeqCst), 0);
    });
}

/// Sends 0, 1, 2, ... in many pieces and expects them back.
fn send_in_order(mut far: impl Read + Write, seed: u64) {
    let mut random = Random::new(seed);
    let (mut next, mut expected) = (0_u8, 0_u8);
    for _ in 0..1000 {
        let count = random.below(20) as usize + 1;
        for _ in 0..count {
            far.write_all(&[next]).unwrap();
            next = next.wrapping_add(1);
        }
        let mut answer = vec![0; count];
        far.read_exact(&mut answer).unwrap();
        for byte in answer {
            assert_eq!(byte, expected);
            expected = expected.wrapping_add(1);
        }
    }
}

/// The same in a world that tells its events twice, late, and one by one.
#[test]
fn doubled_and_stale_events_bring_nobody_in() {
    bounded(|| {
        let offences = Arc::new(AtomicUsize::new(0));
        let scene = Scene::with_threads(4, Witness::default());
        scene.world.set_faults(Faults::ALL);
        let peers: Vec<_> = (0..4)
            .map(|_| {
                let (stream, peer) = scene.world.stream();
                let handler = InOrder::new(&offences);
                scene
                    .pool
                    .register(stream, Interest::READ, handler)
                    .unwrap();
                peer
            })
            .collect();
        let mut sent = vec![0_u8; peers.len()];
        let mut random = Random::new(9);
        for _ in 0..2000 {
            let at = random.below(4) as usize;
            let (peer, next) = (&peers[at], &mut sent[at]);
            peer.send(&[*next]);
            *next = next.wrapping_add(1);
            // Now and then the answers are waited for, so that all have room.
            if *next % 16 == 0 {
                assert_eq!(peer.wait_for(16).len(), 16);
            }
        }
        assert!(scene.world.faults_injected() > 0);
        assert_eq!(offences.load(Ordering::SeqCst), 0);
    });
}

/// A handler that waits at a gate in each call.
struct Gated {
    entered: mpsc::Receiver<Vec<u8>>,
    gate: mpsc::Sender<()>,
    calls: Arc<AtomicUsize>,
}

impl Gated {
    /// A handler, which reads at most `most` bytes per call, and the way to hold and release it.
    fn new(most: usize) -> (Self, impl EventHandler<SimStream>) {
        let (entering, entered) = mpsc::channel();
        let (gate, open) = mpsc::channel();
        let calls = Arc::new(AtomicUsize::new(0));
        let gated = Self {
            entered,
            gate,
            calls: Arc::clone(&calls),
        };
        let handler = move |cx: &mut Context<'_, SimStream>| {
            calls.fetch_add(1, Ordering::SeqCst);
            let mut buffer = vec![0; most];
            let count = cx.read(&mut buffer)?;
            buffer.truncate(count);
            entering.send(buffer).unwrap();
            open.recv_timeout(LONG).unwrap();
            Ok(Next::Continue)
        };
        (gated, handler)
    }

    /// Waits until a thread is inside, and tells what it read.
    fn is_inside(&self) -> Vec<u8> {
        self.entered.recv_timeout(LONG).unwrap()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// A handle whose handling shows that the leader has looked at everything before it.
fn marker(scene: &Scene) -> impl Fn() {
    let (stream, peer): (_, SimPeer) = scene.world.stream();
    let pool = &scene.pool;
    pool.register(stream, Interest::READ, by_hand::echo)
        .unwrap();
    move || {
        peer.send(b"m");
        assert_eq!(peer.wait_for(1), b"m");
    }
}

/// Hundreds of edges come for a handle whose handler runs, and three threads have nothing to do:
/// none of them enters. When the handler returns everything is there, in order.
#[test]
fn a_flood_onto_a_busy_handle() {
    bounded(|| {
        let scene = Scene::with_threads(4, Witness::default());
        let pass = marker(&scene);
        let (stream, peer) = scene.world.stream();
        let (gated, handler) = Gated::new(1000);
        scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        peer.send(&[0]);
        assert_eq!(gated.is_inside(), [0]);
        for number in 1..=200 {
            peer.send(&[number]);
            if number % 50 == 0 {
                pass();
            }
        }
        assert_eq!(gated.calls(), 1, "somebody else came in");
        gated.gate.send(()).unwrap();
        assert_eq!(gated.is_inside(), (1..=200).collect::<Vec<u8>>());
        gated.gate.send(()).unwrap();
    });
}

/// A changed mask re-armed a handle in the middle of its upcall, and a second thread entered its
/// handler (ACE 4129). Here interest is changed in every way while the handler runs and input is
/// left: that is only recorded. What was said last counts when the handler returns.
#[test]
fn mask_change_while_deactivated_only_recorded() {
    bounded(|| {
        let scene = Scene::with_threads(4, Witness::default());
        let pass = marker(&scene);
        let (stream, peer) = scene.world.stream();
        let (gated, handler) = Gated::new(1);
        let handle = scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        peer.send(&[1, 2, 3]);
        assert_eq!(gated.is_inside(), [1]);
        let both = Interest::READ | Interest::WRITE;
        for interest in [Interest::NONE, both, Interest::WRITE, Interest::READ, both] {
            handle.set_interest(interest).unwrap();
            peer.send(&[4]);
            pass();
        }
        handle.set_interest(Interest::NONE).unwrap();
        pass();
        assert_eq!(gated.calls(), 1, "somebody else came in");
        gated.gate.send(()).unwrap();
        // Nothing is said until interest is back, though input is there.
        (0..20).for_each(|_| pass());
        assert_eq!(gated.calls(), 1, "nobody is interested");
        handle.set_interest(Interest::READ).unwrap();
        assert_eq!(gated.is_inside(), [2]);
        handle.set_interest(Interest::NONE).unwrap();
        gated.gate.send(()).unwrap();
    });
}

/// A handle is closed by another thread while its handler runs: `closed` waits for the handler.
#[test]
fn closed_is_not_told_into_a_running_handler() {
    bounded(|| {
        let scene = Scene::with_threads(3, Witness::default());
        let pass = marker(&scene);
        let (stream, peer) = scene.world.stream();
        let (gated, mut handler) = Gated::new(1);
        let (handler, end) = told(move |cx: &mut Context<'_, SimStream>| handler.ready(cx));
        let handle = scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        peer.send(&[1, 2]);
        gated.is_inside();
        handle.close().unwrap();
        pass();
        assert!(end.try_recv().is_err(), "the handler still runs");
        assert!(!peer.is_closed_by_pool());
        gated.gate.send(()).unwrap();
        assert!(matches!(end.recv_timeout(LONG), Ok(Closed::Requested)));
        peer.wait_closed();
        assert_eq!(gated.calls(), 1);
    });
}
