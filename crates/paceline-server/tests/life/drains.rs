//! The graceful end: idle connections, half items, sessions at work, the deadline and its report.

use std::{
    io::Write,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc, Arc, Mutex,
    },
    time::Duration,
};

use paceline_server::{codec::line, Limit, Limits, Next, Receipt, Server};

use crate::support::{
    actor::{Actor, Calls},
    bounded, client, times_met, wait_until,
    world::{assert_gets, finish, on_both_engines, Drain, World, MAIN},
};

const LONG: Duration = Duration::from_secs(30);

/// A session whose item "work" lasts until the test says so.
struct Work {
    server: Server,
    entered: mpsc::Receiver<()>,
    let_go: mpsc::Sender<()>,
}

fn serve(world: &World) -> Work {
    let (enter, entered) = mpsc::channel();
    let (let_go, go) = mpsc::channel();
    let (calls, go) = (world.calls.clone(), Arc::new(Mutex::new(go)));
    let server = world.serve(Limits::default(), line(80), move || {
        let (enter, go) = (enter.clone(), Arc::clone(&go));
        Actor::new(&calls).on_item(move |item, cx| {
            if item == "work" {
                enter.send(()).unwrap();
                let _: Result<(), _> = cx.blocking(|| go.lock().unwrap().recv());
            }
            cx.reply(item)?;
            Ok(Next::Continue)
        })
    });
    Work {
        server,
        entered,
        let_go,
    }
}

/// axum 923, hyper 2730: the shutdown hung on idle connections. Here they close at once, before any
/// time has passed, and the report says that nothing was cut.
#[test]
fn idle_keepalive_closes_on_drain() {
    on_both_engines(|world| {
        let Work { server, .. } = serve(&world);
        let peers: Vec<_> = (0..5).map(|_| world.inlet.connect()).collect();
        for peer in &peers {
            peer.send(b"a\n");
            assert_gets(peer, "a\r\n");
        }
        world.settle();
        let drain = Drain::begin(&world, &server, LONG);
        for peer in &peers {
            wait_until(|| peer.is_output_ended());
            finish(peer);
        }
        let report = drain.end();
        assert!(report.is_clean(), "{report}");
        let main = report.services.iter().find(|it| it.name == MAIN).unwrap();
        assert_eq!((main.served, main.items), (5, 5));
        assert_eq!((main.open_before, main.cut), (5, 0));
        assert_eq!(world.calls.count("closed: the server ended"), 5);
    });
}

/// An idle connection ends; one that has said nothing yet may still begin, for five seconds. New
/// connections are refused.
#[test]
fn drain_idle() {
    on_both_engines(|world| {
        let Work { server, .. } = serve(&world);
        let (idle, late, silent) = (
            world.inlet.connect(),
            world.inlet.connect(),
            world.inlet.connect(),
        );
        idle.send(b"a\n");
        assert_gets(&idle, "a\r\n");
        world.settle();
        let drain = Drain::begin(&world, &server, LONG);
        wait_until(|| idle.is_output_ended());
        finish(&idle);
        world.wait_asleep();
        assert!(world.inlet.connect().is_closed_by_pool());
        world.simulation.clock().advance(Duration::from_secs(4));
        late.send(b"b\n");
        assert_gets(&late, "b\r\n");
        finish(&late);
        assert!(!silent.is_closed_by_pool());
        assert!(!drain.is_done());
        world.wait_asleep();
        world.simulation.clock().advance(Duration::from_secs(2));
        silent.wait_closed();
        let report = drain.end();
        assert!(report.is_clean(), "{report}");
        assert_eq!(times_met(&server, MAIN, Limit::Silent), 1);
        assert_eq!(world.calls.count("draining"), 2);
    });
}

/// Half an item is there when the drain begins: its rest may still come, and is answered.
#[test]
fn drain_half_request() {
    on_both_engines(|world| {
        let Work { server, .. } = serve(&world);
        let (half, idle) = (world.inlet.connect(), world.inlet.connect());
        half.send(b"a\nhal");
        assert_gets(&half, "a\r\n");
        idle.send(b"a\n");
        assert_gets(&idle, "a\r\n");
        world.settle();
        let drain = Drain::begin(&world, &server, LONG);
        wait_until(|| idle.is_output_ended());
        finish(&idle);
        world.wait_asleep();
        assert!(!half.is_output_ended());
        half.send(b"f\n");
        assert_gets(&half, "half\r\n");
        wait_until(|| half.is_output_ended());
        finish(&half);
        let report = drain.end();
        assert!(report.is_clean(), "{report}");
    });
}

