//! Rule by rule: queues, limits, time-outs.

use super::*;

#[test]
fn a_server_serves_the_first_that_waits_before_any_newcomer() {
    let mut world = World::new(sized(1));
    let (first, server) = world.served();
    let [second, third] = world.waiting(world.pool);
    assert_eq!(to_client(&world.give_back(server)), Some(second));
    // The client that has just given back asks again: it is behind the waiting ones.
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
    assert_eq!(world.ask(holder), Ask::Waiting);
    world.now = ms(100);
    assert_eq!(closed(&world.give_back(server)), Some(CloseReason::Evicted));
    let opened = world.opened();
    assert_eq!(opened.len(), 1);
    assert_eq!(to_client(&world.log_in(opened[0])), Some(early));
}

#[test]
fn the_longest_idle_of_another_pool_makes_room() {
    let mut world = World::new(Settings {
        max_database_connections: 2,
        ..sized(5)
    });
    let (_, first) = world.served();
    let (_, second) = world.served();
    assert_eq!(world.give_back(second), GiveBack::Idle);
    world.now = ms(10);
    assert_eq!(world.give_back(first), GiveBack::Idle);
    let other = world.other_pool("bo");
    let [client] = world.waiting(other);
    let orders = world.take_orders();
    let [Order::Close { server, reason, .. }, Order::Open { pool, .. }] = orders[..] else {
        unreachable!("{orders:?}");
    };
    assert_eq!(
        (server, reason, pool),
        (second, CloseReason::Evicted, other)
    );
    assert_eq!(
        world.book.leave(client, world.now, &mut world.orders),
        Left::Nothing
    );
}

#[test]
fn the_reserve_is_for_clients_that_have_waited() {
    let mut world = World::new(Settings {
        reserve_size: 1,
        reserve_timeout: ms(500),
        ..sized(1)
    });
    let (_, _server) = world.served();
    let [first, _second] = world.waiting(world.pool);
    world.now = ms(499);
    world.maintain();
    assert_eq!(world.opened(), []);
    world.now = ms(500);
    world.maintain();
    let orders = world.take_orders();
    let [Order::Open { why, server, .. }] = orders[..] else {
        unreachable!("{orders:?}");
    };
    assert_eq!(why, OpenReason::Reserve(first));
    assert_eq!(to_client(&world.log_in(server)), Some(first));
    world.now = ms(5000);
    world.maintain();
    assert_eq!(world.opened(), [], "the reserve is used up");
}

/// One connection a round, while clients exist or the user is forced; nothing is closed for it.
#[test]
fn the_least_size_is_kept_while_the_pool_is_used() {
    let least = Settings {
        min_pool_size: 2,
        max_database_connections: 2,
        ..sized(3)
    };
    let mut world = World::new(least.clone());
    world.maintain();
    assert_eq!(world.opened(), [], "no client");
    let (client, server) = world.served();
    world.maintain();
    assert_eq!(world.opened().len(), 1);
    world.maintain();
    assert_eq!(world.opened(), [], "one login at a time");
    let left = world.book.leave(client, world.now, &mut world.orders);
    assert_eq!(left, Left::Server(server));

    let forced = DatabaseSettings {
        forced_user: true,
        ..DatabaseSettings::default()
    };
    let mut world = World::with_database(least, forced);
    world.maintain();
    assert_eq!(world.opened().len(), 1);
}

