//! Sequences that have broken other poolers, by the names under which the project knows them.

use paceline_pg::protocol::{Mode, RelaySettings, Release};

use crate::support::{
    postgres,
    rig::{End, Rig},
    script::{bytes, replies, Send},
    session::Session,
};

/// So many clients on one server, which keeps so many statements.
fn rig(clients: usize, statements: usize) -> Option<Rig> {
    let mut settings = RelaySettings::new(Mode::Transaction);
    settings.max_prepared_statements = statements;
    let session = Session::new(postgres::server()?);
    Some(Rig::new(settings, clients, vec![session]))
}

/// The client sends messages, and receives until its server is free.
fn exchange(rig: &mut Rig, client: usize, messages: &[Send]) -> Vec<String> {
    rig.send(client, &bytes(messages))
        .expect("the client is good");
    rig.finish(client).expect("the server is good");
    replies(&rig.received(client))
}

fn run(name: &'static str) -> [Send; 2] {
    [Send::Bind("", name, None), Send::Execute("", 0)]
}

/// A pooler answered a Close when it was idle again: the client read `3` behind `Z`, as the reply
/// to its next request.
#[test]
fn close_reply_never_after_ready() {
    let Some(mut rig) = rig(1, 10) else { return };
    let parse = [Send::Parse("a", "SELECT 1"), Send::Sync];
    assert_eq!(exchange(&mut rig, 0, &parse), ["1 ", "Z I"]);
    let close = [&run("a")[..], &[Send::CloseStatement("a"), Send::Sync]].concat();
    let expected = [
        "2 ",
        "D \\0\\u{1}\\0\\0\\0\\u{1}1",
        "C SELECT 1\\0",
        "3 ",
        "Z I",
    ];
    assert_eq!(exchange(&mut rig, 0, &close), expected);
    // Behind a swallowed reply too: the server has forgotten the statement.
    rig.servers[0].session.query("SELECT 1");
    let again = [
        Send::Parse("b", "SELECT 2"),
        Send::CloseStatement("b"),
        Send::Sync,
    ];
    assert_eq!(exchange(&mut rig, 0, &again), ["1 ", "3 ", "Z I"]);
}

/// A client that prepares again under the name of a failed Parse was refused.
#[test]
fn failed_or_skipped_parse_frees_name() {
    let Some(mut rig) = rig(1, 10) else { return };
    let failed = [
        Send::Parse("a", "SELEC"),
        Send::Parse("b", "SELECT 1"),
        Send::Sync,
    ];
    assert_eq!(exchange(&mut rig, 0, &failed), ["error 42601", "Z I"]);
    assert_eq!(rig.clients[0].half.prepared_statements(), 0);
    assert_eq!(rig.servers[0].half.prepared_statements(), 0);
    let good = [
        Send::Parse("a", "SELECT 1"),
        Send::Parse("b", "SELECT 1"),
        Send::Sync,
    ];
    assert_eq!(exchange(&mut rig, 0, &good), ["1 ", "1 ", "Z I"]);
    let taken = [
        Send::Parse("a", "SELECT 2"),
        Send::Parse("c", "SELECT 1"),
        Send::Sync,
    ];
    assert_eq!(exchange(&mut rig, 0, &taken), ["error 42P05", "Z I"]);
    assert_eq!(rig.clients[0].half.prepared_statements(), 2);
}

#[test]
fn skipped_close_is_no_close() {
    let Some(mut rig) = rig(1, 10) else { return };
    let _ = exchange(&mut rig, 0, &[Send::Parse("a", "SELECT 1"), Send::Sync]);
    let skipped = [
        Send::Parse("", "SELEC"),
        Send::CloseStatement("a"),
        Send::Sync,
    ];
    assert_eq!(exchange(&mut rig, 0, &skipped), ["error 42601", "Z I"]);
    let used = [&run("a")[..], &[Send::Sync]].concat();
    assert_eq!(exchange(&mut rig, 0, &used).len(), 4);
}

