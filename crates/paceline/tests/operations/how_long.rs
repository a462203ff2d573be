//! Histograms: how long turns, handlers and blind times took. The handlers move the virtual clock
//! themselves, so every length is known.

use std::{io, net::UdpSocket, sync::mpsc, thread, time::Duration};

use crate::support::{
    bounded,
    by_hand::{self, echo, find_nothing, take_lead, turn},
    wait_until, LONG,
};
use paceline::{
    observe::{open_metrics, Histograms},
    simulated::{SimPeer, SimStream, Simulation},
    ConcurrentContext, Context, EventHandler, Interest, Next, Pool, SetKind,
};

const MILLI: Duration = Duration::from_millis(1);

struct Scene {
    world: Simulation,
    pool: Pool,
}

impl Scene {
    fn new() -> Self {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .board(true)
            .handle_set(SetKind::Simulated(world.clone()));
        let pool = pool.build().unwrap();
        Self { world, pool }
    }

    fn serve(&self, handler: impl EventHandler<SimStream>) -> SimPeer {
        let (stream, peer) = self.world.stream();
        self.pool.register(stream, Interest::READ, handler).unwrap();
        peer
    }

    /// A connection whose handler takes so long.
    fn takes(&self, span: Duration) -> SimPeer {
        let world = self.world.clone();
        self.serve(move |cx: &mut Context<'_, SimStream>| {
            world.clock().advance(span);
            echo(cx)
        })
    }

    /// So many turns, one after the other, for one event of each of these.
    fn turns(&self, count: usize, peers: &[&SimPeer]) {
        let mut follower = self.pool.enter().unwrap();
        for _ in 0..count {
            peers.iter().for_each(|peer| peer.send(b"x"));
            for _ in peers {
                follower = turn(follower);
            }
        }
        // Whoever leads on tells when it waits.
        drop(find_nothing(take_lead(follower)));
    }

    fn times(&self) -> Histograms {
        self.pool.inspect().histograms().expect("there is a board")
    }
}

/// Count, sum, and the longest are exact; quantiles are at most a quarter too long, and never too
/// short. What a thread has counted stays when it has gone.
#[test]
fn handlers_are_counted_by_their_length() {
    bounded(|| {
        let scene = Scene::new();
        let (short, long) = (scene.takes(MILLI), scene.takes(50 * MILLI));
        scene.turns(9, &[&short]);
        scene.turns(1, &[&long]);
        assert_eq!(scene.pool.inspect().threads(), []);
        let times = scene.times();
        for histogram in [&times.handler, &times.turn] {
            assert_eq!((histogram.count(), histogram.sum()), (10, 59 * MILLI));
            assert_eq!(
                (histogram.max(), histogram.quantile(1.0)),
                (50 * MILLI, 50 * MILLI)
            );
            assert_eq!(histogram.mean(), 59 * MILLI / 10);
            let (p50, p99) = (histogram.p50(), histogram.p99());
            assert!(p50 >= MILLI && p50 <= MILLI * 5 / 4, "{p50:?}");
            assert_eq!(p99, 50 * MILLI);
            let buckets: Vec<_> = histogram.buckets().collect();
            assert_eq!(
                buckets.iter().map(|it| it.count).collect::<Vec<_>>(),
                [9, 1]
            );
            assert!(buckets[0].from <= MILLI && MILLI < buckets[0].to);
        }
        assert_eq!(times.blind.count(), 0, "nobody was asleep");
    });
}

/// Work for afterwards belongs to the turn, and not to the handler.
#[test]
fn afterwards_is_not_the_handlers_time() {
    bounded(|| {
        let scene = Scene::new();
        let world = scene.world.clone();
        let peer = scene.serve(move |cx: &mut Context<'_, SimStream>| {
            world.clock().advance(2 * MILLI);
            let world = world.clone();
            cx.after_release(move |_| world.clock().advance(3 * MILLI));
            echo(cx)
        });
        let plain = scene.takes(MILLI);
        scene.turns(2, &[&peer, &plain]);
        let times = scene.times();
        assert_eq!((times.turn.count(), times.turn.sum()), (4, 12 * MILLI));
        assert_eq!((times.handler.count(), times.handler.sum()), (4, 6 * MILLI));
    });
}