#[test]
fn waits_end_by_user_before_database_before_all() {
    let second = |count: u64| Some(ms(1000 * count));
    for (user, database, all, expected) in [
        (None, None, 3, 3),
        (None, second(2), 3, 2),
        (second(4), second(2), 3, 4),
        (second(0), second(2), 3, 1000),
    ] {
        let settings = Settings {
            query_wait_timeout: ms(1000 * all),
            query_wait_notify: ms(500),
            ..sized(1)
        };
        let of_database = DatabaseSettings {
            query_wait_timeout: database,
            ..DatabaseSettings::default()
        };
        let mut world = World::with_database(settings, of_database);
        let of_user = UserSettings {
            query_wait_timeout: user,
            ..UserSettings::default()
        };
        world.book.configure_user(world.user, of_user);
        let [client] = world.waiting(world.pool);
        let _open = world.opened();
        world.now = ms(1000 * expected);
        world.maintain();
        assert_eq!(world.take_orders(), [], "not yet");
        world.now += ms(1);
        world.maintain();
        let refused = Order::Refuse {
            client,
            why: Refusal::QueryWaitTimeout,
        };
        // A time-out of zero is none.
        let expected = if expected == 1000 {
            vec![]
        } else {
            vec![refused]
        };
        assert_eq!(world.take_orders(), expected);
    }
}

#[test]
fn a_long_wait_is_noted_once() {
    let mut world = World::new(sized(1));
    let client = world.client();
    assert_eq!(world.arrive(client), Welcome::Waiting);
    let opened = world.opened();
    assert_eq!(world.log_in(opened[0]), GiveBack::Idle);
    assert_eq!(world.take_orders(), [Order::Welcome { client }]);
    assert!(matches!(world.ask(client), Ask::Server { .. }));
    let other = world.client();
    assert_eq!(world.arrive(other), Welcome::Ready);
    assert_eq!(world.ask(other), Ask::Waiting);
    world.now = ms(5_001);
    world.maintain();
    assert_eq!(world.take_orders(), [Order::Notify { client: other }]);
    world.now = ms(9_000);
    world.maintain();
    assert_eq!(world.take_orders(), []);
}

#[test]
fn servers_have_an_age_and_are_closed_apart() {
    let mut world = World::new(Settings {
        server_lifetime: ms(1000),
        server_idle_timeout: ms(0),
        ..sized(2)
    });
    let (_, one) = world.served();
    let (_, two) = world.served();
    assert_eq!(world.give_back(two), GiveBack::Idle);
    world.now = ms(1000);
    assert_eq!(
        closed(&world.give_back(one)),
        Some(CloseReason::LifetimeOver)
    );
    world.maintain();
    assert_eq!(world.take_orders(), [], "half the age after the other one");
    world.now = ms(1500);
    world.maintain();
    let orders = world.take_orders();
    assert!(
        matches!(
            orders[..],
            [Order::Close { server, reason: CloseReason::LifetimeOver, .. }] if server == two
        ),
        "{orders:?}"
    );
}

/// A lifetime of zero: each connection is used once, but it is used.
#[test]
fn a_lifetime_of_zero_is_one_use() {
    let mut world = World::new(Settings {
        server_lifetime: ms(0),
        ..sized(2)
    });
    let (_, server) = world.served();
    let [_waits] = world.waiting(world.pool);
    let _second = world.opened();
    let outcome = world.give_back(server);
    assert_eq!(closed(&outcome), Some(CloseReason::LifetimeOver));
}

#[test]
fn idle_servers_are_closed_but_for_the_least() {
    let mut world = World::new(Settings {
        min_pool_size: 1,
        server_idle_timeout: ms(1000),
        ..sized(3)
    });
    let (_, one) = world.served();
    let (_, two) = world.served();
    assert_eq!(world.give_back(one), GiveBack::Idle);
    assert_eq!(world.give_back(two), GiveBack::Idle);
    world.now = ms(1001);
    world.maintain();
    let orders = world.take_orders();
    assert!(
        matches!(
            orders[..],
            [Order::Close { server, reason: CloseReason::IdleTimeout, .. }] if server == one
        ),
        "{orders:?}"
    );
}

#[test]
fn last_used_first_or_in_turn() {
    for (round_robin, expected) in [(false, 1), (true, 0)] {
        let mut world = World::new(Settings {
            round_robin,
            ..sized(2)
        });
        let servers = [world.served().1, world.served().1];
        for server in servers {
            assert_eq!(world.give_back(server), GiveBack::Idle);
        }
        let client = world.client();
        let Ask::Server { server, .. } = world.ask(client) else {
            unreachable!("two are idle");
        };
        assert_eq!(server, servers[expected]);
    }
}

