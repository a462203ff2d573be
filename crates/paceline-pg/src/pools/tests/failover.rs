//! What happens to connections and pools when a host changes its role.

use super::*;

fn parked() -> World {
    let parks = DatabaseSettings {
        parks: true,
        ..DatabaseSettings::default()
    };
    World::with_database(sized(2), parks)
}

/// Clients wait through the failover, and the back-off of the failed login keeps them no longer.
#[test]
fn a_retry_does_not_wait_for_the_back_off() {
    let mut world = parked();
    let [client] = world.waiting(world.pool);
    let opened = world.opened();
    world.fail(opened[0], FailureScope::Temporary);
    world.maintain();
    assert_eq!(world.take_orders(), [], "the login is not tried again yet");
    let (database, now) = (world.database, world.now);
    world.book.retry(database, now, &mut world.orders);
    let opened = world.opened();
    assert_eq!(to_client(&world.log_in(opened[0])), Some(client));
}

#[test]
fn a_retired_connection_ends_when_no_client_has_it() {
    let mut world = parked();
    let (_, held) = world.served();
    let (client, idle) = world.served();
    assert!(matches!(world.give_back(idle), GiveBack::Idle));
    let _ = client;
    for server in [held, idle, held] {
        world.book.retire(server, &mut world.orders);
    }
    let orders = world.take_orders();
    assert!(
        matches!(&orders[..], [Order::Close { server, .. }] if *server == idle),
        "{orders:?}"
    );
    assert_eq!(world.book.pool_rows(world.now)[0].servers_active, 1);
    let outcome = world.give_back(held);
    assert!(closed(&outcome).is_some(), "{outcome:?}");
    let _ = world.book.closed(held, world.now, &mut world.orders);
    let marked = world.book.pools.iter().map(|(_, it)| it.marked);
    assert_eq!(marked.sum::<usize>(), 0);
}

/// A connection whose login has not ended is judged at its end.
#[test]
fn an_opening_is_not_retired() {
    let mut world = parked();
    let [client] = world.waiting(world.pool);
    let opened = world.opened();
    world.book.retire(opened[0], &mut world.orders);
    assert_eq!(to_client(&world.log_in(opened[0])), Some(client));
    assert!(matches!(world.give_back(opened[0]), GiveBack::Idle));
}
