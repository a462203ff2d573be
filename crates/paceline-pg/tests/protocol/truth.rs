//! The model of the server against the server: whenever the model says that the server is at a
//! boundary, the server proves it, and at the end the model has not missed a boundary.

use paceline_pg::protocol::{Mode, RelaySettings, Release};
use proptest::prelude::*;

use super::differential::cases;
use crate::support::{
    postgres::{self, Postgres},
    rig::{End, Rig},
    script::{bytes, replies, Send},
    session::Session,
};

/// Any message at all.
fn message() -> impl Strategy<Value = Send> {
    prop_oneof![
        4 => prop::sample::select(vec![
            Send::Query("SELECT 1"),
            Send::Query("SELECT 1/0"),
            Send::Query(""),
            Send::Query("BEGIN"),
            Send::Query("COMMIT"),
            Send::Query("ROLLBACK"),
            Send::Query("SELECT 1; COPY t FROM STDIN; COPY t FROM STDIN"),
            Send::Query("COPY t FROM STDIN"),
            Send::Query("COPY t TO STDOUT"),
            Send::Query("SELECT 1; SELECT 1/0; SELECT 2"),
        ]),
        4 => prop::sample::select(vec![
            Send::Parse("", "SELECT 1"),
            Send::Parse("", "SELECT generate_series(1, 3)"),
            Send::Parse("", "SELEC"),
            Send::Parse("", "COPY t FROM STDIN"),
            Send::Parse("", "BEGIN"),
            Send::Parse("", "COMMIT"),
            Send::Parse("a", "SELECT 2"),
        ]),
        4 => prop::sample::select(vec![
            Send::Bind("", "", None),
            Send::Bind("", "", Some("1")),
            Send::Bind("p", "a", None),
            Send::DescribeStatement("a"),
            Send::DescribePortal(""),
            Send::CloseStatement("a"),
            Send::ClosePortal("p"),
        ]),
        4 => prop::sample::select(vec![Send::Execute("", 0), Send::Execute("", 1)]),
        2 => Just(Send::Flush),
        4 => Just(Send::Sync),
        1 => prop::sample::select(vec![Send::Add("1", "2"), Send::Add("1", "x")]),
        4 => prop::sample::select(vec![
            Send::CopyData("1\n"),
            Send::CopyData("no number\n"),
            Send::CopyDone,
            Send::CopyDone,
            Send::CopyFail,
        ]),
    ]
}

/// A group of messages that makes sense, or one message that need not.
fn group() -> impl Strategy<Value = Vec<Send>> {
    let run = |sql: &'static str| {
        vec![
            Send::Parse("", sql),
            Send::Bind("", "", None),
            Send::Execute("", 0),
        ]
    };
    prop_oneof![
        3 => message().prop_map(|message| vec![message]),
        1 => prop::sample::select(vec!["SELECT 1", "COPY t FROM STDIN", "SELECT 1/0", "BEGIN"])
            .prop_map(run),
        1 => Just(vec![Send::CopyData("1\n"), Send::CopyDone]),
        1 => Just(vec![Send::CopyDone, Send::Sync]),
    ]
}

/// What a client sends in one go.
fn steps() -> impl Strategy<Value = Vec<Vec<Send>>> {
    let step = prop::collection::vec(group(), 1..6).prop_map(|groups| groups.concat());
    prop::collection::vec(step, 1..6)
}

/// Runs the steps, and lets the server prove each boundary.
fn run(postgres: &Postgres, steps: &[Vec<Send>], polls: bool) {
    let mut settings = RelaySettings::new(Mode::Transaction);
    settings.max_prepared_statements = 0;
    let mut session = Session::new(postgres);
    session.query("CREATE TEMP TABLE t (a int)");
    let mut rig = Rig::new(settings, 1, vec![session]);
    for step in steps {
        if let Err(end) = take_step(&mut rig, step, polls) {
            return ended(&rig, end);
        }
    }
    // Out of any copy, behind any skipped message, and out of any block.
    let close = [
        Send::CopyFail,
        Send::Sync,
        Send::Query("ROLLBACK; SELECT 'the end'"),
    ];
    rig.send(0, &bytes(&close)).expect("the client is good");
    while !is_over(&rig.clients[0].received) {
        if let Err(end) = rig.receive(0).map(drop) {
            return ended(&rig, end);
        }
    }
    match rig.servers[0].half.may_release() {
        Release::Allowed => {}
        Release::Held => panic!("not released at the end"),
        Release::Pinned => assert!(has_copy(steps), "pinned without a copy"),
    }
}

/// Sends messages, and takes what has come of their replies.
fn take_step(rig: &mut Rig, step: &[Send], polls: bool) -> Result<(), End> {
    rig.send(0, &bytes(step))?;
    prove(rig);
    if polls && rig.clients[0].server.is_some() {
        rig.poll(0)?;
        prove(rig);
    }
    Ok(())
}

/// If the model says that the server is at a boundary, then it answers a query, and says nothing
/// else.
fn prove(rig: &mut Rig) {
    let server = &mut rig.servers[0];
    if server.half.may_release() != Release::Allowed {
        return;
    }
    let mut seen = Vec::new();
    for (tag, body) in server.session.query("SELECT 'proof'") {
        let length = u32::try_from(body.len() + 4).expect("a short message");
        seen.extend([&[tag][..], &length.to_be_bytes(), &body].concat());
    }
    let expected = [
        "columns ?column?:25",
        "D \\0\\u{1}\\0\\0\\0\\u{5}proof",
        "C SELECT 1\\0",
        "Z I",
    ];
    assert_eq!(replies(&seen), expected, "the server was at no boundary");
}

/// The server has closed the connection, as it does when a copy gets other messages.
fn ended(rig: &Rig, end: End) {
    assert!(matches!(end, End::Closed | End::Broken(_)), "{end:?}");
    assert_ne!(
        rig.servers[0].half.may_release(),
        Release::Allowed,
        "{end:?}"
    );
}

fn has_copy(steps: &[Vec<Send>]) -> bool {
    let is_copy = |message: &Send| match message {
        Send::Query(sql) | Send::Parse(_, sql) => sql.contains("FROM STDIN"),
        _ => false,
    };
    steps.concat().iter().any(is_copy)
}

fn is_over(received: &[u8]) -> bool {
    let mark = b"the endC\0\0\0\x0dSELECT 1\0Z\0\0\0\x05";
    received
        .windows(mark.len() + 1)
        .any(|window| window.starts_with(mark))
}

proptest! {
    #![proptest_config(cases(200))]

    /// Counting Sync and Query is not enough: errors make the server skip messages, and a copy
    /// swallows them.
    #[test]
    fn the_boundaries_of_the_model_are_those_of_the_server(
        steps in steps(),
        polls in any::<bool>(),
    ) {
        if let Some(postgres) = postgres::server() {
            run(postgres, &steps, polls);
        }
    }
}