#[test]
fn a_server_that_was_idle_is_checked_before_use() {
    let mut world = World::new(Settings {
        check_delay: Some(ms(100)),
        ..sized(1)
    });
    let (client, server) = world.served();
    assert_eq!(world.give_back(server), GiveBack::Idle);
    world.now = ms(99);
    assert!(matches!(world.ask(client), Ask::Server { .. }));
    assert_eq!(world.give_back(server), GiveBack::Idle);
    world.now = ms(199);
    assert_eq!(world.ask(client), Ask::Waiting);
    let orders = world.take_orders();
    assert!(matches!(orders[..], [Order::Check { server: it, .. }] if it == server));
    assert_eq!(to_client(&world.give_back(server)), Some(client));
}

/// Several limits for clients; an administrator is exempt.
#[test]
fn clients_have_limits() {
    let limited = |settings| {
        let mut world = World::new(settings);
        let _one = world.client();
        let (database, user) = (Some(world.database), Some(world.user));
        let exempt = world.book.enter(database, user, Privilege::Exempt, ms(0));
        assert!(exempt.is_ok());
        let ordinary = Privilege::Ordinary;
        world.book.enter(database, user, ordinary, ms(0)).err()
    };
    let none = Settings {
        max_clients: 0,
        ..Settings::default()
    };
    assert_eq!(limited(none.clone()), None);
    let all = Settings {
        max_clients: 2,
        ..none.clone()
    };
    assert_eq!(limited(all), Some(Refusal::MaxClients));
    let of_database = Settings {
        max_database_clients: 2,
        ..none.clone()
    };
    assert_eq!(limited(of_database), Some(Refusal::MaxDatabaseClients));
    let of_user = Settings {
        max_user_clients: 2,
        ..none
    };
    assert_eq!(limited(of_user), Some(Refusal::MaxUserClients));
}

/// The error of a server's login reaches all that wait; a server that only starts is waited for.
#[test]
fn failed_logins_end_the_wait_unless_they_are_temporary() {
    let mut world = World::new(sized(1));
    let [client] = world.waiting(world.pool);
    let arriving = world.client();
    assert_eq!(world.arrive(arriving), Welcome::Waiting);
    let opened = world.opened();
    world.fail(opened[0], FailureScope::Temporary);
    assert_eq!(world.take_orders(), [], "they wait on");
    world.now = ms(14_999);
    world.maintain();
    world
        .take_orders()
        .into_iter()
        .for_each(|order| assert!(matches!(order, Order::Notify { .. })));
    world.now = ms(15_000);
    world.maintain();
    let opened = world.opened();
    world.fail(opened[0], FailureScope::Refused);
    let refused = world.take_orders().into_iter().map(|order| match order {
        Order::Refuse { client, why } => (client, why.code().to_owned(), why.to_string()),
        other => unreachable!("{other:?}"),
    });
    let mut refused: Vec<_> = refused.collect();
    refused.sort();
    let error = |client| (client, "28P01".to_owned(), "no".to_owned());
    assert_eq!(refused, [client, arriving].map(error));
    // Until the next attempt clients fail at once, with the cached text.
    let Ask::Refused(why) = world.ask(client) else {
        unreachable!("no server is usable");
    };
    let text = "server login has been failing, cached error: no (server_login_retry)";
    assert_eq!(why.to_string(), text);
    world.now = ms(30_000);
    assert_eq!(world.ask(client), Ask::Waiting, "this client's attempt");
    assert_eq!(world.opened().len(), 1);
}

