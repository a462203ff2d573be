//! Messages of a room: to whom, in which order, and what the receipt says.

use std::{sync::mpsc, time::Duration};

use paceline_server::{codec::line, Delivery, Limit, Limits, Next, Receipt, Room, Server};

use crate::support::{
    actor::Actor,
    times_met, wait_until,
    world::{assert_gets, finish, on_both_engines, World, MAIN},
};

/// A server whose connections are members from the start; the room has the items of all.
fn serve(world: &World, room: &Room, limits: Limits) -> Server {
    let (calls, room) = (world.calls.clone(), room.clone());
    world.serve(limits, line(80), move || {
        let (joined, room) = (room.clone(), room.clone());
        Actor::new(&calls)
            .on_start(move |cx| {
                assert!(joined.join(cx));
                assert!(!joined.join(cx));
                Ok(Next::Continue)
            })
            .on_item(move |item, cx| {
                let text = format!("{}\n", item.as_str()?).into_bytes();
                room.message(text).except(cx.id()).send();
                Ok(Next::Continue)
            })
    })
}

fn limits() -> Limits {
    Limits::default()
        .idle(None)
        .least_rate(None)
        .silent(Duration::from_secs(1_000_000))
}

/// Sends `bytes`, and returns where the receipt will be.
fn send(room: &Room, bytes: impl Into<Vec<u8>>) -> mpsc::Receiver<Receipt> {
    let (done, receipts) = mpsc::channel();
    let bytes: Vec<u8> = bytes.into();
    let message = room.message(bytes);
    message
        .on_done(move |receipt| done.send(receipt).unwrap())
        .send();
    receipts
}

fn assert_receipt(receipts: &mpsc::Receiver<Receipt>, reached: usize, missed: usize) {
    let receipt = receipts.recv_timeout(crate::support::patience()).unwrap();
    assert_eq!((receipt.reached, receipt.missed), (reached, missed));
    assert!(receipts.try_recv().is_err(), "a receipt comes once");
}

/// Each member but the sender gets each message, all in the same order.
#[test]
fn all_but_the_exceptions_in_one_order() {
    on_both_engines(|world| {
        let room = Room::new();
        let _server = serve(&world, &room, limits());
        let peers = [(); 4].map(|()| world.inlet.connect());
        wait_until(|| room.len() == 4);
        peers[0].send(b"a0\na1\na2\n");
        peers[1].send(b"b0\nb1\nb2\n");
        let mut seen: Vec<_> = peers[2..].iter().map(|peer| peer.wait_for(18)).collect();
        assert_eq!(seen[0], seen[1]);
        seen.push(peers[0].wait_for(9));
        assert_eq!(seen.pop().unwrap(), b"b0\nb1\nb2\n");
        assert_eq!(peers[1].wait_for(9), b"a0\na1\na2\n");
        world.settle();
        assert!(peers.iter().all(|peer| peer.received().is_empty()));
    });
}

/// A member that reads nothing has its letters wait, at most the mailbox's bytes; what finds no
/// place misses it, and is counted. The others get everything, and the connection goes on.
#[test]
fn slow_member_misses() {
    on_both_engines(|world| {
        let room = Room::new();
        let server = serve(&world, &room, limits().mailbox(300));
        let (slow, quick) = (world.inlet.connect(), world.inlet.connect());
        wait_until(|| room.len() == 2);
        // The first goes out in part, so the mailbox is empty again.
        let first = send(&room, vec![b'0'; 100]);
        assert_gets(&quick, [b'0'; 100]);
        world.settle();
        let mut receipts = Vec::new();
        for letter in b'1'..b'7' {
            receipts.push(send(&room, vec![letter; 100]));
            assert_gets(&quick, [letter; 100]);
        }
        for missed in &receipts[3..] {
            assert_receipt(missed, 1, 1);
        }
        assert_eq!(times_met(&server, MAIN, Limit::Mailbox), 3);
        for letter in b'0'..b'4' {
            assert_gets(&slow, [letter; 100]);
        }
        assert_receipt(&first, 2, 0);
        for reached in &receipts[..3] {
            assert_receipt(reached, 2, 0);
        }
        assert_receipt(&send(&room, *b"on"), 2, 0);
        assert_gets(&slow, "on");
    });
}

/// A sender that wants to know who has missed a message, to send it again or to close them, learns
/// each addressee's number once, in one of the lists.
#[test]
fn a_delivery_names_everyone() {
    on_both_engines(|world| {
        let (room, (joined, ids)) = (Room::new(), mpsc::channel());
        let (calls, of_sessions) = (world.calls.clone(), room.clone());
        let _server = world.serve(limits().mailbox(100), line(80), move || {
            let (joined, room) = (joined.clone(), of_sessions.clone());
            Actor::new(&calls).on_start(move |cx| {
                room.join(cx);
                joined.send(cx.id()).unwrap();
                Ok(Next::Continue)
            })
        });
        let [slow, quick, gone, excepted] = [(); 4].map(|()| {
            let peer = world.inlet.connect();
            (peer, ids.recv_timeout(crate::support::patience()).unwrap())
        });
        // The first goes out in part, so it is decided last.
        let letters = [vec![b'0'; 100], vec![b'1'; 100], vec![b'2'; 100]];
        let deliveries = letters.map(|letter| {
            let (done, delivery) = mpsc::channel();
            let message = room.message(letter).except(excepted.1);
            let message = message.on_delivery(move |delivery| done.send(delivery).unwrap());
            message.send();
            let _ = quick.0.wait_for(100);
            let _ = gone.0.wait_for(100);
            world.settle();
            delivery
        });
        let [first, second, third] = deliveries;
        let receive = |delivery: mpsc::Receiver<Delivery>| {
            let mut delivery = delivery.recv_timeout(crate::support::patience()).unwrap();
            delivery.reached.sort_unstable();
            (delivery.reached, delivery.missed)
        };
        assert_eq!(receive(third), (vec![quick.1, gone.1], vec![slow.1]));
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        finish(&gone.0);
        let _ = slow.0.wait_for(200);
        let all = vec![slow.1, quick.1, gone.1];
        assert_eq!(receive(first), (all.clone(), vec![]));
        assert_eq!(receive(second), (all, vec![]));
        let (done, delivery) = mpsc::channel();
        finish(&slow.0);
        finish(&quick.0);
        wait_until(|| room.len() == 1);
        let message = room.message(*b"to none").except(excepted.1);
        message.on_delivery(move |it| done.send(it).unwrap()).send();
        assert_eq!(receive(delivery), (vec![], vec![]));
    });
}

