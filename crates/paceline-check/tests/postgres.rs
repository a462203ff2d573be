//! The checker against PostgreSQL: a server that keeps its promises passes, and each promise that a
//! test breaks behind its back is found.

mod support;

use std::{
    net::TcpListener,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use paceline_check::{
    client::{Failure, Protocol, Session, Target},
    run, run_under, run_until, Isolation, Kind, Options, Report,
};
use support::{wait_until, Postgres, LIMIT};

fn options(postgres: &Postgres, kind: Kind) -> Options {
    Options {
        target: postgres.target(),
        workloads: vec![kind],
        clients: 4,
        duration: LIMIT,
        recovery: LIMIT,
        ..Options::default()
    }
}

/// A server that keeps its promises passes at each level, with each way to send statements.
#[test]
fn a_server_that_keeps_its_promises_passes() {
    let Some(postgres) = Postgres::start("passes") else {
        return;
    };
    for (isolation, protocol) in [
        (Isolation::ReadCommitted, Protocol::Simple),
        (Isolation::Snapshot, Protocol::Extended),
        (Isolation::Serializable, Protocol::Prepared),
    ] {
        for kind in Kind::ALL {
            let options = Options {
                isolation,
                protocol,
                transactions: Some(400),
                ..options(&postgres, kind)
            };
            let report = run(&options).expect("the server is there");
            assert!(report.has_passed(), "{report}");
            assert!(report.verdicts[0].committed > 100, "{report}");
            assert_eq!(report.verdicts[0].unknown, 0, "{report}");
        }
    }
}

/// A number of transactions that is reached before the first fault: the run would show nothing.
#[test]
fn no_workload_ends_before_its_first_fault() {
    let Some(postgres) = Postgres::start("spared") else {
        return;
    };
    let made = AtomicU32::new(0);
    let make = || {
        made.fetch_add(1, Ordering::Relaxed);
        true
    };
    let options = Options {
        transactions: Some(1),
        ..options(&postgres, Kind::Ledger)
    };
    // Longer than the single transaction takes.
    let every = Duration::from_secs(5);
    let report = run_under(&options, every, &make).expect("the server is there");
    assert!(report.has_passed(), "{report}");
    let (faults, failed) = report.verdicts[0].faults;
    assert!(faults > 0 && failed == 0, "{report}");
    assert_eq!(u64::from(made.into_inner()), faults);
}

/// Runs a workload, changes its table behind its back once it has `rows`, and reports.
fn tampered(postgres: &Postgres, kind: Kind, rows: &str, change: &str) -> Report {
    let options = options(postgres, kind);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let report = scope.spawn(|| run_until(&options, &stop).expect("the server is there"));
        let mut session = postgres.session();
        let mut has_rows = || {
            let answer = session.query(rows);
            answer.is_ok_and(|answer| answer.number(0, 0).is_some_and(|rows| rows > 0))
        };
        wait_until("the workload has filled its table", &mut has_rows);
        let changed = session.query(change).expect("the change is made").changed();
        assert_eq!(changed, Some(1));
        stop.store(true, Ordering::Relaxed);
        report.join().expect("the run ends")
    })
}

fn rules(report: &Report) -> Vec<&'static str> {
    let findings = report
        .verdicts
        .iter()
        .flat_map(|verdict| verdict.findings());
    findings.map(|finding| finding.rule).collect()
}

/// An acknowledged row that vanishes is lost, or torn if it had others beside it.
#[test]
fn a_row_that_vanishes_is_found() {
    let Some(postgres) = Postgres::start("vanishes") else {
        return;
    };
    for (having, rule) in [("= 1", "lost"), ("> 1", "torn")] {
        let one = format!(
            "FROM paceline_check_ledger GROUP BY client, entry HAVING count(*) {having} LIMIT 1"
        );
        let report = tampered(
            &postgres,
            Kind::Ledger,
            &format!("SELECT count(*) {one}"),
            &format!(
                "DELETE FROM paceline_check_ledger WHERE (client, entry, part) = \
                 (SELECT client, entry, max(part) {one})"
            ),
        );
        assert!(rules(&report).contains(&rule), "{report}");
    }
}

/// A row that is there twice, as after a statement that a proxy has repeated.
#[test]
fn a_row_that_is_doubled_is_found() {
    let Some(postgres) = Postgres::start("doubled") else {
        return;
    };
    let report = tampered(
        &postgres,
        Kind::Ledger,
        "SELECT count(*) FROM paceline_check_ledger",
        "INSERT INTO paceline_check_ledger SELECT * FROM paceline_check_ledger LIMIT 1",
    );
    assert!(rules(&report).contains(&"doubled"), "{report}");
}

/// Half of a transfer: money that appears from nowhere.
#[test]
fn a_total_that_changes_is_found() {
    let Some(postgres) = Postgres::start("total") else {
        return;
    };
    let report = tampered(
        &postgres,
        Kind::Bank,
        "SELECT count(*) FROM paceline_check_bank WHERE balance <> 1000",
        "UPDATE paceline_check_bank SET balance = balance + 1 WHERE id = 7",
    );
    assert!(rules(&report).contains(&"total"), "{report}");
}