#[test]
fn a_usable_server_keeps_clients_waiting() {
    let mut world = World::new(sized(2));
    let first = world.client();
    assert_eq!(world.arrive(first), Welcome::Waiting);
    let opened = world.opened();
    assert_eq!(world.log_in(opened[0]), GiveBack::Idle);
    let _welcome = world.take_orders();
    assert!(matches!(world.ask(first), Ask::Server { .. }));
    let [waits] = world.waiting(world.pool);
    let second = world.opened();
    world.fail(second[0], FailureScope::Refused);
    assert_eq!(world.take_orders(), []);
    assert_eq!(to_client(&world.give_back(opened[0])), Some(waits));
}

/// Another host may take over: clients wait although the host refuses connections.
#[test]
fn parked_clients_do_not_fail_at_once() {
    let parks = DatabaseSettings {
        parks: true,
        ..DatabaseSettings::default()
    };
    let mut world = World::with_database(sized(1), parks);
    let [_first] = world.waiting(world.pool);
    let opened = world.opened();
    world.fail(opened[0], FailureScope::Temporary);
    let [_second] = world.waiting(world.pool);
    assert_eq!(world.take_orders(), []);
}

#[test]
fn waits_are_counted() {
    let mut world = World::new(sized(1));
    let (_, server) = world.served();
    let [_a, _b] = world.waiting(world.pool);
    world.now = ms(10);
    assert!(to_client(&world.give_back(server)).is_some());
    world.now = ms(30);
    let row = &world.book.pool_rows(world.now)[0];
    assert_eq!((row.longest_wait, row.clients_waiting), (ms(30), 1));
    assert!(to_client(&world.give_back(server)).is_some());
    let waits = world.book.pool_rows(world.now)[0].waits;
    assert_eq!(
        (waits.assignments, waits.total, waits.longest),
        (3, ms(40), ms(30))
    );
}

/// A pool that has become smaller gives up what is too much, as soon as it is free.
#[test]
fn a_smaller_pool_closes_what_is_too_much() {
    let mut world = World::new(sized(2));
    let (_, one) = world.served();
    let (_, two) = world.served();
    world.book.configure(sized(1));
    assert_eq!(closed(&world.give_back(one)), Some(CloseReason::TooMany));
    assert_eq!(world.give_back(two), GiveBack::Idle);
}

#[test]
fn a_removed_database_is_forgotten_when_it_is_empty() {
    let mut world = World::new(sized(2));
    let (client, server) = world.served();
    world
        .book
        .remove_database(world.database, &mut world.orders);
    let dismissed = Order::Dismiss {
        client,
        why: Refusal::DatabaseRemoved,
    };
    assert_eq!(world.take_orders(), [dismissed]);
    let other = world
        .book
        .enter(Destination::Nowhere, None, Privilege::Ordinary, ms(0))
        .expect("room");
    let again = world
        .book
        .await_welcome(other, world.pool, ms(0), &mut world.orders);
    assert_eq!(again, Welcome::Refused(Refusal::Gone));
    assert_eq!(closed(&world.give_back(server)), Some(CloseReason::Changed));
    for client in [client, other] {
        assert_eq!(
            world.book.leave(client, ms(0), &mut world.orders),
            Left::Nothing
        );
    }
    world.maintain();
    let pool = world.pool;
    assert_eq!(world.take_orders(), [Order::PoolRemoved { pool }]);
    assert!(world.book.database_rows().is_empty());
}

#[test]
fn a_pool_without_clients_is_forgotten() {
    let mut world = World::new(sized(2));
    let (client, server) = world.served();
    assert_eq!(world.give_back(server), GiveBack::Idle);
    assert_eq!(
        world.book.leave(client, ms(5), &mut world.orders),
        Left::Nothing
    );
    world
        .book
        .close_idle_pools(ms(100), ms(105), &mut world.orders);
    assert_eq!(world.take_orders(), []);
    world
        .book
        .close_idle_pools(ms(100), ms(106), &mut world.orders);
    let orders = world.take_orders();
    assert!(
        matches!(
            orders[..],
            [
                Order::Close {
                    reason: CloseReason::IdlePool,
                    ..
                },
                Order::PoolRemoved { .. }
            ]
        ),
        "{orders:?}"
    );
}

