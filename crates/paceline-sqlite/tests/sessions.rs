//! Sessions over both protocols, with the client `postgres`, which speaks the extended one in
//! binary.

mod common;

use common::{code, wait_until, World};
use postgres::{types::Type, SimpleQueryMessage};

fn texts(messages: &[SimpleQueryMessage]) -> Vec<Vec<Option<String>>> {
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| {
        (0..row.len())
            .map(|index| row.get(index).map(str::to_owned))
            .collect()
    })
    .collect()
}

fn one(client: &mut postgres::Client, sql: &str) -> Option<String> {
    let messages = client.simple_query(sql).expect("a result");
    texts(&messages)[0][0].clone()
}

#[test]
fn values_of_all_types_are_read_as_they_were_written() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(a smallint, b int, c bigint, d real, e double precision, f text, g bool,
             h bytea, i varchar(9))",
        )
        .expect("a table");
    let insert = "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let (bytes, name) = (vec![0_u8, 255], "it's");
    let changed = client
        .execute(
            insert,
            &[
                &-2_i16,
                &7,
                &(1_i64 << 40),
                &1.5_f32,
                &0.1_f64,
                &name,
                &true,
                &bytes,
                &"v",
            ],
        )
        .expect("a row");
    assert_eq!(changed, 1);
    client
        .execute(
            insert,
            &[
                &None::<i16>,
                &None::<i32>,
                &None::<i64>,
                &None::<f32>,
                &None::<f64>,
                &None::<&str>,
                &None::<bool>,
                &None::<Vec<u8>>,
                &None::<&str>,
            ],
        )
        .expect("a row of NULLs");
    let rows = client
        .query("SELECT * FROM t ORDER BY a DESC NULLS LAST", &[])
        .expect("rows");
    let row = &rows[0];
    assert_eq!(
        (
            row.get::<_, i16>(0),
            row.get::<_, i32>(1),
            row.get::<_, i64>(2)
        ),
        (-2, 7, 1 << 40)
    );
    assert_eq!((row.get::<_, f32>(3), row.get::<_, f64>(4)), (1.5, 0.1));
    assert_eq!((row.get::<_, &str>(5), row.get::<_, bool>(6)), (name, true));
    assert_eq!(
        (row.get::<_, Vec<u8>>(7), row.get::<_, &str>(8)),
        (bytes, "v")
    );
    assert!((0..9).all(|index| rows[1].get::<_, Option<i16>>(0).is_none() || index > 0));
}

/// SQLite numbers parameters by their appearance, so `$2, $1` would swap them; and `$1::int` is one
/// name of a parameter to it, which stays NULL.
#[test]
fn parameters_are_taken_by_their_numbers() {
    let world = World::new();
    let mut client = world.client();
    let row = client
        .query_one("SELECT $2::text, $1::text", &[&"one", &"two"])
        .expect("a row");
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, &str>(1)),
        ("two", "one")
    );
    let row = client
        .query_one("SELECT $1::int + 1 AS n", &[&41])
        .expect("a row");
    assert_eq!(row.get::<_, i32>(0), 42);
}

/// SQLite compares a number with a text by their classes: every text is greater.
#[test]
fn a_parameter_without_a_type_compares_as_a_number() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("CREATE TABLE t(id int); INSERT INTO t VALUES (1), (2), (3)")
        .expect("rows");
    let count = "SELECT count(*) FROM t WHERE id + $1 > $2";
    let statement = client.prepare(count).expect("a statement");
    assert_eq!(statement.params(), [Type::INT4, Type::TEXT]);
    let row = client.query_one(&statement, &[&1, &"2"]).expect("a row");
    assert_eq!(row.get::<_, i64>(0), 2);
}

#[test]
fn errors_have_their_sqlstates() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(id int PRIMARY KEY, n int NOT NULL CHECK (n > 0));
            INSERT INTO t VALUES (1, 1)",
        )
        .expect("a table");
    for (sql, expected) in [
        ("SELEC 1", "42601"),
        ("SELECT * FROM nosuch", "42P01"),
        ("SELECT nosuch FROM t", "42703"),
        // An unknown name in quotes would be a text to SQLite.
        ("SELECT \"nosuch\" FROM t", "42703"),
        ("SELECT nosuch(1)", "42883"),
        ("INSERT INTO t VALUES (1, 1)", "23505"),
        ("INSERT INTO t VALUES (2, NULL)", "23502"),
        ("INSERT INTO t VALUES (2, 0)", "23514"),
        ("CREATE TABLE t(id int)", "42P07"),
        ("ATTACH 'x' AS y", "0A000"),
        ("PRAGMA journal_mode = DELETE", "0A000"),
        ("CREATE TEMP TABLE x(a int)", "0A000"),
        ("PREPARE TRANSACTION 'x'", "0A000"),
        ("SELECT 'abc", "42601"),
        ("SET nosuch = 1", "42704"),
        ("FETCH 1 FROM nosuch", "34000"),
    ] {
        assert_eq!(code(client.simple_query(sql)), expected, "{sql}");
    }
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM t").as_deref(),
        Some("1")
    );
}

