//! Shared connections (`multiplex`): requests of several clients are outstanding on one server.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use paceline_pg_wire::frontend;

use crate::{
    client::{Client, Connect},
    pooler::Pooler,
    sharing::{active, ask, one, prepared, resident, statement, waiting, Lock},
    support::postgres::{self, USER},
    wait_until,
};

const SETTINGS: &str = "pool_mode = statement\nmultiplex = 8\nmax_client_conn = 500";

/// Requests are outstanding together, on one server, and each client gets its own reply.
#[test]
fn several_requests_are_outstanding_on_one_server() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    let lock = Lock::hold(postgres, 7001);
    let mut first = pooler.client();
    first.send(&statement(&lock.waits("first")));
    lock.wait_for_waiter();
    let mut others: Vec<Client> = (0..5).map(|_| pooler.client()).collect();
    for (number, client) in others.iter_mut().enumerate() {
        client.send(&statement(&format!("SELECT {number} + pg_backend_pid()*0")));
    }
    wait_until("all are outstanding", || active(&pooler) == 6);
    lock.release();
    assert_eq!(first.finish(), one("first"));
    for (number, client) in others.iter_mut().enumerate() {
        assert_eq!(client.finish(), one(number));
    }
}

/// The ninth of eight waits for the first reply, and gets its own.
#[test]
fn no_more_than_multiplex_are_outstanding() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = "pool_mode = statement\nmultiplex = 3\ndefault_pool_size = 1";
    let pooler = Pooler::of(postgres, settings);
    let lock = Lock::hold(postgres, 7002);
    let mut clients: Vec<Client> = (0..6).map(|_| pooler.client()).collect();
    clients[0].send(&statement(&lock.waits("0")));
    lock.wait_for_waiter();
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(&statement(&format!("SELECT {number}")));
    }
    wait_until("three wait", || {
        waiting(&pooler) == 3 && active(&pooler) == 3
    });
    lock.release();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.finish(), one(number));
    }
}

/// A reply of another client's request has another number. Statements with and without a name,
/// errors in between, clients that pipeline, and clients that need a server for themselves.
#[test]
fn shared_replies_are_never_crossed() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 2"));
    thread::scope(|scope| {
        for number in 0..24_u32 {
            let pooler = &pooler;
            scope.spawn(move || {
                let mut client = pooler.client();
                for turn in 0..40 {
                    one_turn(&mut client, number, turn);
                }
            });
        }
    });
}

/// The types of the messages up to `Z`.
fn types(client: &mut Client) -> String {
    let mut types = String::new();
    while !types.ends_with('Z') {
        types.push(client.message().expect("a reply").0.into());
    }
    types
}

fn one_turn(client: &mut Client, number: u32, turn: u32) {
    let expected = format!("{number}.{turn}");
    let sql = format!("SELECT '{expected}'");
    match (number + turn) % 6 {
        0 => {
            client.send(&prepared(b"mine", &sql));
            assert_eq!(client.finish(), one(&expected));
        }
        1 => {
            // The front-end answers the Parse by itself: all clients have this statement.
            client.send(&prepared(b"ours", "SELECT 'ours'"));
            assert_eq!(types(client), "12DC3Z");
        }
        2 => {
            let sql = format!("SELECT 1/0, '{expected}'");
            let failure = ask(client, &sql).expect_err("a division by zero");
            assert_eq!(failure.code, "22012");
        }
        3 => {
            let mut bytes = Vec::new();
            for part in 0..5 {
                bytes.extend(statement(&format!("SELECT '{expected}.{part}'")));
            }
            client.send(&bytes);
            for part in 0..5 {
                assert_eq!(client.finish(), one(format!("{expected}.{part}")));
            }
        }
        4 => assert_eq!(client.query(&sql), one(&expected)),
        _ => assert_eq!(ask(client, &sql), one(&expected)),
    }
}

