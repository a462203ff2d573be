//! What the half-sync engine can do: refuse when its queue is full, refuse what has waited too long,
//! and serve some listeners before others.

use std::{
    sync::{mpsc, Arc, Mutex},
    time::Duration,
};

use paceline::{simulated::SimPeer, Pool, SetKind};
use paceline_server::{
    codec::line, Engine, HalfSync, Inlet, Limit, Listen, Next, Peer, Server, Session,
};

use crate::support::{
    actor::{Actor, Calls},
    bounded, wait_until,
    world::{assert_gets, finish, World},
};

/// A server with one worker, whose item "work" lasts until the test says so.
struct Busy {
    world: World,
    server: Server,
    entered: mpsc::Receiver<()>,
    let_go: mpsc::Sender<()>,
}

fn busy(settings: HalfSync, others: impl FnOnce(&World) -> Vec<Listen>) -> Busy {
    let world = World::with(Engine::HalfSyncHalfAsync(settings.workers(1)), 2);
    let (enter, entered) = mpsc::channel();
    let (let_go, go) = mpsc::channel();
    let go = Arc::new(Mutex::new(go));
    let calls = world.calls.clone();
    let make = move || worker_session(&calls, &enter, &go);
    let listen = world.listen().refusal("-ERR overloaded\r\n");
    let main = make.clone();
    let mut builder = world.builder().listener(listen, line(80), move |_| main());
    for other in others(&world) {
        let make = make.clone();
        builder = builder.listener(other, line(80), move |_| make());
    }
    let server = world.start(builder);
    Busy {
        world,
        server,
        entered,
        let_go,
    }
}

fn worker_session(
    calls: &Calls,
    enter: &mpsc::Sender<()>,
    go: &Arc<Mutex<mpsc::Receiver<()>>>,
) -> impl Session {
    let (enter, go) = (enter.clone(), Arc::clone(go));
    Actor::new(calls).on_item(move |item, cx| {
        if item == "work" {
            enter.send(()).unwrap();
            let _: Result<(), _> = go.lock().unwrap().recv();
        }
        cx.reply(item)?;
        Ok(Next::Continue)
    })
}

/// tiny_http starts threads without a bound, tokio up to 512 by surprise. Here the queue is bounded:
/// one connection too many gets its refusal, the limit is counted and named, and those that wait
/// are served.
#[test]
fn full_queue_refuses_with_a_reply() {
    bounded(|| {
        let busy = busy(HalfSync::default().capacity(1).age_limit(None), |_| {
            Vec::new()
        });
        let world = &busy.world;
        let (working, waiting, refused) = (
            world.inlet.connect(),
            world.inlet.connect(),
            world.inlet.connect(),
        );
        world.wait_asleep();
        working.send(b"work\n");
        busy.entered.recv().unwrap();
        waiting.send(b"waits\n");
        wait_until(|| {
            busy.server
                .open_metrics()
                .contains("paceline_server_queue 1\n")
        });
        refused.send(b"too many\n");
        assert_gets(&refused, "-ERR overloaded\r\n");
        finish(&refused);
        world.assert_ended_by(&busy.server, Limit::Overload);
        busy.let_go.send(()).unwrap();
        assert_gets(&working, "work\r\n");
        assert_gets(&waiting, "waits\r\n");
        assert!(!world.calls.has("handle too many"));
    });
}

/// A connection that has waited too long in the queue gets the refusal instead of a late answer.
#[test]
fn what_has_waited_too_long_is_refused() {
    bounded(|| {
        let busy = busy(
            HalfSync::default().age_limit(Duration::from_secs(5)),
            |_| Vec::new(),
        );
        let world = &busy.world;
        let (working, waiting) = (world.inlet.connect(), world.inlet.connect());
        world.wait_asleep();
        working.send(b"work\n");
        busy.entered.recv().unwrap();
        waiting.send(b"waits\n");
        wait_until(|| {
            busy.server
                .open_metrics()
                .contains("paceline_server_queue 1\n")
        });
        world.wait_asleep();
        world.simulation.clock().advance(Duration::from_secs(6));
        busy.let_go.send(()).unwrap();
        assert_gets(&waiting, "-ERR overloaded\r\n");
        assert_gets(&working, "work\r\n");
        finish(&waiting);
        world.assert_ended_by(&busy.server, Limit::Overload);
        assert!(!world.calls.has("handle waits"));
    });
}

/// The time that a worker takes is not the client's: neither its silence nor its item is too long.
#[test]
fn the_workers_time_is_not_the_clients() {
    bounded(|| {
        let busy = busy(HalfSync::default().age_limit(None), |_| Vec::new());
        let world = &busy.world;
        let peer = world.inlet.connect();
        world.wait_asleep();
        peer.send(b"work\nhal");
        busy.entered.recv().unwrap();
        for _ in 0..10 {
            world.wait_asleep();
            world.simulation.clock().advance(Duration::from_secs(70));
        }
        busy.let_go.send(()).unwrap();
        assert_gets(&peer, "work\r\n");
        world.pass_seconds(4);
        peer.send(b"f\n");
        assert_gets(&peer, "half\r\n");
    });
}

