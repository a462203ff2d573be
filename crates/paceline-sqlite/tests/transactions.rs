//! Transactions of concurrent sessions: totals hold, the lane is fair, nothing waits for ever.

mod common;

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use common::{code, connect, wait_until, World};
use paceline_sqlite::Limits;
use postgres::Client;

const ACCOUNTS: i32 = 20;
const START: i64 = 1_000;

fn make_bank(client: &mut Client) {
    client
        .batch_execute(
            "CREATE TABLE account(id int PRIMARY KEY, balance bigint NOT NULL);
             CREATE TABLE ledger(source int, target int, amount int)",
        )
        .expect("tables");
    for id in 0..ACCOUNTS {
        client
            .execute("INSERT INTO account VALUES ($1, $2)", &[&id, &START])
            .expect("an account");
    }
}

fn total(client: &mut Client) -> i64 {
    let row = client
        .query_one("SELECT sum(balance)::bigint FROM account", &[])
        .expect("a sum");
    row.get(0)
}

/// One transfer; a conflict is the only failure that it may meet.
fn transfer(client: &mut Client, source: i32, target: i32) -> Result<(), postgres::Error> {
    let mut transaction = client.transaction()?;
    let read = "SELECT balance FROM account WHERE id = $1";
    let balance: i64 = transaction.query_one(read, &[&source])?.get(0);
    let other: i64 = transaction.query_one(read, &[&target])?.get(0);
    let write = "UPDATE account SET balance = $2 WHERE id = $1";
    // Values that were read are written back: a lost update would change the total.
    transaction.execute(write, &[&source, &(balance - 1)])?;
    transaction.execute(write, &[&target, &(other + 1)])?;
    transaction.execute("INSERT INTO ledger VALUES ($1, $2, 1)", &[&source, &target])?;
    transaction.commit()
}

/// Clients read, compute and write back; readers see the same total in every snapshot.
#[test]
fn transfers_keep_the_total() {
    let world = World::new();
    let address = world.address();
    make_bank(&mut world.client());
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut client = connect(address);
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(total(&mut client), i64::from(ACCOUNTS) * START);
                reads += 1;
            }
            reads
        })
    };
    let writers: Vec<_> = (0..6)
        .map(|number| {
            thread::spawn(move || {
                let mut client = connect(address);
                let (mut done, mut conflicts) = (0, 0);
                for round in 0..60 {
                    let source = (number * 7 + round) % ACCOUNTS;
                    let target = (source + 1 + round % 5) % ACCOUNTS;
                    match transfer(&mut client, source, target) {
                        Ok(()) => done += 1,
                        Err(error) => {
                            assert_eq!(
                                error.code().map(|code| code.code()),
                                Some("40001"),
                                "{error}"
                            );
                            conflicts += 1;
                        }
                    }
                }
                (done, conflicts)
            })
        })
        .collect();
    let results: Vec<(i64, i64)> = writers
        .into_iter()
        .map(|writer| writer.join().expect("no panic"))
        .collect();
    is_over.store(true, Ordering::Relaxed);
    assert!(reader.join().expect("no panic") > 0);
    let done: i64 = results.iter().map(|(done, _)| done).sum();
    let conflicts: i64 = results.iter().map(|(_, conflicts)| conflicts).sum();
    let mut client = world.client();
    assert_eq!(total(&mut client), i64::from(ACCOUNTS) * START);
    let row = client
        .query_one("SELECT count(*) FROM ledger", &[])
        .expect("a count");
    assert_eq!(row.get::<_, i64>(0), done);
    assert!(
        conflicts < done / 4,
        "{conflicts} conflicts, {done} transfers: nothing is predicted"
    );
}

