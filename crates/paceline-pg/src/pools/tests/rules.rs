//! Rule by rule.

use super::*;

#[test]
fn a_server_serves_the_first_that_waits_before_any_newcomer() {
    let mut world = World::new(sized(1));
    let (first, server) = world.served();
    let [second, third] = world.waiting(world.pool);
    assert_eq!(to_client(&world.give_back(server)), Some(second));
    // The one that has just given back asks again: it is behind those that wait.
    assert_eq!(world.ask(first), Ask::Waiting);
    assert_eq!(to_client(&world.give_back(server)), Some(third));
    assert_eq!(to_client(&world.give_back(server)), Some(first));
    assert_eq!(world.give_back(server), GiveBack::Idle);
    assert!(matches!(world.ask(third), Ask::Server { server: it, .. } if it == server));
    assert!(world.orders.is_empty(), "{:?}", world.orders);
}

#[test]
fn several_logins_run_at_once_and_never_more_than_the_pool_holds() {
    let mut world = World::new(Settings {
        parallel_logins: 2,
        ..sized(3)
    });
    let _waiting: [ClientId; 5] = world.waiting(world.pool);
    let two = world.opened();
    assert_eq!(two.len(), 2);
    assert!(to_client(&world.log_in(two[0])).is_some());
    let third = world.opened();
    assert_eq!(third.len(), 1, "the next login begins when one is over");
    assert!(to_client(&world.log_in(two[1])).is_some());
    assert!(to_client(&world.log_in(third[0])).is_some());
    world.maintain();
    assert_eq!(world.opened(), [], "the pool is full");
}

/// PgBouncer serves pools by their names when a limit is shared: the first names starve the others.
#[test]
fn pool_order_not_by_name() {
    let mut world = World::new(Settings {
        max_database_connections: 1,
        switch_after: ms(100),
        ..sized(5)
    });
    let (holder, server) = world.served();
    let other = world.other_pool("zoe");
    let [early] = world.waiting(other);
    let [late] = world.waiting(world.pool);
    assert_eq!(world.opened(), []);
    // The connection is young: it serves its own pool first.
    assert_eq!(to_client(&world.give_back(server)), Some(late));
    let _again = world.ask(holder);
    world.now = ms(100);
    let outcome = world.give_back(server);
    let reason = CloseReason::Evicted;
    assert!(matches!(outcome, GiveBack::Close { reason: it, .. } if it == reason));
    let opened = world.opened();
    assert_eq!(opened.len(), 1);
    assert_eq!(to_client(&world.log_in(opened[0])), Some(early));
}