/// The time in which a part of an item waits for a worker is not the client's either.
#[test]
fn the_time_in_the_queue_is_not_the_clients() {
    bounded(|| {
        let busy = busy(HalfSync::default().age_limit(None), |_| Vec::new());
        let world = &busy.world;
        let (working, peer) = (world.inlet.connect(), world.inlet.connect());
        peer.send(b"ha");
        world.settle();
        working.send(b"work\n");
        busy.entered.recv().unwrap();
        peer.send(b"l");
        wait_until(|| {
            busy.server
                .open_metrics()
                .contains("paceline_server_queue 1\n")
        });
        for _ in 0..10 {
            world.wait_asleep();
            world.simulation.clock().advance(Duration::from_secs(70));
        }
        busy.let_go.send(()).unwrap();
        assert_gets(&working, "work\r\n");
        world.pass_seconds(4);
        peer.send(b"f\n");
        assert_gets(&peer, "half\r\n");
    });
}

/// Items of a listener of higher priority are served first, though they came last.
#[test]
fn listeners_have_priorities() {
    bounded(|| {
        let urgent = Arc::new(Mutex::new(None));
        let made = Arc::clone(&urgent);
        let busy = busy(HalfSync::default(), move |world| {
            let inlet = Inlet::new(&world.simulation);
            *made.lock().unwrap() = Some(inlet.clone());
            vec![Listen::simulated(&inlet).name("urgent").priority(1)]
        });
        let world = &busy.world;
        let urgent = urgent.lock().unwrap().clone().unwrap();
        let (working, usual, urgent) = (
            world.inlet.connect(),
            world.inlet.connect(),
            urgent.connect(),
        );
        world.wait_asleep();
        working.send(b"work\n");
        busy.entered.recv().unwrap();
        usual.send(b"usual\n");
        wait_until(|| {
            busy.server
                .open_metrics()
                .contains("paceline_server_queue 1\n")
        });
        urgent.send(b"urgent\n");
        wait_until(|| {
            busy.server
                .open_metrics()
                .contains("paceline_server_queue 2\n")
        });
        busy.let_go.send(()).unwrap();
        assert_gets(&usual, "usual\r\n");
        assert_gets(&urgent, "urgent\r\n");
        let all = world.calls.all();
        let place = |name: &str| {
            all.iter()
                .position(|call| call == &format!("handle {name}"))
        };
        assert!(place("urgent") < place("usual"), "{all:?}");
    });
}

/// Leader/Followers has an age limit too, that of the pool: a connection that has waited in the
/// line for longer gets the refusal.
#[test]
fn overload() {
    bounded(|| {
        let world = World::with(Engine::LeaderFollowers, 1);
        let (enter, entered) = mpsc::channel();
        let (let_go, go) = mpsc::channel::<()>();
        let go = Arc::new(Mutex::new(go));
        let calls = world.calls.clone();
        let set = SetKind::Simulated(world.simulation.clone());
        let pool = Pool::builder().threads(1).handle_set(set);
        let pool = pool.age_limit(Duration::from_secs(5));
        let listen = world.listen().refusal("-ERR overloaded\r\n");
        let make = move |_: &_| worker_session(&calls, &enter, &go);
        let server = world.builder_on(pool).listener(listen, line(80), make);
        let server = world.start(server);
        let peers = [(); 3].map(|()| world.inlet.connect());
        world.wait_asleep();
        peers[0].send(b"work\n");
        entered.recv().unwrap();
        // When the only thread is back it finds both, and one waits in the line for the other.
        peers[1].send(b"work\n");
        peers[2].send(b"work\n");
        let_go.send(()).unwrap();
        entered.recv().unwrap();
        world.simulation.clock().advance(Duration::from_secs(6));
        let_go.send(()).unwrap();
        let_go.send(()).unwrap();
        wait_until(|| peers.iter().any(SimPeer::is_output_ended));
        world.wait_asleep();
        let mut answers = peers.each_ref().map(SimPeer::received);
        answers.sort();
        assert_eq!(
            answers,
            [&b"-ERR overloaded\r\n"[..], b"work\r\n", b"work\r\n"]
        );
        peers
            .iter()
            .filter(|it| it.is_output_ended())
            .for_each(finish);
        world.assert_ended_by(&server, Limit::Overload);
    });
}

/// A session that asks a worker to move it to another level gets an error that says why.
#[test]
fn a_worker_moves_nothing() {
    bounded(|| {
        let settings = HalfSync::default().workers(1);
        let world = World::with(Engine::HalfSyncHalfAsync(settings), 2);
        let beside = SetKind::Simulated(world.simulation.beside());
        let level: Arc<Mutex<Option<paceline::Level>>> = Arc::default();
        let known = Arc::clone(&level);
        let make = move |_: &_| {
            let known = Arc::clone(&known);
            move |_: paceline_server::codec::Message<'_>, cx: &mut Peer<'_>| {
                let level = known.lock().unwrap().clone().unwrap();
                let error = cx.move_to(&level).unwrap_err();
                cx.reply(error.to_string())?;
                Ok(Next::Continue)
            }
        };
        let builder = world.builder().listener(world.listen(), line(200), make);
        let bulk = Pool::builder().threads(1).handle_set(beside);
        let server = world.start(builder.level("bulk", bulk));
        *level.lock().unwrap() = server.level("bulk").cloned();
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        let text = "move to level bulk: a worker runs the session that asks\r\n";
        assert_gets(&peer, text);
    });
}