/// A writer that finds another one waits without a thread: the server has one thread only.
#[test]
fn a_writer_that_waits_blocks_no_thread() {
    let world = World::with(|builder| builder.threads(2));
    let address = world.address();
    let mut holder = world.client();
    holder
        .batch_execute("CREATE TABLE t(id int)")
        .expect("a table");
    holder
        .batch_execute("BEGIN; INSERT INTO t VALUES (0)")
        .expect("the lane");
    let waiters: Vec<_> = (1..=8)
        .map(|id| {
            thread::spawn(move || connect(address).execute("INSERT INTO t VALUES ($1)", &[&id]))
        })
        .collect();
    wait_until("all wait", || {
        world.server.statistics().waiting_writers == 8
    });
    let row = world
        .client()
        .query_one("SELECT count(*) FROM t", &[])
        .expect("readers go on");
    assert_eq!(row.get::<_, i64>(0), 0);
    holder.batch_execute("COMMIT").expect("the lane passes on");
    for waiter in waiters {
        assert_eq!(waiter.join().expect("no panic").expect("a row"), 1);
    }
    let row = holder
        .query_one("SELECT count(*) FROM t", &[])
        .expect("a count");
    assert_eq!(row.get::<_, i64>(0), 9);
}

#[test]
fn a_wait_for_the_lane_has_a_limit() {
    let limits = Limits {
        lane_wait: Duration::from_millis(50),
        ..Limits::default()
    };
    let world = World::with(|builder| builder.limits(limits));
    let (mut holder, mut other) = (world.client(), world.client());
    holder
        .batch_execute("CREATE TABLE t(id int); ")
        .expect("a table");
    holder
        .batch_execute("BEGIN; INSERT INTO t VALUES (0)")
        .expect("the lane");
    assert_eq!(
        code(other.execute("INSERT INTO t VALUES (1)", &[])),
        "55P03"
    );
    assert_eq!(
        code(other.simple_query("INSERT INTO t VALUES (1)")),
        "55P03"
    );
    other
        .batch_execute("SET statement_timeout = 20")
        .expect("a setting");
    assert_eq!(
        code(other.simple_query("INSERT INTO t VALUES (1)")),
        "57014"
    );
    assert_eq!(world.server.statistics().waiting_writers, 0);
    holder.batch_execute("ROLLBACK").expect("the end");
    other
        .batch_execute("INSERT INTO t VALUES (1)")
        .expect("the lane is free");
}

#[test]
fn a_writer_that_waits_is_cancelled() {
    let world = World::new();
    let (mut holder, mut other) = (world.client(), world.client());
    holder
        .batch_execute("CREATE TABLE t(id int)")
        .expect("a table");
    holder
        .batch_execute("BEGIN; INSERT INTO t VALUES (0)")
        .expect("the lane");
    let token = other.cancel_token();
    let waiter = thread::spawn(move || code(other.execute("INSERT INTO t VALUES (1)", &[])));
    wait_until("it waits", || {
        world.server.statistics().waiting_writers == 1
    });
    token
        .cancel_query(postgres::NoTls)
        .expect("a cancel is sent");
    assert_eq!(waiter.join().expect("no panic"), "57014");
    assert_eq!(world.server.statistics().waiting_writers, 0);
}

/// The lane must not stay with a client that has gone, nor with one in the queue that has.
#[test]
fn a_lane_holder_that_vanishes_is_rolled_back() {
    let world = World::new();
    let address = world.address();
    let mut holder = world.client();
    holder
        .batch_execute("CREATE TABLE t(id int)")
        .expect("a table");
    holder
        .batch_execute("BEGIN; INSERT INTO t VALUES (0)")
        .expect("the lane");
    let gone = thread::spawn(move || {
        use std::io::Write;
        // A session that asks for the lane, and is closed before its turn.
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        let mut bytes = Vec::new();
        let version = paceline_pg_wire::startup::Version { major: 3, minor: 0 };
        let parameters: [(&[u8], &[u8]); 2] = [(b"user", b"ada"), (b"database", b"bank")];
        paceline_pg_wire::startup::session(&mut bytes, version, parameters);
        paceline_pg_wire::frontend::query(&mut bytes, b"INSERT INTO t VALUES (1)");
        stream.write_all(&bytes).expect("it is sent");
        stream
    });
    let stream = gone.join().expect("no panic");
    wait_until("it waits", || {
        world.server.statistics().waiting_writers == 1
    });
    drop(stream);
    wait_until("it has left the queue", || {
        world.server.statistics().waiting_writers == 0
    });
    let waiter = thread::spawn(move || connect(address).execute("INSERT INTO t VALUES (2)", &[]));
    wait_until("the next one waits", || {
        world.server.statistics().waiting_writers == 1
    });
    drop(holder);
    assert_eq!(waiter.join().expect("no panic").expect("a row"), 1);
    let row = world
        .client()
        .query_one("SELECT sum(id)::int FROM t", &[])
        .expect("a sum");
    assert_eq!(row.get::<_, i32>(0), 2);
}

