//! Openings that end before there is a connection.

use std::net::TcpListener;

use super::*;
use crate::{
    front::tests::World,
    pools::{Ask, Order, Orders, Scope},
};

/// A world whose host takes connections and says nothing: a login there does not end.
fn silent() -> (World, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    (World::new(&format!("host=127.0.0.1 port={port}")), listener)
}

/// The connection that these orders open.
fn ordered(orders: &Orders<Arc<Server>>) -> ServerId {
    match orders[..] {
        [Order::Open { server, .. }] => server,
        ref others => unreachable!("{others:?}"),
    }
}

/// A pause: what follows of it.
fn pause(world: &World) -> Orders<Arc<Server>> {
    let (done, orders) = (world.front).with_book(|book, _, orders| book.pause(Scope::All, orders));
    assert_eq!(done, crate::pools::Commanded::Done);
    orders
}

/// No thread took the search for a name: the opening counted for the pool for ever, and its clients
/// waited until their time-outs.
#[test]
fn a_refused_lookup_ends_its_opening() {
    let world = World::new("host=nowhere.invalid");
    let (_client, asked, orders) = world.ask();
    assert!(matches!(asked, Ask::Waiting), "{asked:?}");
    let _report = world.threads.shutdown(Duration::ZERO);
    world.front.carry_out(orders);
    assert_eq!(world.counts(), (0, 0));
    assert!(world.front.openings().is_empty());
}

/// The thread that pauses may be faster than the one that opens: the connection was made although the
/// pause was complete.
#[test]
fn what_is_given_up_before_its_turn_is_not_opened() {
    let (world, _silent) = silent();
    let (_client, _, opening) = world.ask();
    let aborting = pause(&world);
    world.front.carry_out(aborting);
    world.front.carry_out(opening);
    assert!(world.front.openings().is_empty());
}

/// The book gives an opening up while the name of its host is searched for.
#[test]
fn what_is_given_up_during_its_lookup_is_not_opened() {
    let (world, _silent) = silent();
    let (_client, _, opening) = world.ask();
    let id = ordered(&opening);
    world.front.openings().begin(id);
    let aborting = pause(&world);
    world.front.carry_out(aborting);
    let hosts = world.database().config().hosts("");
    let place = place_of(&hosts[0]).expect("an address");
    let target = target(&hosts[0], place, 0);
    world.front.connect(id, world.pool(), target);
    assert!(world.front.openings().is_empty());
}

/// A connection that fails at once, such as to a socket that is not there, ordered the next one without
/// end: the stack overflowed.
#[test]
fn a_refused_connection_is_not_tried_again_at_once() {
    let world = World::new("host=/nowhere/at/all");
    let (_client, _, opening) = world.ask();
    world.front.carry_out(opening);
    assert_eq!(world.counts(), (0, 0));
}