/// The end of a server reaches its client before the book: the client asks again at once, and the
/// late report of the end must not touch what it has by then.
#[test]
fn a_client_may_ask_before_the_end_of_its_server_is_known() {
    let mut world = World::new(sized(2));
    let (client, lost) = world.served();
    assert_eq!(world.ask(client), Ask::Waiting);
    let opened = world.opened();
    assert_eq!(to_client(&world.log_in(opened[0])), Some(client));
    assert_eq!(world.book.closed(lost, ms(0), &mut world.orders), None);
    let row = world.book.client_rows()[0];
    assert_eq!(
        (row.state, row.server),
        (ClientState::Active, Some(opened[0]))
    );
    assert_eq!(world.give_back(opened[0]), GiveBack::Idle);
}

/// The limit of a user also holds if the user is known only after the login, as with `auth_query`.
#[test]
fn a_user_that_is_known_later_counts() {
    let mut world = World::new(Settings {
        max_user_clients: 1,
        ..sized(1)
    });
    let database = Some(world.database);
    let enter = |world: &mut World| {
        let entered = world.book.enter(database, None, Privilege::Ordinary, ms(0));
        entered.expect("nothing is known of the user")
    };
    let (first, second) = (enter(&mut world), enter(&mut world));
    let user = world.user;
    let mut identify = |client| world.book.identify(client, user, Privilege::Ordinary);
    assert_eq!(identify(first), Ok(()));
    assert_eq!(identify(first), Ok(()), "the same client counts once");
    assert_eq!(identify(second), Err(Refusal::MaxUserClients));
    for client in [first, second] {
        assert_eq!(
            world.book.leave(client, ms(0), &mut world.orders),
            Left::Nothing
        );
    }
    assert_eq!(world.book.user_rows()[0].clients, 0);
}

/// PgBouncer: the time-out of one user ended the wait of all others too, although theirs was off.
#[test]
fn user_timeout_leaves_others() {
    let mut world = World::new(Settings {
        query_wait_timeout: ms(0),
        query_wait_notify: ms(0),
        ..sized(1)
    });
    let hasty = UserSettings {
        query_wait_timeout: Some(ms(100)),
        ..UserSettings::default()
    };
    let hasty = world.book.add_user("bo", hasty);
    let (_, _server) = world.served();
    let [_patient] = world.waiting(world.pool);
    let (database, ordinary) = (Some(world.database), Privilege::Ordinary);
    let entered = world.book.enter(database, Some(hasty), ordinary, ms(0));
    let client = entered.expect("there is room");
    assert_eq!(world.ask(client), Ask::Waiting);
    world.now = ms(99_999);
    world.maintain();
    let why = Refusal::QueryWaitTimeout;
    assert_eq!(world.take_orders(), [Order::Refuse { client, why }]);
}

/// Transactions of a saturated pool cost no order, and so no memory.
#[test]
fn a_saturated_pool_orders_nothing() {
    let mut world = World::new(sized(2));
    let held = [world.served(), world.served()];
    let _waiting: [ClientId; 8] = world.waiting(world.pool);
    world.orders = Orders::new();
    let mut served = Vec::with_capacity(20);
    for round in 0..20 {
        let (_, server) = held[round % 2];
        let client = to_client(&world.give_back(server)).expect("one waits");
        served.push(client);
        // The client that has just lost the server asks again.
        let rests = |row: &&ClientRow| row.state == ClientState::Login;
        let rows = world.book.client_rows();
        let last = rows.iter().find(rests).expect("one has no server").id;
        assert_eq!(world.ask(last), Ask::Waiting);
    }
    assert_eq!(world.orders.capacity(), 0);
    assert_eq!(served[..10], served[10..], "in turn");
}

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