/// The front-end answers the Parse of a statement that the server has, at its place: behind the replies
/// to the other client, and not among them.
#[test]
fn own_answers_wait_for_the_replies_of_others() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    let lock = Lock::hold(postgres, 7007);
    let (mut first, mut second) = (pooler.client(), pooler.client());
    second.send(&prepared(b"ours", "SELECT 'ours'"));
    assert_eq!(types(&mut second), "12DC3Z");
    let mut bytes = Vec::new();
    frontend::parse(&mut bytes, b"waits", lock.waits("first").as_bytes(), &[]);
    frontend::sync(&mut bytes);
    first.send(&bytes);
    assert_eq!(types(&mut first), "1Z");
    let mut bytes = Vec::new();
    frontend::bind(&mut bytes, b"", b"waits", &[]);
    frontend::execute(&mut bytes, b"", 0);
    frontend::sync(&mut bytes);
    first.send(&bytes);
    lock.wait_for_waiter();
    second.send(&prepared(b"ours", "SELECT 'ours'"));
    wait_until("both are outstanding", || active(&pooler) == 2);
    lock.release();
    assert_eq!(types(&mut first), "2DCZ");
    assert_eq!(types(&mut second), "12DC3Z");
}

/// If the server is lost, each client that has sent something learns that its outcome is unknown,
/// nothing is sent again, and all go on.
#[test]
fn a_lost_server_is_reported_to_each_client_and_nothing_is_repeated() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    let lock = Lock::hold(postgres, 7003);
    let mut clients: Vec<Client> = (0..4).map(|_| pooler.client()).collect();
    let table = "CREATE TABLE IF NOT EXISTS shared_lost (number int)";
    clients[0].query(table).expect("a table");
    clients[0]
        .query("DELETE FROM shared_lost")
        .expect("it is empty");
    clients[0].send(&statement(&lock.waits("never")));
    lock.wait_for_waiter();
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(&statement(&format!(
            "INSERT INTO shared_lost VALUES ({number})"
        )));
    }
    wait_until("all are outstanding", || active(&pooler) == 4);
    let mut admin = lock.pooler.client();
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' \
                AND objid = 7003 AND NOT granted";
    assert_eq!(admin.query(kill), one(1));
    for client in &mut clients {
        let failure = client.finish().expect_err("its server is gone");
        assert_eq!(failure.code, "08007", "{failure:?}");
    }
    lock.release();
    for client in &mut clients {
        assert_eq!(ask(client, "SELECT count(*) FROM shared_lost"), one(0));
    }
}

/// What needs a server for itself gets one, and what statement mode refuses is refused.
#[test]
fn other_requests_get_a_server_for_themselves() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    let mut client = pooler.client();
    assert_eq!(
        ask(&mut client, "SHOW transaction_isolation"),
        one("read committed")
    );
    assert!(ask(&mut client, "WITH a AS (SELECT 3) SELECT * FROM a").is_ok());
    // A Flush asks for replies before the end of the batch.
    let mut bytes = statement("SELECT 4");
    let sync = bytes.split_off(bytes.len() - 5);
    frontend::flush(&mut bytes);
    client.send(&bytes);
    loop {
        if client.message().expect("a reply").0 == b'C' {
            break;
        }
    }
    client.send(&sync);
    assert_eq!(client.finish(), Ok(Vec::new()));
    let failure = ask(&mut client, "BEGIN").expect_err("statement mode has no blocks");
    assert_eq!(
        failure.message,
        "transaction blocks not allowed in statement pooling mode"
    );
    assert_eq!(ask(&mut pooler.client(), "SELECT 5"), one(5));
}

