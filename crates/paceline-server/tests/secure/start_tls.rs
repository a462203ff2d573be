//! TLS that begins in mid-session.

use std::{
    sync::{mpsc, Arc, OnceLock},
    time::Duration,
};

use paceline::{Level, Pool, SetKind};
use paceline_server::{codec::line, Engine, Limit, Limits, Next, Room, Server};

use crate::support::{
    actor::Actor,
    bounded,
    tls::{Identity, TlsPeer},
    wait_until,
    world::{assert_gets, on_both_engines, World},
};

/// A server that begins TLS after the item "STARTTLS", and whose connections are in a room.
fn serve(world: &World, identity: &Identity, room: &Room) -> Server {
    let (calls, tls, room) = (world.calls.clone(), identity.tls(), room.clone());
    world.serve(Limits::default(), line(80), move || {
        let (tls, room) = (tls.clone(), room.clone());
        Actor::new(&calls)
            .on_start(move |cx| {
                room.join(cx);
                Ok(Next::Continue)
            })
            .on_item(move |item, cx| {
                if item.starts_with(b"STARTTLS") {
                    match cx.start_tls(&tls) {
                        Ok(()) => cx.reply("220 go on")?,
                        Err(error) => cx.reply(format!("500 {error}"))?,
                    }
                    if item == "STARTTLS again" {
                        return Ok(Next::Again);
                    }
                } else {
                    let how = cx.tls().map_or("plain", |info| info.version);
                    cx.reply(format!("{how}: {}", item.as_str()?))?;
                }
                Ok(Next::Continue)
            })
    })
}

fn begin(world: &World, identity: &Identity, command: &str) -> TlsPeer {
    let peer = world.inlet.connect();
    peer.send(format!("hello\n{command}\n").as_bytes());
    assert_gets(&peer, "plain: hello\r\n220 go on\r\n");
    TlsPeer::new(peer, &identity.client(), "localhost")
}

/// The conversation goes on with TLS, `start` is called again, and TLS can't begin twice.
#[test]
fn tls_begins_in_mid_session() {
    on_both_engines(|world| {
        let (identity, room) = (Identity::new("localhost"), Room::new());
        let _server = serve(&world, &identity, &room);
        for command in ["STARTTLS", "STARTTLS again"] {
            let mut client = begin(&world, &identity, command);
            client.shake_hands();
            client.send(b"secret\nSTARTTLS\n");
            client.assert_gets(
                "TLSv1.3: secret\r\n500 start TLS: the connection has TLS already\r\n",
            );
            std::mem::forget(client);
        }
        assert_eq!(world.calls.count("start"), 4);
    });
}

/// CVE-2011-0411: a command in plain text that is injected behind STARTTLS was answered as if it had
/// come through TLS. Here the connection fails, and the session sees nothing of it.
#[test]
fn starttls_injection() {
    on_both_engines(|world| {
        let (identity, room) = (Identity::new("localhost"), Room::new());
        let _server = serve(&world, &identity, &room);
        let peer = world.inlet.connect();
        peer.send(b"STARTTLS\ninjected\n");
        peer.wait_closed();
        wait_until(|| world.calls.count("closed: failed: 9 bytes in plain text") == 1);
        assert!(!world.calls.has("handle injected"));
    });
}

/// A client that begins TLS and does not go on is closed in time. What rooms have for it waits in
/// its mailbox, bounded: it is neither sent in plain text, nor reached.
#[test]
fn mail_waits_for_the_handshake() {
    on_both_engines(|world| {
        let (identity, room) = (Identity::new("localhost"), Room::new());
        let server = serve(&world, &identity, &room);
        let mut finishes = begin(&world, &identity, "STARTTLS");
        let stops = begin(&world, &identity, "STARTTLS");
        world.settle();
        let (done, receipts) = mpsc::channel();
        let message = room.message(vec![b'x'; 100]);
        message
            .on_done(move |receipt| done.send(receipt).unwrap())
            .send();
        world.settle();
        assert!(receipts.try_recv().is_err());
        assert!(finishes.peer.received().is_empty() && stops.peer.received().is_empty());
        finishes.shake_hands();
        finishes.assert_gets([b'x'; 100]);
        world.pass_seconds(11);
        stops.peer.wait_closed();
        let receipt = receipts.recv().unwrap();
        assert_eq!((receipt.reached, receipt.missed), (1, 1));
        world
            .calls
            .wait_for(&format!("closed: limit {}", Limit::HandshakeTime));
        drop(server);
    });
}

