//! A cancel ends the query of its own client, and of no other.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::{
    client::{cancel, Client, Connect},
    pooler::Pooler,
    support::postgres::{self, Postgres, USER},
    wait_until,
};

#[test]
fn a_cancel_ends_the_query() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction");
    let mut client = pooler.client();
    client.begin("SELECT pg_sleep(600)");
    wait_until("it sleeps", || sleepers(postgres, "pg_sleep(600)") == 1);
    client.cancel();
    let failure = client.finish().expect_err("it is cancelled");
    assert_eq!(failure.code, "57014");
    assert!(client.query("SELECT 1").is_ok());
}

/// While the pooler sets a client's parameters no cancel is sent; afterwards it is.
#[test]
fn a_cancel_reaches_a_server_with_other_parameters() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction\ndefault_pool_size = 1");
    let mut first = pooler.client();
    first.query("SELECT 1").expect("a row");
    let connect = Connect::new("db", USER).with("application_name", "another");
    let mut client = Client::to(pooler.address(), &connect).expect("a login");
    client.begin("SELECT pg_sleep(601)");
    wait_until("it sleeps", || sleepers(postgres, "pg_sleep(601)") == 1);
    client.cancel();
    let failure = client.finish().expect_err("it is cancelled");
    assert_eq!(failure.code, "57014");
}

/// How many sessions of the server sleep in such a query. A cancel that comes before the server has
/// begun a query is lost, as it is without a pooler.
fn sleepers(postgres: &Postgres, query: &str) -> u32 {
    let pooler = Pooler::of(postgres, "");
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE wait_event = 'PgSleep' AND query LIKE '%{query}%'"
    );
    let rows = pooler.client().query(&sql).expect("rows");
    rows[0][0].parse().expect("a number")
}

/// Clients run short queries while cancels for idle and for busy ones come without end: only
/// queries of clients whose own key was used may end.
#[test]
fn cancel_storm_hits_no_other_client() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(
        postgres,
        "pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 500",
    );
    let mut targets: Vec<Client> = (0..4).map(|_| pooler.client()).collect();
    let keys: Vec<_> = targets.iter().map(|client| client.key.clone()).collect();
    let is_over = AtomicBool::new(false);
    let address = pooler.address();
    thread::scope(|scope| {
        for key in &keys {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    cancel(address, key);
                }
            });
        }
        let bystanders: Vec<_> = (0..8)
            .map(|number| {
                let pooler = &pooler;
                scope.spawn(move || {
                    let mut client = pooler.client();
                    for turn in 0..100 {
                        let sql = format!("SELECT {number} * 1000 + {turn}");
                        let rows = client.query(&sql).expect("no cancel is for this client");
                        assert_eq!(rows, [[(number * 1000 + turn).to_string()]]);
                    }
                })
            })
            .collect();
        for target in &mut targets {
            for _ in 0..20 {
                if let Err(failure) = target.query("SELECT pg_sleep(0.001)") {
                    assert_eq!(failure.code, "57014");
                }
            }
        }
        let done: Vec<_> = bystanders
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(done.iter().all(Result::is_ok));
    });
}

/// A key whose secret is wrong cancels nothing, and gets no reply.
#[test]
fn a_guessed_key_cancels_nothing() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let pooler = Pooler::of(postgres, "pool_mode = transaction");
    let mut client = pooler.client();
    let (process, mut secret) = client.key.clone();
    secret[0] ^= 1;
    client.begin("SELECT pg_sleep(0.3), 'done'");
    wait_until("it runs", || pooler.pool("db", 6) == 1);
    cancel(pooler.address(), &(process, secret));
    let rows = client.finish().expect("nothing was cancelled");
    assert_eq!(rows[0][1], "done");
}
