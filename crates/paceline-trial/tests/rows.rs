//! Short rows of the table over the embedded back-end, which needs nothing that is not built here.
//! `cargo xtask pg-faults` runs all of them, over PostgreSQL too.

use paceline_trial::faults::broken_rows;

/// The servers and the clients: this program starts itself with this name. Without a role it is an
/// empty test.
#[test]
fn program() {
    // A server that ends has ended this process already.
    let _ = paceline_trial::role::play();
}

/// Runs these rows.
fn holds(line: &str) {
    let line = format!("--back embedded --transactions 200 --strikes 4 --limit 120 {line}");
    let broken = broken_rows(&line).expect("the servers start");
    assert_eq!(broken, 0, "the rows above broke a promise");
}

#[test]
fn a_reset_connection_breaks_no_promise() {
    holds("--fault reset");
}

#[test]
fn a_killed_server_breaks_no_promise() {
    holds("--fault kill --state query,open,commit");
}

#[test]
fn killed_clients_break_no_promise() {
    holds("--fault client --state parsed,copy-in,open");
}