/// Nobody leads while a handler runs, and a follower sleeps: that is a blind time as long as the
/// handler.
#[test]
fn blind_times_are_counted() {
    bounded(|| {
        const SHORT: Duration = Duration::from_micros(50);
        let scene = Scene::new();
        let peer = scene.takes(SHORT);
        let follower = pool_with_a_sleeper(&scene);
        peer.send(b"x");
        let follower = turn(follower);
        let times = scene.times();
        // One was nothing but an echo, which took no time.
        assert_eq!((times.blind.count(), times.blind.sum()), (2, SHORT));
        assert_eq!(scene.pool.snapshot().longest_blind, SHORT);
        drop(follower);
        let _ = scene.pool.shutdown(Duration::ZERO);
    });
}

/// This thread leads next, and another one is asleep.
fn pool_with_a_sleeper(scene: &Scene) -> paceline::turn::Follower<'_> {
    let peer = scene.serve(echo);
    peer.send(b"x");
    let leader = by_hand::lead(&scene.pool);
    let pool = scene.pool.clone();
    thread::spawn(move || pool.join());
    wait_until(|| scene.world.clock().asleep() == 1);
    let follower = by_hand::claim(leader).promote().run();
    assert_eq!(peer.received(), b"x");
    follower
}

/// The handler of a concurrent handle is called after the handle was given back: that call is the
/// handler's time.
#[test]
fn concurrent_handlers_are_counted_too() {
    bounded(|| {
        let pool = Pool::builder().threads(2).board(true).build().unwrap();
        let (near, far) = (
            UdpSocket::bind("127.0.0.1:0"),
            UdpSocket::bind("127.0.0.1:0"),
        );
        let (near, far) = (near.unwrap(), far.unwrap());
        let address = near.local_addr().unwrap();
        let (tell, told) = mpsc::channel();
        let handler = move |cx: &mut ConcurrentContext<'_, UdpSocket>| -> io::Result<Next> {
            cx.try_read(|socket| socket.recv(&mut [0; 8]))?;
            let _ = tell.send(());
            Ok(Next::Continue)
        };
        pool.register_concurrent(near, Interest::READ, handler)
            .unwrap();
        for _ in 0..10 {
            far.send_to(b"x", address).unwrap();
            told.recv_timeout(LONG).unwrap();
        }
        wait_until(|| {
            let times = pool.inspect().histograms().unwrap();
            times.handler.count() >= 10 && times.turn.count() == times.handler.count()
        });
    });
}

/// And it is as long as the call was.
#[test]
fn concurrent_handlers_take_their_own_time() {
    let scene = Scene::new();
    let (world, (stream, _peer)) = (scene.world.clone(), scene.world.stream());
    let handler = move |_: &mut ConcurrentContext<'_, SimStream>| {
        world.clock().advance(2 * MILLI);
        Ok(Next::Continue)
    };
    let pool = &scene.pool;
    let handle = pool.register_concurrent(stream, Interest::NONE, handler);
    handle.unwrap().notify().unwrap();
    assert_eq!(by_hand::serve_all(pool), 1);
    let times = scene.times();
    assert_eq!((times.handler.count(), times.handler.sum()), (1, 2 * MILLI));
}

/// What monitoring systems read: cumulative buckets with the same bounds in every text, the sum,
/// and the count.
#[test]
fn histograms_are_told_as_text() {
    bounded(|| {
        let scene = Scene::new();
        let (short, long) = (scene.takes(MILLI), scene.takes(60_000 * MILLI));
        let head = |text: &str| -> Vec<String> {
            let sample = |line: &str| line.rsplit_once(' ').map(|(sample, _)| sample.to_owned());
            text.lines().filter_map(sample).collect()
        };
        let before = open_metrics(&[("p", &scene.pool)]);
        scene.turns(3, &[&short]);
        scene.turns(1, &[&long]);
        let text = open_metrics(&[("p", &scene.pool)]);
        assert_eq!(head(&before), head(&text));
        for line in [
            "# TYPE paceline_handler_seconds histogram",
            "# UNIT paceline_handler_seconds seconds",
            "paceline_handler_seconds_bucket{pool=\"p\",le=\"0.000524287\"} 0",
            "paceline_handler_seconds_bucket{pool=\"p\",le=\"0.001048575\"} 3",
            "paceline_handler_seconds_bucket{pool=\"p\",le=\"34.359738367\"} 3",
            "paceline_handler_seconds_bucket{pool=\"p\",le=\"+Inf\"} 4",
            "paceline_handler_seconds_sum{pool=\"p\"} 60.003",
            "paceline_handler_seconds_count{pool=\"p\"} 4",
            "paceline_blind_seconds_count{pool=\"p\"} 0",
            "paceline_turn_seconds_count{pool=\"p\"} 4",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
        }
        let counters = open_metrics(&[("p", scene.pool.snapshot())]);
        assert!(!counters.contains("histogram"), "a snapshot has none");
    });
}
