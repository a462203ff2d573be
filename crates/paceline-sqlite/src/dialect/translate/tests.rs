//! The texts of PostgreSQL and those that SQLite gets.

use super::*;

/// A schema in which every column `flag` is a boolean.
#[derive(Debug)]
struct Flags;

impl Schema for Flags {
    fn column_type(&self, _: &str, column: &str) -> Option<Type> {
        (column == "flag").then_some(Type::BOOL)
    }

    fn is_never_null(&self, _: &str, column: &str) -> bool {
        column == "key"
    }

    fn resolve(&self, tables: &[String], guess: &Guess) -> Option<Type> {
        match guess {
            Guess::Column(name) if name == "day" => Some(Type::DATE),
            Guess::Column(name) if name == "at" => Some(Type::TIMESTAMP),
            Guess::Column(name) => self.column_type(tables.first()?, name),
            _ => None,
        }
    }

    fn default_of(&self, _: &[String], guess: &Guess) -> Option<String> {
        (*guess == Guess::Column("a".to_owned())).then(|| "7".to_owned())
    }
}

fn translated(sql: &str) -> String {
    let source = Source::split(sql).expect("tokens").remove(0);
    let facts = Facts {
        user: "ada".to_owned(),
        database: "bank".to_owned(),
        process: 7,
        version: "PostgreSQL".to_owned(),
        is_standby: false,
        schema: Some(Arc::new(Flags)),
    };
    translate(&source, &facts)
}

#[test]
fn spellings_become_sqlites() {
    for (postgres, sqlite) in [
        ("select $2, $1", "select ?2, ?1"),
        ("select '$1::int'", "select '$1::int'"),
        (
            "select $1::int + 1",
            "select CAST(pg_int4(?1) AS INTEGER) + 1",
        ),
        (
            "select a.b::text::int",
            "select CAST(pg_int4(CAST(a.b AS TEXT)) AS INTEGER)",
        ),
        (
            "select f(x, (1))::numeric(8, 2)",
            "select pg_numeric(f(x, (1)))",
        ),
        (
            "select (a + b)::double precision c",
            "select CAST(pg_float8((a + b)) AS REAL) c",
        ),
        (
            "select cast('2024-01-01' as date)",
            "select pg_date('2024-01-01')",
        ),
        (
            "select pg_catalog.count(*) from public.t",
            "select count(*) from t",
        ),
        ("select pg_catalog.f(x)::text", "select CAST(f(x) AS TEXT)"),
        ("select a ilike 'x%'", "select a MATCH 'x%'"),
        (
            "where a like 'x%' and b like $1 || '%' and c not like 'a\\%'",
            "where a LIKE 'x%' and b LIKE ?1 || '%' ESCAPE '\\' \
             and c not LIKE 'a\\%' ESCAPE '\\'",
        ),
        (
            "select a / b::int, c / 2, d % (e + 1) from t",
            "select a / pg_divisor( CAST(pg_int4(b) AS INTEGER)), c / 2, \
             d % pg_divisor( (e + 1)) from t",
        ),
        (
            "select a from t order by a, b desc, t.key, lower(c) nulls first limit 1",
            "select a from t order by a NULLS LAST, b desc NULLS FIRST, t.key, \
             lower(c) nulls first limit 1",
        ),
        (
            "select sum(a) over (order by b), c from t",
            "select sum(a) over (order by b NULLS LAST), c from t",
        ),
        (
            "select a from t offset 2",
            "select a from t LIMIT -1 OFFSET 2",
        ),
        (
            "select a from t offset $1 rows fetch first 3 rows only",
            "select a from t LIMIT 3 OFFSET ?1",
        ),
        ("select a limit 1 offset 2", "select a limit 1 offset 2"),
        (
            "select 1 from t where at <= '2024-01-01' and day = '2024-1-2' and flag = 't'",
            "select 1 from t where at <= '2024-01-01 00:00:00' and day = '2024-01-02' \
             and flag = 1",
        ),
        (
            "insert into t(flag, a, day) values ('no', default, 'x')",
            "insert into t(flag, a, day) values (0, (7), pg_date('x'))",
        ),
        ("select date '2024-02-29'", "select  '2024-02-29'"),
        (
            "select 1 from t where coalesce(at, '2024-01-01') > '2024-01-01'",
            "select 1 from t where coalesce(at, '2024-01-01 00:00:00') > '2024-01-01 00:00:00'",
        ),
        (
            "select x.b from (values (1, $1)) as x(a, b)",
            "select x.b from (WITH x(a, b) AS (values (1, ?1)) SELECT * FROM x) AS x",
        ),
        (
            "where n OPERATOR(pg_catalog.~) '^a$' COLLATE pg_catalog.default",
            "where n REGEXP '^a$' ",
        ),
        ("select E'a\\tb'", "select 'a\tb'"),
        ("select $$it's$$", "select 'it''s'"),
        (
            "where a = any($1)",
            "where a IN (SELECT value FROM json_each(pg_array(?1)))",
        ),
        ("where a = any(array['r','p'])", "where a IN ('r','p')"),
        (
            "where a = any ('{r}'::char[]) and b",
            "where a IN (SELECT value FROM json_each(pg_array(CAST('{r}' AS TEXT)))) and b",
        ),
        ("select 1 for update of t nowait", "select 1 "),
        (
            "from generate_series(1, $1) as g(i) where i",
            "from (SELECT value AS i FROM generate_series(1, ?1)) AS g where i",
        ),
        (
            "from generate_series(1,3) x",
            "from (SELECT value AS x FROM generate_series(1,3)) AS x",
        ),
        (
            "from unnest($1::int[]) with_alias",
            "from (SELECT value AS with_alias FROM json_each(pg_array(CAST(?1 AS TEXT)))) \
             AS with_alias",
        ),
        (
            "insert into t values (array[1, f(2)], 3)",
            "insert into t values (pg_array_of(1, f(2)), 3)",
        ),
        (
            "select current_user, current_database()",
            "select 'ada', 'bank'",
        ),
        ("select a fetch first 3 rows only", "select a LIMIT 3"),
        (
            "select flag::text, (a = b)::varchar, cast(t.flag as text), a::text from t",
            "select pg_bool_text(flag), pg_bool_text((a = b)), pg_bool_text(t.flag), \
             CAST(a AS TEXT) from t",
        ),
    ] {
        assert_eq!(translated(postgres), sqlite);
    }
}

#[test]
fn tables_are_defined_as_sqlite_wants_them() {
    for (postgres, sqlite) in [
        (
            "create table t(id serial primary key)",
            "create table t(id INTEGER /* counts: integer */ primary key AUTOINCREMENT)",
        ),
        (
            "create table t(id bigint generated by default as identity primary key)",
            "create table t(id INTEGER /* counts: bigint */  primary key AUTOINCREMENT)",
        ),
        (
            "create table t(\"id\" bigserial, constraint k primary key (\"id\"))",
            "create table t(\"id\" INTEGER /* counts: bigint */, \
             constraint k primary key (\"id\" AUTOINCREMENT))",
        ),
        (
            "create table t(a int) with (fillfactor=100)",
            "create table t(a int) ",
        ),
        (
            "create table t(a timestamp default now() not null, b text default 'x'::text)",
            "create table t(a timestamp DEFAULT ( now()) not null, \
             b text DEFAULT ( CAST('x' AS TEXT)))",
        ),
    ] {
        assert_eq!(translated(postgres), sqlite);
    }
}
