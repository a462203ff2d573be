//! Queries of the front-end itself: parameters of a client, resets, checks, probes.

use paceline_pg::protocol::{
    Broken, ClientHalf, Mode, OwnOutcome, Purpose, RelaySettings, Release, Tracked,
};

use crate::support::{
    postgres,
    rig::{tags, End, Rig},
    script::{bytes, replies, Send},
    session::Session,
};

fn rig(clients: usize) -> Option<Rig> {
    let session = Session::new(postgres::server()?);
    Some(Rig::new(
        RelaySettings::new(Mode::Transaction),
        clients,
        vec![session],
    ))
}

fn exchange(rig: &mut Rig, client: usize, sql: &'static str) -> Vec<String> {
    rig.send(client, &bytes(&[Send::Query(sql)]))
        .expect("the client is good");
    rig.finish(client).expect("the server is good");
    replies(&rig.received(client))
}

/// Waits for the end of a query of the front-end.
fn own_outcome(rig: &mut Rig) -> OwnOutcome {
    let server = &mut rig.servers[0];
    let mut input = Vec::new();
    loop {
        server
            .session
            .receive(&mut input)
            .expect("the server stays");
        let alone = server
            .half
            .alone(&Tracked::default(), &input)
            .expect("the server is good");
        input.drain(..alone.consumed);
        if let Some(outcome) = alone.outcome {
            assert!(input.is_empty(), "nothing follows");
            return outcome;
        }
    }
}

fn begin_own(rig: &mut Rig, purpose: Purpose, sql: &str) -> OwnOutcome {
    let server = &mut rig.servers[0];
    let mut bytes = Vec::new();
    server.half.begin_own(purpose, sql.as_bytes(), &mut bytes);
    assert_eq!(server.half.may_release(), Release::Held);
    assert!(server.half.is_own_query_running());
    server.session.send(&bytes);
    own_outcome(rig)
}

/// Each client has its own values, whatever the last one has set.
#[test]
fn a_client_takes_its_parameters_along() {
    let Some(mut rig) = rig(2) else { return };
    let _ = exchange(
        &mut rig,
        0,
        "SET application_name = 'it''s \\ mine'; SET DateStyle = 'german'",
    );
    let theirs = exchange(&mut rig, 1, "SHOW application_name");
    assert_eq!(theirs[1], "D \\0\\u{1}\\0\\0\\0\\0");
    let mine = exchange(&mut rig, 0, "SHOW application_name");
    assert_eq!(mine[1], "D \\0\\u{1}\\0\\0\\0\\u{b}it\\'s \\\\ mine");
    assert_eq!(
        mine.len(),
        4,
        "the replies of the front-end's own query are swallowed: {mine:?}"
    );
    let mine = exchange(&mut rig, 0, "SHOW DateStyle");
    assert!(mine[1].ends_with("German, DMY"), "{mine:?}");
}

/// The server spells a value in its own way: the next comparison finds no difference.
#[test]
fn the_servers_spelling_is_taken_over() {
    let Some(mut rig) = rig(1) else { return };
    let mut wanted = rig.clients[0].half.parameters().clone();
    let tracked = Tracked::default();
    let place = tracked.place(b"client_encoding").expect("it is tracked");
    wanted.set(place, b"utf-8");
    wanted.set(tracked.place(b"TimeZone").expect("it is tracked"), b"utc");
    rig.clients[0].half = ClientHalf::new(wanted, false);
    // The client's query waits until the server has accepted the values.
    rig.send(0, &bytes(&[Send::Query("SELECT 1")]))
        .expect("the client is good");
    assert!(!rig.clients[0].pending.is_empty());
    rig.finish(0).expect("the server is good");
    assert_eq!(replies(&rig.received(0)).len(), 4);
    assert_eq!(
        rig.clients[0].half.parameters(),
        rig.servers[0].half.parameters()
    );
    assert_eq!(
        rig.clients[0].half.parameters().get(place),
        Some(&b"UTF8"[..])
    );
}

/// With a value that the server refuses, the client's statement would run under wrong parameters.
#[test]
fn a_refused_parameter_ends_both() {
    let Some(mut rig) = rig(1) else { return };
    let mut wanted = rig.clients[0].half.parameters().clone();
    let place = Tracked::default()
        .place(b"TimeZone")
        .expect("it is tracked");
    wanted.set(place, b"Nowhere/Else");
    rig.clients[0].half = ClientHalf::new(wanted, false);
    rig.send(0, &bytes(&[Send::Query("CREATE TABLE never (a int)")]))
        .expect("the client is good");
    assert_eq!(rig.finish(0), Err(End::Broken(Broken::Parameter)));
    assert!(!rig.clients[0].pending.is_empty(), "the statement was sent");
}