/// What SQLite takes without complaint, a client would read as another value.
#[test]
fn values_that_do_not_fit_their_type_are_errors() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(n int, b bigint, m numeric(8,2));
            INSERT INTO t VALUES ('abc', 9223372036854775807, 1.5)",
        )
        .expect("a row");
    assert_eq!(code(client.simple_query("SELECT n FROM t")), "22P02");
    assert_eq!(code(client.query("SELECT n FROM t", &[])), "22P02");
    client
        .batch_execute("UPDATE t SET n = 1, b = b + 1")
        .expect("SQLite makes it a real");
    assert_eq!(code(client.query("SELECT b FROM t", &[])), "22003");
    assert_eq!(one(&mut client, "SELECT m FROM t").as_deref(), Some("1.50"));
}

#[test]
fn a_failed_transaction_only_ends() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("CREATE TABLE t(id int)")
        .expect("a table");
    client
        .batch_execute("BEGIN; INSERT INTO t VALUES (1)")
        .expect("a transaction");
    assert_eq!(code(client.simple_query("SELECT nosuch")), "42703");
    assert_eq!(code(client.simple_query("SELECT 1")), "25P02");
    client.batch_execute("COMMIT").expect("it rolls back");
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM t").as_deref(),
        Some("0")
    );
    client
        .batch_execute("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a; INSERT INTO t VALUES (2)")
        .expect("a savepoint");
    assert_eq!(code(client.simple_query("SELECT nosuch")), "42703");
    client
        .batch_execute("ROLLBACK TO a; INSERT INTO t VALUES (3); RELEASE a; COMMIT")
        .expect("it goes on");
    assert_eq!(
        one(&mut client, "SELECT sum(id) FROM t").as_deref(),
        Some("4")
    );
}

/// Statements of one message are one transaction: none of them stays if one fails.
#[test]
fn the_statements_of_one_message_are_one_transaction() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("CREATE TABLE t(id int)")
        .expect("a table");
    let result =
        client.batch_execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); SELECT nosuch");
    assert_eq!(code(result), "42703");
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM t").as_deref(),
        Some("0")
    );
}

#[test]
fn portals_return_rows_in_pieces() {
    let world = World::new();
    let mut client = world.client();
    let mut transaction = client.transaction().expect("a transaction");
    let statement = transaction
        .prepare("SELECT i FROM generate_series(1, $1::int) AS g(i)")
        .expect("a statement");
    let portal = transaction.bind(&statement, &[&10]).expect("a portal");
    let sizes: Vec<_> = (0..4)
        .map(|_| transaction.query_portal(&portal, 4).expect("rows").len())
        .collect();
    assert_eq!(sizes, [4, 4, 2, 0]);
    drop(portal);
    transaction
        .batch_execute("DECLARE c CURSOR FOR SELECT 1 UNION SELECT 2 UNION SELECT 3")
        .expect("a cursor");
    let rows = transaction.simple_query("FETCH 2 FROM c").expect("rows");
    assert_eq!(
        texts(&rows),
        [[Some("1".to_owned())], [Some("2".to_owned())]]
    );
    let rows = transaction.simple_query("FETCH ALL FROM c").expect("rows");
    assert_eq!(texts(&rows), [[Some("3".to_owned())]]);
    transaction.commit().expect("the end");
}

/// The rows of another session's change of the table must not arrive with the types of before.
#[test]
fn a_result_type_that_has_changed_is_an_error() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    client
        .batch_execute("CREATE TABLE t(id int); INSERT INTO t VALUES (1)")
        .expect("a table");
    let statement = client.prepare("SELECT * FROM t").expect("a statement");
    assert_eq!(client.query(&statement, &[]).expect("rows").len(), 1);
    other
        .batch_execute("ALTER TABLE t ADD COLUMN name text")
        .expect("a column");
    assert_eq!(code(client.query(&statement, &[])), "0A000");
    let statement = client.prepare("SELECT * FROM t").expect("a statement");
    assert_eq!(client.query(&statement, &[]).expect("rows")[0].len(), 2);
}