/// A session at work finishes, its answer is sent whole, and the items that came with its own are
/// handled.
#[test]
fn drain_in_work() {
    on_both_engines(|world| {
        let work = serve(&world);
        let (peer, idle) = (world.inlet.connect(), world.inlet.connect());
        idle.send(b"a\n");
        assert_gets(&idle, "a\r\n");
        let last = Drain::last_connection(&world);
        peer.send(b"work\nnext\n");
        work.entered.recv().unwrap();
        let drain = Drain::begin_after(&last, &work.server, LONG);
        wait_until(|| idle.is_output_ended());
        finish(&idle);
        assert!(!drain.is_done());
        work.let_go.send(()).unwrap();
        assert_gets(&peer, "work\r\nnext\r\n");
        wait_until(|| peer.is_output_ended());
        finish(&peer);
        let report = drain.end();
        assert!(report.is_clean(), "{report}");
        assert_eq!(world.calls.count("draining"), 2);
    });
}

/// At the deadline the rest is cut, and the report names the listener, and how many of its
/// connections were open and cut.
#[test]
fn drain_deadline_names_routes() {
    on_both_engines(|world| {
        let Work { server, .. } = serve(&world);
        let (half, idle) = (world.inlet.connect(), world.inlet.connect());
        half.send(b"a\nhal");
        assert_gets(&half, "a\r\n");
        idle.send(b"a\n");
        assert_gets(&idle, "a\r\n");
        world.settle();
        let drain = Drain::begin(&world, &server, Duration::from_secs(3));
        wait_until(|| idle.is_output_ended());
        finish(&idle);
        world.wait_asleep();
        assert!(!drain.is_done() && !half.is_output_ended());
        let report = drain.end_late(&world);
        half.wait_closed();
        assert!(!report.is_clean());
        let text = report.to_string();
        assert!(
            text.contains(
                "main: 2 connections served, 2 items, 0 refused, 2 open at the end, 1 cut"
            ),
            "{text}"
        );
        let probe = report.services.iter().find(|it| it.name == "probe");
        assert_eq!(probe.unwrap().cut, 0);
        assert_eq!(world.calls.count("closed: the server ended"), 2);
    });
}

/// A drain that is asked to end at once cuts what is open, before its time.
#[test]
fn end_now_cuts() {
    on_both_engines(|world| {
        let Work { server, .. } = serve(&world);
        let half = world.inlet.connect();
        half.send(b"a\nhal");
        assert_gets(&half, "a\r\n");
        world.settle();
        let drain = Drain::begin(&world, &server, Duration::from_secs(1_000_000));
        world.wait_asleep();
        assert!(!drain.is_done());
        server.end_now();
        half.wait_closed();
        let report = drain.end_late(&world);
        let main = report.services.iter().find(|it| it.name == MAIN).unwrap();
        assert_eq!((main.open_before, main.cut), (1, 1));
    });
}

/// Readiness says no first. The server goes on accepting for the drain delay, so that load
/// balancers can find out; then it refuses.
#[test]
fn readiness_flips_first() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let builder = world.builder().drain_delay(Duration::from_secs(10));
        let builder = builder.listener(world.listen(), line(80), move |_| Actor::new(&calls));
        let server = world.start(builder);
        assert!(server.is_ready());
        let drain = Drain::begin_unseen(&server, LONG);
        assert!(!server.is_ready());
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, "a\r\n");
        assert_eq!(world.calls.count("draining"), 0);
        wait_until(|| {
            world.simulation.clock().advance(Duration::from_secs(1));
            crate::support::pause();
            peer.is_output_ended()
        });
        assert!(world.inlet.connect().is_closed_by_pool());
        finish(&peer);
        let report = drain.end();
        assert!(report.is_clean(), "{report}");
    });
}

/// A second drain waits for the first one, and finds nothing left.
#[test]
fn a_second_drain_finds_nothing() {
    on_both_engines(|world| {
        let Work { server, .. } = serve(&world);
        assert!(server.drain(LONG).is_clean());
        let second = server.drain(LONG);
        assert!(second.services.iter().all(|it| it.open_before == 0));
    });
}

