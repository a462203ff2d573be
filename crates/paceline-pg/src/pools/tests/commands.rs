//! The commands of an administrator.

use super::*;

#[test]
fn a_pause_is_complete_when_all_servers_are_closed() {
    let mut world = World::new(sized(2));
    let (client, server) = world.served();
    let (_, idle) = world.served();
    assert_eq!(world.give_back(idle), GiveBack::Idle);
    let resumed = world.book.resume(Scope::All, ms(0), &mut world.orders);
    assert_eq!(resumed, Commanded::NotPaused);
    let paused = world.book.pause(Scope::All, &mut world.orders);
    let Commanded::Pending(operation) = paused else {
        unreachable!("{paused:?}");
    };
    assert_eq!(
        world.book.pause(Scope::All, &mut world.orders),
        Commanded::AlreadyPaused
    );
    let orders = world.take_orders();
    assert!(matches!(orders[..], [Order::Close { server, .. }] if server == idle));
    let [waits] = world.waiting(world.pool);
    // The transaction that runs may end.
    assert_eq!(closed(&world.give_back(server)), Some(CloseReason::Paused));
    assert_eq!(world.take_orders(), [Order::Completed { operation }]);
    assert_eq!(world.ask(client), Ask::Waiting);
    assert_eq!(world.take_orders(), []);
    let resumed = world.book.resume(Scope::All, world.now, &mut world.orders);
    assert_eq!(resumed, Commanded::Done);
    let opened = world.opened();
    assert_eq!(opened.len(), 2);
    assert_eq!(to_client(&world.log_in(opened[0])), Some(waits));
}

#[test]
fn one_database_is_paused_and_the_other_is_not() {
    let mut world = World::new(sized(1));
    let other = world
        .book
        .add_database("travel", DatabaseSettings::default());
    let other_pool = world
        .book
        .pool(other, world.user, ms(0))
        .expect("both exist");
    let [_waits] = world.waiting(world.pool);
    let opening = world.opened();
    let scope = Scope::Database(world.database);
    let paused = world.book.pause(scope, &mut world.orders);
    assert_eq!(paused, Commanded::Done, "what is being opened is given up");
    let orders = world.take_orders();
    assert!(matches!(orders[..], [Order::Abort { server, .. }] if server == opening[0]));
    let [_free] = world.waiting(other_pool);
    assert_eq!(world.opened().len(), 1);
    let other = Scope::Database(other);
    let resumed = world.book.resume(other, ms(0), &mut world.orders);
    assert_eq!(resumed, Commanded::NotPaused);
    let resumed = world.book.resume(scope, ms(0), &mut world.orders);
    assert_eq!(resumed, Commanded::Done);
    assert_eq!(world.opened().len(), 1);
    // The id of the aborted connection is no longer valid.
    let outcome = world.log_in(opening[0]);
    assert_eq!(closed(&outcome), Some(CloseReason::Obsolete));
}

#[test]
fn a_suspended_pooler_keeps_its_servers() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let Commanded::Pending(operation) = world.book.suspend() else {
        unreachable!("a server is held");
    };
    let [waits] = world.waiting(world.pool);
    assert_eq!(
        world.give_back(server),
        GiveBack::Idle,
        "nothing is given out"
    );
    world.maintain();
    assert_eq!(world.take_orders(), [Order::Completed { operation }]);
    let resumed = world.book.resume(Scope::All, ms(0), &mut world.orders);
    assert_eq!(resumed, Commanded::Done);
    let orders = world.take_orders();
    assert!(matches!(orders[..], [Order::Give { client, .. }] if client == waits));
    assert_ne!(client, waits);
}

#[test]
fn reconnect_replaces_each_connection_and_wait_close_waits_for_it() {
    let mut world = World::new(sized(2));
    let (client, server) = world.served();
    let (_, idle) = world.served();
    assert_eq!(world.give_back(idle), GiveBack::Idle);
    let reconnected = world.book.reconnect(Scope::All, ms(0), &mut world.orders);
    assert_eq!(reconnected, Commanded::Done);
    let orders = world.take_orders();
    assert!(matches!(
        orders[..],
        [Order::Close { server, reason: CloseReason::Changed, .. }] if server == idle
    ));
    let Commanded::Pending(operation) = world.book.wait_close(Scope::All) else {
        unreachable!("one is marked");
    };
    // New clients need a new server's welcome.
    let other = world.client();
    assert_eq!(world.arrive(other), Welcome::Waiting);
    let opened = world.opened();
    assert_eq!(world.log_in(opened[0]), GiveBack::Idle);
    assert_eq!(world.take_orders(), [Order::Welcome { client: other }]);
    assert_eq!(closed(&world.give_back(server)), Some(CloseReason::Changed));
    assert_eq!(world.take_orders(), [Order::Completed { operation }]);
    assert!(matches!(world.ask(client), Ask::Server { .. }));
}

/// With `server_fast_close` sessions without a transaction lose their old connection at once.
#[test]
fn fast_close_recalls_marked_servers() {
    let mut world = World::new(Settings {
        fast_close: true,
        ..sized(1)
    });
    let (client, server) = world.served();
    world.maintain();
    assert_eq!(world.take_orders(), []);
    let _done = world.book.reconnect(Scope::All, ms(0), &mut world.orders);
    world.maintain();
    let reason = CloseReason::Changed;
    assert_eq!(
        world.take_orders(),
        [Order::Recall {
            server,
            client,
            reason
        }]
    );
}

