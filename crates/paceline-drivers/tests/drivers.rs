//! Drivers that other projects wrote, through the front-end, in session and in transaction mode, over
//! a real PostgreSQL and over the embedded back-end.
//!
//! Each driver does the same: typed values and NULLs, prepared statements that several connections
//! use at once in many transactions, rollbacks, an error in the middle of a transaction, copies,
//! cancels and time-outs. A driver that is not installed is skipped with a line that says so.

#[path = "drivers/programs.rs"]
mod programs;
#[path = "drivers/sqlx_driver.rs"]
mod sqlx_driver;
#[path = "drivers/tokio_driver.rs"]
mod tokio_driver;

/// The servers: this program starts itself with this name. Without a role it is an empty test.
#[test]
fn program() {
    // A server that ends has ended this process already.
    let _ = paceline_trial::role::play();
}