/// The first value of a list is lost, or there again at its end.
#[test]
fn a_list_that_is_changed_is_found() {
    let Some(postgres) = Postgres::start("list") else {
        return;
    };
    for (items, rule) in [
        (
            "substr(items, 1 + length(split_part(items, ',', 2)) + 1)",
            "lost",
        ),
        ("items || ',' || split_part(items, ',', 2)", "doubled"),
    ] {
        let report = tampered(
            &postgres,
            Kind::Append,
            "SELECT count(*) FROM paceline_check_append WHERE length(items) > 20",
            &format!(
                "UPDATE paceline_check_append SET items = {items} WHERE id = \
                 (SELECT id FROM paceline_check_append ORDER BY length(items) DESC, id LIMIT 1)"
            ),
        );
        assert!(rules(&report).contains(&rule), "{report}");
    }
}

/// PostgreSQL ends all sessions when one of its processes is killed. Clients lose their
/// connections, also within commits; nothing acknowledged is lost, and nothing is repeated.
#[test]
fn a_killed_process_breaks_no_promise() {
    let Some(postgres) = Postgres::start("killed") else {
        return;
    };
    let options = options(&postgres, Kind::Ledger);
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let report = scope.spawn(|| run_until(&options, &stop).expect("the server is there"));
        for _ in 0..3 {
            let before = rows(&postgres);
            wait_until("the clients are at work", || rows(&postgres) > before);
            kill_session(&postgres);
            let after = rows(&postgres);
            wait_until("the clients are at work again", || rows(&postgres) > after);
        }
        stop.store(true, Ordering::Relaxed);
        report.join().expect("the run ends")
    });
    assert!(report.has_passed(), "{report}");
    let verdict = &report.verdicts[0];
    let lost = |(reason, _): &(&String, &u64)| reason.contains("connection lost");
    assert!(
        verdict.reasons.iter().any(|reason| lost(&reason)),
        "{report}"
    );
    assert!(verdict.fact("of_them_done") <= verdict.fact("entries_unknown"));
}

/// How many rows the ledger has; it waits while the server recovers.
fn rows(postgres: &Postgres) -> i64 {
    let mut count = None;
    wait_until("the server counts rows", || {
        let session = Session::open(&postgres.target(), Protocol::Simple, LIMIT);
        let answer = session
            .and_then(|mut session| session.query("SELECT count(*) FROM paceline_check_ledger"));
        count = answer.ok().and_then(|answer| answer.number(0, 0));
        count.is_some()
    });
    count.expect("a number")
}

/// Kills the process of one session of a client.
fn kill_session(postgres: &Postgres) {
    let clients = "SELECT pid FROM pg_stat_activity WHERE application_name = 'paceline check' \
                   AND pid <> pg_backend_pid() LIMIT 1";
    let answer = postgres.session().query(clients).expect("an answer");
    let process = answer.text(0, 0).expect("a session").to_owned();
    let killed = Command::new("kill").args(["-9", &process]).status();
    assert!(killed.expect("kill starts").success());
}

/// Each way to prove a password, and the refusal of a wrong one.
#[test]
fn passwords_are_proved() {
    let Some(postgres) = Postgres::start("passwords") else {
        return;
    };
    let mut session = postgres.session();
    for (user, encryption) in [
        ("by_scram", "scram-sha-256"),
        ("by_md5", "md5"),
        ("by_text", "scram-sha-256"),
    ] {
        let create = format!(
            "SET password_encryption = '{encryption}'; CREATE ROLE {user} LOGIN PASSWORD 'pencil'"
        );
        session.query(&create).expect("a user");
        let log_in = |password: Option<&str>| {
            let target = Target {
                user: user.to_owned(),
                password: password.map(str::to_owned),
                ..postgres.target()
            };
            let session = Session::open(&target, Protocol::Simple, LIMIT);
            session.and_then(|mut session| session.query("SELECT current_user"))
        };
        let answer = log_in(Some("pencil")).expect("the right password");
        assert_eq!(answer.text(0, 0), Some(user));
        match log_in(Some("pencils")) {
            Err(Failure::Ended(error)) => assert_eq!(error.code, "28P01", "{user}"),
            other => panic!("{user}: {other:?}"),
        }
        assert!(matches!(log_in(None), Err(Failure::Protocol(_))), "{user}");
    }
}

/// A port without a server is no failed promise.
#[test]
fn a_system_that_is_not_there_is_no_verdict() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let target = Target {
        port: closed.expect("a port").port(),
        ..Target::default()
    };
    let options = Options {
        target,
        ..Options::default()
    };
    let error = run(&options).expect_err("no server").to_string();
    assert!(
        error.contains("starting a session on postgres@127.0.0.1:"),
        "{error}"
    );
    assert!(error.contains("connecting"), "{error}");
}

/// A server that accepts, and is silent, ends by the time-out.
#[test]
fn a_silent_server_ends_by_the_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let target = Target {
        port: silent.local_addr().expect("its address").port(),
        ..Target::default()
    };
    let timeout = std::time::Duration::from_millis(20);
    let failure = Session::open(&target, Protocol::Simple, timeout).expect_err("no reply");
    assert_eq!(failure.label(), "time-out");
}