/// A drain waited for a timer of the pool, which no thread could call while each was in a session:
/// two seconds became the time of the longest session. Now it ends in time, and counts both.
#[test]
fn drain_ends_while_all_threads_are_busy() {
    bounded(|| {
        let (enter, entered) = mpsc::channel();
        let (let_go, go) = mpsc::channel::<()>();
        let (calls, go) = (Calls::default(), Arc::new(Mutex::new(go)));
        let make = move |_: &_| {
            let (enter, go) = (enter.clone(), Arc::clone(&go));
            Actor::new(&calls).on_item(move |_, _| {
                enter.send(()).unwrap();
                let _: Result<(), _> = go.lock().unwrap().recv();
                Ok(Next::Continue)
            })
        };
        let server = Server::builder().listen("127.0.0.1:0", line(80), make);
        let server = server.threads(2).start().unwrap();
        let mut clients = [(); 2].map(|()| client(server.local_addr().unwrap()));
        for client in &mut clients {
            client.0.write_all(b"work\n").unwrap();
            entered.recv().unwrap();
        }
        let drain = Drain::begin_unseen(&server, Duration::from_millis(100));
        let report = drain.end();
        assert_eq!(report.services[0].cut, 2, "{report}");
        drop(let_go);
    });
}

/// An answer in parts was cut between two of them, and its connection counted as ended in order. Now
/// the answer is finished first.
#[test]
fn drain_finishes_an_answer_in_parts() {
    on_both_engines(|world| {
        let (calls, mut parts) = (world.calls.clone(), 3);
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls)
                .on_item(|_, cx| {
                    cx.send(vec![b'0'; 500])?;
                    Ok(Next::Again)
                })
                .on_again(move |cx| {
                    parts -= 1;
                    cx.send(vec![b'1'; 500])?;
                    Ok(if parts > 0 {
                        Next::Again
                    } else {
                        Next::Continue
                    })
                })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        world.calls.wait_for("handle a");
        world.settle();
        let drain = Drain::begin(&world, &server, LONG);
        world.wait_asleep();
        assert_gets(&peer, [b'0'; 500]);
        assert_gets(&peer, [b'1'; 1500]);
        wait_until(|| peer.is_output_ended());
        finish(&peer);
        assert!(drain.end().is_clean());
        assert_eq!(world.calls.count("again"), 3);
        assert_eq!(world.calls.count("draining"), 1);
    });
}

/// Mail that waited behind kept output was dropped by a drain, and a message that was sent counted as
/// missed. Now the connection sends all of it first.
#[test]
fn drain_delivers_the_mail() {
    on_both_engines(|world| {
        let (remotes, received) = mpsc::channel();
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            let remotes = remotes.clone();
            Actor::new(&calls).on_item(move |item, cx| {
                cx.reply(item)?;
                remotes.send(cx.remote()).unwrap();
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, "a\r\n");
        let remote = received.recv().unwrap();
        let (done, receipts) = mpsc::channel();
        for part in [b'0', b'1', b'2'] {
            let done = done.clone();
            let told = move |receipt: Receipt| done.send(receipt.reached).unwrap();
            assert!(remote.send_then(vec![part; 500], told));
        }
        world.settle();
        let drain = Drain::begin(&world, &server, LONG);
        world.wait_asleep();
        for part in [b'0', b'1', b'2'] {
            assert_gets(&peer, [part; 500]);
        }
        wait_until(|| peer.is_output_ended());
        finish(&peer);
        assert!(drain.end().is_clean());
        assert_eq!(receipts.iter().take(3).sum::<usize>(), 3);
    });
}

/// A proxy's leg that waits for an answer is between two items, and was closed at once. Now its
/// session says "not yet", and is asked again when something has happened.
#[test]
fn a_session_puts_off_the_drain() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            let waits = Arc::new(AtomicBool::new(true));
            let still = Arc::clone(&waits);
            Actor::new(&calls)
                .on_item(move |item, cx| {
                    still.store(item != "answer", Ordering::Relaxed);
                    cx.reply(item)?;
                    Ok(Next::Continue)
                })
                .on_draining(move |cx| {
                    if waits.load(Ordering::Relaxed) {
                        return Next::Continue;
                    }
                    cx.send("bye").unwrap();
                    Next::CloseGently
                })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, "a\r\n");
        world.settle();
        let drain = Drain::begin(&world, &server, LONG);
        for (item, echo) in [("b\n", "b\r\n"), ("answer\n", "answer\r\nbye")] {
            world.wait_asleep();
            assert!(!peer.is_output_ended() && !drain.is_done());
            peer.send(item.as_bytes());
            assert_gets(&peer, echo);
        }
        wait_until(|| peer.is_output_ended());
        finish(&peer);
        assert!(drain.end().is_clean());
        world.calls.wait_for("closed: the server ended");
    });
}