/// A server had accepted the values before, so the statement was sent behind them, and this server
/// refuses them: the statement may have run.
#[test]
fn a_statement_behind_a_refused_parameter_is_unknown() {
    let Some(rig) = rig(1) else { return };
    let mut wanted = rig.clients[0].half.parameters().clone();
    let place = Tracked::default()
        .place(b"TimeZone")
        .expect("it is tracked");
    wanted.set(place, b"Nowhere/Else");
    for (is_proven, expected) in [(false, "error 22023"), (true, "error 08007")] {
        let Some(mut rig) = self::rig(1) else { return };
        rig.clients[0].half = ClientHalf::new(wanted.clone(), is_proven);
        rig.send(0, &bytes(&[Send::Query("SELECT 1")]))
            .expect("the client is good");
        assert_eq!(rig.finish(0), Err(End::Broken(Broken::Parameter)));
        let mut last = Vec::new();
        let report = Broken::Parameter.report(rig.servers[0].half.loss());
        paceline_pg_wire::backend::error(&mut last, &report);
        assert_eq!(replies(&last), [expected], "proven: {is_proven}");
    }
}

#[test]
fn a_reset_forgets_statements() {
    let Some(mut rig) = rig(1) else { return };
    let parse = [Send::Parse("a", "SELECT 1"), Send::Sync];
    rig.send(0, &bytes(&parse)).expect("the client is good");
    rig.finish(0).expect("the server is good");
    assert_eq!(rig.servers[0].half.prepared_statements(), 1);
    let outcome = begin_own(&mut rig, Purpose::Reset, "DISCARD ALL");
    assert_eq!(outcome, OwnOutcome::Done(Purpose::Reset));
    assert_eq!(rig.servers[0].half.prepared_statements(), 0);
    assert_eq!(rig.servers[0].half.may_release(), Release::Allowed);
    // The client's name is still good.
    let used = [Send::Bind("", "a", None), Send::Execute("", 0), Send::Sync];
    let _ = rig.received(0);
    rig.send(0, &bytes(&used)).expect("the client is good");
    rig.finish(0).expect("the server is good");
    assert_eq!(replies(&rig.received(0)).len(), 4);
}

#[test]
fn a_check_may_fail() {
    let Some(mut rig) = rig(1) else { return };
    let outcome = begin_own(&mut rig, Purpose::Check, "SELECT 1");
    assert_eq!(outcome, OwnOutcome::Done(Purpose::Check));
    let outcome = begin_own(&mut rig, Purpose::Check, "SELECT 1/0");
    assert_eq!(outcome, OwnOutcome::Failed(Purpose::Check));
    // A query that leaves a block open does not leave a good server.
    let outcome = begin_own(&mut rig, Purpose::Connect, "BEGIN");
    assert_eq!(outcome, OwnOutcome::Failed(Purpose::Connect));
    assert_eq!(rig.servers[0].half.may_release(), Release::Held);
}

#[test]
fn a_probe_is_a_bare_sync() {
    let Some(mut rig) = rig(1) else { return };
    let mut bytes = Vec::new();
    rig.servers[0].half.begin_probe(&mut bytes);
    rig.servers[0].session.send(&bytes);
    assert_eq!(own_outcome(&mut rig), OwnOutcome::Done(Purpose::Probe));
}

/// An idle server reports parameters, and passes on notices and notifications. Anything else is a
/// sign that it is out of step.
#[test]
fn an_idle_server_speaks() {
    let Some(mut rig) = rig(1) else { return };
    let mut input = Vec::new();
    paceline_pg_wire::backend::parameter(&mut input, b"in_hot_standby", b"on");
    paceline_pg_wire::backend::parameter(&mut input, b"TimeZone", b"UTC");
    paceline_pg_wire::backend::notification(&mut input, 7, b"channel", b"text");
    let tracked = Tracked::default();
    let half = &mut rig.servers[0].half;
    let alone = half.alone(&tracked, &input).expect("it may say so");
    assert_eq!(alone.consumed, input.len());
    let place = tracked.place(b"timezone").expect("it is tracked");
    assert_eq!(half.parameters().get(place), Some(&b"UTC"[..]));
    assert_eq!(half.may_release(), Release::Allowed);
    assert!(half.alone(&tracked, b"3\0\0\0\x04").is_err());
}

/// The server's last message says why it ends: it is kept for the client.
#[test]
fn a_farewell_is_kept() {
    let Some(mut rig) = rig(2) else { return };
    let ends = "SELECT pg_terminate_backend(pg_backend_pid())";
    rig.send(0, &bytes(&[Send::Query(ends)]))
        .expect("the client is good");
    assert_eq!(rig.finish(0), Err(End::Closed));
    let farewell = rig.servers[0]
        .half
        .farewell()
        .expect("the server says why")
        .to_vec();
    assert_eq!(replies(&farewell), ["error 57P01"]);
    assert!(!tags(&rig.received(0)).contains(&b'E'), "no client gets it");
    assert_eq!(rig.servers[0].half.may_release(), Release::Pinned);
}