/// A pooler closed the connection of a client that named a statement which does not exist.
#[test]
fn bind_unknown_keeps_connection() {
    let Some(mut rig) = rig(2, 10) else { return };
    let _ = exchange(&mut rig, 1, &[Send::Parse("a", "SELECT 1"), Send::Sync]);
    for message in [Send::Bind("", "a", None), Send::DescribeStatement("a")] {
        let unknown = [
            Send::Query("BEGIN"),
            message,
            Send::Execute("", 0),
            Send::Sync,
            Send::Query("SELECT 1"),
            Send::Query("ROLLBACK"),
        ];
        let expected = [
            "C BEGIN\\0",
            "Z T",
            "error 26000",
            "Z E",
            "error 25P02",
            "Z E",
            "C ROLLBACK\\0",
            "Z I",
        ];
        assert_eq!(exchange(&mut rig, 0, &unknown), expected);
    }
}

/// The unnamed statement of another client is none of this one's.
#[test]
fn the_unnamed_statement_of_another_client_is_unknown() {
    let Some(mut rig) = rig(2, 0) else { return };
    let mine = [Send::Parse("", "SELECT 'mine'"), Send::Sync];
    assert_eq!(exchange(&mut rig, 0, &mine), ["1 ", "Z I"]);
    let use_it = [&run("")[..], &[Send::Sync]].concat();
    assert_eq!(exchange(&mut rig, 1, &use_it), ["error 26000", "Z I"]);
    assert_eq!(exchange(&mut rig, 0, &use_it).len(), 4);
    // A Parse that the server skips does not make it the client's own.
    let skipped = [
        Send::Execute("missing", 0),
        Send::Parse("", "SELECT 1"),
        Send::Sync,
        Send::Bind("", "", None),
        Send::Execute("", 0),
        Send::Sync,
    ];
    let expected = ["error 34000", "Z I", "error 26000", "Z I"];
    assert_eq!(exchange(&mut rig, 1, &skipped), expected);
}

/// What a name means may depend on a batch that is not answered.
#[test]
fn a_pipelined_parse_after_a_failed_one_is_good() {
    let Some(mut rig) = rig(1, 10) else { return };
    let pipeline = [
        Send::Parse("a", "SELEC"),
        Send::Sync,
        Send::Parse("a", "SELECT 1"),
        Send::Sync,
        Send::Query("SELECT 1/0; DEALLOCATE ALL"),
        Send::Bind("", "a", None),
        Send::Sync,
    ];
    let seen = exchange(&mut rig, 0, &pipeline);
    assert_eq!(seen[..4], ["error 42601", "Z I", "1 ", "Z I"]);
    assert_eq!(seen[seen.len() - 4..], ["error 22012", "Z I", "2 ", "Z I"]);
}

/// A transaction could not be rolled back: the failed block refused the Parse of a known ROLLBACK.
#[test]
fn cached_rollback_in_failed_tx() {
    let Some(mut rig) = rig(2, 10) else { return };
    let _ = exchange(&mut rig, 1, &[Send::Parse("r", "ROLLBACK"), Send::Sync]);
    let fail = [
        Send::Query("BEGIN"),
        Send::Query("SELECT 1/0"),
        Send::Parse("mine", "ROLLBACK"),
        Send::Bind("", "mine", None),
        Send::Execute("", 0),
        Send::Sync,
    ];
    let expected = [
        "C BEGIN\\0",
        "Z T",
        "error 22012",
        "Z E",
        "1 ",
        "2 ",
        "C ROLLBACK\\0",
        "Z I",
    ];
    assert_eq!(exchange(&mut rig, 0, &fail), expected);
}

