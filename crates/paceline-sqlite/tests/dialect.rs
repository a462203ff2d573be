//! What users of PostgreSQL rely on, and SQLite does otherwise.

mod common;

use common::{code, World};
use postgres::{types::Type, Client, SimpleQueryMessage};

/// The first value of the first row, as text.
fn one(client: &mut Client, sql: &str) -> Option<String> {
    let messages = client.simple_query(sql).expect("a result");
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    row.expect("a row").get(0).map(str::to_owned)
}

/// The first column of all rows, as text.
fn column(client: &mut Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).expect("a result");
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    rows.collect()
}

/// Table, column, constraint and detail of a failed statement.
fn place(client: &mut Client, sql: &str) -> [Option<String>; 4] {
    let error = client.batch_execute(sql).expect_err("it fails");
    let error = error.as_db_error().expect("of the server");
    assert_eq!(error.schema(), Some("public"), "{sql}");
    [
        error.table(),
        error.column(),
        error.constraint(),
        error.detail(),
    ]
    .map(|field| field.map(str::to_owned))
}

/// Object mappers turn the name of a constraint into a message for their users.
#[test]
fn errors_name_what_was_violated() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE p(id int PRIMARY KEY, code text CONSTRAINT one_code UNIQUE);
             CREATE TABLE t(id int, n int NOT NULL CHECK (n > 0), a int, b int, p int REFERENCES p,
                 UNIQUE (a, b), CONSTRAINT order_of_two CHECK (a < b));
             CREATE UNIQUE INDEX by_id ON t(id);
             INSERT INTO p VALUES (1, 'x'), (2, 'y');
             INSERT INTO t VALUES (1, 1, 1, 2, 1)",
        )
        .expect("tables");
    let some = |text: &str| Some(text.to_owned());
    for (sql, table, column, constraint, detail) in [
        (
            "INSERT INTO p VALUES (1, 'z')",
            "p",
            None,
            some("p_pkey"),
            some("Key (id)=(1) already exists."),
        ),
        (
            "INSERT INTO p(code, id) VALUES ('x', 3)",
            "p",
            None,
            some("one_code"),
            some("Key (code)=(x) already exists."),
        ),
        (
            "INSERT INTO t SELECT 2, 1, 1, 2, 1",
            "t",
            None,
            some("t_a_b_key"),
            some("Key (a, b) already exists."),
        ),
        (
            "UPDATE t SET id = 1; INSERT INTO t VALUES (1, 1, 3, 4, 1)",
            "t",
            None,
            some("by_id"),
            some("Key (id)=(1) already exists."),
        ),
        ("INSERT INTO t(id) VALUES (5)", "t", some("n"), None, None),
        ("UPDATE t SET n = 0", "t", None, some("t_n_check"), None),
        (
            "INSERT INTO t VALUES (6, 1, 9, 8, 1)",
            "t",
            None,
            some("order_of_two"),
            None,
        ),
        (
            "INSERT INTO t VALUES (6, 1, 8, 9, 77)",
            "t",
            None,
            some("t_p_fkey"),
            some("Key (p)=(77) is not present in table \"p\"."),
        ),
        (
            "DELETE FROM p WHERE id = 1",
            "t",
            None,
            some("t_p_fkey"),
            some("The key is still referenced from table \"t\"."),
        ),
    ] {
        let found = place(&mut client, sql);
        assert_eq!(found, [some(table), column, constraint, detail], "{sql}");
    }
    let insert = "INSERT INTO p VALUES ($1, $2)";
    let error = client
        .execute(insert, &[&1, &"z"])
        .expect_err("a duplicate");
    let detail = error.as_db_error().and_then(|error| error.detail());
    assert_eq!(detail, Some("Key (id)=(1) already exists."));
}