/// Clients with other parameters share the server too, one after the other, and each has its own.
#[test]
fn shared_requests_run_with_their_clients_parameters() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    thread::scope(|scope| {
        for number in 0..9_u32 {
            let pooler = &pooler;
            scope.spawn(move || {
                let name = format!("name {}", number % 3);
                let connect = Connect::new("db", USER).with("application_name", &name);
                let mut client = Client::to(pooler.address(), &connect).expect("a login");
                for _ in 0..30 {
                    let sql = "SELECT current_setting('application_name')";
                    assert_eq!(ask(&mut client, sql), one(&name));
                }
            });
        }
    });
    let odd = Connect::new("db", USER).with("TimeZone", "no such zone");
    let mut odd = Client::to(pooler.address(), &odd).expect("a login");
    let failure = ask(&mut odd, "SELECT 1").expect_err("the server refuses the zone");
    assert_eq!(failure.message, "invalid server parameter");
    assert_eq!(ask(&mut pooler.client(), "SELECT 1"), one(1));
}

/// A cancel could hit the statement of another client: it is dropped.
#[test]
fn no_cancel_reaches_a_shared_connection() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    let lock = Lock::hold(postgres, 7004);
    let (mut first, mut second) = (pooler.client(), pooler.client());
    first.send(&statement(&lock.waits("first")));
    lock.wait_for_waiter();
    second.send(&statement(&lock.waits("second")));
    wait_until("both are outstanding", || active(&pooler) == 2);
    second.cancel();
    first.cancel();
    assert!(pooler.log().contains("cancel request for idle client"));
    lock.release();
    assert_eq!(first.finish(), one("first"));
    assert_eq!(second.finish(), one("second"));
}

/// The replies of a client that has left are nobody's.
#[test]
fn a_client_that_leaves_takes_its_replies_along() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 2"));
    let lock = Lock::hold(postgres, 7005);
    let (mut first, mut second) = (pooler.client(), pooler.client());
    first.send(&statement(&lock.waits("first")));
    lock.wait_for_waiter();
    second.send(&statement("SELECT 'second'"));
    wait_until("both are outstanding", || active(&pooler) == 2);
    drop(first);
    wait_until("the client is gone", || active(&pooler) == 1);
    // Another server takes new requests: the statement of the one that has left may last.
    let mut third = pooler.client();
    assert_eq!(ask(&mut third, "SELECT 'third'"), one("third"));
    lock.release();
    assert_eq!(second.finish(), one("second"));
    assert_eq!(ask(&mut third, "SELECT 3"), one(3));
}

/// A stream of shared requests does not keep a server for ever: a client that needs one has its turn,
/// and a pause ends.
#[test]
fn shared_requests_leave_room_for_others() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = "pool_mode = statement\nmultiplex = 2\ndefault_pool_size = 1";
    let pooler = Pooler::of(postgres, settings);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = pooler.client();
                while !is_over.load(Ordering::Relaxed) {
                    // It lasts until the next client has sent its request.
                    let rows = ask(&mut client, "SELECT 1 FROM pg_sleep(0.005) AS t");
                    assert_eq!(rows, one(1));
                }
            });
        }
        let mut single = pooler.client();
        let served = (0..5).all(|_| single.query("SELECT 2") == one(2));
        pooler.admin("PAUSE");
        let rows = pooler.admin("SHOW SERVERS");
        let of_db = rows.iter().filter(|row| row[2] == "db").count();
        pooler.admin("RESUME");
        is_over.store(true, Ordering::Relaxed);
        assert!(served, "a client that needs a server has its turn");
        assert_eq!(of_db, 0, "a pause closes all servers");
    });
}

/// A client that takes nothing of a large result is closed: others share its connection.
#[test]
fn a_slow_reader_holds_up_the_others_for_a_while_only() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    let (mut slow, mut quick) = (pooler.client(), pooler.client());
    slow.send(&statement(
        "SELECT repeat('x', 1000) FROM generate_series(1, 200000)",
    ));
    wait_until("its replies come", || active(&pooler) == 1);
    assert_eq!(ask(&mut quick, "SELECT 1"), one(1));
    let resident = resident(&pooler);
    assert!(resident < 100_000, "{resident} kB");
    let text = "the replies on a shared connection are not taken";
    wait_until("the log has the reason", || pooler.log().contains(text));
    // One that reads gets all of it.
    let rows = ask(
        &mut quick,
        "SELECT repeat('x', 1000) FROM generate_series(1, 20000)",
    );
    assert_eq!(rows.map(|rows| rows.len()), Ok(20_000));
}

