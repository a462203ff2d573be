//! Random sequences of messages: a client behind a relay gets what it would get from a server of
//! its own.
//!
//! The clients share two servers, which keep two prepared statements each. A server of its own for
//! each client is the oracle. Each turn of a client ends with a query that marks the end of the
//! replies.

use std::sync::OnceLock;

use paceline_pg::protocol::{Mode, RelaySettings};
use proptest::prelude::*;

use crate::support::{
    postgres::{self, Postgres},
    rig::Rig,
    script::{bytes, replies, Send},
    session::Session,
};

const CLIENTS: usize = 3;
const SERVERS: usize = 2;

/// What one client sends, up to a point where its server is free.
#[derive(Clone, Debug)]
struct Turn {
    client: usize,
    /// The server that it gets.
    server: usize,
    messages: Vec<Send>,
}

/// Statements that prepare without an error, and how many values they take.
const GOOD: [(&str, usize); 6] = [
    ("SELECT 1", 0),
    ("SELECT $1::int + 1", 1),
    ("SELECT generate_series(1, 3)", 0),
    ("INSERT INTO t VALUES ($1::int)", 1),
    ("SELECT 1 / $1::int", 1),
    ("SELECT count(*) FROM t", 0),
];

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The portal and the values of a Bind. A wrong number of values is an error too.
fn value() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![
        Just(None),
        Just(Some("0")),
        Just(Some("7")),
        Just(Some("x"))
    ]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn query() -> impl Strategy<Value = Vec<Send>> {
    let sql = prop::sample::select(vec![
        "SELECT 1",
        "SELECT 1; SELECT 2",
        "",
        "SELECT 1/0",
        "SELEC",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (1); SELECT 1/0",
        "SET application_name = 'one'",
        "SET application_name = 'Two'",
        "SHOW application_name",
        "SET TimeZone = 'Europe/Berlin'; SHOW TimeZone",
        "DEALLOCATE ALL",
        "COPY t TO STDOUT",
        "DO $$ BEGIN RAISE NOTICE 'heard'; END $$",
    ]);
    sql.prop_map(|sql| vec![Send::Query(sql)])
}

/// Data for a copy, which is under way.
fn copied() -> impl Strategy<Value = Vec<Send>> {
    let data = prop::collection::vec(
        prop::sample::select(vec!["1\n2\n", "3\n", "", "\\.\n"]).prop_map(Send::CopyData),
        0..4,
    );
    let end = prop_oneof![
        3 => Just(vec![Send::CopyDone]),
        1 => Just(vec![Send::CopyFail]),
        1 => Just(vec![Send::CopyData("no number\n"), Send::CopyData("1\n"), Send::CopyDone]),
        1 => Just(vec![Send::Flush, Send::Sync, Send::CopyDone]),
    ];
    (data, end).prop_map(|(data, end)| [data, end].concat())
}

fn simple_copy() -> impl Strategy<Value = Vec<Send>> {
    copied().prop_map(|data| [vec![Send::Query("COPY t FROM STDIN")], data].concat())
}

fn extended_copy() -> impl Strategy<Value = Vec<Send>> {
    let begin = vec![
        Send::Parse("", "COPY t FROM STDIN"),
        Send::Bind("", "", None),
        Send::Execute("", 0),
    ];
    copied().prop_map(move |data| [begin.clone(), data].concat())
}

/// A statement without a name, with all its messages.
fn unnamed() -> impl Strategy<Value = Vec<Send>> {
    let bad = ["SELEC", "SELECT * FROM missing"];
    let sql: Vec<_> = GOOD.iter().map(|(sql, _)| *sql).chain(bad).collect();
    let rows = prop::sample::select(vec![0, 1, 2]);
    (prop::sample::select(sql), value(), rows).prop_map(|(sql, value, rows)| {
        vec![
            Send::Parse("", sql),
            Send::Bind("", "", value),
            Send::DescribePortal(""),
            Send::Execute("", rows),
        ]
    })
}

/// Messages that name statements, but no Parse.
fn named_use() -> impl Strategy<Value = Vec<Send>> {
    prop_oneof![
        4 => (name(), value()).prop_map(|(name, value)| vec![
            Send::Bind("p", name, value),
            Send::DescribePortal("p"),
            Send::Execute("p", 1),
            Send::Execute("p", 0),
            Send::ClosePortal("p"),
        ]),
        1 => (name(), value()).prop_map(|(name, value)| vec![Send::Bind("", name, value)]),
        1 => Just(vec![Send::Execute("", 0)]),
        1 => Just(vec![Send::DescribePortal("q")]),
        2 => name().prop_map(|name| vec![Send::CloseStatement(name)]),
    ]
}

/// Messages that are as good outside of a block as within.
fn anywhere() -> impl Strategy<Value = Vec<Send>> {
    prop_oneof![
        4 => unnamed(),
        4 => named_use(),
        1 => extended_copy(),
        3 => Just(vec![Send::Sync]),
        1 => Just(vec![Send::Flush]),
    ]
}

/// Messages outside of a block. In a failed block a known text is prepared without an error, which
/// the server would give: so only here.
fn outside() -> impl Strategy<Value = Vec<Send>> {
    let good: Vec<_> = GOOD.iter().map(|(sql, _)| *sql).collect();
    prop_oneof![
        5 => anywhere(),
        3 => (name(), prop::sample::select(good))
            .prop_map(|(name, sql)| vec![Send::Parse(name, sql)]),
        1 => Just(vec![Send::Parse("bad", "SELEC")]),
        2 => name().prop_map(|name| vec![Send::DescribeStatement(name)]),
        2 => query(),
        1 => simple_copy(),
        1 => Just(vec![Send::Add("1", "2")]),
        1 => Just(vec![Send::Add("1", "x")]),
        1 => name().prop_map(|name| vec![Send::Sync, Send::Query(deallocate(name))]),
        1 => Just(vec![
            Send::Parse("", "DEALLOCATE a"),
            Send::Bind("", "", None),
            Send::Execute("", 0),
        ]),
        1 => Just(vec![Send::Sync, Send::Query("DISCARD ALL")]),
    ]
}

