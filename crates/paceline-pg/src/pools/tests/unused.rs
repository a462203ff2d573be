//! Databases that nothing uses.

use super::*;

/// A database that was made from `*` and forgotten too early would lose clients and counters; one
/// that is never forgotten stays in every table.
#[test]
fn an_unused_database_made_from_the_star_is_forgotten() {
    let auto = DatabaseSettings {
        is_auto: true,
        ..DatabaseSettings::default()
    };
    let mut world = World::with_database(sized(1), auto);
    let forget = |world: &mut World, now| {
        let orders = &mut world.orders;
        world.book.forget_unused_databases(ms(100), ms(now), orders)
    };
    let (client, server) = world.served();
    assert_eq!(forget(&mut world, 1000), []);
    assert_eq!(world.give_back(server), GiveBack::Idle);
    let _left = world.book.leave(client, ms(1000), &mut world.orders);
    assert_eq!(forget(&mut world, 2000), [], "it has a connection");
    let _gone = world.book.closed(server, ms(2000), &mut world.orders);
    assert_eq!(forget(&mut world, 3000), [], "unused from now on");
    let (user, now) = (Some(world.user), ms(3050));
    let entered = |world: &mut World| {
        let database = Some(world.database);
        world.book.enter(database, user, Privilege::Ordinary, now)
    };
    let client = entered(&mut world).expect("it is known");
    assert_eq!(forget(&mut world, 4000), [], "a client logs in");
    let _left = world.book.leave(client, ms(4000), &mut world.orders);
    assert_eq!(forget(&mut world, 4001), []);
    let database = world.database;
    let _disabled = world.book.set_disabled(database, Disabled::Yes);
    assert_eq!(
        forget(&mut world, 9000),
        [],
        "an administrator has disabled it"
    );
    let _disabled = world.book.set_disabled(database, Disabled::No);
    assert_eq!(forget(&mut world, 9001), []);
    world.take_orders();
    assert_eq!(forget(&mut world, 9101), [], "just not over");
    assert_eq!(forget(&mut world, 9102), [database]);
    let pool = world.pool;
    assert_eq!(world.take_orders(), [Order::PoolRemoved { pool }]);
    assert_eq!(entered(&mut world), Err(Refusal::Gone));
    assert!(world.book.database_rows().is_empty());
}

/// The databases of the configuration stay, whether they are used or not.
#[test]
fn a_database_of_the_configuration_is_kept() {
    let mut world = World::new(sized(1));
    for now in [0, 1000, 2000] {
        let orders = &mut world.orders;
        let forgotten = world.book.forget_unused_databases(ms(100), ms(now), orders);
        assert_eq!(forgotten, []);
    }
}
