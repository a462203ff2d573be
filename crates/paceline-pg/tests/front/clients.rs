//! Programs that the project has not written.

use std::process::{Command, Output};

use crate::{
    pooler::Pooler,
    support::postgres::{self, USER},
};

fn psql(pooler: &Pooler, sql: &str) -> Output {
    Command::new("psql")
        .args([
            "-X",
            "-h",
            "127.0.0.1",
            "-p",
            &pooler.port(),
            "-U",
            USER,
            "-At",
        ])
        .args(["-v", "ON_ERROR_STOP=1", "-c", sql, "db"])
        .output()
        .expect("psql is installed")
}

/// Whether Debian's clients are here; otherwise a line says that the test is skipped.
fn has_clients() -> bool {
    let found = Command::new("pgbench").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: psql and pgbench are not installed");
    }
    found
}

#[test]
fn psql_gets_rows_errors_and_copies() {
    let Some(postgres) = postgres::server().filter(|_| has_clients()) else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction");
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert_eq!(text(&psql(&pooler, "SELECT 40 + 2")), "42");
    let failed = psql(&pooler, "SELECT 1/0");
    assert!(String::from_utf8_lossy(&failed.stderr).contains("division by zero"));
    let copied = psql(&pooler, "COPY (SELECT generate_series(1, 50000)) TO STDOUT");
    assert_eq!(text(&copied).lines().count(), 50_000);
    let wide = psql(&pooler, "SELECT repeat('x', 3000000)");
    assert_eq!(text(&wide).len(), 3_000_000);
}

/// Each protocol of pgbench in each mode, with six clients for each server: every transaction
/// succeeds, and the totals of its bank hold.
#[test]
fn pgbench_succeeds_in_every_mode() {
    let Some(postgres) = postgres::server().filter(|_| has_clients()) else {
        return;
    };
    let settings = "pool_mode = transaction\ndefault_pool_size = 10\nmax_client_conn = 200";
    let transaction = Pooler::of(postgres, settings);
    let bench = |pooler: &Pooler, more: &[&str]| {
        let output = Command::new("pgbench")
            .args(["-h", "127.0.0.1", "-p", &pooler.port(), "-U", USER])
            .args(more)
            .arg("db")
            .output()
            .expect("pgbench runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{more:?}: {text}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    bench(&transaction, &["-i", "-q", "-s", "2"]);
    let mut expected = 0;
    // A thread of pgbench waits for each Parse: with more clients than servers it would wait for
    // itself.
    for (protocol, clients) in [("simple", 60), ("extended", 60), ("prepared", 10)] {
        let clients = clients.to_string();
        let told = bench(
            &transaction,
            &["-n", "-M", protocol, "-c", &clients, "-j", "2", "-t", "10"],
        );
        assert!(told.contains("number of failed transactions: 0 "), "{told}");
        expected += 10 * clients.parse::<u32>().expect("a number");
    }
    let many = [
        "-n", "-S", "-M", "prepared", "-c", "60", "-j", "2", "-t", "50",
    ];
    assert!(bench(&transaction, &many).contains("actually processed: 3000/3000"));
    let session = Pooler::of(postgres, "pool_mode = session\ndefault_pool_size = 10");
    for protocol in ["simple", "extended", "prepared"] {
        let told = bench(
            &session,
            &["-n", "-M", protocol, "-c", "8", "-j", "2", "-t", "10"],
        );
        assert!(told.contains("actually processed: 80/80"), "{told}");
        expected += 80;
    }
    let mut client = transaction.client();
    let totals = client
        .query(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = \
                    (SELECT sum(delta) FROM pgbench_history), \
                    (SELECT sum(tbalance) FROM pgbench_tellers) = \
                    (SELECT sum(delta) FROM pgbench_history), \
                    (SELECT count(*) FROM pgbench_history)",
        )
        .expect("the totals");
    assert_eq!(
        totals,
        [["t".to_owned(), "t".to_owned(), expected.to_string()]]
    );
}