/// SQLite's key that counts is always `INTEGER`: a client that reads 32 bits of it fails on the day
/// when the count is larger.
#[test]
fn a_bigserial_key_is_a_bigint() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE big(id bigserial PRIMARY KEY, a text);
             CREATE TABLE plain(id serial, a text, PRIMARY KEY (id));
             CREATE TABLE small(id smallint GENERATED ALWAYS AS IDENTITY, a text);
             INSERT INTO big(id) VALUES (5000000000)",
        )
        .expect("tables");
    for (table, kind) in [
        ("big", Type::INT8),
        ("plain", Type::INT4),
        ("small", Type::INT2),
    ] {
        let insert = format!("INSERT INTO {table}(a) VALUES ($1) RETURNING id");
        let statement = client.prepare(&insert).expect("a statement");
        assert_eq!(statement.columns()[0].type_(), &kind, "{table}");
        let select = format!("SELECT id FROM {table} WHERE id = $1");
        let statement = client.prepare(&select).expect("a statement");
        assert_eq!(statement.params(), [kind], "{table}");
    }
    let row = client
        .query_one("INSERT INTO big(a) VALUES ('x') RETURNING id", &[])
        .expect("a row");
    assert_eq!(row.get::<_, i64>(0), 5_000_000_001);
    // The number of a deleted row is not given again.
    let next = "DELETE FROM big; INSERT INTO big(a) VALUES ('y') RETURNING id";
    assert_eq!(one(&mut client, next).as_deref(), Some("5000000002"));
    for refused in [
        "CREATE TABLE x(a serial, b int PRIMARY KEY)",
        "ALTER TABLE plain ADD COLUMN b bigserial",
    ] {
        assert_eq!(code(client.batch_execute(refused)), "0A000", "{refused}");
    }
}

/// SQLite has no booleans: 1 would become `1`.
#[test]
fn a_boolean_is_a_word_as_a_text() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(id int, flag bool); INSERT INTO t VALUES (1, true), (2, false), (3, NULL)",
        )
        .expect("rows");
    let sql = "SELECT coalesce(flag::text, 'unknown') FROM t ORDER BY id";
    assert_eq!(column(&mut client, sql), ["true", "false", "unknown"]);
    let sql = "SELECT CAST(t.flag AS varchar) || (id = 1)::text FROM t WHERE id = 1";
    assert_eq!(one(&mut client, sql).as_deref(), Some("truetrue"));
    assert_eq!(
        one(&mut client, "SELECT id::text FROM t").as_deref(),
        Some("1")
    );
}

#[test]
fn statements_are_prepared_by_sql() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(id int PRIMARY KEY, name text, at date);
             PREPARE put (int, text, date) AS INSERT INTO t VALUES ($1, $2, $3);
             PREPARE get AS SELECT name FROM t WHERE id = $1",
        )
        .expect("statements");
    let complete = client
        .simple_query("EXECUTE put(1, 'it''s' || ' one', '2024-02-29')")
        .expect("a row");
    assert!(matches!(
        complete[0],
        SimpleQueryMessage::CommandComplete(1)
    ));
    let sql = "EXECUTE get(2 - 1)";
    assert_eq!(one(&mut client, sql).as_deref(), Some("it's one"));
    // Both protocols share the statements.
    let row = client.query_one("EXECUTE get(1)", &[]).expect("a row");
    assert_eq!(row.get::<_, &str>(0), "it's one");
    for (sql, expected) in [
        ("PREPARE get AS SELECT 1", "42P05"),
        ("EXECUTE get", "42601"),
        ("EXECUTE nosuch", "26000"),
        ("EXECUTE get('x')", "22P02"),
        ("EXECUTE put(2, 'x', 'never')", "22007"),
        ("PREPARE x AS DROP TABLE t", "42601"),
        ("PREPARE x AS SELECT nosuch", "42703"),
        ("DEALLOCATE nosuch", "26000"),
    ] {
        assert_eq!(code(client.batch_execute(sql)), expected, "{sql}");
    }
    client.batch_execute("DEALLOCATE get").expect("it is gone");
    assert_eq!(code(client.batch_execute("EXECUTE get(1)")), "26000");
    let failed = client.batch_execute("BEGIN; EXECUTE put(1, 'x', NULL)");
    assert_eq!(code(failed), "23505");
    client.batch_execute("ROLLBACK").expect("the end");
    client.batch_execute("DEALLOCATE ALL").expect("all gone");
    assert_eq!(code(client.batch_execute("EXECUTE put(1)")), "26000");
}

