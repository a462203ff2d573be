//! Money moves between accounts while servers and clients are killed: the total holds, and what was
//! acknowledged is there, once.

use std::{
    collections::HashSet,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Mutex,
    },
    thread,
};

use crate::{
    client::{Client, Failure},
    pooler::Pooler,
    support::postgres,
    wait_until,
};

/// How many accounts there are, each with this much money.
const ACCOUNTS: u64 = 200;
const MONEY: u64 = 1000;

/// What is known of the transfers.
#[derive(Default)]
struct Ledger {
    done: Mutex<HashSet<u64>>,
    unknown: Mutex<HashSet<u64>>,
}

/// One transfer. Its number is written in the same transaction.
fn transfer(client: &mut Client, number: u64) -> Result<(), Failure> {
    let (from, to) = (number % ACCOUNTS, (number * 7 + 3) % ACCOUNTS);
    let mut moves = [(from, "- 1"), (to, "+ 1")];
    // In one order, so that no two transfers wait for each other.
    moves.sort_unstable();
    client.query("BEGIN")?;
    for (account, change) in moves {
        let set = format!("UPDATE bank_accounts SET money = money {change}");
        client.query(&format!("{set} WHERE id = {account}"))?;
    }
    client.query(&format!("INSERT INTO bank_transfers VALUES ({number})"))?;
    client.query("COMMIT").map(drop)
}

#[test]
fn totals_hold_when_servers_and_clients_are_killed() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(
        postgres,
        "pool_mode = transaction\ndefault_pool_size = 4\nserver_login_retry = 0.1",
    );
    let mut setup = pooler.client();
    setup
        .query(&format!(
            "DROP TABLE IF EXISTS bank_accounts, bank_transfers; \
             CREATE TABLE bank_accounts AS \
                 SELECT generate_series(0, {ACCOUNTS} - 1) AS id, {MONEY} AS money; \
             CREATE TABLE bank_transfers (number bigint)"
        ))
        .expect("tables");
    let (ledger, numbers, is_over) = (Ledger::default(), AtomicU64::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| work(&pooler, &ledger, &numbers, &is_over));
        }
        for _ in 0..2 {
            scope.spawn(|| leave_abruptly(&pooler, &numbers, &is_over));
        }
        kill_servers(&mut setup, &ledger);
        is_over.store(true, Ordering::Relaxed);
    });
    check(&mut setup, &ledger);
}

/// Transfers until the end, with a new session when the old one is lost.
fn work(pooler: &Pooler, ledger: &Ledger, numbers: &AtomicU64, is_over: &AtomicBool) {
    let mut client = pooler.client();
    while !is_over.load(Ordering::Relaxed) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        match transfer(&mut client, number) {
            Ok(()) => drop(ledger.done.lock().expect("a ledger").insert(number)),
            Err(failure) => {
                if failure.code != "08006" {
                    ledger.unknown.lock().expect("a ledger").insert(number);
                }
                client = pooler.client();
            }
        }
    }
}

/// Clients that vanish in the middle of a transaction: it is rolled back.
fn leave_abruptly(pooler: &Pooler, numbers: &AtomicU64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let mut client = pooler.client();
        let begun = client.query("BEGIN").and_then(|_| {
            let account = number % ACCOUNTS;
            let sql = format!("UPDATE bank_accounts SET money = money - 500 WHERE id = {account}");
            client.query(&sql)
        });
        if begun.is_ok() && number % 2 == 0 {
            client.begin("UPDATE bank_transfers SET number = -1 WHERE number = -2");
        }
    }
}

/// Ends server connections one after the other, until enough transfers are done.
fn kill_servers(admin: &mut Client, ledger: &Ledger) {
    let mut killed = 0;
    wait_until("transfers", || {
        let _ = admin.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' \
                 AND query LIKE '%bank_%' ORDER BY random() LIMIT 1",
        );
        killed += 1;
        killed > 40 && ledger.done.lock().expect("a ledger").len() > 200
    });
}

fn check(admin: &mut Client, ledger: &Ledger) {
    let total = admin
        .query("SELECT sum(money) FROM bank_accounts")
        .expect("a sum");
    assert_eq!(total, [[(ACCOUNTS * MONEY).to_string()]]);
    let rows = admin
        .query("SELECT number FROM bank_transfers")
        .expect("rows");
    let rows: Vec<u64> = rows
        .concat()
        .iter()
        .map(|row| row.parse().expect("a number"))
        .collect();
    let found: HashSet<u64> = rows.iter().copied().collect();
    assert_eq!(rows.len(), found.len(), "a transfer was done twice");
    let (done, unknown) = (
        ledger.done.lock().expect("a ledger"),
        ledger.unknown.lock().expect("a ledger"),
    );
    let lost: Vec<_> = done.difference(&found).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let strange: Vec<_> = found
        .iter()
        .filter(|number| !done.contains(number) && !unknown.contains(number))
        .collect();
    assert!(
        strange.is_empty(),
        "reported as rolled back, and done: {strange:?}"
    );
}
