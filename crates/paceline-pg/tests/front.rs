//! The pooler as its users have it: a process, clients, and a real PostgreSQL behind it.

mod support;

#[path = "front/bank.rs"]
mod bank;
#[path = "front/cancels.rs"]
mod cancels;
#[path = "front/certificates.rs"]
mod certificates;
#[path = "front/client.rs"]
mod client;
#[path = "front/clients.rs"]
mod clients;
#[path = "front/cluster.rs"]
mod cluster;
#[path = "front/gate.rs"]
mod gate;
#[path = "front/hazards.rs"]
mod hazards;
#[path = "front/hosts.rs"]
mod hosts;
#[path = "front/keys.rs"]
mod keys;
#[path = "front/openings.rs"]
mod openings;
#[path = "front/operations.rs"]
mod operations;
#[path = "front/pooler.rs"]
mod pooler;
#[path = "front/secure.rs"]
mod secure;
#[path = "front/shared.rs"]
mod shared;
#[path = "front/sharing.rs"]
mod sharing;
#[path = "front/tls_client.rs"]
mod tls_client;
#[path = "front/tls_postgres.rs"]
mod tls_postgres;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longest time to wait for anything.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}