/// A cursor `WITH HOLD` has the rows of the end of its transaction.
#[test]
fn a_held_cursor_outlives_its_transaction() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(id int); BEGIN; INSERT INTO t VALUES (1);
             DECLARE c CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id;
             DECLARE other CURSOR FOR SELECT 1; INSERT INTO t VALUES (2); COMMIT;
             DELETE FROM t",
        )
        .expect("a cursor");
    assert_eq!(column(&mut client, "FETCH ALL FROM c"), ["1", "2"]);
    assert_eq!(code(client.batch_execute("FETCH other")), "34000");
    client.batch_execute("CLOSE c").expect("it is closed");
    let rolled_back = "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; ROLLBACK";
    client.batch_execute(rolled_back).expect("nothing");
    assert_eq!(code(client.batch_execute("FETCH c")), "34000");
    // Outside of a transaction too, and in binary.
    let declare = "DECLARE c CURSOR WITH HOLD FOR SELECT 7::int AS n";
    client.batch_execute(declare).expect("a cursor");
    let row = client.query_one("FETCH 1 FROM c", &[]).expect("a row");
    assert_eq!(row.get::<_, i32>(0), 7);
}

#[test]
fn arrays_are_read_as_they_were_written() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("CREATE TABLE t(id int, tags text[], counts bigint[])")
        .expect("a table");
    let tags = vec![Some("a b"), None, Some(""), Some("NULL"), Some("é\"\\")];
    let counts = vec![1_i64, -2];
    for id in 1..=3 {
        client
            .execute("INSERT INTO t VALUES ($1, $2, $3)", &[&id, &tags, &counts])
            .expect("a row");
    }
    let row = client
        .query_one("SELECT tags, counts FROM t WHERE id = 1", &[])
        .expect("a row");
    assert_eq!(row.get::<_, Vec<Option<String>>>(0).len(), 5);
    assert_eq!(row.get::<_, Vec<Option<&str>>>(0), tags);
    assert_eq!(row.get::<_, Vec<i64>>(1), counts);
    let sql = "SELECT tags FROM t WHERE id = 2";
    let text = r#"{"a b",NULL,"","NULL","é\"\\"}"#;
    assert_eq!(one(&mut client, sql).as_deref(), Some(text));
    client
        .batch_execute("INSERT INTO t VALUES (4, ARRAY['a', NULL, 'b c'], ARRAY[1, 2])")
        .expect("a row");
    let sql = "SELECT tags FROM t WHERE id = 4 AND 'b c' = ANY(tags)";
    assert_eq!(one(&mut client, sql).as_deref(), Some(r#"{a,NULL,"b c"}"#));
    client
        .batch_execute("DELETE FROM t WHERE id = 4")
        .expect("it is gone");
    let count = "SELECT count(*) FROM t WHERE id = ANY($1)";
    let row = client.query_one(count, &[&vec![1, 3, 9]]).expect("a count");
    assert_eq!(row.get::<_, i64>(0), 2);
    let row = client
        .query_one("SELECT count(*) FROM t WHERE id <> ALL($1)", &[&vec![1]])
        .expect("a count");
    assert_eq!(row.get::<_, i64>(0), 2);
}

/// SQLite makes zeros and NULLs of what PostgreSQL refuses.
#[test]
fn what_has_no_value_is_an_error() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("CREATE TABLE t(a int, b int); INSERT INTO t VALUES (7, 0)")
        .expect("a row");
    for (sql, expected) in [
        ("SELECT 'abc'::int", "22P02"),
        ("SELECT 3000000000::int", "22003"),
        ("SELECT CAST('x' AS numeric)", "22P02"),
        ("SELECT '2024-02-30'::date", "22007"),
        ("SELECT 'maybe'::bool", "22P02"),
        ("SELECT 1/0", "22012"),
        ("SELECT a / b FROM t", "22012"),
        ("SELECT a % (b + 0)::int FROM t", "22012"),
    ] {
        assert_eq!(code(client.simple_query(sql)), expected, "{sql}");
    }
    for (sql, value) in [
        ("SELECT a / (b + 2) FROM t", "3"),
        ("SELECT -7 / 2", "-3"),
        ("SELECT 2.5::int", "3"),
        ("SELECT ' 12 '::int", "12"),
        ("SELECT true::int", "1"),
    ] {
        assert_eq!(one(&mut client, sql).as_deref(), Some(value), "{sql}");
    }
}