/// An end of the output that is asked for during the handshake waits for its end, as other mail does.
#[test]
fn the_end_of_output_waits_for_the_handshake() {
    on_both_engines(|world| {
        let (identity, calls) = (Identity::new("localhost"), world.calls.clone());
        let (tls, (met, remotes)) = (identity.tls(), mpsc::channel());
        let _server = world.serve(Limits::default(), line(80), move || {
            let (tls, met) = (tls.clone(), met.clone());
            Actor::new(&calls).on_item(move |item, cx| {
                cx.reply(item)?;
                cx.start_tls(&tls)?;
                met.send(cx.remote()).unwrap();
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"STARTTLS\n");
        assert_gets(&peer, "STARTTLS\r\n");
        world.settle();
        let remote = remotes.recv().unwrap();
        assert!(remote.send(*b"last"));
        remote.end_output();
        world.settle();
        assert!(!peer.is_output_ended());
        let mut client = TlsPeer::connected(peer, &identity.client(), "localhost");
        client.assert_gets("last");
        wait_until(|| client.peer.is_output_ended());
        assert!(client.is_ended_properly());
    });
}

/// The time for a login was forgotten at STARTTLS, so that it never passed. Now a deadline of the
/// session goes on through the handshake.
#[test]
fn a_deadline_goes_on_through_the_handshake() {
    on_both_engines(|world| {
        let (identity, calls) = (Identity::new("localhost"), world.calls.clone());
        let tls = identity.tls();
        let server = world.serve(Limits::default(), line(80), move || {
            let tls = tls.clone();
            Actor::new(&calls).on_item(move |item, cx| {
                if item == "STARTTLS" {
                    cx.set_deadline(Duration::from_secs(20));
                    cx.start_tls(&tls)?;
                }
                cx.reply(item)?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"STARTTLS\n");
        assert_gets(&peer, "STARTTLS\r\n");
        let mut client = TlsPeer::new(peer, &identity.client(), "localhost");
        world.pass_seconds(5);
        client.shake_hands();
        for _ in 0..2 {
            client.send(b"guess\n");
            client.assert_gets("guess\r\n");
            world.pass_seconds(7);
        }
        world.pass_seconds(2);
        client.peer.wait_closed();
        world.assert_ended_by(&server, Limit::Deadline);
    });
}

/// A session that asked for TLS and for another level in one call got the level alone, and went on in
/// plain text. Now it gets both.
#[test]
fn tls_begins_on_another_level() {
    bounded(|| {
        let world = World::with(Engine::LeaderFollowers, 2);
        let (identity, calls) = (Identity::new("localhost"), world.calls.clone());
        let (tls, known) = (identity.tls(), Arc::new(OnceLock::<Level>::new()));
        let level = Arc::clone(&known);
        let make = move |_: &_| {
            let (tls, level) = (tls.clone(), Arc::clone(&level));
            Actor::new(&calls).on_item(move |item, cx| {
                cx.reply(item)?;
                if item == "STARTTLS" {
                    cx.start_tls(&tls)?;
                    return cx.move_to(level.get().unwrap());
                }
                Ok(Next::Continue)
            })
        };
        let beside = SetKind::Simulated(world.simulation.beside());
        let bulk = Pool::builder().threads(1).handle_set(beside);
        let builder = world.builder().level("bulk", bulk);
        let server = world.start(builder.listener(world.listen(), line(80), make));
        known.set(server.level("bulk").unwrap().clone()).unwrap();
        let peer = world.inlet.connect();
        peer.send(b"STARTTLS\n");
        assert_gets(&peer, "STARTTLS\r\n");
        let mut client = TlsPeer::connected(peer, &identity.client(), "localhost");
        client.send(b"hello\n");
        client.assert_gets("hello\r\n");
    });
}
