//! A server connection is lost: each request gets one answer, and the client continues.

use paceline_pg::protocol::{AfterLoss, Loss, Mode, RelaySettings, Tracked};
use paceline_pg_wire::backend;

use crate::support::{
    postgres,
    rig::Rig,
    script::{bytes, replies, Send},
    session::Session,
};

/// One client, and two servers of which the second one takes over.
fn rig() -> Option<Rig> {
    rig_with(2)
}

/// One client, and so many servers, each of which takes over from the one before.
fn rig_with(servers: usize) -> Option<Rig> {
    let postgres = postgres::server()?;
    let sessions = (0..servers).map(|_| Session::new(postgres)).collect();
    Some(Rig::new(RelaySettings::new(Mode::Transaction), 1, sessions))
}

/// The client has sent these when its server is lost. What it gets for them, and for the others.
fn lost_after(sent: &[Send], readies: usize, then: &[Send]) -> Option<(Loss, Vec<String>)> {
    let mut rig = rig()?;
    rig.send(0, &bytes(sent)).expect("the client is good");
    rig.await_messages(0, b'Z', readies)
        .expect("the server is good");
    let _ = rig.received(0);
    let AfterLoss::Kept(loss) = rig.lose(0) else {
        panic!("the client can't go on");
    };
    rig.send(0, &bytes(then)).expect("the client is good");
    rig.finish(0).expect("the server is good");
    Some((loss, replies(&rig.received(0))))
}

/// What is in flight inside of a block can't commit it: it is rolled back for sure.
#[test]
fn a_block_is_rolled_back() {
    let sleep = Send::Query("SELECT pg_sleep(100)");
    let then = [Send::Query("SELECT 'next'"), Send::Query("ROLLBACK")];
    let Some((loss, seen)) = lost_after(&[Send::Query("BEGIN"), sleep], 1, &then) else {
        return;
    };
    assert_eq!(loss, Loss::RolledBack);
    let expected = "error 08006, Z E, error 25P02, Z E, C ROLLBACK\\0, Z I";
    assert_eq!(seen.join(", "), expected);
}

/// What a client has sent behind a lost statement of its block was to be a part of that block. It
/// must not become a transaction of its own on the next server, and its COMMIT commits nothing.
#[test]
fn what_follows_in_a_lost_block_does_nothing() {
    let sent = [
        Send::Query("DROP TABLE IF EXISTS lost_block; CREATE TABLE lost_block (n int)"),
        Send::Query("BEGIN"),
        Send::Query("SELECT pg_sleep(100)"),
    ];
    let insert = "INSERT INTO lost_block VALUES (1)";
    let count = Send::Query("SELECT count(*) || ' rows' FROM lost_block");
    let extended = |sql| {
        [
            Send::Parse("", sql),
            Send::Bind("", "", None),
            Send::Execute("", 0),
            Send::Sync,
        ]
    };
    for (first, end) in [
        (vec![Send::Query(insert)], vec![Send::Query("COMMIT")]),
        (vec![Send::Query(insert)], vec![Send::Query("rollback;")]),
        (extended(insert).to_vec(), extended("COMMIT").to_vec()),
    ] {
        let then = [first, end, vec![count]].concat();
        let Some((loss, seen)) = lost_after(&sent, 2, &then) else {
            return;
        };
        assert_eq!(loss, Loss::RolledBack);
        let seen = seen.join(", ");
        let expected = "error 08006, Z E, error 25P02, Z E, ";
        assert!(seen.starts_with(expected), "{seen}");
        assert!(
            seen.contains("C ROLLBACK\\0, Z I") && seen.contains("0 rows"),
            "{seen}"
        );
    }
}

/// A block that the client was about to roll back is over.
#[test]
fn a_rollback_in_flight_ends_its_block() {
    let sent = [
        Send::Query("BEGIN"),
        Send::Query("SELECT pg_sleep(100)"),
        Send::Query("ROLLBACK"),
    ];
    let Some((loss, seen)) = lost_after(&sent, 1, &[Send::Query("SELECT 1")]) else {
        return;
    };
    assert_eq!(loss, Loss::RolledBack);
    assert_eq!(seen[..4], ["error 08006", "Z E", "error 08006", "Z I"]);
    assert_eq!(seen.last().map(String::as_str), Some("Z I"));
}

/// What is sent behind the end of a block is no part of it: it may have been committed.
#[test]
fn what_follows_a_rollback_in_flight_is_unknown() {
    let sleep = Send::Query("SELECT pg_sleep(100)");
    let outside = Send::Query("DO $$ BEGIN PERFORM 1; END $$");
    let sent = [
        Send::Query("BEGIN"),
        sleep,
        Send::Query("ROLLBACK"),
        outside,
    ];
    let Some((loss, seen)) = lost_after(&sent, 1, &[]) else {
        return;
    };
    assert_eq!(loss, Loss::Unknown);
    assert_eq!(seen.first().map(String::as_str), Some("error 08007"));
    // The same behind a block that was lost before.
    let Some(mut rig) = rig_with(3) else { return };
    rig.send(0, &bytes(&[Send::Query("BEGIN"), sleep]))
        .expect("the client is good");
    rig.await_messages(0, b'Z', 1).expect("the server is good");
    assert_eq!(rig.lose(0), AfterLoss::Kept(Loss::RolledBack));
    let then = [Send::Query("ROLLBACK"), outside];
    rig.send(0, &bytes(&then)).expect("the client is good");
    assert_eq!(rig.lose(0), AfterLoss::Kept(Loss::Unknown));
}

