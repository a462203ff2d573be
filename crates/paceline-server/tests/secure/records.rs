//! Records: several items in one, ends of the stream, and what a session sends.

use std::{sync::mpsc, time::Duration};

use paceline_server::{codec::line, Limit, Limits, Next, Piece, Room};

use super::handshakes::serve;
use crate::support::{
    actor::Actor,
    times_met,
    tls::{Identity, TlsPeer},
    wait_until,
    world::{finish, on_both_engines, Drain, World, MAIN},
};

fn connected(world: &World, identity: &Identity) -> TlsPeer {
    TlsPeer::connected(world.inlet.connect(), &identity.client(), "localhost")
}

/// Ice: several requests in one TLS record; the rest was never delivered, because no event came for
/// what was decrypted already. Here all are answered, also beyond one turn and behind kept output.
#[test]
fn requests_in_one_record() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let limits = Limits::default().per_turn(2, 1000);
        let _server = serve(&world, &identity.tls(), limits);
        let mut client = connected(&world, &identity);
        let items: String = (10..60).map(|number| format!("item {number}\n")).collect();
        client.send(items.as_bytes());
        client.assert_gets(items.replace('\n', "\r\n"));
        assert_eq!(world.calls.count("handle"), 50);
    });
}

/// A stream that ends without TLS's own end was perhaps cut on its way. The session gets no item
/// from its rest, and is not told that the client has ended.
#[test]
fn truncated_without_close_notify() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let _server = serve(&world, &identity.tls(), Limits::default());
        let mut cut = connected(&world, &identity);
        cut.send(b"whole\n");
        cut.assert_gets("whole\r\n");
        world.settle();
        cut.peer.finish();
        cut.peer.wait_closed();
        world
            .calls
            .wait_for("closed: malformed input: input ended within an item");
        assert_eq!(world.calls.count("ended"), 0);
    });
}

/// The proper end: the session hears of it, answers, and the client learns that it has everything.
#[test]
fn close_notify_both_ways() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let calls = world.calls.clone();
        let listen = world.listen().tls(&identity.tls());
        let make = move |_: &_| {
            Actor::new(&calls).on_ended(|cx| {
                cx.reply("bye")?;
                Ok(Next::Close)
            })
        };
        let builder = world.builder().listener(listen, line(80), make);
        let _server = world.start(builder);
        let mut client = connected(&world, &identity);
        let mut last = client.records(b"last\n");
        last.extend(client.close_notify());
        client.peer.send(&last);
        client.assert_gets("last\r\nbye\r\n");
        assert_eq!(client.wait_for(1), b"");
        assert!(client.is_ended_properly());
        world.calls.wait_for("closed: closed by the peer");
    });
}

/// A record that was changed on its way ends the connection, and no item comes of it.
#[test]
fn a_changed_record_is_an_error() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let _server = serve(&world, &identity.tls(), Limits::default());
        let mut client = connected(&world, &identity);
        let mut records = client.records(b"hello\n");
        let last = records.len() - 1;
        records[last] ^= 1;
        client.peer.send(&records);
        wait_until(|| {
            // The tickets of the server go first.
            let _ = client.peer.received();
            client.peer.is_closed_by_pool()
        });
        wait_until(|| world.calls.count("closed: failed: ") == 1);
        assert_eq!(world.calls.count("handle"), 0);
    });
}

/// What a session sends arrives whole: long answers in many records, several pieces, and a limit
/// that counts the record layer, behind which nothing has been sent.
#[test]
fn long_answers_and_the_output_limit() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let calls = world.calls.clone();
        let listen = world.listen().tls(&identity.tls());
        let make = move |_: &_| {
            Actor::new(&calls).on_item(|item, cx| {
                let length = item.as_str()?.parse().unwrap();
                let mut pieces = [Piece::from(vec![b'x'; length]), "end".into()];
                cx.send_all(&mut pieces)?;
                Ok(Next::Continue)
            })
        };
        let builder = world.builder().listener(listen, line(80), make);
        let server = world.start(builder);
        let mut client = connected(&world, &identity);
        client.send(b"200000\n");
        let mut expected = vec![b'x'; 200_000];
        expected.extend(b"end");
        client.assert_gets(expected);
        let unread = client.peer.received();
        assert!(unread.is_empty(), "{} bytes", unread.len());
        // It would fit without the records around it.
        client.send(b"262140\n");
        client.peer.wait_closed();
        world.assert_ended_by(&server, Limit::Output);
        assert_eq!(client.wait_for(1), b"");
        assert_eq!(times_met(&server, MAIN, Limit::Output), 1);
    });
}

/// Messages of a room reach members with TLS and without.
#[test]
fn a_room_over_tls() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let (room, calls) = (Room::new(), world.calls.clone());
        let joined = room.clone();
        let listen = world.listen().tls(&identity.tls());
        let make = move |_: &_| {
            let joined = joined.clone();
            Actor::new(&calls).on_start(move |cx| {
                joined.join(cx);
                Ok(Next::Continue)
            })
        };
        let builder = world.builder().listener(listen, line(80), make);
        let _server = world.start(builder);
        let mut clients = [(); 3].map(|()| connected(&world, &identity));
        wait_until(|| room.len() == 3);
        let (done, receipts) = mpsc::channel();
        let message = room.message(vec![b'x'; 500]);
        message
            .on_done(move |receipt| done.send(receipt).unwrap())
            .send();
        for client in &mut clients {
            client.assert_gets([b'x'; 500]);
        }
        let receipt = receipts.recv().unwrap();
        assert_eq!((receipt.reached, receipt.missed), (3, 0));
    });
}