fn deallocate(name: &'static str) -> &'static str {
    match name {
        "a" => "DEALLOCATE a",
        "b" => "deallocate PREPARE \"b\";",
        _ => "DEALLOCATE c",
    }
}

fn block() -> impl Strategy<Value = Vec<Send>> {
    let within = prop_oneof![4 => anywhere(), 2 => query(), 1 => simple_copy()];
    let end = prop::sample::select(vec!["COMMIT", "ROLLBACK", "END; SELECT 1"]);
    (prop::collection::vec(within, 0..8), end).prop_map(|(within, end)| {
        let begin = vec![Send::Query("BEGIN")];
        [begin, within.concat(), vec![Send::Sync, Send::Query(end)]].concat()
    })
}

fn turn() -> impl Strategy<Value = Turn> {
    let messages = prop_oneof![
        2 => prop::collection::vec(outside(), 1..8).prop_map(|all| all.concat()),
        1 => block(),
    ];
    (0..CLIENTS, 0..SERVERS, messages).prop_map(|(client, server, mut messages)| {
        messages.extend([Send::Sync, Send::Query("SELECT 'the end'")]);
        Turn {
            client,
            server,
            messages,
        }
    })
}

/// The databases of the two sides, with equal tables.
fn databases(postgres: &Postgres) {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut session = Session::new(postgres);
        for database in ["direct", "relayed"] {
            session.query(&format!("CREATE DATABASE {database}"));
        }
    });
}

/// A session whose user has tables of its own.
fn session(postgres: &Postgres, database: &str) -> Session {
    Session::to(postgres, database)
}

/// Runs a turn in a session of its own.
fn direct(session: &mut Session, turn: &Turn) -> Vec<u8> {
    session.send(&bytes(&turn.messages));
    let mut received = Vec::new();
    while !is_over(&received) {
        session.receive(&mut received).expect("the server stays");
    }
    received
}

fn is_over(received: &[u8]) -> bool {
    let mark = b"the endC\0\0\0\x0dSELECT 1\0Z\0\0\0\x05";
    received
        .windows(mark.len() + 1)
        .any(|window| window.starts_with(mark))
}

/// Runs a turn behind the relay.
fn relayed(rig: &mut Rig, turn: &Turn) -> Vec<u8> {
    rig.assign(turn.client, turn.server);
    rig.send(turn.client, &bytes(&turn.messages))
        .expect("the client is good");
    while !is_over(&rig.clients[turn.client].received) {
        if rig.clients[turn.client].server.is_none() {
            // Free in between: the client had sent all, so the model was wrong.
            panic!("released before the end");
        }
        let _ = rig.receive(turn.client).expect("the server is good");
    }
    assert_eq!(
        rig.clients[turn.client].server, None,
        "not released at the end"
    );
    rig.received(turn.client)
}

/// Runs the turns on both sides, and compares after each.
fn compare(postgres: &Postgres, turns: &[Turn], piece: usize, polls: bool) {
    databases(postgres);
    let mut settings = RelaySettings::new(Mode::Transaction);
    settings.max_prepared_statements = 2;
    let mut own: Vec<Session> = (0..CLIENTS).map(|_| session(postgres, "direct")).collect();
    let shared = (0..SERVERS).map(|_| session(postgres, "relayed")).collect();
    let mut rig = Rig::new(settings, CLIENTS, shared);
    rig.piece = piece;
    rig.polls = polls;
    for database in ["direct", "relayed"] {
        let sql = "DROP TABLE IF EXISTS t; CREATE TABLE t (a int)";
        session(postgres, database).query(sql);
    }
    for turn in turns {
        let expected = direct(&mut own[turn.client], turn);
        let seen = relayed(&mut rig, turn);
        let (seen, expected) = (replies(&seen), replies(&expected));
        let is_equal = seen.len() == expected.len()
            && seen
                .iter()
                .zip(&expected)
                .all(|(seen, expected)| is_as_good(seen, expected));
        assert!(
            is_equal,
            "{turn:#?}\n  seen: {seen:?}\nexpected: {expected:?}"
        );
    }
}

/// In a failed block a server that lacks the statement fails at our Parse, before it counts the
/// values of the Bind.
fn is_as_good(seen: &str, expected: &str) -> bool {
    seen == expected || (seen, expected) == ("error 25P02", "error 08P01")
}

/// One test at a time uses the tables.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TABLES: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TABLES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How many cases a test draws: few, unless `PROPTEST_CASES` says more.
pub(crate) fn cases(few: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = std::env::var_os("PROPTEST_CASES").map_or(few, |_| default.cases);
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(cases(48))]

    /// Other poolers gave `3` behind `Z`, kept names of statements whose Parse had failed, or gave
    /// a server away in the middle of a pipeline.
    #[test]
    fn differential_random_sequences(
        turns in prop::collection::vec(turn(), 1..12),
        piece in prop_oneof![Just(usize::MAX), 1..40_usize],
        polls in any::<bool>(),
    ) {
        if let Some(postgres) = postgres::server() {
            let _alone = alone();
            compare(postgres, &turns, piece, polls);
        }
    }
}