/// A client waits for a shared connection as long as for any other.
#[test]
fn query_wait_timeout_ends_the_wait_for_a_shared_connection() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = "pool_mode = statement\nmultiplex = 2\ndefault_pool_size = 1\n\
                    query_wait_timeout = 1";
    let pooler = Pooler::of(postgres, settings);
    let lock = Lock::hold(postgres, 7006);
    let mut clients: Vec<Client> = (0..3).map(|_| pooler.client()).collect();
    clients[0].send(&statement(&lock.waits("0")));
    lock.wait_for_waiter();
    for client in &mut clients[1..] {
        client.send(&statement("SELECT 1"));
    }
    let mut third = clients.pop().expect("three clients");
    let failure = third.finish().expect_err("it has waited");
    assert_eq!(failure.message, "query_wait_timeout");
    lock.release();
    assert_eq!(clients[1].finish(), one(1));
    assert_eq!(clients[0].finish(), one("0"));
}

/// An administrator switches `multiplex` off while requests wait for a shared connection: they are
/// still served.
#[test]
fn requests_that_wait_are_served_when_multiplex_is_switched_off() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = "pool_mode = statement\nmultiplex = 2\ndefault_pool_size = 1";
    let pooler = Pooler::of(postgres, settings);
    let lock = Lock::hold(postgres, 7008);
    let mut clients: Vec<Client> = (0..4).map(|_| pooler.client()).collect();
    clients[0].send(&statement(&lock.waits("0")));
    lock.wait_for_waiter();
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(&statement(&format!("SELECT {number}")));
    }
    wait_until("two wait", || waiting(&pooler) == 2);
    pooler.admin("SET multiplex = 0");
    lock.release();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.finish(), one(number));
        assert_eq!(ask(client, "SELECT 'alone'"), one("alone"));
    }
}

/// Clients come, ask and leave while the database is paused: nothing of them is kept.
#[test]
fn requests_of_clients_that_have_left_cost_nothing() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    assert_eq!(ask(&mut pooler.client(), "SELECT 1"), one(1));
    pooler.admin("PAUSE db");
    let long = statement(&format!("SELECT length('{}')", "x".repeat(60_000)));
    let come_and_go = |count: usize| {
        for _ in 0..count {
            let mut client = pooler.client();
            client.send(&long);
            wait_until("its request waits", || waiting(&pooler) > 0);
            drop(client);
            wait_until("it is gone", || waiting(&pooler) == 0);
        }
    };
    come_and_go(30);
    let before = resident(&pooler);
    come_and_go(200);
    let after = resident(&pooler);
    assert!(after < before + 6_000, "{before} kB, then {after} kB");
    pooler.admin("RESUME db");
    assert_eq!(ask(&mut pooler.client(), "SELECT 2"), one(2));
}

/// `KILL` ends at once the clients whose requests wait, and the others when theirs are answered.
#[test]
fn kill_refuses_requests_that_wait() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 1"));
    assert_eq!(ask(&mut pooler.client(), "SELECT 1"), one(1));
    pooler.admin("PAUSE db");
    let mut clients: Vec<Client> = (0..3).map(|_| pooler.client()).collect();
    for client in &mut clients {
        client.send(&statement("SELECT 1"));
    }
    wait_until("all wait", || waiting(&pooler) == 3);
    pooler.admin("KILL db");
    for client in &mut clients {
        let failure = client.finish().expect_err("it is killed");
        assert_ne!(failure.message, "query_wait_timeout");
    }
    pooler.admin("RESUME db");
    assert_eq!(ask(&mut pooler.client(), "SELECT 2"), one(2));
}

