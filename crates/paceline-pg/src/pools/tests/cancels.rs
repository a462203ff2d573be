//! A cancel hits its own query, or nothing.

use super::*;

impl World {
    fn cancel(&mut self, client: ClientId) -> CancelAsked {
        self.book.ask_cancel(client, self.now, &mut self.orders)
    }

    /// The connections that are opened for cancels.
    fn carriers(&mut self) -> Vec<ServerId> {
        let orders = self.take_orders().into_iter();
        let carriers = orders.map(|order| match order {
            Order::OpenCancel { server, .. } => server,
            other => unreachable!("{other:?}"),
        });
        carriers.collect()
    }

    fn carrier(&mut self, client: ClientId) -> ServerId {
        assert!(matches!(self.cancel(client), CancelAsked::Queued(_)));
        let carriers = self.carriers();
        assert_eq!(carriers.len(), 1);
        carriers[0]
    }

    fn end(&mut self, server: ServerId) {
        let kept = self.book.closed(server, self.now, &mut self.orders);
        assert_eq!(kept, None);
    }
}

/// PgBouncer 141: a late cancel hits the next query.
#[test]
fn cancel_binding_changed() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let carrier = world.carrier(client);
    assert_eq!(world.give_back(server), GiveBack::Idle);
    // The same client has the same server again, for another query.
    assert!(matches!(world.ask(client), Ask::Server { .. }));
    assert_eq!(world.book.cancel_connected(carrier), CancelReady::Drop);
    world.end(carrier);
    assert_eq!(to_client(&world.give_back(server)), None);
}

/// The signal may come at any time until the server has closed the connection of the cancel.
#[test]
fn a_server_with_a_sent_cancel_serves_no_other_client() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let [waits] = world.waiting(world.pool);
    let carriers = [world.carrier(client)];
    let sent = world.book.cancel_connected(carriers[0]);
    assert!(matches!(sent, CancelReady::Send(key) if key.process == 1));
    assert_eq!(world.give_back(server), GiveBack::Held);
    world.maintain();
    assert_eq!(world.take_orders(), []);
    assert_eq!(
        world.cancel(client),
        CancelAsked::Dropped,
        "it has no server"
    );
    world.end(carriers[0]);
    let orders = world.take_orders();
    assert!(matches!(
        orders[..],
        [Order::Give { client, server: given, .. }] if client == waits && given == server
    ));
}

#[test]
fn the_last_of_several_cancels_frees_the_server() {
    let mut world = World::new(sized(2));
    let (client, server) = world.served();
    let carriers = [world.carrier(client), world.carrier(client)];
    for carrier in carriers {
        assert!(matches!(
            world.book.cancel_connected(carrier),
            CancelReady::Send(_)
        ));
    }
    assert_eq!(world.give_back(server), GiveBack::Held);
    world.end(carriers[1]);
    assert_eq!(world.book.pool_rows(ms(0))[0].servers_being_cancelled, 1);
    world.end(carriers[0]);
    assert_eq!(world.book.pool_rows(ms(0))[0].servers_idle, 1);
}

/// A hundred at once: at most twice the size of the pool is open, and each is sent or dropped.
#[test]
fn cancel_storm_100() {
    let mut world = World::new(sized(2));
    let (client, server) = world.served();
    for _ in 0..100 {
        assert!(matches!(world.cancel(client), CancelAsked::Queued(_)));
    }
    let mut carriers = world.carriers();
    assert_eq!(carriers.len(), 3, "twice two, with the one that is held");
    let (mut sent, mut dropped) = (0, 0);
    while let Some(carrier) = carriers.pop() {
        match world.book.cancel_connected(carrier) {
            CancelReady::Send(_) => sent += 1,
            CancelReady::Drop => dropped += 1,
        }
        if sent + dropped == 50 {
            assert_eq!(world.give_back(server), GiveBack::Held);
        }
        world.end(carrier);
        for order in world.take_orders() {
            match order {
                Order::OpenCancel { server, .. } => carriers.push(server),
                Order::DropCancel { .. } => dropped += 1,
                other => unreachable!("{other:?}"),
            }
        }
    }
    assert_eq!(
        (sent, dropped),
        (50, 50),
        "none is sent once the query is over"
    );
}

#[test]
fn no_cancel_reaches_statements_of_the_front_end() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let carrier = world.carrier(client);
    world.book.set_quiet(server, true);
    assert_eq!(world.cancel(client), CancelAsked::Dropped);
    assert_eq!(world.book.cancel_connected(carrier), CancelReady::Drop);
    world.end(carrier);
    world.book.set_quiet(server, false);
    let _again = world.carrier(client);
    world.book.reset(server, &mut world.orders);
    assert_eq!(world.cancel(client), CancelAsked::Dropped);
}

#[test]
fn a_cancel_waits_only_so_long_for_a_connection() {
    let mut world = World::new(sized(1));
    let (client, _server) = world.served();
    let _carrier = world.carrier(client);
    let CancelAsked::Queued(cancel) = world.cancel(client) else {
        unreachable!("the client has a server");
    };
    assert_eq!(world.take_orders(), [], "twice the size is open");
    world
        .book
        .expire_cancels(ms(0), ms(99_999), &mut world.orders);
    world
        .book
        .expire_cancels(ms(100), ms(100), &mut world.orders);
    assert_eq!(world.take_orders(), []);
    world
        .book
        .expire_cancels(ms(100), ms(101), &mut world.orders);
    assert_eq!(world.take_orders(), [Order::DropCancel { cancel }]);
}

/// A failed connection of a cancel has no other effect.
#[test]
fn a_cancel_that_can_not_connect_is_forgotten() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let carrier = world.carrier(client);
    world.fail(carrier, FailureScope::Temporary);
    assert_eq!(world.give_back(server), GiveBack::Idle);
    assert!(matches!(world.ask(client), Ask::Server { .. }));
}

/// A host that hangs must not keep a place of the pool for ever; the server is not used again.
#[test]
fn a_cancel_that_hangs_costs_the_server() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let [_waits] = world.waiting(world.pool);
    let carrier = world.carrier(client);
    assert!(matches!(
        world.book.cancel_connected(carrier),
        CancelReady::Send(_)
    ));
    world.now = ms(5);
    assert_eq!(world.give_back(server), GiveBack::Held);
    world
        .book
        .expire_cancels(ms(100), ms(105), &mut world.orders);
    assert_eq!(world.take_orders(), []);
    world
        .book
        .expire_cancels(ms(100), ms(106), &mut world.orders);
    let orders = world.take_orders();
    let [Order::Close {
        server: it,
        reason: CloseReason::CancelHangs,
        ..
    }, Order::Open { .. }] = orders[..]
    else {
        unreachable!("{orders:?}");
    };
    assert_eq!(it, server);
    world.end(carrier);
}