#[test]
fn rows_are_copied_in_and_out() {
    use std::io::{Read, Write};
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("CREATE TABLE t(id int, name text)")
        .expect("a table");
    let mut writer = client.copy_in("COPY t FROM STDIN").expect("a copy");
    for id in 0..20_000 {
        writeln!(writer, "{id}\tname {id}").expect("a line");
    }
    assert_eq!(writer.finish().expect("the end"), 20_000);
    let mut data = String::new();
    let query =
        "COPY (SELECT * FROM t WHERE id < 2 ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER)";
    client
        .copy_out(query)
        .expect("a copy")
        .read_to_string(&mut data)
        .expect("data");
    assert_eq!(data, "id,name\n0,name 0\n1,name 1\n");
    let mut writer = client.copy_in("COPY t FROM STDIN").expect("a copy");
    writer.write_all(b"1\tx\nabc\ty\n").expect("lines");
    assert_eq!(code(writer.finish()), "22P02");
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM t").as_deref(),
        Some("20000")
    );
}

/// A result that is much larger than any buffer arrives whole, while the client reads slowly.
#[test]
fn a_large_result_arrives_whole() {
    use postgres::fallible_iterator::FallibleIterator;
    let world = World::new();
    let mut client = world.client();
    let sql = "SELECT i::bigint, repeat('x', 1000) FROM generate_series(1, 30000) AS g(i)";
    let mut rows = client.query_raw(sql, Vec::<i32>::new()).expect("rows");
    let (mut count, mut sum) = (0_i64, 0);
    while let Some(row) = rows.next().expect("a row") {
        count += 1;
        sum += row.get::<_, i64>(0);
        assert_eq!(row.get::<_, &str>(1).len(), 1000);
    }
    assert_eq!((count, sum), (30_000, 30_000 * 30_001 / 2));
}

#[test]
fn a_statement_is_cancelled() {
    let world = World::new();
    let mut client = world.client();
    let token = client.cancel_token();
    let sleeper = std::thread::spawn(move || {
        let result = client.simple_query("SELECT pg_sleep(600)");
        let code = code(result);
        // The session continues.
        (code, one(&mut client, "SELECT 5"))
    });
    wait_until("the cancel arrives", || {
        token
            .cancel_query(postgres::NoTls)
            .expect("a cancel is sent");
        sleeper.is_finished()
    });
    let (code, next) = sleeper.join().expect("no panic");
    assert_eq!(code, "57014");
    let _ = next;
}

#[test]
fn a_statement_ends_at_its_timeout() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("SET statement_timeout = '50ms'")
        .expect("a setting");
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    assert_eq!(code(client.simple_query(endless)), "57014");
    client
        .batch_execute("SET statement_timeout = 0")
        .expect("a setting");
    assert_eq!(one(&mut client, "SELECT 1").as_deref(), Some("1"));
}

/// Statements that last take all threads that there are at first; a cancel must still get one.
#[test]
fn many_long_statements_are_cancelled() {
    let world = World::new();
    let sessions: Vec<_> = (0..20).map(|_| world.client()).collect();
    let tokens: Vec<_> = sessions
        .iter()
        .map(postgres::Client::cancel_token)
        .collect();
    let sleepers: Vec<_> = sessions
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || code(client.simple_query("SELECT pg_sleep(600)")))
        })
        .collect();
    wait_until("all are cancelled", || {
        for (token, sleeper) in tokens.iter().zip(&sleepers) {
            if !sleeper.is_finished() {
                token
                    .cancel_query(postgres::NoTls)
                    .expect("a cancel is sent");
            }
        }
        sleepers.iter().all(std::thread::JoinHandle::is_finished)
    });
    for sleeper in sleepers {
        assert_eq!(sleeper.join().expect("no panic"), "57014");
    }
}

/// Sessions share connections to the file: a late cancel must not stop the statement of
/// the next session on the same connection.
#[test]
fn a_late_cancel_hits_nothing() {
    let world = World::new();
    let (mut first, mut second) = (world.client(), world.client());
    first.batch_execute("SELECT 1").expect("it has run");
    let token = first.cancel_token();
    let runner = std::thread::spawn(move || {
        for _ in 0..10 {
            second
                .batch_execute("SELECT pg_sleep(0.02)")
                .expect("it is not stopped");
        }
    });
    while !runner.is_finished() {
        token
            .cancel_query(postgres::NoTls)
            .expect("a cancel is sent");
    }
    runner.join().expect("no panic");
    first.batch_execute("SELECT 1").expect("nor is this one");
}