/// A session greeted with more than its client took, and the client sent its first item together with
/// the end of its handshake, and read nothing: a worker had the session while output was kept, so no
/// limit of time ended the connection. Now the item waits until the greeting is taken.
#[test]
fn a_greeting_is_taken_in_time() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let calls = world.calls.clone();
        let listen = world.listen().tls(&identity.tls());
        let make = move |_: &_| {
            Actor::new(&calls).on_start(|cx| {
                cx.send(vec![b'x'; 1000])?;
                Ok(Next::Continue)
            })
        };
        let builder = world.builder().listener(listen, line(80), make);
        let server = world.start(builder);
        let config = identity.client();
        let mut reads = TlsPeer::new(world.inlet.connect(), &config, "localhost");
        reads.shake_hands_with(b"first\n");
        let mut expected = vec![b'x'; 1000];
        expected.extend(b"first\r\n");
        reads.assert_gets(expected);
        let mut stops = TlsPeer::new(world.inlet.connect(), &config, "localhost");
        stops.shake_hands_with(b"first\n");
        world.pass_seconds(60);
        stops.peer.wait_closed();
        assert_eq!(times_met(&server, MAIN, Limit::WriteRate), 1);
        assert_eq!(world.calls.count("handle"), 1);
    });
}

/// A write of many pieces failed after it was encrypted, so that the client could decrypt nothing that
/// was sent later: each piece became a record. Now pieces share records, and a write that is refused
/// has encrypted nothing.
#[test]
fn many_pieces_share_records() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let calls = world.calls.clone();
        let listen = world.listen().tls(&identity.tls());
        let make = move |_: &_| {
            Actor::new(&calls).on_item(|item, cx| {
                let count: usize = item.as_str()?.parse().unwrap();
                let mut pieces: Vec<_> = (0..count).map(|_| Piece::from("0123456789")).collect();
                let sent = cx.send_all(&mut pieces);
                cx.send(if sent.is_ok() { "sent" } else { "kept" })?;
                Ok(Next::Continue)
            })
        };
        let builder = world.builder().listener(listen, line(80), make);
        let _server = world.start(builder);
        let mut client = connected(&world, &identity);
        client.send(b"20000\n");
        client.assert_gets("0123456789".repeat(20_000) + "sent");
        client.send(b"30000\n");
        client.assert_gets("kept");
        client.send(b"1\n");
        client.assert_gets("0123456789sent");
    });
}

/// A part of a record counted as nothing: a client that sent one byte of it per second kept its
/// connection for ever. Now it has the time of an item, and its rate.
#[test]
fn a_part_of_a_record_has_a_time() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let limits = Limits::default().item_time(Duration::from_secs(3));
        let server = serve(&world, &identity.tls(), limits);
        let mut client = connected(&world, &identity);
        client.send(b"a\n");
        client.assert_gets("a\r\n");
        let records = client.records(b"hello\n");
        for byte in &records[..3] {
            assert!(!client.peer.is_closed_by_pool());
            client.peer.send(&[*byte]);
            world.pass_seconds(1);
        }
        client.peer.wait_closed();
        world.assert_ended_by(&server, Limit::ItemTime);
    });
}

/// Records of the protocol itself are no items: their end ends their time.
#[test]
fn a_record_of_the_protocol_is_no_item() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let limits = Limits::default().item_time(Duration::from_secs(3));
        let server = serve(&world, &identity.tls(), limits);
        let mut client = connected(&world, &identity);
        client.send(b"a\n");
        client.assert_gets("a\r\n");
        let records = client.new_keys();
        let (first, rest) = records.split_at(3);
        client.peer.send(first);
        world.pass_seconds(1);
        client.peer.send(rest);
        world.pass_seconds(10);
        client.send(b"b\n");
        client.assert_gets("b\r\n");
        assert_eq!(times_met(&server, MAIN, Limit::ItemTime), 0);
    });
}

/// Half a record was there when a drain began, and the connection was closed as one between two
/// items. Now its rest may come, as that of half an item.
#[test]
fn drain_half_record() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let server = serve(&world, &identity.tls(), Limits::default());
        let mut client = connected(&world, &identity);
        client.send(b"a\n");
        client.assert_gets("a\r\n");
        let records = client.records(b"half\n");
        client.peer.send(&records[..10]);
        world.settle();
        let drain = Drain::begin(&world, &server, Duration::from_secs(30));
        world.wait_asleep();
        assert!(!client.peer.is_output_ended());
        client.peer.send(&records[10..]);
        client.assert_gets("half\r\n");
        wait_until(|| client.peer.is_output_ended());
        finish(&client.peer);
        assert!(drain.end().is_clean());
        assert_eq!(world.calls.count("handle"), 2);
    });
}
