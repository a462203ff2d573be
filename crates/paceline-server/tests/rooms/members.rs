//! Joining, leaving, closing.

use std::sync::mpsc;

use paceline_server::{codec::line, Limits, Next, Room};

use crate::support::{
    actor::Actor,
    wait_until,
    world::{assert_gets, finish, on_both_engines},
};

/// A connection is in several rooms, leaves one, and is in none when it has closed.
#[test]
fn joins_leaves_and_closes() {
    on_both_engines(|world| {
        let rooms = [Room::new(), Room::new()];
        let (ids, received) = mpsc::channel();
        let (calls, joined) = (world.calls.clone(), rooms.clone());
        let _server = world.serve(Limits::default(), line(80), move || {
            let (joined, ids) = (joined.clone(), ids.clone());
            Actor::new(&calls).on_start(move |cx| {
                assert!(joined.iter().all(|room| room.join(cx)));
                ids.send(cx.id()).unwrap();
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        let id = received.recv().unwrap();
        wait_until(|| rooms.iter().all(|room| room.len() == 1));
        assert!(rooms[0].leave(id) && !rooms[0].leave(id));
        assert!(rooms[0].is_empty());
        rooms[0].send(*b"to none");
        rooms[1].send(*b"to one");
        assert_gets(&peer, "to one");
        finish(&peer);
        wait_until(|| rooms[1].is_empty());
    });
}

/// A room closes all of its members, and nothing else.
#[test]
fn a_room_closes_its_members() {
    on_both_engines(|world| {
        let room = Room::new();
        let (calls, joined) = (world.calls.clone(), room.clone());
        let _server = world.serve(Limits::default(), line(80), move || {
            let joined = joined.clone();
            Actor::new(&calls).on_item(move |item, cx| {
                if item == "join" {
                    joined.join(cx);
                }
                cx.reply(item)?;
                Ok(Next::Continue)
            })
        });
        let (a, b, other) = (
            world.inlet.connect(),
            world.inlet.connect(),
            world.inlet.connect(),
        );
        for peer in [&a, &b] {
            peer.send(b"join\n");
            assert_gets(peer, "join\r\n");
        }
        world.settle();
        room.close();
        a.wait_closed();
        b.wait_closed();
        wait_until(|| room.is_empty());
        other.send(b"x\n");
        assert_gets(&other, "x\r\n");
        assert_eq!(world.calls.count("closed: closed on request"), 2);
    });
}