/// NULLs are the least values of SQLite, and the greatest of PostgreSQL.
#[test]
fn nulls_sort_last() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(id int PRIMARY KEY, a int, b text NOT NULL);
             CREATE INDEX by_a ON t(a DESC NULLS LAST); CREATE INDEX by_b ON t(b);
             INSERT INTO t VALUES (1, NULL, 'x'), (2, 5, 'y'), (3, 4, 'z')",
        )
        .expect("rows");
    for (order, ids) in [
        ("a", ["3", "2", "1"]),
        ("a DESC", ["1", "2", "3"]),
        ("a NULLS FIRST", ["1", "3", "2"]),
        ("t.a ASC, id DESC", ["3", "2", "1"]),
        ("b DESC", ["3", "2", "1"]),
    ] {
        let sql = format!("SELECT id FROM t ORDER BY {order} LIMIT 3");
        assert_eq!(column(&mut client, &sql), ids, "{order}");
    }
    // A column without NULLs is read in the order of its index.
    let messages = client
        .simple_query("EXPLAIN SELECT b FROM t ORDER BY b")
        .expect("a plan");
    let has_sort = messages.iter().any(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(3).is_some_and(|text| text.contains("B-TREE")),
        _ => false,
    });
    assert!(!has_sort, "{messages:?}");
}

#[test]
fn a_backslash_escapes_in_like() {
    let world = World::new();
    let mut client = world.client();
    for (sql, value) in [
        (r"SELECT '50%' LIKE '50\%'", "t"),
        (r"SELECT '500' LIKE '50\%'", "f"),
        (r"SELECT '50%' LIKE '50!%' ESCAPE '!'", "t"),
        (r"SELECT 'a\b' LIKE '%\\b'", "t"),
        (r"SELECT 'Ab' ILIKE 'aB' AND 'Ab' NOT LIKE 'ab'", "t"),
    ] {
        assert_eq!(one(&mut client, sql).as_deref(), Some(value), "{sql}");
    }
    let row = client
        .query_one("SELECT $1::text LIKE $2::text", &[&"a_b", &r"a\_b"])
        .expect("a row");
    assert!(row.get::<_, bool>(0));
}

/// `now()` is the start of the transaction: the rows of one transaction have one time.
#[test]
fn a_transaction_has_one_time() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(id int, at timestamptz DEFAULT now(), b timestamptz DEFAULT CURRENT_TIMESTAMP);
             BEGIN; INSERT INTO t(id) SELECT i FROM generate_series(1, 1000) AS g(i);
             SELECT pg_sleep(0.002); INSERT INTO t(id) VALUES (0); COMMIT;
             SELECT pg_sleep(0.002); INSERT INTO t(id) VALUES (-1)",
        )
        .expect("rows");
    let sql = "SELECT count(DISTINCT at) FROM t";
    assert_eq!(one(&mut client, sql).as_deref(), Some("2"));
    let sql = "SELECT count(*) FROM t WHERE at <> b";
    assert_eq!(one(&mut client, sql).as_deref(), Some("0"));
    let sql = "BEGIN; SELECT pg_sleep(0.002); SELECT now() < clock_timestamp(); COMMIT";
    let last = client.simple_query(sql).expect("rows");
    let is_later = last
        .iter()
        .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t")));
    assert!(is_later);
}

