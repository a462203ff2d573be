//! Service levels: listeners that name one, and connections that move there.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::Duration,
};

use paceline::{Handle, Level, Move, Pool, SetKind};
use paceline_server::{codec::line, Engine, Limit, Limits, Listen, Next, Server};

use crate::support::{
    actor::{Actor, Calls},
    bounded, wait_until,
    world::{assert_gets, World},
};

type Known = Arc<Mutex<Option<Level>>>;

/// A server with the level "bulk" beside the main one, whose sessions move there and back on the
/// word "move". Threads have the names of their pools.
fn serve(world: &World, limits: Limits) -> Server {
    let known: Known = Arc::default();
    let (calls, level) = (world.calls.clone(), Arc::clone(&known));
    let make = move |_: &_| {
        let level = Arc::clone(&level);
        let calls = calls.clone();
        Actor::new(&calls.clone()).on_item(move |item, cx| {
            calls.note(format!("on {:?}", thread::current().name().unwrap_or("")));
            cx.reply(item)?;
            if item == "move" {
                let level = level.lock().unwrap().clone().unwrap();
                return cx.move_to(&level);
            }
            Ok(Next::Continue)
        })
    };
    let beside = SetKind::Simulated(world.simulation.beside());
    let bulk = Pool::builder().threads(1).name("bulk").handle_set(beside);
    let builder = world.builder().level("bulk", bulk);
    let listen = world.listen().limits(limits);
    let server = world.start(builder.listener(listen, line(80), make));
    *known.lock().unwrap() = server.level("bulk").cloned();
    server
}

/// A connection moves with all that it has: items that have come with the one that moves it are
/// handled there, without a further event.
#[test]
fn items_behind_a_move_are_handled() {
    bounded(|| {
        let world = World::with(Engine::LeaderFollowers, 2);
        let _server = serve(&world, Limits::default());
        let peer = world.inlet.connect();
        peer.send(b"a\nmove\nb\nc\n");
        assert_gets(&peer, "a\r\nmove\r\nb\r\nc\r\n");
        let on = world.calls.all();
        let on: Vec<_> = on.iter().filter(|call| call.starts_with("on ")).collect();
        assert_eq!(on[0], on[1]);
        assert!(on[2].contains("bulk") && on[3].contains("bulk"), "{on:?}");
        assert!(!on[1].contains("bulk"), "{on:?}");
    });
}

/// A move to the level in which the connection is already changes nothing, and loses nothing.
#[test]
fn a_move_to_the_same_level() {
    bounded(|| {
        let world = World::with(Engine::LeaderFollowers, 2);
        let _server = serve(&world, Limits::default());
        let peer = world.inlet.connect();
        peer.send(b"move\nmove\nb\nmove\n");
        assert_gets(&peer, "move\r\nmove\r\nb\r\nmove\r\n");
        peer.send(b"c\n");
        assert_gets(&peer, "c\r\n");
    });
}

/// The limits of a connection move with it.
#[test]
fn limits_move_along() {
    bounded(|| {
        let world = World::with(Engine::LeaderFollowers, 2).beside(1);
        let limits = Limits::default().item_time(Duration::from_secs(3));
        let server = serve(&world, limits);
        let peer = world.inlet.connect();
        peer.send(b"move\nhal");
        assert_gets(&peer, "move\r\n");
        world.pass_seconds(4);
        peer.wait_closed();
        world.assert_ended_by(&server, Limit::ItemTime);
    });
}

/// A listener that names a level is served there; one that names an unknown level is an error.
#[test]
fn a_listener_has_a_level() {
    bounded(|| {
        let calls = Calls::default();
        let noted = calls.clone();
        let make = move |_: &_| {
            let noted = noted.clone();
            Actor::new(&noted.clone()).on_item(move |item, cx| {
                noted.note(format!("on {:?}", thread::current().name().unwrap_or("")));
                cx.reply(item)?;
                Ok(Next::Continue)
            })
        };
        let listen = Listen::tcp("127.0.0.1:0").level("bulk");
        let bulk = Pool::builder().threads(1).name("bulk");
        let server = Server::builder()
            .level("bulk", bulk)
            .listener(listen, line(80), make)
            .start()
            .unwrap();
        let mut client = crate::support::client(server.local_addr().unwrap());
        client.ask("a\n", "a\r\n");
        assert!(calls.all().iter().any(|call| call.starts_with("on \"bulk")));
    });
}

/// Moves a connection to and fro, until the test lets go.
fn move_to_and_fro(mut handle: Handle, levels: [Level; 2], stop: &AtomicBool) {
    for level in levels.iter().cycle() {
        while !stop.load(Ordering::Relaxed) {
            match handle.move_to(level) {
                Ok(Move::Moved(new)) => {
                    handle = new;
                    break;
                }
                Ok(Move::Busy) => thread::yield_now(),
                // The connection has ended.
                Err(_) => return,
            }
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// A connection moved while another thread sent to it: the notification was for the handle that the
/// connection had before, and nothing that was sent later was delivered either; `close` was lost
/// likewise. Now every move is followed by a turn.
#[test]
fn requests_find_a_connection_that_moves() {
    bounded(|| {
        let world = World::with(Engine::LeaderFollowers, 2);
        let (met, made) = mpsc::channel();
        let beside = SetKind::Simulated(world.simulation.beside());
        let bulk = Pool::builder().threads(1).handle_set(beside);
        let make = move |_: &_| {
            let met = met.clone();
            Actor::new(&Calls::default()).on_start(move |cx| {
                met.send((cx.remote(), cx.handle())).unwrap();
                Ok(Next::Continue)
            })
        };
        let builder = world.builder().level("bulk", bulk);
        let server = world.start(builder.listener(world.listen(), line(80), make));
        let levels = ["bulk", "main"].map(|name| server.level(name).unwrap().clone());
        for _ in 0..50 {
            let peer = world.inlet.connect();
            let (remote, handle) = made.recv().unwrap();
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| move_to_and_fro(handle, levels.clone(), &stop));
                let _stop = StopOnDrop(&stop);
                for _ in 0..50 {
                    assert!(remote.send(*b"letter"));
                    assert_gets(&peer, "letter");
                }
                remote.close();
                wait_until(|| peer.is_closed_by_pool());
            });
        }
    });
}

/// Lets the other thread go also if an assertion fails.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