/// The server skips the Close of an old statement: it still has that statement.
#[test]
fn evict_then_error_keeps_map() {
    let Some(mut rig) = rig(1, 1) else { return };
    let _ = exchange(&mut rig, 0, &[Send::Parse("a", "SELECT 1"), Send::Sync]);
    let evicting = [
        Send::Parse("", "SELEC"),
        Send::Parse("b", "SELECT 2"),
        Send::Sync,
    ];
    assert_eq!(exchange(&mut rig, 0, &evicting), ["error 42601", "Z I"]);
    let sql = "SELECT count(*) FROM pg_prepared_statements";
    let count = |rig: &mut Rig| exchange(rig, 0, &[Send::Query(sql)])[1].clone();
    assert_eq!(count(&mut rig), "D \\0\\u{1}\\0\\0\\0\\u{1}1");
    // If the map had lost it, the server would refuse the second Parse under its name.
    let used = [&run("a")[..], &[Send::Sync]].concat();
    assert_eq!(exchange(&mut rig, 0, &used)[0], "2 ");
    assert_eq!(rig.servers[0].half.prepared_statements(), 1);
    let other = [Send::Parse("b", "SELECT 2"), Send::Sync];
    assert_eq!(exchange(&mut rig, 0, &other), ["1 ", "Z I"]);
    assert_eq!(exchange(&mut rig, 0, &used)[0], "2 ");
    assert_eq!(count(&mut rig), "D \\0\\u{1}\\0\\0\\0\\u{1}1");
}

/// Once a table had another column, every use of a statement on it failed for ever.
#[test]
fn plan_change_heals() {
    let Some(mut rig) = rig(2, 10) else { return };
    let table = "CREATE TABLE IF NOT EXISTS healed (a int)";
    let _ = exchange(&mut rig, 1, &[Send::Query(table)]);
    let select = [Send::Parse("a", "SELECT * FROM healed"), Send::Sync];
    let _ = exchange(&mut rig, 0, &select);
    let used = [&run("a")[..], &[Send::Sync]].concat();
    assert_eq!(exchange(&mut rig, 0, &used), ["2 ", "C SELECT 0\\0", "Z I"]);
    let change = "ALTER TABLE healed ADD b int";
    let _ = exchange(&mut rig, 1, &[Send::Query(change)]);
    assert_eq!(exchange(&mut rig, 0, &used), ["error 0A000", "Z I"]);
    assert_eq!(exchange(&mut rig, 0, &used), ["2 ", "C SELECT 0\\0", "Z I"]);
    let _ = exchange(&mut rig, 1, &[Send::Query("DROP TABLE healed")]);
}

#[test]
fn sync_swallowed_by_copy_in() {
    let Some(mut rig) = rig(1, 10) else { return };
    let copy = [
        Send::Query("BEGIN; CREATE TABLE s (a int)"),
        Send::Parse("", "COPY s FROM STDIN"),
        Send::Bind("", "", None),
        Send::Execute("", 0),
        Send::Sync,
        Send::Flush,
        Send::CopyData("1\n"),
        Send::Sync,
        Send::CopyDone,
        Send::Sync,
        Send::Query("ROLLBACK"),
    ];
    let seen = exchange(&mut rig, 0, &copy);
    let readies = seen.iter().filter(|reply| reply.starts_with('Z')).count();
    assert_eq!(readies, 3, "{seen:?}");
}

/// How many Syncs the copy has swallowed depends on the row that fails.
#[test]
fn copy_fails_after_inner_sync_pins() {
    let Some(mut rig) = rig(1, 10) else { return };
    let copy = [
        Send::Query("CREATE TEMP TABLE p (a int)"),
        Send::Query("COPY p FROM STDIN"),
        Send::CopyData("no number\n"),
        Send::Sync,
        Send::CopyDone,
        Send::Sync,
    ];
    rig.send(0, &bytes(&copy)).expect("the client is good");
    while rig.receive(0).expect("the server is good") != Release::Pinned {}
    // The client continues, also with statements; the server is never free again.
    let go_on = [
        Send::Parse("a", "SELECT 7"),
        Send::Bind("", "a", None),
        Send::Execute("", 0),
        Send::Sync,
        Send::CloseStatement("a"),
        Send::Sync,
        Send::Query("SELECT 'the end'"),
    ];
    rig.send(0, &bytes(&go_on)).expect("the client is good");
    let is_over = |rig: &Rig| rig.clients[0].received.ends_with(b"SELECT 1\0Z\0\0\0\x05I");
    let has_seven = |rig: &Rig| {
        rig.clients[0]
            .received
            .windows(8)
            .any(|all| all == b"the endC")
    };
    while !(is_over(&rig) && has_seven(&rig)) {
        assert_eq!(rig.receive(0), Ok(Release::Pinned));
    }
    let seen = replies(&rig.received(0)).join(",");
    assert!(
        seen.contains("1 ,2 ,D \\0\\u{1}\\0\\0\\0\\u{1}7,C SELECT 1"),
        "{seen}"
    );
}