/// One moment has many texts, and SQLite compares texts.
#[test]
fn moments_compare_as_moments() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute("CREATE TABLE t(at timestamptz, u uuid)")
        .expect("a table");
    let mut raw = common::Raw::open(world.address());
    let values: [Option<&[u8]>; 2] = [
        Some(b"2024-01-01T01:00:00+02:00"),
        Some(b"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
    ];
    raw.send(&common::messages(|out| {
        use paceline_pg_wire::frontend;
        frontend::parse(out, b"", b"INSERT INTO t VALUES ($1, $2)", &[]);
        frontend::bind(out, b"", b"", &values);
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    }));
    assert_eq!(raw.tags_to_ready(), "12CZ");
    let sql = "SELECT at FROM t WHERE at < '2023-12-31 23:30:00'::timestamptz
        AND u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'";
    assert_eq!(
        one(&mut client, sql).as_deref(),
        Some("2023-12-31 23:00:00+00")
    );
}

/// A list of values with named columns is how object mappers insert many rows at once.
#[test]
fn the_columns_of_a_query_are_named() {
    let world = World::new();
    let mut client = world.client();
    let sql = "SELECT x.b FROM (VALUES (1, 'one'), (2, 'two')) AS x(a, b) ORDER BY x.a DESC";
    assert_eq!(column(&mut client, sql), ["two", "one"]);
    let sql = "SELECT b FROM (SELECT 1, 2) AS x(a, b) WHERE a = 1";
    assert_eq!(one(&mut client, sql).as_deref(), Some("2"));
}

/// A client that has asked for the description of a statement reads its rows by that description,
/// also where the rows would show another type.
#[test]
fn what_was_described_is_kept_in_binary() {
    let world = World::new();
    let mut client = world.client();
    let sql = "SELECT x FROM (SELECT $1::int + 1 AS x) AS y";
    let statement = client.prepare(sql).expect("a statement");
    assert_eq!(statement.columns()[0].type_(), &Type::TEXT);
    let row = client.query_one(&statement, &[&41]).expect("a row");
    assert_eq!(row.get::<_, &str>(0), "42");
    // Without parameters the first row shows the type.
    let row = client
        .query_one("SELECT x FROM (SELECT 41 + 1 AS x) AS y", &[])
        .expect("a row");
    assert_eq!(row.get::<_, i64>(0), 42);
}

/// SQLite knows OFFSET only behind LIMIT, and DEFAULT only for a whole row.
#[test]
fn clauses_may_stand_alone() {
    let world = World::new();
    let mut client = world.client();
    client
        .batch_execute(
            "CREATE TABLE t(id bigserial PRIMARY KEY, n int DEFAULT 7, at timestamp);
             -- The table that this message has made is known to its other statements.
             INSERT INTO t VALUES (DEFAULT, DEFAULT, '2024-01-01'), (DEFAULT, 8, NULL);
             UPDATE t SET n = DEFAULT WHERE id = 2",
        )
        .expect("rows");
    let sql = "SELECT n FROM t ORDER BY id OFFSET 1";
    assert_eq!(column(&mut client, sql), ["7"]);
    let sql = "SELECT id FROM t ORDER BY id OFFSET 1 ROWS FETCH NEXT 1 ROWS ONLY";
    assert_eq!(column(&mut client, sql), ["2"]);
    let sql =
        "SELECT count(*) FROM t WHERE at <= '2024-01-01' AND at = date '2024-01-01'::timestamp";
    assert_eq!(one(&mut client, sql).as_deref(), Some("1"));
    // SQLite returns rows for some definitions: they are not the client's.
    let alter = "ALTER TABLE t ALTER COLUMN n SET NOT NULL";
    let answer = client.simple_query(alter).expect("it is altered");
    assert!(matches!(
        answer[..],
        [SimpleQueryMessage::CommandComplete(_)]
    ));
    client
        .execute("ALTER TABLE t ALTER COLUMN n DROP NOT NULL", &[])
        .expect("and back");
    let check = one(&mut client, "PRAGMA integrity_check");
    assert_eq!(check.as_deref(), Some("ok"));
    let refused = "SELECT now() - interval '1 day'";
    assert_eq!(code(client.simple_query(refused)), "0A000");
}
