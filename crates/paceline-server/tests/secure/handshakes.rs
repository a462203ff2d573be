//! Handshakes that do not end, come byte by byte, or come in floods.

use std::time::Duration;

use paceline_server::{codec::line, tls::Tls, Limit, Limits, Next, Server};

use crate::support::{
    actor::Actor,
    times_met,
    tls::{Identity, TlsPeer},
    world::{on_both_engines, Drain, World, MAIN},
};

pub(super) fn serve(world: &World, tls: &Tls, limits: Limits) -> Server {
    let calls = world.calls.clone();
    let listen = world.listen().tls(tls).limits(limits);
    let make = move |_: &_| Actor::new(&calls);
    let builder = world.builder().listener(listen, line(80), make);
    world.start(builder)
}

/// A client that says nothing, one that stops in its first record, and one that does not finish:
/// each is closed in ten seconds, however it dribbles, holds no thread, and its session was never
/// started.
#[test]
fn tls_silent() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let server = serve(&world, &identity.tls(), Limits::default());
        let config = identity.client();
        let silent = world.inlet.connect();
        let mut dribbles = TlsPeer::new(world.inlet.connect(), &config, "localhost");
        let mut stops = TlsPeer::new(world.inlet.connect(), &config, "localhost");
        let hello = dribbles.outgoing();
        let outgoing = stops.outgoing();
        stops.peer.send(&outgoing);
        for second in 0..9 {
            dribbles.peer.send(&hello[second..=second]);
            while !stops.peer.received().is_empty() {
                world.wait_asleep();
            }
            world.pass_seconds(1);
        }
        assert!(!silent.is_closed_by_pool() && !dribbles.peer.is_closed_by_pool());
        world.pass_seconds(2);
        for peer in [&silent, &dribbles.peer, &stops.peer] {
            peer.wait_closed();
        }
        assert_eq!(
            world.calls.count("closed: limit handshake_time"),
            3,
            "{:?}",
            world.calls.all()
        );
        assert_eq!(world.calls.count("start"), 0);
        assert_eq!(times_met(&server, MAIN, Limit::HandshakeTime), 3);
        let log = world.log.text();
        assert_eq!(log.matches("detail=\"limit handshake_time\"").count(), 3);
    });
}

/// A client whose bytes come one by one, in the handshake and behind it, is served.
#[test]
fn tls_byte_by_byte() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let _server = serve(&world, &identity.tls(), Limits::default());
        let config = identity.client();
        let mut client = TlsPeer::new(world.inlet.connect(), &config, "localhost");
        for byte in client.outgoing() {
            client.peer.send(&[byte]);
            world.wait_asleep();
        }
        client.shake_hands();
        for byte in client.records(b"hello\n") {
            client.peer.send(&[byte]);
            world.wait_asleep();
        }
        client.assert_gets("hello\r\n");
    });
}

/// More handshakes than may be under way at once: those beyond the limit are closed, counted and
/// named. The places come back, after success, failure and time-out.
#[test]
fn tls_flood() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let limits = Limits::default().handshakes(2);
        let server = serve(&world, &identity.tls(), limits);
        let config = identity.client();
        let first_byte = || {
            let peer = world.inlet.connect();
            peer.send(&[22]);
            world.wait_asleep();
            peer
        };
        let held = [first_byte(), first_byte()];
        for _ in 0..5 {
            first_byte().wait_closed();
        }
        assert_eq!(times_met(&server, MAIN, Limit::Handshakes), 5);
        assert_eq!(world.calls.count("closed: limit handshakes"), 5);
        let log = world.log.text();
        assert_eq!(log.matches("detail=\"limit handshakes\"").count(), 5);
        assert!(held.iter().all(|peer| !peer.is_closed_by_pool()));
        world.pass_seconds(11);
        held.iter().for_each(|peer| peer.wait_closed());
        // Each round would use up the places, if they did not come back.
        for _ in 0..3 {
            let bad = world.inlet.connect();
            bad.send(b"no TLS");
            bad.wait_closed();
            let mut good = TlsPeer::connected(world.inlet.connect(), &config, "localhost");
            good.send(b"hello\n");
            good.assert_gets("hello\r\n");
            std::mem::forget(good);
        }
        assert_eq!(times_met(&server, MAIN, Limit::Handshakes), 5);
    });
}

/// Clients that said nothing took the places of handshakes, and shut out all others. Now a client
/// takes one with its first byte; the limit of silence ends the others.
#[test]
fn silent_clients_take_no_place() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let limits = Limits::default().handshakes(1);
        let server = serve(&world, &identity.tls(), limits);
        let silent = [(); 4].map(|()| world.inlet.connect());
        world.wait_asleep();
        let config = identity.client();
        let mut good = TlsPeer::connected(world.inlet.connect(), &config, "localhost");
        good.send(b"hello\n");
        good.assert_gets("hello\r\n");
        assert_eq!(times_met(&server, MAIN, Limit::Handshakes), 0);
        world.pass_seconds(11);
        silent.iter().for_each(|peer| peer.wait_closed());
        assert_eq!(times_met(&server, MAIN, Limit::HandshakeTime), 4);
    });
}

/// A client that speaks plain text to a TLS port is closed by its first byte; the log says why.
#[test]
fn plain_text_on_a_tls_port() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let _server = serve(&world, &identity.tls(), Limits::default());
        let peer = world.inlet.connect();
        peer.send(b"hello\n");
        peer.wait_closed();
        world
            .calls
            .wait_for("closed: malformed input: invalid item: plain text instead of TLS");
        assert_eq!(world.calls.all().len(), 1);
    });
}

/// A handshake under way may end during a drain, in five seconds; then its connection closes.
#[test]
fn a_drain_ends_handshakes() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let server = serve(&world, &identity.tls(), Limits::default());
        let held = world.inlet.connect();
        world.settle();
        let drain = Drain::begin(&world, &server, Duration::from_secs(30));
        world.wait_asleep();
        world.simulation.clock().advance(Duration::from_secs(4));
        world.wait_asleep();
        assert!(!held.is_closed_by_pool());
        world.simulation.clock().advance(Duration::from_secs(2));
        held.wait_closed();
        assert!(drain.end().is_clean());
    });
}

/// A session that greets in parts gets no item before it is done, though the client's first item
/// came with the end of its handshake.
#[test]
fn a_greeting_comes_before_the_first_item() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let calls = world.calls.clone();
        let listen = world.listen().tls(&identity.tls());
        let make = move |_: &_| {
            Actor::new(&calls)
                .on_start(|cx| {
                    cx.send("y".repeat(100))?;
                    Ok(Next::Again)
                })
                .on_again(|cx| {
                    cx.send("ready\r\n")?;
                    Ok(Next::Continue)
                })
        };
        let builder = world.builder().listener(listen, line(80), make);
        let _server = world.start(builder);
        let config = identity.client();
        let mut client = TlsPeer::new(world.inlet.connect(), &config, "localhost");
        client.shake_hands_with(b"first\n");
        client.assert_gets(format!("{}ready\r\nfirst\r\n", "y".repeat(100)));
        assert_eq!(world.calls.all(), ["start", "again", "handle first"]);
    });
}
