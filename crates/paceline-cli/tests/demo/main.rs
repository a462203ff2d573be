//! The whole system in one command: its start, its end, and faults of each tier. The demo's own
//! checks compare the system with the books of its clients; these tests show that it runs them.

mod support;

use std::path::Path;

use serde_json::Value;
use support::{kill, new_folder, paceline, wait_for_end_of, wait_until, Demo};

/// The promise of the one command: it serves, checks itself, and ends with status 0.
#[test]
fn it_ends_by_itself_and_all_checks_agree() {
    let mut demo = Demo::start("ends", &["--for", "5"]);
    assert!(demo.end().success(), "{}", demo.text);
    let psql = format!("psql -h 127.0.0.1 -p {} -U demo bank", demo.port);
    for part in [
        &*psql,
        "pgbench -h 127.0.0.1",
        "0 lost, 0 doubled",
        "all checks agree",
    ] {
        assert!(demo.text.contains(part), "{part} is not in:\n{}", demo.text);
    }
}

/// When the process that writes is killed, its standby takes over, and the killed one returns as the
/// standby. What was acknowledged is there; a commit that was under way is reported as unknown, and
/// both outcomes are right.
#[test]
fn a_killed_back_end_breaks_no_promise() {
    let mut demo = Demo::start("killed", &["--no-fault"]);
    demo.wait_for("totals agree");
    kill(demo.process("bank-a"), "-9");
    demo.wait_for_all(&[
        "bank-b has taken over: now it writes",
        "bank-a serves again, as a standby",
    ]);
    demo.wait_for("totals agree");
    demo.signal("-INT");
    assert!(demo.end().success(), "{}", demo.text);
    for part in [
        "bank-a was killed by signal 9",
        "bank-a was started again 1 times",
        " unknown (",
        "all checks agree",
    ] {
        assert!(demo.text.contains(part), "{part} is not in:\n{}", demo.text);
    }
    // Code 25006: a write has reached the standby.
    assert!(!demo.text.contains("25006"), "{}", demo.text);
}

/// Clients that only read get a standby, and those that write the other process.
#[test]
fn reads_reach_the_standby() {
    let demo = Demo::start("reads", &["--no-load"]);
    let question = "SELECT pg_is_in_recovery()";
    wait_until("the front-end knows the standby", || {
        demo.ask("bank_read", question) == "t"
    });
    assert_eq!(demo.ask("bank", question), "f");
    demo.ask("bank", "CREATE TABLE notes (text text)");
    demo.ask("bank", "INSERT INTO notes VALUES ('seen')");
    assert_eq!(demo.ask("bank_read", "SELECT text FROM notes"), "seen");
}

/// A back-end is drained: no transaction is broken off, and no outcome is unknown.
#[test]
fn a_drained_back_end_breaks_no_transaction_off() {
    let mut demo = Demo::start("drained", &["--no-fault", "--rate", "600"]);
    demo.wait_for("totals agree");
    for server in ["bank-a", "travel-a"] {
        demo.fault(server, "drain");
        demo.wait_for_all(&[
            &format!("{server} is drained"),
            &format!("{server} serves again, as a standby"),
        ]);
    }
    demo.wait_for("totals agree");
    demo.signal("-INT");
    assert!(demo.end().success(), "{}", demo.text);
    let report = demo.text.lines();
    let mut report = report.filter(|line| line.contains("transactions committed"));
    let line = report.next().expect("a report");
    assert!(line.contains(" 0 unknown"), "{}", demo.text);
    for code in ["08006", "08007", "25006"] {
        assert!(!demo.text.contains(code), "{code} in:\n{}", demo.text);
    }
}

/// Rows that are changed behind the clients' backs: the demo must not end with status 0, and the
/// data and the logs of what has failed were removed once.
#[test]
fn a_wrong_total_fails_the_demo() {
    let mut demo = Demo::start_without_folder("wrong", &["--no-fault"]);
    demo.wait_for("totals agree");
    demo.ask(
        "bank",
        "UPDATE tills SET balance = balance - 1 WHERE id = 3",
    );
    demo.wait_for("TOTALS DIFFER");
    demo.signal("-INT");
    assert_eq!(demo.end().code(), Some(1), "{}", demo.text);
    assert!(demo.text.contains("CHECKS DO NOT AGREE"), "{}", demo.text);
    let last = demo.text.lines().last().expect("a line");
    let folder = last.strip_prefix("the data and the logs are in ");
    let folder = Path::new(folder.expect("the folder is named"));
    assert!(folder.starts_with(demo.folder()), "{}", folder.display());
    assert!(folder.join("front.log").exists(), "the logs are kept");
}