#[test]
fn an_idle_transaction_is_ended() {
    let limits = Limits {
        idle_writer: Duration::from_millis(50),
        ..Limits::default()
    };
    let world = World::with(|builder| builder.limits(limits));
    let mut holder = world.client();
    holder
        .batch_execute("CREATE TABLE t(id int)")
        .expect("a table");
    holder
        .batch_execute("BEGIN; INSERT INTO t VALUES (0)")
        .expect("the lane");
    // The other one waits until the lane holder is ended.
    world
        .client()
        .batch_execute("INSERT INTO t VALUES (1)")
        .expect("the lane");
    assert!(holder.simple_query("SELECT 1").is_err());
    assert!(holder.is_closed());
}

/// A transaction that has read what another one has changed since must not write.
#[test]
fn a_stale_snapshot_does_not_write() {
    let world = World::new();
    let (mut one, mut other) = (world.client(), world.client());
    one.batch_execute("CREATE TABLE t(n int); INSERT INTO t VALUES (1)")
        .expect("a row");
    let mut one = {
        drop(one);
        world.client()
    };
    one.batch_execute("BEGIN; SELECT n FROM t")
        .expect("a snapshot");
    other
        .batch_execute("UPDATE t SET n = 2")
        .expect("another commit");
    assert_eq!(code(one.batch_execute("UPDATE t SET n = n + 1")), "40001");
    one.batch_execute("ROLLBACK").expect("the end");
    // Now it is predicted to write, and takes the lane at its first statement.
    one.batch_execute("BEGIN; SELECT n FROM t")
        .expect("the lane");
    other
        .batch_execute("SET lock_timeout = '50ms'")
        .expect("a setting");
    assert_eq!(code(other.batch_execute("UPDATE t SET n = 0")), "55P03");
    one.batch_execute("UPDATE t SET n = n; COMMIT")
        .expect("no conflict");
    one.batch_execute("BEGIN; SELECT n FROM t; UPDATE t SET n = n + 1; COMMIT")
        .expect("no conflict");
    let row = other.query_one("SELECT n FROM t", &[]).expect("a row");
    assert_eq!(row.get::<_, i32>(0), 3);
    one.batch_execute("BEGIN READ ONLY; SELECT n FROM t")
        .expect("a snapshot");
    assert_eq!(code(one.batch_execute("UPDATE t SET n = 0")), "25006");
}

/// More transactions read than there are snapshots: the rest waits for one, and gets it.
#[test]
fn snapshots_are_bounded_and_waited_for() {
    let world = World::new();
    let address = world.address();
    world
        .client()
        .batch_execute("CREATE TABLE t(n int); INSERT INTO t VALUES (1)")
        .expect("a row");
    let mut readers: Vec<_> = (0..32).map(|_| world.client()).collect();
    for reader in &mut readers {
        reader
            .batch_execute("BEGIN; SELECT n FROM t")
            .expect("a snapshot");
    }
    assert_eq!(world.server.statistics().snapshots, 32);
    let late =
        thread::spawn(move || connect(address).batch_execute("BEGIN; SELECT n FROM t; COMMIT"));
    readers[7].batch_execute("COMMIT").expect("the end");
    late.join().expect("no panic").expect("a snapshot");
}
