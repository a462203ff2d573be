//! What the tests share.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod client;
pub(crate) mod pooler;
#[path = "../../../paceline-pg/tests/support/postgres.rs"]
pub(crate) mod postgres;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longest time to wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}