/// The folder of a demo that has not failed is removed.
#[test]
fn a_demo_without_a_folder_leaves_nothing() {
    let mut demo = Demo::start_without_folder("nothing", &["--for", "2", "--no-fault"]);
    assert!(demo.end().success(), "{}", demo.text);
    let left = std::fs::read_dir(demo.folder()).expect("the folder");
    assert_eq!(left.count(), 0, "{}", demo.text);
}

/// Without clients of its own the demo has nothing to check, but says what it has served.
#[test]
fn without_clients_the_report_counts_what_was_served() {
    let mut demo = Demo::start("served", &["--no-load"]);
    for _ in 0..3 {
        demo.ask("scratch", "SELECT 1");
    }
    demo.signal("-INT");
    assert!(demo.end().success(), "{}", demo.text);
    assert!(
        demo.text
            .contains("The front-end has passed on 3 transactions:")
            && demo.text.contains("  scratch                3"),
        "{}",
        demo.text
    );
}

/// A front-end that hangs for ever: the end of the demo waited for it without a limit.
#[test]
fn the_end_takes_a_limited_time() {
    let mut demo = Demo::start("hangs", &["--no-fault", "--end-within", "2"]);
    demo.wait_for("totals agree");
    let processes = demo.processes();
    kill(demo.process("front"), "-STOP");
    demo.signal("-INT");
    assert_eq!(demo.end().code(), Some(1), "{}", demo.text);
    for part in ["longer than 2 s", "the data and the logs are in"] {
        assert!(demo.text.contains(part), "{part} is not in:\n{}", demo.text);
    }
    processes
        .iter()
        .for_each(|(_, process)| wait_for_end_of(*process));
}

/// However the demo ends, its servers end with it: here it has no time for anything.
#[test]
fn the_servers_end_with_a_killed_demo() {
    let demo = Demo::start("orphans", &["--no-load"]);
    let processes = demo.processes();
    assert_eq!(processes.len(), 5, "{}", demo.text);
    demo.signal("-9");
    processes
        .iter()
        .for_each(|(_, process)| wait_for_end_of(*process));
}

/// Clients of a stopped server delay the end; a second signal does not wait for them.
#[test]
fn a_second_signal_ends_at_once() {
    let mut demo = Demo::start("twice", &["--no-fault"]);
    demo.wait_for("totals agree");
    let processes = demo.processes();
    demo.fault("bank-a", "stop");
    demo.signal("-INT");
    demo.wait_for("a second Ctrl-C ends at once");
    demo.signal("-INT");
    assert_eq!(demo.end().code(), Some(130), "{}", demo.text);
    // A stopped process notices the end of the demo when it continues.
    processes
        .iter()
        .for_each(|(_, process)| wait_for_end_of(*process));
}

/// What a folder has is used again by the next demo.
#[test]
fn data_stay_in_a_named_folder() {
    let folder = new_folder("stays");
    let folder_name = folder.to_str().expect("a name").to_owned();
    for _ in 0..2 {
        // The last of two options holds.
        let mut demo = Demo::start(
            "again",
            &["--no-fault", "--for", "2", "--data", &folder_name],
        );
        assert!(demo.end().success(), "{}", demo.text);
    }
    assert!(folder.join("bank").is_dir());
    std::fs::remove_dir_all(folder).expect("the folder");
}

#[test]
fn what_does_not_work_is_a_clear_error() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = busy.local_addr().expect("its address").port().to_string();
    let unused = new_folder("unused");
    let folder = unused.clone();
    let unused = unused.to_str().expect("a name");
    for (arguments, part) in [
        (
            &["demo", "--port", &*port][..],
            &*format!("port {port} for the front-end: "),
        ),
        (
            &["demo", "--page-port", &*port],
            &*format!("port {port} for the page: "),
        ),
        (
            &["demo", "--data", "/proc/none"],
            "creating the folder /proc/none",
        ),
        (
            &["demo", "--pooler", "/proc/none", "--data", unused],
            "the server front has ended",
        ),
        (&["demo", "--for", "soon"], "no number of seconds"),
        (&["demo", "--unknown"], "--unknown"),
    ] {
        let output = paceline(arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    std::fs::remove_dir_all(folder).expect("the servers have written there");
}

/// A page of another computer can't make faults, and the page says which server there is.
#[test]
fn the_page_shows_the_tiers_and_takes_faults_only_from_itself() {
    let demo = Demo::start("page", &["--no-load"]);
    let page = demo.request("GET /", "");
    assert!(page.contains("<title>Paceline"), "{page}");
    let state = demo.state();
    let servers = state["servers"].as_array().expect("servers");
    let names: Vec<_> = servers.iter().map(|server| &server["name"]).collect();
    assert_eq!(names, ["bank-a", "bank-b", "travel-a", "travel-b", "front"]);
    let roles: Vec<_> = servers.iter().map(|server| &server["role"]).collect();
    let (writes, standby, none) = ("writes".into(), "standby".into(), Value::Null);
    assert_eq!(roles, [&writes, &standby, &writes, &standby, &none]);
    assert!(servers
        .iter()
        .all(|server| !server["threads"].as_array().expect("threads").is_empty()));
    for (form, status) in [
        ("server=bank-a&fault=other", "400"),
        ("server=other&fault=kill", "404"),
        ("", "404"),
    ] {
        let answer = demo.request("POST /fault", form);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{form}: {answer}"
        );
    }
}

