//! Each way a connection ends: `closed` is called once, with that reason, which the metrics and the
//! access log have too.

use std::{
    io,
    sync::{mpsc, Arc, Mutex},
    time::Duration,
};

use paceline_server::{
    codec::{line, Message},
    Ended, Engine, HalfSync, Limits, Next, Peer, Remote, Session,
};

use crate::support::{
    actor::Actor,
    bounded, times_ended,
    world::{assert_gets, finish, on_both_engines, World, MAIN},
};

/// A server that does as the items say.
fn serve(world: &World) -> paceline_server::Server {
    let calls = world.calls.clone();
    world.serve(Limits::default(), line(80), move || {
        Actor::new(&calls).on_item(|item, cx| match &item[..] {
            b"close" => {
                cx.reply("closing")?;
                Ok(Next::Close)
            }
            b"gently" => {
                cx.reply("closing")?;
                Ok(Next::CloseGently)
            }
            b"fail" => Err(io::Error::other("the disk is full")),
            b"panic" => panic!("a bug of the session"),
            _ => {
                cx.reply(item)?;
                Ok(Next::Continue)
            }
        })
    })
}

fn assert_ended(world: &World, server: &paceline_server::Server, name: &str, text: &str) {
    world.calls.wait_for(&format!("closed: {text}"));
    assert_eq!(world.calls.count("closed"), 1, "{:?}", world.calls.all());
    assert_eq!(times_ended(server, MAIN, name), 1);
    let log = world.log.text();
    let line = format!("ended={name} detail=\"{text}\"");
    assert!(log.lines().any(|it| it.contains(&line)), "{log}");
    assert_eq!(server.connections(), 0);
}

#[test]
fn finished() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        peer.send(b"close\nignored\n");
        assert_gets(&peer, "closing\r\n");
        peer.wait_closed();
        assert_ended(&world, &server, "finished", "finished");
        assert_eq!(world.calls.count("handle"), 1);
    });
}

#[test]
fn finished_gently() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        peer.send(b"gently\nignored\n");
        assert_gets(&peer, "closing\r\n");
        finish(&peer);
        assert_ended(&world, &server, "finished", "finished");
    });
}

#[test]
fn by_peer() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, "a\r\n");
        finish(&peer);
        assert_ended(&world, &server, "by_peer", "closed by the peer");
    });
}

#[test]
fn malformed() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        peer.send(&[b'x'; 90]);
        finish(&peer);
        let text = "malformed input: item is longer than 80 bytes";
        assert_ended(&world, &server, "malformed", text);
    });
}

#[test]
fn limit() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        world.pass_seconds(11);
        peer.wait_closed();
        assert_ended(&world, &server, "limit", "limit silent");
    });
}

#[test]
fn failed() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        peer.send(b"fail\nignored\n");
        peer.wait_closed();
        assert_ended(&world, &server, "failed", "failed: the disk is full");
    });
}

/// A peer that resets the connection has not ended it between two items.
#[test]
fn failed_by_a_reset() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, "a\r\n");
        world.settle();
        peer.reset();
        peer.wait_closed();
        assert_eq!(times_ended(&server, MAIN, "failed"), 1);
        assert_eq!(world.calls.count("closed: failed: "), 1);
    });
}

/// A panic of one session ended whole thread pools elsewhere. Here it ends one connection, and the
/// reason has its message; others go on.
#[test]
fn panic_closes_only_its_own_connection() {
    on_both_engines(|world| {
        let server = serve(&world);
        let (bad, good) = (world.inlet.connect(), world.inlet.connect());
        for _ in 0..2 {
            good.send(b"before\n");
            assert_gets(&good, "before\r\n");
        }
        bad.send(b"panic\n");
        bad.wait_closed();
        let text = "closed: the session panicked: a bug of the session";
        world.calls.wait_for(text);
        assert_eq!(world.calls.count("closed"), 1);
        assert_eq!(times_ended(&server, MAIN, "panicked"), 1);
        for _ in 0..20 {
            good.send(b"after\n");
            assert_gets(&good, "after\r\n");
        }
    });
}

#[test]
fn requested() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            Actor::new(&calls).on_item(|_, cx| {
                cx.remote().close();
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        peer.wait_closed();
        assert_ended(&world, &server, "requested", "closed on request");
    });
}

/// A server that is dropped closes its connections at once.
#[test]
fn shutdown() {
    on_both_engines(|world| {
        let server = serve(&world);
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        assert_gets(&peer, "a\r\n");
        world.settle();
        drop(server);
        peer.wait_closed();
        world.calls.wait_for("closed: the server ended");
        assert_eq!(world.calls.count("closed"), 1);
    });
}

/// The connection is reset while a worker has its session: `closed` is called once, when the worker
/// is done.
#[test]
fn closed_while_a_worker_has_the_session() {
    bounded(|| {
        let engine = Engine::HalfSyncHalfAsync(HalfSync::default().workers(1));
        let world = World::with(engine, 2);
        let (enter, entered) = mpsc::channel();
        let (let_go, go) = mpsc::channel::<()>();
        let (calls, go) = (world.calls.clone(), Arc::new(Mutex::new(go)));
        let server = world.serve(Limits::default(), line(80), move || {
            let (enter, go) = (enter.clone(), go.clone());
            Actor::new(&calls).on_item(move |_, cx| {
                enter.send(cx.remote()).unwrap();
                go.lock().unwrap().recv().unwrap();
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\n");
        entered.recv().unwrap().close();
        peer.wait_closed();
        assert!(!world.calls.has("closed: closed on request"));
        let_go.send(()).unwrap();
        world.calls.wait_for("closed: closed on request");
        assert_eq!(world.calls.count("closed"), 1);
        assert!(server.drain(Duration::from_secs(1)).is_clean());
    });
}

/// A session whose item "work" lasts until the test says so, and whose `closed` panics.
struct PanicsAtItsEnd {
    enter: mpsc::Sender<Remote>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Session for PanicsAtItsEnd {
    fn handle(&mut self, item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        if item == "work" {
            self.enter.send(cx.remote()).unwrap();
            self.go.lock().unwrap().recv().unwrap();
        }
        cx.reply(item)?;
        Ok(Next::Continue)
    }

    fn closed(&mut self, _: &Ended) {
        panic!("a bug of `closed`");
    }
}

/// A connection ended while a worker had its session, and a panic of `closed` ended that worker for
/// ever. Now the only worker goes on.
#[test]
fn a_worker_outlives_a_panic_of_closed() {
    bounded(|| {
        let engine = Engine::HalfSyncHalfAsync(HalfSync::default().workers(1));
        let world = World::with(engine, 2);
        let (enter, entered) = mpsc::channel();
        let (let_go, go) = mpsc::channel();
        let go = Arc::new(Mutex::new(go));
        let server = world.serve(Limits::default(), line(80), move || PanicsAtItsEnd {
            enter: enter.clone(),
            go: Arc::clone(&go),
        });
        let (bad, good) = (world.inlet.connect(), world.inlet.connect());
        bad.send(b"work\n");
        let remote = entered.recv().unwrap();
        good.send(b"a\n");
        remote.close();
        bad.wait_closed();
        let_go.send(()).unwrap();
        assert_gets(&good, "a\r\n");
        drop(server);
    });
}
