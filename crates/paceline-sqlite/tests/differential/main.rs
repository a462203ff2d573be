//! The same statements on this server and on a real PostgreSQL: rows, types and SQLSTATEs are
//! compared.
//!
//! `corpus.rs` has statements by hand; where the servers differ, it says how, and so does
//! `docs/back-end.md`. `generator.rs` makes statements by chance, which must not differ at all.

#[path = "../common/mod.rs"]
mod common;
mod corpus;
mod generator;
#[path = "../../../paceline-pg/tests/support/postgres.rs"]
#[allow(dead_code, reason = "the pooler's tests use all of it")]
mod postgres_server;

use std::{error::Error, fmt};

use common::World;
use generator::{statement, Chance, TABLES};
use postgres::{
    types::{FromSql, Type},
    Client, NoTls, SimpleQueryMessage,
};

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Failed(String),
    Rows {
        /// Names and types.
        columns: Vec<(String, u32)>,
        parameters: Vec<u32>,
        texts: Vec<Vec<Option<String>>>,
        binary: Vec<Vec<Option<Vec<u8>>>>,
        /// Rows that the statement returns or changes, as its tag says.
        count: u64,
    },
}

impl Answer {
    /// For a statement that leaves the order of its rows open.
    fn sorted(mut self) -> Self {
        if let Self::Rows { texts, binary, .. } = &mut self {
            texts.sort();
            binary.sort();
        }
        self
    }
}

/// A value as the server sends it.
struct Bytes(Vec<u8>);

impl<'a> FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn failed(error: &postgres::Error) -> Answer {
    let code = error.code().map(|code| code.code().to_owned());
    Answer::Failed(code.unwrap_or_else(|| format!("no code: {error}")))
}

/// The answer to a statement without parameters, in text and in binary; a statement with parameters
/// is only described.
fn ask(client: &mut Client, sql: &str) -> Answer {
    try_ask(client, sql).unwrap_or_else(|error| failed(&error))
}

fn try_ask(client: &mut Client, sql: &str) -> Result<Answer, postgres::Error> {
    let prepared = client.prepare(sql)?;
    let columns: Vec<(String, u32)> = prepared
        .columns()
        .iter()
        .map(|column| (column.name().to_owned(), column.type_().oid()))
        .collect();
    let parameters: Vec<u32> = prepared.params().iter().map(Type::oid).collect();
    let (mut texts, mut binary, mut count) = (Vec::new(), Vec::new(), 0);
    if parameters.is_empty() {
        let is_read = ["SELECT", "VALUES", "WITH"]
            .iter()
            .any(|word| sql.trim_start().starts_with(word));
        if is_read {
            for row in client.query(&prepared, &[])? {
                let value = |index| row.get::<_, Option<Bytes>>(index).map(|bytes| bytes.0);
                binary.push((0..row.len()).map(value).collect());
            }
        }
        for message in client.simple_query(sql)? {
            match message {
                SimpleQueryMessage::Row(row) => {
                    let text = |index| row.get(index).map(str::to_owned);
                    texts.push((0..row.len()).map(text).collect());
                }
                SimpleQueryMessage::CommandComplete(rows) => count = rows,
                _ => {}
            }
        }
    }
    Ok(Answer::Rows {
        columns,
        parameters,
        texts,
        binary,
        count,
    })
}

/// Both servers.
struct Pair {
    ours: Client,
    theirs: Client,
    _world: World,
}

/// A difference between the servers.
struct Difference {
    sql: String,
    ours: Answer,
    theirs: Answer,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sql, ours, theirs } = self;
        write!(f, "{sql}\n  ours:   {ours:?}\n  theirs: {theirs:?}")
    }
}

impl Pair {
    /// `None`, and a visible line, if there is no PostgreSQL.
    fn new(database: &str) -> Option<Self> {
        let postgres = postgres_server::server()?;
        let url = |database: &str| {
            format!(
                "host={} port={} user={} dbname={database}",
                postgres.socket_folder().display(),
                postgres_server::PORT,
                postgres_server::USER
            )
        };
        let mut admin = Client::connect(&url("postgres"), NoTls).expect("a session");
        let create = format!("CREATE DATABASE {database}");
        admin.batch_execute(&create).expect("a database");
        let theirs = Client::connect(&url(database), NoTls);
        let world = World::new();
        let mut pair = Self {
            ours: world.client(),
            theirs: theirs.expect("a session"),
            _world: world,
        };
        pair.both("SET TimeZone = 'UTC'");
        Some(pair)
    }

    /// Runs statements on both, which must succeed.
    fn both(&mut self, sql: &str) {
        self.ours.batch_execute(sql).expect("ours");
        self.theirs.batch_execute(sql).expect("theirs");
    }

    fn compare(&mut self, sql: &str) -> Option<Difference> {
        let ours = ask(&mut self.ours, sql);
        let theirs = ask(&mut self.theirs, sql);
        let (ours, theirs) = if sql.contains("ORDER BY") {
            (ours, theirs)
        } else {
            (ours.sorted(), theirs.sorted())
        };
        let differ = ours != theirs;
        differ.then(|| Difference {
            sql: sql.to_owned(),
            ours,
            theirs,
        })
    }
}

/// Statements by chance have the same answers.
#[test]
fn statements_by_chance_have_postgresqls_answers() {
    let Some(mut pair) = Pair::new("chance") else {
        return;
    };
    let mut differences = Vec::new();
    let (mut rows, mut failures) = (0, 0);
    for seed in 1..=40 {
        pair.both(TABLES);
        let mut chance = Chance::new(seed);
        for _ in 0..50 {
            let sql = statement(&mut chance);
            match pair.compare(&sql) {
                Some(difference) => {
                    differences.push(difference);
                    // A statement that has changed one of them only would make all others differ.
                    break;
                }
                None => match ask(&mut pair.ours, "SELECT count(*) FROM t") {
                    Answer::Rows { .. } => rows += 1,
                    Answer::Failed(_) => failures += 1,
                },
            }
        }
        pair.both("DROP TABLE u, t");
    }
    println!("{rows} statements, {failures} failed");
    assert!(
        differences.is_empty(),
        "{}",
        differences
            .iter()
            .map(Difference::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    );
}

/// The statements by hand differ where the corpus says so, and nowhere else.
#[test]
fn known_statements_differ_where_it_is_known() {
    let Some(mut pair) = Pair::new("corpus") else {
        return;
    };
    pair.both(TABLES);
    let mut surprises = Vec::new();
    for sql in corpus::SAME {
        surprises.extend(pair.compare(sql).map(|difference| difference.to_string()));
    }
    for (sql, why) in corpus::DIFFERENT {
        if pair.compare(sql).is_none() {
            surprises.push(format!("{sql}\n  no longer differs: {why}"));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}