/// Every button of the page, for every tier, while clients are at work. The clients' books agree
/// after each; `--nocapture` shows a row for each fault.
#[test]
fn tier_fault() {
    let mut demo = Demo::start("faults", &["--no-fault", "--rate", "600"]);
    demo.wait_for("totals agree");
    println!("tier     fault  committed  lost  doubled  unknown  recovery ms (unknown: so far)");
    for server in ["bank-a", "travel-b", "front"] {
        for fault in ["kill", "stop", "slow", "drain"] {
            let before = committed(&demo);
            demo.fault(server, fault);
            let again = match fault {
                "stop" | "slow" => "continues",
                _ => "serves again",
            };
            demo.wait_for(&format!("{server} {again}"));
            let after = committed(&demo);
            wait_until("clients commit again", || committed(&demo) > after + 100);
            demo.wait_for("totals agree");
            print_row(&demo, server, fault, before);
        }
    }
    demo.signal("-INT");
    assert!(demo.end().success(), "{}", demo.text);
    assert!(demo.text.contains("all checks agree"), "{}", demo.text);
}

fn committed(demo: &Demo) -> u64 {
    demo.state()["load"]["committed"]
        .as_u64()
        .expect("a number")
}

fn print_row(demo: &Demo, server: &str, fault: &str, before: u64) {
    let state = demo.state();
    let load = &state["load"];
    assert_eq!(
        (&load["agrees"], &load["lost"], &load["doubled"]),
        (&true.into(), &0.into(), &0.into())
    );
    let count = |name: &str| load[name].as_u64().expect("a count");
    let servers = state["servers"].as_array().expect("servers");
    let found = servers.iter().find(|found| found["name"] == server);
    let recovery = &found.expect("the server")["longest_recovery_ms"];
    println!(
        "{server:<8} {fault:<5} {:>10} {:>5} {:>8} {:>8} {:>12.0}",
        committed(demo) - before,
        count("lost"),
        count("doubled"),
        count("unknown"),
        recovery.as_f64().unwrap_or(0.0)
    );
}

/// The same over PostgreSQL: a primary, which is killed, and two replicas.
#[test]
fn postgres_is_a_back_end() {
    if !has_postgres() {
        eprintln!("SKIPPED: postgres_is_a_back_end needs PostgreSQL (Debian: postgresql)");
        return;
    }
    let mut demo = Demo::start("postgres", &["--postgres", "--no-fault"]);
    demo.wait_for("totals agree");
    demo.fault("primary", "kill");
    demo.wait_for("primary serves again");
    demo.fault("replica1", "stop");
    demo.wait_for("replica1 continues");
    demo.wait_for("totals agree");
    demo.signal("-INT");
    assert!(demo.end().success(), "{}", demo.text);
    assert!(demo.text.contains("all checks agree"), "{}", demo.text);
}

/// A sample of the table of faults: one of each kind, with few transactions.
#[test]
fn the_table_of_faults_passes() {
    let rows = [
        "clients-reset",
        "front-kill",
        "writer-kill",
        "disk-full",
        "disk-sync-fails",
        "clock-jump",
    ];
    let options = ["tier-faults", "-n", "900", "--every", "0.3"];
    let output = paceline(&[&options[..], &rows].concat()).output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{text}");
    for row in rows {
        assert!(text.contains(row), "{row} is not in:\n{text}");
    }
    assert!(text.contains(" 0 failed"), "{text}");
}

/// Debian keeps PostgreSQL's programs outside of the search path.
fn has_postgres() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let folders =
        std::env::split_paths(&path).chain(versions.map(|version| version.path().join("bin")));
    let mut folders = folders.filter(|folder| folder.join("pg_basebackup").exists());
    folders.any(|folder| folder.join("initdb").exists())
}

/// The checker of the command line, on the system of the command line.
#[test]
fn the_checker_passes_on_the_demo() {
    let demo = Demo::start("checked", &["--no-load"]);
    let url = format!("postgres://demo@127.0.0.1:{}/scratch", demo.port);
    let output = paceline(&["check", "-n", "400", "-t", "60", "--json", "--quiet", &url]).output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["passed"], true, "{text}");
    assert_eq!(
        report["workloads"].as_array().map(Vec::len),
        Some(3),
        "{text}"
    );
}
