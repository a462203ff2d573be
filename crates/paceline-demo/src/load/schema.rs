//! The tables of the demo.
//!
//! ```text
//!   bank     accounts, tills, branches, payments   the four sums are equal
//!            claims, settlements                   as many marks as settlements
//!   travel   seats, bookings                       no seat is sold twice
//! ```
//!
//! No table of entries has a unique key: an entry that is written twice must be seen twice.

use paceline_check::client::{Failure, Session};

pub(crate) const ACCOUNTS: i64 = 1_000;
pub(crate) const TILLS: i64 = 20;
pub(crate) const BRANCHES: i64 = 4;
pub(crate) const SEATS: i64 = 60;

/// Makes the tables of the bank, if they are not there.
pub(crate) fn make_bank(session: &mut Session) -> Result<(), Failure> {
    for (table, rows) in [
        ("accounts", ACCOUNTS),
        ("tills", TILLS),
        ("branches", BRANCHES),
    ] {
        run(
            session,
            &format!(
                "CREATE TABLE IF NOT EXISTS {table} (id int PRIMARY KEY, balance bigint NOT NULL)"
            ),
        )?;
        let rows: Vec<_> = (0..rows).map(|id| format!("({id}, 0)")).collect();
        let rows = rows.join(", ");
        run(
            session,
            &format!("INSERT INTO {table} VALUES {rows} ON CONFLICT (id) DO NOTHING"),
        )?;
    }
    run(
        session,
        "CREATE TABLE IF NOT EXISTS payments (receipt bigint NOT NULL, account int NOT NULL, \
         till int NOT NULL, branch int NOT NULL, amount bigint NOT NULL)",
    )?;
    run(
        session,
        "CREATE INDEX IF NOT EXISTS payments_by_receipt ON payments (receipt)",
    )?;
    run(
        session,
        "CREATE TABLE IF NOT EXISTS claims (receipt bigint NOT NULL, account int NOT NULL, \
         amount bigint NOT NULL, settled int NOT NULL)",
    )?;
    run(
        session,
        "CREATE INDEX IF NOT EXISTS claims_by_receipt ON claims (receipt)",
    )?;
    run(
        session,
        "CREATE TABLE IF NOT EXISTS settlements (receipt bigint NOT NULL, claim bigint NOT NULL)",
    )?;
    run(
        session,
        "CREATE INDEX IF NOT EXISTS settlements_by_receipt ON settlements (receipt)",
    )
}

/// Makes the tables of the travel agency, if they are not there.
pub(crate) fn make_travel(session: &mut Session) -> Result<(), Failure> {
    run(
        session,
        "CREATE TABLE IF NOT EXISTS seats (flight int NOT NULL, seat int NOT NULL, \
         holder bigint NOT NULL, PRIMARY KEY (flight, seat))",
    )?;
    run(
        session,
        "CREATE TABLE IF NOT EXISTS bookings (receipt bigint NOT NULL, flight int NOT NULL, \
         seat int NOT NULL, agent int NOT NULL)",
    )?;
    run(
        session,
        "CREATE INDEX IF NOT EXISTS bookings_by_receipt ON bookings (receipt)",
    )?;
    open_flight(session, 0)
}

/// Adds the seats of a flight, if they are not there.
pub(crate) fn open_flight(session: &mut Session, flight: i64) -> Result<(), Failure> {
    let seats: Vec<_> = (1..=SEATS)
        .map(|seat| format!("({flight}, {seat}, 0)"))
        .collect();
    let seats = seats.join(", ");
    run(
        session,
        &format!("INSERT INTO seats VALUES {seats} ON CONFLICT (flight, seat) DO NOTHING"),
    )
}

/// The highest number in a column, or zero.
pub(crate) fn highest(session: &mut Session, column: &str, table: &str) -> Result<i64, Failure> {
    let answer = session.query(&format!("SELECT coalesce(max({column}), 0) FROM {table}"))?;
    answer
        .number(0, 0)
        .ok_or_else(|| Failure::Protocol(format!("no highest {column}")))
}

fn run(session: &mut Session, sql: &str) -> Result<(), Failure> {
    session.query(sql).map(|_| ())
}