/// A shared connection that waits until it can set other parameters leaves the requests behind to
/// another connection.
#[test]
fn requests_behind_other_parameters_get_another_connection() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, &format!("{SETTINGS}\ndefault_pool_size = 2"));
    let lock = Lock::hold(postgres, 7009);
    let (mut first, mut third) = (pooler.client(), pooler.client());
    let connect = Connect::new("db", USER).with("application_name", "another");
    let mut second = Client::to(pooler.address(), &connect).expect("a login");
    assert_eq!(ask(&mut first, "SELECT 1"), one(1));
    pooler.admin("PAUSE db");
    first.send(&statement(&lock.waits("first")));
    wait_until("one waits", || waiting(&pooler) == 1);
    second.send(&statement("SELECT 'second'"));
    wait_until("two wait", || waiting(&pooler) == 2);
    third.send(&statement("SELECT 'third'"));
    wait_until("three wait", || waiting(&pooler) == 3);
    pooler.admin("RESUME db");
    assert_eq!(third.finish(), one("third"));
    lock.release();
    assert_eq!(first.finish(), one("first"));
    assert_eq!(second.finish(), one("second"));
}

/// A shared connection that waits for a server takes nothing: a request goes to one that has room.
#[test]
fn a_request_goes_to_a_connection_that_has_a_server() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = "pool_mode = statement\nmultiplex = 2\ndefault_pool_size = 2";
    let pooler = Pooler::of(postgres, settings);
    let locks: Vec<Lock> = (7010..7014)
        .map(|number| Lock::hold(postgres, number))
        .collect();
    let mut clients: Vec<Client> = (0..3).map(|_| pooler.client()).collect();
    let mut single = pooler.client();
    // The first connection has two requests, the second one has one.
    clients[0].send(&statement(&locks[0].waits("0")));
    locks[0].wait_for_waiter();
    clients[1].send(&statement("SELECT 1"));
    wait_until("the first is full", || active(&pooler) == 2);
    clients[2].send(&statement(&locks[1].waits("2")));
    locks[1].wait_for_waiter();
    // The first one gives its server to a client that needs it for itself.
    single.begin(&locks[2].waits("single"));
    wait_until("it waits", || waiting(&pooler) == 1);
    let mut locks = locks.into_iter();
    locks.next().expect("a lock").release();
    assert_eq!(clients[0].finish(), one(0));
    assert_eq!(clients[1].finish(), one(1));
    let (second, of_single, last) = (locks.next(), locks.next(), locks.next());
    of_single.as_ref().expect("a lock").wait_for_waiter();
    // The second one is full, so the first one waits for a server.
    clients[0].send(&statement("SELECT 0"));
    wait_until("the second is full", || active(&pooler) == 3);
    let last = last.expect("a lock");
    clients[1].send(&statement(&last.waits("1")));
    wait_until("one waits", || waiting(&pooler) == 1);
    second.expect("a lock").release();
    assert_eq!(clients[2].finish(), one(2));
    assert_eq!(clients[0].finish(), one(0));
    last.wait_for_waiter();
    // The second one has room.
    clients[2].send(&statement("SELECT 2"));
    wait_until("it is taken", || active(&pooler) == 3);
    last.release();
    assert_eq!(clients[1].finish(), one(1));
    assert_eq!(clients[2].finish(), one(2));
    of_single.expect("a lock").release();
    assert_eq!(single.finish(), one("single"));
}

/// The counters have each request once.
#[test]
fn shared_requests_are_counted() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, SETTINGS);
    let mut client = pooler.client();
    for _ in 0..10 {
        assert_eq!(ask(&mut client, "SELECT 1"), one(1));
    }
    let rows = pooler.admin("SHOW STATS_TOTALS");
    let row = rows.iter().find(|row| row[0] == "db").expect("a row");
    let counts: HashMap<_, _> = ["xact_count", "query_count"]
        .into_iter()
        .zip([&row[2], &row[3]])
        .collect();
    assert!(counts.values().all(|count| *count == "10"), "{counts:?}");
}