/// A copy had failed; the end of its data came later, and the server was never given back.
#[test]
fn late_copydone_releases() {
    let Some(mut rig) = rig(1, 10) else { return };
    let begin = [Send::Query("COPY missing FROM STDIN"), Send::CopyDone];
    let seen = exchange(&mut rig, 0, &begin);
    assert_eq!(seen, ["error 42P01", "Z I"]);
    assert_eq!(rig.servers[0].half.may_release(), Release::Allowed);
    let fails = [
        Send::Query("BEGIN; CREATE TABLE l (a int)"),
        Send::Query("COPY l FROM STDIN"),
        Send::CopyData("no number\n"),
        Send::CopyData("1\n"),
        Send::CopyDone,
        Send::Query("ROLLBACK"),
    ];
    let seen = exchange(&mut rig, 0, &fails);
    assert_eq!(
        seen[seen.len() - 4..],
        ["error 22P02", "Z E", "C ROLLBACK\\0", "Z I"]
    );
    // Alone, when everything before it is answered.
    rig.send(0, &bytes(&[Send::CopyDone]))
        .expect("the client is good");
    assert_eq!(rig.servers[0].half.may_release(), Release::Allowed);
}

/// After an error the server skips a Query too: a pooler counted on its `Z`, and waited for ever.
#[test]
fn query_skipped_after_error() {
    let Some(mut rig) = rig(1, 10) else { return };
    let skipped = [
        Send::Parse("", "SELEC"),
        Send::Query("SELECT 1"),
        Send::Add("1", "2"),
        Send::Sync,
    ];
    assert_eq!(exchange(&mut rig, 0, &skipped), ["error 42601", "Z I"]);
    // The same, when the error is known before the query is sent.
    let error = [Send::Parse("", "SELEC")];
    rig.send(0, &bytes(&error)).expect("the client is good");
    rig.await_messages(0, b'E', 1).expect("the server is good");
    rig.send(0, &bytes(&[Send::Query("SELECT 1")]))
        .expect("the client is good");
    assert_eq!(rig.servers[0].half.may_release(), Release::Held);
    assert_eq!(exchange(&mut rig, 0, &[Send::Sync]), ["error 42601", "Z I"]);
}

#[test]
fn query_inside_batch_two_readies() {
    let Some(mut rig) = rig(1, 10) else { return };
    let batch = [
        Send::Parse("", "SELECT 1"),
        Send::Query("SELECT 'inside'"),
        Send::Parse("", "SELECT 1"),
        Send::Sync,
    ];
    let seen = exchange(&mut rig, 0, &batch);
    let shape: Vec<&str> = seen.iter().map(|reply| &reply[..1]).collect();
    assert_eq!(shape.concat(), "1cDCZ1Z");
}

/// The copy would never end: the server is not given to another client.
#[test]
fn terminate_in_copy_in() {
    let Some(mut rig) = rig(1, 10) else { return };
    let copy = [Send::Query(
        "CREATE TEMP TABLE c (a int); COPY c FROM STDIN",
    )];
    rig.send(0, &bytes(&copy)).expect("the client is good");
    rig.await_messages(0, b'G', 1).expect("the server is good");
    rig.send(0, b"X\0\0\0\x04").expect("the client is good");
    assert!(rig.clients[0].has_left);
    assert_eq!(rig.servers[0].half.may_release(), Release::Held);
}