#[test]
fn a_killed_database_loses_its_clients_and_is_paused() {
    let mut world = World::new(sized(1));
    let (client, _server) = world.served();
    let [waits] = world.waiting(world.pool);
    let scope = Scope::Database(world.database);
    assert_eq!(world.book.kill(scope, &mut world.orders), Commanded::Done);
    let why = Refusal::Killed;
    let dismissed = [client, waits].map(|client| Order::Dismiss {
        client,
        why: why.clone(),
    });
    assert_eq!(world.take_orders(), dismissed);
    assert!(world.book.database_rows()[0].is_paused);
}

#[test]
fn a_disabled_database_takes_no_logins_and_serves_on() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let done = world.book.set_disabled(world.database, Disabled::Yes);
    assert_eq!(done, Commanded::Done);
    let other = world.client();
    let why = Refusal::Disabled("bank".into());
    assert_eq!(why.to_string(), "database \"bank\" is disabled");
    assert_eq!(world.arrive(other), Welcome::Refused(why));
    assert_eq!(world.give_back(server), GiveBack::Idle);
    assert!(matches!(world.ask(client), Ask::Server { .. }));
    let done = world.book.set_disabled(world.database, Disabled::No);
    assert_eq!(done, Commanded::Done);
    assert_eq!(world.arrive(other), Welcome::Ready);
}

#[test]
fn shutdown_waits_for_servers() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let [waits] = world.waiting(world.pool);
    let form = Shutdown::WaitForServers;
    let begun = world.book.shut_down(form, &mut world.orders);
    let Commanded::Pending(operation) = begun else {
        unreachable!("{begun:?}");
    };
    let why = Refusal::ShuttingDown;
    assert_eq!(why.to_string(), "server shutting down");
    let refused = Order::Refuse {
        client: waits,
        why: why.clone(),
    };
    assert_eq!(world.take_orders(), [refused]);
    let resumed = world.book.resume(Scope::All, ms(0), &mut world.orders);
    assert_eq!(resumed, Commanded::ShuttingDown);
    assert!(closed(&world.give_back(server)).is_some());
    assert_eq!(world.take_orders(), [Order::Completed { operation }]);
    assert_eq!(world.ask(client), Ask::Refused(why));
}

#[test]
fn shutdown_waits_for_clients() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let form = Shutdown::WaitForClients;
    let Commanded::Pending(operation) = world.book.shut_down(form, &mut world.orders) else {
        unreachable!("a client is there");
    };
    let late = world.client();
    assert_eq!(
        world.arrive(late),
        Welcome::Refused(Refusal::PoolerShutsDown)
    );
    assert_eq!(world.give_back(server), GiveBack::Idle);
    assert!(matches!(world.ask(client), Ask::Server { .. }));
    assert_eq!(world.give_back(server), GiveBack::Idle);
    for client in [client, late] {
        assert_eq!(world.take_orders(), []);
        let left = world.book.leave(client, ms(0), &mut world.orders);
        assert_eq!(left, Left::Nothing);
    }
    assert_eq!(world.take_orders(), [Order::Completed { operation }]);
}

#[test]
fn shutdown_waits_for_transactions() {
    let mut world = World::new(sized(1));
    let (busy, server) = world.served();
    let [waits] = world.waiting(world.pool);
    let form = Shutdown::WaitForTransactions;
    let begun = world.book.shut_down(form, &mut world.orders);
    assert!(matches!(begun, Commanded::Pending(_)));
    let drained = |client| Order::Dismiss {
        client,
        why: Refusal::Drained,
    };
    assert_eq!(Refusal::Drained.code(), "57P01");
    assert_eq!(world.take_orders(), [drained(waits)]);
    assert_eq!(world.give_back(server), GiveBack::Idle);
    assert_eq!(world.take_orders(), [drained(busy)]);
}

/// A session that keeps its server between transactions is asked for it, until it gives it back.
#[test]
fn a_drain_recalls_the_servers_of_sessions() {
    let mut world = World::new(sized(1));
    let (client, server) = world.served();
    let form = Shutdown::WaitForTransactions;
    let begun = world.book.shut_down(form, &mut world.orders);
    assert!(matches!(begun, Commanded::Pending(_)));
    for _ in 0..2 {
        world.maintain();
        let reason = CloseReason::ShuttingDown;
        let recall = Order::Recall {
            server,
            client,
            reason,
        };
        assert_eq!(world.take_orders(), [recall]);
    }
    assert_eq!(world.book.closed(server, ms(0), &mut world.orders), None);
    let why = Refusal::Drained;
    assert_eq!(world.take_orders(), [Order::Dismiss { client, why }]);
}

/// The book does not report an operation after its console has disconnected.
#[test]
fn an_operation_can_be_given_up() {
    let mut world = World::new(sized(1));
    let (_, server) = world.served();
    let Commanded::Pending(operation) = world.book.pause(Scope::All, &mut world.orders) else {
        unreachable!("a server is held");
    };
    world.book.give_up(operation);
    assert!(closed(&world.give_back(server)).is_some());
    assert_eq!(world.take_orders(), []);
}