/// The server that takes the place of a lost one is lost too.
#[test]
fn a_lost_block_may_be_lost_again() {
    let Some(mut rig) = rig_with(3) else {
        return;
    };
    let sleep = Send::Query("SELECT pg_sleep(100)");
    rig.send(0, &bytes(&[Send::Query("BEGIN"), sleep]))
        .expect("the client is good");
    rig.await_messages(0, b'Z', 1).expect("the server is good");
    let _ = rig.received(0);
    assert_eq!(rig.lose(0), AfterLoss::Kept(Loss::RolledBack));
    rig.send(0, &bytes(&[sleep])).expect("the client is good");
    assert_eq!(rig.lose(0), AfterLoss::Kept(Loss::RolledBack));
    let then = [Send::Query("SELECT 1"), Send::Query("ROLLBACK")];
    rig.send(0, &bytes(&then)).expect("the client is good");
    rig.finish(0).expect("the server is good");
    let seen = replies(&rig.received(0)).join(", ");
    let lost = "error 08006, Z E";
    let expected = format!("{lost}, {lost}, error 25P02, Z E, C ROLLBACK\\0, Z I");
    assert_eq!(seen, expected);
}

/// A commit in flight may have been done.
#[test]
fn the_outcome_of_a_commit_is_unknown() {
    let insert = Send::Query("SELECT pg_sleep(100)");
    for sent in [
        vec![
            Send::Query("BEGIN"),
            Send::Query("SELECT pg_sleep(100); COMMIT"),
        ],
        vec![Send::Sync, insert],
        vec![
            Send::Sync,
            Send::Query("DO $$ BEGIN PERFORM pg_sleep(100); END $$"),
        ],
    ] {
        let Some((loss, seen)) = lost_after(&sent, 1, &[]) else {
            return;
        };
        assert_eq!(loss, Loss::Unknown, "{sent:?}");
        assert_eq!(seen, ["error 08007", "Z I"]);
    }
}

/// A standby reports that it was promoted with the replies to the first statement after it: when the
/// connection is lost before, that statement may have written, whatever the server has said last.
#[test]
fn the_last_reported_role_proves_nothing() {
    let Some(mut rig) = rig() else { return };
    let mut report = Vec::new();
    backend::parameter(&mut report, b"in_hot_standby", b"on");
    let alone = rig.servers[0].half.alone(&Tracked::default(), &report);
    assert_eq!(alone.map(|alone| alone.consumed), Ok(report.len()));
    rig.send(0, &bytes(&[Send::Query("SELECT pg_sleep(100)")]))
        .expect("the client is good");
    assert_eq!(rig.lose(0), AfterLoss::Kept(Loss::Unknown));
    assert_eq!(replies(&rig.received(0)), ["error 08007", "Z I"]);
}

/// A client that waits for nothing gets the error with its next request.
#[test]
fn an_idle_block_fails_at_the_next_request() {
    let then = [Send::Query("COMMIT"), Send::Query("SELECT 1")];
    let Some((loss, seen)) = lost_after(&[Send::Query("BEGIN")], 1, &then) else {
        return;
    };
    assert_eq!(loss, Loss::RolledBack);
    assert_eq!(seen[..2], ["error 08006", "Z I"]);
    assert_eq!(seen.len(), 6, "{seen:?}");
    let then = [
        Send::Parse("a", "SELECT 1"),
        Send::Bind("", "a", None),
        Send::Execute("", 0),
        Send::Sync,
        Send::Query("SELECT 1"),
        Send::Query("ROLLBACK"),
    ];
    let Some((_, seen)) = lost_after(&[Send::Query("BEGIN")], 1, &then) else {
        return;
    };
    let expected = "error 08006, Z E, error 25P02, Z E, C ROLLBACK\\0, Z I";
    assert_eq!(seen.join(", "), expected);
}

/// The rest of a batch is skipped, up to its Sync.
#[test]
fn the_rest_of_a_batch_is_skipped() {
    let sent = [
        Send::Sync,
        Send::Parse("a", "SELECT pg_sleep(100)"),
        Send::Bind("", "a", None),
        Send::Execute("", 0),
        Send::Flush,
    ];
    let then = [Send::Execute("", 0), Send::Sync, Send::Query("SELECT 1")];
    let Some((loss, seen)) = lost_after(&sent, 1, &then) else {
        return;
    };
    assert_eq!(loss, Loss::Unknown);
    assert_eq!(seen[..2], ["error 08007", "Z I"]);
    assert_eq!(seen.len(), 6, "{seen:?}");
}

/// Each request of a pipeline has its own answer.
#[test]
fn each_request_gets_one_answer() {
    let sleep = Send::Query("SELECT pg_sleep(100)");
    let sent = [
        Send::Sync,
        sleep,
        sleep,
        Send::Parse("", "SELECT 1"),
        Send::Sync,
    ];
    let Some((_, seen)) = lost_after(&sent, 1, &[]) else {
        return;
    };
    let expected = ["error 08007", "Z I"].repeat(3);
    assert_eq!(seen, expected);
}

/// A parameter that a lost transaction has set is as it was before: else it would hold for the
/// rest of the session.
#[test]
fn parameters_of_a_lost_transaction_are_undone() {
    let set = Send::Query("SET LOCAL application_name = 'of the lost one'");
    let first = Send::Query("SET application_name = 'first'");
    let sent = [first, Send::Query("BEGIN"), set];
    let then = [
        Send::Query("ROLLBACK"),
        Send::Query("SHOW application_name"),
    ];
    let Some((loss, seen)) = lost_after(&sent, 3, &then) else {
        return;
    };
    assert_eq!(loss, Loss::RolledBack);
    let seen = seen.join("; ");
    assert!(
        seen.contains("first") && !seen.contains("lost one"),
        "{seen}"
    );
}