/// psycopg closes its statements with a simple query.
#[test]
fn deallocate_of_one_name_closes_it() {
    let Some(mut rig) = rig(1, 10) else { return };
    let _ = exchange(&mut rig, 0, &[Send::Parse("a", "SELECT 1"), Send::Sync]);
    let in_failed_block = [
        Send::Query("BEGIN"),
        Send::Query("SELECT 1/0"),
        Send::Query("DEALLOCATE a"),
        Send::Query("ROLLBACK"),
    ];
    let seen = exchange(&mut rig, 0, &in_failed_block);
    assert_eq!(seen[4..6], ["error 25P02", "Z E"]);
    assert_eq!(
        exchange(&mut rig, 0, &[Send::Query("DEALLOCATE a")]),
        ["C DEALLOCATE\\0", "Z I"]
    );
    let used = [&run("a")[..], &[Send::Sync]].concat();
    assert_eq!(exchange(&mut rig, 0, &used), ["error 26000", "Z I"]);
}

/// In a pipeline psycopg does it with the extended protocol.
#[test]
fn deallocate_in_a_pipeline_closes_the_name() {
    let Some(mut rig) = rig(1, 10) else { return };
    let _ = exchange(&mut rig, 0, &[Send::Parse("a", "SELECT 1"), Send::Sync]);
    let deallocate = [
        Send::Parse("", "DEALLOCATE a"),
        Send::Bind("", "", None),
        Send::Execute("", 0),
    ];
    let failed = [
        &[Send::Execute("missing", 0)],
        &deallocate[..],
        &[Send::Sync],
    ]
    .concat();
    assert_eq!(exchange(&mut rig, 0, &failed), ["error 34000", "Z I"]);
    let used = [&run("a")[..], &deallocate, &run("a"), &[Send::Sync]].concat();
    let seen = exchange(&mut rig, 0, &used);
    let expected = ["1 ", "2 ", "C DEALLOCATE\\0", "error 26000", "Z I"];
    assert_eq!(seen[3..], expected);
}

#[test]
fn deallocate_all_and_discard_all_forget() {
    let Some(mut rig) = rig(2, 10) else { return };
    for sql in ["DEALLOCATE ALL", "DISCARD ALL"] {
        for client in 0..2 {
            let parse = [Send::Parse("a", "SELECT 1"), Send::Sync];
            assert_eq!(exchange(&mut rig, client, &parse), ["1 ", "Z I"]);
        }
        let _ = exchange(&mut rig, 0, &[Send::Query(sql)]);
        let used = [&run("a")[..], &[Send::Sync]].concat();
        assert_eq!(exchange(&mut rig, 0, &used), ["error 26000", "Z I"]);
        assert_eq!(exchange(&mut rig, 1, &used)[0], "2 ");
        let _ = exchange(&mut rig, 1, &[Send::CloseStatement("a"), Send::Sync]);
    }
}

#[test]
fn statement_mode_refuses_blocks() {
    let Some(mut rig) = rig(1, 10) else { return };
    rig.settings.mode = Mode::Statement;
    assert_eq!(exchange(&mut rig, 0, &[Send::Query("SELECT 1")]).len(), 4);
    rig.send(0, &bytes(&[Send::Query("BEGIN")]))
        .expect("the client is good");
    let end = rig.finish(0).expect_err("a block is refused");
    let End::Broken(why) = end else {
        panic!("{end:?}")
    };
    assert_eq!(
        why.to_string(),
        "transaction blocks not allowed in statement pooling mode"
    );
}

#[test]
fn session_mode_keeps_the_server() {
    let Some(mut rig) = rig(1, 10) else { return };
    rig.settings.mode = Mode::Session;
    let messages = [Send::Parse("a", "SELECT 1"), Send::Sync];
    rig.send(0, &bytes(&messages)).expect("the client is good");
    rig.await_messages(0, b'Z', 1).expect("the server is good");
    assert_eq!(rig.clients[0].server, Some(0));
    // Names pass unchanged.
    let sql = "SELECT name FROM pg_prepared_statements";
    rig.send(0, &bytes(&[Send::Query(sql)]))
        .expect("the client is good");
    rig.await_messages(0, b'Z', 2).expect("the server is good");
    let seen = replies(&rig.received(0));
    assert!(
        seen.contains(&"D \\0\\u{1}\\0\\0\\0\\u{1}a".to_owned()),
        "{seen:?}"
    );
}