/// The mailbox is exact at the byte.
#[test]
fn a_mailbox_is_bounded_at_the_byte() {
    on_both_engines(|world| {
        let room = Room::new();
        let server = serve(&world, &room, limits().mailbox(200));
        let slow = world.inlet.connect();
        wait_until(|| room.len() == 1);
        let kept = send(&room, vec![b'0'; 100]);
        world.settle();
        assert_receipt(&send(&room, vec![b'x'; 201]), 0, 1);
        let fits = [send(&room, vec![b'1'; 120]), send(&room, vec![b'2'; 80])];
        assert_receipt(&send(&room, *b"3"), 0, 1);
        assert_eq!(times_met(&server, MAIN, Limit::Mailbox), 2);
        let _ = slow.wait_for(300);
        assert_receipt(&kept, 1, 0);
        fits.iter()
            .for_each(|receipt| assert_receipt(receipt, 1, 0));
    });
}

/// Messages of one byte made the server keep much more than the mailbox's bytes: each needs memory
/// for its place and its receipt. Now each takes 64 bytes at least, also an empty one.
#[test]
fn short_messages_fill_a_mailbox() {
    on_both_engines(|world| {
        let room = Room::new();
        let _server = serve(&world, &room, limits().mailbox(200));
        let slow = world.inlet.connect();
        wait_until(|| room.len() == 1);
        let kept = send(&room, vec![b'0'; 100]);
        world.settle();
        let fits = [send(&room, *b"1"), send(&room, *b""), send(&room, *b"3")];
        assert_receipt(&send(&room, *b"4"), 0, 1);
        assert_receipt(&send(&room, *b""), 0, 1);
        let _ = slow.wait_for(102);
        assert_receipt(&kept, 1, 0);
        fits.iter()
            .for_each(|receipt| assert_receipt(receipt, 1, 0));
    });
}

/// A receipt comes once, also when its members close in every state: before the message is sent,
/// with a part of it sent, with it in the mailbox; and for an empty room at once.
#[test]
fn receipt_told_once() {
    on_both_engines(|world| {
        let room = Room::new();
        assert_receipt(&send(&room, *b"to none"), 0, 0);
        let _server = serve(&world, &room, limits());
        let (cut, waits, reads, early) = (
            world.inlet.connect(),
            world.inlet.connect(),
            world.inlet.connect(),
            world.inlet.connect(),
        );
        wait_until(|| room.len() == 4);
        finish(&early);
        wait_until(|| room.len() == 3);
        let part = send(&room, vec![b'1'; 100]);
        let whole = send(&room, vec![b'2'; 10]);
        assert_gets(&reads, [[b'1'; 10]; 10].concat());
        assert_gets(&reads, [b'2'; 10]);
        assert!(part.try_recv().is_err() && whole.try_recv().is_err());
        cut.reset();
        cut.wait_closed();
        assert!(part.try_recv().is_err() && whole.try_recv().is_err());
        assert_gets(&waits, [[b'1'; 10]; 10].concat());
        assert_gets(&waits, [b'2'; 10]);
        assert_receipt(&part, 2, 1);
        assert_receipt(&whole, 2, 1);
    });
}

/// A member closes gently behind a message of which a part is kept: the peer gets all of it, so the
/// receipt says that it was reached.
#[test]
fn a_message_before_the_end_is_reached() {
    on_both_engines(|world| {
        let room = Room::new();
        let _server = serve(&world, &room, limits().silent(Duration::from_secs(10)));
        let peer = world.inlet.connect();
        wait_until(|| room.len() == 1);
        let receipt = send(&room, vec![b'x'; 100]);
        world.settle();
        assert!(receipt.try_recv().is_err());
        // The connection is silent, and its session closes it.
        world.pass_seconds(11);
        world.wait_asleep();
        assert_gets(&peer, [b'x'; 100]);
        finish(&peer);
        assert_receipt(&receipt, 1, 0);
    });
}

/// A panic in the code that gets a receipt is not the failure of the member whose turn it was.
#[test]
fn a_receipt_that_panics_closes_no_connection() {
    on_both_engines(|world| {
        let room = Room::new();
        let _server = serve(&world, &room, limits());
        let peer = world.inlet.connect();
        wait_until(|| room.len() == 1);
        let message = room.message(*b"first");
        message.on_done(|_| panic!("a bug of the caller")).send();
        assert_gets(&peer, "first");
        assert_receipt(&send(&room, *b"second"), 1, 0);
        assert_gets(&peer, "second");
        assert_eq!(world.calls.count("closed"), 0);
    });
}
